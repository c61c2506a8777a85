"""Planning what to read: the log gone through once, in order, by one process, before the tasks read it in parallel.

This finds how many rows and bytes each record has (so that a batch is as large as it may be, and its partitions alike),
which rows are duplicates, the log's time, and the version of the subscription set. Only headers are parsed.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ..log_reader import Message
from ..names import LOG, log_subject
from ..retention import PIPELINE
from .direct_get import DirectGet
from .duplicates import DEFAULT_WINDOWS, Duplicates, Seen, Windows

MAX_ROWS = 200_000
MAX_BYTES = 64 * 1024**2
"""Of a batch, unless set."""
MAX_KEPT = 1_000_000
"""Records that are planned and not yet read; no batch has more."""
MIN_ROWS = 4_000
"""Of a partition: for less, a second task costs more than it saves."""


LOOK_SECONDS = 1.0
"""How often it is looked whether the log still is what it was, while nothing comes."""
NO_END = 2**63 - 1
NOWHERE = -1


class LogTrimmed(Exception):
    """Records that were to be read are gone."""

    def __init__(self, after: int, first: int) -> None:
        super().__init__(
            f"the log begins at record {first}, but the pipeline has read up to {after} only: "
            f"records {after + 1} to {first - 1} were purged unread. They may be in a backup of the log "
            f"(spinney cloud restore). To go on without them, start once with --skip-missing (of spinney cloud: "
            f"--pipeline-skip-missing; of the source: option on_trimmed=skip); the gap is noted in the lake's dead "
            f"letters. So that it does not happen again, set log.pipeline = true: the keeper then waits for the reader "
            f"`{PIPELINE}`"
        )
        self.after = after
        self.first = first


class LogReplaced(Exception):
    """The log ends before the place that was read already."""

    def __init__(self, after: int, last: int) -> None:
        super().__init__(
            f"the log ends at record {last}, but the pipeline has read up to {after} already: this is another log, or "
            f"its newest part was lost. Restore the log from a backup, or give the pipeline a new lake and checkpoint"
        )
        self.after = after
        self.last = last


class Limits(NamedTuple):
    """Of a batch."""

    rows: int = MAX_ROWS
    bytes: int = MAX_BYTES


DEFAULT_LIMITS = Limits()


class Planned(NamedTuple):
    """A record that is to be read."""

    sequence: int
    rows: int
    arrival: float
    """The log's time after it."""
    repeated: Sequence[int]
    late: Sequence[int]
    subscriptions: int
    """The version of the subscription set after it."""


class Slice(NamedTuple):
    """What one task reads: the records with after < sequence <= upto."""

    after: int
    upto: int
    arrival: float
    """The log's time after the record `after`."""
    records: int
    """How many it must find."""
    repeated: Mapping[int, Sequence[int]]
    """By record, the rows that are duplicates."""
    late: Mapping[int, Sequence[int]]
    """By record, the rows that came late."""
    subscriptions: int
    """The version of the subscription set where it begins."""


def check_place(log: DirectGet, after: int) -> tuple[int, int]:
    """The log's first record, and how many are gone that follow this one; LogReplaced if this one never was."""
    first, last, *_ = log.bounds(LOG)
    if last < after:
        raise LogReplaced(after, last)
    return first, max(0, first - after - 1)


