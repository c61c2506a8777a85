"""Notifications as server-sent events: one reader of the notification log, for all connections of a process.

    id: 17.3
    data: {"id":"5f0c...","sid":"air","why":"match",...}

The id is the place in the notification log, so any process can go on where another had stopped. Beside notifications
there are two events with a name: `gap`, when what was asked for is no longer there, and `cut`, the last one of a
connection that reads too slowly; it can resume.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Final

import orjson

from .log_errors import LogError, Truncated
from .names import NOTES, notes_subject
from .nats_log import Message, NatsLog, Reader, read_range
from .note_payload import encode_notes
from .notes import Notes, NotesError, decode

log = logging.getLogger(__name__)

KEEPALIVE_SECONDS: Final = 15.0
RETRY_MS: Final = 2000
"""After which a browser connects again."""
MAX_WAITING: Final = 10_000
"""Events that may wait for one connection; beyond it is cut."""
MAX_WAITING_BYTES: Final = 8 * 1024**2
MAX_TOTAL_BYTES: Final = 256 * 1024**2
"""Of all connections together."""
TRUNCATED: Final = "the notification log was truncated"
TOO_SLOW: Final = "too slow"

_ID = re.compile(r"([0-9]{1,18})\.([0-9]{1,9})")
_END: Final = 1 << 31
"""Beyond any index in a message."""

Place = tuple[int, int]


class _Listener:
    """One connection that has caught up."""

    __slots__ = ("after", "chunks", "cut", "last", "sid", "size", "wake")

    def __init__(self, sid: str | None, after: int) -> None:
        self.sid = sid
        self.after = after
        """It has had all messages up to here: another process may have told it more than we have read."""
        self.chunks: list[bytes] = []
        self.size = 0
        self.last: str | None = None
        self.cut: str | None = None
        """Why, once it is."""
        self.wake = asyncio.Event()


class NoteFeed:
    """Use it in `async with`; `events` for each connection."""

    def __init__(self, nats_log: NatsLog, *, keepalive_seconds: float = KEEPALIVE_SECONDS) -> None:
        self.sequence = 0
        """Of the newest message that listeners were told."""
        self.sent = 0
        self.cuts = 0
        self._log = nats_log
        self._keepalive_seconds = keepalive_seconds
        self._listeners: dict[str, dict[str | None, list[_Listener]]] = {}
        """By tenant and owner; None listens to everybody's."""
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> NoteFeed:
        self.sequence = (await self._log.state(NOTES)).last
        self._task = asyncio.create_task(self._run(), name="note feed")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @property
    def connections(self) -> int:
        """Connections that have caught up."""
        return sum(len(each) for owners in self._listeners.values() for each in owners.values())

    async def events(
        self, owner: str | None, tenant: str, sid: str | None = None, after: str | None = None
    ) -> AsyncGenerator[bytes, None]:
        """Events for one owner (None: for everybody of the tenant), of one subscription or all: from after that event
        id, or from now on; for ever.

        It ends with a `cut` when the connection reads too slowly, or the log cannot be read.
        """
        try:
            async with aclosing(self._events(owner, tenant, sid, after)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except LogError as error:
            log.warning("events of %s end: %s", owner, error)
            self.cuts += 1
            yield _event("cut", {"reason": "the notification log cannot be read now"})

    async def _events(
        self, owner: str | None, tenant: str, sid: str | None, after: str | None
    ) -> AsyncGenerator[bytes, None]:
        yield b"retry: %d\n\n" % RETRY_MS
        place = (self.sequence, _END)
        if after is not None:
            place, gap = await self._resume(after)
            if gap:
                yield gap
        while place[0] < self.sequence or place[1] != _END:
            end = max(self.sequence, place[0])
            async with aclosing(self._catch_up(tenant, owner, sid, place, end)) as chunks:
                async for chunk in chunks:
                    yield chunk
            place = (end, _END)
        listener = _Listener(sid, place[0])
        listeners = self._listeners.setdefault(tenant, {}).setdefault(owner, [])
        listeners.append(listener)
        try:
            async with aclosing(self._live(listener)) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self._bytes -= listener.size
            self._remove(tenant, owner, listener)

    # ---- Catching up --------------------------------------------------------------------------------------------

    async def _resume(self, after: str) -> tuple[Place, bytes]:
        """Where to go on, and what to say if something is missing in between."""
        state = await self._log.state(NOTES)
        found = _ID.fullmatch(after)
        if found is None:
            return (self.sequence, _END), _event("gap", {"after": after[:40], "reason": "not an id of an event"})
        place = int(found[1]), int(found[2])
        if place[0] > state.last:
            return (self.sequence, _END), _event("gap", {"after": after, "reason": TRUNCATED})
        if place[0] + 1 < state.first:
            return (state.first - 1, _END), _event("gap", {"after": after, "reason": "older than the notification log"})
        return place, b""

    async def _catch_up(
        self, tenant: str, owner: str | None, sid: str | None, place: Place, end: int
    ) -> AsyncGenerator[bytes, None]:
        first = max(1, place[0] + (place[1] == _END))
        async for messages in read_range(self._log, NOTES, first, end, filter_subject=notes_subject(tenant)):
            chunks: list[bytes] = []
            for message in messages:
                if (notes := _decoded(message)) is None:
                    continue
                after = place[1] if message.sequence == place[0] else -1
                wanted = [
                    index
                    for index, note in enumerate(notes.notes)
                    if index > after and owner in (None, note.owner) and sid in (None, note.sid)
                ]
                chunks += (chunk for _, _, _, chunk in _encoded(message.sequence, notes, wanted))
            if chunks:
                self.sent += len(chunks)
                yield b"".join(chunks)

    # ---- Live ---------------------------------------------------------------------------------------------------

    async def _live(self, listener: _Listener) -> AsyncGenerator[bytes, None]:
        while True:
            try:
                async with asyncio.timeout(self._keepalive_seconds):
                    await listener.wake.wait()
            except TimeoutError:
                yield b": keepalive\n\n"
                continue
            listener.wake.clear()
            chunks, listener.chunks = listener.chunks, []
            self._bytes -= listener.size
            listener.size = 0
            if chunks:
                self.sent += len(chunks)
                yield b"".join(chunks)
            if listener.cut is not None and not listener.chunks:
                yield _event("cut", {"reason": listener.cut, "resume": listener.last})
                return

    def _remove(self, tenant: str, owner: str | None, listener: _Listener) -> None:
        owners = self._listeners.get(tenant, {})
        listeners = owners.get(owner, [])
        if listener in listeners:
            listeners.remove(listener)
        if not listeners:
            owners.pop(owner, None)
        if not owners:
            self._listeners.pop(tenant, None)

    async def _run(self) -> None:
        reader = self._log.reader(NOTES, after=self.sequence)
        try:
            while True:
                try:
                    for message in await reader.next():
                        self._take(message)
                except Truncated as error:
                    log.error("%s; going on from there", error)
                    await reader.close()
                    reader = self._anew(error.last)
                except LogError as error:
                    log.error("notifications cannot be read: %s", error)
                    await asyncio.sleep(1.0)
        finally:
            await reader.close()

    def _anew(self, last: int) -> Reader:
        """The log was cut: all resume from there, each told of it."""
        self.sequence = last
        for owners in self._listeners.values():
            for listeners in owners.values():
                for listener in listeners:
                    self._cut(listener, TRUNCATED)
        return self._log.reader(NOTES, after=last)

    def _take(self, message: Message) -> None:
        """Give a message to whoever listens."""
        self.sequence = message.sequence
        owners = self._listeners.get(message.subject.rpartition(".")[2])
        if not owners or (notes := _decoded(message)) is None:
            return
        everybodys = owners.get(None, [])
        wanted = [index for index, note in enumerate(notes.notes) if everybodys or note.owner in owners]
        for owner, sid, name, chunk in _encoded(message.sequence, notes, wanted):
            for listener in (*owners.get(owner, ()), *everybodys):
                if listener.sid in (None, sid) and listener.after < message.sequence:
                    self._offer(listener, name, chunk)

    def _offer(self, listener: _Listener, name: str, chunk: bytes) -> None:
        if listener.cut is not None:
            return
        size = len(chunk)
        if (
            len(listener.chunks) >= MAX_WAITING
            or listener.size + size > MAX_WAITING_BYTES
            or self._bytes + size > MAX_TOTAL_BYTES
        ):
            self._cut(listener, TOO_SLOW)
            return
        listener.chunks.append(chunk)
        listener.last = name
        listener.size += size
        self._bytes += size
        listener.wake.set()

    def _cut(self, listener: _Listener, why: str) -> None:
        self.cuts += 1
        listener.cut = why
        listener.wake.set()


def _decoded(message: Message) -> Notes | None:
    try:
        return decode(message.data)
    except NotesError as error:
        log.error("message %d of the notification log: %s", message.sequence, error)
        return None


def _encoded(sequence: int, notes: Notes, wanted: list[int]) -> Iterator[tuple[str, str, str, bytes]]:
    """Owner, sid, event id and event."""
    for told in encode_notes(notes, wanted):
        name = f"{sequence}.{told.number}"
        yield told.owner, told.sid, name, b"id: %b\ndata: %b\n\n" % (name.encode(), told.payload)


def _event(name: str, data: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps(data))
