"""Which readings of the log are duplicates: the engine's rule, and the engine's own code (engine/repeats.py).

A reading is a duplicate if its id occurs earlier in the log within W of log time; so who begins in the middle of the
log, and has gone through what came within W before, says the same as who has read it all. Lateness is no such thing:
it needs the newest number that a source ever had. Here that is what came within W before, or since the reading began;
who keeps state for each source (state.py) knows more. Of a record only the header is looked at here: the numbers of one
with damaged rows, which no gateway writes, count as seen, while the engine never saw them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import orjson

from ..engine.repeats import Repeats
from ..log_reader import Message
from ..records import Publications, Record, RecordError, Run, SubscriptionChange, decode

SKEW_SECONDS = 600.0
"""How far the log's clock may ever have been set back: so much more than W is gone through."""


class Windows(NamedTuple):
    """The settings log.duplicate_window and log.content_window."""

    numbers: float = 3600.0
    contents: float = 60.0

    @property
    def lookback(self) -> float:
        """How much of the log before a place must be known to go on from there."""
        return max(self) + SKEW_SECONDS


DEFAULT_WINDOWS = Windows()


class Seen(NamedTuple):
    """What a record is for who plans to read it."""

    rows: int
    repeated: Sequence[int]
    """The rows that are duplicates."""
    changes_subscriptions: bool
    late: Sequence[int] = ()
    """The rows that are older than the newest of their source, as far as that is remembered."""
    record: Record | None = None
    """None: it cannot be read."""


class Duplicates:
    """Goes through the log in order."""

    def __init__(self, windows: Windows) -> None:
        self.arrival = 0.0
        """The log's time: it never steps back (rule I3)."""
        self._windows = windows
        self._tenants: dict[str, Repeats] = {}

    @property
    def duplicates(self) -> int:
        """How many there were."""
        return sum(repeats.duplicates for repeats in self._tenants.values())

    def apply(self, message: Message) -> Seen:
        """The next record."""
        self.arrival = max(self.arrival, message.time)
        record = _read(message.data)
        if not isinstance(record, Publications):
            return Seen(0, (), isinstance(record, SubscriptionChange), (), record)
        try:
            rows = sum(run.length for run in record.runs)
            found = self._of(record.tenant).examine(record.runs, lambda: orjson.loads(record.rows), self.arrival)
        except (ValueError, TypeError, AttributeError, RecordError):  # a dead letter: who decodes it says why
            return Seen(1, (), changes_subscriptions=False, late=(), record=record)
        repeated, late = tuple(sorted(found.repeated)), tuple(sorted(found.late))
        return Seen(rows, repeated, changes_subscriptions=False, late=late, record=record)

    def remember(self, message: Message, until: float) -> None:
        """A record of before the place where the reading begins, at log time `until`: only what may occur again."""
        self.arrival = max(self.arrival, message.time)
        record = _read(message.data)
        if isinstance(record, Publications):
            recent = message.time >= until - self._windows.contents - SKEW_SECONDS
            if not recent and any(not run.numbered for run in record.runs):
                record = _numbered(record)
            try:
                rows = record.rows
                self._of(record.tenant).examine(record.runs, lambda: orjson.loads(rows), self.arrival)
            except (ValueError, TypeError, AttributeError):
                return

    def _of(self, tenant: str) -> Repeats:
        repeats = self._tenants.get(tenant)
        if repeats is None:
            repeats = self._tenants[tenant] = Repeats(*self._windows)
        return repeats


def _read(data: bytes) -> Record | None:
    try:
        return decode(data)
    except RecordError:
        return None


def _numbered(record: Publications) -> Publications:
    """Without the runs that are known by their content, which is forgotten sooner; nobody asks which rows these are."""
    runs: tuple[Run, ...] = tuple(run for run in record.runs if run.numbered)
    return Publications(record.tenant, record.received, runs, b"[]")
