"""What the coordinator remembers of each subscription: 16 bytes beside the key. Values are in the bucket."""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from hashlib import blake2b
from typing import Final, NamedTuple

import orjson

from .expiry import Expiry
from .subscriptions import StoredSubscription

_ENTRY = struct.Struct("<QQ")


class Entry(NamedTuple):
    """Of one subscription."""

    fingerprint: int
    start: int


def fingerprint(one: StoredSubscription) -> int:
    """Equal for what was asked for in the same words, with the same options."""
    said = [one.source, one.enabled, one.expires, one.labels, one.options]
    return int.from_bytes(blake2b(orjson.dumps(said), digest_size=8).digest(), "big")


class SubscriptionTable:
    """All keys of the bucket of subscriptions."""

    def __init__(self) -> None:
        self.expiry: Expiry[str] = Expiry()
        self._entries: dict[str, bytes] = {}
        self._owners: Counter[str] = Counter()
        self._sorted: list[str] | None = None
        """Names without their slots, once somebody has asked for a list."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def get(self, key: str) -> Entry | None:
        """What is remembered of a key."""
        packed = self._entries.get(key)
        return None if packed is None else Entry(*_ENTRY.unpack(packed))

    def starts(self) -> dict[str, int]:
        """Where each of them started."""
        return {key: _ENTRY.unpack(packed)[1] for key, packed in self._entries.items()}

    def count(self, tenant: str, owner: str) -> int:
        """An owner's subscriptions."""
        return self._owners[f"{tenant}.{owner}"]

    def put(self, key: str, one: StoredSubscription, mark: int) -> None:
        """There is this now; `mark` is its fingerprint."""
        if key not in self._entries:
            self._owners[_owner(key)] += 1
            if self._sorted is not None:
                insort(self._sorted, _name(key))
        self._entries[key] = _ENTRY.pack(mark, one.start)
        self.expiry.set(key, one.expires)

    def started(self, key: str, start: int) -> None:
        """The log has it."""
        packed = self._entries.get(key)
        if packed is not None:
            self._entries[key] = packed[:8] + start.to_bytes(8, "little")

    def remove(self, key: str) -> None:
        """There is none any more."""
        if self._entries.pop(key, None) is None:
            return
        owner = _owner(key)
        self._owners[owner] -= 1
        if not self._owners[owner]:
            del self._owners[owner]
        self.expiry.set(key, None)
        if self._sorted is not None:
            at = bisect_right(self._sorted, _name(key)) - 1
            del self._sorted[at]

    def names_after(self, after: str, prefix: str, at_most: int) -> list[str]:
        """`tenant.owner.sid` of those that begin so, in order, beyond a name."""
        names = self._names()
        first = bisect_right(names, max(after, prefix))
        return [name for name in names[first : first + at_most] if name.startswith(prefix)]

    def count_of(self, prefix: str) -> int:
        """How many names begin so; the prefix ends with a dot."""
        names = self._names()
        return bisect_left(names, prefix[:-1] + _AFTER_DOT) - bisect_left(names, prefix)

    def _names(self) -> list[str]:
        if self._sorted is None:
            self._sorted = sorted(map(_name, self._entries))
        return self._sorted


_AFTER_DOT: Final = chr(ord(".") + 1)


def _name(key: str) -> str:
    return key.partition(".")[2]


def _owner(key: str) -> str:
    return _name(key).rpartition(".")[0]
