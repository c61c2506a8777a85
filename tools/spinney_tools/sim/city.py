"""A city of virtual motes, brokers and people, in virtual time; the same seed gives the same city and the same events.

    async with City(Plan(motes=50, brokers=2), folder) as city:
        await city.run(600.0)

Run it by clock.run(). Whoever brings brokers of their own plans none, and takes `add_adapter`.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from spinney import Subscription

from . import beacons, bleak_backend
from .air import Air
from .battery import Battery
from .city_broker import CityBroker
from .field import SCENARIOS, Field, Pollution, Source, replay
from .mote import VirtualMote
from .movement import Walker
from .propagation import Interference, Place
from .radio import Radio

_STEP_S = 1.0
_DAY_S = 86400.0
_FIRST_DAY_S = 1_700_006_400.0
"""A Wednesday's midnight, UTC."""
_METRES_PER_DEGREE = 111_320.0
_MOVING_SHARE = 0.3
_SOURCES = 12
_CROWDED = 3
QUANTITIES = ("temperature", "humidity", "pm25", "NO2", "battery")


@dataclass(frozen=True)
class Area:
    """A rectangle of a city by its south-west corner."""

    lat: float
    long: float
    width_m: float
    height_m: float
    cos_lat: float

    def lat_long(self, place: Place) -> tuple[float, float]:
        east, north = place
        lat = self.lat + north / _METRES_PER_DEGREE
        return round(lat, 6), round(self.long + east / (_METRES_PER_DEGREE * self.cos_lat), 6)


AREAS: Mapping[str, Area] = {
    "zagreb": Area(45.8080, 15.9680, 1200.0, 900.0, 0.69706),
    "madrid": Area(40.4120, -3.7100, 1500.0, 1200.0, 0.76145),
    "cambridge": Area(52.2020, 0.1120, 900.0, 700.0, 0.61284),
}


@dataclass(frozen=True)
class Plan:
    """What is simulated. `series` is a CSV file that is replayed, `columns` its names where they differ;
    `extra` more entries of the motes' config.json."""

    motes: int = 200
    brokers: int = 5
    area: str = "zagreb"
    scenario: str = "rush-hour"
    seed: int = 0
    interval_s: int = 60
    series: Path | None = None
    columns: Mapping[str, str] | None = None
    recorded: Path | None = None
    subscription: Subscription | None = None
    extra: Mapping[str, Any] | None = None


