"""How much one client may send: a bucket of tokens that fills with time."""

from __future__ import annotations

from collections import OrderedDict

OVER_SECONDS = 10.0
"""A client may send at once what it may send in so long."""
MAX_CLIENTS = 100_000
"""Buckets that are kept; who is forgotten begins with a full one."""


class RateLimit:
    """Buckets by client."""

    def __init__(self, per_second: float, *, over_seconds: float = OVER_SECONDS, limit: int = MAX_CLIENTS) -> None:
        self.per_second = per_second
        self._capacity = per_second * over_seconds
        self._limit = limit
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Tokens, and when they were counted; who was heard last comes last."""

    def take(self, client: str, wanted: int, now: float) -> int:
        """How many of the wanted are allowed now. `now` may step back, and then nothing is added."""
        tokens, at = self._buckets.pop(client, (self._capacity, now))
        tokens = min(self._capacity, tokens + max(0.0, now - at) * self.per_second)
        allowed = min(wanted, int(tokens))
        self._buckets[client] = (tokens - allowed, now)
        if len(self._buckets) > self._limit:
            self._buckets.popitem(last=False)
        return allowed
