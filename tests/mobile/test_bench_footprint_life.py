"""`spinney bench footprint` counts what a mobile broker, a cloud and a mote that really run say to each other."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import bleak
import pytest
from clouds import Cloud
from radio_kit import Scene, on_air
from uplink_kit import REAL

from spinney.client import Subscriber
from spinney.client.dialogue import Dialogue
from spinney_mobile.active import ActiveFilter
from spinney_mobile.broker import Broker
from spinney_mobile.cells import H3
from spinney_mobile.fetching import Fetches
from spinney_mobile.outbox import Outbox
from spinney_mobile.packing import unpacked
from spinney_mobile.place import Fix
from spinney_mobile.reports import Reports
from spinney_mobile.settings import AcquireBle, AcquireMotes, Place, Settings
from spinney_mobile.settings import Cloud as CloudSettings
from spinney_mobile.tally import Tally
from spinney_mobile.uplink import Uplink
from spinney_tools.bench import footprint_setting as setting
from spinney_tools.bench import footprint_spinney
from spinney_tools.bench.footprint_setting import ROWS, Step
from spinney_tools.bench.footprint_spinney import Coordinator, Filters, Phone, Spent
from spinney_tools.bench.footprint_traffic import Footprint
from spinney_tools.sim.clock import VirtualLoop

SOURCE = "c00000000001"
INTERVAL_S = 40
QUICKLY = 20.0
"""Virtual seconds to a real one, while nothing but the mote's next sample is waited for."""
HERE, THERE = (45.8100, 15.9700), (45.8400, 15.9700)
QUIET = {"temperature": 10.0, "humidity": 50.0, "pm25": 5.0, "NO2": 8.0}
TEXTS = (
    "temperature > 15",
    "NO2 > 30 AND lat BETWEEN 45.80 AND 45.82 AND long BETWEEN 15.95 AND 15.99",
    "pm25 >= 20 AND lat BETWEEN 45.83 AND 45.85 AND long BETWEEN 15.95 AND 15.99",
    "humidity > 90 AND lat > 45.8105",
    "WHEN NO2 > 45 UNTIL NO2 <= 42",
    "WHEN pm25 > 25 UNTIL pm25 <= 20 FOR lat > 45.83",
)
WAY = (
    (HERE, {"temperature": 20.0}),
    (HERE, {}),
    (HERE, {"NO2": 50.0}),
    (HERE, {"humidity": 95.0}),
    (THERE, {}),
    (THERE, {"NO2": 50.0}),
    (THERE, {"pm25": 30.0, "temperature": 20.0}),
    (HERE, {"pm25": 30.0}),
    (HERE, {"NO2": 40.0}),
)
"""Where the phone is at each sample, and what is not quiet there."""
SAME_BYTES = 0.03
"""Numbers have more digits, or fewer; the time of a sample takes 8 bytes more where it is not a whole number, which is
so of some or of none, as they come."""
DEADLINE_SECONDS = 180.0


@pytest.fixture
def cloud(tmp_path: Path) -> Iterator[Cloud]:
    with Cloud(tmp_path / "cloud", program=REAL) as running:
        yield running


