"""What becomes of a payload: rows with ids for the log, and refusals with reasons. No I/O here.

A row is accepted exactly if `spinney.publication.read` accepts it and its JSON has no key twice; and if its sender may
publish its source. What is refused harms nobody else: the rest of the payload passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import orjson

from spinney import Label, LabelError, PublicationError, PublicationId
from spinney.identity import LARGEST_NUMBER
from spinney.publication import read

from .numbering import Numbers
from .payloads import Batch, Kept, NotKept, PayloadError, Refusal, read_payload
from .rate_limit import RateLimit
from .records import RowLabel, Run
from .settings import Limits
from .source_owners import NotTheOwner, SourceOwners

MAX_SOURCE = 256
"""Characters of a source's name."""
_DIGEST_LENGTH = 16
_RUN_BYTES = 100
_MARK_BYTES = 100


class Sender(NamedTuple):
    """Who sends."""

    tenant: str
    client: str


@dataclass(slots=True)
class Taken:
    """What is taken in of one payload."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """With id and source, as they go to the log."""
    runs: list[Run] = field(default_factory=list)
    labels: list[RowLabel] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    batch: str | int | None = None
    busy: str | None = None
    """Why nothing is taken now although nothing is wrong with it: it should be sent again."""
    is_packed: bool = False
    """Whether the sender speaks the packed format, and goes by its batch's name alone."""

    def stored(self) -> dict[str, tuple[int, int]]:
        """Of each source the newest number: what a sender that does not go by batches is told once it is in the log."""
        if self.is_packed:
            return {}
        newest: dict[str, tuple[int, int]] = {}
        for run in self.runs:
            last = (run.boot, run.first + run.length - 1)
            if last > newest.get(run.source, (-1, -1)):
                newest[run.source] = last
        return newest


class Intake:
    """The limits, counters and owners that payloads are held against."""

    def __init__(self, limits: Limits, numbers: Numbers, owners: SourceOwners) -> None:
        self.limits = limits
        self._numbers = numbers
        self._owners = owners
        self._rates = RateLimit(limits.rate)
        self.kept = Kept()

    def set_limits(self, limits: Limits) -> None:
        """Other limits hold from now on."""
        if limits.rate != self.limits.rate:
            self._rates = RateLimit(limits.rate)
        self.limits = limits

    def take(self, sender: Sender, payload: bytes, received: float) -> Taken:
        """All that can be used of a payload."""
        if len(payload) > self.limits.payload:
            reason = f"a payload of {len(payload)} bytes; the limit is {self.limits.payload}"
            return Taken(refusals=[Refusal(None, None, reason, "size")])
        try:
            batch = read_payload(payload, received, partial(self.kept.find, sender))
        except PayloadError as error:
            return Taken(refusals=[Refusal(None, None, str(error), "payload")])
        except NotKept as error:
            return Taken(busy=str(error))
        if batch.kept is not None:
            self.kept.keep(sender, batch.kept)
        return self._take(sender, batch, received)

    def _take(self, sender: Sender, batch: Batch, received: float) -> Taken:
        taken = Taken(refusals=batch.refusals, batch=batch.batch, is_packed=batch.is_packed)
        wanted = len(batch.rows)
        if wanted > self._rates.capacity:
            reason = f"rate: {wanted} readings at once; {int(self._rates.capacity)} may come in ten seconds"
            taken.refusals = [Refusal(None, None, reason, "rate")]
            return taken
        if not self._rates.allow(sender.client, wanted, received):
            taken.busy = f"rate: more than {self.limits.rate} readings a second over ten seconds; send it again later"
            taken.refusals = []
            return taken
        moved = self._rows(sender, batch, taken)
        self._labels(sender, batch, moved, taken)
        return taken

    def _rows(self, sender: Sender, batch: Batch, taken: Taken) -> dict[int, int]:
        """Take in the rows; if there are labels, says to which row each accepted place went."""
        runs = _Runs(sender, batch.epochs, self._numbers, self._owners)
        most, from_door = self.limits.attributes, batch.from_door
        out: list[dict[str, Any]] = taken.rows
        moved: dict[int, int] = {}
        for row, place in zip(batch.rows, batch.places, strict=True):
            try:
                clean = row if from_door and _is_fine(row) else read(row)
                if len(clean) > most:
                    raise PublicationError(f"{len(clean)} attributes; the limit is {most}")
                runs.add(clean)
            except PublicationError as error:
                taken.refusals.append(Refusal(place, _id_of(row), str(error), _kind(error)))
            except NotTheOwner as error:
                taken.refusals.append(Refusal(place, _id_of(row), str(error), "lease"))
            else:
                if batch.labels:
                    moved[place] = len(out)
                out.append(clean)
        taken.runs = runs.finished()
        return moved

    def _labels(self, sender: Sender, batch: Batch, moved: dict[int, int], taken: Taken) -> None:
        for number, item in enumerate(batch.labels):
            try:
                row, name, label = _read_label(item)
                if row is not None:
                    row = moved.get(row)
                    if row is None:
                        raise LabelError("its publication was refused, or is not there")
                source, epoch = label.mark.source, label.mark.order[0]
                self._owners.check(sender.tenant, sender.client, source, batch.epochs.get(source, epoch))
            except (LabelError, NotTheOwner) as error:
                taken.refusals.append(Refusal(number, None, f"label: {error}", "label"))
            else:
                taken.labels.append(RowLabel(row, name, label))


