"""The whole way: unchanged firmware on virtual motes, mobile brokers, a real cloud, a subscriber by the SDK."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest
from clouds import Cloud
from motes_kit import HOT, SOURCE, programs
from radio_kit import OTHER, Scene, on_air
from test_motes_adverts import mode, scanning
from uplink_kit import REAL, fixed_cloud

from spinney.client import Handle, Notification, Subscriber
from spinney.mote.adverts import Mode
from spinney_mobile.broker import Broker
from spinney_mobile.outbox import Outbox
from spinney_mobile.place import Fix
from spinney_mobile.settings import AcquireBle, AcquireMotes, Motes, Place, Settings
from spinney_mobile.settings import Cloud as CloudSettings
from spinney_tools.sim.clock import VirtualLoop

pytestmark = pytest.mark.slow

DEADLINE_SECONDS = 60.0
QUICKLY = 600.0
HOUR_SECONDS = 3_600.0
SLOWLY = 0.1
"""Virtual seconds to a real one, while it counts how many pass: the cloud's own work is real."""


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path / "cloud", program=REAL) as running:
        yield running


async def until(holds: Callable[[], object], what: str) -> None:
    """Looks again and again, for a real minute at most."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for: {what}"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def mobile(
    folder: Path, name: str, cloud: Cloud, adapter: str = "hci0", *, place: bool = False, motes: Motes | None = None
) -> AsyncIterator[Broker]:
    """A mobile broker, stopped at the end of the block as SIGTERM does it."""
    settings = Settings(
        name=name,
        data=folder / name,
        cloud=CloudSettings(url=f"mqtt://127.0.0.1:{cloud.port('MQTT')}"),
        acquire=(AcquireBle(adapter=adapter), AcquireMotes(adapter=adapter)),
        place=Place(kind="file", file=folder / "track") if place else Place(),
        motes=motes or Motes(),
    )
    (folder / "track").touch()
    began = time.time()
    outbox = Outbox(settings.data / "outbox", settings.outbox)
    settings.data.mkdir(parents=True)
    outbox.open()
    broker = Broker(settings, outbox, clock=lambda: began + asyncio.get_running_loop().time())
    running = asyncio.create_task(broker.run())
    try:
        yield broker
    finally:
        broker.stop()
        await running
        outbox.close()


def pace(speed: float) -> float:
    """Another pace of virtual time; what time it is."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.pace(speed)
    return loop.time()


def is_owner(broker: Broker) -> bool:
    return broker.epoch(SOURCE) > 0


class Reader:
    """A subscriber whose notifications are kept, also by the server while a link is down."""

    def __init__(self, cloud: Cloud, name: str = "reader") -> None:
        self.told: list[Notification] = []
        self._queue: queue.SimpleQueue[Notification] = queue.SimpleQueue()
        server = f"mqtt://127.0.0.1:{cloud.port('MQTT')}"
        self.client = Subscriber(name, server=server, session=f"session-of-{name}")

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.client.connect, DEADLINE_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.client.close)

    async def subscribe(self, text: str) -> Handle:
        """Waits until the cloud has accepted it."""
        return await asyncio.to_thread(
            self.client.subscribe, text, callback=self._queue.put, timeout_seconds=DEADLINE_SECONDS
        )

    def read(self) -> list[Notification]:
        while not self._queue.empty():
            self.told.append(self._queue.get_nowait())
        return self.told

    def values(self) -> list[tuple[str, object]]:
        return [(one.why, (one.publication or {}).get("temperature")) for one in self.read()]


def play(folder: Path, scenario: Callable[[Scene], Awaitable[None]], **settings: Any) -> None:
    folder.mkdir()
    on_air(folder, scenario, speed=1.0, **settings)


