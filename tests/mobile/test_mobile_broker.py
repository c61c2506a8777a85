"""The mobile broker whole, with a real cloud: what is wanted goes up once, bits survive, a walk changes what is."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud
from uplink_kit import REAL, fixed_cloud, run, until

from spinney import Subscriber, parse
from spinney.mote.advert import BTHOME
from spinney_mobile import announcing
from spinney_mobile import broker as broker_module
from spinney_mobile.acquire import name_of
from spinney_mobile.broker import Broker
from spinney_mobile.decode import Registry
from spinney_mobile.decode.bthome import BTHome
from spinney_mobile.local import LocalPort
from spinney_mobile.outbox import Outbox
from spinney_mobile.place import Fix
from spinney_mobile.samples import Ability, Heard, Sample
from spinney_mobile.settings import AcquireSimulator, Device, Place, Rule, Settings
from spinney_mobile.settings import Cloud as CloudSettings

pytestmark = pytest.mark.slow

SETTLE_SECONDS = 0.3
HOT = "WHEN temp > 25 UNTIL temp <= 22"
CELLS = {"a": (45.800, 15.950), "b": (45.830, 15.950), "c": (45.860, 15.950)}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests; each has brokers and sources of its own."""
    data = tmp_path_factory.mktemp("cloud") / "data"
    with Cloud(data, "--coordinator-away-grace", "0.2s", program=REAL).start() as cloud:
        yield cloud


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """This cloud acts on announcements at once."""
    monkeypatch.setattr(announcing, "SETTLE_SECONDS", SETTLE_SECONDS)


