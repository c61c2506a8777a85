"""What goes out to clients by way of the gateway: many at once, each sent again until the gateway has it out."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from typing import Final

from .names import out_subject
from .nats_connection import Connection, subject_bytes
from .way_out import PUT_OFF

log = logging.getLogger(__name__)

MAX_UNDER_WAY: Final = 1000
ANSWER_SECONDS: Final = 10.0
"""Without an answer for so long, a message is sent again: it may then arrive twice."""
RETRY_SECONDS: Final = 0.1
"""How often messages are looked through that nobody took, or that were not answered."""
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
        self._room: deque[asyncio.Future[None]] = deque()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to listen for answers."""
        await self._connection.listen(f"{self._inbox.decode()}.*", self._on_answer)
        self._task = asyncio.create_task(self._again())
        self._connection.on_change.add(self._on_change)

    async def send(self, client: str, leaf: str, data: bytes) -> asyncio.Future[bool]:
        """Take a message, waiting for room; the future says whether the gateway has sent it, or refuses to."""
        while len(self._letters) >= MAX_UNDER_WAY:
            room: asyncio.Future[None] = self._loop.create_future()
            self._room.append(room)
            await room
        self._number += 1
        future: asyncio.Future[bool] = self._loop.create_future()
        letter = _Letter(subject_bytes(out_subject(client, leaf)), data, future)
        self._letters[self._number] = letter
        self._send(self._number, letter)
        return future

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

    def _send(self, number: int, letter: _Letter) -> None:
        letter.sent = self._loop.time()
        self._connection.send(letter.subject, letter.data, b"%b.%d" % (self._inbox, number))

    def _on_answer(self, subject: bytes, _reply: bytes, data: bytes, headers: bytes | None) -> None:
        number = int(subject.rpartition(b".")[2])
        letter = self._letters.get(number)
        if letter is None:
            return
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
                    self._send(number, letter)
