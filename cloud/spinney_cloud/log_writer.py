"""Writing to a stream: in order and once, over refusals, silence, and the server's and the connection's end.

Messages are sent without waiting for one another's acknowledgement, up to a window. What is not acknowledged is sent
again, from the oldest on, with the same Nats-Msg-Id, by which the server knows what it has. Three things could break
the order or store twice, and are dealt with here:

- A full stream refuses a large message and takes the small one after it. So near the limit, and after any refusal, only
  one message is under way at a time.
- nats-py sends again by itself, and first, what it held when the connection broke: so it never gets to hold this.
- The server forgets ids after two minutes. What was sent longer ago is looked for in the stream before it goes again.
"""

from __future__ import annotations

import asyncio
import logging
import re
import secrets
from collections import deque
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

import orjson

from .log_errors import LogError, StreamMissing, TooLarge, Truncated, Unavailable
from .log_reader import Message, Reader, header, until_now
from .nats_connection import Backoff, Connection, subject_bytes
from .room import Room

log = logging.getLogger(__name__)

MAX_PENDING = 1000
MAX_PENDING_BYTES = 32 * 1024**2
ANSWER_SECONDS = 5.0
"""Without an acknowledgement for so long, all is sent again."""
OLD_SECONDS = 60.0
"""What was sent before that is looked for first; half of the streams' duplicate window."""
WATCH_SECONDS = 1.0
"""How often a stream's size is asked for while it is written to."""
NEAR_FULL_BYTES = 64 * 1024**2
"""Near the limit: so much is left, or an eighth of it. Others' writing of a second fits in."""
MAX_MESSAGE_EXCEEDED = 10054
_ROOM_OF_HEADERS = 96
"""What the server counts for a message beyond subject and data, at most."""
_ID = re.compile(r"[!-~]{1,200}")


class Stored(NamedTuple):
    """Where a message is in its stream."""

    sequence: int
    duplicate: bool
    """The stream had it already."""


class _Item:
    """A message that is not yet known to be stored."""

    __slots__ = ("data", "future", "headers", "message_id", "number", "sent", "size", "subject")

    def __init__(
        self,
        number: int,
        subject: bytes,
        data: bytes,
        message_id: bytes,
        more: bytes,
        size: int,
        future: asyncio.Future[Stored],
    ) -> None:
        self.number = number
        self.subject = subject
        self.data = data
        self.message_id = message_id
        self.headers = b"Nats-Msg-Id: %b\r\n%b" % (message_id, more)
        self.future = future
        self.size = size
        self.sent: float | None = None
        """When it was sent first."""


