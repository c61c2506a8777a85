"""The matcher in pure Python, for where there is no C core: the same answers, and the same refusals."""

from __future__ import annotations

import math
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from json import dumps, loads
from typing import Any, NamedTuple

from .boxes import Box, Constraint, Equals, Is, Range
from .compiled import Test, compile_filter
from .event_json import read_events
from .expression import Filter, Value
from .filter_bytes import split, write
from .matcher_stats import Stats
from .publication import attribute
from .reader import Buffer, Rows, check_name
from .sided import Sided


class Prepared(NamedTuple):
    """A filter, ready to be added."""

    key: bytes
    """The same for equal filters."""
    names: tuple[str, ...]
    boxes: list[Box]
    test: Test | None
    """None where what the index finds it by says all."""


class _Entry:
    """A filter and the numbers that it is there for."""

    __slots__ = ("boxes", "key", "numbers", "places", "serial", "test")

    def __init__(self, prepared: Prepared, serial: int) -> None:
        self.key = prepared.key
        self.boxes = prepared.boxes
        self.test = prepared.test
        self.serial = serial
        self.places: list[Key | tuple[str, Range]] = []
        """What it is found by, for each box."""
        self.numbers: set[int] = set()


class Cell(NamedTuple):
    """Numbers of an attribute from place * 2**level to (place + 1) * 2**level."""

    name: str
    level: int
    place: int


class Exactly(NamedTuple):
    """A value of an attribute, apart from equal ones of another type."""

    name: str
    kind: type[Value]
    value: Value


class Anything(NamedTuple):
    """Whatever an attribute holds; without a name, whatever the publication."""

    name: str | None


Key = Cell | Exactly | Anything
"""What filters are found by. None of these equals one of another kind."""


def _says_all(constraint: Constraint) -> bool:
    """Whether nothing is left to ask of a filter that is found by this."""
    return isinstance(constraint, Equals | Is) or (
        isinstance(constraint, Range) and (_is_sided(constraint) or constraint.low == constraint.high)
    )


def _is_sided(item: Range) -> bool:
    return (item.low == -math.inf) is not (item.high == math.inf)


def _rank(constraint: Constraint) -> int:
    """The lower, the fewer publications can be expected to have it."""
    match constraint:
        case Equals():
            return 0
        case Range() if _is_sided(constraint):
            return 1
        case Range(low, high):
            return 0 if high - low < math.inf else 3
        case Is():
            return 2
    return 3


def _key(name: str, constraint: Constraint) -> Key:
    match constraint:
        case Equals(text):
            return Exactly(name, str, text)
        case Is(flag):
            return Exactly(name, bool, flag)
        case Range(low, high) if low == high:
            return Exactly(name, float, low)
        case Range(low, high) if high - low < math.inf:
            level = math.frexp(high - low)[1]
            return Cell(name, level, math.floor(math.ldexp(low, -level)))
    return Anything(name)


