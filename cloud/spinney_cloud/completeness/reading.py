"""The history read back for one question: what its brokers had been asked for, from some time before it begins."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Any, Final, NamedTuple

from spinney import StateSubscription, disjoint, feed, parse

from ..names import LOG, log_subject
from ..nats_log import NatsLog, read_range
from ..records import History, RecordError, decode
from ..subscriptions import Form
from .entries import EntryError, read_entry
from .judge import Judge
from .recorder import AGAIN_SECONDS, EVERYBODY

LOOKBACK_SECONDS: Final = 2 * AGAIN_SECONDS + 600.0
"""So long before a time everything that holds in it has been written at least once."""
MAX_BYTES: Final = 128 * 1024**2
"""Of history, read for one answer."""


class Saying(NamedTuple):
    """An entry where it stands."""

    sequence: int
    at: float
    tenant: str
    value: dict[str, Any] | None
    """None: it cannot be read."""


def judge_of(form: Form, since: float, until: float) -> Judge:
    """With nothing read yet."""
    subscription = parse(form.normal)
    waits, digest = False, None
    # Where they overlap, what a bit became depends on what it was, and the answer's bits begin anew.
    if isinstance(subscription, StateSubscription) and disjoint(subscription.enter, subscription.exit):
        waits, digest = subscription.debounce > 0, form.digest
    return Judge(form.kind, feed(subscription), digest, since, until, waits_for_labels=waits)


async def log_sayings(log: NatsLog, tenant: str, first: int, last: int) -> tuple[list[Saying], bool]:
    """The log's part, in order, and whether that is all of it: what concerns this tenant, and what concerns all."""
    found: list[Saying] = []
    size = 0
    for name in (EVERYBODY, tenant):
        records = _history(log, name, first, last)
        async with aclosing(records):
            async for saying, length in records:
                size += length
                if size > MAX_BYTES:
                    return sorted(found, key=lambda one: one.sequence), False
                found.append(saying)
    return sorted(found, key=lambda one: one.sequence), True


async def _history(log: NatsLog, tenant: str, first: int, last: int) -> AsyncGenerator[tuple[Saying, int]]:
    records = read_range(log, LOG, first, last, filter_subject=log_subject("history", tenant))
    async with aclosing(records):
        async for messages in records:
            for message in messages:
                try:
                    record = decode(message.data)
                except RecordError:
                    record = None
                value = record.value if isinstance(record, History) else None
                yield Saying(message.sequence, message.time, tenant, value), len(message.data)


def tell(judge: Judge, sayings: Iterable[Saying]) -> None:
    """Have the judge read these, in their order."""
    for saying in sayings:
        try:
            if saying.value is None:
                raise EntryError("it cannot be read")
            entry = read_entry(saying.value, saying.tenant, saying.at)
        except EntryError:
            judge.unreadable(saying.at)
        else:
            judge.entry(saying.at, entry)
