"""SenML packs (RFC 8428) in JSON and CBOR.

Records are resolved, and those of one source and one time become one publication (rule P2). A resolved name is the
source up to its last `:` or `/`, and the attribute after it; a whole `urn:dev:TYPE:ID` (RFC 9039) is a source that
says its `value`; without either sign the source is the client. Units `lat` and `lon` make the attributes `lat` and
`long`; any other unit of a number is the attribute with `_unit`, which the lake keeps beside it. `ut` and labels that
nobody knows are left out. A sum `s` is the attribute with `_sum`. A record with data (`vd`), without a value, or with
an unknown label that ends in `_` is refused. `time` is absent where the pack says no time: the reading is as old as its
arrival.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import cbor2

from ..names import UNIT_SUFFIX
from .batch import Batch, PayloadError, Refusal

VERSION = 10
"""Of SenML: a pack of a higher one must not be used."""
MAX_NAME = 256
"""Characters of a resolved name: a long base name would otherwise grow with every record."""
MAX_RECORDS = 100_000
"""In one pack."""
RELATIVE_SECONDS = 2**28
"""Times below count from now."""
VALUE_OF_A_DEVICE = "value"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]*")
_DEVICE = re.compile(r"urn:dev:[^:/]+:[^:/]+")
_SPLIT = re.compile(r"(.*)[:/](.*)", re.DOTALL)
_BASE = ("bn", "bt", "bu", "bv", "bs", "bver")
_VALUES = ("v", "vs", "vb", "vd", "s")
_LABELS = frozenset({*_BASE, *_VALUES, "n", "u", "t", "ut"})
_CBOR_LABELS = {-1: "bver", -2: "bn", -3: "bt", -4: "bu", -5: "bv", -6: "bs"}
_CBOR_LABELS |= dict(enumerate(("n", "u", "v", "vs", "vb", "s", "t", "ut", "vd")))
_PLACES = {"lat": "lat", "lon": "long"}
_OUR_OWN = frozenset({"id", "source", "time"})


class _Refused(ValueError):
    """One record."""


def is_pack(items: Any) -> bool:
    """Whether an array is a pack and not publications: by its first object, which has a base name, or nothing but
    labels of SenML with a name or a base value among them."""
    if not isinstance(items, list) or not items or not isinstance(items[0], dict):
        return False
    first = items[0]
    if isinstance(first.get("bn"), str):
        return True
    if not _LABELS.issuperset(first):
        return False
    return ("n" in first and any(name in first for name in _VALUES)) or any(name in first for name in _BASE)


def read_cbor(payload: bytes, received: float) -> Batch:
    """The rows of a pack in CBOR; PayloadError if it is none."""
    stream = io.BytesIO(payload)
    try:
        records = cbor2.load(stream)
    except (cbor2.CBORError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
        raise PayloadError(f"this is not CBOR: {str(error)[:100]}") from None
    if stream.tell() != len(payload):
        raise PayloadError("this is not CBOR: there is more after the pack")
    if not isinstance(records, list):
        raise PayloadError("a SenML pack is an array")
    return resolve([_named(record) for record in records], received)


def _named(record: Any) -> Any:
    if not isinstance(record, Mapping):
        return record
    return {_CBOR_LABELS.get(label, str(label)) if type(label) is int else label: record[label] for label in record}


@dataclass(slots=True)
class _Base:
    """What earlier records said for all that follow."""

    name: str = ""
    time: float = 0.0
    unit: str = ""
    value: float = 0.0
    sum: float = 0.0

    def take(self, record: dict[str, Any]) -> None:
        """The record's own base fields hold from the record on."""
        if "bver" in record and not _number(record, "bver") <= VERSION:
            raise PayloadError(f"SenML of version {record['bver']!r:.20}; this is read up to {VERSION}")
        if "bn" in record:
            self.name = _text(record, "bn")
        if "bu" in record:
            self.unit = _text(record, "bu")
        if "bt" in record:
            self.time = _number(record, "bt")
        if "bv" in record:
            self.value = _number(record, "bv")
        if "bs" in record:
            self.sum = _number(record, "bs")


@dataclass(slots=True)
class _Samples:
    """The publications that are being put together."""

    received: float
    rows: dict[tuple[str | None, float], dict[str, Any]] = field(default_factory=dict)
    places: list[int] = field(default_factory=list)

    def put(self, place: int, source: str | None, time: float, values: dict[str, Any]) -> None:
        """More values of one sample."""
        row = self.rows.get((source, time))
        if row is not None and (twice := row.keys() & values.keys()):
            raise _Refused(f"{min(twice)}: said twice for one source and time")
        if row is None:
            row = self.rows[source, time] = {} if source is None else {"source": source}
            self.places.append(place)
            if time:
                row["time"] = time
        row.update(values)


