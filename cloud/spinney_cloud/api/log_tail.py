"""The log read back: its last publications, and the range from an instant on. For people; readers follow the log."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import orjson

from ..names import DEAD, LOG, log_subject
from ..nats_log import Message, NatsLog, read_range
from ..records import Publications, RecordError, decode

FIRST_STEP = 64
LAST_STEP = 8_192
MAX_RECORDS = 200_000
"""So far back a search for the last publications goes, at most..."""
MAX_SECONDS = 5.0
"""...and so long."""


async def last_publications(log: NatsLog, tenant: str, count: int) -> tuple[list[dict[str, Any]], bool]:
    """The tenant's newest publications, newest first, and whether the search was cut before there were enough."""
    state = await log.state(LOG)
    deadline = time.monotonic() + MAX_SECONDS
    found: list[dict[str, Any]] = []
    end, step = state.last, FIRST_STEP
    floor = max(state.first, state.last - MAX_RECORDS + 1)
    while end >= floor and len(found) < count and time.monotonic() < deadline:
        start = max(floor, end - step + 1)
        rows = await _last_rows(log, tenant, start, end, count - len(found))
        found.extend(reversed(rows))
        end, step = start - 1, min(2 * step, LAST_STEP)
    return found, len(found) < count and end >= state.first


async def _last_rows(log: NatsLog, tenant: str, first: int, last: int, count: int) -> deque[dict[str, Any]]:
    rows: deque[dict[str, Any]] = deque(maxlen=count)
    async for messages in read_range(log, LOG, first, last, filter_subject=log_subject("publications", tenant)):
        for message in messages:
            rows.extend(rows_of(message))
    return rows


async def last_letters(
    log: NatsLog, subject: str, before: int | None, count: int, wanted: Callable[[Message], bool]
) -> tuple[list[Message], int | None]:
    """The newest wanted dead letters, newest first, and the sequence before which there may be older ones."""
    state = await log.state(DEAD)
    deadline = time.monotonic() + MAX_SECONDS
    found: list[Message] = []
    end, step = state.last if before is None else min(before - 1, state.last), FIRST_STEP
    while end >= state.first and len(found) < count and time.monotonic() < deadline:
        start = max(state.first, end - step + 1)
        newest: deque[Message] = deque(maxlen=count - len(found))
        async for messages in read_range(log, DEAD, start, end, filter_subject=subject):
            newest.extend(message for message in messages if wanted(message))
        found.extend(reversed(newest))
        end, step = start - 1, min(2 * step, LAST_STEP)
    if len(found) == count:
        end = found[-1].sequence - 1
    return found, end + 1 if end >= state.first else None


def rows_of(message: Message) -> list[dict[str, Any]]:
    """The publications of a record; none of what cannot be read."""
    try:
        record = decode(message.data)
    except RecordError:
        return []
    return orjson.loads(record.rows) if isinstance(record, Publications) else []


async def range_since(log: NatsLog, instant: float) -> tuple[int, int, bool]:
    """First and last sequence of what is not older, and whether older ones of these may have been purged already."""
    state = await log.state(LOG)
    low, high = state.first, state.last + 1
    while low < high:
        middle = (low + high) // 2
        message = await _at(log, middle)
        if message is None or message.time >= instant:
            high = middle
        else:
            low = message.sequence + 1
    return low, state.last, low == state.first > 1


async def _at(log: NatsLog, sequence: int) -> Message | None:
    found = read_range(log, LOG, sequence, sequence)
    async with aclosing(found):
        async for messages in found:
            return messages[0]
    return None
