"""A publisher: numbers its publications, keeps them until the cloud has stored them, and loses none on the way."""

from __future__ import annotations

import json
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from ..errors import PublicationError
from ..identity import PublicationId
from ..publication import read
from .address import Access, Server
from .callbacks import Caller
from .connection import Connection
from .disk_outbox import SYNC_SECONDS, DiskOutbox
from .errors import (
    ClientError,
    Closed,
    NotStored,
    OutboxFull,
    PublicationDropped,
    PublicationRefused,
    PublicationTooLarge,
    RequestRefused,
    TimedOut,
)
from .link import Arrived
from .outbox import Entry, Outbox
from .receipt import Receipt
from .sending import BATCH_BYTES, RESEND_SECONDS, Sending

WhenFull = Literal["wait", "raise", "drop_oldest"]

MAX_SOURCES: Final = 100_000
"""That one publisher numbers."""
MAX_UNPUBLISHED: Final = 10_000
"""Withdrawals that the cloud has not yet taken."""
MAX_WITHDRAWALS: Final = 10
"""How often one is sent before it is given up."""
_NUMBERS_BYTES: Final = 64
"""More than what boot, sequence and the punctuation of `id` and `source` take."""
MAX_CALLS: Final = 10_000
"""Callbacks that wait for their thread; beyond it the oldest are left out, and counted."""

_log = logging.getLogger("spinney.client")


@dataclass(slots=True)
class Counts:
    """What a publisher has done so far."""

    published: int = 0
    stored: int = 0
    refused: int = 0
    dropped: int = 0
    """From a full outbox."""
    calls_left_out: int = 0
    """Callbacks that there was no room for."""


@dataclass(slots=True)
class _Withdrawal:
    due: float = 0.0
    sent: int = 0


