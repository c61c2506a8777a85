"""How far a running pipeline is: what the log has for it, and a line for people now and then."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships without types
from pyspark.sql import SparkSession

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
    newest_time: float = 0.0
    """Of the log, there."""
    states: dict[str, StateSize] = field(default_factory=dict)
    """By query."""

    def behind(self, status: Status) -> int:
        """Records that the lake has not yet, up to the newest with publications."""
        return max(0, self.newest - status.sequence)

    def lag_seconds(self, status: Status) -> float:
        """How much of the log's time the lake has not yet. By the log's clock alone: ours may be another."""
        if not self.behind(status) or not status.time:
            return 0.0
        return max(0.0, self.newest_time - status.time)


def look_at_log(log: DirectGet, look: Look) -> None:
    """Find out how far the log is. LogError if it does not answer."""
    newest = log.last_of_subject(LOG, log_subject("publications", "*"), log.bounds(LOG).last)
    if newest != look.newest and (found := log.first_from(LOG, newest)) is not None:
        look.newest, look.newest_time = newest, found.time


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
        if state == self._said or not status.sequence:
            return None
        seconds, new = max(now - self._at, 1e-3), status.rows - self._rows
        self._at, self._rows, self._said = now, status.rows, state
        where = f"{behind:,} records of the log wait" if behind else "all of the log is in it"
        bad = f", {status.dead:,} dead letters" if status.dead else ""
        return f"the lake has record {status.sequence:,}, {where}; {new:,} readings more ({new / seconds:,.0f}/s){bad}"
