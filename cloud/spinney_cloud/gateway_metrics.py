"""The gateway's counters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)


class GatewayMetrics:
    """All named `spinney_gateway_...`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.messages = self._counter("messages", "Messages from clients", "leaf")
        self.bytes = self._counter("bytes", "Bytes of publications' payloads")
        self.received = self._counter("received", "Publications that were taken in")
        self.stored = self._counter("stored", "Publications that are in the log")
        self.refused = self._counter("refused", "Items that were refused for good", "kind")
        self.busy = self._counter("busy", "Payloads that must be sent again later", "kind")
        self.redelivered = self._counter("redelivered", "Messages that came again while they were being stored")
        self.store_seconds = Histogram(
            "spinney_gateway_store_seconds", "From arrival to stored", buckets=_SECONDS, registry=registry
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"spinney_gateway_{name}", text, labels, registry=self._registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that is asked when it is looked at."""
        Gauge(f"spinney_gateway_{name}", text, registry=self._registry).set_function(value)

    def watch_streams(self, name: str, text: str, streams: tuple[str, ...], value: Callable[[str], float]) -> None:
        """The same for each stream."""
        gauge = Gauge(f"spinney_gateway_{name}", text, ["stream"], registry=self._registry)
        for stream in streams:
            gauge.labels(stream).set_function(partial(value, stream))
