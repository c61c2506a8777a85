"""One attribute of many rows: numbers as the difference to the row before of the same source, the rest by a table.

A column has a kind, one byte, and its data. With one row the data are the value itself: for decimals the integer.

| kind | values | data of several rows |
| --- | --- | --- |
| 0 to 15 | doubles that are m / 10^kind, m an integer below 2^53 | as integers, of m |
| 32 | integers below 2^62 | [first of each source, ..., differences] |
| 33 | any doubles | their bits: each XOR that of the row before it |
| 34 | anything: texts, booleans, a mixture | [[each value once, ...], which of them each row has] |

A source's first value is the difference to that of the source before. Differences are signed integers of 1, 2, 4 or 8
bytes, little endian, all of one width: the first byte of each, then the second of each, and so on. No bytes: all 0.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from operator import sub, xor
from typing import Any, Final

from .errors import PackedError, Unpackable

MAX_SCALE: Final = 15
INTEGERS, DOUBLES, TABLE = 32, 33, 34
SCALARS: Final = frozenset({int, float, str, bool, type(None)})
"""What attributes are, as Python has them; None is a missing one."""
_EXACT: Final = 1 << 53
_SMALL: Final = 1 << 62
_FORMS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
_PROBE: Final = 8
"""Values that are looked at for how many digits they have, before all are tried."""


class Before:
    """Of each row, which row before it has the same source; of a source's first row, the first row of another."""

    __slots__ = ("firsts", "pairs")

    def __init__(self, sources: Sequence[Any]) -> None:
        self.firsts: list[int] = []
        self.pairs: list[tuple[int, int]] = []
        """Of all other rows: the row, and the one before it."""
        last: dict[Any, int] = {}
        for row, source in enumerate(sources):
            before = last.get(source)
            if before is None:
                self.firsts.append(row)
            else:
                self.pairs.append((row, before))
            last[source] = row


def write(values: Sequence[Any], before: Before) -> tuple[int, Any]:
    """Kind and data."""
    kinds = set(map(type, values))
    if kinds == {float}:
        return _write_doubles(values, before)
    if kinds == {int} and all(-_SMALL < value < _SMALL for value in values):
        return INTEGERS, write_integers(values, before)
    return TABLE, write_table(values) if len(values) > 1 else write_table(values)[0][0]


def read(kind: int, data: Any, count: int, before: Before) -> Sequence[Any]:
    """What gave this kind and these data; PackedError if nothing did."""
    if kind <= MAX_SCALE:
        power = 10**kind
        numbers = read_integers(data, count, before)
        if any(not -_EXACT < number < _EXACT for number in numbers):
            raise PackedError("a decimal of 2^53 or more")
        return [number / power for number in numbers]
    if kind == INTEGERS:
        return [_small(number) for number in read_integers(data, count, before)]
    if kind == DOUBLES:
        return _read_bits(data, count)
    if kind == TABLE:
        return [check_scalar(data)] if count == 1 else read_table(data, count)
    raise PackedError(f"there is no kind {kind} of columns")


# ---- doubles


def _write_doubles(values: Sequence[float], before: Before) -> tuple[int, Any]:
    decimals = _decimals(values)
    if decimals is not None:
        scale, numbers = decimals
        return scale, write_integers(numbers, before)
    return DOUBLES, values[0] if len(values) == 1 else _write_bits(values)


def _decimals(values: Sequence[float]) -> tuple[int, list[int]] | None:
    """The scale with which all are decimals, and their integers, if there is one that gives exactly these doubles."""
    for part in (values[:_PROBE], values):
        scale = max(_digits(value) for value in part)
        if scale > MAX_SCALE:
            return None
        power = 10**scale
        if max(map(abs, values)) * power >= _EXACT:
            return None
        numbers = [round(value * power) for value in values]
        if all(number / power == value for number, value in zip(numbers, values, strict=True)):
            return None if any(map(_is_negative_zero, values)) else (scale, numbers)
    return None


def _digits(value: float) -> int:
    """After the point, in the shortest decimal that is this double."""
    text = repr(value)
    if "e" in text or "n" in text:
        return MAX_SCALE + 1
    after = len(text) - text.index(".") - 1
    return 0 if after == 1 and text.endswith("0") else after


def _is_negative_zero(value: float) -> bool:
    return value == 0.0 and math.copysign(1.0, value) < 0.0


def _write_bits(values: Sequence[float]) -> bytes:
    bits = struct.unpack(f"<{len(values)}Q", struct.pack(f"<{len(values)}d", *values))
    differences = [bits[0], *map(xor, bits[1:], bits)]
    return _planes(struct.pack(f"<{len(values)}Q", *differences), 8)


