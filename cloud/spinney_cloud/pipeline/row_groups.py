"""The rows of a record, checked, and those that are alike together: so that whole columns are made of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import NoneType
from typing import Any

import orjson

from ..records import Publications, RecordError, Run
from .schema import COLUMNS

MAX_INTEGER = 2**63 - 1
MAX_SECONDS = 2**63 / 1e6
"""What columns of integers and of timestamps hold."""
_RUNS = frozenset((str, int, int, int, str, epoch, int) for epoch in (int, NoneType))
"""The types of what a run has."""
_FROM_RUN = frozenset({"id", "source"})
_NUMBER = frozenset({float, int, NoneType})
_FIXED = {"time": _NUMBER, "lat": _NUMBER, "long": _NUMBER, "type": frozenset({str, NoneType})}
"""What the reserved attributes may be."""
_VALUES = frozenset({float, int, str, bool, NoneType})
_KINDS = {
    frozenset({float}): "numbers",
    frozenset({int}): "numbers",
    frozenset({float, int}): "numbers",
    frozenset({str}): "texts",
    frozenset({bool}): "flags",
}
"""Where a group has the attributes whose values are of these types."""


def rows_of(record: Publications) -> list[dict[str, Any]]:
    """The rows of a record, objects; RecordError if they are not what its header says."""
    check_header(record)
    return parsed_rows(record)


def parsed_rows(record: Publications) -> list[dict[str, Any]]:
    """The same below a header that has been checked."""
    try:
        rows = orjson.loads(record.rows)
    except orjson.JSONDecodeError as error:
        raise RecordError(f"damaged rows: {error}") from error
    expected = sum(run.length for run in record.runs)
    if not isinstance(rows, list) or len(rows) != expected:
        found = len(rows) if isinstance(rows, list) else "no array of"
        raise RecordError(f"a damaged record: {found} rows, and runs of {expected}")
    return rows


def check_header(record: Publications) -> None:
    """RecordError if the header of a record is not what it should be."""
    if not _is_number(record.received) or not abs(record.received) < MAX_SECONDS:
        raise RecordError(f"a damaged record: received at {record.received!r:.60}")
    for run in record.runs:
        if tuple(map(type, run)) not in _RUNS or not _fits(run):
            raise RecordError(f"a damaged record: a run of {run!r:.200}")


def _fits(run: Run) -> bool:
    """Whether its numbers have room in the columns that they are for."""
    last, epoch = run.first + run.length, run.epoch or 0
    return run.length >= 0 and run.first >= 0 and last <= MAX_INTEGER and 0 <= run.boot <= MAX_INTEGER >= abs(epoch)


@dataclass(slots=True)
class Group:
    """Rows that have the same attributes, of the same kinds: by attribute, the values of all of them."""

    size: int
    fixed: dict[str, Sequence[Any]] = field(default_factory=dict)
    """The reserved attributes."""
    numbers: dict[str, Sequence[float]] = field(default_factory=dict)
    texts: dict[str, Sequence[str]] = field(default_factory=dict)
    flags: dict[str, Sequence[bool]] = field(default_factory=dict)


def groups_of(rows: Sequence[Any]) -> list[Group]:
    """Rows that follow one another and are alike, together; RecordError if one is no publication."""
    found: list[Group] = []
    if not set(map(type, rows)) <= {dict}:
        place, row = next((place, row) for place, row in enumerate(rows) if row.__class__ is not dict)
        raise RecordError(f"row {place}: a publication is an object, not {type(row).__name__}")
    for names, alike in groupby(rows, key=tuple):
        some = list(alike)
        group = _group(names, some)
        found += [group] if group is not None else [_alone(row) for row in some]
    return found


def _alone(row: dict[str, Any]) -> Group:
    group = _group(tuple(row), [row])
    assert group is not None, "one row is like itself"
    return group


def _group(names: tuple[str, ...], rows: Sequence[dict[str, Any]]) -> Group | None:
    """None if an attribute is not of one kind."""
    group = Group(len(rows))
    for name, column in zip(names, zip(*map(dict.values, rows), strict=True), strict=True):
        kinds = set(map(type, column))
        if not kinds <= _VALUES:
            wrong = min(kind.__name__ for kind in kinds - _VALUES)
            raise RecordError(f"{name[:60]}: a value is a number, a string or a boolean, not {wrong}")
        if name in COLUMNS:
            if not kinds <= _FIXED[name]:
                raise RecordError(f"{name}: it must not be {min(kind.__name__ for kind in kinds - _FIXED[name])}")
            group.fixed[name] = column
        elif name not in _FROM_RUN and kinds != {NoneType}:
            if (kind := _KINDS.get(frozenset(kinds))) is None:
                return None
            getattr(group, kind)[name] = column
    return group


def _is_number(value: Any) -> bool:
    return value.__class__ is float or value.__class__ is int
