"""Motes that sleep, beside a broker, for hours of virtual time: what they use, and how soon others learn of what."""

from __future__ import annotations

import asyncio
import importlib
import random
import struct
import tempfile
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bleak import BleakScanner
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData

from spinney import parse
from spinney.mote.adverts import KEY_BYTES, Mode
from spinney.subscription import ContentSubscription, StateSubscription

from ...sim import bleak_backend, clock
from ...sim.air import Air
from ...sim.battery import Ledger
from ...sim.city_broker import CityBroker
from ...sim.mote import FIRMWARE, VirtualMote
from ...sim.radio import Radio
from ...sim.sniffer import Traffic
from ..mote_setting import firmware as _library_on_path

MOTES = 2
HOURS = 6.0
SETTLE_S = 600.0
"""Until each has its filter and has told its bits."""
EVENT_EVERY_S = 3600.0
CONNECTION_INTERVAL_S = 0.03
SAMPLE_INTERVAL_S = 60
SCAN_SHARE = 0.9
QUANTITIES = ("temperature", "humidity")
COLD, WARM = 15.0, 30.0
HOT = "WHEN temperature > 25 UNTIL temperature <= 22"
HOTTER = "WHEN temperature > 26 UNTIL temperature <= 21"
CHANGES = 40
_CHANGES_APART_S = (30.0, 400.0)
_LONGEST_CHANGE_S = 3600.0
_BETWEEN_M = 6.0


@dataclass(frozen=True, slots=True)
class Way:
    """How motes are set up: entries of config.json, what is asked of them, and whether they have a bind key."""

    config: Mapping[str, Any]
    text: str | None = None
    has_key: bool = False
    hours: float = HOURS
    changes: int = 0
    """Of the filter table, each at a random moment, after the hours."""


@dataclass(slots=True)
class Seen:
    """Of all motes together."""

    days: float
    """That one mote would have taken for it."""
    used: Ledger = field(default_factory=Ledger)
    fetched: int = 0
    """Samples that the broker fetched."""
    told_s: list[float] = field(default_factory=list)
    """From an event's sample until the broker had it."""
    heard_s: list[list[float]] = field(default_factory=list)
    """When the broker heard an advert, of each mote."""
    changed_s: list[float] = field(default_factory=list)
    """From a change of what is asked until it was committed on a mote."""

    def found_s(self, tries: int = 2000) -> list[float]:
        """From a random moment until an advert was heard."""
        chance = random.Random("found")  # noqa: S311 - repeatable on purpose
        found = []
        for times in self.heard_s:
            for _ in range(tries):
                since_s = chance.uniform(times[0], times[-1])
                found.append(next(heard_s for heard_s in times if heard_s >= since_s) - since_s)
        return found


def simulate(way: Way, firmware: Path = FIRMWARE, motes: int = MOTES) -> Seen:
    """In virtual time. Another version's firmware is that of a checkout's `firmware` folder."""
    with tempfile.TemporaryDirectory(prefix="spinney-energy-") as folder:
        return clock.run(_simulate(way, firmware, Path(folder), motes))


async def _simulate(way: Way, firmware: Path, folder: Path, motes: int) -> Seen:
    return await _Scene(way, firmware, folder, motes).play()


