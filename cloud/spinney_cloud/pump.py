"""Hands messages to a writer one after the other, from code that cannot wait for room."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial

from .log_errors import LogError
from .log_writer import Stored, Writer

Done = Callable[[LogError | None], None]
"""Called once a message is stored (None), or never will be."""


class Pump:
    """An ordered queue before a writer; whoever fills it bounds it. `run` does the work."""

    def __init__(self, writer: Writer) -> None:
        self.pending = 0
        """Taken, and not known to be stored."""
        self._writer = writer
        self._queue: deque[tuple[str, bytes, Done]] = deque()
        self._wake = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()

    def put(self, subject: str, data: bytes, done: Done) -> None:
        """Store a message after all that came before."""
        self.pending += 1
        self._empty.clear()
        self._queue.append((subject, data, done))
        self._wake.set()

    async def run(self) -> None:
        """Store what is put, until cancelled."""
        while True:
            while not self._queue:
                self._wake.clear()
                await self._wake.wait()
            subject, data, done = self._queue.popleft()
            future = await self._writer.put(subject, data)
            future.add_done_callback(partial(self._stored, done))

    async def drain(self) -> None:
        """Wait until all is stored; `run` must be running."""
        await self._empty.wait()

    def _stored(self, done: Done, future: asyncio.Future[Stored]) -> None:
        self.pending -= 1
        if not self.pending:
            self._empty.set()
        if future.cancelled():
            return  # the writer is closed: nobody is told
        error = future.exception()
        if error is not None and not isinstance(error, LogError):
            raise error
        done(error)
