"""Numbered steps on the terminal, each with its progress and how it ended."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class Step:
    """One step; `result` is what its line ends with."""

    def __init__(self, title: str) -> None:
        self.result = ""
        self._title = title
        self._shown = ""

    def progress(self, done: int, whole: int) -> None:
        """How far it is, on a terminal."""
        share = f"{done * 100 // max(1, whole)} %"
        if sys.stdout.isatty() and share != self._shown:
            self._shown = share
            print(f"\r\x1b[K{self._title} ... {share}", end="", flush=True)

    def begin(self) -> None:
        print(f"{self._title} ... ", end="", flush=True)

    def end(self, word: str) -> None:
        if self._shown:
            print(f"\r\x1b[K{self._title} ... ", end="")
        print(f"{word}, {self.result}" if self.result else word, flush=True)


class Steps:
    """Counts them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._number = 0

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Says ok at its end, or that it failed."""
        self._number += 1
        step = Step(f"[{self._number}/{self._count}] {title}")
        step.begin()
        try:
            yield step
        except BaseException:
            step.result = ""
            step.end("failed")
            raise
        step.end("ok")
