"""Which records go out next, in which message; what must go again, and what never.

    {"batch": id, "publications": [...], "epochs": {source: epoch}, "labels": [[row or null, filter, label], ...]}

The same goes packed to a cloud that reads that (see `packing`). While nothing is under way a record goes at once; else
it waits a little for company. A new link begins with one batch under way, and each `stored` allows more.
A batch that is alone goes at QoS 0 there (see `lone`). No I/O, and the clock is handed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from spinney import Label, Mark
from spinney.client.outbox import Entry
from spinney.client.sending import BATCH_BYTES, MAX_ROWS, RESEND_SECONDS, Batch, Message, Sending

from .leases import Leases
from .lone import Lone
from .outbox import Outbox, Waiting, decode, is_silent, label_bytes
from .packing import Packing
from .samples import Digest

WINDOW: Final = 16
"""Batches under way at most."""
LINGER_SECONDS: Final = 0.25
"""How long a record waits for company while others are under way."""
BUSY_SECONDS: Final = 5.0
"""Until all is sent again that the cloud had no room for."""
HOLD_SECONDS: Final = 10.0
"""For how long a source's records wait for word of its lease, when the cloud refuses them for it."""
LONGEST_PAUSE_SECONDS: Final = 120.0
PACKED_BATCH_BYTES: Final = 2 * BATCH_BYTES
"""Of a message's records, as JSON, where it goes packed: a tenth of that."""
LEAST_MAX_PAYLOAD: Final = 1_024
"""A cloud that takes less is not believed."""
_LABEL = "label:"
_LEASE = "lease:"
"""How the reasons of refusals begin."""
_DICTIONARY = "dictionary:"
"""How it begins why a cloud cannot unpack a message that refers to an earlier one."""


class Refused(NamedTuple):
    """What the cloud will never store. It has left the outbox, unless only a label was refused."""

    entry: Entry
    reason: str
    digest: Digest | None = None
    """Of the label, if that was refused."""


