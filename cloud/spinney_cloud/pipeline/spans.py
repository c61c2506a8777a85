"""Parts of the log for tasks that find out by themselves which of their readings are duplicates.

Planning (scan.py) goes through a whole batch once, in one process, before its first task may begin. A stream's batches
are small and follow one another; but who reads all of a long log at once would wait for that. So each task goes through
what comes within W before its part instead, which says the same (duplicates.py).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from ..names import LOG
from .direct_get import DirectGet
from .duplicates import Windows
from .scan import Scan

MIN_BYTES = 1024**2
"""Of a span, about: for less, a second task costs more than it saves."""
LOOKING = 0.05
"""What it takes to look back on a record, of what it takes to read one."""
ALONE = 2.0
"""So many records are looked back on by all tasks for each that a plan would go through, in one process."""
_HALVINGS = 60


class Span(NamedTuple):
    """What one task reads: the records with after < sequence <= upto."""

    after: int
    upto: int
    windows: Windows
    skip_trimmed: bool


def spans(
    log: DirectGet, after: int, upto: int, most: int, windows: Windows, *, skip_trimmed: bool
) -> list[Span] | None:
    """At most so many parts of a range, which take about as long each; None where a plan is less work."""
    scan = Scan(log, windows, skip_trimmed=skip_trimmed)
    first = scan.check(after)
    after = max(after, first - 1)
    bounds = log.bounds(LOG)
    size = (upto - after) * bounds.bytes // max(bounds.messages, 1)
    _, since = scan.known_from(upto, first)
    past = Past(after - first + 1, upto - since)
    ends = _ends(upto - after, max(1, min(most, size // MIN_BYTES)), past)
    return None if ends is None else [Span(after + one, after + other, windows, skip_trimmed) for one, other in ends]


class Past(NamedTuple):
    """What there is to look back on, in records."""

    before: int
    """The first part."""
    reach: int
    """At most."""

    def of(self, at: float) -> float:
        """Who begins there."""
        return min(self.before + at, self.reach)


def _ends(records: int, parts: int, past: Past) -> list[tuple[int, int]] | None:
    """Where parts begin and end that take about as long each."""
    low, high = 0.0, records + LOOKING * past.reach
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if _ends_of(middle, parts, past)[-1] < records else (low, middle)
    cuts = [0, *map(round, _ends_of(high, parts, past)[:-1]), records]
    if parts > 1 and sum(map(past.of, cuts[:-1])) > ALONE * (records + past.of(0)):
        return None
    return [(one, other) for one, other in pairwise(cuts) if one < other]


def _ends_of(each: float, parts: int, past: Past) -> list[float]:
    """Where parts end that take so long, in records that are read."""
    found: list[float] = []
    at = 0.0
    for _ in range(parts):
        at += max(0.0, each - LOOKING * past.of(at))
        found.append(at)
    return found
