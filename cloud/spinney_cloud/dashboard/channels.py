"""What is told to browsers: each message encoded once for all, and per browser only the newest that it has not had."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

MAX_PARTS: Final = 32
"""Of a flow; a browser that is further behind is told the whole instead."""


class News(NamedTuple):
    """A message, and up to where it brings whoever is told."""

    version: int
    data: bytes


class Channel(Protocol):
    """Something that browsers are told of."""

    def since(self, version: int) -> News | None:
        """What is new since then; None: nothing. 0: has had nothing."""
        ...


class Newest:
    """Of these messages only the newest counts."""

    def __init__(self) -> None:
        self._version = 0
        self._data = b""

    def put(self, data: bytes) -> bool:
        """Tell this from now on; whether it is anything new."""
        if data == self._data:
            return False
        self._version, self._data = self._version + 1, data
        return True

    def since(self, version: int) -> News | None:
        """The newest."""
        return None if version == self._version else News(self._version, self._data)


class Flow:
    """Parts that add up to a whole. Parts are members of one JSON array, without its brackets."""

    def __init__(self, kind: str, whole: Callable[[], bytes]) -> None:
        self._head = b'{"kind":"%b","whole":' % kind.encode()
        self._whole = whole
        self._parts: deque[News] = deque(maxlen=MAX_PARTS)
        self._version = 1
        self._cached = News(0, b"")

    def put(self, part: bytes) -> None:
        """One more."""
        self._version += 1
        self._parts.append(News(self._version, part))

    def since(self, version: int) -> News | None:
        """The parts since then, or the whole where these are not kept any more."""
        if version == self._version:
            return None
        if not version or not self._parts or self._parts[0].version > version + 1:
            return self._all()
        parts = [part.data for part in self._parts if part.version > version]
        return News(self._version, self._head + b'false,"items":[' + b",".join(parts) + b"]}")

    def _all(self) -> News:
        if self._cached.version != self._version:
            self._cached = News(self._version, self._head + b'true,"items":[' + self._whole() + b"]}")
        return self._cached
