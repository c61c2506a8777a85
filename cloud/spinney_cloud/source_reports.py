"""What a tenant's mobile brokers report of their sources, and how reliable each source has been.

A source is reliable while it is present: heard by a broker that announces it, whether or not anything it measured was
wanted. For a density's period (`every`) it fails when all brokers that announce it report it silent for SILENT_AFTER
periods. Its share of reliability falls while it fails, rises while it is present, and stays while nobody reports: a
broker without reports leaves it as it was. A broker that reports and then ends without a word was due: one miss for
each of its sources.

No I/O and no clock: the time is handed in, in seconds, monotonic. Only shares below 1 are recorded.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from spinney.source_health import SourceHealth

SILENT_AFTER: Final = 2.0
"""A source fails when it has been silent for so many periods."""
NEW_WEIGHT: Final = 0.2
"""Of the newest period in a source's share."""
PERFECT: Final = 0.999
"""From here on a share is 1."""
MAX_RECORDS: Final = 100_000
"""Of one tenant; beyond it the oldest is forgotten, and counted."""
MAX_PERIODS: Final = 32
"""Different periods of one tenant; another one is taken for the nearest of these."""
_NOTHING: Final = SourceHealth()


class _State(enum.Enum):
    PRESENT = "present"
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Record:
    """The share of a source, at a time, and what has become of the source since."""

    share: float
    at: float
    state: _State

    def advance(self, now: float, period: float) -> None:
        left = (1.0 - NEW_WEIGHT) ** (max(0.0, now - self.at) / period)
        if self.state is _State.PRESENT:
            self.share = 1.0 - (1.0 - self.share) * left
        elif self.state is _State.FAILED:
            self.share *= left
        self.at = now


class SourceReports:
    """Of one tenant."""

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self.failures = 0
        """How often a source began to fail."""
        self.forgotten = 0
        """Records for which there was no room."""
        self._max_records = max_records
        self._told: dict[str, Mapping[str, SourceHealth]] = {}
        """By broker that is announced and not away."""
        self._announcers: dict[str, dict[str, None]] = {}
        self._periods: dict[float, None] = {}
        self._records: dict[tuple[str, float], _Record] = {}

    # ---- What brokers say

    def told(self, client: str, sources: Mapping[str, SourceHealth], now: float) -> None:
        """A broker announces these now, and nothing else."""
        before = self._told.get(client, {})
        self._told[client] = sources
        for source in sources.keys() - before.keys():
            self._announcers.setdefault(source, {})[client] = None
        for source in before.keys() - sources.keys():
            self._leave(source, client)
        self._update(before.keys() | sources.keys(), now)

    def ended(self, client: str, now: float, *, was_due: bool = False) -> None:
        """A broker announces nothing any more; `was_due`: and did not say so."""
        before = self._told.pop(client, {})
        for source, health in before.items():
            self._leave(source, client)
            if was_due and health.silent_seconds is not None and source not in self._announcers:
                self._miss(source, now)
        self._update(before, now)

    def _leave(self, source: str, client: str) -> None:
        self._announcers[source].pop(client, None)
        if not self._announcers[source]:
            del self._announcers[source]

    # ---- What follows

    def battery(self, source: str) -> float | None:
        """From 0 to 1; None if nobody tells."""
        clients = sorted(self._announcers.get(source, ()))
        found = (self._told[client].get(source, _NOTHING).battery for client in clients)
        return next((one for one in found if one is not None), None)

    def share(self, source: str, every: float, now: float) -> float:
        """How reliable it is, from 0 to 1."""
        period = self._period(every)
        record = self._records.get((source, period))
        if record is None:
            return 1.0
        record.advance(now, period)
        return record.share

    def has_failed(self, source: str, every: float) -> bool:
        """Whether it was due, and did not come."""
        return self._state(source, self._period(every)) is _State.FAILED

    def watch(self, every: float, now: float) -> None:
        """Densities of this period are asked for."""
        period = self._period(every)
        if period not in self._periods:
            self._periods[period] = None
            self._update(self._announcers, now)

    def _period(self, every: float) -> float:
        if every in self._periods or len(self._periods) < MAX_PERIODS:
            return every
        return min(self._periods, key=lambda one: (abs(one - every), one))

    def _state(self, source: str, period: float) -> _State:
        silences = [
            self._told[client].get(source, _NOTHING).silent_seconds for client in self._announcers.get(source, ())
        ]
        known = [one for one in silences if one is not None]
        if known and min(known) < SILENT_AFTER * period:
            return _State.PRESENT
        return _State.UNKNOWN if len(known) < len(silences) or not known else _State.FAILED

    def _update(self, sources: Iterable[str], now: float) -> None:
        for source in sources:
            for period in self._periods:
                self._enter(source, period, now)

    def _enter(self, source: str, period: float, now: float) -> None:
        """A source is in this state from now on."""
        state, record = self._state(source, period), self._records.get((source, period))
        if record is None:
            if state is not _State.FAILED:
                return
            record = self._record(source, period, now)
        record.advance(now, period)
        self.failures += state is _State.FAILED and record.state is not _State.FAILED
        record.state = state
        if state is not _State.FAILED and record.share >= PERFECT:
            del self._records[source, period]

    def _miss(self, source: str, now: float) -> None:
        for period in self._periods:
            record = self._records.get((source, period)) or self._record(source, period, now)
            record.advance(now, period)
            record.share *= 1.0 - NEW_WEIGHT
            self.failures += record.state is not _State.FAILED

    def _record(self, source: str, period: float, now: float) -> _Record:
        if len(self._records) >= self._max_records:
            del self._records[next(iter(self._records))]
            self.forgotten += 1
        record = self._records[source, period] = _Record(1.0, now, _State.UNKNOWN)
        return record

    # ---- What is kept over a restart

    def shares(self, now: float) -> Iterator[tuple[str, float, float]]:
        """Source, period and share of all that are below 1."""
        for (source, period), record in list(self._records.items()):
            record.advance(now, period)
            if record.share < PERFECT:
                yield source, period, record.share
            elif record.state is not _State.FAILED:
                del self._records[source, period]

    def restore(self, source: str, period: float, share: float, now: float) -> None:
        """As it was kept. What has happened in between is not known, and changes nothing."""
        period = self._period(period)
        self._periods[period] = None
        record = self._record(source, period, now)
        record.share, record.state = share, self._state(source, period)
