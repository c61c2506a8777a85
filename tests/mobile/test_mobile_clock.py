"""A machine's clock is set, by an hour and more: samples have the new time, and nothing else comes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from deciding_kit import NOW, sample

from spinney.mote.advert import BTHOME
from spinney_mobile.announcing import GONE_SECONDS
from spinney_mobile.broker import Broker
from spinney_mobile.decode import Registry
from spinney_mobile.devices import REPEAT_SECONDS, DeviceTable
from spinney_mobile.outbox import Outbox
from spinney_mobile.place import Fix, Whereabouts
from spinney_mobile.samples import Heard
from spinney_mobile.settings import Cloud, Place, Settings
from spinney_mobile.taking import HOLD_SECONDS

HOUR = 3600.0
STEPS = pytest.mark.parametrize("step", [HOUR, -HOUR, 20_000 * HOUR])


class Clocked:
    """A broker that does not run, whose machine's clock can be set."""

    def __init__(self, folder: Path) -> None:
        self.wall = self.steady = NOW
        self.outbox = Outbox(folder / "outbox")
        self.outbox.open()
        settings = Settings(name="pi", data=folder, cloud=Cloud(url="mqtt://127.0.0.1:1"), acquire=())
        self.broker = Broker(settings, self.outbox, clock=lambda: self.wall, steady=lambda: self.steady)

    def pass_seconds(self, seconds: float) -> None:
        self.wall += seconds
        self.steady += seconds
        self.broker.tick(self.broker._steady())

    @property
    def announced(self) -> set[str]:
        """In its last announcement."""
        said = self.broker._announced
        return set() if said is None else {one["name"] for one in said["sources"]}


@pytest.fixture
def clocked(tmp_path: Path) -> Iterator[Clocked]:
    one = Clocked(tmp_path)
    yield one
    one.outbox.close()


@STEPS
def test_no_source_is_given_up_nor_kept_for_longer(clocked: Clocked, step: float) -> None:
    clocked.broker.sampled(sample("m1", temp=20))
    clocked.pass_seconds(1.0)
    clocked.wall += step
    clocked.pass_seconds(GONE_SECONDS - 10.0)
    assert clocked.broker.announcer.sources == ["m1"]
    clocked.outbox.leave(list(clocked.outbox.log.entries()))
    clocked.pass_seconds(20.0)
    assert clocked.broker.announcer.sources == []


@STEPS
def test_what_is_to_be_announced_is_announced(clocked: Clocked, step: float) -> None:
    clocked.broker.sampled(sample("m1", temp=20))
    clocked.pass_seconds(1.0)
    clocked.broker.sampled(sample("m2", temp=20))
    clocked.wall += step
    clocked.pass_seconds(1.0)
    assert clocked.announced == {"m1", "m2"}


@STEPS
def test_what_waits_for_word_of_its_owner_waits_no_longer(clocked: Clocked, step: float) -> None:
    clocked.broker.taking._connected = lambda: True
    clocked.broker.sampled(replace(sample("m1", temp=20), rssi=-60))
    clocked.wall += step
    clocked.pass_seconds(HOLD_SECONDS - 1.0)
    assert clocked.broker.taking.counts["sent"] == 0
    clocked.pass_seconds(2.0)
    assert clocked.broker.taking.counts["sent"] == 1


@STEPS
def test_how_long_ago_a_source_was_heard_is_shown_by_the_clock_of_now(clocked: Clocked, step: float) -> None:
    clocked.broker.sampled(sample("m1", temp=20))
    clocked.pass_seconds(5.0)
    clocked.wall += step
    status = clocked.broker.status()
    assert status.now - status.sources[0].heard == pytest.approx(5.0)


@STEPS
def test_a_sensor_that_goes_on_saying_the_same_is_told_again_in_time(step: float) -> None:
    devices = DeviceTable(Registry.installed())
    advert = Heard("ble", "A4:C1:38:00:00:01", NOW, services={BTHOME: bytes.fromhex("4002c409")})
    assert devices.take(advert) is not None
    assert devices.take(replace(advert, time=NOW + 1.0)) is None
    told = devices.take(replace(advert, time=NOW + step + 2.0)) is not None
    again = devices.take(replace(advert, time=NOW + step + 3.0 + REPEAT_SECONDS)) is not None
    assert told or again


@STEPS
def test_where_this_broker_is_is_known_again_with_the_next_fix(step: float) -> None:
    wall = [NOW]
    whereabouts = Whereabouts(Place(kind="gpsd"), clock=lambda: wall[0])
    whereabouts.put(Fix(NOW, 45.0, 15.0))
    wall[0] += step
    whereabouts.put(Fix(wall[0], 46.0, 16.0))
    assert whereabouts.at(wall[0]) == (46.0, 16.0)
