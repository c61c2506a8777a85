"""Fetched readings among the log's records: each once, where it would have come, had it gone up.

A reading that the log has, too, is the log's. The others come by the time at which they were taken, but never before an
older reading of their source, nor after a newer one (rule I3): what waited in an outbox came later than it was taken.
So the numbers of the log's readings are looked at first (`look`), then records and readings are joined (`joined`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

import orjson

from ..records import Publications, Record, Run
from .result import Fetched, FetchedReading


class Given(NamedTuple):
    """A record with its place in the log."""

    sequence: int
    arrival: float
    record: Record


_Place = tuple[float, int, int]
"""In the order of the log: its time, the record that is before or after, and -1 before, 0 in, 1 after that."""
_LAST = 2**63
_BEGIN: _Place = (-math.inf, 0, 0)
_END: _Place = (math.inf, _LAST, 0)


class _Source:
    """The readings of one source in the order of their numbers, and what the log has around them."""

    def __init__(self, readings: list[FetchedReading]) -> None:
        self._readings = sorted(readings, key=lambda one: one.id)
        self._numbers = [(one.id.boot, one.id.sequence) for one in self._readings]
        self._is_repeated = bytearray(len(readings))
        self._after: list[_Place | None] = [None] * len(readings)
        """The last record with an older reading than this, and none as old as the one before this."""
        self._before: list[_Place | None] = [None] * len(readings)
        """The first record with a newer reading than this, and none newer than the one after this."""

    def look(self, arrival: float, sequence: int, run: Run) -> None:
        """A run of the log's, in its order."""
        older = bisect_left(self._numbers, (run.boot, run.first))
        newer = bisect_left(self._numbers, (run.boot, run.first + run.length))
        if run.numbered:
            self._is_repeated[older:newer] = b"\1" * (newer - older)
        if newer < len(self._numbers):
            self._after[newer] = (arrival, sequence, 1)
        if older > 0 and self._before[older - 1] is None:
            self._before[older - 1] = (arrival, sequence, -1)

    @property
    def repeated(self) -> int:
        """How many the log has, too."""
        return sum(self._is_repeated)

    def places(self) -> Iterator[tuple[_Place, FetchedReading]]:
        """Where the others are, in their order."""
        befores = list(accumulate(reversed([one or _END for one in self._before]), min))[::-1]
        afters = accumulate([one or _BEGIN for one in self._after], max)
        newest = _BEGIN
        for reading, is_repeated, after, before in zip(self._readings, self._is_repeated, afters, befores, strict=True):
            if not is_repeated:
                place: _Place = (reading.arrival, _LAST, 0)
                place = max(min(place, before) if after < before else place, after, newest)
                newest = place
                yield place, reading


class Placing:
    """Of one answer: `look` at all of the log's runs, then take what is due, record by record."""

    def __init__(self, fetched: Fetched, tenant: str) -> None:
        self._fetched = fetched
        self._tenant = tenant
        by_source: dict[str, list[FetchedReading]] = {}
        for one in fetched.readings:
            by_source.setdefault(one.id.source, []).append(one)
        self._sources = {source: _Source(readings) for source, readings in by_source.items()}
        self._due: deque[tuple[_Place, FetchedReading]] | None = None
        self._arrival = -math.inf
        """Of the records looked at, or passed: the log's time does not step back."""

    @property
    def sources(self) -> frozenset[str]:
        """Whose readings were fetched: runs of others need not be looked at."""
        return frozenset(self._sources)

    def look(self, sequence: int, arrival: float, runs: Iterable[Run]) -> None:
        """A record's runs, in the log's order."""
        self._arrival = max(self._arrival, arrival)
        for run in runs:
            if (source := self._sources.get(run.source)) is not None:
                source.look(self._arrival, sequence, run)

    def looked(self) -> None:
        """All has been looked at."""
        self._fetched.repeated = sum(source.repeated for source in self._sources.values())
        found = [one for source in self._sources.values() for one in source.places()]
        self._due = deque(sorted(found, key=lambda one: (one[0], one[1].id)))
        self._arrival = -math.inf

    def before(self, sequence: int, arrival: float) -> Iterator[Given]:
        """What comes before a record. Records come in the log's order."""
        self._arrival = max(self._arrival, arrival)
        place = (self._arrival, sequence, 0)
        return self._take(lambda due: due < place, sequence)

    def rest(self, sequence: int) -> Iterator[Given]:
        """What comes behind the last record."""
        return self._take(lambda _: True, sequence)

    def _take(self, is_due: Callable[[_Place], bool], sequence: int) -> Iterator[Given]:
        assert self._due is not None
        while self._due and is_due(self._due[0][0]):
            (arrival, *_), reading = self._due.popleft()
            yield Given(sequence, arrival, self._record(reading))

    def _record(self, reading: FetchedReading) -> Publications:
        source, boot, number = reading.id
        run = Run(source, boot, number, 1, reading.client, reading.epoch, 1)
        return Publications(self._tenant, 0.0, (run,), orjson.dumps([reading.publication]))

    def give_up(self) -> None:
        """The log could not be looked at, or the answer ends here: what is left is in no answer."""
        self._fetched.unused += len(self._fetched.readings) if self._due is None else len(self._due)
        self._due = deque()


def joined(records: Iterable[Given], placing: Placing) -> Iterator[Given]:
    """Records of the log, and what was fetched between them."""
    sequence = 0
    for one in records:
        yield from placing.before(one.sequence, one.arrival)
        sequence = one.sequence
        yield one
    yield from placing.rest(sequence)
