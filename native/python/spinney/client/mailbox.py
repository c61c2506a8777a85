"""Notifications that wait for whoever reads them, from a thread or from a coroutine.

A message is acknowledged when all its notifications have been read and the next one is asked for: a program that ends
in the middle of one gets it again, if its session is kept.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Final, Literal

from .errors import TimedOut
from .link import Arrived
from .notification import Notification
from .receipt import settle_soon

WhenBehind = Literal["wait", "drop_oldest"]

MAX_WAITING: Final = 10_000
"""Notifications in a mailbox. More than a server sends without being acknowledged, as a rule."""
MAX_SEEN: Final = 20_000
"""Notifications that a subscriber remembers, to tell what comes again."""

_LOOK_AGAIN_SECONDS: Final = 0.2


class Delivery:
    """A message, to be acknowledged when nothing of it waits any longer."""

    def __init__(self, message: Arrived, waiting: int) -> None:
        self._message = message
        self._waiting = waiting
        self._lock = threading.Lock()

    def done(self) -> None:
        """One of its notifications has been read, or is not wanted."""
        with self._lock:
            self._waiting -= 1
            if self._waiting > 0:
                return
        self._message.ack()


class Item:
    """A notification in a mailbox; `call` is what is to be done with it, if that is a callback's."""

    __slots__ = ("call", "delivery", "notification")

    def __init__(self, notification: Notification | None, delivery: Delivery | None) -> None:
        self.notification = notification
        self.delivery = delivery
        self.call: Callable[[], object] | None = None

    def done(self) -> None:
        """It has been read."""
        delivery, self.delivery = self.delivery, None
        if delivery is not None:
            delivery.done()


class Seen:
    """Which notifications have come already. One that comes again while the first still waits takes its place, so
    that the server's newer copy is the one that is acknowledged.
    """

    def __init__(self, limit: int = MAX_SEEN) -> None:
        self._items: OrderedDict[str, Item] = OrderedDict()
        self._limit = limit
        self.repeated = 0

    def item(self, notification: Notification, delivery: Delivery) -> Item | None:
        """The item for a mailbox; None for one that has come before."""
        known = self._items.get(notification.id)
        if known is None:
            item = self._items[notification.id] = Item(notification, delivery)
            if len(self._items) > self._limit:
                self._items.popitem(last=False)
            return item
        self.repeated += 1
        if known.delivery is None:
            delivery.done()
        else:
            known.delivery = delivery
        return None


class Mailbox:
    """For one reader."""

    def __init__(self, limit: int = MAX_WAITING, when_behind: WhenBehind = "wait") -> None:
        self._limit = limit
        self._when_behind = when_behind
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._futures: list[asyncio.Future[None]] = []
        self._taken: Item | None = None
        self._closed = False
        self.dropped = 0

    def put(self, item: Item, given_up: Callable[[], bool]) -> None:
        """Waits for room, or drops the oldest, as the mailbox is told to; nothing once it is closed."""
        oldest: Item | None = None
        with self._changed:
            if self._when_behind == "drop_oldest" and len(self._items) >= self._limit:
                oldest = self._items.popleft()
                self.dropped += 1
            while len(self._items) >= self._limit and not given_up() and not self._closed:
                self._changed.wait(_LOOK_AGAIN_SECONDS)
            if not given_up() and not self._closed:
                self._items.append(item)
                self._tell()
        if oldest is not None:
            oldest.done()

    def get(self, timeout_seconds: float | None) -> Item | None:
        """The oldest, and the one before is done with; None when closed and empty. TimedOut."""
        self.finish()
        with self._changed:
            if not self._changed.wait_for(lambda: self._items or self._closed, timeout_seconds):
                raise TimedOut("no notification", timeout_seconds or 0.0)
            return self._take()

    async def get_soon(self) -> Item | None:
        """As `get`, in a coroutine."""
        self.finish()
        while True:
            with self._changed:
                if self._items or self._closed:
                    return self._take()
                future = asyncio.get_running_loop().create_future()
                self._futures.append(future)
            try:
                await future
            finally:
                with self._changed:
                    if future in self._futures:
                        self._futures.remove(future)

    def _take(self) -> Item | None:
        if not self._items:
            return None
        self._taken = self._items.popleft()
        self._changed.notify_all()
        return self._taken

    def finish(self) -> None:
        """What was read last is done with."""
        with self._changed:
            taken, self._taken = self._taken, None
        if taken is not None:
            taken.done()

    def close(self, *, discard: bool = False) -> None:
        """Nothing more comes; what waits may still be read, unless discarded: then it comes again another time."""
        self.finish()
        with self._changed:
            self._closed = True
            if discard:
                self._items.clear()
            self._tell()

    def _tell(self) -> None:
        self._changed.notify_all()
        for future in self._futures:
            settle_soon(future)
        self._futures.clear()

    def __len__(self) -> int:
        return len(self._items)
