"""The one place where paho's thread hands over to ours: a bounded queue that can be woken."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")

_LOOK_AGAIN_SECONDS = 0.2


class Handover(Generic[_Item]):
    """A first-in-first-out queue between threads."""

    def __init__(self, limit: int) -> None:
        self._items: deque[_Item] = deque()
        self._limit = limit
        self._changed = threading.Condition()
        self._woken = False
        self.waits = 0
        """How often somebody had to wait for room."""

    def put(self, item: _Item, given_up: Callable[[], bool]) -> None:
        """Waits for room, unless what it is for has been given up."""
        with self._changed:
            self.waits += len(self._items) >= self._limit
            while len(self._items) >= self._limit and not given_up():
                self._changed.wait(_LOOK_AGAIN_SECONDS)
            if not given_up():
                self._items.append(item)
                self._changed.notify_all()

    def put_now(self, item: _Item) -> None:
        """Never waits: for what something else bounds."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def wake(self) -> None:
        """Makes a waiting `take` return, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def take(self, timeout_seconds: float | None) -> _Item | None:
        """The oldest item; None when woken or when the time is over."""
        with self._changed:
            if not self._items and not self._woken:
                self._changed.wait(timeout_seconds)
            if not self._items:
                self._woken = False
                return None
            item = self._items.popleft()
            self._changed.notify_all()
            return item
