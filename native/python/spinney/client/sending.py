"""Which publications go out next, in which message, and which must go again. No I/O, and the clock is handed in.

A message is a batch with an id. Entries leave the outbox when the cloud names their batch as stored, or, where it
names none, by its cumulative word per source. In flight are at most `window` batches from the oldest on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from .outbox import Entry, Outbox

WINDOW: Final = 64
BATCH_BYTES: Final = 64 << 10
"""Of a message's publications together, unless one alone is larger."""
DEFAULT_MAX_PAYLOAD: Final = 1 << 20
"""Until the cloud says what it takes: what nats-server does unless told otherwise."""
MAX_ROWS: Final = 10_000
ENVELOPE_BYTES: Final = 256
"""Of max_payload for what is around the publications."""
RESEND_SECONDS: Final = 10.0
LONGEST_RESEND_SECONDS: Final = 120.0
PUBACK_SECONDS: Final = 60.0
"""A server that pings back and yet does not acknowledge for so long has forgotten something: connect again."""
MAX_EARLIER: Final = 1_024
"""Batches that were given up and sent again, whose answers may yet come."""


class Message(NamedTuple):
    """To be published."""

    batch: str
    payload: bytes


@dataclass(slots=True)
class Batch:
    """Entries that went out together."""

    number: int
    entries: list[Entry]
    sent_at: float
    acked_at: float | None = None
    """When the server, not yet the cloud, had it."""