def _is_fine(row: Any) -> bool:
    """Whether `read` would change nothing. The row has come through the JSON door, and is looked at quickly."""
    if None in row.values() or "" in row:
        return False
    for name in ("time", "lat", "long"):
        value = row.get(name, 0)
        if value.__class__ is not float and value.__class__ is not int:
            return False
    for name in ("id", "source", "type"):
        if row.get(name, "").__class__ is not str:
            return False
    if "valid_for" in row:
        value = row["valid_for"]
        return (value.__class__ is float or value.__class__ is int) and value >= 0
    return True


def _id_of(row: Any) -> str | None:
    """What a refusal says of a row, whatever it is."""
    id = row.get("id") if isinstance(row, dict) else None
    return id[: MAX_SOURCE + 40] if isinstance(id, str) else None


def _kind(error: PublicationError) -> Any:
    return "id" if error.attribute == "id" else "row"


def _read_label(item: Any) -> tuple[int | None, str, Label]:
    match item:
        case [int() | None as row, str(name), label] if not isinstance(row, bool) and _is_digest(name):
            return row, name, Label.from_json(label)
    raise LabelError("expected [row or null, digest of a filter, label]")


def _is_digest(name: str) -> bool:
    return len(name) == _DIGEST_LENGTH and set(name) <= set("0123456789abcdef")


class _Runs:
    """Puts ids on rows, and rows of consecutive ids into runs."""

    def __init__(self, sender: Sender, epochs: dict[str, int], numbers: Numbers, owners: SourceOwners) -> None:
        self._sender = sender
        self._epochs = epochs
        self._numbers = numbers
        self._owners = owners
        self._runs: list[Run] = []
        self._source = ""
        self._boot = 0
        self._next = 0
        self._first = 0
        self._epoch: int | None = None
        self._numbered = 1
        self._prefix = ""
        """Of the ids of the run that goes on."""

    def add(self, row: dict[str, Any]) -> None:
        """The next row: gets its id and source. PublicationError, or NotTheOwner, and then nothing has changed."""
        text = row.get("id")
        if text is None:
            self._number(row)
        elif self._numbered and text == f"{self._prefix}{self._next}" and row.get("source") == self._source:
            self._next += 1
        else:
            self._begin(row, text)

    def _begin(self, row: dict[str, Any], text: str) -> None:
        source, boot, sequence = _parse_id(text)
        _check_source(source)
        if row.setdefault("source", source) != source:
            raise PublicationError(f"id: {text[:80]} is not of the source {row['source'][:80]}", attribute="id")
        if self._numbered and self._runs_on(source, boot, sequence):
            self._next += 1
            return
        self._start(source, boot, sequence, 1)

    def _number(self, row: dict[str, Any]) -> None:
        source = row.get("source", self._sender.client)
        boot = self._numbers.boot
        if self._numbered or source != self._source:
            _check_source(source)
            epoch = self._may_publish(source)
            number = self._numbers.take(self._sender.tenant, source)
            self._open(source, boot, number, 0, epoch)
        else:
            number = self._numbers.take(self._sender.tenant, source)
            self._next = number + 1
        row["source"] = source
        row["id"] = f"{source}:{boot}:{number}"

    def _runs_on(self, source: str, boot: int, sequence: int) -> bool:
        return source == self._source and boot == self._boot and sequence == self._next

    def _may_publish(self, source: str) -> int | None:
        return self._owners.check(self._sender.tenant, self._sender.client, source, self._epochs.get(source))

    def _start(self, source: str, boot: int, sequence: int, numbered: int) -> None:
        self._open(source, boot, sequence, numbered, self._may_publish(source))

    def _open(self, source: str, boot: int, sequence: int, numbered: int, epoch: int | None) -> None:
        self._close()
        self._source, self._boot, self._first, self._next = source, boot, sequence, sequence + 1
        self._epoch, self._numbered, self._prefix = epoch, numbered, f"{source}:{boot}:"

    def _close(self) -> None:
        if self._source:
            length = self._next - self._first
            client = self._sender.client
            self._runs.append(Run(self._source, self._boot, self._first, length, client, self._epoch, self._numbered))

    def finished(self) -> list[Run]:
        """All runs, in order."""
        self._close()
        self._source = ""
        return self._runs