class Machine:
    """A mobile broker on a folder of its own, whose sources the test speaks for."""

    def __init__(self, folder: Path, name: str, cloud: Cloud | None, **settings: Any) -> None:
        url = None if cloud is None else f"mqtt://127.0.0.1:{cloud.port('MQTT')}"
        self.settings = Settings(name=name, data=folder, cloud=CloudSettings(url=url), acquire=(), **settings)
        self.outbox = Outbox(folder / "outbox")
        self.broker: Broker
        self.task: asyncio.Task[None]

    def start(self) -> None:
        self.outbox.open()
        self.broker = Broker(self.settings, self.outbox)
        self.task = asyncio.create_task(self.broker.run())

    async def stop(self) -> None:
        self.broker.stop()
        await self.task
        self.outbox.close()

    async def abandon(self) -> None:
        """No good-bye, nothing sent, as when its power fails."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.outbox.close()

    def measure(self, source: str, **values: float) -> None:
        now = self.broker._clock()
        found = {name: float(value) for name, value in values.items()}
        self.broker.sampled(Sample(source, found, now, now, "test", rssi=-60))

    async def drained(self) -> None:
        await until(lambda: self.outbox.log.count == 0, "an empty outbox")

    async def owns(self, source: str) -> None:
        await until(lambda: self.broker.leases.epoch(source), f"the lease of {source}")

    async def settled(self, source: str, **values: float) -> None:
        """The source is announced with these attributes, it is ours, and the cloud has acted on all that."""
        self.measure(source, **values)
        await self.owns(source)
        announcer = self.broker.announcer
        await until(lambda: announcer._said[0].sources.get(source), "the announcement to be in force")
        await until(lambda: announcer._said[0].sources[source] is announcer._sources[source].promises, "all of it")

    async def active(self, *texts: str) -> None:
        await until(
            lambda: {one.text for one in self.broker.decider.filters.values()} == set(texts), f"{texts} to be active"
        )

    def count(self, what: str) -> int:
        return self.broker.status().counts[what]


@asynccontextmanager
async def machine(*arguments: Any, **settings: Any) -> AsyncIterator[Machine]:
    one = Machine(*arguments, **settings)
    one.start()
    try:
        yield one
    finally:
        await (one.abandon() if one.task.done() else one.stop())


@contextmanager
def subscribed(cloud: Cloud, name: str, *texts: str) -> Iterator[list[Any]]:
    """All notifications of subscriptions."""
    found: list[Any] = []
    with Subscriber(name, server=f"mqtt://127.0.0.1:{cloud.port('MQTT')}") as subscriber:
        for n, text in enumerate(texts):
            subscriber.subscribe(text, sid=f"s{n}", callback=found.append)
        yield found


def told(found: list[Any], name: str = "temp") -> list[Any]:
    return [(one.why, one.publication[name]) for one in found]


def test_what_somebody_wants_goes_up_and_nothing_else(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        async with machine(tmp_path, "pi-a", cloud) as one:
            await one.settled("a1", temp=1)
            await one.drained()
            sent = one.count("sent")
            with subscribed(cloud, "ana-a", "temp > 30 AND source = 'a1'") as found:
                await one.active("temp > 30")  # what is left of it where there is no other source
                for temp in (20, 31, 29, 32):
                    one.measure("a1", temp=temp)
                await until(lambda: len(found) == 2, "two notifications")
                assert told(found) == [("match", 31.0), ("match", 32.0)]
                await one.drained()
                assert one.count("sent") - sent == 2
                assert one.count("spared") == 2

    run(test())


def test_a_subscriber_is_told_when_a_state_begins_and_ends_whatever_dies_between(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        text = HOT + " FOR source = 'b1'"
        one = Machine(tmp_path, "pi-b", cloud)
        one.start()
        await one.settled("b1", temp=1)
        with subscribed(cloud, "ana-b", text) as found:
            await one.active(text)
            for temp in (20, 26, 30):
                one.measure("b1", temp=temp)
            await until(lambda: told(found) == [("enter", 26.0)], "enter")
            await one.drained()
            await one.abandon()
            one.start()
            await one.active(text)
            for temp in (24, 27, 22):
                one.measure("b1", temp=temp)
            await until(lambda: len(found) > 1, "exit")
            assert told(found) == [("enter", 26.0), ("exit", 22.0)]
        await one.stop()

    run(test())


def test_what_happens_without_a_link_is_told_when_there_is_one(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        text = HOT + " FOR source = 'c1'"
        with subscribed(cloud, "ana-c", text) as found:
            one = Machine(tmp_path, "pi-c", cloud)
            one.start()
            await one.settled("c1", temp=1)
            await one.active(text)
            await one.drained()
            await one.abandon()
            one.outbox.open()
            offline = Broker(one.settings, one.outbox)  # it never runs: there is no link
            one.broker = offline
            for temp in (26, 27, 20, 30):
                one.measure("c1", temp=temp)
            assert [len(each.labels) for each in _waiting(one.outbox)] == [1, 1, 1]
            one.outbox.close()
            one.start()
            expected = [("enter", 26.0), ("exit", 20.0), ("enter", 30.0)]
            await until(lambda: told(found) == expected, "all three")
            await one.stop()

    run(test())


def test_what_a_local_publisher_is_told_is_stored_is_not_lost_with_the_broker(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        with subscribed(cloud, "ana-x", "n > 0 AND source = 'x1'") as found:
            one = Machine(tmp_path, "pi-x", cloud, send="all")
            one.start()
            await until(lambda: one.broker.uplink is not None and one.broker.uplink.connected, "the link")
            port = LocalPort(one.broker, tmp_path, subscriptions=1)
            port.received(
                "kit", "spinney/kit/pub", json.dumps([{"source": "x1", "n": n} for n in range(1, 101)]).encode()
            )
            await one.abandon()  # before anything else had its turn
            port.subscriptions.close()
            one.start()
            await until(lambda: len(found) == 100, "all that was acknowledged")
            await one.stop()

    run(test())


def _waiting(outbox: Outbox) -> list[Any]:
    from spinney_mobile.outbox import decode

    return [decode(entry.data) for entry in outbox.log.entries()]


def test_two_brokers_hear_a_sensor_and_the_subscriber_hears_it_once(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        with subscribed(cloud, "ana-d", "temp > 0 AND source = 'd1'") as found:
            async with machine(tmp_path / "1", "pi-d1", cloud) as one, machine(tmp_path / "2", "pi-d2", cloud) as two:
                both = (one, two)
                await until(lambda: all(each.broker.uplink.connected for each in both), "both links")  # type: ignore[union-attr]
                for temp in range(1, 6):
                    for each in both:
                        each.measure("d1", temp=temp)
                await until(lambda: any(each.broker.leases.epoch("d1") for each in both), "an owner")
                owner = next(each for each in both if each.broker.leases.epoch("d1"))
                await until(lambda: len(found) == 5, "five notifications")
                for temp in (6, 7):
                    for each in both:
                        each.measure("d1", temp=temp)
                await until(lambda: len(found) == 7, "seven")
                await owner.drained()
                assert told(found) == [("match", float(temp)) for temp in range(1, 8)]
                await until(lambda: sum(each.count("others") for each in both) >= 2, "word of the owner at the other")
                assert len(found) == 7

    run(test())


def test_a_sensor_goes_on_under_its_next_owner_when_the_first_is_gone(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        text = HOT + " FOR source = 'e1'"
        with subscribed(cloud, "ana-e", text) as found:
            async with machine(tmp_path / "2", "pi-e2", cloud) as two:
                async with machine(tmp_path / "1", "pi-e1", cloud) as one:
                    await one.settled("e1", temp=1)
                    await one.active(text)
                    two.measure("e1", temp=1)
                    await until(lambda: "e1" in two.broker.leases.known, "word of the owner")
                    two.measure("e1", temp=1)
                    one.measure("e1", temp=26)
                    await until(lambda: told(found) == [("enter", 26.0)], "enter")
                await two.owns("e1")
                await two.active(text)
                two.measure("e1", temp=27)
                two.measure("e1", temp=20)
                await until(lambda: len(found) > 1, "exit")
                assert told(found) == [("enter", 26.0), ("exit", 20.0)]

    run(test())


def test_a_walk_through_three_cells_changes_what_is_active(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        texts = {
            cell: f"temp > 0 AND lat > {lat - 0.002:.3f} AND lat < {lat + 0.002:.3f}"
            for cell, (lat, _) in CELLS.items()
        }
        async with machine(tmp_path, "pi-f", cloud, place=Place(kind="file", file=tmp_path / "track")) as one:
            one.broker.whereabouts.put(Fix(one.broker._clock(), *CELLS["a"]))
            await one.settled("f1", temp=1)
            with subscribed(cloud, "ana-f", *texts.values()) as found:
                for cell, place in CELLS.items():
                    one.broker.whereabouts.put(Fix(one.broker._clock(), *place))
                    await until(lambda cell=cell: _cells(one, texts) == {cell}, f"the filter of cell {cell} alone")  # type: ignore[misc]
                    one.measure("f1", temp=ord(cell))
                    await until(lambda cell=cell: (told(found) or [("", 0)])[-1][1] == ord(cell), cell)  # type: ignore[misc]
            assert told(found) == [("match", float(ord(cell))) for cell in CELLS]

    run(test())


def _cells(one: Machine, texts: dict[str, str]) -> set[str]:
    """The cells whose filters are active."""
    bounds = {cell: f"{lat + 0.002:.3f}" for cell, (lat, _) in CELLS.items()}
    active = [one.text for one in one.broker.decider.filters.values()]
    return {cell for cell in texts if any(bounds[cell] in text for text in active)}


def test_what_a_rule_keeps_private_is_neither_sent_nor_announced(cloud: Cloud, tmp_path: Path) -> None:
    async def test() -> None:
        rules = (Rule(name="private", when="source = 'g1'"),)
        async with machine(tmp_path, "pi-g", cloud, rule=rules, send="all") as one:
            one.measure("g1", temp=1)
            await one.settled("g2", temp=1)
            assert one.broker.announcer.sources == ["g2"]
            assert one.broker.status().suppressed == {"private": 1}

    run(test())


@pytest.mark.parametrize(("seconds", "outside"), [(0.0, 1), (3600.0, 0)])
def test_after_long_without_the_link_all_goes_up_until_the_cloud_has_acted_on_an_announcement_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, outside: int
) -> None:
    async def test(cloud: Cloud) -> None:
        async with machine(tmp_path / "edge", "pi-y", cloud) as one:
            await one.settled("y1", temp=1)
            before = one.count("outside")
            monkeypatch.setattr(announcing, "SETTLE_SECONDS", 3600.0)
            await asyncio.to_thread(cloud.stop)
            await until(lambda: not one.broker._was_connected, "the loss of the link")
            monkeypatch.setattr(broker_module, "FORGOTTEN_SECONDS", seconds)
            await asyncio.to_thread(cloud.start)
            await until(lambda: one.broker._was_connected, "the link again")
            one.measure("y1", temp=2)
            assert one.count("outside") - before == outside

    with fixed_cloud(tmp_path / "cloud", "--coordinator-away-grace", "0.2s").start() as cloud:
        run(test(cloud))


def test_a_source_that_falls_silent_is_given_up(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with machine(tmp_path, "pi-h", cloud) as one:
            await one.settled("h1", temp=1)
            monkeypatch.setattr(announcing, "GONE_SECONDS", 0.0)
            await until(lambda: one.broker.announcer.sources == [], "the source to be forgotten")
            await until(lambda: not one.broker.leases.epoch("h1"), "its lease to be over")
            assert not one.broker.taking.sent
            assert not one.broker.taking._sizes
            monkeypatch.undo()
            one.measure("h1", temp=2)
            assert one.broker.announcer.sources == ["h1"]

    run(test())


def test_a_source_is_announced_until_all_that_concerns_it_is_stored(tmp_path: Path) -> None:
    now = 1_000_000.0
    outbox = Outbox(tmp_path / "outbox")
    outbox.open()
    settings = Settings(name="pi", data=tmp_path, cloud=CloudSettings(url="mqtt://127.0.0.1:1"), acquire=())
    broker = Broker(settings, outbox, clock=lambda: now)  # it never runs: there is no link
    broker.sampled(Sample("m1", {"temp": 20.0}, now, now, "test"))
    now += announcing.GONE_SECONDS + 1
    for _ in range(2):
        broker.tick(now)
    assert broker.announcer.sources == ["m1"], "its reading waits"
    outbox.leave(list(outbox.log.entries()))
    broker.tick(now)
    assert broker.announcer.sources == []
    outbox.close()


def test_without_a_cloud_nothing_is_kept_to_go_up(tmp_path: Path) -> None:
    async def test() -> None:
        async with machine(tmp_path, "pi-i", None, send="all") as one:
            one.measure("i1", temp=1)
            assert one.outbox.log.count == 0
            status = one.broker.status()
            assert status.uplink.error == "no cloud is set"
            assert [source.name for source in status.sources] == ["i1"]

    run(test())


def test_the_status_says_what_there_is_and_is_json(tmp_path: Path) -> None:
    async def test() -> None:
        device = Device(address="AA:BB", name="desk", lat=45.8, long=15.9, attributes={"room": "lab"}, type="air")
        async with machine(tmp_path, "pi-j", None, device=(device,)) as one:
            one.broker.sampled(
                replace(Sample("desk", {"temp": 20.0, "room": "lab"}, 1.0, 1.0, "test"), rssi=-60, battery=0.5)
            )
            status = json.loads(json.dumps(one.broker.status().to_json()))
            (source,) = status["sources"]
            assert (source["name"], source["rssi"], source["battery"], source["owned"]) == ("desk", -60, 0.5, True)
            assert one.broker.constants("desk").keys() == {"room", "type", "lat", "long", "cell"}
            assert one.broker.explain({"temp": 1.0}) == []

    run(test())


def test_of_two_changes_of_settings_at_once_the_later_one_holds(tmp_path: Path) -> None:
    async def test() -> None:
        rooms = tuple(AcquireSimulator(name=name, every=0.05) for name in ("one", "two", "three"))
        async with machine(tmp_path, "pi-k", None) as one:
            for before, after in itertools.pairwise([(), rooms, rooms[:1], rooms[1:], ()]):
                change = [replace(one.settings, acquire=acquire) for acquire in (before, after, before, after)]
                await asyncio.gather(*map(one.broker.configure, change))
                assert {each.name for each in one.broker.acquirers} == {name_of(each) for each in after}

    run(test())


class Broken:
    """A decoder of somebody's package, with a bug."""

    name = "broken"
    abilities: Mapping[str, Ability] = {}

    def decode(self, heard: Heard, key: bytes | None) -> None:
        raise ZeroDivisionError(f"of {heard.address}, with {key!r}")


