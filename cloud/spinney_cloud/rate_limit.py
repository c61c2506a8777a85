"""How much one client may send: a bucket of tokens that fills with time."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

OVER_SECONDS = 10.0
"""A client may send at once what it may send in so long."""
MAX_CLIENTS = 100_000
"""Buckets that are kept; who is forgotten begins with a full one."""


@dataclass(slots=True)
class _Bucket:
    tokens: float
    counted: float
    """When."""
    waits: bool = False
    """It was emptied, and lets nothing through before it is half full: what is sent again then comes in order."""


class RateLimit:
    """Buckets by client."""

    def __init__(self, per_second: float, *, over_seconds: float = OVER_SECONDS, limit: int = MAX_CLIENTS) -> None:
        self.per_second = per_second
        self.capacity = per_second * over_seconds
        """The most that can ever pass at once."""
        self._limit = limit
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        """Who was heard last comes last."""

    def allow(self, client: str, wanted: int, now: float) -> bool:
        """Whether so many may pass now, all or none. `now` may step back, and then nothing is added."""
        bucket = self._bucket(client, now)
        bucket.tokens = min(self.capacity, bucket.tokens + max(0.0, now - bucket.counted) * self.per_second)
        bucket.counted = now
        if bucket.waits and bucket.tokens < max(wanted, self.capacity / 2):
            return False
        bucket.waits = bucket.tokens < wanted
        if not bucket.waits:
            bucket.tokens -= wanted
        return not bucket.waits

    def _bucket(self, client: str, now: float) -> _Bucket:
        bucket = self._buckets.get(client)
        if bucket is not None:
            self._buckets.move_to_end(client)
            return bucket
        if len(self._buckets) >= self._limit:
            self._buckets.popitem(last=False)
        bucket = self._buckets[client] = _Bucket(self.capacity, now)
        return bucket