def test_a_subscription_made_in_the_cloud_changes_what_a_mote_transmits_within_two_seconds(
    tmp_path: Path, cloud: Cloud
) -> None:
    async def scenario(scene: Scene) -> None:
        async with mobile(tmp_path, "edge", cloud) as broker, Reader(cloud) as reader:
            await until(lambda: is_owner(broker), "the lease of the mote")
            assert programs(scene) == []
            assert scene.life.ring.next & 0xFFFF == 1, "it has transmitted nothing but adverts"
            asked = pace(SLOWLY)
            handle = await reader.subscribe(HOT)
            await until(lambda: programs(scene), "the filter on the mote")
            assert pace(1.0) - asked < 2.0
            for temperature in (30.0, 26.0, 24.0, 20.0, 21.0, 28.0):
                scene.readings["temperature"] = temperature
                taken = scene.life.samples
                await until(lambda before=taken: scene.life.samples >= before + 2, "two samples")
            await until(lambda: len(reader.read()) >= 3, "three notifications")
            assert reader.values() == [("enter", 30.0), ("exit", 20.0), ("enter", 28.0)]
            assert scene.life.ring.next & 0xFFFF <= 1 + 4, "a label each, and perhaps one that told the first bit"
            await asyncio.to_thread(handle.unsubscribe)
            await until(lambda: not programs(scene), "the filter to be withdrawn")

    play(tmp_path / "mote", scenario)


def test_on_the_air_is_nothing_of_an_owned_mote_unless_somebody_wants_it(tmp_path: Path, cloud: Cloud) -> None:
    """As the issue has it: a scanner heard 201 readings, where one event had been wanted."""

    async def scenario(scene: Scene) -> None:
        async with (
            scanning(scene) as scanner,
            mobile(tmp_path, "edge", cloud) as broker,
            Reader(cloud) as reader,
        ):
            await until(lambda: scanner.readings, "readings of a mote that nobody owns")
            await until(lambda: is_owner(broker), "the lease of the mote")
            await reader.subscribe(HOT)
            await until(lambda: programs(scene), "the filter on the mote")
            await until(lambda: mode(scene) is Mode.PRESENCE, "the mode")
            scanner.readings.clear()
            scanner.presences.clear()
            taken, events = scene.life.samples, scene.life.ring.next
            pace(20.0)
            await until(lambda: scene.life.samples >= taken + 200, "200 samples")
            assert scanner.readings == []
            assert len(scanner.presences) > 20
            assert scene.life.ring.next <= events + 1, "at most the first bit"
            assert not reader.read()
            scene.readings["temperature"] = 30.0
            await until(lambda: reader.values() == [("enter", 30.0)], "the enter")
            assert scanner.readings == []
            assert SOURCE in broker.announcer

    play(tmp_path / "mote", scenario)


def test_two_brokers_hear_one_mote_and_the_subscriber_hears_it_once(tmp_path: Path, cloud: Cloud) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with (
            Reader(cloud) as reader,
            mobile(tmp_path, "other", cloud, "hci1") as other,
            mobile(tmp_path, "one", cloud) as one,
        ):
            await until(lambda: is_owner(one) != is_owner(other), "one of them to own the mote")
            owner, idle = (one, other) if is_owner(one) else (other, one)
            await until(lambda: SOURCE in idle.announcer, "the other to hear it, too")
            await reader.subscribe("temperature > 25")
            await until(lambda: programs(scene), "the filter on the mote")
            scene.readings["temperature"] = 30.0
            pace(4.0)
            await until(lambda: len(reader.read()) >= 30, "notifications")
            ids = [one.publication["id"] for one in reader.told if one.publication]
            assert len(ids) == len(set(ids)) == len(reader.told)
            assert reader.client.repeated == 0
            assert idle.taking.counts["sent"] == 0
            assert not {"commits", "events"} & idle.pushing.counts().keys()
            assert owner.taking.counts["sent"] >= 30

    play(tmp_path / "mote", scenario)


