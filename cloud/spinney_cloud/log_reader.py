"""Reading a stream: from any sequence, live, without gap or repeat, whatever happens to server and connection.

A Reader is an ordered push consumer with flow control. The server numbers what it delivers; a number that is missing, a
new connection or a silence longer than three heartbeats makes the Reader begin anew after the last message it has.
The server stops by itself until what it has sent is taken: so the buffer here is bounded (WINDOW_BYTES).
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import Any, NamedTuple

from .log_errors import LogError, StreamMissing, Truncated, Unavailable
from .nats_connection import Backoff, Connection

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 2.0
SILENCE_SECONDS = 3 * HEARTBEAT_SECONDS
MISSING_STREAM_SECONDS = 5.0
"""A stream that is missing for longer will not come back by itself."""
WINDOW_BYTES = 32 * 1024**2
"""What nats-server sends at most before a flow control message is answered (JsFlowControlMaxPending)."""
AT_MOST = 1000
UNTIL_NOW_SECONDS = 1.0
"""What was pending may have been purged: ask again after so long a silence."""
_NANOSECONDS = 1_000_000_000


class Message(NamedTuple):
    """One message of a stream."""

    sequence: int
    time: float
    """When the server stored it, UTC epoch seconds."""
    subject: str
    data: bytes


class Reader:
    """A place in a stream that moves on as messages are taken with `next`."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        *,
        after: int,
        filter_subject: str | None = None,
    ) -> None:
        self.stream = stream
        self.after = after
        """The sequence of the last message that came; the next one is beyond it."""
        self.skipped = 0
        """Messages that were purged before they were read (only counted without a filter)."""
        self.resumed = 0
        """How often it had to begin anew."""
        self.pending = 0
        """How many messages the server had beyond the last one that came."""
        self._connection = connection
        self._filter = filter_subject
        self._buffer: deque[Message | bytes] = deque()
        """Messages, and between them the subjects where the server waits for an answer."""
        self._subscription: int | None = None
        self._delivered = 0
        self._heard = 0.0
        self._opening: asyncio.Task[None] | None = None
        self._epoch = -1
        self._wake: asyncio.Future[None] | None = None
        self._broken = True
        self.closed = False
        connection.on_change.add(self._on_change)

    async def next(self, *, timeout_seconds: float | None = None, at_most: int = AT_MOST) -> list[Message]:
        """The next messages, as soon as there is one; an empty list at the time-out. Truncated if the log is."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout_seconds is None else loop.time() + timeout_seconds
        while not (messages := self._take(at_most)):
            self._check_open()
            if self._broken:
                await self._reopen(deadline)
            now = loop.time()
            if deadline is not None and now >= deadline:
                return self._take(at_most)
            if not self._broken and not self._buffer:
                await self._wait(now, deadline)
        return messages

    def _take(self, at_most: int) -> list[Message]:
        messages: list[Message] = []
        buffer = self._buffer
        while buffer and len(messages) < at_most:
            item = buffer.popleft()
            if isinstance(item, bytes):
                self._connection.send(item, b"")
            else:
                messages.append(item)
        return messages

    async def _wait(self, now: float, deadline: float | None) -> None:
        loop = asyncio.get_running_loop()
        silence = self._heard + SILENCE_SECONDS
        if now >= silence:
            self._broken = True
            return
        until = silence if deadline is None else min(silence, deadline)
        self._wake = wake = loop.create_future()
        timer = loop.call_at(until, _set, wake)
        try:
            await wake
        finally:
            timer.cancel()
            self._wake = None

    async def open(self, *, anew: bool = False) -> None:
        """Wait until the server has been told where to begin; `next` does it, too."""
        self._broken |= anew
        while self._broken:
            self._check_open()
            await self._reopen(None)

    def _check_open(self) -> None:
        if self.closed:
            raise LogError(f"the reader of {self.stream} is closed")

    @property
    def caught_up(self) -> bool:
        """Whether all is taken that the stream had when the last message came."""
        return self.resumed > 0 and not self.pending and not self._buffer

    async def close(self) -> None:
        """Give it up; what is not yet taken is forgotten."""
        self.closed = True
        self._connection.on_change.discard(self._on_change)
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError, LogError):
                await self._opening
        self._buffer.clear()
        await self._end_subscription()
        if self._wake is not None:
            _set(self._wake)

    async def _end_subscription(self) -> None:
        """The server removes a consumer that nobody listens to."""
        number, self._subscription = self._subscription, None
        if number is not None:
            await self._connection.unlisten(number)

    # ---- Beginning, at first and again -------------------------------------------------------------------------

    async def _reopen(self, deadline: float | None) -> None:
        """Open in the background, so that a time-out of `next` does not undo what is half done."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())
        timeout = None if deadline is None else max(0.0, deadline - monotonic())
        done, _ = await asyncio.wait({self._opening}, timeout=timeout)
        if done:
            opening, self._opening = self._opening, None
            if not opening.cancelled():
                opening.result()

    async def _open(self) -> None:
        backoff, missing_since = Backoff(), None
        loop = asyncio.get_running_loop()
        while True:
            await self._connection.ready.wait()
            try:
                return await self._create()
            except Unavailable as error:
                log.debug("opening %s: %s", self.stream, error)
            except StreamMissing:
                missing_since = missing_since or loop.time()
                if loop.time() - missing_since > MISSING_STREAM_SECONDS:
                    raise
            await asyncio.sleep(backoff.next())

    async def _create(self) -> None:
        await self._end_subscription()
        self._epoch, self._delivered, self._broken = self._connection.epoch, 0, False
        try:
            await self._create_consumer()
        except LogError:
            self._broken = True
            raise

    async def _create_consumer(self) -> None:
        name = f"r_{secrets.token_hex(6)}"
        inbox = f"{self._connection.inbox}.{name}"
        self._subscription = await self._connection.listen(inbox, self._on_message)
        call = f"CONSUMER.CREATE.{self.stream}.{name}" + (f".{self._filter}" if self._filter else "")
        request = {"stream_name": self.stream, "config": self._consumer(name, inbox)}
        after = self.after  # messages that come before the answers move it on
        created = await self._connection.api(call, request)
        state = (await self._connection.api(f"STREAM.INFO.{self.stream}"))["state"]
        if after > state["last_seq"]:
            raise Truncated(self.stream, after, state["last_seq"])
        self._heard = monotonic()
        if not self._delivered:
            self.pending = created.get("num_pending", 0)
        self._count(after, state["first_seq"])

    def _consumer(self, name: str, inbox: str) -> dict[str, Any]:
        return {
            "name": name,
            "deliver_subject": inbox,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": 1,
            "flow_control": True,
            "idle_heartbeat": int(HEARTBEAT_SECONDS * _NANOSECONDS),
            "mem_storage": True,
            "num_replicas": 1,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": self.after + 1,
            **({"filter_subject": self._filter} if self._filter else {}),
        }

    def _count(self, after: int, first: int) -> None:
        self.resumed += 1
        if self._filter is None and after and first > after + 1:
            self.skipped += first - after - 1
            log.warning("%s was purged up to %d, but read up to %d only", self.stream, first - 1, after)

    def _on_change(self) -> None:
        """The connection was lost or found: what the old consumer sent since is lost."""
        if self._epoch != self._connection.epoch or not self._connection.ready.is_set():
            self._break()

    def _break(self) -> None:
        self._broken = True
        if self._wake is not None:
            _set(self._wake)

    # ---- What the server sends ---------------------------------------------------------------------------------

    def _on_message(self, subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if self._broken:
            return
        if not reply.startswith(b"$JS.ACK."):
            self._on_control(reply, headers or b"")
            return
        sequence, number, nanoseconds, pending = _metadata(reply)
        if number != self._delivered + 1:
            self._break()
            return
        self._delivered = number
        self._heard = monotonic()
        self.after = sequence
        self.pending = pending
        self._buffer.append(self._message(sequence, nanoseconds / _NANOSECONDS, subject, data, headers))
        if self._wake is not None:
            _set(self._wake)

    def _message(self, sequence: int, time: float, subject: bytes, data: bytes, headers: bytes | None) -> Message:
        del headers
        return Message(sequence, time, subject.decode(), data)

    def _on_control(self, reply: bytes, headers: bytes) -> None:
        """A heartbeat, or a question whether more may come."""
        self._heard = monotonic()
        if reply:
            self._allow_more(reply)
            return
        if (last := header(headers, b"Nats-Last-Consumer")) and int(last) != self._delivered:
            self._break()
        elif (stalled := header(headers, b"Nats-Consumer-Stalled")) and not self._buffer:
            self._connection.send(stalled, b"")

    def _allow_more(self, reply: bytes) -> None:
        """Now, or once all that came before is taken."""
        if self._buffer:
            self._buffer.append(reply)
        else:
            self._connection.send(reply, b"")


async def read_range(
    connection: Connection, stream: str, first: int, last: int, *, filter_subject: str | None = None
) -> AsyncGenerator[list[Message], None]:
    """The messages with first <= sequence <= last, in batches; what was purged is left out."""
    if last < first:
        return
    reader = Reader(connection, stream, after=first - 1, filter_subject=filter_subject)
    try:
        with suppress(Truncated):
            async for messages in until_now(reader):
                if messages[-1].sequence >= last:
                    if rest := [message for message in messages if message.sequence <= last]:
                        yield rest
                    return
                yield messages
    finally:
        await reader.close()


async def until_now(reader: Reader) -> AsyncIterator[list[Message]]:
    """All that the stream has when this begins, and perhaps a little more."""
    await reader.open()
    while not reader.caught_up:
        if messages := await reader.next(timeout_seconds=UNTIL_NOW_SECONDS):
            yield messages
        else:
            await reader.open(anew=True)


def _metadata(reply: bytes) -> tuple[int, int, int, int]:
    """Stream sequence, delivery number, time in ns, and what is pending, from $JS.ACK. ... of either version."""
    tokens = reply.split(b".")
    at = 5 if len(tokens) == 9 else 7
    return int(tokens[at]), int(tokens[at + 1]), int(tokens[at + 2]), int(tokens[at + 3])


def header(headers: bytes, name: bytes) -> bytes | None:
    """The value of a header, spelt as NATS spells it."""
    _, found, rest = headers.partition(b"\r\n" + name + b": ")
    return rest.partition(b"\r\n")[0] if found else None


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
