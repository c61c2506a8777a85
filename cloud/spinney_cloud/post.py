"""What goes out to clients by way of the gateway: many at once, each sent again until the gateway has it out.

Small ones to one topic that are sent within one turn of the loop go in one request.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from itertools import groupby
from typing import Final

from .log_errors import TooLarge
from .names import out_subject
from .nats_connection import Connection, subject_bytes
from .way_out import PUT_OFF, SIZES

log = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 1000
ANSWER_SECONDS: Final = 10.0
"""Without an answer for so long, a message is sent again: it may then arrive twice."""
RETRY_SECONDS: Final = 0.1
"""How often messages are looked through that nobody took, or that were not answered."""
MAX_TOGETHER: Final = 64
"""Messages in one request."""
SMALL_BYTES: Final = 4096
"""What is larger goes alone."""
_AT_ONCE: Final = -math.inf
"""Instead of when it was sent: it is to be sent again. The loop's clock may begin with the machine, so 0 is no such."""


class _Letter:
    __slots__ = ("data", "future", "sent", "subject")

    def __init__(self, subject: bytes, data: bytes, future: asyncio.Future[bool]) -> None:
        self.subject = subject
        self.data = data
        self.future = future
        self.sent = _AT_ONCE
        """Of the loop's clock."""


class Post:
    """Sends without waiting for one answer before the next."""

    def __init__(self, connection: Connection) -> None:
        self.refused = 0
        """Messages that the gateway would not send."""
        self.resent = 0
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._inbox = f"{connection.inbox}.p_{id(self):x}".encode()
        self._letters: dict[int, _Letter] = {}
        self._number = 0
        self._due: list[int] = []
        """Taken in this turn of the loop."""
        self._room: deque[asyncio.Future[None]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen for answers."""
        await self._connection.listen(f"{self._inbox.decode()}.*.*", self._on_answer)
        self._task = asyncio.create_task(self._again())
        self._connection.on_change.add(self._on_change)

    async def send(self, client: str, leaf: str, data: bytes) -> asyncio.Future[bool]:
        """Take a message, waiting for room; the future says whether the gateway has sent it, or refuses to."""
        if len(data) > self._connection.max_payload:
            return self._too_large(client, leaf, len(data))
        while len(self._letters) >= MAX_UNDER_WAY:
            room: asyncio.Future[None] = self._loop.create_future()
            self._room.append(room)
            await room
        self._number += 1
        future: asyncio.Future[bool] = self._loop.create_future()
        letter = _Letter(subject_bytes(out_subject(client, leaf)), data, future)
        self._letters[self._number] = letter
        letter.sent = self._loop.time()
        if not self._due:
            self._loop.call_soon(self._send_due)
        self._due.append(self._number)
        return future

    def _too_large(self, client: str, leaf: str, size: int) -> asyncio.Future[bool]:
        """For it the server would end the connection, each time anew."""
        self.refused += 1
        log.warning("%s/%s: %s", client, leaf, TooLarge(size, self._connection.max_payload))
        refused: asyncio.Future[bool] = self._loop.create_future()
        refused.set_result(False)
        return refused

    @property
    def under_way(self) -> int:
        """Messages that are not answered yet."""
        return len(self._letters)

    async def close(self) -> None:
        """Give up what is under way."""
        self._connection.on_change.discard(self._on_change)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for letter in self._letters.values():
            letter.future.cancel()

    def _on_change(self) -> None:
        """What was under way when the connection ended may be lost."""
        for letter in self._letters.values():
            letter.sent = _AT_ONCE

    def _send_due(self) -> None:
        due, self._due = self._due, []
        for (_, small), numbers in groupby(due, self._kind):
            some = list(numbers)
            step = MAX_TOGETHER if small else 1
            for at in range(0, len(some), step):
                self._send(some[at : at + step])

    def _kind(self, number: int) -> tuple[bytes, bool]:
        """Equal for those that may go in one request."""
        letter = self._letters[number]
        return letter.subject, len(letter.data) <= SMALL_BYTES

    def _send(self, numbers: list[int]) -> None:
        """In one request; their numbers follow one another."""
        letters = [self._letters[number] for number in numbers]
        for letter in letters:
            letter.sent = self._loop.time()
        several = len(letters) > 1
        sizes = SIZES + b" ".join([b"%d" % len(letter.data) for letter in letters]) + b"\r\n" if several else b""
        data = b"".join([letter.data for letter in letters])
        self._connection.send(letters[0].subject, data, b"%b.%d.%d" % (self._inbox, numbers[0], numbers[-1]), sizes)

    def _on_answer(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        *_, first, last = subject.split(b".")
        for number in range(int(first), int(last) + 1):
            letter = self._letters.get(number)
            if letter is not None:
                self._answered(number, letter, data, headers)

    def _answered(self, number: int, letter: _Letter, data: bytes, headers: bytes | None) -> None:
        if headers is not None and (headers.startswith(b"NATS/1.0 503") or PUT_OFF in headers):
            letter.sent = _AT_ONCE
            return
        if headers is not None:
            self.refused += 1
            log.warning("the gateway refuses %s: %s", letter.subject.decode(), data[:200].decode(errors="replace"))
        del self._letters[number]
        if not letter.future.done():
            letter.future.set_result(headers is None)
        while self._room:
            room = self._room.popleft()
            if not room.done():
                room.set_result(None)
                break

    async def _again(self) -> None:
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            old = self._loop.time() - ANSWER_SECONDS
            for number, letter in list(self._letters.items()):
                if letter.sent < old and self._connection.ready.is_set():
                    self.resent += 1
                    self._send([number])