def _parse_id(text: str) -> tuple[str, int, int]:
    """As PublicationId.parse says, and quicker for what is common."""
    parts = text.rsplit(":", 2)
    if len(parts) == 3:
        source, boot, sequence = parts
        if source and _is_number(boot) and _is_number(sequence):
            return source, int(boot), int(sequence)
    return PublicationId.parse(text)


def _is_number(text: str) -> bool:
    """Whether this is surely a number that an id may have, by its digits."""
    return text.isascii() and text.isdecimal() and len(text) < 16 and (text[0] != "0" or text == "0")


def _check_source(source: str) -> None:
    if not source or len(source) > MAX_SOURCE:
        raise PublicationError(f"source: 1 to {MAX_SOURCE} characters, not {len(source)}", attribute="source")


class Part(NamedTuple):
    """A share of what was taken, small enough for one record."""

    body: bytes
    """The rows, without the brackets around them."""
    rows: int
    runs: tuple[Run, ...]
    labels: tuple[RowLabel, ...]
    """With rows counted from this part's first."""

    @property
    def size(self) -> int:
        """About its bytes in a record."""
        marks = sum(2 + len(one.label.membership) for one in self.labels) if self.labels else 0
        return len(self.body) + _RUN_BYTES * len(self.runs) + _MARK_BYTES * marks


class TooLargeForRecord(ValueError):
    """A single row that no record can hold."""

    def __init__(self, row: int, size: int) -> None:
        super().__init__(f"row {row} has {size} bytes")
        self.row = row
        self.size = size


def parts(taken: Taken, part_bytes: int, row_bytes: int) -> Iterator[Part]:
    """All of it in order, in parts of about `part_bytes`; TooLargeForRecord if one row is beyond `row_bytes`."""
    body = orjson.dumps(taken.rows)[1:-1]
    if len(body) <= min(part_bytes, row_bytes):
        yield Part(body, len(taken.rows), tuple(taken.runs), tuple(taken.labels))
        return
    encoded = [orjson.dumps(row) for row in taken.rows]
    for place, row in enumerate(encoded):
        if len(row) > row_bytes:
            raise TooLargeForRecord(place, len(row))
    first = 0
    while first < len(encoded):
        last, size = first + 1, len(encoded[first])
        while last < len(encoded) and size + 1 + len(encoded[last]) <= part_bytes:
            size += 1 + len(encoded[last])
            last += 1
        runs = tuple(_between(taken.runs, first, last))
        labels = _labels_between(taken.labels, first, last, ending=last == len(encoded))
        yield Part(b",".join(encoded[first:last]), last - first, runs, labels)
        first = last


def _between(runs: list[Run], first: int, last: int) -> Iterator[Run]:
    """The runs of the rows from `first` up to, not including, `last`."""
    at = 0
    for run in runs:
        begin, end = max(first, at), min(last, at + run.length)
        if begin < end:
            yield run._replace(first=run.first + begin - at, length=end - begin)
        at += run.length


def _labels_between(labels: list[RowLabel], first: int, last: int, *, ending: bool) -> tuple[RowLabel, ...]:
    """Those of these rows; with the last part those without a row, too."""
    silent = [one for one in labels if one.row is None] if ending else []
    loud = [(one, one.row) for one in labels if one.row is not None]
    return (*(one._replace(row=row - first) for one, row in loud if first <= row < last), *silent)


assert LARGEST_NUMBER >= 10**15 - 1, "what _is_number takes is never too large"