class Scan:
    """A place in the log that moves on. What it has planned is kept until the reading goes on beyond it."""

    def __init__(
        self,
        log: DirectGet,
        windows: Windows = DEFAULT_WINDOWS,
        *,
        skip_trimmed: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.subscriptions = 0
        """The version of the subscription set: the newest record that changed it."""
        self.skipped = 0
        """Records that were purged before they were read."""
        self._log = log
        self._windows = windows
        self._skip = skip_trimmed
        self._clock = clock
        self._looked = 0.0
        self._duplicates = Duplicates(windows)
        self._base = self._at = NOWHERE
        self._base_arrival = 0.0
        self._base_subscriptions = 0
        self._kept: deque[Planned] = deque()

    @property
    def duplicates(self) -> int:
        """How many it has found, those before its beginning among them."""
        return self._duplicates.duplicates

    @property
    def at(self) -> int:
        """The last record that was met."""
        return self._at

    @property
    def arrival(self) -> float:
        """The log's time after it."""
        return self._duplicates.arrival

    # ---- where to begin

    def seek(self, after: int) -> None:
        """Go on after this record. LogTrimmed if the next one is gone, LogReplaced if this one never was."""
        first = self.check(after)
        self._duplicates = Duplicates(self._windows)
        if after >= first:
            self._look_back(after, first)
        self._base = self._at = after
        self._base_arrival = self._duplicates.arrival
        self._kept.clear()
        self.subscriptions = self._log.last_of_subject(LOG, log_subject("subscription", "*"), after) if after else 0
        self._base_subscriptions = self.subscriptions

    def check(self, after: int) -> int:
        """The log's first record; LogTrimmed if what follows this one is gone, LogReplaced if this one never was."""
        first, missing = check_place(self._log, after)
        if missing and not self._skip:
            raise LogTrimmed(after, first)
        self.skipped += missing
        self._looked = self._clock()
        return first

    def _look_back(self, after: int, first: int) -> None:
        """Remember what is less than W old at that place."""
        now, since = self.known_from(after, first)
        for message in self._log.range(LOG, since, after):
            self._duplicates.remember(message, now)

    def known_from(self, after: int, first: int) -> tuple[float, int]:
        """The time of a record, and which must be known from on to go on after it; `first`: the log's."""
        now = self._time_of(after)
        return now, self._since(now - self._windows.lookback, first, after)

    def _since(self, moment: float, low: int, high: int) -> int:
        """A record from which on all are of that moment or later, but for a clock that was set back meanwhile."""
        while low < high:
            middle = (low + high) // 2
            if self._time_of(middle) < moment:
                low = middle + 1
            else:
                high = middle
        return low

    def _time_of(self, sequence: int) -> float:
        found = self._log.first_from(LOG, sequence)
        return found.time if found else math.inf

    # ---- going on

    def forward(self, after: int, limits: Limits, *, upto: int = NO_END, all_kinds: bool = False) -> int:
        """How far a batch may go that begins after this record; `after` if there is nothing for it.

        Records that are no publications do not make a batch by themselves, unless `all_kinds`.
        """
        if not self._base <= after <= self._at:
            self.seek(after)
        self._forget(after)
        if not any(item.rows for item in self._kept):
            self._read_on(limits, upto)
        if self._kept and (all_kinds or len(self._kept) >= MAX_KEPT or any(item.rows for item in self._kept)):
            return self._kept[-1].sequence
        return after

    def _forget(self, upto: int) -> None:
        """What was planned up to there has been read."""
        while self._kept and self._kept[0].sequence <= upto:
            gone = self._kept.popleft()
            self._base_arrival, self._base_subscriptions = gone.arrival, gone.subscriptions
        self._base = upto

    def _read_on(self, limits: Limits, upto: int) -> None:
        rows = size = 0
        for message, seen in self.walk(upto):
            arrival = self._duplicates.arrival
            self._kept.append(
                Planned(message.sequence, seen.rows, arrival, seen.repeated, seen.late, self.subscriptions)
            )
            rows += seen.rows
            size += len(message.data)
            if rows >= limits.rows or size >= limits.bytes or len(self._kept) >= MAX_KEPT:
                return
        if not size and self._clock() - self._looked > LOOK_SECONDS:
            self.check(self._at)

    def walk(self, upto: int) -> Iterator[tuple[Message, Seen]]:
        """The records from here on, in order, and what they are; LogTrimmed where some are gone."""
        while True:
            for message in self._log.range(LOG, self._at + 1, upto):
                if message.sequence > self._at + 1:
                    break
                seen = self._duplicates.apply(message)
                if seen.changes_subscriptions:
                    self.subscriptions = message.sequence
                self._at = message.sequence
                yield message, seen
            else:
                return
            self.check(self._at)
            self._at = message.sequence - 1

    def slices(self, after: int, upto: int, most: int) -> list[Slice]:
        """The partitions of a batch, at most so many, of about as many rows each."""
        if not (self._base <= after and upto <= self._at):
            if not self._base <= after <= self._at:
                self.seek(after)
            self._read_on(Limits(NO_END, NO_END), upto)
        begun = Begun(after, self._base_arrival, self._base_subscriptions)
        planned: list[Planned] = []
        for item in self._kept:
            if item.sequence <= after:
                begun = Begun(after, item.arrival, item.subscriptions)
            elif item.sequence <= upto:
                planned.append(item)
        rows = sum(item.rows for item in planned)
        return _cut(planned, begun, upto, max(MIN_ROWS, -(-rows // most)))


class Begun(NamedTuple):
    """Where a slice begins, and what the log says there."""

    after: int
    arrival: float
    subscriptions: int


def _cut(planned: Iterable[Planned], begun: Begun, upto: int, each: int) -> list[Slice]:
    found: list[Slice] = []
    rows, some = 0, list[Planned]()
    for item in planned:
        rows += item.rows
        some.append(item)
        if rows >= each and item.sequence < upto:
            found.append(_slice(begun, item.sequence, some))
            begun, rows, some = Begun(item.sequence, item.arrival, item.subscriptions), 0, []
    if begun.after < upto:
        found.append(_slice(begun, upto, some))
    return found


def _slice(begun: Begun, upto: int, planned: Sequence[Planned]) -> Slice:
    repeated = {item.sequence: item.repeated for item in planned if item.repeated}
    late = {item.sequence: item.late for item in planned if item.late}
    return Slice(begun.after, upto, begun.arrival, len(planned), repeated, late, begun.subscriptions)
