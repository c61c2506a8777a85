"""JSON payloads: an object, an array, a SenML pack, or the envelope of a mobile broker.

What is accepted, and as which value, is what the core's JSON door says. All is shown to it at once; only a payload
that it refuses is read again, item by item, to find what can be used.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

import orjson

from spinney import Matcher, PublicationError

from . import senml
from .batch import Batch, PayloadError, Refusal

_WHITE = b" \t\r\n"
_PUBLICATIONS = b'"publications"'
_ENVELOPE = frozenset({"batch", "publications", "epochs", "labels"})
_MAX_NAME = 200
"""Characters of a batch's name."""

_FLAT = frozenset({float, int, str, bool, type(None)})

_door = Matcher()
"""Without a subscription: it reads, and matches nothing."""


def read_json(payload: bytes, received: float) -> Batch:
    """The rows of a JSON text; PayloadError if nothing of it can be used."""
    first = payload.lstrip(_WHITE)[:1]
    if first == b"{":
        return _read_object(payload)
    if first == b"[":
        return _read_array(payload, received)
    raise PayloadError("a payload is a JSON object or array, a SenML pack or an Arrow IPC stream")


def _passes(text: bytes) -> bool:
    try:
        _door.match_json(text)
    except PublicationError:
        return False
    return True


# ---- the quick way: the door has seen everything


def _read_object(payload: bytes) -> Batch:
    if _PUBLICATIONS in payload:
        batch = _quick_envelope(payload)
        if batch is not None:
            return batch
    row = _plain_object(payload)
    if row is None and _passes(payload):
        row = orjson.loads(payload)
    if row is not None:
        return Batch([row], range(1), from_door=True)
    item = _parse(payload)
    if isinstance(item, dict) and isinstance(item.get("publications"), list):
        return _envelope(item, _careful_rows(item["publications"]))
    return _careful_rows([item])


def _plain_object(payload: bytes) -> dict[str, Any] | None:
    """A flat object that the door surely accepts, found more quickly than by asking it; else None.

    Where nothing is escaped, quotes are there for keys and texts alone: so a key that is there twice leaves more of
    them than the object, which has it once, accounts for.
    """
    if b"\\" in payload:
        return None
    try:
        row = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    types = [value.__class__ for value in row.values()]
    if _FLAT.issuperset(types) and payload.count(b'"') == 2 * (len(row) + types.count(str)):
        return row  # type: ignore[no-any-return]  # it begins with a brace
    return None


def _read_array(payload: bytes, received: float) -> Batch:
    if _passes(payload):
        rows = orjson.loads(payload)
        if senml.is_pack(rows):
            return senml.resolve(rows, received)
        return Batch(rows, range(len(rows)), from_door=True)
    items = _parse(payload)
    if senml.is_pack(items):
        return senml.resolve([_unrepeated(item) for item in items], received)
    return _careful_rows(items)


def _quick_envelope(payload: bytes) -> Batch | None:
    """The envelope, if its publications are an array that the door accepts as it stands; else None.

    A flat array without brackets in its texts ends at the first closing one. That it really is the member's value is
    shown by taking it out: what is left must be an envelope without publications.
    """
    name = payload.find(_PUBLICATIONS)
    start = payload.find(b"[", name)
    end = payload.find(b"]", start) + 1
    if start < 0 or end <= 0 or payload.find(_PUBLICATIONS, end) >= 0:
        return None
    array = payload[start:end]
    if not _passes(array):
        return None
    try:
        frame = orjson.loads(payload[:start] + b"[]" + payload[end:])
    except orjson.JSONDecodeError:
        return None
    if frame.get("publications") != []:
        return None
    rows = orjson.loads(array)
    return _envelope(frame, Batch(rows, range(len(rows)), from_door=True))


def _envelope(frame: dict[str, Any], batch: Batch) -> Batch:
    unknown = [name for name in frame if name not in _ENVELOPE]
    if unknown:
        raise PayloadError(f"an envelope has batch, publications, epochs and labels, not {unknown[0]!r:.60}")
    batch.batch = name_of(frame.get("batch"))
    batch.epochs = epochs_of(frame.get("epochs"))
    batch.labels = _labels(frame.get("labels"))
    return batch


def name_of(name: Any) -> str | int | None:
    """The name of a batch."""
    if name is None or type(name) is int or (isinstance(name, str) and len(name) <= _MAX_NAME):
        return name
    raise PayloadError(f"batch: expected a text of at most {_MAX_NAME} characters, or an integer")


def _labels(labels: Any) -> list[Any]:
    if labels is None or isinstance(labels, list):
        return labels or []
    raise PayloadError("labels: expected a list of [row, filter, label]")


def epochs_of(epochs: Any) -> dict[str, int]:
    """The epochs of an envelope."""
    if epochs is None:
        return {}
    if isinstance(epochs, dict) and all(type(epoch) is int and epoch >= 0 for epoch in epochs.values()):
        return epochs
    raise PayloadError("epochs: expected {source: epoch}")


# ---- the careful way: item by item


class _Repeated(NamedTuple):
    """Stands for an object in which a key is there twice."""

    key: str


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Repeated:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    counts = Counter(name for name, _ in pairs)
    return _Repeated(counts.most_common(1)[0][0])


def _integer(text: str) -> int | float:
    return int(text) if len(text) < 20 else float(text)


_careful = json.JSONDecoder(object_pairs_hook=_members, parse_int=_integer, parse_constant=float)


def _parse(payload: bytes) -> Any:
    """Any JSON text. NaN and infinities, which JSON has not, become numbers that no publication may have."""
    try:
        return _careful.decode(payload.decode())
    except UnicodeDecodeError as error:
        raise PayloadError(f"this is not UTF-8, at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise PayloadError(f"this is not JSON: {error.msg}, line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise PayloadError("nested too deeply") from None


def _careful_rows(items: list[Any]) -> Batch:
    places: list[int] = []
    batch = Batch([], places)
    for place, item in enumerate(items):
        if isinstance(item, _Repeated):
            batch.refusals.append(Refusal(place, None, _twice(item), "row"))
        else:
            batch.rows.append(item)
            places.append(place)
    return batch


def _twice(item: _Repeated) -> str:
    return f'"{item.key[:60]}" is there twice'


def _unrepeated(item: Any) -> Any:
    """For SenML, which refuses a text and says it."""
    return _twice(item) if isinstance(item, _Repeated) else item