class Writer:
    """One process's pen for a stream. Its messages are stored in the order of `put`, each once."""

    def __init__(self, connection: Connection, stream: str, *, max_pending: int = MAX_PENDING) -> None:
        self.stream = stream
        self.blocked: str | None = None
        """Why nothing is stored at the moment, if so."""
        self.stored = 0
        self.resent = 0
        self.reordered = 0
        """Messages that were stored before an earlier one that the server refused. Must stay 0."""
        self._connection = connection
        self._max_pending = max_pending
        self._id = secrets.token_hex(6)
        self._inbox = b"%b.w_%b" % (connection.inbox.encode(), self._id.encode())
        self._number = 0
        self._items: dict[int, _Item] = {}
        """All that is pending, in order."""
        self._unsent: deque[_Item] = deque()
        self._flight: set[int] = set()
        self._try = 0
        """Counts the times that all was sent again; answers to an earlier try may be refusals of long ago."""
        self._window = max_pending
        """How many may be under way; one after a refusal, growing with each that is stored."""
        self._last_stored: int | None = None
        self._room = Room(max_pending, MAX_PENDING_BYTES)
        self._empty: list[asyncio.Future[None]] = []
        self._bytes = 0
        """Of the stream: as the server said last, and what was sent since."""
        self._limit_bytes = 0
        self._max_message = 0
        self._watched = 0.0
        self._heard = 0.0
        self._refused: int | None = None
        """The oldest that the server refused in this try."""
        self._backoff = Backoff()
        self._open = False
        """Whether messages may be sent now: the server is there and has refused none of this try."""
        self._closed = False
        self._wake = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name=f"writer of {stream}")
        self._task.add_done_callback(self._note_end)
        connection.on_change.add(self._on_change)

    # ---- What others call --------------------------------------------------------------------------------------

    async def put(self, subject: str, data: bytes, *, message_id: str | None = None) -> asyncio.Future[Stored]:
        """Take a message, waiting for room; the future is done when it is stored, or fails with TooLarge."""
        return await self.put_raw(subject, data, message_id=message_id)

    async def put_raw(
        self, subject: str, data: bytes, *, message_id: str | None = None, headers: bytes = b""
    ) -> asyncio.Future[Stored]:
        """As `put`, with more headers, as lines that end in CRLF."""
        if message_id is not None and _ID.fullmatch(message_id) is None:
            raise ValueError(f"not an id of a message: {message_id!r}")
        if self._closed:
            raise LogError(f"the pen of {self.stream} is closed")
        where = subject_bytes(subject)
        size = len(data) + len(where) + len(headers) + len(message_id or "") + _ROOM_OF_HEADERS
        future: asyncio.Future[Stored] = asyncio.get_running_loop().create_future()
        if size > self._largest():
            future.set_exception(TooLarge(size, self._largest()))
            return future
        await self._room.take(size)
        self._number += 1
        name = (message_id or f"{self._id}.{self._number}").encode()
        item = _Item(self._number, where, data, name, headers, size, future)
        if not self._items:
            self._wake.set()
        self._items[item.number] = item
        self._unsent.append(item)
        self._pump()
        return future

    def _largest(self) -> int:
        return min(self._connection.max_payload, self._max_message or self._connection.max_payload)

    @property
    def pending(self) -> int:
        """Messages taken and not yet known to be stored."""
        return len(self._items)

    @property
    def pending_bytes(self) -> int:
        """Their size."""
        return self._room.size

    async def drain(self) -> None:
        """Wait until all that was put is stored."""
        if self._items:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._empty.append(future)
            await future

    async def close(self) -> None:
        """End; the futures of what is still pending are cancelled, so `drain` first."""
        self._closed, self._open = True, False
        self._connection.on_change.discard(self._on_change)
        self._task.cancel()
        await asyncio.wait({self._task})
        for item in self._items.values():
            item.future.cancel()
        for waiting in self._empty:
            waiting.cancel()
        self._room.close()

    # ---- Sending -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send what the window allows."""
        while self._open and self._unsent and len(self._flight) < (1 if self._near_full() else self._window):
            item = self._unsent.popleft()
            if item.number in self._items:
                self._send(item)

    def _near_full(self) -> bool:
        limit = self._limit_bytes
        return limit > 0 and self._bytes + self._room.size > limit - min(NEAR_FULL_BYTES, limit // 8)

    def _send(self, item: _Item) -> None:
        now = monotonic()
        if not self._flight:
            self._heard = now
        if item.sent is None:
            item.sent = now
        else:
            self.resent += 1
        self._flight.add(item.number)
        self._bytes += item.size
        reply = b"%b.%d.%d" % (self._inbox, self._try, item.number)
        self._connection.send(item.subject, item.data, reply, item.headers)

    # ---- What the server answers -------------------------------------------------------------------------------

    def _on_answer(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        first, _, last = subject[len(self._inbox) + 1 :].partition(b".")
        number, current = int(last), int(first) == self._try
        if headers is not None and headers.startswith(b"NATS/1.0 503"):
            answer: dict[str, Any] = {"error": {"description": "no stream takes it, or JetStream is off"}}
        else:
            answer = orjson.loads(data)
        if error := answer.get("error"):
            if current and number in self._flight:
                self._on_refusal(number, error)
        else:
            self._settle(number, Stored(answer["seq"], bool(answer.get("duplicate"))), current=current)

    def _settle(self, number: int, stored: Stored, *, current: bool) -> None:
        item = self._items.get(number)
        if item is None:
            return
        if number == next(iter(self._items)):
            self._last_stored = max(stored.sequence, self._last_stored or 0)
        elif current and self._refused is not None and self._refused < number:
            self.reordered += 1
            log.error("%s took a message after it had refused an earlier one", self.stream)
        self.stored += 1
        if self._open:
            self.blocked = None
            self._heard = monotonic()
            self._window = min(self._window + 1, self._max_pending)
            self._backoff.reset()
        self._remove(item)
        if not item.future.done():
            item.future.set_result(stored)

    def _remove(self, item: _Item) -> None:
        del self._items[item.number]
        self._flight.discard(item.number)
        self._pump()
        self._room.give(item.size)
        if not self._items:
            for future in self._empty:
                if not future.done():
                    future.set_result(None)
            self._empty.clear()

    def _on_refusal(self, number: int, error: dict[str, Any]) -> None:
        item = self._items[number]
        if error.get("err_code") == MAX_MESSAGE_EXCEEDED:
            self._fail(item)
        elif self._refused is None:
            self._refused = number
            self._window = 1
            self._stop(f"{error.get('description')}")

    def _fail(self, item: _Item) -> None:
        if not item.future.done():
            item.future.set_exception(TooLarge(item.size, self._largest()))
        self._remove(item)

    # ---- Beginning again ---------------------------------------------------------------------------------------

    def _stop(self, why: str) -> None:
        """Send no more until all that is pending can be sent again."""
        self._open = False
        self.blocked = why
        log.warning("%s: %d messages wait: %s", self.stream, len(self._items), why)
        self._wake.set()

    def _on_change(self) -> None:
        if self._connection.ready.is_set():
            self._open = False
            self._wake.set()
        elif self._open:
            self._stop("not connected to the log's server")

    async def _work(self) -> None:
        """Begin, and begin again after each stop; watch the stream's size and the server's silence."""
        number = await self._connection.listen(f"{self._inbox.decode()}.>", self._on_answer)
        try:
            while True:
                await self._connection.ready.wait()
                if not self._open:
                    await self._begin()
                else:
                    await self._watch()
        finally:
            await self._connection.unlisten(number)

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._open = False
            self.blocked = f"broken: {type(error).__name__}: {error}"
            log.critical("%s: nothing more can be stored: %s", self.stream, self.blocked, exc_info=error)

    async def _begin(self) -> None:
        if self._refused is not None or self._try:
            await asyncio.sleep(self._backoff.next())
        epoch = self._connection.epoch
        try:
            await self._look()
            await self._look_for_old()
        except LogError as error:
            if str(error) != self.blocked:
                self._stop(str(error))
            if not self._try:
                await asyncio.sleep(self._backoff.next())
            return
        if not self._connection.ready.is_set() or self._connection.epoch != epoch:
            return
        self._try += 1
        self._refused = None
        self._flight.clear()
        for item in [item for item in self._items.values() if item.size > self._largest()]:
            self._fail(item)
        self._unsent = deque(self._items.values())
        self._open = True
        if not self._items:
            self.blocked = None  # else the next message that is stored says so
        self._pump()

    async def _look(self) -> None:
        """Ask for the stream's size and limits."""
        info = await self._connection.api(f"STREAM.INFO.{self.stream}", timeout_seconds=ANSWER_SECONDS)
        self._watched = monotonic()
        self._bytes = info["state"]["bytes"]
        self._limit_bytes = max(0, info["config"].get("max_bytes", 0))
        self._max_message = max(0, info["config"].get("max_msg_size", 0))
        if self._last_stored is None:
            self._last_stored = info["state"]["last_seq"]

    async def _look_for_old(self) -> None:
        """Find what was stored although its acknowledgement is lost, where the server may have forgotten its id."""
        old = monotonic() - OLD_SECONDS
        if not any(item.sent is not None and item.sent < old for item in self._items.values()):
            return
        sent = {item.message_id: item for item in self._items.values() if item.sent is not None}
        reader = _IdReader(self._connection, self.stream, after=self._last_stored or 0)
        try:
            with suppress(Truncated):
                async for messages in until_now(reader):
                    for message in messages:
                        if item := sent.get(message.data):
                            self._settle(item.number, Stored(message.sequence, True), current=False)
        finally:
            await reader.close()

    async def _watch(self) -> None:
        self._wake.clear()
        written = self._items or self._heard > self._watched
        with suppress(TimeoutError):
            async with asyncio.timeout(WATCH_SECONDS if written else None):
                await self._wake.wait()
        now = monotonic()
        if self._open and self._flight and now - self._heard > ANSWER_SECONDS:
            self._stop(f"no answer from the log's server for {ANSWER_SECONDS:g} s")
        elif self._open and self._limit_bytes and now - self._watched > WATCH_SECONDS:
            with suppress(Unavailable, StreamMissing):
                await self._look()
                self._pump()


class _IdReader(Reader):
    """Gives the id of each message in the place of its data."""

    def _message(self, sequence: int, time: float, subject: bytes, data: bytes, headers: bytes | None) -> Message:
        del data
        found = header(headers or b"", b"Nats-Msg-Id")
        return super()._message(sequence, time, subject, found or b"", headers)
