"""What has become of notifications: by subscription for their owners, and in all for the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .cell_limits import Key
from .subscriber_queue import Item

MAX_STATUS: Final = 200_000
"""Subscriptions whose status is kept; the one that was new first makes room."""
BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 3600.0)


@dataclass(eq=False, slots=True)
class Status:
    """Of one subscription, since this process began."""

    delivered: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    dead: int = 0
    last_delivered: tuple[str, float] | None = None
    """Its id and when."""
    last_failure: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """As the API shows it."""
        last = self.last_delivered
        return {
            "delivered": self.delivered,
            "dropped": self.dropped,
            "dead": self.dead,
            "last_delivered": None if last is None else {"id": last[0], "time": last[1]},
            "last_failure": self.last_failure,
        }


class DeliveryStatus(Collector):
    """Counts. Plain numbers, made into metrics when somebody asks."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.delivered = 0
        self.messages = 0
        self.dead = 0
        self.damaged = 0
        self.purged = 0
        self.resumed = 0
        self.dropped: dict[str, int] = {}
        self._statuses: dict[Key, Status] = {}
        self._latencies = [0] * (len(BUCKETS) + 1)
        self._latency_sum = 0.0
        self._gauges: list[tuple[str, str, Callable[[], float]]] = []
        self._counters: list[tuple[str, str, Callable[[], float]]] = []
        registry.register(self)

    def of(self, key: Key) -> Status:
        """The status of a subscription, to read or to change."""
        status = self._statuses.get(key)
        if status is None:
            if len(self._statuses) >= MAX_STATUS:
                del self._statuses[next(iter(self._statuses))]
            status = self._statuses[key] = Status()
        return status

    def peek(self, key: Key) -> Status:
        """The status of a subscription, which a question does not begin to keep."""
        return self._statuses.get(key) or Status()

    def forget(self, key: Key) -> None:
        """A subscription has ended."""
        self._statuses.pop(key, None)

    def sent(self, item: Item, now: float) -> None:
        """A message is acknowledged."""
        count = len(item.places)
        self.delivered += count
        self.messages += 1
        latency = max(0.0, now - item.logged)
        self._latencies[bisect_left(BUCKETS, latency)] += 1
        self._latency_sum += latency
        status = self.of(item.key)
        status.delivered += count
        status.last_delivered = item.id, now

    def drop(self, item: Item, reason: str) -> None:
        """Notifications are dropped."""
        count = len(item.places)
        self.dropped[reason] = self.dropped.get(reason, 0) + count
        dropped = self.of(item.key).dropped
        dropped[reason] = dropped.get(reason, 0) + count

    def failed(self, item: Item, why: str, now: float) -> None:
        """An attempt has failed."""
        self.of(item.key).last_failure = {"id": item.id, "reason": why, "time": now}

    def died(self, item: Item) -> None:
        """A message has become a dead letter."""
        count = len(item.places)
        self.dead += count
        self.of(item.key).dead += count

    def watch_gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is asked when somebody looks."""
        self._gauges.append((f"spinney_delivery_{name}", text, value))

    def watch_counter(self, name: str, text: str, value: Callable[[], float]) -> None:
        """The same for a counter."""
        self._counters.append((f"spinney_delivery_{name}", text, value))

    def collect(self) -> Iterator[Metric]:
        """For prometheus_client."""
        for name, text, value in self._gauges:
            yield GaugeMetricFamily(name, text, value())
        own: list[tuple[str, str, Callable[[], float]]] = [
            ("spinney_delivery_delivered", "Notifications acknowledged by the MQTT server", lambda: self.delivered),
            ("spinney_delivery_messages", "Messages acknowledged: a digest is one", lambda: self.messages),
            ("spinney_delivery_dead", "Notifications that became dead letters", lambda: self.dead),
            ("spinney_delivery_damaged", "Messages of the notification log that cannot be read", lambda: self.damaged),
            ("spinney_delivery_purged", "Messages that were purged before they were delivered", lambda: self.purged),
        ]
        for name, text, value in [*own, *self._counters]:
            yield CounterMetricFamily(name, text, value())
        dropped = CounterMetricFamily("spinney_delivery_dropped", "Notifications dropped", labels=["reason"])
        for reason, count in self.dropped.items():
            dropped.add_metric([reason], count)
        yield dropped
        yield self._histogram()

    def _histogram(self) -> Metric:
        total, buckets = 0, []
        for bound, count in zip([*map(str, BUCKETS), "+Inf"], self._latencies, strict=True):
            total += count
            buckets.append((bound, total))
        return HistogramMetricFamily(
            "spinney_delivery_seconds",
            "From the record in the log to the MQTT server's acknowledgement",
            buckets=buckets,
            sum_value=self._latency_sum,
        )
