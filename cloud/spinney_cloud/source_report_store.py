"""Keeps how reliable sources have been in a bucket, so that a restart of the coordinator forgets none of it.

A key `<tenant>.<shard>` holds {"v": 1, "shares": [[source, period, share], ...]} of the sources that fall into the
shard. Only shares below 1 are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final
from zlib import crc32

import orjson

from .bucket import Bucket
from .log_errors import TooLarge
from .source_reports import SourceReports

log = logging.getLogger(__name__)

VERSION: Final = 1
SHARDS: Final = 16
DIGITS: Final = 4
"""Of a share: what changes less is not written again."""

Share = tuple[str, float, float]
"""Source, period, share."""


class SourceReportStore:
    """All tenants'."""

    def __init__(self, bucket: Bucket) -> None:
        self.damaged = 0
        self._bucket = bucket
        self._kept: dict[str, bytes] = {}

    async def load(self) -> dict[str, list[Share]]:
        """What was kept, by tenant. A value that cannot be read is left out, and counted."""
        found: dict[str, list[Share]] = {}
        for key, entry in (await self._bucket.load()).items():
            self._kept[key] = entry.value
            try:
                shares = decode(entry.value)
            except (ValueError, KeyError, TypeError) as error:
                self.damaged += 1
                log.error("the reliability of sources in %s cannot be read: %s", key, error)
                continue
            found.setdefault(key.partition(".")[0], []).extend(shares)
        return found

    async def keep(self, reports: Mapping[str, SourceReports], now: float) -> None:
        """Write what has changed."""
        for tenant, one in reports.items():
            shards: dict[str, list[Share]] = {f"{tenant}.{shard}": [] for shard in range(SHARDS)}
            for share in one.shares(now):
                shards[f"{tenant}.{crc32(share[0].encode()) % SHARDS}"].append(share)
            for key, shares in shards.items():
                await self._keep(key, encode(shares) if shares else None)

    async def _keep(self, key: str, value: bytes | None) -> None:
        if self._kept.get(key) == value:
            return
        if value is None:
            await self._bucket.delete(key)
            del self._kept[key]
            return
        try:
            await self._bucket.put(key, value)
        except TooLarge as error:
            log.warning("%s: the reliability of these sources is forgotten at the next start: %s", key, error)
        self._kept[key] = value


def encode(shares: Iterable[Share]) -> bytes:
    """A value of the bucket."""
    rows = sorted((source, period, round(share, DIGITS)) for source, period, share in shares)
    return orjson.dumps({"v": VERSION, "shares": rows})


def decode(data: bytes) -> list[Share]:
    """What gave these bytes; ValueError, KeyError or TypeError for anything else."""
    item = orjson.loads(data)
    if item["v"] > VERSION:
        raise ValueError(f"version {item['v']}; this Spinney reads up to {VERSION}")
    shares = [(str(source), float(period), float(share)) for source, period, share in item["shares"]]
    if any(period <= 0 or not 0 <= share <= 1 for _, period, share in shares):
        raise ValueError("a period or a share is out of range")
    return shares