class City:
    """Everything of one simulation. `on_publication` is told of each, once, in the order in which brokers hear them."""

    def __init__(
        self, plan: Plan, folder: Path, on_publication: Callable[[dict[str, Any]], None] = lambda _publication: None
    ) -> None:
        self.plan = plan
        self.area = AREAS[plan.area]
        self.counts: Counter[str] = Counter()
        self.start_s = _FIRST_DAY_S + SCENARIOS[plan.scenario].hour * 3600.0
        self._folder = folder
        self._on_publication = on_publication
        self._chance = random.Random(f"city {plan.seed}")  # noqa: S311 - repeatable on purpose
        self._walkers: list[tuple[Radio, Walker]] = []
        self._newest: dict[str, tuple[int, int]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._exits = contextlib.ExitStack()
        self.air = Air(seed=plan.seed, collisions=True, interval_s=0.015)
        self.field = self._make_field()
        self.motes: list[VirtualMote] = []
        self.brokers: list[CityBroker] = []
        self.beacons: list[beacons.Beacon] = []
        self._made_adapters = 0

    async def __aenter__(self) -> City:
        self._exits.enter_context(bleak_backend.install())
        self.air.interference = [Interference(self._anywhere(), 60.0, 0.25) for _ in range(_CROWDED)]
        self.motes = [self._make_mote(number) for number in range(self.plan.motes)]
        for _ in range(self.plan.brokers):
            await self._add_broker()
        if self.plan.recorded is not None:
            for recording in beacons.read(self.plan.recorded):
                self.beacons.append(beacons.Beacon(self.air, recording, self._anywhere()))
        loop = asyncio.get_running_loop()
        for mote in self.motes:
            loop.call_later(self._chance.uniform(0.0, self.plan.interval_s), mote.power_on)
        for beacon in self.beacons:
            beacon.start()
        self._tasks.append(asyncio.create_task(self._move()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for beacon in self.beacons:
            beacon.stop()
        for mote in self.motes:
            mote.power_off()
        for broker in self.brokers:
            broker.radio.power_off()
        self._exits.close()

    async def run(self, seconds: float) -> None:
        """Lets so much virtual time pass; raises what has befallen a broker."""
        sleep = asyncio.create_task(asyncio.sleep(seconds))
        try:
            done, _ = await asyncio.wait([sleep, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
        for task in done:
            task.result()

    @property
    def now_s(self) -> float:
        """The city's time, in epoch seconds."""
        return self.start_s + asyncio.get_running_loop().time()

    async def add_adapter(self, place: Place) -> tuple[str, Radio]:
        """One more adapter for code that uses bleak, under the name that is returned."""
        name = f"hci{self._made_adapters}"
        self._made_adapters += 1
        radio = Radio(self.air, name, _address(0xF0, self._made_adapters), place, scan_share=0.9)
        await radio.power_on()
        bleak_backend.add_adapter(radio, name)
        return name, radio

    def mote(self, name: str) -> VirtualMote:
        """The mote of that name; KeyError if there is none."""
        for mote in self.motes:
            if mote.name == name:
                return mote
        raise KeyError(name)

    # ---- making it

    def _make_field(self) -> Field:
        scenario = SCENARIOS[self.plan.scenario]
        sources = [Source(self._anywhere(), self._chance.uniform(20.0, 120.0)) for _ in range(_SOURCES)]
        made = Pollution(scenario, sources, self.plan.seed)
        if self.plan.series is None:
            return made
        return replay(self.plan.series, made, self.start_s, self.plan.columns)

    def _make_mote(self, number: int) -> VirtualMote:
        name = f"m{number:04d}"
        mote: VirtualMote | None = None

        def world(quantity: str) -> float | None:
            assert mote is not None
            return self.field.value(quantity, mote.radio.place, self.now_s)

        mote = VirtualMote(
            self.air,
            name,
            _address(0xC0, number),
            self._folder / name,
            place=self._anywhere(),
            battery=Battery(capacity_mah=self._chance.uniform(600.0, 1200.0)),
            ppm=self._chance.uniform(-40.0, 40.0),
            world=world,
            seed=self.plan.seed,
        )
        mote.configure(
            {
                "name": name,
                "sample_interval_s": self.plan.interval_s,
                "deep_sleep": True,
                "bonded_writes": False,
                "sensors": [{"driver": "virtual", "quantities": list(QUANTITIES)}],
                **(self.plan.extra or {}),
            }
        )
        if self._chance.random() < _MOVING_SHARE:
            self._walkers.append((mote.radio, self._walker(mote.radio.place)))
        return mote

    async def _add_broker(self) -> None:
        name, radio = await self.add_adapter(self._anywhere())
        broker = CityBroker(name, radio, self._publish, self.plan.subscription)
        self.brokers.append(broker)
        self._walkers.append((radio, self._walker(radio.place)))
        self._tasks.append(asyncio.create_task(broker.run()))

    def _anywhere(self) -> Place:
        return self._chance.uniform(0, self.area.width_m), self._chance.uniform(0, self.area.height_m)

    def _walker(self, place: Place) -> Walker:
        speed_m_s = self._chance.choice((1.2, 1.4, 4.0, 8.0))
        chance = random.Random(self._chance.random())  # noqa: S311 - repeatable on purpose
        return Walker(place, speed_m_s, self.area.width_m, self.area.height_m, chance)

    # ---- while it runs

    async def _move(self) -> None:
        while True:
            await asyncio.sleep(_STEP_S)
            for radio, walker in self._walkers:
                radio.move(walker.step(_STEP_S))

    def _publish(self, source: str, reading: dict[str, Any]) -> None:
        """Each sample once, whichever broker was first; an older one is late, and counted."""
        number = (reading.pop("boot"), reading.pop("sequence"))
        if source in self._newest and number <= self._newest[source]:
            self.counts["heard again or late"] += 1
            return
        self._newest[source] = number
        self.counts["publications"] += 1
        lat, long = self.area.lat_long(self.mote(source).radio.place)
        boot, sequence = number
        self._on_publication(
            {
                "id": f"{source}/{boot}/{sequence}",
                "source": source,
                "time": round(self.now_s, 3),
                "lat": lat,
                "long": long,
                **reading,
            }
        )


def _address(first: int, number: int) -> str:
    return ":".join(f"{byte:02X}" for byte in (first, 0, *number.to_bytes(4, "big")))
