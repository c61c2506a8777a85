"""Hands requests of clients to their stream: what comes while a message is being stored goes into the next one, so that
very many cost little, and one alone waits for nobody.

A message is lines of JSON, a request each, in their order (request_queue reads them), under the subject of the first.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from .log_errors import LogError
from .log_writer import Stored, Writer
from .names import request_subject

MAX_TOGETHER: Final = 64
"""Requests in one message. So many do not wait for the message before them."""
MAX_TOGETHER_BYTES: Final = 64 * 1024
"""In one message, unless a single request has more."""

Done = Callable[[LogError | None], None]
"""Called once a request is stored (None), or never will be."""


class _Entry(NamedTuple):
    client: str
    data: bytes
    done: Done


class RequestPump:
    """An ordered queue before a writer; whoever fills it bounds it. `run` does the work."""

    def __init__(self, writer: Writer) -> None:
        self.pending = 0
        """Taken, and not known to be stored."""
        self.messages = 0
        self._writer = writer
        self._queue: deque[_Entry] = deque()
        self._under_way = 0
        self._wake = asyncio.Event()

    def put(self, client: str, data: bytes, done: Done) -> None:
        """Store a request, one line, after all that came before."""
        self.pending += 1
        self._queue.append(_Entry(client, data, done))
        self._wake.set()

    async def run(self) -> None:
        """Store what is put, until cancelled."""
        while True:
            await self._until(lambda: len(self._queue) >= (MAX_TOGETHER if self._under_way else 1))
            together = self._together()
            self._under_way += 1
            self.messages += 1
            subject, data = request_subject(together[0].client), b"\n".join([entry.data for entry in together])
            future = await self._writer.put(subject, data)
            future.add_done_callback(partial(self._stored, together))

    async def drain(self) -> None:
        """Wait until all is stored; `run` must be running."""
        await self._until(lambda: not self.pending)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._wake.clear()
            await self._wake.wait()

    def _together(self) -> list[_Entry]:
        """The oldest, and those after it that go into one message with it."""
        first = self._queue.popleft()
        found, size = [first], len(first.data)
        while self._queue and len(found) < MAX_TOGETHER:
            size += len(self._queue[0].data) + 1
            if size > MAX_TOGETHER_BYTES:
                break
            found.append(self._queue.popleft())
        return found

    def _stored(self, together: list[_Entry], future: asyncio.Future[Stored]) -> None:
        self._under_way -= 1
        self.pending -= len(together)
        self._wake.set()
        if future.cancelled():
            return  # the writer is closed: nobody is told, and the clients' messages come again
        error = future.exception()
        if error is not None and not isinstance(error, LogError):
            raise error
        for entry in together:
            entry.done(error)
