"""Ctrl-C and SIGTERM as something to wait for, instead of an exception wherever the main thread happens to be.

KeyboardInterrupt may come between any two instructions: where a lock has just been taken, which then nobody gives back,
or in a finalizer, where it is lost. So a command whose work is done with threads leaves that to threads.
"""

from __future__ import annotations

import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Self

NUMBERS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """In a `with`, on the main thread, which then only waits and prints."""

    def __init__(self) -> None:
        self.count = 0
        """How many have come."""
        self.raising = False
        """Set while one is to raise KeyboardInterrupt: where the main thread may wait for a reader of its output."""
        self.error: Exception | None = None
        """What the first work that failed has raised."""
        self._here, self._there = socket.socketpair()
        self._here.setblocking(False)
        self._there.setblocking(False)

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._come) for number in NUMBERS]
        # whichever thread the system chooses for a signal, `wait` returns
        self._woken_before = signal.set_wakeup_fd(self._there.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._woken_before)
        for number, before in zip(NUMBERS, self._before, strict=True):
            signal.signal(number, before)

    def _come(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.raising:
            raise KeyboardInterrupt

    def wake(self) -> None:
        """Have `wait` return; any thread may."""
        with suppress(BlockingIOError):  # it will, as there is more to read than fits
            self._there.send(b"\0")

    def wait(self, seconds: float | None = None) -> None:
        """Until a signal has come or `wake` was called, since the last time; or so long."""
        select.select([self._here], [], [], seconds)
        with suppress(BlockingIOError):
            self._here.recv(4096)

    def start(self, work: Callable[[], None]) -> Work:
        """On a thread of its own."""
        started = Work(work, self)
        started.start()
        return started

    def wait_for(self, work: Work, count: int, seconds: float | None = None) -> bool:
        """Until it is over, and True; or until so many signals have come, or so long."""
        end = None if seconds is None else time.monotonic() + seconds
        while not work.over and self.count < count:
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return work.over


class Work(threading.Thread):
    """What a command does beside its main thread; nothing waits for it when the program ends."""

    def __init__(self, work: Callable[[], None], interrupts: Interrupts) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._interrupts = interrupts
        self.over = False

    def run(self) -> None:
        """Keep what it raises for the main thread, and wake that."""
        try:
            self._work()
        except Exception as error:  # noqa: BLE001  # raised again by the main thread
            self._interrupts.error = self._interrupts.error or error
        finally:
            self.over = True
            self._interrupts.wake()
