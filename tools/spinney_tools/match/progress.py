"""A bar on standard error for files that take a while, when somebody is there to see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

_FIRST_AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.2
_WIDTH = 30


class Progress:
    """How far the files have been read."""

    def __init__(self, out: TextIO, total_bytes: int | None, clock: Callable[[], float]) -> None:
        self._out = out
        self._total = total_bytes
        self._clock = clock
        self._start = clock()
        self._next = self._start + _FIRST_AFTER_SECONDS
        self._shown = False

    def show(self, done_bytes: int, readings: int) -> None:
        """Draws the bar, if it is time to."""
        now = self._clock()
        if now < self._next:
            return
        self._next = now + _EVERY_SECONDS
        rate = readings / (now - self._start)
        self._out.write(f"\r\x1b[K{self._bar(done_bytes)}{readings:,} readings, {rate:,.0f} a second")
        self._out.flush()
        self._shown = True

    def clear(self) -> None:
        """Takes the bar away."""
        if self._shown:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._shown = False

    def _bar(self, done_bytes: int) -> str:
        if not self._total:
            return ""
        share = min(done_bytes / self._total, 1.0)
        return f"[{'#' * round(share * _WIDTH):{_WIDTH}}] {share:4.0%}  "
