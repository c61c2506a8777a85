"""A subscription in a program's hands: its notifications, and its end."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from .errors import Closed
from .mailbox import Item, Mailbox
from .notification import Notification


class _Owner(Protocol):
    def unsubscribe(self, sid: str, *, timeout_seconds: float = ...) -> None: ...


class Handle:
    """Iterate over it, with `for` or `async for`, or call `get`; the notifications of one with a callback go there.

    `with subscriber.subscribe(...) as handle:` unsubscribes at the end.
    """

    def __init__(
        self, owner: _Owner, sid: str, mailbox: Mailbox, callback: Callable[[Notification], object] | None
    ) -> None:
        self.sid = sid
        self.normal: str | None = None
        """The subscription's normal form, as the cloud has it."""
        self.cost: str | None = None
        """indexed, or scanned: then every publication is tried against it."""
        self.start: int | None = None
        """The log's sequence from which it sees publications (rule I4)."""
        self.callback = callback
        self.left_out = 0
        """Notifications that the cloud left out, because of a rate limit or a full queue."""
        self._owner = owner
        self._mailbox = mailbox

    @property
    def dropped(self) -> int:
        """Notifications that were dropped here, because nobody read them in time."""
        return self._mailbox.dropped

    def get(self, timeout_seconds: float | None = None) -> Notification:
        """The next one. TimedOut, or Closed when there will be none."""
        notification = _notification(self._mailbox.get(timeout_seconds))
        if notification is None:
            raise Closed(f"subscription {self.sid!r}")
        return notification

    def unsubscribe(self, *, timeout_seconds: float = 10.0) -> None:
        """End it in the cloud, and wait for the cloud's word."""
        self._owner.unsubscribe(self.sid, timeout_seconds=timeout_seconds)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notification:
        notification = _notification(self._mailbox.get(None))
        if notification is None:
            raise StopIteration
        return notification

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        notification = _notification(await self._mailbox.get_soon())
        if notification is None:
            raise StopAsyncIteration
        return notification

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.unsubscribe()

    def __repr__(self) -> str:
        return f"<Handle {self.sid}: {self.normal}>"


def _notification(item: Item | None) -> Notification | None:
    return None if item is None else item.notification
