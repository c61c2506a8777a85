"""Records of the log: what the gateway, the coordinator and the matcher write, and every reader reads.

A record is lines of JSON: a header, and below it what its kind says. Publications come with their ids in runs, so that
a reader that has seen all of a run's numbers before or none need not look at each; their rows are one line, an array,
which the C core reads as it stands.

    {"v":1,"kind":"publications","tenant":"default","received":1731900000.25,"runs":[["m7",4,17,2,"kit",null,1]]}
    [{"id":"m7:4:17","source":"m7","NO2":57},{"id":"m7:4:18","source":"m7","NO2":58}]

The log's time of a record is its timestamp in the stream; `received` is when the gateway had it, for people to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from spinney import Label, PublicationId

from .names import is_name

VERSION = 1
"""Of records. A reader refuses what is newer."""


class RecordError(ValueError):
    """A record that cannot be read: its version is newer, or it is damaged."""


class Run(NamedTuple):
    """Consecutive rows of one source, by consecutive numbers."""

    source: str
    boot: int
    first: int
    length: int
    client: str
    """Who sent them."""
    epoch: int | None
    """Of the lease under which the client owns the source; None: nobody owns it."""
    numbered: int
    """1: by the source itself or its owner. 0: by the gateway, so duplicates are known by their content (rule I2)."""


class RowLabel(NamedTuple):
    """What the evaluator of a state filter says, with the row that brought it about; a silent label has none."""

    row: int | None
    filter: str
    """The digest of the subscription's normal form."""
    label: Label


@dataclass(frozen=True, slots=True)
class Publications:
    """A batch of publications, in order."""

    tenant: str
    received: float
    runs: tuple[Run, ...]
    rows: bytes
    """A JSON array of flat objects, as `spinney.publication.read` accepts them."""
    labels: tuple[RowLabel, ...] = ()

    def ids(self) -> Iterator[PublicationId]:
        """The id of each row."""
        for run in self.runs:
            for number in range(run.first, run.first + run.length):
                yield PublicationId(run.source, run.boot, number)


@dataclass(frozen=True, slots=True)
class SubscriptionChange:
    """A subscription begins, changes or (value None) ends, at this place of the log (rule I4)."""

    tenant: str
    key: str
    """Of the bucket of subscriptions."""
    value: dict[str, Any] | None
    request: int = 0
    """The message with the newest request of a client that had been decided then."""
    place: int = 0
    """Of that request in its message."""


@dataclass(frozen=True, slots=True)
class Unpublish:
    """A publication is no longer valid (rule L2)."""

    tenant: str
    client: str
    id: str


@dataclass(frozen=True, slots=True)
class Announced:
    """Sources that are announced (again), or no longer (rule S4)."""

    tenant: str
    sources: tuple[str, ...]
    over: bool


@dataclass(frozen=True, slots=True)
class History:
    """What a mobile broker announced, was told, owns or reported: for who asks how complete the log is (see
    completeness/entries.py, which says what the value has). It tells no subscription anything.
    """

    tenant: str
    value: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Tick:
    """Nothing but time: what has fallen due happens (rule I3)."""

    tenant: str = "all"


Record = Publications | SubscriptionChange | Unpublish | Announced | History | Tick

_KINDS = {
    "publications": Publications,
    "subscription": SubscriptionChange,
    "unpublish": Unpublish,
    "announced": Announced,
    "history": History,
    "tick": Tick,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def kind_of(record: Record) -> str:
    """The kind's name, as the header and the subject say it."""
    return _NAMES[type(record)]


def encode(record: Record) -> bytes:
    """The bytes of a record."""
    header: dict[str, Any] = {"v": VERSION, "kind": kind_of(record), "tenant": record.tenant}
    match record:
        case Publications():
            header |= {"received": record.received, "runs": record.runs}
            lines = [orjson.dumps(header, default=tuple), record.rows]
            if record.labels:
                lines.append(orjson.dumps([[row, name, label.to_json()] for row, name, label in record.labels]))
            return b"\n".join(lines)
        case SubscriptionChange():
            header |= {"key": record.key, "value": record.value, "request": record.request, "place": record.place}
        case Unpublish():
            header |= {"client": record.client, "id": record.id}
        case Announced():
            header |= {"sources": record.sources, "over": record.over}
        case History():
            header |= {"value": record.value}
    return orjson.dumps(header)


def decode(data: bytes) -> Record:
    """What gave these bytes; RecordError for anything else."""
    first, _, more = data.partition(b"\n")
    try:
        header = orjson.loads(first)
        version = header["v"]
        if version > VERSION:
            raise RecordError(f"a record of version {version}; this Spinney reads up to {VERSION}")
        if not is_name(header["tenant"]):
            raise RecordError(f"a record of no tenant: {header['tenant']!r:.80}")
        return _read(header, more)
    except RecordError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"a damaged record: {first[:80]!r}: {error}") from error


def _read(header: dict[str, Any], more: bytes) -> Record:
    tenant = header["tenant"]
    match header["kind"]:
        case "publications":
            rows, _, labels = more.partition(b"\n")
            if not rows:
                raise RecordError("a damaged record: no rows")
            runs = tuple(Run(*run) for run in header["runs"])
            return Publications(tenant, header["received"], runs, rows, _labels(labels))
        case "subscription":
            decided = header.get("request", 0), header.get("place", 0)
            return SubscriptionChange(tenant, header["key"], header["value"], *decided)
        case "unpublish":
            return Unpublish(tenant, header["client"], header["id"])
        case "announced":
            return Announced(tenant, tuple(header["sources"]), header["over"])
        case "history":
            return History(tenant, dict(header["value"]))
        case "tick":
            return Tick(tenant)
        case other:
            raise RecordError(f"a record of an unknown kind: {other!r:.80}")


def _labels(line: bytes) -> tuple[RowLabel, ...]:
    if not line:
        return ()
    return tuple(RowLabel(row, name, Label.from_json(label)) for row, name, label in orjson.loads(line))
