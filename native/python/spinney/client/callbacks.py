"""The thread on which a client's callbacks run, so that they may wait, publish, subscribe, or fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator


class Caller:
    """Calls one after the other. One that raises is reported by `threading.excepthook`, and the next is called."""

    def __init__(self, name: str, calls: Iterator[Callable[[], object]]) -> None:
        """The iterator waits for the next call, and ends when there will be none."""
        self._name = name
        self._calls = calls
        self._over = False
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self.failed = 0

    def start(self) -> None:
        """Begin, or go on after a callback that failed."""
        with self._starting:  # nobody waits for one that has not begun
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        call = None
        try:
            for call in self._calls:
                call()
                call = None
            self._over = True
        finally:
            if not self._over and call is not None:
                self.failed += 1
                self.start()

    def join(self) -> None:
        """After the calls have ended; does not wait for itself."""
        while (thread := self._newest()) is not None and thread is not threading.current_thread():
            thread.join()
            if thread is self._thread:
                return

    def _newest(self) -> threading.Thread | None:
        with self._starting:
            return self._thread
