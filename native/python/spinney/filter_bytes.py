"""Filters in the form that the C core takes: boxes for its index, a program for what boxes cannot say (spinney.h)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .boxes import Box, Constraint, Equals, Is, Prefix, Present, Range, Reach, all_of, conjuncts, reach
from .expression import Filter, Not, conjunction, properties
from .normal_form import normal_form
from .program_bytes import program

_MAX_PREDICATES = 255
"""In one box."""

_MAX_BYTES = 4 << 20
"""Of one filter, as in spinney.h."""

_CACHED_NAMES = 4096


class Split(NamedTuple):
    """A filter is true where one of the boxes holds and the rest is true; None if nothing is left to ask."""

    boxes: list[Box]
    rest: Filter | None


def split(condition: Filter) -> Split:
    """Boxes that say as much as boxes can. The rest is in normal form, so that equal filters come out equal."""
    parts = [(part, wanted, reach(part, wanted)) for part, wanted in conjuncts(condition)]
    exact = all_of(sorted((found for _, _, found in parts if found.exact), key=_size))
    vague = sorted((found for _, _, found in parts if not found.exact), key=_size)
    boxes = all_of([exact, *vague]).boxes
    if any(len(box) > _MAX_PREDICATES for box in boxes):
        return Split([_shortened(box) for box in boxes], normal_form(condition))
    if not boxes or (exact.exact and not vague):
        return Split(boxes, None)
    if not exact.exact:
        return Split(boxes, normal_form(condition))
    left = [part if wanted else Not(part) for part, wanted, found in parts if not found.exact]
    return Split(boxes, normal_form(conjunction(*left)))


def _size(found: Reach) -> int:
    return len(found.boxes)


def _shortened(box: Box) -> Box:
    return dict(sorted(box.items())[:_MAX_PREDICATES])


class FilterBytes(NamedTuple):
    """What the core takes, and the attributes that it names."""

    data: bytes
    names: tuple[str, ...]


def filter_bytes(condition: Filter) -> FilterBytes:
    """The filter's bytes; the same for filters that mean the same, as far as that is cheap to find out."""
    written = write(split(condition))
    return written if len(written.data) <= _MAX_BYTES else write(Split([{}], normal_form(condition)))


def write(parts: Split) -> FilterBytes:
    """The bytes of a filter that has been split."""
    names = {name for box in parts.boxes for name in box}
    if parts.rest is not None:
        names |= properties(parts.rest)
    index = {name: number for number, name in enumerate(sorted(names))}
    boxes = sorted({_box(box, index) for box in parts.boxes})
    pieces = [
        struct.pack("<2sBBH", b"SF", 1, parts.rest is not None, len(index)),
        *map(_name, index),
        struct.pack("<H", len(boxes)),
        *boxes,
    ]
    if parts.rest is not None:
        code = program(parts.rest, index)
        pieces += struct.pack("<I", len(code)), code
    return FilterBytes(b"".join(pieces), tuple(index))


@lru_cache(_CACHED_NAMES)
def _name(name: str) -> bytes:
    encoded = name.encode()
    return struct.pack("<H", len(encoded)) + encoded


def _box(box: Box, index: Mapping[str, int]) -> bytes:
    predicates = sorted((index[name], constraint) for name, constraint in box.items())
    return bytes([len(box)]) + b"".join(
        _PREDICATES[type(constraint)](number, constraint) for number, constraint in predicates
    )


def _range(attribute: int, constraint: Range) -> bytes:
    return struct.pack("<BHdd", 1, attribute, constraint.low, constraint.high)


def _equals(attribute: int, constraint: Equals) -> bytes:
    encoded = constraint.text.encode()
    return struct.pack("<BHI", 2, attribute, len(encoded)) + encoded


def _prefix(attribute: int, constraint: Prefix) -> bytes:
    encoded = constraint.text.encode()
    return struct.pack("<BHI", 3, attribute, len(encoded)) + encoded


def _is(attribute: int, constraint: Is) -> bytes:
    return struct.pack("<BHB", 4, attribute, constraint.flag)


def _present(attribute: int, _: Present) -> bytes:
    return struct.pack("<BH", 5, attribute)


_PREDICATES: dict[type[Constraint], Callable[[int, Any], bytes]] = {
    Range: _range,
    Equals: _equals,
    Prefix: _prefix,
    Is: _is,
    Present: _present,
}


ALL_TYPES: frozenset[type] = frozenset({float, str, bool})
_TYPES: dict[int, frozenset[type]] = {
    1: frozenset({float}),
    2: frozenset({str}),
    3: frozenset({str}),
    4: frozenset({bool}),
    5: ALL_TYPES,
}
"""Of a predicate, by its number."""


def types(filter_: FilterBytes) -> dict[str, frozenset[type]]:
    """Of each attribute that a filter names, the types that it tells apart: a value of another is to it as none is."""
    data, names = filter_
    if data[3]:  # what the program looks at is not looked into
        return dict.fromkeys(names, ALL_TYPES)
    found: dict[str, frozenset[type]] = {}
    at = 6 + sum(2 + len(name.encode()) for name in names)
    (boxes,) = struct.unpack_from("<H", data, at)
    at += 2
    for _ in range(boxes):
        count = data[at]
        at += 1
        for _ in range(count):
            kind, attribute = struct.unpack_from("<BH", data, at)
            found[names[attribute]] = found.get(names[attribute], frozenset()) | _TYPES[kind]
            at += _predicate_size(data, at)
    return found


def _predicate_size(data: bytes, at: int) -> int:
    if data[at] in (2, 3):
        (length,) = struct.unpack_from("<I", data, at + 3)
        return 7 + int(length)
    return {1: 19, 4: 4, 5: 3}[data[at]]
