"""Each request counted and timed, and each internal error logged."""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_log = logging.getLogger(__name__)

BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Observed:
    """Around the whole application, what answers for its faults included."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self.app = app
        self._requests = Counter(
            "spinney_http_requests", "Requests by route and status.", ["method", "route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "spinney_http_response_seconds",
            "Until a response begins.",
            ["route"],
            registry=registry,
            buckets=BUCKETS,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def observed_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._observe(scope, message["status"], time.perf_counter() - began)
            await send(message)

        try:
            await self.app(scope, receive, observed_send)
        except Exception:
            _log.exception("%s %s failed", scope["method"], scope["path"][:200])
            raise

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "none")  # never the path itself: anybody can make up paths
        method = scope["method"] if route != "none" else "any"
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
