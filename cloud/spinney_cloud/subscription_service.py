"""Subscriptions: decides what a request means, and makes it so in the log and in the bucket, in that order.

Requests are decided one after the other; what they bring about is under way in the log and in the bucket by hundreds,
and arrives in their order. A request that comes again after a crash finds what it had done, or does it again:
the log knows the record by the request's number, and the bucket's value is the same.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from spinney.subscription_json import AnySubscription

from . import records
from .log_errors import LogError, TooLarge
from .names import LOG, SUBSCRIPTIONS, is_name, log_subject, subscription_key
from .nats_log import NatsLog, Stored
from .request_queue import NO_REQUEST, Number
from .settings import Limits
from .subscription_reading import Asked, Reading, Refusal, read_all
from .subscription_recovery import recover
from .subscription_request import is_on_pipeline
from .subscription_table import SubscriptionTable, fingerprint
from .subscriptions import StoredSubscription, StoredSubscriptionError

log = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 1000
"""Decided, and not yet in the bucket."""
READ_BYTES: Final = 8 * 1024
"""Of texts that are read at once: 0.1 s at worst. Longer ones are read in a thread."""
MAX_PAGE: Final = 1000
ON_PIPELINE: Final = "pipeline: it must be running (spinney pipeline), or nothing is told"
"""What an owner hears who leaves a subscription to the pipeline."""
_SEEN_AT_MOST: Final = 2_000
"""Keys that one request for a page looks at, whatever its labels: a page can be empty and not the last."""


@dataclass(frozen=True, slots=True)
class Done:
    """What has become of a request."""

    sid: str
    stored: StoredSubscription | None
    """As it is now; None where it has ended, or there was none."""
    cost: str = ""
    existed: bool = False

    def reply(self) -> dict[str, Any]:
        """As MQTT clients are told."""
        told: dict[str, Any] = {"request": "sub", "sid": self.sid, "ok": True}
        if self.stored is None:
            return told | {"ended": True}
        told |= {"normal": self.stored.normal, "cost": self.cost, "start": self.stored.start}
        return told | ({"on": ON_PIPELINE} if is_on_pipeline(self.stored.options) else {})


class _Pending:
    """A change that is on its way: first to the log, then to the bucket."""

    __slots__ = ("cost", "done", "existed", "key", "sid", "stored", "subscription", "value", "waiting")

    def __init__(self, key: str, sid: str, stored: StoredSubscription | None, cost: str, *, existed: bool) -> None:
        self.key = key
        self.sid = sid
        self.value = None if stored is None else stored.started(0).to_json()
        """As the log and the bucket take it, but for the start."""
        self.stored = stored
        self.cost = cost
        self.existed = existed
        self.subscription: AnySubscription | None = None
        self.waiting: asyncio.Future[Any] = _done(None)
        self.done: asyncio.Future[Done] = asyncio.get_running_loop().create_future()


def _done(outcome: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    future.set_result(outcome)
    return future


def _ignore(_key: str, _stored: StoredSubscription | None, _parsed: AnySubscription | None) -> None:
    """Nobody is to be told."""


OnChange = Callable[[str, StoredSubscription | None, AnySubscription | None], None]
"""Told of the key, what it is now, and that parsed where it is at hand."""


class SubscriptionService:
    """The one writer of subscriptions."""

    def __init__(
        self,
        log: NatsLog,
        limits: Limits,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.table = SubscriptionTable()
        self.limits = limits
        self.on_change: OnChange = _ignore
        self.damaged = 0
        """Values of the bucket that could not be read."""
        self._log = log
        self._clock = clock
        self._writer = log.writer(LOG, max_pending=MAX_UNDER_WAY)
        self._bucket = log.bucket(SUBSCRIPTIONS)
        self._order = asyncio.Lock()
        self._under_way: dict[str, _Pending] = {}
        """The newest change of each key that is not in the bucket yet."""
        self._to_log: asyncio.Queue[_Pending] = asyncio.Queue(MAX_UNDER_WAY)
        self._to_bucket: asyncio.Queue[_Pending] = asyncio.Queue(MAX_UNDER_WAY)
        self._sooner = asyncio.Event()
        self._decided = self._decided_before = NO_REQUEST
        """Requests up to here are decided: now, and when we started."""

    async def start(self, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """Read the bucket, and begin to work."""
        async with aclosing(self._bucket.each()) as changes:
            async for key, value, _ in changes:
                try:
                    self._know(key, None if value is None else StoredSubscription.decode(value))
                except StoredSubscriptionError as error:
                    self.damaged += 1
                    log.error("%s is passed over: %s", key, error)
        recovered = await recover(self._log, self.table.starts())
        self._decided = self._decided_before = recovered.decided
        for key, change in recovered.changes.items():
            self._know(key, change)
        spawn(self._carry_from_log())
        spawn(self._carry_from_bucket())

    def _know(self, key: str, stored: StoredSubscription | None) -> None:
        if stored is None:
            self.table.remove(key)
        else:
            self.table.put(key, stored, fingerprint(stored))
        self.on_change(key, stored, None)

    @property
    def under_way(self) -> int:
        """Changes that are on their way."""
        return len(self._under_way)

    async def settled(self) -> None:
        """Wait until what is on its way now is in the bucket."""
        pending = [one.done for one in self._under_way.values()]
        if pending:
            await asyncio.wait(pending)

    # ---- Requests ----------------------------------------------------------------------------------------------

    async def read(self, asked: Sequence[Asked]) -> list[Reading | Refusal]:
        """What subscriptions say, to be put; or why one is refused. Beside what takes long, others have their turns."""
        most_bytes = self.limits.subscription_text
        if sum(one.size for one in asked) > READ_BYTES:
            return await asyncio.to_thread(read_all, asked, self._clock(), most_bytes)
        return read_all(asked, self._clock(), most_bytes)

    async def put(
        self,
        tenant: str,
        reading: Reading,
        *,
        create: bool = False,
        request: Number | None = None,
    ) -> asyncio.Future[Done]:
        """A subscription begins or changes; done once it is in the bucket. Refusal at once if it cannot be."""
        owner, sid, asked, form = reading
        wanted = self._wanted(tenant, reading)
        key, mark = wanted.key, fingerprint(wanted)
        async with self._order:
            if self._is_decided(request):
                kept = await self._newest(key)
                return _done(Done(sid, kept, "" if kept is None else kept.cost, existed=kept is not None))
            entry = self.table.get(key)
            if entry is None:
                if self.table.count(tenant, owner) >= self.limits.subscriptions:
                    raise Refusal(429, f"{owner} has {self.limits.subscriptions} subscriptions; that is the limit")
            elif create:
                raise Refusal(409, f"{owner} has a subscription {sid} already")
            elif entry.fingerprint == mark:
                before = self._under_way.get(key)
                return before.done if before else _done(Done(sid, wanted.started(entry.start), form.cost, existed=True))
            else:
                kept = await self._newest(key)
                wanted = wanted if kept is None else replace(wanted, created=kept.created)
            pending = _Pending(key, sid, wanted, form.cost, existed=entry is not None)
            pending.subscription = asked.subscription
            return await self._begin(pending, mark, request)

    async def end(
        self, tenant: str, owner: str, sid: str, *, must_exist: bool = False, request: Number | None = None
    ) -> asyncio.Future[Done]:
        """A subscription ends."""
        key = _key(tenant, owner, sid)
        async with self._order:
            if self._is_decided(request):
                return _done(Done(sid, None))
            existed = key in self.table
            if not existed and must_exist:
                raise Refusal(404, f"{owner} has no subscription {sid}")
            pending = _Pending(key, sid, None, "", existed=existed)
            if not existed and key not in self._under_way:
                return _done(Done(sid, None))
            return await self._begin(pending, 0, request)

    async def enable(self, tenant: str, owner: str, sid: str, enabled: bool) -> asyncio.Future[Done]:
        """Let a subscription match, or keep it without matching it."""
        async with self._order:
            stored = await self._existing(tenant, owner, sid)
            changed = replace(stored, enabled=enabled)
            pending = _Pending(stored.key, sid, changed, changed.cost, existed=True)
            if stored.enabled == enabled and stored.key not in self._under_way:
                return _done(Done(sid, stored, pending.cost, existed=True))
            return await self._begin(pending, fingerprint(changed))

    async def expire(self) -> int:
        """End what is due; how many that were."""
        due = self.table.expiry.due(self._clock())
        for key in due:
            _, tenant, owner, sid = key.split(".")
            await self.end(tenant, owner, sid)
        return len(due)

    async def until_next(self, at_most_seconds: float) -> None:
        """Wait until something may have expired."""
        self._sooner.clear()
        following = self.table.expiry.next()
        wait = at_most_seconds if following is None else min(at_most_seconds, max(0.0, following - self._clock()))
        try:
            async with asyncio.timeout(wait):
                await self._sooner.wait()
        except TimeoutError:
            return

    async def get(self, tenant: str, owner: str, sid: str) -> StoredSubscription:
        """A subscription as it is now; Refusal if there is none."""
        return await self._existing(tenant, owner, sid)

    async def page(
        self, tenant: str, owner: str | None, labels: Mapping[str, str], limit: int, after: str | None
    ) -> tuple[list[StoredSubscription], str | None]:
        """Some subscriptions by owner and id, and what the next page comes after; None on the last."""
        prefix = _prefix(tenant, owner)
        start = "" if after is None else f"{tenant}.{after}"
        names = self.table.names_after(start, prefix, _SEEN_AT_MOST)
        found: list[StoredSubscription] = []
        for at in range(0, len(names), limit):
            found += await self._matching(names[at : at + limit], labels)
            if len(found) >= limit:
                last = found[limit - 1]
                return found[:limit], f"{last.owner}.{last.sid}"
        return found, names[-1].partition(".")[2] if len(names) == _SEEN_AT_MOST else None

    def count(self, tenant: str, owner: str | None) -> int:
        """How many there are on all pages."""
        return self.table.count_of(_prefix(tenant, owner))

    # ---- How -----------------------------------------------------------------------------------------------------

    def _is_decided(self, request: Number | None) -> bool:
        """Whether an earlier run has decided it; if not, it is being decided now."""
        if request is not None and request > self._decided_before:
            self._decided = request
        return request is not None and request <= self._decided_before

    def _wanted(self, tenant: str, reading: Reading) -> StoredSubscription:
        owner, sid, request, form = reading
        return StoredSubscription(
            tenant=tenant,
            owner=owner,
            sid=sid,
            source=request.source,
            start=0,
            created=self._clock(),
            kind=form.kind,
            normal=form.normal,
            digest=form.digest,
            program=form.program,
            enabled=request.enabled,
            expires=request.expires,
            labels=request.labels,
            options=request.options,
        )

    async def _existing(self, tenant: str, owner: str, sid: str) -> StoredSubscription:
        key = _key(tenant, owner, sid)
        stored = await self._newest(key) if key in self.table else None
        if stored is None:
            raise Refusal(404, f"{owner} has no subscription {sid}")
        return stored

    async def _newest(self, key: str) -> StoredSubscription | None:
        """As the last request left it, in the bucket or on its way there."""
        pending = self._under_way.get(key)
        if pending is not None:
            await asyncio.wait([pending.done])
        value = await newest_value(self._log, key)
        return None if value is None else StoredSubscription.decode(value)

    async def _matching(self, names: list[str], labels: Mapping[str, str]) -> list[StoredSubscription]:
        keys = [_key(*name.split(".")) for name in names]
        values = await asyncio.gather(*(newest_value(self._log, key) for key in keys))
        stored = [StoredSubscription.decode(value) for value in values if value is not None]
        return [one for one in stored if labels.items() <= one.labels.items()]

    # ---- The way through log and bucket ------------------------------------------------------------------------

    async def _begin(self, pending: _Pending, mark: int, request: Number | None = None) -> asyncio.Future[Done]:
        """Send the record, and remember the change. Whoever decides next decides upon it."""
        key = pending.key
        tenant = key.split(".")[1]
        pending.waiting = await self._writer.put(
            log_subject("subscription", tenant),
            records.encode(records.SubscriptionChange(tenant, key, pending.value, *self._decided)),
            message_id=None if request is None else f"request-{request.sequence}-{request.place}",
        )
        self._under_way[key] = pending
        if pending.stored is None:
            self.table.remove(key)
        else:
            self.table.put(key, pending.stored, mark)
            if pending.stored.expires is not None:
                self._sooner.set()
        await self._to_log.put(pending)
        return pending.done

    async def _carry_from_log(self) -> None:
        while True:
            pending = await self._to_log.get()
            try:
                where: Stored = await pending.waiting
            except (TooLarge, LogError) as error:
                await self._fail(pending, error)
            else:
                await self._put(pending, where.sequence)

    async def _put(self, pending: _Pending, sequence: int) -> None:
        if pending.stored is None or pending.value is None:
            pending.waiting = await self._bucket.delete_soon(pending.key)
        else:
            pending.value["start"] = sequence
            pending.waiting = await self._bucket.put_soon(pending.key, orjson.dumps(pending.value))
            pending.stored = pending.stored.started(sequence)
            if self._under_way.get(pending.key) is pending:
                self.table.started(pending.key, sequence)
        self.on_change(pending.key, pending.stored, pending.subscription)
        await self._to_bucket.put(pending)

    async def _carry_from_bucket(self) -> None:
        while True:
            pending = await self._to_bucket.get()
            try:
                await pending.waiting
            except (TooLarge, LogError) as error:
                await self._fail(pending, error)
            else:
                self._settle(pending)
                if not pending.done.done():
                    pending.done.set_result(Done(pending.sid, pending.stored, pending.cost, existed=pending.existed))

    def _settle(self, pending: _Pending) -> None:
        if self._under_way.get(pending.key) is pending:
            del self._under_way[pending.key]

    async def _fail(self, pending: _Pending, error: Exception) -> None:
        """Too large for the server, whatever is tried: as if it had never been asked for."""
        if self._under_way.get(pending.key) is pending:
            value = await newest_value(self._log, pending.key)
            self.table.remove(pending.key)
            if value is not None:
                kept = StoredSubscription.decode(value)
                self.table.put(pending.key, kept, fingerprint(kept))
        self._settle(pending)
        if not pending.done.done():
            pending.done.set_exception(Refusal(413, f"cannot be kept: {error}"))


async def newest_value(log: NatsLog, key: str) -> bytes | None:
    """What the bucket of subscriptions has for a key, in one question."""
    subject = f"$JS.API.DIRECT.GET.KV_{SUBSCRIPTIONS}.$KV.{SUBSCRIPTIONS}.{key}"
    answer = await log.connection.ask_subject(subject, b"", 5.0)
    headers = answer.headers or b""
    if headers.startswith(b"NATS/1.0 404") or b"KV-Operation: " in headers:
        return None
    return answer.data


def _key(tenant: str, owner: str, sid: str) -> str:
    if not (is_name(tenant) and is_name(owner) and is_name(sid)):
        raise Refusal(404, f"no name of a subscription: {owner!r:.80} {sid!r:.80}")
    return subscription_key(tenant, owner, sid)


def _prefix(tenant: str, owner: str | None) -> str:
    """Of the names of an owner's subscriptions, or of everybody's."""
    return f"{tenant}." if owner is None else f"{tenant}.{owner}."