class Batches(Sending):
    """Of one outbox."""

    def __init__(
        self,
        outbox: Outbox,
        leases: Leases,
        prefix: str,
        *,
        batch_bytes: int = BATCH_BYTES,
        linger_seconds: float = LINGER_SECONDS,
        resend_seconds: float = RESEND_SECONDS,
    ) -> None:
        super().__init__(
            outbox.log, prefix, batch_bytes=batch_bytes, linger_seconds=linger_seconds, resend_seconds=resend_seconds
        )
        self.window = 1
        self.why: str | None = None
        """Why the cloud takes nothing at the moment."""
        self.busy = 0
        """How often it had no room."""
        self.packing = Packing()
        self.lone = Lone()
        self._box = outbox
        self._leases = leases
        self._told = 0  # how often leases have changed
        self._held: dict[str, float] = {}  # sources whose records wait, and until when
        self._not_owned: dict[int, int] = {}  # by place, what was refused for its lease, and _told then
        self._spared: dict[str, set[int]] = {}  # by batch, the places that are not stored with it
        self._pause_until = 0.0
        self._pause_seconds = BUSY_SECONDS
        self._suspect: int | None = None  # the place of what may be why a message was refused: others go first
        self._culprit: int | None = None  # the place of what was refused before others were stored: it goes once more
        self._usual_bytes = batch_bytes
        self._was_agreed = False  # whether batches were packed until the reply that is being read
        self._in_vain = 0  # refusals to come of packed messages that have gone again as JSON

    # ---- out

    def next(self, now: float) -> Message | None:
        """What must go out now."""
        self._batch_bytes = PACKED_BATCH_BYTES if self.packing.agreed else self._usual_bytes
        may_be_lone = self.packing.agreed and not self._flight and self.lone.may_go(self._unsent_since, now)
        message = super().next(now)
        if message is not None:
            is_lone = may_be_lone and self._next == self._box.log.end
            self.lone.sent(message.batch, is_lone=is_lone)
            if is_lone:
                self._unsent_since, self._unsent_bytes = None, 0
        return message

    def _has_window(self) -> bool:
        return self.lone.batch not in self._flight and super()._has_window()

    def overdue(self, now: float) -> bool:
        """Whether the cloud should have stored the oldest batch by now."""
        was_lone = self.lone.batch in self._flight
        if not super().overdue(now):
            return False
        if was_lone:
            self.lone.unanswered(now)
        return True

    def again(self, now: float) -> None:
        """Send everything that is not stored, oldest first."""
        super().again(now)
        self.lone.again(now, is_empty=not self._box.log.count)
        self.packing.again()

    def encode(self, batch: str, entries: Sequence[Entry]) -> bytes:
        """The message of a batch, under the leases of now."""
        rows: list[bytes] = []
        labels: list[tuple[int | None, Digest, Any]] = []
        epochs: dict[str, int] = {}
        for entry in entries:
            waiting = decode(entry.data)
            row = None
            if waiting.publication:
                row = len(rows)
                rows.append(waiting.publication)
                epochs[entry.id.source] = self._epoch(entry.id.source, waiting)
            for digest, label in waiting.labels.items():
                owned = self._owned(label)
                labels.append((row, digest, owned.to_json()))
                epochs.setdefault(owned.mark.source, self._epoch(owned.mark.source, waiting))
        held = {source: epoch for source, epoch in epochs.items() if epoch}
        if (packed := self.packing.batch(batch, rows, held, labels)) is not None:
            return packed
        parts = [b'{"batch":"%b","publications":[%b]' % (batch.encode(), b",".join(rows))]
        if held:
            parts.append(b',"epochs":%b' % _json(held))
        if labels:
            parts.append(b',"labels":%b' % _json(labels))
        return b"".join(parts) + b"}"

    def _epoch(self, source: str, waiting: Waiting) -> int:
        return self._leases.epoch(source) or waiting.epoch

    def _owned(self, label: Label) -> Label:
        """As it goes up under the leases of now."""
        membership = tuple(map(self._owned_mark, label.membership))
        return replace(label, mark=self._owned_mark(label.mark), membership=membership)

    def _owned_mark(self, mark: Mark) -> Mark:
        return mark.owned(self._leases.epoch_of_labels(mark.source, mark.order[0]))

    def size(self, entry: Entry) -> int:
        """With room for row numbers, epochs, and the source's name among them."""
        return len(entry.data) + label_bytes(entry) // 2 + 2 * len(entry.id.source) + 40

    def may_go(self, entry: Entry) -> bool:
        """Not what waits for word of its lease."""
        if entry.place == self._suspect:
            return False
        return not self._held or self._held.keys().isdisjoint(_sources(entry))

    def _lingers_until(self) -> float:
        """Latency first while nothing is under way, size while there is."""
        if not self._flight:
            return self._pause_until
        return max(super()._lingers_until(), self._pause_until)

    def due(self, now: float) -> float | None:
        """When something must be looked at, if nothing happens before."""
        times = [*self._held.values()]
        if (usual := super().due(now)) is not None:
            times.append(usual)
        return min(times, default=None)

    def look(self, now: float) -> None:
        """Let go what has waited long enough for its lease."""
        over = [source for source, until in self._held.items() if until <= now]
        for source in over:
            del self._held[source]
        if over:
            self.again(now)

    def leases_told(self, sources: Iterable[str], now: float) -> None:
        """The owners of these have changed: what is under way went out under other leases."""
        self._told += 1
        released = [source for source in sources if self._held.pop(source, None) is not None]
        if released or self._flight:
            self.again(now)

    def opened(self, now: float) -> None:
        """A new link: one batch first."""
        self.window = 1
        self._pause_until = 0.0
        self.packing.opened()
        self._in_vain = 0
        self.again(now)

    def _pause(self, now: float, why: str) -> None:
        self.why = why
        self.window = 1
        self._pause_until = now + self._pause_seconds
        self._pause_seconds = min(self._pause_seconds * 2, LONGEST_PAUSE_SECONDS)
        self.again(now)

    # ---- back

    def told(self, reply: Mapping[str, Any], now: float) -> tuple[list[Entry], list[Refused]]:
        """What a reply says: what is stored, and what never will be."""
        self._was_agreed = self.packing.agreed
        self.packing.told(reply)
        if isinstance(busy := reply.get("busy"), str):
            self._busy(busy, now)
        refusals = [*self._limit(reply.get("max_payload")), *self._refusals(reply, now)]
        stored = self._stored(reply)
        if stored and self._suspect is not None:
            self._culprit, self._suspect = self._suspect, None
            self.again(now)
        if not self._flight:
            self.lone.idle(now)
        return stored, refusals

    def _busy(self, why: str, now: float) -> None:
        if why.startswith(_DICTIONARY):
            self.packing.forgot()
            self.again(now)
            return
        self.busy += 1
        self._pause(now, f"the cloud is busy: {why}")

    def _limit(self, max_payload: Any) -> list[Refused]:
        """The cloud has said how large a message may be; what would fit into none."""
        if not isinstance(max_payload, int) or max_payload < LEAST_MAX_PAYLOAD:
            return []
        self.max_payload = max_payload
        return self.too_large(self._box.log.entries())

    def too_large(self, entries: Iterable[Entry]) -> list[Refused]:
        """Those of them that fit into no message. A server may end the link over one, again and again."""
        found = [entry for entry in entries if self.size(entry) > self.largest]
        reason = f"size: it fits into no message; the cloud takes {self.max_payload} bytes"
        return [Refused(entry, reason) for entry in (self._leave(found) if found else ())]

    def _stored(self, reply: Mapping[str, Any]) -> list[Entry]:
        batch = reply.get("batch")
        if "stored" not in reply or batch is None:
            return []
        names = [name for name in (batch if isinstance(batch, list) else [batch]) if isinstance(name, str)]
        entries = []
        for name in names:
            if (found := self._batch(name)) is not None:
                spared = self._spared.pop(name, ())
                entries += [entry for entry in found.entries if entry.place not in spared]
                self.window = min(self.window * 2, WINDOW)
                self.max_rows = min(self.max_rows + max(1, self.max_rows // 8), MAX_ROWS)
        self.packing.stored(names)
        left = self._leave(entries)
        if left:
            self._resend = self._resend_first
            self._pause_seconds, self.why = BUSY_SECONDS, None
        self._forget(names)
        return left

    def _leave(self, entries: Iterable[Entry]) -> list[Entry]:
        left = self._box.leave(entries)
        for entry in left:
            self._not_owned.pop(entry.place, None)
        return left

    def _refusals(self, reply: Mapping[str, Any], now: float) -> Iterator[Refused]:
        items = reply.get("refused")
        name = reply.get("batch")
        found = self._batch(name)
        for item in items if isinstance(items, list) else ():
            if not isinstance(item, dict):
                continue
            reason, row = str(item.get("reason", "")), item.get("row")
            if found is None or row is None:
                whole = found or self._only_one()
                yield from self._whole(whole, reason, now, is_named=found is not None)
            elif isinstance(row, int) and isinstance(name, str):
                yield from self._row(found, name, row, reason, now)
        self._forget(())
        self._forget_gone()

    def _forget_gone(self) -> None:
        """Nothing is remembered of batches that are over, and of records that were dropped."""
        self._spared = {name: spared for name, spared in self._spared.items() if self._batch(name)}
        if self._not_owned:
            first = next((entry.place for entry in self._box.log.entries()), self._box.log.end)
            self._not_owned = {place: told for place, told in self._not_owned.items() if place >= first}

    def _row(self, batch: Batch, name: str, row: int, reason: str, now: float) -> Iterator[Refused]:
        if reason.startswith(_LABEL):
            yield from self._label(batch, name, row, reason.removeprefix(_LABEL).strip(), now)
            return
        entries = [entry for entry in batch.entries if not is_silent(entry)]
        if 0 <= row < len(entries) and self._box.log.holds(entries[row]):
            if reason.startswith(_LEASE) and self._waits(entries[row], name, entries[row].id.source, now):
                return
            yield from self._dead(entries[row], reason)

    def _label(self, batch: Batch, name: str, number: int, reason: str, now: float) -> Iterator[Refused]:
        labels = [(e, digest, label) for e in batch.entries for digest, label in decode(e.data).labels.items()]
        if not 0 <= number < len(labels) or not self._box.log.holds(labels[number][0]):
            return
        entry, digest, label = labels[number]
        if not is_silent(entry):
            if not reason.startswith("its publication"):  # that one's refusal says all
                yield Refused(entry, reason, digest)
        elif not reason.startswith(_LEASE) or not self._waits(entry, name, label.mark.source, now):
            self._leave([entry])
            yield Refused(entry, reason, digest)

    def _waits(self, entry: Entry, name: str, source: str, now: float) -> bool:
        """Whether it is kept, for word of its lease may be on the way: once, and again for each such word."""
        is_under_way = name in self._flight
        if is_under_way and self._not_owned.get(entry.place) == self._told:
            return False
        self._spared.setdefault(name, set()).add(entry.place)
        if is_under_way:  # if not, it goes or has gone again already
            self._not_owned[entry.place] = self._told
            self._held.setdefault(source, now + HOLD_SECONDS)
        return True

    def _dead(self, entry: Entry, reason: str) -> list[Refused]:
        return [Refused(one, reason) for one in self._leave([entry])]

    # ---- when a whole message is refused

    def _fall_back(self, now: float) -> None:
        """To JSON, for the rest of this link: what is packed and under way may be refused, too."""
        self._was_agreed = False
        self._in_vain = max(0, len(self._flight) - 1)
        self.packing.refused()
        self.again(now)

    def _only_one(self) -> Batch | None:
        return next(iter(self._flight.values())) if len(self._flight) == 1 else None

    def _whole(self, batch: Batch | None, reason: str, now: float, *, is_named: bool) -> list[Refused]:
        """Refused as a whole: JSON is tried, then smaller ones, down to the record that is why."""
        if self._was_agreed:
            self._fall_back(now)
        elif self._in_vain and not is_named:
            self._in_vain -= 1
        elif batch is None:
            self._pause(now, reason)
        elif batch not in self._flight.values() or len(batch.entries) > self.max_rows:
            return []  # it is under way again already
        elif not any(map(self._box.log.holds, batch.entries)):
            return []  # it was too large, which the reply's limit has told already
        elif len(batch.entries) > 1:
            self.max_rows = len(batch.entries) // 2
            self.window = 1
            self.again(now)
        elif is_named or batch.entries[0].place == self._culprit:
            self._culprit = None
            return self._dead(batch.entries[0], reason)
        else:  # or another one, too: then it is not for what is in them
            self._suspect = batch.entries[0].place if self._suspect is None else None
            self._pause(now, reason)
        return []


def _sources(entry: Entry) -> set[str]:
    if not is_silent(entry):
        return {entry.id.source}
    return {label.mark.source for label in decode(entry.data).labels.values()}


def _json(item: Any) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
