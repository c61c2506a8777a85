"""From another thread into the event loop: the one bounded hand-over, awaited instead of waited for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import TypeVar

from spinney.client.handover import Handover

_Item = TypeVar("_Item")


class LoopHandover(Handover[_Item]):
    """Made in the loop that takes from it; `put` and `put_now` are for the other thread."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._loop = asyncio.get_running_loop()
        self._filled = asyncio.Event()

    def put(self, item: _Item, given_up: Callable[[], bool]) -> None:
        """Waits for room, unless what it is for has been given up."""
        super().put(item, given_up)
        self._ring()

    def put_now(self, item: _Item) -> None:
        """Never waits: for what something else bounds."""
        super().put_now(item)
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is over, and nobody takes any more
            self._loop.call_soon_threadsafe(self._filled.set)

    async def next(self) -> _Item:
        """The oldest item, when there is one."""
        while True:
            self._filled.clear()
            item = self.take(0)
            if item is not None:
                return item
            await self._filled.wait()

    def wake(self) -> None:
        """Makes a waiting `soon` return; from the loop's own thread."""
        self._filled.set()

    async def soon(self, timeout_seconds: float | None) -> None:
        """Until there may be something to take, or it is woken, or the time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._filled.wait()
        self._filled.clear()
