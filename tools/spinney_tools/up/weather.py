"""The air of that city at any moment: the daily course of Madrid's own stations, traffic around it, lorries that stay.

Everything follows from the seed and the time, so that each process and each run sees the same.
"""

from __future__ import annotations

import functools
import json
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ..sim.propagation import Place
from .plan import Plan, Spot, on_air

SAMPLE: Final = Path(__file__).parents[1] / "sample" / "madrid.jsonl"
ORDINARY: Final = 0.35
"""The sample is of two days of smog; on an ordinary day there is so much of it."""
LORRY_EVERY_S: Final = 8
LORRY_STAYS_S: Final = 28.0
LORRY_NO2: Final = 260.0
LORRY_REACH_M: Final = 28.0
HOURS: Final = 24
QUANTITIES: Final = ("NO2", "pm25", "temperature", "humidity")


class Weather:
    """What the motes of a plan measure."""

    def __init__(self, plan: Plan) -> None:
        self._seed = plan.seed
        self._spots = plan.spots()
        self._places = {spot.name: on_air(spot.lat, spot.long) for spot in self._spots}
        self._courses = {square.name: course(square.lat, square.long) for square in plan.squares}

    def value(self, quantity: str, spot: Spot, now: float) -> float | None:
        """At a time in epoch seconds; None for what is not measured here."""
        if quantity == "NO2":
            return self._no2(spot, now)
        if quantity == "pm25":
            return 4.0 + 0.22 * self._no2(spot, now)
        if quantity == "temperature":
            return self._celsius(spot, now)
        if quantity == "humidity":
            return min(98.0, max(15.0, 88.0 - 2.4 * self._celsius(spot, now)))
        return None

    def _no2(self, spot: Spot, now: float) -> float:
        kerb = 0.6 + 0.8 * self._fixed(spot.name)
        traffic = 1.0 + 0.22 * self._wave(spot.name, now, 47.0) + 0.15 * self._wave(spot.name, now, 131.0)
        return ORDINARY * at_hour(self._courses[spot.square.name], now) * kerb * traffic + self._lorries(spot, now)

    def _celsius(self, spot: Spot, now: float) -> float:
        daily = 6.0 * math.cos(math.tau * (now % 86_400.0 / 3600.0 - 15.0) / HOURS)
        return 13.0 + daily + self._fixed(spot.name) + 0.2 * self._wave(spot.name, now, 290.0)

    def _lorries(self, spot: Spot, now: float) -> float:
        last = int(now // LORRY_EVERY_S)
        first = last - int(LORRY_STAYS_S // LORRY_EVERY_S)
        return sum(self._lorry(number, spot, now) for number in range(first, last + 1))

    def _lorry(self, number: int, spot: Spot, now: float) -> float:
        """One stops beside a post every few seconds, and leaves after a while."""
        into_s = now - number * LORRY_EVERY_S
        if not 0.0 <= into_s < LORRY_STAYS_S:
            return 0.0
        at = self._places[self._lorry_at(number)]
        metres: float = math.dist(at, self._place(spot))
        return LORRY_NO2 * math.exp(-0.5 * (metres / LORRY_REACH_M) ** 2)

    @functools.lru_cache(maxsize=64)  # noqa: B019 - there is one Weather in a process
    def _lorry_at(self, number: int) -> str:
        return random.Random(f"lorry {self._seed} {number}").choice(self._spots).name  # noqa: S311 - repeatable

    def _place(self, spot: Spot) -> Place:
        return self._places[spot.name]

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - there is one Weather in a process
    def _fixed(self, name: str) -> float:
        """0 to 1, of a post, for good."""
        return random.Random(f"post {self._seed} {name}").random()  # noqa: S311 - repeatable on purpose

    def _wave(self, name: str, now: float, period_s: float) -> float:
        return math.sin(math.tau * (now / period_s + self._fixed(name) * period_s))


def at_hour(hours: Sequence[float], now: float) -> float:
    """Between the hours, at a time of the day in UTC."""
    hour = now % 86_400.0 / 3600.0
    share = hour - int(hour)
    return hours[int(hour)] * (1 - share) + hours[(int(hour) + 1) % HOURS] * share


def course(lat: float, long: float) -> list[float]:
    """NO2 by the hour of the day at the station nearest to a place, averaged over the sample's days."""
    stations = _stations()
    place = min(stations, key=lambda at: math.dist(at, (lat, long)))
    hours = stations[place]
    return [sum(hours[hour]) / len(hours[hour]) for hour in range(HOURS)]


@functools.cache
def _stations() -> Mapping[tuple[float, float], Mapping[int, Sequence[float]]]:
    """By place and hour, where every hour was measured."""
    found: dict[tuple[float, float], defaultdict[int, list[float]]] = {}
    for line in SAMPLE.read_text(encoding="utf-8").splitlines():
        reading = json.loads(line)
        if "NO2" in reading:
            hours = found.setdefault((reading["lat"], reading["long"]), defaultdict(list))
            hours[int(reading["time"][11:13])].append(reading["NO2"])
    return {place: hours for place, hours in found.items() if len(hours) == HOURS}
