"""What the sources of one tenant said last, and within the last hour: pure; readings and times are handed in.

A point is a source's newest reading as browsers get it, encoded once:

    ["m7", 45.81, 15.97, 1731900000.3, {"NO2": 57, "room": "kit"}]     source, latitude, longitude, log time, values
    ["m8", null, null, 1731900000.4, {"v1": 1, ...}, 3]                the same of one with three values more
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

import h3  # type: ignore[import-untyped]  # ships without types
import orjson

from ..cells import cell_at, corners

SLOT_SECONDS: Final = 30.0
"""The hour is kept in slots: of each source the newest reading in each."""
SLOTS: Final = 120
DENSITY_SLOTS: Final = 20
"""Cells are coloured by the readings of so many slots: ten minutes."""
PAST_SLOTS: Final = 20
"""Who said nothing for so many slots is not shown at that place of the hour."""
MAX_SOURCES: Final = 10_000
"""Of a tenant; beyond it those go that were silent for longest."""
MAX_KEPT: Final = 250_000
"""Points in all slots together; beyond it the oldest slot goes."""
MAX_VALUES: Final = 16
"""Of one reading that are shown."""
MAX_TEXT: Final = 64
"""Characters of a value that are shown."""
MAX_CELLS: Final = 1_500
"""That are shown, the busiest first."""
MAX_OUTLINES: Final = 8 * MAX_CELLS
"""Of cells that are remembered."""
MINUTE: Final = 60
RESOLUTION: Final = 9
"""Of the cells in which readings are counted; what is shown is as coarse or coarser."""

_HIDDEN: Final = frozenset({"id", "source", "time", "lat", "long", "valid_for", "cell", "heard"})


class Point(NamedTuple):
    """A source's newest reading."""

    encoded: bytes
    place: tuple[float, float] | None
    cell: str | None


@dataclass(slots=True)
class Slot:
    """A part of the hour."""

    number: int
    readings: int = 0
    newest: dict[str, bytes] = field(default_factory=dict)
    cells: Counter[str] = field(default_factory=Counter)