def _read_bits(data: Any, count: int) -> Sequence[float]:
    if count == 1 and data.__class__ is float:
        return [_finite(data)]
    if data.__class__ is not bytes or len(data) != 8 * count:
        raise PackedError("doubles of another length")
    bits, found = 0, []
    for difference in struct.unpack(f"<{count}Q", _from_planes(data, 8)):
        bits ^= difference
        found.append(bits)
    values = struct.unpack(f"<{count}d", struct.pack(f"<{count}Q", *found))
    return [_finite(value) for value in values]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise PackedError("a double that is not finite")
    return value


# ---- integers


def write_integers(values: Sequence[int], before: Before) -> Any:
    """The one, or the firsts and the differences."""
    if len(values) == 1:
        return values[0]
    firsts = [values[row] for row in before.firsts]
    differences = [values[row] - values[last] for row, last in before.pairs]
    return [firsts[0], *map(sub, firsts[1:], firsts), _as_bytes(differences)]


def _as_bytes(differences: list[int]) -> bytes:
    largest = max((number if number >= 0 else -1 - number for number in differences), default=0)
    if not largest and not any(differences):
        return b""
    width = next(width for width in _FORMS if largest < 1 << (8 * width - 1))
    return _planes(struct.pack(f"<{len(differences)}{_FORMS[width]}", *differences), width)


def read_integers(data: Any, count: int, before: Before) -> Sequence[int]:
    """What gave these."""
    if count == 1:
        return [_integer(data)]
    if data.__class__ is not list or len(data) != len(before.firsts) + 1 or data[-1].__class__ is not bytes:
        raise PackedError("integers of another length")
    values = [0] * count
    value = 0
    for row, difference in zip(before.firsts, data, strict=False):
        value += _integer(difference)
        values[row] = value
    differences = _from_bytes(data[-1], len(before.pairs))
    for (row, last), difference in zip(before.pairs, differences, strict=True):
        values[row] = values[last] + difference
    return values


def _small(value: int) -> int:
    if not -_SMALL < value < _SMALL:
        raise PackedError("an integer of 2^62 or more")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise PackedError("a column of integers with something else")
    return value


def _from_bytes(data: bytes, count: int) -> Sequence[int]:
    if not data:
        return [0] * count
    width = len(data) // max(1, count)
    if width not in _FORMS or len(data) != width * count:
        raise PackedError("differences of another length")
    return struct.unpack(f"<{count}{_FORMS[width]}", _from_planes(data, width))


def _planes(data: bytes, width: int) -> bytes:
    return data if width == 1 else b"".join(data[first::width] for first in range(width))


def _from_planes(data: bytes, width: int) -> bytes:
    if width == 1:
        return data
    count = len(data) // width
    out = bytearray(len(data))
    for place in range(width):
        out[place::width] = data[place * count : (place + 1) * count]
    return bytes(out)


# ---- anything


def write_table(values: Sequence[Any]) -> Any:
    """Each value once, and which of them each row has."""
    places: dict[tuple[type, Any], int] = {}
    each: list[Any] = []
    which = []
    for value in values:
        place = places.setdefault(_key(value), len(each))
        if place == len(each):
            each.append(value)
        which.append(place)
    return [each, write_places(which, len(each))]


def _key(value: Any) -> tuple[type, Any]:
    """Apart from what is equal to it and yet another value: 1, 1.0 and True; 0.0 and -0.0."""
    kind = value.__class__
    if kind not in SCALARS:
        raise Unpackable(f"no attribute is a {kind.__name__}")
    if kind is int and not -_SMALL < value < _SMALL:
        raise Unpackable("an integer of 2^62 or more")
    return kind, struct.pack("<d", value) if kind is float else value


def read_table(data: Any, count: int) -> list[Any]:
    """What gave these."""
    match data:
        case [list(values), bytes(places)]:
            for value in values:
                check_scalar(value)
            return list(map(values.__getitem__, read_places(places, count, len(values))))
    raise PackedError("a table is [values, places]")


def check_scalar(value: Any) -> Any:
    """The value, if an attribute may have it; PackedError if not."""
    kind = value.__class__
    if kind not in SCALARS:
        raise PackedError("an attribute is a number, a text or a boolean")
    return _finite(value) if kind is float else _small(value) if kind is int else value


def write_places(places: Sequence[int], size: int) -> bytes:
    """Numbers below the size: a byte each, or two; none if there is but one."""
    if size <= 1:
        return b""
    return bytes(places) if size <= 0x100 else _planes(struct.pack(f"<{len(places)}H", *places), 2)


def read_places(data: bytes, count: int, size: int) -> Sequence[int]:
    """What gave these."""
    if size == 1 and not data:
        return [0] * count
    width = 1 if size <= 0x100 else 2
    if len(data) != width * count:
        raise PackedError("places of another length")
    places = data if width == 1 else struct.unpack(f"<{count}H", _from_planes(data, 2))
    if count and max(places) >= size:
        raise PackedError("a place beyond the table")
    return places
