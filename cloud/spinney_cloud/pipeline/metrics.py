"""The pipeline's metrics: read from its counters when somebody asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from .ingest import Status
from .maintenance import Done
from .matching_query import MatchingStatus
from .progress import Look
from .windows_part import WindowsDone


class Seen(NamedTuple):
    """What there is to tell."""

    status: Status
    look: Look
    done: Done
    matching: MatchingStatus | None
    windows: WindowsDone | None


class PipelineMetrics(Collector):
    """Of the run that there is at the time. They begin anew when it does."""

    def __init__(self, current: Callable[[], Seen | None]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        seen = self._current()
        if seen is None:
            return
        for name, text, value in _counters(seen):
            yield CounterMetricFamily(f"spinney_pipeline_{name}", text, value)
        for name, text, value in _gauges(seen):
            yield GaugeMetricFamily(f"spinney_pipeline_{name}", text, value)
        rows = GaugeMetricFamily("spinney_pipeline_state_rows", "That a query remembers.", labels=["query"])
        size = GaugeMetricFamily("spinney_pipeline_state_bytes", "That a query remembers in.", labels=["query"])
        for name, state in seen.look.states.items():
            rows.add_metric([name], state.rows)
            size.add_metric([name], state.bytes)
        yield rows
        yield size


def _counters(seen: Seen) -> Iterator[tuple[str, str, float]]:
    status, _, done, matching, windows = seen
    yield "rows", "Readings written to the lake.", status.rows
    yield "dead_letters", "Readings and records that could not be decoded.", status.dead
    yield "batches", "Batches, empty ones included.", status.batches
    yield "batch_time_seconds", "Spent in batches.", status.seconds
    yield "keeping_rounds", "Rounds of compaction, retention and vacuum.", done.rounds
    yield "keeping_failed", "Tables that could not be kept in a round.", done.failed
    yield "files_joined", "Files whose rows were joined into others.", done.joined
    yield "files_deleted", "Files that no version of a table had.", done.deleted_files
    yield "rows_removed", "Rows of days beyond the retention.", done.removed_rows
    if matching is not None:
        yield "matching_readings", "Readings looked at for subscriptions.", matching.readings
        yield "matching_notes", "Notifications written.", matching.notes
        yield "matching_batches", "Batches of matching.", matching.batches
        yield "matching_damaged", "Records that could not be read.", matching.damaged
    if windows is not None:
        yield "windows", "Windows written.", windows.windows
        yield "windows_gaps", "Of those, without readings.", windows.gaps
        yield "windows_changed", "Windows that late readings changed.", windows.changed
        yield "windows_too_late", "Readings that are in no window.", windows.too_late


def _gauges(seen: Seen) -> Iterator[tuple[str, str, float]]:
    status, look, _, matching, windows = seen
    yield "sequence", "Of the log's last record in the lake.", status.sequence
    yield "behind", "Records that wait, up to the newest with publications.", look.behind(status)
    yield "lag_seconds", "For which the oldest of them has waited.", look.lag_seconds
    yield "batch_seconds", "What the last batch took.", status.batch_seconds
    if matching is not None:
        yield "matching_sequence", "Of the log's last record that was matched.", matching.sequence
        yield "matching_subscriptions", "Subscriptions that the pipeline answers.", matching.standing
        yield "matching_batch_seconds", "What the last batch of matching took.", matching.batch_seconds
    if windows is not None:
        yield "windows_step_seconds", "What the last step of windows took.", windows.seconds
