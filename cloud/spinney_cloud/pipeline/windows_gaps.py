"""Windows without readings, between and after those that have some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

GAPS = 60
"""A series that has had nothing for so many windows has ended: no more of them are gaps."""

Series = tuple[str, ...]


def gaps(
    starts: Mapping[Series, Iterable[int]], length: int, since: int, until: int, most: int = GAPS
) -> Iterator[tuple[Series, int]]:
    """Each window within [since, until) without readings that follows one with some; `starts` are those with some."""
    for series, some in starts.items():
        known = sorted(set(some))
        for start, following in pairwise([*known, until]):
            end = min(following, start + (most + 1) * length, until)
            first = max(start + length, since + (start - since) % length)
            for gap in range(first, end, length):
                yield series, gap
