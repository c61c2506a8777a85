"""Work that takes long: done in threads, a little at once, so that other requests are answered meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from .errors import Problem

AT_ONCE = 2
MAX_WAITING = 32


class SlowWork:
    """`async with slow_work.turn()`: waits for a turn; a Problem where too many wait already."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """One's turn, given back at the end."""
        if self._waiting >= MAX_WAITING:
            raise Problem(429, "too many explanations and dry runs at once", headers={"Retry-After": "5"})
        self._waiting += 1
        try:
            await self._turns.acquire()
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._turns.release()
