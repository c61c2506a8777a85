"""Room for so many things of so many bytes; who finds none waits in line."""

from __future__ import annotations

import asyncio
from collections import deque


class Room:
    """Bounds what is under way. `take` before, `give` after. One thing larger than all the room may be there alone."""

    def __init__(self, count: int, size: int) -> None:
        self.count = 0
        self.size = 0
        self._most = count
        self._most_bytes = size
        self._line: deque[tuple[asyncio.Future[None], int]] = deque()

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._line)

    def try_take(self, size: int) -> bool:
        """Take room if there is some and nobody waits for it."""
        if self._line or not self._fits(size):
            return False
        self.count += 1
        self.size += size
        return True

    async def take(self, size: int) -> None:
        """Take room, waiting for it; CancelledError once `close` was called."""
        if self.try_take(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((turn, size))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give(size)
            else:
                self._line = deque(each for each in self._line if each[0] is not turn)
                self._serve()
            raise

    def give(self, size: int) -> None:
        """Give it back."""
        self.count -= 1
        self.size -= size
        if self._line:
            self._serve()

    def close(self) -> None:
        """Send away all who wait."""
        line, self._line = self._line, deque()
        for turn, _ in line:
            turn.cancel()

    def _fits(self, size: int) -> bool:
        return not self.count or (self.count < self._most and self.size + size <= self._most_bytes)

    def _serve(self) -> None:
        while self._line and self._fits(self._line[0][1]):
            turn, size = self._line.popleft()
            if not turn.done():
                self.count += 1
                self.size += size
                turn.set_result(None)
