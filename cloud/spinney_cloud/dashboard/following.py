"""One tenant's log, read while somebody looks: first the last hour, then what comes."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import aclosing
from typing import Any, Final

import orjson

from ..api.log_tail import range_since
from ..log_errors import LogError, Truncated
from ..names import LOG, log_subject
from ..nats_log import Message, NatsLog, Reader, read_range
from ..records import Publications, RecordError, decode
from .world import World

log = logging.getLogger(__name__)

HOUR_SECONDS: Final = 3600.0
MAX_PAST_READINGS: Final = 200_000
"""Of the hour that are read back, the newest."""
STEP: Final = 1_000
"""Records that are read back at once."""
READINGS_PER_SECOND: Final = 10_000
"""That are looked at; of more only the number is told. The page is no reason to be late with anything else."""
BATCH: Final = 200
RETRY_SECONDS: Final = 1.0


class Following:
    """Feeds a world."""

    def __init__(self, nats_log: NatsLog, tenant: str, world: World) -> None:
        self.is_read_back = asyncio.Event()
        self.unseen = 0
        """Readings that were counted and not looked at."""
        self._log = nats_log
        self._world = world
        self._subject = log_subject("publications", tenant)
        self._after: int | None = None
        """The last sequence that was read."""
        self._left = float(READINGS_PER_SECOND)
        self._filled = time.monotonic()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self._after is None:
                    self._after = await self._read_back()
                    self.is_read_back.set()
                await self._follow(self._after)
            except Truncated as error:
                self._after = error.last
            except LogError as error:
                log.warning("the page's readings cannot be read now: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _read_back(self) -> int:
        """The hour, as far as there is room; the sequence after which the rest comes."""
        first, last, _ = await range_since(self._log, time.time() - HOUR_SECONDS)
        steps: list[list[Message]] = []
        end, left = last, MAX_PAST_READINGS
        while end >= first and left > 0:
            records = await self._records(max(first, end - STEP + 1), end)
            steps.append(records)
            left -= sum(_count(message) for message in records)
            end -= STEP
        for records in reversed(steps):
            for message in records:
                self._take(message, looking=True)
            await asyncio.sleep(0)  # others have their turn
        return last

    async def _records(self, first: int, last: int) -> list[Message]:
        found: list[Message] = []
        records = read_range(self._log, LOG, first, last, filter_subject=self._subject)
        async with aclosing(records):
            async for messages in records:
                found += messages
        return found

    async def _follow(self, after: int) -> None:
        reader: Reader = self._log.reader(LOG, after=after, filter_subject=self._subject)
        try:
            while True:
                for message in await reader.next(at_most=BATCH):
                    self._refill()
                    self._left -= self._take(message, looking=self._left > 0)
                    self._after = message.sequence
                await asyncio.sleep(0)
        finally:
            await reader.close()

    def _refill(self) -> None:
        now = time.monotonic()
        self._left = min(READINGS_PER_SECOND, self._left + (now - self._filled) * READINGS_PER_SECOND)
        self._filled = now

    def _take(self, message: Message, *, looking: bool) -> int:
        """A record; how many readings of it were looked at."""
        record = _publications(message)
        if record is None:
            return 0
        count = sum(run.length for run in record.runs)
        self._world.count(count, message.time)
        if not looking:
            self.unseen += count
            return 0
        rows: list[dict[str, Any]] = orjson.loads(record.rows)
        for row in rows:
            self._world.take(row, message.time)
        return count


def _publications(message: Message) -> Publications | None:
    try:
        record = decode(message.data)
    except RecordError:
        return None
    return record if isinstance(record, Publications) else None


def _count(message: Message) -> int:
    record = _publications(message)
    return 0 if record is None else sum(run.length for run in record.runs)
