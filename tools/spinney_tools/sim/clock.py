"""Virtual time: an asyncio event loop whose clock jumps over idle time, or runs at a multiple of real time.

Nothing but time-outs and what is ready moves such a loop, so the same seed gives the same run. Real sockets work, too,
but for them the speed should be finite: a jump does not wait for an answer.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
AS_FAST_AS_POSSIBLE = math.inf


class _Selector(selectors.DefaultSelector):
    """Waits for events a scaled time, and moves the clock by what has been waited."""

    def __init__(self, speed: float) -> None:
        super().__init__()
        self.speed = speed
        self.now_s = 0.0
        self._origin_s = time.monotonic()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            ready = super().select(None)
            self.now_s = max(self.now_s, self._paced_s())
            return ready
        if timeout <= 0:
            return super().select(0)
        until_s = self.now_s + timeout
        if self.speed == AS_FAST_AS_POSSIBLE:
            ready = super().select(0)
        else:
            ready = super().select(max(0.0, self._origin_s + until_s / self.speed - time.monotonic()))
        self.now_s = min(until_s, max(self.now_s, self._paced_s())) if ready else until_s
        return ready

    def pace(self, speed: float) -> None:
        self.speed = speed
        if speed != AS_FAST_AS_POSSIBLE:
            self._origin_s = time.monotonic() - self.now_s / speed

    def _paced_s(self) -> float:
        """Where the clock would be by real time; nowhere, if it only jumps."""
        if self.speed == AS_FAST_AS_POSSIBLE:
            return self.now_s
        return (time.monotonic() - self._origin_s) * self.speed


class VirtualLoop(asyncio.SelectorEventLoop):
    """`speed` virtual seconds pass in a real one, or fewer, if there is much to do."""

    def __init__(self, speed: float = AS_FAST_AS_POSSIBLE) -> None:
        self._virtual = _Selector(_positive(speed))
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now_s

    def pace(self, speed: float) -> None:
        """Another speed from now on: a slow one where what is real must keep up with what is virtual."""
        self._virtual.pace(_positive(speed))


def _positive(speed: float) -> float:
    if not speed > 0:
        raise ValueError(f"the speed must be above 0, not {speed}")
    return speed


def run(main: Coroutine[Any, Any, T], speed: float = AS_FAST_AS_POSSIBLE) -> T:
    """asyncio.run() in virtual time, which begins at 0."""
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(speed)) as runner:
        return runner.run(main)