class PythonMatcher:
    """An index from the most special thing that a filter needs to the filter, which is then asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[bytes, _Entry] = {}
        self._by_number: dict[int, _Entry] = {}
        self._found_by: dict[Key, dict[int, _Entry]] = {}
        self._levels: dict[str, Counter[int]] = {}
        """Of each attribute the levels of cells, with how many entries are in them."""
        self._sided: dict[str, Sided[_Entry]] = {}
        self._names: set[str] = set()
        self._serial = 0

    # ---- filters

    @staticmethod
    def prepare(condition: Filter) -> Prepared:
        """What add takes."""
        parts = split(condition)
        key, names = write(parts)
        alone = len(parts.boxes) == 1 and len(parts.boxes[0]) == 1 and parts.rest is None
        certain = alone and all(map(_says_all, parts.boxes[0].values()))
        return Prepared(key, names, parts.boxes, None if certain else compile_filter(condition, clean=True))

    def add(self, number: int, prepared: Prepared) -> None:
        """Adds a filter."""
        with self._lock:
            entry = self._entries.get(prepared.key) or self._add_entry(prepared)
            entry.numbers.add(number)
            self._by_number[number] = entry

    def _add_entry(self, prepared: Prepared) -> _Entry:
        self._serial += 1
        entry = self._entries[prepared.key] = _Entry(prepared, self._serial)
        self._names.update(prepared.names)
        entry.places = [self._best_place(box) for box in entry.boxes]
        for place in set(entry.places):
            if isinstance(place, Key):
                self._found_by.setdefault(place, {})[entry.serial] = entry
                if isinstance(place, Cell):
                    self._levels.setdefault(place.name, Counter())[place.level] += 1
            else:
                name, sided = place
                self._sided.setdefault(name, Sided()).add(sided, entry.serial, entry)
        return entry

    def _best_place(self, box: Box) -> Key | tuple[str, Range]:
        """Where the fewest publications look, as far as one can tell, and where the fewest entries are."""
        lowest = min(map(_rank, box.values()), default=None)
        places: list[Key | tuple[str, Range]] = [
            (name, constraint) if isinstance(constraint, Range) and _is_sided(constraint) else _key(name, constraint)
            for name, constraint in box.items()
            if _rank(constraint) == lowest
        ]
        return min(places, key=self._crowd, default=Anything(None))

    def _crowd(self, place: Key | tuple[str, Range]) -> int:
        return len(self._found_by.get(place, ())) if isinstance(place, Key) else 0

    def remove(self, number: int) -> None:
        """Removes a filter."""
        with self._lock:
            entry = self._by_number.pop(number)
            entry.numbers.remove(number)
            if not entry.numbers:
                self._remove_entry(entry)

    def _remove_entry(self, entry: _Entry) -> None:
        del self._entries[entry.key]
        for place in set(entry.places):
            if isinstance(place, Key):
                self._leave(place, entry)
            else:
                name, sided = place
                self._sided[name].remove(sided, entry.serial)

    def _leave(self, key: Key, entry: _Entry) -> None:
        del self._found_by[key][entry.serial]
        if not self._found_by[key]:
            del self._found_by[key]
        if isinstance(key, Cell):
            self._leave_level(key)

    def _leave_level(self, cell: Cell) -> None:
        levels = self._levels[cell.name]
        levels[cell.level] -= 1
        if not levels[cell.level]:
            del levels[cell.level]

    def stats(self) -> Stats:
        """Counts."""
        with self._lock:
            scanned = len(self._found_by.get(Anything(None), ()))
            entries = len(self._entries)
            return Stats(len(self._by_number), entries, entries - scanned, scanned, len(self._names), 0)

    # ---- matching

    def match(self, publication: Mapping[str, Any]) -> list[int]:
        """The numbers of the filters that are true of it."""
        return self._match(_read(publication))

    def match_json(self, json: Buffer) -> list[list[int]]:
        """The same for each object."""
        return [self._match(event) for event in read_events(bytes(json))]

    def match_rows(self, json: Buffer) -> Rows[int]:
        """The same for each object that matches anything."""
        answers = self.match_json(json)
        matches = [(row, found) for row, found in enumerate(answers) if found]
        rows = loads(bytes(json)) if matches else []
        return Rows(len(answers), matches, [dumps(rows[row], ensure_ascii=False).encode() for row, _ in matches])

    def match_batch(self, batch: Any) -> tuple[bytes, bytes]:
        """The same for each row of a batch: where each row's numbers begin, and the numbers (64 and 32 bits each)."""
        from .arrow_rows import rows

        answers = [self._match(event) for event in rows(batch)]
        offsets = array("q", accumulate(map(len, answers), initial=0))
        return offsets.tobytes(), array("I", [number for answer in answers for number in answer]).tobytes()

    def _match(self, event: Mapping[str, Value]) -> list[int]:
        numbers: list[int] = []
        seen: set[int] = set()
        with self._lock:
            for entry in self._candidates(event):
                if len(entry.boxes) > 1:
                    if entry.serial in seen:
                        continue
                    seen.add(entry.serial)
                if entry.test is None or entry.test(event):
                    numbers += entry.numbers
        return numbers

    def _candidates(self, event: Mapping[str, Value]) -> Iterator[_Entry]:
        for key in self._keys(event):
            if key in self._found_by:
                yield from self._found_by[key].values()
        for name, value in event.items():
            if name in self._sided and isinstance(value, float):
                yield from self._sided[name].holding(value)

    def _keys(self, event: Mapping[str, Value]) -> Iterable[Key]:
        yield Anything(None)
        for name, value in event.items():
            yield Anything(name)
            yield Exactly(name, value.__class__, value)
            if name in self._levels and isinstance(value, float):
                yield from _cells(name, value, self._levels[name])


def _cells(name: str, number: float, levels: Iterable[int]) -> Iterator[Cell]:
    """The cells in which ranges that hold the number can begin: a range is no longer than a cell of its level."""
    for level in levels:
        try:
            place = math.floor(math.ldexp(number, -level))
        except OverflowError:
            continue  # so much larger than the cells that no range of theirs is there
        yield Cell(name, level, place)
        yield Cell(name, level, place - 1)


def _read(publication: Mapping[str, Any]) -> dict[str, Value]:
    """All values checked, numbers as doubles, nulls dropped."""
    event: dict[str, Value] = {}
    for name in publication:
        value = attribute(publication, name)
        check_name(name)
        if value is not None:
            event[name] = value
    return event
