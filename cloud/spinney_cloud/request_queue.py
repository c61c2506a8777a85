"""The requests of clients, in their order, until each has been dealt with.

The consumer is made anew with every connection: then the server begins again at the oldest request that is not done, so
a later request never overtakes one that was under way when this process, or the connection, ended.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import monotonic
from typing import Any, Final, NamedTuple

from .log_errors import LogError, Refused
from .names import REQUESTS
from .nats_connection import Backoff, Connection

log = logging.getLogger(__name__)

CONSUMER: Final = "coordinator"
AT_ONCE: Final = 1000
"""Requests under way; no more messages are asked for until some are done."""
PULL_AT_ONCE: Final = 16
"""Messages; each may have many requests."""
PULL_SECONDS: Final = 10.0
SILENCE_SECONDS: Final = 15.0
"""Without even the end of a pull for so long, all begins anew."""
_ACK_WAIT_SECONDS: Final = 3600
_NANOSECONDS: Final = 1_000_000_000
_CONSUMER_NOT_FOUND: Final = 10014


class Number(NamedTuple):
    """Of a request; later ones are greater."""

    sequence: int
    """Of its message in the stream."""
    place: int
    """In its message."""


NO_REQUEST: Final = Number(0, 0)
"""Before all of them."""


class Request(NamedTuple):
    """One line of a message of the stream of requests."""

    number: Number
    data: bytes


class _Message:
    """What is under way of a message."""

    __slots__ = ("left", "reply", "requests", "since")

    def __init__(self, requests: int, reply: bytes) -> None:
        self.requests = self.left = requests
        """All, and those that are not done."""
        self.reply = reply
        """Where it is acknowledged."""
        self.since = monotonic()
        """When it came."""


class RequestQueue:
    """The one reader of the stream of requests. `done` may be called in any order; they are removed in theirs.

    For were a later one removed first, the earlier one would be done again after it.
    """

    def __init__(self, connection: Connection) -> None:
        self.taken = 0
        """The message of the newest that was given out."""
        self.begun = 0
        """How often it began anew."""
        self._connection = connection
        self._messages: dict[int, _Message] = {}
        """Those that are not removed yet, in their order."""
        self._under_way = 0
        self._buffer: deque[Request] = deque()
        self._wake = asyncio.Event()
        self._pulled = 0
        """What the server may still send."""
        self._inbox = b""
        self._listening: int | None = None
        self._broken = True
        connection.on_change.add(self._on_change)

    @property
    def under_way(self) -> int:
        """Requests that were given out, or are about to be, and are not removed."""
        return self._under_way

    @property
    def lag_seconds(self) -> float:
        """For how long the oldest of them is under way."""
        return monotonic() - next(iter(self._messages.values())).since if self._messages else 0.0

    async def next(self) -> list[Request]:
        """The next requests, as soon as there are some."""
        while not self._buffer:
            self._wake.clear()
            if self._broken:
                await self._begin()
            self._pull()
            if not self._buffer and not self._broken:
                try:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        await self._wake.wait()
                except TimeoutError:
                    self._broken = self._pulled > 0
        found, self._buffer = list(self._buffer), deque()
        self.taken = found[-1].number.sequence
        return found

    def done(self, number: Number) -> None:
        """A request has been dealt with, and its reply is out."""
        self._messages[number.sequence].left -= 1
        while self._messages and not self._messages[first := next(iter(self._messages))].left:
            message = self._messages.pop(first)
            self._under_way -= message.requests
            if not self._broken:
                self._connection.send(message.reply, b"+ACK")
        if not self._pulled:
            self._wake.set()

    async def close(self) -> None:
        """Take no more."""
        self._connection.on_change.discard(self._on_change)
        await self._unlisten()

    # ---- The consumer ------------------------------------------------------------------------------------------

    def _on_change(self) -> None:
        self._broken = True
        self._wake.set()

    async def _begin(self) -> None:
        backoff = Backoff()
        while self._broken:
            await self._connection.ready.wait()
            epoch = self._connection.epoch
            try:
                await self._create()
            except LogError as error:
                log.warning("requests cannot be read: %s", error)
                await asyncio.sleep(backoff.next())
            else:
                self._broken = self._connection.epoch != epoch
        self.begun += 1

    async def _create(self) -> None:
        await self._unlisten()
        self._inbox = b"%b.q_%d" % (self._connection.inbox.encode(), self.begun)
        self._pulled = 0
        self._listening = await self._connection.listen(self._inbox.decode(), self._on_message)
        try:
            await self._connection.api(f"CONSUMER.DELETE.{REQUESTS}.{CONSUMER}")
        except Refused as error:
            if error.error_code != _CONSUMER_NOT_FOUND:
                raise
        await self._connection.api(
            f"CONSUMER.DURABLE.CREATE.{REQUESTS}.{CONSUMER}", {"stream_name": REQUESTS, "config": _config()}
        )

    async def _unlisten(self) -> None:
        if self._listening is not None:
            await self._connection.unlisten(self._listening)
            self._listening = None

    def _pull(self) -> None:
        room = min(PULL_AT_ONCE, AT_ONCE - self._under_way)
        if not self._broken and not self._pulled and room > 0:
            self._pulled = room
            wish = b'{"batch":%d,"expires":%d}' % (room, int(PULL_SECONDS * _NANOSECONDS))
            self._connection.send(b"$JS.API.CONSUMER.MSG.NEXT.%b.%b" % (_STREAM, _NAME), wish, self._inbox)

    def _on_message(self, _subject: bytes, reply: bytes, data: bytes, headers: bytes | None) -> None:
        if not reply.startswith(b"$JS.ACK"):
            self._on_end(headers)
            return
        self._pulled = max(0, self._pulled - 1)
        sequence = _sequence(reply)
        message = self._messages.get(sequence)
        if message is not None:
            message.reply = reply  # still under way: from now on this is where to say that it is done
        elif sequence > self.taken:
            lines = data.split(b"\n")
            self._messages[sequence] = _Message(len(lines), reply)
            self._under_way += len(lines)
            self._buffer += [Request(Number(sequence, place), line) for place, line in enumerate(lines)]
            self._wake.set()
        else:
            self._connection.send(reply, b"+ACK")

    def _on_end(self, headers: bytes | None) -> None:
        """408: the pull is over. Anything else is said of a consumer that has gone, or cannot be."""
        self._pulled = 0
        if headers is not None and not headers.startswith((b"NATS/1.0 408", b"NATS/1.0 404")):
            log.warning("requests: %s", headers[:80].decode(errors="replace").strip())
            self._broken = True
        self._wake.set()


_STREAM: Final = REQUESTS.encode()
_NAME: Final = CONSUMER.encode()


def _config() -> dict[str, Any]:
    return {
        "durable_name": CONSUMER,
        "ack_policy": "explicit",
        "deliver_policy": "all",
        "ack_wait": _ACK_WAIT_SECONDS * _NANOSECONDS,
        "max_ack_pending": 2 * AT_ONCE,
        "replay_policy": "instant",
    }


def _sequence(reply: bytes) -> int:
    """The stream's, from $JS.ACK. ... of either version."""
    tokens = reply.split(b".")
    return int(tokens[5 if len(tokens) == 9 else 7])