class _Scene:
    def __init__(self, way: Way, firmware: Path, folder: Path, motes: int) -> None:
        self._way = way
        self._chance = random.Random("energy")  # noqa: S311 - repeatable on purpose
        self._air = Air(seed=1, interval_s=CONNECTION_INTERVAL_S)
        self._motes = [self._mote(number, firmware, folder) for number in range(motes)]
        self._warm_since: dict[str, float] = {}
        self._read: dict[str, float] = {}
        self._seen = Seen(way.hours / 24 * motes)

    def _mote(self, number: int, firmware: Path, folder: Path) -> VirtualMote:
        name = f"m{number}"
        mote = VirtualMote(
            self._air,
            name,
            f"C0:00:00:00:00:{number + 1:02X}",
            folder / name,
            firmware=firmware,
            place=(_BETWEEN_M * (number + 1), 0.0),
            world=lambda quantity: self._value(name, number, quantity),
            seed=number,
        )
        sensors = [{"driver": "virtual", "quantities": list(QUANTITIES)}]
        settings = {"name": name, "bonded_writes": False, "sensors": sensors, "sample_interval_s": SAMPLE_INTERVAL_S}
        mote.configure({**settings, **self._way.config})
        if self._way.has_key:
            _give_key(mote.flash.folder / "state")
        return mote

    def _value(self, name: str, number: int, quantity: str) -> float:
        """Warm every other hour, at another minute at each mote; humidity goes up and down all the time."""
        now_s = asyncio.get_running_loop().time()
        if quantity != "temperature":
            return 40.0 + now_s % 997 / 100
        celsius = WARM if (now_s + 700.0 * number) // EVENT_EVERY_S % 2 else COLD
        if self._read.get(name) != celsius:
            self._read[name], self._warm_since[name] = celsius, now_s
        return celsius

    async def play(self) -> Seen:
        radio = Radio(self._air, "hci0", "F0:00:00:00:00:01", scan_share=SCAN_SHARE)
        await radio.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(radio)
            subscription = None if self._way.text is None else _subscription(self._way.text)
            broker = CityBroker("hci0", radio, self._told, subscription, Mode.PRESENCE)
            working = asyncio.ensure_future(broker.run())
            for mote in self._motes:
                asyncio.get_running_loop().call_later(self._chance.uniform(0.0, SAMPLE_INTERVAL_S), mote.power_on)
            try:
                await asyncio.sleep(SETTLE_S)
                await self._hours(broker)
                await self._changes(broker)
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
                for mote in self._motes:
                    mote.power_off()
        return self._seen

    async def _hours(self, broker: CityBroker) -> None:
        before = [deepcopy(mote.battery.ledger) for mote in self._motes]
        times: dict[str, list[float]] = {mote.radio.address: [] for mote in self._motes}
        loop = asyncio.get_running_loop()

        def heard(device: BLEDevice, _data: AdvertisementData) -> None:
            times[device.address].append(loop.time())

        self._seen.told_s.clear()
        fetched = broker.counts["events"]
        async with BleakScanner(heard, bluez={"adapter": broker.name}):
            await asyncio.sleep(self._way.hours * 3600)
        self._seen.heard_s = list(times.values())
        self._seen.fetched = broker.counts["events"] - fetched
        for mote, first in zip(self._motes, before, strict=True):
            self._seen.used = plus(self._seen.used, plus(mote.battery.ledger, first, -1))

    async def _changes(self, broker: CityBroker) -> None:
        """The motes are quiet: what they measure stays as it is, but for the events that go on."""
        loop = asyncio.get_running_loop()
        for number in range(self._way.changes):
            await asyncio.sleep(self._chance.uniform(*_CHANGES_APART_S))
            asked_s = loop.time()
            broker.ask(_subscription((HOTTER, HOT)[number % 2]))
            async with asyncio.timeout(_LONGEST_CHANGE_S):
                while len(broker.filtered) < len(self._motes):
                    await asyncio.sleep(0.05)
            self._seen.changed_s += [done_s - asked_s for done_s in broker.filtered.values()]

    def _told(self, source: str, reading: dict[str, Any]) -> None:
        since_s = self._warm_since.pop(source, None)
        if since_s is not None and "bit" in reading:
            self._seen.told_s.append(asyncio.get_running_loop().time() - since_s)


def plus(one: Ledger, other: Ledger, times: float = 1) -> Ledger:
    """Both, the second so many times."""
    names = [name for name in Ledger.__slots__ if name != "traffic"]
    made = Ledger(**{name: getattr(one, name) + times * getattr(other, name) for name in names})
    made.traffic = _plus(one.traffic, other.traffic, times)
    return made


def _plus(one: Traffic, other: Traffic, times: float) -> Traffic:
    made = deepcopy(one)
    for name in Traffic.__slots__:
        value = getattr(other, name)
        if isinstance(value, dict):
            for kind, count in value.items():
                getattr(made, name)[kind] += times * count
        else:
            setattr(made, name, getattr(one, name) + times * value)
    return made


def _subscription(text: str) -> ContentSubscription | StateSubscription:
    found = parse(text)
    assert isinstance(found, ContentSubscription | StateSubscription)
    return found


def _give_key(folder: Path) -> None:
    """As flashing does."""
    _library_on_path()
    boot, store = importlib.import_module("spinney_boot"), importlib.import_module("spinney_mote.store")
    folder.mkdir(parents=True, exist_ok=True)
    store.Store(boot.Files(str(folder))).put("bindkey", struct.pack("<16sI", bytes(range(KEY_BYTES)), 0))