def resolve(records: list[Any], received: float) -> Batch:
    """The rows of a pack; PayloadError if it cannot be understood at all."""
    if len(records) > MAX_RECORDS:
        raise PayloadError(f"a pack of {len(records)} records; {MAX_RECORDS} are the most")
    base, samples = _Base(), _Samples(received)
    refusals: list[Refusal] = []
    for place, record in enumerate(records):
        try:
            _take(record, place, base, samples)
        except _Refused as refused:
            refusals.append(Refusal(place, None, f"SenML: {refused}", "row"))
    return Batch(list(samples.rows.values()), samples.places, refusals=refusals)


def _take(record: Any, place: int, base: _Base, samples: _Samples) -> None:
    if not isinstance(record, dict):
        raise _Refused(record if isinstance(record, str) else f"a record is an object, not {type(record).__name__}")
    try:
        base.take(record)
    except _Refused as refused:
        raise PayloadError(f"SenML: record {place}: {refused}") from None
    unknown = [name for name in record if not isinstance(name, str) or (name.endswith("_") and name not in _LABELS)]
    if unknown:
        raise _Refused(f"{unknown[0]!r:.60} must be understood, and is not")
    if record.keys() <= set(_BASE):
        return  # it says only what holds for others
    unit = _unit(record, base)
    source, attribute = _place(base.name + (_text(record, "n") if "n" in record else ""), unit)
    values = _values(record, attribute, base)
    if unit and unit not in _PLACES and isinstance(values.get(attribute), float):
        values[attribute + UNIT_SUFFIX] = unit
    samples.put(place, source, _time(record, base, samples.received), values)


def _place(name: str, unit: str) -> tuple[str | None, str]:
    """The source, None for the client itself, and the attribute."""
    if len(name) > MAX_NAME:
        raise _Refused(f"a name of {len(name)} characters; {MAX_NAME} are the most")
    if not _NAME.fullmatch(name):
        raise _Refused(f"{name!r:.60} is not a name")
    if _DEVICE.fullmatch(name):
        return name, VALUE_OF_A_DEVICE
    split = _SPLIT.fullmatch(name)
    source, attribute = (split[1].rstrip(":/") or None, split[2]) if split else (None, name)
    attribute = _PLACES.get(unit, attribute)
    if not attribute or attribute in _OUR_OWN:
        raise _Refused(f"{name!r:.60}: {attribute!r} cannot be an attribute's name")
    return source, attribute


def _unit(record: dict[str, Any], base: _Base) -> str:
    return _text(record, "u") if "u" in record else base.unit


def _time(record: dict[str, Any], base: _Base, received: float) -> float:
    time = base.time + (_number(record, "t") if "t" in record else 0.0)
    if not time:
        return 0.0
    return received + time if time < RELATIVE_SECONDS else time


def _values(record: dict[str, Any], attribute: str, base: _Base) -> dict[str, Any]:
    given = [name for name in _VALUES if name in record and name != "s"]
    if len(given) > 1:
        raise _Refused(f"{given[0]} and {given[1]}: a record has one value")
    values: dict[str, Any] = {}
    match given:
        case ["v"]:
            values[attribute] = base.value + _number(record, "v")
        case ["vs"]:
            values[attribute] = _text(record, "vs")
        case ["vb"]:
            values[attribute] = _boolean(record)
        case ["vd"]:
            raise _Refused("vd: data cannot be an attribute's value")
    if "s" in record:
        values[f"{attribute}_sum"] = base.sum + _number(record, "s")
    if not values and base.value:
        values[attribute] = base.value
    if not values:
        raise _Refused("a record without a value")
    return values


def _number(record: dict[str, Any], label: str) -> float:
    value = record[label]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise _Refused(f"{label}: expected a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _Refused(f"{label}: not a finite number")
    return number


def _text(record: dict[str, Any], label: str) -> str:
    if not isinstance(record[label], str):
        raise _Refused(f"{label}: expected a text, not {type(record[label]).__name__}")
    return str(record[label])


def _boolean(record: dict[str, Any]) -> bool:
    if not isinstance(record["vb"], bool):
        raise _Refused(f"vb: expected true or false, not {type(record['vb']).__name__}")
    return record["vb"]
