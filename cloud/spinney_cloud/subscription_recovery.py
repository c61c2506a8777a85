"""Log and bucket of subscriptions made to agree again, when the coordinator starts.

A change is in the log first, in the bucket next, and its request is removed last; both are written in their order. So
after a crash the bucket may lack the newest changes of the log, and of the requests that are still there a first part
has been decided already: the log's newest change says up to which. These must not be decided again: what came after
them, by HTTP or as a later request, would be undone.

A power cut may leave a log that ends before the bucket does: what it has lost is put into it anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from . import records
from .log_errors import NO_MESSAGE_FOUND, Refused
from .names import LOG, REQUESTS, SUBSCRIPTIONS, log_subject
from .nats_log import Message, NatsLog, read_range
from .request_queue import NO_REQUEST, Number
from .subscriptions import StoredSubscription, StoredSubscriptionError

log = logging.getLogger(__name__)

_CHANGES: Final = log_subject("subscription", "*")


class Recovered(NamedTuple):
    """What there is to know after it."""

    decided: Number
    """Requests up to this one have been decided."""
    changes: dict[str, StoredSubscription | None]
    """What the bucket has otherwise now, by key."""


async def recover(nats: NatsLog, starts: Mapping[str, int]) -> Recovered:
    """See to it that both say the same; `starts` are the places in the log of what the bucket has."""
    agreed, lost = await _agreed(nats, starts)
    decided = await _decided(nats)
    changes = await _into_the_bucket(nats, agreed, starts)
    again = await _into_the_log(nats, [key for key in lost if key not in changes], decided)
    if changes or again:
        text = "%d changes of subscriptions came from the log into the bucket, %d from the bucket into the log"
        log.warning(text, len(changes), len(again))
    return Recovered(decided, changes | again)


async def _agreed(nats: NatsLog, starts: Mapping[str, int]) -> tuple[int, list[str]]:
    """Up to where the bucket has what the log has, and the keys of which the log knows nothing, oldest first."""
    state = await nats.state(LOG)
    lost: list[str] = []
    for start, key in sorted(((start, key) for key, start in starts.items()), reverse=True):
        if start < state.first:
            break
        record = await _record_at(nats, start) if start <= state.last else None
        if isinstance(record, records.SubscriptionChange) and record.key == key:
            return start, lost[::-1]
        lost.append(key)
    return state.first - 1, lost[::-1]


async def _into_the_bucket(
    nats: NatsLog, agreed: int, starts: Mapping[str, int]
) -> dict[str, StoredSubscription | None]:
    """What the log says beyond where they agree."""
    newest: dict[str, StoredSubscription | None] = {}
    last = (await nats.state(LOG)).last
    async for messages in read_range(nats, LOG, agreed + 1, last, filter_subject=_CHANGES):
        newest.update(_changes(messages))
    bucket = nats.bucket(SUBSCRIPTIONS)
    changes = {key: stored for key, stored in newest.items() if stored is not None or key in starts}
    for key, stored in changes.items():
        if stored is None:
            await bucket.delete(key)
        else:
            await bucket.put(key, stored.encode())
    return changes


def _changes(messages: Iterable[Message]) -> dict[str, StoredSubscription | None]:
    found: dict[str, StoredSubscription | None] = {}
    for message in messages:
        try:
            record = records.decode(message.data)
            if isinstance(record, records.SubscriptionChange):
                value = record.value
                found[record.key] = None if value is None else _started(value, message.sequence)
        except (records.RecordError, StoredSubscriptionError) as error:
            log.error("record %d is passed over: %s", message.sequence, error)
    return found


def _started(value: Mapping[str, object], sequence: int) -> StoredSubscription:
    return StoredSubscription.from_json(value).started(sequence)


async def _into_the_log(nats: NatsLog, keys: Iterable[str], decided: Number) -> dict[str, StoredSubscription | None]:
    """They begin anew, where the log is now."""
    changes: dict[str, StoredSubscription | None] = {}
    bucket, writer = nats.bucket(SUBSCRIPTIONS), nats.writer(LOG)
    for key in keys:
        entry = await bucket.get(key)
        if entry is None:
            continue
        stored = StoredSubscription.decode(entry.value).started(0)
        record = records.SubscriptionChange(stored.tenant, key, stored.to_json(), *decided)
        where = await (await writer.put(log_subject("subscription", stored.tenant), records.encode(record)))
        stored = stored.started(where.sequence)
        await bucket.put(key, stored.encode())
        changes[key] = stored
    await writer.close()
    return changes


async def _decided(nats: NatsLog) -> Number:
    """The newest request that the log's newest change knows; none where the numbers of requests have begun anew."""
    try:
        found = await nats.connection.api(f"STREAM.MSG.GET.{LOG}", {"last_by_subj": _CHANGES})
    except Refused as error:
        if error.error_code == NO_MESSAGE_FOUND:
            return NO_REQUEST
        raise
    record = await _record_at(nats, int(found["message"]["seq"]))
    given = (await nats.state(REQUESTS)).last
    if isinstance(record, records.SubscriptionChange) and record.request <= given:
        return Number(record.request, record.place)
    return NO_REQUEST


async def _record_at(nats: NatsLog, sequence: int) -> records.Record | None:
    async for messages in read_range(nats, LOG, sequence, sequence):
        for message in messages:
            try:
                return records.decode(message.data)
            except records.RecordError as error:
                log.error("record %d is passed over: %s", sequence, error)
    return None
