"""What a publisher gives for each publication, to wait on: stored, or refused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

from ..identity import PublicationId
from .errors import ClientError, TimedOut


class Receipt:
    """Wait with `wait`, or with `await` in a coroutine."""

    __slots__ = ("_changed", "_done", "_error", "_futures", "_id")

    def __init__(self, id: PublicationId, changed: threading.Condition) -> None:
        self._id = id
        self._changed = changed
        self._done = False
        self._error: ClientError | None = None
        self._futures: list[asyncio.Future[None]] = []

    @property
    def id(self) -> str:
        """Of the publication: source:boot:sequence."""
        return str(self._id)

    @property
    def stored(self) -> bool:
        """Whether the cloud has it in its log: it can no longer be lost."""
        return self._done and self._error is None

    @property
    def error(self) -> ClientError | None:
        """Why it will never be stored."""
        return self._error

    def wait(self, timeout_seconds: float | None = None) -> None:
        """Until it is stored. PublicationRefused, PublicationDropped, Closed, or TimedOut."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._done, timeout_seconds):
                raise TimedOut(f"{self.id} is not known to be stored", timeout_seconds or 0.0)
        if self._error is not None:
            raise self._error

    def __await__(self) -> Generator[None, None, None]:
        future = asyncio.get_running_loop().create_future()
        with self._changed:
            if self._done:
                future.set_result(None)
            else:
                self._futures.append(future)
        yield from future
        if self._error is not None:
            raise self._error

    def settle(self, error: ClientError | None = None) -> None:
        """By the publisher, once, which holds the lock and tells those who wait."""
        self._done = True
        self._error = error
        for future in self._futures:
            settle_soon(future)
        self._futures.clear()

    def __repr__(self) -> str:
        state = "stored" if self.stored else f"refused: {self._error}" if self._error else "under way"
        return f"<Receipt {self.id}: {state}>"


def settle_soon(future: asyncio.Future[None]) -> None:
    """Give a future of another thread's loop its result; nothing if that loop has ended."""

    def settle() -> None:
        if not future.done():
            future.set_result(None)

    loop = future.get_loop()
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        if not loop.is_closed():
            raise
