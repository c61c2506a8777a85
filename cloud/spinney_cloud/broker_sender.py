"""Tells one mobile broker what is active on it: only changes, each under the next epoch, or all where it lost count.

What is sent is stored after it is sent: a coordinator that starts in between sends all again. Leases are stored before
they are told, so that no epoch is ever given out twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

import orjson

from .activation import Active, fingerprint
from .completeness import entries
from .completeness.recorder import Recorder
from .log_errors import AskError, TooLarge
from .names import ACTIVATIONS
from .nats_connection import Backoff
from .nats_log import NatsLog

log = logging.getLogger(__name__)

VERSION: Final = 1
MAX_ACT_BYTES: Final = 256 * 1024
"""Of one message; what is more comes under the next epochs, all but the last with `more`."""


class ActivationVersionError(ValueError):
    """A stored activation that a newer Spinney has written, or that is damaged."""


def decode(data: bytes) -> dict[str, Any]:
    """What gave these bytes of the bucket."""
    try:
        item: dict[str, Any] = orjson.loads(data)
        if item["v"] > VERSION:
            raise ActivationVersionError(f"an activation of version {item['v']}; this Spinney reads up to {VERSION}")
        for name in ("epoch", "fingerprint", "leases", "lease_epoch", "chosen"):
            item[name]
    except ActivationVersionError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise ActivationVersionError(f"a damaged activation: {data[:80]!r}: {error!r}") from error
    return item


class Wish:
    """What the broker is to have."""

    __slots__ = ("active", "chosen", "held", "lease_epoch", "leases")

    def __init__(
        self,
        active: Mapping[str, Active],
        leases: list[dict[str, Any]],
        held: Mapping[str, int],
        lease_epoch: int,
        chosen: Mapping[str, list[str]],
    ) -> None:
        self.active = active
        self.leases = leases
        """As the broker is told: who owns each source that it asked for."""
        self.held = held
        """As the gateway is told: its own, with their epochs."""
        self.lease_epoch = lease_epoch
        self.chosen = chosen


class BrokerSender:
    """One broker's. `send` is called by one task at a time."""

    def __init__(
        self,
        log: NatsLog,
        tenant: str,
        client: str,
        stored: Mapping[str, Any] | None,
        clock: Callable[[], float],
        recorder: Recorder,
    ) -> None:
        self.tenant = tenant
        self.client = client
        self.epoch = stored["epoch"] if stored else int(clock() * 1000)
        """Of the last message. A broker that is not known begins at the clock's, so that none counts on as before."""
        self.sent: Mapping[str, Active] | None = None
        """None while nobody knows what it has."""
        self.is_full_due = False
        self.task: asyncio.Task[None] | None = None
        self.is_due = False
        self.due_since: float | None = None
        """Of the monotonic clock."""
        self.sent_at: float | None = None
        self.messages = 0
        self.why: str | None = None
        """Why it cannot be told at the moment."""
        self._report: tuple[str, Mapping[str, Any]] | None = None
        """What it said last that it evaluates, and in which session."""
        if stored and stored.get("report"):
            self._report = (stored["report"][0], stored["report"][1])
        self.is_recorded = stored is None or stored.get("recorded") == self.epoch
        """Whether the history has all that it was told; not while an older Spinney told it."""
        self._log = log
        self._clock = clock
        self._recorder = recorder
        self._value: dict[str, Any] | None = dict(stored) if stored else None
        self._storing = asyncio.Lock()
        self._fingerprint: str | None = stored["fingerprint"] if stored else None
        self._told_leases: str | None = stored.get("told") if stored else _mark([])
        self._stored_leases: tuple[dict[str, int], int] | None = None
        if stored:
            self._stored_leases = (stored["leases"], stored["lease_epoch"])

    @property
    def stored_leases(self) -> Mapping[str, int]:
        """Its own, as the gateway knows them."""
        return self._stored_leases[0] if self._stored_leases else {}

    def mark(self, since: float | None) -> None:
        """Something of it has changed, at that time of the monotonic clock."""
        if self.due_since is None:
            self.due_since = time.monotonic() if since is None else since
        self.is_due = True

    async def send(self, wish: Wish) -> float | None:
        """Tell the broker what has changed; the seconds since that was marked, None if nothing has."""
        since, self.due_since = self.due_since, None
        await self._store_leases(wish)
        messages = list(self._messages(wish))
        chosen = frozenset(digest for digest, one in wish.active.items() if one.sources is not None)
        said = (entries.activated(self.client, message, chosen) for message in messages)
        await self._recorder.write(self.tenant, *said)  # first: nothing is at work that is not written down
        for message in messages:
            await self._out(message)
        self.sent = wish.active
        if messages:
            self.is_full_due = False
            self._told_leases = _mark(wish.leases)
            self._fingerprint = fingerprint(wish.active.values())
            self.sent_at = self._clock()
            self.messages += len(messages)
            await self._store(wish)
        return None if since is None or not messages else time.monotonic() - since

    def cannot(self, error: TooLarge) -> None:
        """It has heard a part at most: it hears all of it as soon as something changes."""
        self.why = str(error)
        self.sent = None
        log.error("%s cannot be told what is active: %s", self.client, error)

    def _messages(self, wish: Wish) -> Iterator[dict[str, Any]]:
        if self.sent is None and not self.is_full_due and self._fingerprint == fingerprint(wish.active.values()):
            self.sent = wish.active
        full = self.sent is None or self.is_full_due
        before: Mapping[str, Active] = {} if full or self.sent is None else self.sent
        add = [one for digest, one in wish.active.items() if not one.is_like(before.get(digest))]
        drop = [digest for digest in before if digest not in wish.active]
        leases = wish.leases if full or _mark(wish.leases) != self._told_leases else None
        if not (full or add or drop or leases is not None):
            return
        *parts, last = _in_parts(one.to_json() for one in add)
        for part in parts:
            yield {**self._message(full, part, [], None), "more": True}
            full = False
        yield self._message(full, last, drop, leases)

    def _message(
        self, full: bool, add: list[dict[str, Any]], drop: list[str], leases: list[dict[str, Any]] | None
    ) -> dict[str, Any]:
        self.epoch += 1
        message: dict[str, Any] = {"epoch": self.epoch, "full": full, "add": add, "drop": drop}
        return message if leases is None else {**message, "leases": leases}

    async def _out(self, message: dict[str, Any]) -> None:
        """Until it is out. Should the broker have got it and this process not know, it comes twice, unchanged."""
        data, backoff = orjson.dumps(message), Backoff()
        while True:
            try:
                await self._log.out(self.client, "act", data)
            except AskError as error:
                self.why = str(error)
                log.warning("%s cannot be told what is active: %s", self.client, error)
                await asyncio.sleep(backoff.next())
            else:
                self.why = None
                return

    async def _store_leases(self, wish: Wish) -> None:
        leases = (dict(wish.held), wish.lease_epoch)
        before = (self._stored_leases or ({}, 0))[0]
        if wish.held != before:
            await self._recorder.write(self.tenant, entries.leased(self.client, before, wish.held))
            await self._store(wish)
            self._stored_leases = leases

    async def _store(self, wish: Wish) -> None:
        value = {
            "v": VERSION,
            "tenant": self.tenant,
            "client": self.client,
            "epoch": self.epoch,
            "fingerprint": self._fingerprint,
            "filters": len(self.sent or ()),
            "leases": wish.held,
            "lease_epoch": wish.lease_epoch,
            "told": self._told_leases,
            "chosen": wish.chosen,
            "recorded": self.epoch,
        }
        await self._put(value)
        self._stored_leases = (dict(wish.held), wish.lease_epoch)

    def report_in(self, session: str) -> Mapping[str, Any] | None:
        """What it said in a session that it evaluates; None if nothing yet."""
        return self._report[1] if self._report is not None and self._report[0] == session else None

    async def reported(self, session: str, report: Mapping[str, Any]) -> None:
        """It says what it evaluates."""
        self._report = (session, report)
        if self._value is not None:
            await self._put(self._value)

    async def _put(self, value: dict[str, Any]) -> None:
        async with self._storing:
            self._value = value
            value = {**value, "report": self._report}
            await self._put_whole(value)

    async def _put_whole(self, value: dict[str, Any]) -> None:
        bucket, key = self._log.bucket(ACTIVATIONS), f"{self.tenant}.{self.client}"
        try:
            await bucket.put(key, orjson.dumps(value))
        except TooLarge as error:
            log.warning("%s: which sources were chosen is forgotten at the next start: %s", key, error)
            await bucket.put(key, orjson.dumps({**value, "chosen": {}}))

    def all_of_it(self) -> list[dict[str, Any]] | None:
        """An activation with all that it was told, in its parts; None while that is not known, or on its way."""
        if self.sent is None or self.task is not None:
            return None
        parts = _in_parts(one.to_json() for one in self.sent.values())
        return [
            {"epoch": self.epoch, "full": at == 0, "add": part, "drop": [], "more": at < len(parts) - 1}
            for at, part in enumerate(parts)
        ]


def _mark(leases: list[dict[str, Any]]) -> str:
    return blake2b(orjson.dumps(leases), digest_size=8).hexdigest()


def _in_parts(items: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Lists that fit into messages; one at least."""
    parts: list[list[dict[str, Any]]] = [[]]
    size = 0
    for item in items:
        length = len(orjson.dumps(item))
        if size + length > MAX_ACT_BYTES and parts[-1]:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += length
    return parts
