"""Rooms that are not there, for trying without hardware. The numbers are those of a room: day, night, people, doors."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from spinney.expression import Value

from ..samples import Acquirer, Sample, Sink
from ..settings import AcquireSimulator

_DAY_SECONDS: Final = 86_400.0
_FRESH_PPM: Final = 420.0
_BATTERY_SECONDS: Final = 400 * _DAY_SECONDS
_DRIFT_SECONDS: Final = 900.0
_STAY_SECONDS: Final = 1800.0
"""Whether somebody is in a room is decided anew so often."""


class Simulator(Acquirer):
    """Sources room-1, room-2 and so on."""

    def __init__(self, name: str, settings: AcquireSimulator, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name)
        self._settings = settings
        self._clock = clock

    async def run(self, sink: Sink) -> None:
        loop = asyncio.get_running_loop()
        began, count = loop.time(), self._settings.sources
        step = 0
        while True:
            due = began + self._settings.every * step / count  # one room after the other, evenly
            if due > loop.time():
                await asyncio.sleep(due - loop.time())
            elif step % count == 0:
                await asyncio.sleep(0)
            now = self._clock()
            number = step % count
            values = room(self._settings.seed, number, now)
            battery = 1 - now % _BATTERY_SECONDS / _BATTERY_SECONDS
            sink.sampled(Sample(f"room-{number + 1}", values, now, now, self.name, battery=battery))
            step += 1


def room(seed: int, number: int, when: float) -> dict[str, Value]:
    """What a room's sensors say at a time: the same for the same arguments."""
    day = math.sin(math.tau * (when / _DAY_SECONDS - 0.375))  # warmest in the afternoon, UTC
    people = _people(seed, number, when)
    temperature = 20.5 + number % 4 * 0.4 + 1.5 * day + 0.8 * people + _drift(seed, number, when, "temperature")
    humidity = 48 - 2.2 * (temperature - 21) + 4 * people + 3 * _drift(seed, number, when, "humidity")
    co2 = _FRESH_PPM + 520 * people + 40 * (1 + _drift(seed, number, when, "co2"))
    return {
        "temperature": round(temperature, 2),
        "humidity": round(min(max(humidity, 15.0), 95.0), 2),
        "co2": float(round(co2)),
        "motion": people > 0.5 and _chance(seed, number, when // 60, "motion") < 0.7,
    }


def _people(seed: int, number: int, when: float) -> float:
    """0 to 1: whether somebody is there, going over from one stay to the next."""

    def at(stay: float) -> float:
        likely = 0.7 if 7 <= stay * _STAY_SECONDS % _DAY_SECONDS / 3600 < 22 else 0.08
        return float(_chance(seed, number, stay, "people") < likely)

    return _between(at, when / _STAY_SECONDS)


def _drift(seed: int, number: int, when: float, what: str) -> float:
    """-1 to 1, never jumping."""
    return _between(lambda step: 2 * _chance(seed, number, step, what) - 1, when / _DRIFT_SECONDS)


def _between(at: Callable[[float], float], place: float) -> float:
    step = math.floor(place)
    share = (1 - math.cos(math.pi * (place - step))) / 2
    return at(step) * (1 - share) + at(step + 1) * share


def _chance(seed: int, number: int, step: float, what: str) -> float:
    """0 to 1, as if by chance, the same for the same arguments."""
    digest = blake2b(f"{seed} {number} {int(step)} {what}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