async def until(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for: {what}"
        await asyncio.sleep(0.01)


class Overheard:
    """All that a broker says and is told, counted as the bench counts it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.footprint = Footprint()
        self._monkeypatch = monkeypatch
        self._beside(Dialogue, "publish", self._published)
        self._beside(Uplink, "arrived", self._arrived)
        ble = self.footprint.ble
        self._around(lambda _client, _where, data, **_: ble.add(len(data)), "write_gatt_char")
        self._around(lambda *_: ble.add(2), "stop_notify")
        self._read()
        self._notified()

    def _beside(self, kind: type, name: str, heard: Callable[..., object]) -> None:
        original = getattr(kind, name)

        def called(*arguments: Any, **options: Any) -> Any:
            heard(*arguments, **options)
            return original(*arguments, **options)

        self._monkeypatch.setattr(kind, name, called)

    def _published(self, _: object, topic: str, payload: bytes, *, at_most_once: bool = False) -> None:
        """Tallies, reports and what goes with these are by real time, which here goes by slowly."""
        if topic.startswith("spinney/edge/") and not self._is_by_real_time(topic, payload):
            self.footprint.publish(topic, payload, at_most_once=at_most_once)

    def _is_by_real_time(self, topic: str, payload: bytes) -> bool:
        if not topic.endswith("/ann"):
            return False
        said = json.loads(unpacked(payload)).keys() - {"fetch"}
        return said in ({"session"}, {"session", "counts"}, {"session", "report"})

    def _arrived(self, _uplink: Uplink, message: Any) -> None:
        if message.topic.endswith("/act"):
            self.footprint.publish(message.topic, message.payload)
        else:
            self.footprint.answer(message.topic, message.payload)

    def _around(self, heard: Callable[..., object], name: str) -> None:
        self._beside(bleak.BleakClient, name, heard)

    def _read(self) -> None:
        original = bleak.BleakClient.read_gatt_char

        async def read(client: Any, where: Any, **options: Any) -> bytearray:
            value = await original(client, where, **options)
            self.footprint.ble.add(len(value))
            return value

        self._monkeypatch.setattr(bleak.BleakClient, "read_gatt_char", read)

    def _notified(self) -> None:
        original = bleak.BleakClient.start_notify

        async def start(client: Any, where: Any, callback: Callable[[Any, bytearray], None], **options: Any) -> None:
            def notified(sender: Any, data: bytearray) -> None:
                self.footprint.ble.add(len(data))
                callback(sender, data)

            self.footprint.ble.add(2)
            await original(client, where, notified, **options)

        self._monkeypatch.setattr(bleak.BleakClient, "start_notify", start)


def counts(footprint: Footprint) -> list[int]:
    return [footprint.uplink.messages, footprint.answers.messages, footprint.ble.messages, footprint.ble.bytes]


class Life:
    """A phone with a mote on the virtual radio, and a cloud, that go the way."""

    def __init__(self, scene: Scene, folder: Path, cloud: Cloud, overheard: Overheard) -> None:
        self._scene = scene
        self._footprint = overheard.footprint
        self.counts: list[list[int]] = []
        """At the end of each sample, all that there was until then."""
        self.bytes: list[int] = []
        settings = Settings(
            name="edge",
            data=folder,
            cloud=CloudSettings(url=f"mqtt://127.0.0.1:{cloud.port('MQTT')}"),
            acquire=(AcquireBle(adapter="hci0"), AcquireMotes(adapter="hci0")),
            place=Place(kind="file", file=folder / "track"),
        )
        began = time.time()
        folder.mkdir()
        (folder / "track").touch()
        self._outbox = Outbox(folder / "outbox", settings.outbox)
        self._outbox.open()
        self.broker = Broker(settings, self._outbox, clock=lambda: began + asyncio.get_running_loop().time())
        self.broker._battery = None

    async def run(self) -> None:
        self._place = HERE
        staying = asyncio.create_task(self._stay())
        running = asyncio.create_task(self.broker.run())
        try:
            await self._go()
        finally:
            self.broker.stop()
            await running
            staying.cancel()
            await asyncio.gather(staying, return_exceptions=True)
            self._outbox.close()

    async def _stay(self) -> None:
        while True:
            self.broker.whereabouts.put(Fix(self.broker._clock(), *self._place))
            await asyncio.sleep(1.0)

    async def _go(self) -> None:
        for place, readings in WAY:
            if place != self._place:
                self._place = place
                await until(lambda here=place: self._announces(here), "the announcement of another place")  # type: ignore[misc]
            await self._settled()
            self._scene.readings.update({**QUIET, **readings})
            taken = self._scene.life.samples
            pace(QUICKLY)
            await until(lambda before=taken: self._scene.life.samples > before, "a sample")  # type: ignore[misc]
            await self._settled()
            self.counts.append(counts(self._footprint))
            self.bytes.append(self._footprint.uplink.bytes)

    def _announces(self, place: tuple[float, float]) -> bool:
        area = self.broker.announcer.body().get("place")
        return area is not None and abs(area["lat"] - place[0]) < 0.01

    async def _settled(self) -> None:
        """All that follows has happened: announced and answered, active, on the mote, sent and stored."""
        pace(QUICKLY)
        before: list[int] = []
        deadline = time.monotonic() + DEADLINE_SECONDS
        while before != (now := counts(self._footprint)) or not self._is_at_rest():
            assert time.monotonic() < deadline, f"waited {DEADLINE_SECONDS:g} s for all to be at rest"
            before = now
            await asyncio.sleep(3.0)

    def _is_at_rest(self) -> bool:
        broker, (motes,) = self.broker, self.broker.pushing._motes
        health = motes.health(SOURCE) or {}
        said = broker.announcer._said
        if health.get("connected") or health.get("waiting"):
            return False
        if self._outbox.log.count or not broker.leases.epoch(SOURCE):
            return False
        return len(said) == 1 and broker.announcer._changed_at is None and self._is_active()

    def _is_active(self) -> bool:
        """Whether the cloud has told of what follows from the announcement."""
        wanted = Coordinator(Filters(), TEXTS).desired({**self.broker.announcer.body(), "session": "any"})
        active = {digest: replace(one, start=0) for digest, one in self.broker.decider.filters.items()}
        told = {digest: replace(ActiveFilter.from_json(one.to_json()), start=0) for digest, one in wanted.items()}
        return active == told


def pace(speed: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.pace(speed)


def modelled(monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[int]], list[int]]:
    """The same way in the bench's model: counts at the end of each sample."""
    monkeypatch.setattr(Tally, "next", lambda *_: None)
    monkeypatch.setattr(Reports, "next", lambda *_: None)
    monkeypatch.setattr(Fetches, "offer", lambda *_: None)
    monkeypatch.setattr(footprint_spinney, "STATE_START", 10)  # the cloud is as young
    filters, spent = Filters(), Spent()
    phone = Phone("edge", SOURCE, Coordinator(filters, TEXTS), filters, spent)
    grid, now = H3(), setting.START_S
    found, sizes = [], []
    for place, readings in WAY:
        cell = grid.cell(*place, setting.RESOLUTION)
        measured = {**QUIET, **readings}
        raws = tuple(round(measured[row.name] * row.q / row.p) for row in ROWS)
        phone_is_there = range(0, INTERVAL_S, setting.STEP_S)
        for second in phone_is_there:
            phone.step(Step(now + second, 0, place, cell, raws if second == setting.STEP_S else None))
        now += INTERVAL_S
        found.append(counts(spent.footprint))
        sizes.append(spent.footprint.uplink.bytes)
    return found, sizes


@pytest.mark.slow
def test_the_model_counts_what_a_broker_a_cloud_and_a_mote_that_run_say(
    tmp_path: Path, cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    overheard = Overheard(monkeypatch)
    lives: list[Life] = []

    async def scenario(scene: Scene) -> None:
        with Subscriber("ana", server=f"mqtt://127.0.0.1:{cloud.port('MQTT')}") as subscriber:
            for number, text in enumerate(TEXTS):
                await asyncio.to_thread(subscriber.subscribe, text, sid=f"s{number}", timeout_seconds=DEADLINE_SECONDS)
            lives.append(Life(scene, tmp_path / "edge", cloud, overheard))
            await lives[0].run()

    play(tmp_path / "mote", scenario)
    expected, sizes = modelled(monkeypatch)
    assert lives[0].counts == expected
    assert lives[0].bytes == pytest.approx(sizes, rel=SAME_BYTES)


def play(folder: Path, scenario: Callable[[Scene], Awaitable[None]]) -> None:
    on_air(folder, scenario, 1.0, dict(QUIET), name=SOURCE, sample_interval_s=INTERVAL_S)