class World:
    """Of one tenant."""

    def __init__(self) -> None:
        self.sources: OrderedDict[str, Point] = OrderedDict()
        """In the order in which they were heard."""
        self.places: dict[str, tuple[float, float]] = {}
        """Where sources were announced, for readings that do not say."""
        self.readings = 0
        self.minute: deque[tuple[int, int]] = deque(maxlen=MINUTE)
        """Readings of each second in which there were any."""
        self.dropped: Counter[str] = Counter()
        """Sources and slots forgotten for lack of room."""
        self._slots: deque[Slot] = deque(maxlen=SLOTS)
        self._kept = 0
        self._changed: set[str] = set()

    # ---- What comes in

    def take(self, row: Mapping[str, Any], at: float) -> None:
        """A reading, stored at that time."""
        source = row.get("source")
        if not isinstance(source, str):
            return
        before = self.sources.get(source)
        place = _place(row) or self.places.get(source)
        cell = before.cell if before is not None and before.place == place else _cell(place)
        lat, long = place or (None, None)
        encoded = orjson.dumps([source, lat, long, round(at, 2), *_shown(row)])
        self.sources[source] = Point(encoded, place, cell)
        self.sources.move_to_end(source)
        self._changed.add(source)
        if len(self.sources) > MAX_SOURCES:
            self._changed.discard(self.sources.popitem(last=False)[0])
            self.dropped["sources"] += 1
        slot = self._slot(at)
        self._kept += source not in slot.newest
        slot.newest[source] = encoded
        if cell is not None:
            slot.cells[cell] += 1

    def count(self, readings: int, at: float) -> None:
        """So many readings came; not each is taken where there are too many."""
        self.readings += readings
        second = int(at)
        before = self.minute.pop()[1] if self.minute and self.minute[-1][0] == second else 0
        self.minute.append((second, before + readings))
        self._slot(at).readings += readings

    def _slot(self, at: float) -> Slot:
        number = int(at // SLOT_SECONDS)
        if not self._slots or self._slots[-1].number < number:
            if len(self._slots) == SLOTS:
                self._kept -= len(self._slots[0].newest)
            self._slots.append(Slot(number))
            while self._kept > MAX_KEPT:
                self._kept -= len(self._slots.popleft().newest)
                self.dropped["slots"] += 1
        return self._slots[-1]

    # ---- What is shown

    def changed(self) -> bytes:
        """The points that are new since this was asked last, joined; empty if there are none."""
        changed, self._changed = self._changed, set()
        return b",".join(self.sources[source].encoded for source in changed)

    def points(self) -> bytes:
        """All newest points, joined."""
        return b",".join(point.encoded for point in self.sources.values())

    def past(self, at: float) -> bytes:
        """The points as they were then, joined."""
        number = int(at // SLOT_SECONDS)
        found: dict[str, bytes] = {}
        for slot in self._slots:
            if number - PAST_SLOTS < slot.number <= number:
                found |= slot.newest
        return b",".join(found.values())

    def is_over(self, at: float) -> bool:
        """Whether nothing more can come to what was shown then."""
        return bool(self._slots) and int(at // SLOT_SECONDS) < self._slots[-1].number

    def series(self, sources: Iterable[str]) -> dict[str, list[list[Any]]]:
        """Of each of these sources, time and values in the hour."""
        found: dict[str, list[list[Any]]] = {}
        for source in sources:
            kept = (slot.newest.get(source) for slot in self._slots)
            found[source] = [orjson.loads(point)[3:] for point in kept if point is not None]
        return found

    def cells(self, resolution: int, at: float) -> tuple[list[list[Any]], int]:
        """The cells in which there were readings in the ten minutes before: cell, readings, corners; how many more."""
        number = int(at // SLOT_SECONDS)
        total: Counter[str] = Counter()
        for slot in self._slots:
            if number - DENSITY_SLOTS < slot.number <= number:
                total.update(slot.cells)
        coarse: Counter[str] = Counter()
        for cell, readings in total.items():
            coarse[h3.cell_to_parent(cell, min(resolution, RESOLUTION))] += readings
        found = [[cell, readings, _outline(cell)] for cell, readings in coarse.most_common(MAX_CELLS)]
        return found, len(coarse) - len(found)

    def in_last_minute(self, now: float) -> int:
        """Readings."""
        return sum(readings for second, readings in self.minute if now - MINUTE < second <= now)

    def activity(self, now: float) -> list[int]:
        """Readings in each slot of the hour, the oldest first."""
        newest = int(now // SLOT_SECONDS)
        by_number = {slot.number: slot.readings for slot in self._slots}
        return [by_number.get(number, 0) for number in range(newest - SLOTS + 1, newest + 1)]


def _place(row: Mapping[str, Any]) -> tuple[float, float] | None:
    lat, long = row.get("lat"), row.get("long")
    if isinstance(lat, int | float) and isinstance(long, int | float) and abs(lat) <= 90 and abs(long) <= 180:
        return round(float(lat), 6), round(float(long), 6)
    return None


def _cell(place: tuple[float, float] | None) -> str | None:
    return None if place is None else cell_at(*place, RESOLUTION)


@lru_cache(MAX_OUTLINES)
def _outline(cell: str) -> list[list[float]]:
    return [[round(lat, 5), round(long, 5)] for lat, long in corners(cell)]


def _shown(row: Mapping[str, Any]) -> Iterator[Any]:
    """Values; and how many more there are, if there are."""
    names = [name for name in row if name not in _HIDDEN]
    yield {_cut(name): _cut(value) if isinstance(value := row[name], str) else value for name in names[:MAX_VALUES]}
    if len(names) > MAX_VALUES:
        yield len(names) - MAX_VALUES


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