def test_what_stands_in_the_way_is_in_the_status(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.open()
    settings = Settings(name="pi", data=tmp_path, cloud=CloudSettings(url=None), acquire=())
    broker = Broker(settings, outbox, registry=Registry.of((Broken(), BTHome())))
    assert broker.status().problems == []
    broker.heard(Heard("ble", "A4:C1:38:00:00:01", 1.0, services={BTHOME: bytes.fromhex("4002c409")}))
    outbox.error, broker.watchdog.error, broker.whereabouts.error = "disk full", "no hciconfig", "no gpsd"
    status = broker.status()
    assert status.problems == [
        "place: no gpsd",
        "outbox: disk full; readings are kept in memory until it can be written",
        "watchdog: no hciconfig",
        "decoder broken: ZeroDivisionError: of A4:C1:38:00:00:01, with None",
    ]
    assert status.sources[0].values == {"temperature": 25.0}, "another decoder has read it"
    assert [one["name"] for one in status.decoders] == ["broken", "bthome"]
    outbox.error = None
    outbox.close()


@pytest.mark.parametrize("intact", [True, False])
def test_after_a_loss_of_the_disk_bits_are_unknown_s2(tmp_path: Path, intact: bool) -> None:
    def begin() -> tuple[Outbox, Broker]:
        outbox = Outbox(tmp_path / "outbox")
        outbox.open()
        outbox.intact = intact
        settings = Settings(name="pi", data=tmp_path, cloud=CloudSettings(url=None), acquire=())
        return outbox, Broker(settings, outbox)

    outbox, broker = begin()
    active = {"filter": "s", "kind": "state", "subscription": parse(HOT).to_json()}
    leases = [{"source": "m1", "owner": "pi", "epoch": 7}]
    activation = {"epoch": 1, "full": True, "add": [active], "drop": [], "leases": leases}
    broker.activations.receive(json.dumps(activation).encode())
    broker.sampled(Sample("m1", {"temp": 30.0}, 1.0, 1.0, "test"))
    assert broker.decider.bit("s", "m1") is True
    outbox.close()
    outbox, broker = begin()
    assert broker.decider.bit("s", "m1") is (True if intact else None)
    assert ("bit:s:m1" in outbox.state()) == intact
    assert "number:m1" in outbox.state()
    outbox.close()
