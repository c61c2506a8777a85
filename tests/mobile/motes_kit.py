"""A mobile broker's motes on the virtual radio: adverts and connections by bleak, and what comes of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from radio_kit import ADDRESS, Scene, until

from spinney import Knowledge, Known, parse
from spinney.feed import feed
from spinney.mote.advert import COMPANY
from spinney.subscription import StateSubscription
from spinney_mobile.acquire.ble import BleAdverts
from spinney_mobile.active import ActiveFilter
from spinney_mobile.broker import Broker
from spinney_mobile.local import LocalPort
from spinney_mobile.motes import Identity, MoteInfo, Motes
from spinney_mobile.outbox import Outbox
from spinney_mobile.samples import Heard, Sample
from spinney_mobile.settings import AcquireBle, AcquireMotes, Cloud, Settings
from spinney_tools.sim.mote import VirtualMote

EPOCH_S = 1_700_000_000.0
HOT = "WHEN temperature > 25 UNTIL temperature <= 22"
SOURCE = "c00000000001"
US = "pi"


def active(text: str) -> ActiveFilter:
    """A filter as an activation has it; its digest is its text."""
    subscription = parse(text)
    kind: Any = "state" if isinstance(subscription, StateSubscription) else "content"
    return ActiveFilter(text, kind, subscription, feed(subscription))


def wanted(*texts: str) -> dict[str, ActiveFilter]:
    return {text: active(text) for text in texts}


def constants(**values: Any) -> Known:
    return Known({name: Knowledge.constant(value) for name, value in values.items()})


def identify(address: str, _name: str | None) -> Identity | None:
    return Identity(address.replace(":", "").lower())


class Listener:
    """What the broker does around its motes: hears for them, and takes what they have."""

    def __init__(
        self,
        adapter: str = "hci0",
        *,
        mode: Any = "active",
        kept: Mapping[str, bytes] | None = None,
        identify: Callable[[str, str | None], Identity | None] = identify,
        clock: Callable[[], float] = lambda: clock(),
        **options: Any,
    ) -> None:
        self.samples: list[Sample] = []
        self.tables: list[tuple[str, frozenset[str]]] = []
        self.infos: list[MoteInfo] = []
        self.presence: list[bool] = []
        self.kept: dict[str, bytes] = dict(kept or {})
        self.is_deaf = False
        self.deaf_to_scans = False
        self.old_scan: bytes | None = None
        """Told with each advert, as BlueZ does where no other scan response is heard."""
        self.ble = BleAdverts(adapter, AcquireBle(adapter=adapter, mode=mode), clock)
        self.motes = Motes(
            identify,
            adapters={adapter: adapter},
            kept=self.kept,
            keep=self._keep,
            clock=clock,
            **options,
        )
        self.motes.on_table = self._on_table
        self.motes.on_info = self.infos.append

    def _keep(self, changes: Mapping[str, bytes | None]) -> None:
        for key, value in changes.items():
            if value is None:
                del self.kept[key]
            else:
                self.kept[key] = value

    def _on_table(self, source: str, digests: Collection[str]) -> None:
        self.tables.append((source, frozenset(digests)))

    def on_mote(self, source: str = SOURCE) -> frozenset[str]:
        """The filters that the mote of a source is said to evaluate now."""
        return next((digests for name, digests in reversed(self.tables) if name == source), frozenset())

    # ---- a sink

    def heard(self, heard: Heard) -> None:
        if self.is_deaf:
            return
        if self.deaf_to_scans:
            heard = Heard(
                heard.acquirer, heard.address, heard.time, None, heard.rssi, heard.services,
                {} if self.old_scan is None else {COMPANY: self.old_scan},
            )  # fmt: skip
        self.presence.append(self.motes.heard(heard))

    def sampled(self, sample: Sample) -> None:
        self.samples.append(sample)

    # ---- what tests ask

    async def puts_hot(self) -> None:
        """Until its mote has HOT, has told its bit, and is let go."""
        self.motes.want(SOURCE, wanted(HOT), epoch=1)
        await until(lambda: self.bits(HOT) == [False])
        await until(lambda: not self.is_connected)

    def bits(self, digest: str, source: str = SOURCE) -> list[bool]:
        """The labels of a filter, in order."""
        mine = (sample for sample in self.samples if sample.source == source)
        return [sample.marks[digest].bit for sample in mine if digest in sample.marks]

    def numbers(self, source: str = SOURCE) -> list[tuple[int | None, int | None]]:
        return [(sample.boot, sample.sequence) for sample in self.samples if sample.source == source]

    @property
    def is_connected(self) -> bool:
        return bool(self.motes.connected)

    def health(self, source: str = SOURCE) -> dict[str, Any]:
        """Of a mote, as pages show it; empty if there is none."""
        return self.motes.health(source) or {}


def clock() -> float:
    """The broker's, in virtual time."""
    return EPOCH_S + asyncio.get_running_loop().time()


@asynccontextmanager
async def listening(
    adapter: str = "hci0", *, kind: type[Listener] = Listener, **options: Any
) -> AsyncIterator[Listener]:
    """A broker that runs until the block ends."""
    listener = kind(adapter, **options)
    tasks = [
        asyncio.create_task(listener.ble.run(listener)),
        asyncio.create_task(listener.motes.run(listener)),
    ]
    try:
        yield listener
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        for task in tasks:
            assert task.cancelled(), task.exception()


@asynccontextmanager
async def living(folder: Path, **settings: Any) -> AsyncIterator[tuple[Broker, LocalPort]]:
    """A broker without a cloud, and local life without a port."""
    settings = {"acquire": (AcquireBle(adapter="hci0"), AcquireMotes(adapter="hci0")), **settings}
    chosen = Settings(name=US, cloud=Cloud(url=None), data=folder, **settings)
    folder.mkdir(exist_ok=True)
    outbox = Outbox(folder / "outbox", chosen.outbox)
    outbox.open()
    broker = Broker(chosen, outbox, clock=clock)
    port = LocalPort(broker, folder, subscriptions=10, want=broker.want_locally, clock=clock)
    broker.taking.listeners.append(port)
    tasks = [asyncio.create_task(broker.run()), asyncio.create_task(port.run(None))]
    try:
        yield broker, port
    finally:
        broker.stop()
        await tasks[0]
        tasks[1].cancel()
        await asyncio.wait(tasks)
        outbox.close()


def programs(scene: Scene) -> list[bytes]:
    """The filters that the mote holds, by its own account; none before it has started."""
    return list(scene.life.table.programs()) if scene.mote.board is not None else []


def another(scene: Scene, folder: Path, number: int, readings: dict[str, float], **settings: Any) -> VirtualMote:
    """One more mote on the same air; it is off."""
    folder.mkdir(parents=True, exist_ok=True)
    mote = VirtualMote(scene.air, f"mote{number}", f"C0:00:00:00:00:{number:02X}", folder, world=readings.get)
    mote.configure(
        {
            "name": f"hut{number}",
            "sample_interval_s": 1,
            "advert_interval_ms": 200,
            "watchdog_s": 0,
            "bonded_writes": False,
            "sensors": [{"driver": "virtual", "quantities": ["temperature"]}],
            **settings,
        }
    )
    return mote


__all__ = ["ADDRESS", "HOT", "SOURCE", "Listener", "active", "another", "constants", "listening", "until", "wanted"]
