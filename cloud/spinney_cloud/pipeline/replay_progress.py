"""How far a replay is: a line on standard error, where somebody sees it."""

from __future__ import annotations

import datetime as dt
import math
import sys
import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa

from .replay_rows import DaySize
from .replay_times import written

TELL_SECONDS = 0.5


class Progress:
    """Of what is read of these days."""

    def __init__(self, days: Sequence[DaySize]) -> None:
        self.readings = 0
        self._rows = sum(day.rows for day in days)
        self._shown = False
        self._next = time.monotonic() + TELL_SECONDS
        self._visible = sys.stderr.isatty()

    def heard(self, date: dt.date, rows: int) -> None:
        """So many readings more, of this day."""
        self.readings += rows
        if time.monotonic() >= self._next:
            share = min(1.0, self.readings / self._rows) if self._rows else 1.0
            self.say(f"{date}  {math.floor(share * 100):>3} %  {self.readings:,} readings")

    def watched(self, rows: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """Says how far what comes is."""
        for table in rows:
            if time.monotonic() >= self._next:
                self.say(f"{written(table['arrival'][-1].as_py())}")
            yield table

    def say(self, text: str) -> None:
        """Replaces the line."""
        self._next = time.monotonic() + TELL_SECONDS
        if self._visible:
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
            self._shown = True

    def end(self) -> None:
        """Takes the line away."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
