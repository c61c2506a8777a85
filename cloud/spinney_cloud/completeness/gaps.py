"""Numbers that are missing between the readings of sources that send all they have."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ..records import Run

MAX_SOURCES: Final = 100_000
"""Beyond it nothing is known of gaps: that is said."""
MAX_GAPS: Final = 100
"""Of one source; of more the newest are taken as one that lasts."""


class Gap(NamedTuple):
    """Numbers of one boot that have not come, and when those around them did."""

    boot: int
    first: int
    end: int
    """The number after the last one that is missing."""
    since: float
    until: float


class _Source:
    __slots__ = ("clients", "gaps", "newest", "newest_at")

    def __init__(self) -> None:
        self.clients: set[str] = set()
        self.newest: tuple[int, int] | None = None
        self.newest_at = 0.0
        self.gaps: list[Gap] = []


class Numbers:
    """What has been heard in a range, by source."""

    def __init__(self) -> None:
        self.overflown = False
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def heard(self, at: float, runs: Iterable[Run]) -> None:
        """The runs of a record, in the log's order."""
        for run in runs:
            source = self._sources.get(run.source)
            if source is None:
                if len(self._sources) >= MAX_SOURCES:
                    self.overflown = True
                    continue
                source = self._sources[run.source] = _Source()
            source.clients.add(run.client)
            if run.numbered:
                _take(source, run, at)

    def counted(self, source: str, client: str, boot: int, end: int, since: float, until: float, missing: int) -> None:
        """What came of a boot up to before number `end`, and how many of its numbers did not. In order of boots."""
        if source not in self._sources and len(self._sources) >= MAX_SOURCES:
            self.overflown = True
            return
        found = self._sources.setdefault(source, _Source())
        found.clients.add(client)
        found.newest, found.newest_at = (boot, end), until
        if missing > 0 and len(found.gaps) < MAX_GAPS:
            found.gaps.append(Gap(-1, 0, 1, since, until))

    def sources(self) -> Iterator[tuple[str, set[str], list[Gap]]]:
        """Each source with those who sent it, and what is missing of it."""
        for name, source in self._sources.items():
            yield name, source.clients, source.gaps


def _take(source: _Source, run: Run, at: float) -> None:
    end = run.first + run.length
    newest = source.newest
    if newest is not None and (run.boot, run.first) < newest:
        source.gaps = [left for gap in source.gaps for left in _without(gap, run)]
    elif newest is not None and newest[0] == run.boot and newest[1] < run.first:
        source.gaps.append(Gap(run.boot, newest[1], run.first, source.newest_at, at))
        if len(source.gaps) > MAX_GAPS:
            *kept, first, last = source.gaps
            source.gaps = [*kept, Gap(-1, 0, 1, first.since, last.until)]
    if newest is None or (run.boot, end) > newest:
        source.newest, source.newest_at = (run.boot, end), at


def _without(gap: Gap, run: Run) -> list[Gap]:
    """What of a gap a run does not fill."""
    end = run.first + run.length
    if gap.boot != run.boot or end <= gap.first or run.first >= gap.end:
        return [gap]
    parts = [gap._replace(end=max(gap.first, run.first)), gap._replace(first=min(gap.end, end))]
    return [part for part in parts if part.first < part.end]
