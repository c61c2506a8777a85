"""`spinney bench forest`: the first filter that wants a reading, by four structures in plain Python.

A list that asks one filter after the other; the same list with an index (`FilterList`: what a mobile broker uses); the
roots of the subscription forest, one after the other; and the forest with the index (`Forest`: what the cloud finds the
roots with). What the forest itself gains is seen between the structures that both have an index, or both have none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

from spinney import parse_filter
from spinney.compiled import compile_filter
from spinney.expression import Filter
from spinney.forest import FilterList, Forest

from .machine import describe
from .table import Table, number

SIZES = (400, 10_000)
REQUIRED_US = {400: 20.0, 10_000: 60.0}
"""`first_match` of the indexed list, on average over the readings."""

READINGS = 400
ROUNDS = 5
SCAN_SECONDS = 1.0
"""A plain list of 10,000 filters is slow: so long per round, and no longer."""
REMOVED = 400
"""So many filters are removed and added again, to see what a change costs when all the others are there."""

_STREETS: Final = 40
_SELECTIVE_STREETS: Final = 400
_ATTRIBUTES: Final = (("NO2", 0, 200), ("PM10", 0, 150), ("temp", -10, 40), ("hum", 20, 100))


class Structure(Protocol):
    """What finds the first filter that matches."""

    def add(self, id: str, condition: Filter) -> object: ...

    def remove(self, id: str) -> object: ...

    def first_match(self, publication: Mapping[str, Any]) -> str | None: ...


class PlainList:
    """One filter after the other until one matches; each is compiled, as in the other structures."""

    def __init__(self) -> None:
        self._tests: dict[str, Callable[[Mapping[str, Any]], bool]] = {}

    def add(self, id: str, condition: Filter) -> None:
        """Adds a filter."""
        self._tests[id] = compile_filter(condition)

    def remove(self, id: str) -> None:
        """Removes a filter."""
        del self._tests[id]

    def first_match(self, publication: Mapping[str, Any]) -> str | None:
        """The id of the first filter that matches."""
        for id, matches in self._tests.items():
            if matches(publication):
                return id
        return None


@dataclass(frozen=True, slots=True)
class Cost:
    """One structure's microseconds: for a `first_match`, and for adding and removing one filter."""

    match_us: float
    add_us: float
    remove_us: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """All structures with the same filters and readings."""

    filters: str
    """`similar`: about half of the readings match something; `selective`: few do."""
    size: int
    matching: float
    """The share of readings that match something."""
    roots: int
    plain: Cost
    indexed: Cost
    forest: Cost
    roots_us: float
    """A `first_match` among the roots, one after the other."""

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        most = REQUIRED_US[self.size]
        return [f"{self.indexed.match_us:.0f} us over {most:.0f}"] if self.indexed.match_us > most else []

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**asdict(self), "missed": self.missed()}


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
        out.append(parse_filter(text))
    return out


def selective_filters(count: int, seed: int = 9) -> list[Filter]:
    """Alarms: each at the upper end of one attribute, in one of many streets."""
    rng = random.Random(seed)  # noqa: S311  # not for secrets
    out = []
    for _ in range(count):
        name, low, high = rng.choice(_ATTRIBUTES)
        limit = high - (high - low) * rng.uniform(0.005, 0.05)
        out.append(parse_filter(f"{name} > {limit:.2f} AND street = 'street {rng.randrange(_SELECTIVE_STREETS)}'"))
    return out


def similar_readings(count: int, seed: int = 8, streets: int = _STREETS) -> list[dict[str, Any]]:
    """Readings of the same city, with one measured attribute each."""
    rng = random.Random(seed)  # noqa: S311  # not for secrets
    out: list[dict[str, Any]] = []
    for _ in range(count):
        name, low, high = rng.choice(_ATTRIBUTES)
        street = f"street {rng.randrange(streets)}"
        out.append({name: rng.uniform(low, high), "street": street, "battery": rng.randrange(100)})
    return out


def measure(progress: Callable[[str], None]) -> list[Measurement]:
    """Both kinds of filters at both sizes."""
    out = []
    for size in SIZES:
        for name, make, streets in (
            ("similar", similar_filters, _STREETS),
            ("selective", selective_filters, _SELECTIVE_STREETS),
        ):
            progress(f"measuring {size:,} {name} filters")
            out.append(_measure(name, make(size), similar_readings(READINGS, streets=streets)))
    return out


