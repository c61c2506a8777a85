"""What a publisher keeps until the cloud has stored it: first in, first out, bounded. Kept in memory here; see
disk_outbox for one that outlives the process.

Not for several threads at once: the publisher has a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from ..identity import PublicationId
from .errors import OutboxFull

MAX_COUNT: Final = 100_000
MAX_BYTES: Final = 64 << 20

_boot_lock = threading.Lock()
_last_boot = 0


def next_boot(after: int = 0) -> int:
    """A boot number that is larger than `after` and than all that this process had before: the clock's, if it may be.

    So an outbox that is thrown away, or a clock that was wrong, does not make a source use its numbers twice.
    """
    global _last_boot  # one for the whole process, whoever asks
    with _boot_lock:
        _last_boot = max(time.time_ns() // 1_000_000, after + 1, _last_boot + 1)
        return _last_boot


@dataclass(frozen=True, slots=True)
class Entry:
    """A publication that waits."""

    place: int
    """In the order of arrival, counted from the outbox's beginning."""
    id: PublicationId
    data: bytes
    """A JSON object, id included."""


class Outbox:
    """In memory: what is not stored when the process ends is lost."""

    durable = False

    def __init__(self, *, max_count: int = MAX_COUNT, max_bytes: int = MAX_BYTES) -> None:
        self.max_count = max_count
        self.max_bytes = max_bytes
        self.count = 0
        self.bytes = 0
        self.boot = 0
        self._entries: list[Entry | None] = []
        self._base = 0  # the place of the first of them
        self._gone = 0  # so many at the front have left

    def open(self) -> None:
        """Take it into use."""
        self.boot = next_boot()

    def close(self) -> None:
        """Give it up; it can be opened again."""

    def has_room(self, size: int) -> bool:
        """Whether a publication of that many bytes fits. One that is larger than everything fits if it is alone."""
        return self.count == 0 or (self.count < self.max_count and self.bytes + size <= self.max_bytes)

    @property
    def end(self) -> int:
        """The place that the next publication will have."""
        return self._base + len(self._entries)

    def append(self, id: PublicationId, data: bytes) -> Entry:
        """Keep it; OutboxFull if there is no room."""
        if not self.has_room(len(data)):
            raise OutboxFull(self.count, self.bytes)
        entry = Entry(self.end, id, data)
        self._keep(entry)
        return entry

    def _keep(self, entry: Entry) -> None:
        self._entries.append(entry)
        self.count += 1
        self.bytes += len(entry.data)

    def entries(self, place: int = 0) -> Iterator[Entry]:
        """Those that are still here, from a place on, oldest first."""
        for index in range(max(place - self._base, self._gone), len(self._entries)):
            entry = self._entries[index]
            if entry is not None:
                yield entry

    def holds(self, entry: Entry) -> bool:
        """Whether this one has not left."""
        index = entry.place - self._base
        return index >= 0 and self._entries[index] is not None

    def leave(self, entries: Iterable[Entry]) -> list[Entry]:
        """Keep these no longer; those of them that had not left before."""
        left = [entry for entry in entries if self._take(entry)]
        self._compact()
        return left

    def _take(self, entry: Entry) -> bool:
        if not self.holds(entry):
            return False
        self._entries[entry.place - self._base] = None
        self.count -= 1
        self.bytes -= len(entry.data)
        return True

    def _compact(self) -> None:
        """Forget the empty places at the front, when they are so many that it costs little."""
        while self._gone < len(self._entries) and self._entries[self._gone] is None:
            self._gone += 1
        if self._gone * 2 >= len(self._entries):
            del self._entries[: self._gone]
            self._base += self._gone
            self._gone = 0

    def to_sync(self) -> int | None:
        """A file descriptor to fsync, if that is due, which the caller then closes."""
        return None
