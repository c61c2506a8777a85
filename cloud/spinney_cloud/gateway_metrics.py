"""The gateway's counters: plain numbers while it works, Prometheus' when somebody looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

from prometheus_client import CollectorRegistry, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

SAMPLE = 16
"""Of so many messages one is timed."""
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class GatewayMetrics(Collector):
    """All named `spinney_gateway_...`. Counting one message with Prometheus' own counters costs as much as its JSON."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.messages: Counter[str] = Counter()
        """By leaf."""
        self.bytes = 0
        self.received = 0
        self.stored = 0
        self.refused: Counter[str] = Counter()
        """By kind."""
        self.busy: Counter[str] = Counter()
        """By kind."""
        self.redelivered = 0
        self._untimed = 0
        self._registry = registry
        self._store_seconds = Histogram(
            "spinney_gateway_store_seconds",
            f"From arrival to stored, of one message in {SAMPLE}",
            buckets=_SECONDS,
            registry=registry,
        )
        registry.register(self)

    def took(self, seconds: float) -> None:
        """A message was stored so long after it came."""
        self._untimed += 1
        if self._untimed >= SAMPLE:
            self._untimed = 0
            self._store_seconds.observe(seconds)

    def collect(self) -> Iterable[CounterMetricFamily]:
        """The counters as they stand."""
        yield _by("messages", "Messages from clients", "leaf", self.messages)
        yield _one("bytes", "Bytes of publications' payloads", self.bytes)
        yield _one("received", "Publications that were taken in", self.received)
        yield _one("stored", "Publications that are in the log", self.stored)
        yield _by("refused", "Items that were refused for good", "kind", self.refused)
        yield _by("busy", "Payloads that must be sent again later", "kind", self.busy)
        yield _one("redelivered", "Messages that came again and were known", self.redelivered)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is asked when it is looked at."""
        Gauge(f"spinney_gateway_{name}", text, registry=self._registry).set_function(value)

    def watch_each(
        self,
        name: str,
        text: str,
        labels: tuple[str, ...],
        values: Iterable[tuple[str, ...]],
        value: Callable[..., float],
    ) -> None:
        """The same for each of these values of labels."""
        gauge = Gauge(f"spinney_gateway_{name}", text, labels, registry=self._registry)
        for each in values:
            gauge.labels(*each).set_function(partial(value, *each))


def _one(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"spinney_gateway_{name}", text, value=value)


def _by(name: str, text: str, label: str, values: Counter[str]) -> CounterMetricFamily:
    family = CounterMetricFamily(f"spinney_gateway_{name}", text, labels=[label])
    for kind, count in values.items():
        family.add_metric([kind], count)
    return family