def _measure(name: str, filters: Sequence[Filter], readings: Sequence[Mapping[str, Any]]) -> Measurement:
    plain, indexed, forest, roots = PlainList(), FilterList(), Forest(), PlainList()
    structures: tuple[Structure, ...] = (plain, indexed, forest)
    adding = [_us_to_add(each, filters) for each in structures]
    for id in forest.roots:
        roots.add(id, filters[int(id)])
    few = _readings_within(plain, readings, SCAN_SECONDS)
    asked: list[tuple[Structure, Sequence[Mapping[str, Any]]]]
    asked = [(plain, few), (indexed, readings), (forest, readings), (roots, few)]
    best = [float("inf")] * len(asked)
    for _ in range(ROUNDS):
        for place, (each, some) in enumerate(asked):
            best[place] = min(best[place], _us_each(each, some))
    found = sum(indexed.first_match(reading) is not None for reading in readings)
    removing = [_us_to_remove(each, filters) for each in structures]
    of_plain, of_indexed, of_forest = (Cost(*three) for three in zip(best[:3], adding, removing, strict=True))
    return Measurement(
        name, len(filters), found / len(readings), len(forest.roots), of_plain, of_indexed, of_forest, best[3]
    )


def _us_to_add(target: Structure, filters: Sequence[Filter]) -> float:
    start = time.process_time()
    for number_, condition in enumerate(filters):
        target.add(str(number_), condition)
    return (time.process_time() - start) / len(filters) * 1e6


def _us_to_remove(target: Structure, filters: Sequence[Filter]) -> float:
    """Of some, one at a time, each put back before the next one goes."""
    chosen = random.Random(5).sample(range(len(filters)), min(REMOVED, len(filters)))  # noqa: S311 - not for secrets
    spent = 0.0
    for place in chosen:
        start = time.process_time()
        target.remove(str(place))
        spent += time.process_time() - start
        target.add(str(place), filters[place])
    return spent / len(chosen) * 1e6


def _readings_within(
    target: Structure, readings: Sequence[Mapping[str, Any]], seconds: float
) -> Sequence[Mapping[str, Any]]:
    start = time.process_time()
    for done, reading in enumerate(readings, 1):
        target.first_match(reading)
        if time.process_time() - start > seconds:
            return readings[:done]
    return readings


def _us_each(target: Structure, readings: Sequence[Mapping[str, Any]]) -> float:
    start = time.process_time()
    for reading in readings:
        target.first_match(reading)
    return (time.process_time() - start) / len(readings) * 1e6


def table(found: list[Measurement]) -> Table:
    """One row for each structure with each kind and number of filters."""
    header = ("filters", "structure", "us a reading", "list / this", "add us", "remove us", "at most us", "ok")
    rows = tuple(row for item in found for row in _rows(item))
    notes = (
        "On invented filters and readings: the first filter that matches a reading, and adding and removing",
        "one filter, in plain Python. `list` asks one filter after the other, `roots` only those that no other covers;",
        "`indexed list` and `forest` have the same index, over all filters and over the roots. A mobile broker uses",
        "the indexed list; the cloud the forest, to find the roots that it sends to the broker.",
    )
    return Table("forest", describe(), header, rows, notes)


def _rows(item: Measurement) -> list[tuple[str, ...]]:
    what = f"{item.size:,} {item.filters}, {item.matching:.0%} of readings match"
    most = (number(REQUIRED_US[item.size]), "no" if item.missed() else "yes")
    return [
        (what, "list", *_costs(item, item.plain), "", ""),
        (what, f"{item.roots:,} roots", number(item.roots_us), _times(item, item.roots_us), "", "", "", ""),
        (what, "indexed list", *_costs(item, item.indexed), *most),
        (what, "forest", *_costs(item, item.forest), "", ""),
    ]


def _costs(item: Measurement, cost: Cost) -> tuple[str, ...]:
    return (number(cost.match_us), _times(item, cost.match_us), number(cost.add_us), number(cost.remove_us))


def _times(item: Measurement, match_us: float) -> str:
    return f"{number(item.plain.match_us / match_us)} times"