def test_when_the_owner_of_a_mote_goes_the_next_one_goes_on_and_no_exit_is_missed(tmp_path: Path, cloud: Cloud) -> None:
    async def scenario(scene: Scene) -> None:
        await scene.add_broker(OTHER, "hci1")
        async with Reader(cloud) as reader, mobile(tmp_path, "first", cloud, "hci1") as first:
            await until(lambda: is_owner(first), "the first lease")
            await reader.subscribe(HOT)
            async with mobile(tmp_path, "next", cloud) as following:
                await until(lambda: SOURCE in following.announcer, "the second to hear it, too")
                scene.readings["temperature"] = 30.0
                await until(lambda: reader.values() == [("enter", 30.0)], "the enter")
                first.stop()
                scene.readings["temperature"] = 20.0
                await until(lambda: is_owner(following), "the next lease")
                await until(lambda: reader.values() == [("enter", 30.0), ("exit", 20.0)], "the exit")
                scene.readings["temperature"] = 31.0
                await until(lambda: len(reader.values()) == 3, "the next enter")
                assert following.taking.counts["sent"] >= 2

    play(tmp_path / "mote", scenario)


def test_an_hour_without_the_cloud_loses_no_state_of_a_mote(tmp_path: Path) -> None:
    cloud = fixed_cloud(tmp_path / "cloud")
    hot = [30.0, 20.0] * 6

    async def scenario(scene: Scene) -> None:
        motes = Motes(open_after=900.0)
        async with mobile(tmp_path, "edge", cloud, motes=motes) as broker, Reader(cloud) as reader:
            await until(lambda: is_owner(broker), "the lease of the mote")
            await reader.subscribe(HOT)
            await until(lambda: programs(scene), "the filter on the mote")
            await until(lambda: not broker.outbox.log.count, "all stored")
            await until(lambda: mode(scene) is Mode.PRESENCE, "the mode")
            renewed = broker.pushing.counts()["adverts_set"]
            await asyncio.to_thread(cloud.stop)
            await until(lambda: not broker._is_connected(), "the loss of the link")
            began = pace(QUICKLY)
            for number, temperature in enumerate(hot, 1):
                scene.readings["temperature"] = temperature
                now = began + HOUR_SECONDS * number / len(hot)
                await until(lambda now=now: asyncio.get_running_loop().time() >= now, "five minutes")  # type: ignore[misc]
            pace(1.0)
            assert broker.outbox.log.count >= len(hot), "all of that waits"
            assert broker.announcer.sources == [SOURCE]
            assert programs(scene), "and the filter is where it was"
            assert mode(scene) is Mode.PRESENCE, "its owner goes on renewing that"
            assert broker.pushing.counts()["adverts_set"] >= renewed + 4
            await asyncio.to_thread(cloud.start)
            expected = [("enter" if one == 30.0 else "exit", one) for one in hot]
            await until(lambda: len(reader.read()) >= len(hot), "what happened meanwhile")
            assert reader.values() == expected
            scene.readings["temperature"] = 31.0
            pace(4.0)
            await until(lambda: reader.values() == [*expected, ("enter", 31.0)], "what happens now")
            assert broker.outbox.status().dropped == 0

    with cloud.start():
        play(tmp_path / "mote", scenario, sample_interval_s=10, advert_interval_ms=2000, fallback="open")


CELLS = {"a": (45.800, 10.0), "b": (45.830, 20.0), "c": (45.860, 25.0)}
"""Where they are, and above which temperature somebody wants to be told there."""