class Publisher:
    """
    >>> with Publisher("kit") as kit:                                              # doctest: +SKIP
    ...     receipt = kit.publish({"NO2": 57, "lat": 45.81, "long": 15.97})
    ...     receipt.wait()                                                         # stored: it can no longer be lost

    Its methods may be called from any thread, also before it is connected and while it is not.
    """

    def __init__(
        self,
        name: str,
        *,
        server: str | None = None,
        password: str | None = None,
        ca: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
        source: str | None = None,
        outbox: Outbox | Path | None = None,
        when_full: WhenFull = "wait",
        full_wait_seconds: float = 30.0,
        linger_ms: float = 0.0,
        batch_bytes: int = BATCH_BYTES,
        resend_seconds: float = RESEND_SECONDS,
        on_refused: Callable[[str, ClientError], object] | None = None,
        on_connection: Callable[[bool, str], object] | None = None,
    ) -> None:
        """The client's name is its user's. `ca` is trusted instead of the system's certificates, `certificate` is the
        client's own with its key. `source` names the readings that name none (the client's name, if None).

        `outbox`: a folder keeps what is not stored on disk. `when_full` waits for room up to `full_wait_seconds`,
        raises OutboxFull at once, or drops the oldest. `linger_ms` is how long a reading may wait for company in a
        message. `on_refused` is told id and error of each publication that will never be stored, `on_connection`
        whether the link is up, and why not.
        """
        self._access = Access(name, Server.parse(server), password, ca, certificate)
        self._source = source or name
        self._outbox = DiskOutbox(outbox) if isinstance(outbox, Path) else outbox or Outbox()
        self._when_full = when_full
        self._full_wait = full_wait_seconds
        self._resend_seconds = resend_seconds
        self._on_refused = on_refused
        self._on_connection = on_connection
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._ended = threading.Event()
        self._up = False
        self._receipts: dict[int, Receipt] = {}
        self._numbers: dict[str, int] = {}
        self._batches: dict[int, str] = {}  # by the number of the server's acknowledgement
        self._unpublished: OrderedDict[str, _Withdrawal] = OrderedDict()
        self._calls: deque[Callable[[], object]] = deque(maxlen=MAX_CALLS)
        self._caller: Caller | None = None
        self._syncer: threading.Thread | None = None
        self.counts = Counts()
        self.topics: Sequence[str] = (self._access.topic("reply"),)
        self._outbox.open()
        prefix = secrets.token_hex(6)
        self._sending = Sending(
            self._outbox, prefix, batch_bytes=batch_bytes, linger_seconds=linger_ms / 1e3, resend_seconds=resend_seconds
        )
        self._sending.again(0.0)
        self._connection = Connection(self._access, f"{name}-pub-{prefix}", clean=True, member=self)
        self._start_syncing()

    # ---- the link

    def connect(self, wait_seconds: float = 10.0) -> Self:
        """ConnectionRefused or ServerUnreachable if it does not succeed in time; 0 tries in the background, for ever.

        Once connected, a lost link is made again without end.
        """
        self._check_open()
        self._connection.connect(wait_seconds)
        return self

    def disconnect(self) -> None:
        """End the link and keep the outbox; `connect` goes on with it."""
        self._connection.close()

    @property
    def connected(self) -> bool:
        """Whether the link is up at this moment."""
        return self._up

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Flush, and end it. What an outbox on disk still keeps goes out next time; NotStored if nothing keeps it."""
        if self._closed:
            return
        try:
            self.flush(timeout_seconds if self._connection.started else 0.0)
        except TimedOut:
            if not self._outbox.durable:
                raise
        finally:
            self._end()

    def _end(self) -> None:
        self._connection.close()
        self._ended.set()
        with self._changed:
            self._closed = True
            for receipt in self._receipts.values():
                receipt.settle(Closed(f"the publisher of {receipt.id}"))
            self._receipts.clear()
            self._outbox.close()
            self._changed.notify_all()
        if self._caller is not None:
            self._caller.join()
        if self._syncer is not None:
            self._syncer.join()

    def __enter__(self) -> Self:
        try:
            return self.connect()
        except BaseException:
            self._end()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self._end()

    # ---- publishing

    def publish(self, publication: Mapping[str, Any]) -> Receipt:
        """Take it into the outbox. PublicationError, PublicationTooLarge, or OutboxFull if that cannot be."""
        return self._publish(read(publication))

    def publish_batch(self, publications: Iterable[Mapping[str, Any]]) -> list[Receipt]:
        """All of them, in order; none if one of them cannot be a publication."""
        return [self._publish(publication) for publication in [read(item) for item in publications]]

    def _publish(self, publication: dict[str, Any]) -> Receipt:
        given, source = self._name_of(publication)
        body = json.dumps(publication, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
        size = len(body) + 2 * len(json.dumps(source)) + _NUMBERS_BYTES
        with self._changed:
            self._check_open()
            if size > self._sending.largest:
                raise PublicationTooLarge(size, self._sending.largest)
            self._make_room(size)  # others may publish meanwhile, so the number is taken after it
            id = given or self._take_id(source)
            head = json.dumps({"id": str(id), "source": source}, ensure_ascii=False, separators=(",", ":")).encode()
            entry = self._outbox.append(id, head[:-1] + (b"," + body[1:] if len(body) > 2 else b"}"))
            if given is None:
                self._numbers[source] = id.sequence + 1
            receipt = self._receipts[entry.place] = Receipt(id, self._changed)
            self._sending.appended(entry, time.monotonic())
            self.counts.published += 1
        self._connection.wake()
        return receipt

    def _name_of(self, publication: dict[str, Any]) -> tuple[PublicationId | None, str]:
        """Its id, if it has one, and its source; both are taken out."""
        given, source = publication.pop("id", None), publication.pop("source", None)
        if given is None:
            return None, source or self._source
        id = PublicationId.parse(given)
        if source not in (None, id.source):
            raise PublicationError(f"id: {given:.80} is not of source {source!r:.80}", attribute="id")
        return id, id.source

    def _take_id(self, source: str) -> PublicationId:
        """The source's next."""
        if source not in self._numbers and len(self._numbers) >= MAX_SOURCES:
            raise PublicationError(f"source: a publisher numbers up to {MAX_SOURCES:,} sources", attribute="source")
        return PublicationId(source, self._outbox.boot, self._numbers.get(source, 0))

    def _make_room(self, size: int) -> None:
        if self._outbox.has_room(size):
            return
        if self._when_full == "drop_oldest":
            while not self._outbox.has_room(size):
                self._drop_oldest()
        elif self._when_full == "wait":
            self._changed.wait_for(lambda: self._closed or self._outbox.has_room(size), self._full_wait)
            self._check_open()
        if not self._outbox.has_room(size):
            raise OutboxFull(self._outbox.count, self._outbox.bytes)

    def _drop_oldest(self) -> None:
        oldest = self._outbox.leave([next(self._outbox.entries())])
        self.counts.dropped += 1
        self._settle(oldest, lambda entry: PublicationDropped(str(entry.id)))

    def unpublish(self, id: str | Receipt) -> None:
        """Withdraw a publication: no longer valid for whoever subscribes from now on. `flush` waits for this, too."""
        text = id.id if isinstance(id, Receipt) else str(PublicationId.parse(id))
        with self._changed:
            self._check_open()
            if len(self._unpublished) >= MAX_UNPUBLISHED:
                raise OutboxFull(len(self._unpublished), 0)
            self._unpublished.setdefault(text, _Withdrawal())
        self._connection.wake()

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Until everything that was published before is stored or refused; NotStored if that takes longer."""
        with self._changed:
            end, self._sending.hurry = self._outbox.end, True
            self._connection.wake()
            try:
                done = self._changed.wait_for(lambda: self._closed or not self._waiting(end), timeout_seconds)
            finally:
                self._sending.hurry = False
            if not done:
                raise NotStored(self._waiting(end), timeout_seconds or 0.0)
            self._check_open()

    def _waiting(self, end: int) -> int:
        first = next(self._outbox.entries(), None)
        if first is None or first.place >= end:
            return len(self._unpublished)
        return self._outbox.count + len(self._unpublished)

    @property
    def waiting(self) -> int:
        """Publications that are not yet stored."""
        return self._outbox.count

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"publisher {self._access.name!r}")

    # ---- the connection's thread (a Member)

    def opened(self) -> None:
        """The link is up: all that is not stored goes out, from the oldest on."""
        with self._changed:
            self._up = True
            self._batches.clear()
            for withdrawal in self._unpublished.values():
                withdrawal.due = 0.0
            self._sending.again(time.monotonic())
        self._call_connection(True, "")

    def lost(self, reason: str) -> None:
        """The link is down."""
        self._up = False
        self._call_connection(False, reason)

    def acked(self, mid: int) -> None:
        """The server has something."""
        with self._changed:
            if (batch := self._batches.pop(mid, None)) is not None:
                self._sending.acked(batch, time.monotonic())

    def work(self, now: float) -> float | None:
        """Send what can be sent."""
        with self._changed:
            if self._sending.unheard(now):
                self._connection.drop("the server does not acknowledge")
                return None
            if self._sending.overdue(now):
                _log.warning("%s: no word of what is stored; sending again", self._access.server)
            while (message := self._sending.next(now)) is not None:
                mid = self._connection.publish(self._access.topic("pub"), message.payload)
                self._batches[mid] = message.batch
            return _earliest(self._sending.due(now), self._unpublish(now))

    def _unpublish(self, now: float) -> float | None:
        """Send what is to be withdrawn, and again what nobody has answered; when the next is due."""
        for id, withdrawal in [item for item in self._unpublished.items() if item[1].due <= now]:
            if withdrawal.sent == MAX_WITHDRAWALS:
                self._withdrawn({"id": id, "ok": False, "error": "no answer"})
                continue
            self._connection.publish(self._access.topic("unpub"), json.dumps({"id": id}).encode())
            withdrawal.sent += 1
            withdrawal.due = now + self._resend_seconds
        return min((withdrawal.due for withdrawal in self._unpublished.values()), default=None)

    def arrived(self, message: Arrived) -> None:
        """A reply."""
        message.ack()
        try:
            reply = json.loads(message.payload)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            _log.warning("a reply that is none: %.80r", message.payload)
            return
        with self._changed:
            refused = self._sending.refused(reply)
            if reply.get("refused") and not refused and "batch" not in reply:
                _log.warning("%s refuses what %s sends: %.500s", self._access.server, self._access.name, reply)
            self.counts.refused += len(refused)
            reasons = {entry.place: reason for entry, reason in refused}
            self._settle(
                [entry for entry, _ in refused], lambda entry: PublicationRefused(str(entry.id), reasons[entry.place])
            )
            stored = self._sending.stored(reply)
            self.counts.stored += len(stored)
            self._settle(stored, lambda _: None)
            if reply.get("request") == "unpub":
                self._withdrawn(reply)
            if isinstance(limit := reply.get("max_payload"), int):
                self._limit(limit)

    def _withdrawn(self, reply: Mapping[str, Any]) -> None:
        id = str(reply.get("id"))
        known = self._unpublished.pop(id, None)
        if known is not None and not reply.get("ok") and self._on_refused is not None:
            reason = reply.get("error")
            text = reason.get("message") if isinstance(reason, dict) else reason
            self._call(partial(self._on_refused, id, RequestRefused("unpublish", id, str(text))))
        self._changed.notify_all()

    def _limit(self, max_payload: int) -> None:
        """The cloud has said how large a message may be."""
        self._sending.max_payload = max_payload
        too_large = self._outbox.leave(self._sending.oversized())
        self.counts.refused += len(too_large)
        self._settle(too_large, lambda entry: PublicationTooLarge(len(entry.data), self._sending.largest))

    def _settle(self, entries: Sequence[Entry], error_of: Callable[[Entry], ClientError | None]) -> None:
        for entry in entries:
            error = error_of(entry)
            if (receipt := self._receipts.pop(entry.place, None)) is not None:
                receipt.settle(error)
            if error is not None and self._on_refused is not None:
                self._call(partial(self._on_refused, str(entry.id), error))
        if entries:
            self._changed.notify_all()

    # ---- other threads

    def _call_connection(self, up: bool, reason: str) -> None:
        if (told := self._on_connection) is not None:
            self._call(partial(told, up, reason))

    def _call(self, call: Callable[[], object]) -> None:
        with self._changed:
            self.counts.calls_left_out += len(self._calls) == MAX_CALLS
            self._calls.append(call)
            if self._caller is None:
                self._caller = Caller(f"spinney-{self._access.name}-callbacks", self._next_calls())
                self._caller.start()
            self._changed.notify_all()

    def _next_calls(self) -> Iterator[Callable[[], object]]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._calls)
                if not self._calls:
                    return
                call = self._calls.popleft()
            yield call

    def _start_syncing(self) -> None:
        if isinstance(self._outbox, DiskOutbox) and self._outbox.sync_policy == "interval":
            self._syncer = threading.Thread(target=self._sync, name=f"spinney-{self._access.name}-disk", daemon=True)
            self._syncer.start()

    def _sync(self) -> None:
        while not self._ended.wait(SYNC_SECONDS):
            with self._changed:
                file = None if self._closed else self._outbox.to_sync()
            if file is None:
                continue
            try:
                os.fsync(file)
            except OSError as error:
                _log.error("the outbox may not outlive a power cut: %s", error)  # the text says it all
            finally:
                os.close(file)


def _earliest(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else min(one, other)