class Sending:
    """Of one outbox. `encode`, `size`, `may_go` and `_lingers_until` are for classes that send something else."""

    def __init__(
        self,
        outbox: Outbox,
        prefix: str,
        *,
        batch_bytes: int = BATCH_BYTES,
        linger_seconds: float = 0.0,
        resend_seconds: float = RESEND_SECONDS,
        window: int = WINDOW,
    ) -> None:
        """Batch ids begin with the prefix, which nobody else may have."""
        self._outbox = outbox
        self._prefix = prefix
        self._batch_bytes = batch_bytes
        self._linger = linger_seconds
        self._resend = self._resend_first = resend_seconds
        self.window = window
        self._number = 0
        self._next = 0  # the place from which nothing has been sent
        self._unsent_since: float | None = None
        self._unsent_bytes = 0
        self._flight: OrderedDict[str, Batch] = OrderedDict()
        self._earlier: OrderedDict[str, Batch] = OrderedDict()
        self.max_payload = DEFAULT_MAX_PAYLOAD
        self.resent = 0
        """How often everything unstored was sent again."""
        self.hurry = False
        """Nothing lingers."""
        self.max_rows = MAX_ROWS
        """Of a message."""

    @property
    def largest(self) -> int:
        """Bytes that a publication may have."""
        return self.max_payload - ENVELOPE_BYTES

    # ---- out

    def appended(self, entry: Entry, now: float) -> None:
        """Something new is in the outbox."""
        self._unsent_bytes += len(entry.data)
        if self._unsent_since is None:
            self._unsent_since = now

    def next(self, now: float) -> Message | None:
        """What must go out now; to be called until it gives None."""
        if not self._has_window() or not (self.hurry or now >= self._lingers_until()):
            return None
        entries = list(self._fill())
        if not entries:
            self._unsent_since, self._unsent_bytes = None, 0
            return None
        self._unsent_bytes -= sum(len(entry.data) for entry in entries)
        self._number += 1
        name = f"{self._prefix}-{self._number}"
        self._flight[name] = Batch(self._number, entries, now)
        return Message(name, self.encode(name, entries))

    def encode(self, batch: str, entries: Sequence[Entry]) -> bytes:
        """The message of a batch."""
        rows = b",".join(entry.data for entry in entries)
        return b'{"batch":"%b","publications":[%b]}' % (batch.encode(), rows)

    def size(self, entry: Entry) -> int:
        """At most the bytes that an entry adds to its message, a comma not counted."""
        return len(entry.data)

    def may_go(self, _entry: Entry) -> bool:
        """Whether it may be sent now; what may not is passed over until everything is sent again."""
        return True

    def _has_window(self) -> bool:
        oldest = next(iter(self._flight.values()), None)
        return oldest is None or self._number - oldest.number + 1 < self.window

    def _lingers_until(self) -> float:
        if self._unsent_since is None or self._unsent_bytes >= self._batch_bytes:
            return 0.0
        return self._unsent_since + self._linger

    def _fill(self) -> Iterator[Entry]:
        """The next entries that fit into one message."""
        room = min(self._batch_bytes, self.largest)
        rows = 0
        for entry in self._outbox.entries(self._next):
            if self.may_go(entry):
                size = self.size(entry) + 1
                if rows and (size > room or rows >= self.max_rows):
                    return
                room -= size
                rows += 1
                yield entry
            self._next = entry.place + 1

    def oversized(self) -> list[Entry]:
        """What would fit into no message, now that the cloud has said what it takes."""
        return [entry for entry in self._outbox.entries() if self.size(entry) > self.largest]

    def due(self, now: float) -> float | None:
        """When `next`, `overdue` or `unheard` would say something new, if nothing happens before."""
        times = []
        if self._unsent_since is not None and self._has_window():
            times.append(max(self._lingers_until(), now))
        if (oldest := next(iter(self._flight.values()), None)) is not None:
            times.append(oldest.sent_at + PUBACK_SECONDS if oldest.acked_at is None else oldest.acked_at + self._resend)
        return min(times, default=None)

    # ---- again

    def acked(self, batch: str, now: float) -> None:
        """The server has this batch; from now on the cloud is waited for."""
        if (waiting := self._flight.get(batch)) is not None:
            waiting.acked_at = now

    def overdue(self, now: float) -> bool:
        """Whether the cloud should have stored the oldest batch by now; if so, all goes again, later and later."""
        oldest = next(iter(self._flight.values()), None)
        if oldest is None or oldest.acked_at is None or now < oldest.acked_at + self._resend:
            return False
        self._resend = min(self._resend * 2, max(LONGEST_RESEND_SECONDS, self._resend_first))
        self.resent += 1
        self.again(now)
        return True

    def unheard(self, now: float) -> bool:
        """Whether the server should have acknowledged the oldest batch by now."""
        oldest = next(iter(self._flight.values()), None)
        return oldest is not None and oldest.acked_at is None and now >= oldest.sent_at + PUBACK_SECONDS

    def again(self, now: float) -> None:
        """Send everything that is not stored, oldest first: the link was lost, or the cloud has not answered."""
        self._earlier.update(self._flight)
        while len(self._earlier) > MAX_EARLIER:
            self._earlier.popitem(last=False)
        self._flight.clear()
        self._next = 0
        self._unsent_bytes = self._outbox.bytes
        self._unsent_since = now - self._linger if self._outbox.count else None

    # ---- back

    def refused(self, reply: Mapping[str, Any]) -> list[tuple[Entry, str]]:
        """What the cloud will not store, with its reasons. It has left the outbox."""
        named = [
            (entry, str(item.get("reason", "")))
            for item in _dicts(reply.get("refused"))
            for entry in self._refused_entries(item, reply.get("batch"))
        ]
        left = {entry.place for entry in self._outbox.leave(entry for entry, _ in named)}
        self._forget(())
        return [(entry, reason) for entry, reason in named if entry.place in left]

    def _refused_entries(self, item: Mapping[str, Any], batch: Any) -> list[Entry]:
        id, row = item.get("id"), item.get("row")
        found = self._batch(batch)
        if found is None:
            return [entry for entry in self._sent() if str(entry.id) == id]
        if isinstance(row, int) and 0 <= row < len(found.entries):
            return [found.entries[row]]
        return [entry for entry in found.entries if id is None or str(entry.id) == id]

    def stored(self, reply: Mapping[str, Any]) -> list[Entry]:
        """What the cloud has stored. It has left the outbox."""
        if "stored" not in reply:
            return []
        batch = reply.get("batch")
        names = [name for name in (batch if isinstance(batch, list) else [batch]) if isinstance(name, str)]
        if batch is not None:
            entries = [entry for name in names if (found := self._batch(name)) for entry in found.entries]
        else:
            entries = list(self._up_to(reply.get("stored")))
        left = self._outbox.leave(entries)
        if left:
            self._resend = self._resend_first
        self._forget(names)
        return left

    def _batch(self, name: Any) -> Batch | None:
        if not isinstance(name, str):
            return None
        return self._flight.get(name) or self._earlier.get(name)

    def _up_to(self, stored: Any) -> Iterator[Entry]:
        """What was sent of each source up to the number that is stored: same boot, or earlier in the outbox."""
        if not isinstance(stored, Mapping):
            return
        numbers = {source: tuple(number) for source, number in stored.items() if isinstance(number, list)}
        waiting: dict[str, list[Entry]] = {source: [] for source in numbers}
        for entry in self._sent():
            number = numbers.get(entry.id.source)
            if number is None:
                continue
            waiting[entry.id.source].append(entry)
            if len(number) == 2 and entry.id.boot == number[0] and entry.id.sequence <= number[1]:
                yield from waiting[entry.id.source]
                waiting[entry.id.source].clear()

    def _sent(self) -> Iterator[Entry]:
        """What was sent, and sent again, in order."""
        for batches in (self._earlier, self._flight):
            for batch in batches.values():
                yield from batch.entries

    def _forget(self, names: Iterable[str]) -> None:
        """Batches that nothing waits for any longer."""
        for name in names:
            self._flight.pop(name, None)
            self._earlier.pop(name, None)
        for batches in (self._earlier, self._flight):
            while batches and not any(map(self._outbox.holds, next(iter(batches.values())).entries)):
                batches.popitem(last=False)


def _dicts(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
