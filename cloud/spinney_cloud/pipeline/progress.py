"""How far a running pipeline is: what the log has for it, and a line for people now and then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships without types
from pyspark.sql import SparkSession

from ..log_reader import Message
from ..names import LOG, log_subject
from .direct_get import DirectGet
from .ingest import Status


class StateSize(NamedTuple):
    """What a streaming query remembers."""

    rows: int
    bytes: int


@dataclass
class Look:
    """As it was found when somebody looked last."""

    newest: int = 0
    """The newest record of the log that has publications."""
    lag_seconds: float = 0.0
    """For how long the oldest of those has waited that the lake has not yet: by the clock of the log, or by ours since
    it was seen first. The two are never compared: they may differ by any amount."""
    states: dict[str, StateSize] = field(default_factory=dict)
    """By query."""
    _waiting: tuple[int, float] = (0, 0.0)
    """The oldest record that waits, and since when we have seen it."""

    def behind(self, status: Status) -> int:
        """Records that the lake has not yet, up to the newest with publications."""
        return max(0, self.newest - status.sequence)

    def wait(self, oldest: Message, newest: Message, now: float) -> None:
        """These wait."""
        if self._waiting[0] != oldest.sequence:
            self._waiting = oldest.sequence, now
        self.lag_seconds = max(newest.time - oldest.time, now - self._waiting[1])


def look_at_log(log: DirectGet, look: Look, status: Status, now: float) -> None:
    """Find out how far the log is; `now` is monotonic. LogError if it does not answer."""
    look.newest = log.last_of_subject(LOG, log_subject("publications", "*"), log.bounds(LOG).last)
    look.lag_seconds = 0.0
    if look.newest > (after := status.sequence):
        oldest, newest = log.first_from(LOG, after + 1), log.first_from(LOG, look.newest)
        if oldest is not None and newest is not None:
            look.wait(oldest, newest, now)


def look_at_state(spark: SparkSession, look: Look) -> None:
    """Find out how much the session's queries remember."""
    found: dict[str, StateSize] = {}
    with suppress(Py4JError, ConnectionError):  # Java may be gone; who waits for it says so
        for query in spark.streams.active:
            progress = query.lastProgress
            if progress is not None and (operators := progress.stateOperators):
                rows = sum(each.numRowsTotal for each in operators)
                found[query.name or "query"] = StateSize(rows, sum(each.memoryUsedBytes for each in operators))
        look.states = found


class Progress:
    """Lines that say how far it is; none where nothing has changed."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at = clock()
        self._rows = 0
        self._said: tuple[int, int, int] | None = None

    def line(self, status: Status, look: Look) -> str | None:
        """What is new since the last line."""
        now, behind = self._clock(), look.behind(status)
        state = (status.sequence, status.dead, behind)
        is_news = state != self._said and (self._said is not None or status.rows or behind)
        self._said = state
        if not is_news:
            return None
        seconds, new = max(now - self._at, 1e-3), status.rows - self._rows
        self._at, self._rows = now, status.rows
        where = f"{status.sequence:,} of {look.newest:,} records" if behind else f"all {status.sequence:,} records"
        bad = f", {status.dead:,} dead letters" if status.dead else ""
        return f"the lake has {where} of the log; {new:,} readings more ({new / seconds:,.1f}/s){bad}"
