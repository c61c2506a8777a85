"""`spinney bench forest`: the first hit in the subscription forest and in a plain list, in Python."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from spinney import parse
from spinney.expression import Filter
from spinney.forest import FilterList, Forest
from spinney.subscription import ContentSubscription

from .machine import describe
from .table import Table, number

SIZES = (400, 10_000)
REQUIRED_US = {400: 20.0, 10_000: 60.0}
"""The forest's `first_match`, on average over readings of which half match something."""

READINGS = 400
ROUNDS = 5
LIST_SECONDS = 1.0
"""A plain list of 10,000 filters is slow: so long per round, and no longer."""

_STREETS = 40
_ATTRIBUTES = (("NO2", 0, 200), ("PM10", 0, 150), ("temp", -10, 40), ("hum", 20, 100))


class _FirstMatch(Protocol):
    def add(self, id: str, condition: Filter) -> object: ...

    def first_match(self, publication: Mapping[str, Any]) -> object: ...


@dataclass(frozen=True, slots=True)
class Measurement:
    """One size: microseconds for a `first_match`, and how many roots the forest has."""

    size: int
    forest_us: float
    list_us: float
    roots: int

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        most = REQUIRED_US[self.size]
        return [f"{self.forest_us:.0f} us over {most:.0f}"] if self.forest_us > most else []

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        figures = {"size": self.size, "forest_us": self.forest_us, "list_us": self.list_us, "roots": self.roots}
        return {**figures, "missed": self.missed()}


def similar_filters(count: int, seed: int = 7) -> list[Filter]:
    """What many people ask of one city: the same few attributes and places, each with limits of their own."""
    rng = random.Random(seed)  # noqa: S311  # not for secrets
    out = []
    for _ in range(count):
        name, low, high = rng.choice(_ATTRIBUTES)
        limit = rng.uniform(low + (high - low) * 0.6, high)
        text = f"{name} > {limit:.1f}"
        if rng.random() < 0.7:
            text += f" AND street = 'street {rng.randrange(_STREETS)}'"
        if rng.random() < 0.3:
            text += f" AND battery >= {rng.randrange(5, 50)}"
        subscription = parse(text)
        assert isinstance(subscription, ContentSubscription)
        out.append(subscription.filter)
    return out


def similar_readings(count: int, seed: int = 8) -> list[dict[str, Any]]:
    """Readings of the same city, with one measured attribute each."""
    rng = random.Random(seed)  # noqa: S311  # not for secrets
    out: list[dict[str, Any]] = []
    for _ in range(count):
        name, low, high = rng.choice(_ATTRIBUTES)
        street = f"street {rng.randrange(_STREETS)}"
        out.append({name: rng.uniform(low, high), "street": street, "battery": rng.randrange(100)})
    return out


def measure(progress: Callable[[str], None]) -> list[Measurement]:
    """Both structures at both sizes, in turns."""
    out = []
    readings = similar_readings(READINGS)
    for size in SIZES:
        progress(f"measuring the forest with {size:,} filters")
        forest, plain = Forest(), FilterList()
        filters = similar_filters(size)
        _fill(forest, filters)
        _fill(plain, filters)
        few = _readings_within(plain, readings, LIST_SECONDS)
        forest_us = list_us = float("inf")
        for _ in range(ROUNDS):
            forest_us = min(forest_us, _us_each(forest, readings))
            list_us = min(list_us, _us_each(plain, few))
        out.append(Measurement(size, forest_us, list_us, len(forest.roots)))
    return out


def _fill(target: _FirstMatch, filters: list[Filter]) -> None:
    for number_, filter_ in enumerate(filters):
        target.add(f"s{number_}", filter_)


def _readings_within(target: _FirstMatch, readings: list[dict[str, Any]], seconds: float) -> list[dict[str, Any]]:
    start = time.perf_counter()
    for done, reading in enumerate(readings, 1):
        target.first_match(reading)
        if time.perf_counter() - start > seconds:
            return readings[:done]
    return readings


def _us_each(target: _FirstMatch, readings: list[dict[str, Any]]) -> float:
    start = time.perf_counter()
    for reading in readings:
        target.first_match(reading)
    return (time.perf_counter() - start) / len(readings) * 1e6


def table(found: list[Measurement]) -> Table:
    """One row for each size."""
    header = ("filters", "roots", "forest us", "list us", "times faster", "at most us", "ok")
    rows = tuple(
        (
            f"{item.size:,}",
            f"{item.roots:,}",
            number(item.forest_us),
            number(item.list_us),
            number(item.list_us / item.forest_us),
            number(REQUIRED_US[item.size]),
            "no" if item.missed() else "yes",
        )
        for item in found
    )
    return Table("forest", describe(), header, rows, ("The first filter that matches a reading, in Python.",))
