"""The matcher's metrics: read from its counters when somebody asks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from .matcher import Matcher


class MatcherMetrics(Collector):
    """Of the matcher that there is at the time."""

    def __init__(self, current: Callable[[], Matcher | None]) -> None:
        self._current = current

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        matcher = self._current()
        if matcher is None:
            return
        for name, text, value in _counters(matcher):
            yield CounterMetricFamily(f"spinney_matcher_{name}", text, value)
        for name, text, value in _gauges(matcher):
            yield GaugeMetricFamily(f"spinney_matcher_{name}", text, value)
        subscriptions = GaugeMetricFamily(
            "spinney_matcher_subscriptions", "Subscriptions that are matched.", labels=["kind"]
        )
        kinds = sum((tenant.kinds for tenant in matcher.engine.tenants.values()), Counter[str]())
        for kind in ("content", "state", "top-k"):
            subscriptions.add_metric([kind], kinds[kind])
        yield subscriptions


def _counters(matcher: Matcher) -> Iterator[tuple[str, str, float]]:
    engine = matcher.engine
    tenants = engine.tenants.values()
    yield "readings", "Readings in the log, duplicates included.", sum(one.readings for one in tenants)
    yield "duplicates", "Readings that had been here before.", sum(one.repeats.duplicates for one in tenants)
    yield "late", "Readings older than the newest of their source.", sum(one.repeats.late for one in tenants)
    yield "gaps", "Runs that did not follow their source's newest.", sum(one.repeats.gaps for one in tenants)
    yield "forgotten", "Runs, readings and sources forgotten for lack of room.", _forgotten(matcher)
    yield "matched", "Readings that some subscription's feed matched.", sum(one.matched for one in tenants)
    yield "notes", "Notifications written.", matcher.notes
    yield "note_messages", "Messages of the notification log written.", matcher.note_messages
    yield "note_messages_repeated", "Messages that were there already; the log kept one.", matcher.repeated
    yield "notes_lost", "Messages too large to be stored.", matcher.too_large
    yield "damaged", "Records and subscriptions that could not be read.", matcher.damaged_records + engine.damaged
    yield "snapshots_failed", "Snapshots that could not be written.", matcher.taker.failed


def _forgotten(matcher: Matcher) -> int:
    return sum(one.repeats.forgotten + one.valid.dropped for one in matcher.engine.tenants.values())


def _gauges(matcher: Matcher) -> Iterator[tuple[str, str, float]]:
    yield "sequence", "Of the last record read.", matcher.engine.sequence
    yield "behind", "Records that wait to be read.", matcher.behind
    yield "lag_seconds", "Age of the last record read, while others wait.", matcher.lag_seconds
    valid = sum(len(one.valid) for one in matcher.engine.tenants.values())
    yield "valid", "Publications kept because they are valid.", valid
    yield "snapshot_pause_seconds", "For which the last snapshot stopped the matching.", matcher.taker.pause_seconds
    published = matcher.taker.published
    if published is not None:
        yield "snapshot_sequence", "Of the last snapshot.", published.sequence
        yield "snapshot_taken_seconds", "When it was taken, in epoch seconds.", published.taken