def test_a_walk_through_three_cells_changes_what_the_mote_that_comes_along_evaluates(
    tmp_path: Path, cloud: Cloud
) -> None:
    async def scenario(scene: Scene) -> None:
        scene.readings["temperature"] = 5.0
        async with mobile(tmp_path, "edge", cloud, place=True) as broker, Reader(cloud) as reader:

            async def walk() -> None:
                while True:
                    broker.whereabouts.put(Fix(broker._clock(), here, 15.95))
                    await asyncio.sleep(1.0)

            here, seen = CELLS["a"][0], set[bytes]()

            def is_there(limit: float) -> bool:
                texts, on_mote = [one.text for one in broker.decider.filters.values()], set(programs(scene))
                return len(texts) == 1 and f"> {limit:g}" in texts[0] and len(on_mote) == 1 and not on_mote & seen

            walking = asyncio.create_task(walk())
            await until(lambda: is_owner(broker), "the lease of the mote")
            for lat, limit in CELLS.values():
                await reader.subscribe(
                    f"temperature > {limit:g} AND lat > {lat - 0.002:.3f} AND lat < {lat + 0.002:.3f}"
                )
            pace(4.0)
            for lat, limit in CELLS.values():
                here = lat
                await until(partial(is_there, limit), f"the filter of {lat} alone, on the mote")
                seen |= set(programs(scene))
                told = len(reader.read())
                scene.readings["temperature"] = limit + 1.0
                await until(lambda told=told: len(reader.read()) > told, "a notification")  # type: ignore[misc]
                scene.readings["temperature"] = 5.0
            walking.cancel()
            assert {value for _, value in reader.values()} == {limit + 1.0 for _, limit in CELLS.values()}

    play(tmp_path / "mote", scenario)


def test_overlaps_and_ties_are_told_as_by_one_evaluator_whoever_decides_them(tmp_path: Path, cloud: Cloud) -> None:
    """The mote while it knows its bit; the mobile broker a tie; the cloud what nobody knows after a reboot."""

    async def scenario(scene: Scene) -> None:
        async with mobile(tmp_path, "edge", cloud) as broker, Reader(cloud) as reader:

            async def told(both: tuple[float, float], *whys: str) -> None:
                """What is told anew of this sample; the mote is done with it then."""
                before = len(reader.read())
                scene.readings["temperature"], scene.readings["humidity"] = both
                seen = scene.life.samples
                await until(lambda: scene.life.samples > seen, "a sample")
                await until(lambda: [one.why for one in reader.read()[before:]] == list(whys), f"{whys} of {both}")
                await until(lambda: not len(scene.life.ring), "the events to be taken")

            await until(lambda: is_owner(broker), "the lease of the mote")
            await reader.subscribe("WHEN temperature > 25 UNTIL humidity > 60")
            await until(lambda: [one[0] for one in programs(scene)] == [2], "the filter on the mote")
            await told((30.0, 50.0), "enter")
            await told((20.0, 70.0), "exit")
            await told((30.0, 50.0), "enter")
            await told((20.0, 50.0))
            scene.readings["temperature"], scene.readings["humidity"] = 30.0, 70.0
            scene.mote.power_off()
            scene.mote.power_on()
            await until(lambda: len(reader.read()) >= 8, "all samples inside the overlap")
            assert [one.why for one in reader.told[3:8]] == ["exit", "enter", "exit", "enter", "exit"]
            numbers = [int(str((one.publication or {})["id"]).split(":")[-1]) for one in reader.told[3:8]]
            assert numbers == [1, 2, 3, 4, 5], "each of them, from the first on"
            scene.readings["temperature"], scene.readings["humidity"] = 20.0, 70.0
            await reader.subscribe("WHEN temperature - humidity > 5 UNTIL temperature - humidity <= 5")
            await until(lambda: [one[0] for one in programs(scene)] == [2, 2], "the other filter")
            for both, why in (((8.05, 3.05), "enter"), ((8.0, 3.0), "exit"), ((8.05, 3.05), "enter")):
                scene.readings["temperature"], scene.readings["humidity"] = both
                await until(lambda w=(why, both[0]): reader.values()[-1:] == [w], f"{why} of {both}")
            assert broker.pushing.counts()["bits_written"] >= 1

    readings = {"temperature": 20.0, "humidity": 50.0}
    sensors = [{"driver": "virtual", "quantities": list(readings)}]
    play(tmp_path / "mote", scenario, readings=readings, sensors=sensors)
