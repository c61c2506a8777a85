"""The part of CBOR (RFC 8949) that packed batches are made of, written and read within bounds.

Integers of 64 bits, doubles, texts, byte strings, booleans, null, arrays and maps with text keys, all of definite
length; no tags. Any CBOR library writes and reads the same; floats of fewer bits are read, too. It is here because a
mobile broker on a 32-bit Raspberry Pi has none that can be installed without a compiler, and because a reader of
foreign bytes should know its bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final

from .errors import PackedError, Unpackable

MAX_DEPTH: Final = 8
"""Of arrays and maps in each other."""
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _ARRAY, _MAP, _SIMPLE = 0, 1, 2, 3, 4, 5, 7
_SIMPLES: Final = {0xF4: False, 0xF5: True, 0xF6: None}
_DOUBLE: Final = 0xFB
_WIDTHS: Final = {24: 1, 25: 2, 26: 4, 27: 8}
_LIMIT: Final = 1 << 64
_double = struct.Struct(">d")
_FLOATS: Final = {0xF9: struct.Struct(">e"), 0xFA: struct.Struct(">f"), _DOUBLE: _double}


def dumps(item: Any) -> bytes:
    """The bytes of an item; Unpackable if it is none of the kinds above."""
    out = bytearray()
    _write(item, out, 0)
    return bytes(out)


def _write(item: Any, out: bytearray, depth: int) -> None:
    kind = item.__class__
    if kind is int:
        _head(_UNSIGNED if item >= 0 else _NEGATIVE, item if item >= 0 else -1 - item, out)
    elif kind is float:
        out.append(_DOUBLE)
        out += _double.pack(item)
    elif kind is str:
        data = _utf8(item)
        _head(_TEXT, len(data), out)
        out += data
    elif kind is bytes:
        _head(_BYTES, len(item), out)
        out += item
    elif kind is bool or item is None:
        out.append(0xF6 if item is None else 0xF4 + item)
    elif depth >= MAX_DEPTH:
        raise Unpackable("nested too deeply")
    elif isinstance(item, Mapping):
        _head(_MAP, len(item), out)
        for name, value in item.items():
            _write(name, out, depth + 1)
            _write(value, out, depth + 1)
    elif isinstance(item, Sequence):
        _head(_ARRAY, len(item), out)
        for each in item:
            _write(each, out, depth + 1)
    else:
        raise Unpackable(f"no place for a {kind.__name__}")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Unpackable("a text that is not Unicode") from None


def _head(major: int, number: int, out: bytearray) -> None:
    if number < 24:
        out.append(major << 5 | number)
    elif number < 0x100:
        out += bytes((major << 5 | 24, number))
    elif number < 0x10000:
        out += struct.pack(">BH", major << 5 | 25, number)
    elif number < 0x1_0000_0000:
        out += struct.pack(">BI", major << 5 | 26, number)
    elif number < _LIMIT:
        out += struct.pack(">BQ", major << 5 | 27, number)
    else:
        raise Unpackable("an integer of more than 64 bits")


def loads(data: bytes) -> Any:
    """The one item that the bytes are; PackedError says what else they are. No more is built than the bytes hold."""
    try:
        item, end = _read(data, 0, 0)
    except (IndexError, struct.error):
        raise PackedError("the batch is cut") from None
    except UnicodeDecodeError:
        raise PackedError("a text that is not UTF-8") from None
    if end != len(data):
        raise PackedError("there is more after the batch")
    return item


def _read(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    first = data[at]
    major, number = first >> 5, first & 31
    at += 1
    if major == _SIMPLE:
        if (form := _FLOATS.get(first)) is not None:
            return form.unpack_from(data, at)[0], at + form.size
        if first in _SIMPLES:
            return _SIMPLES[first], at
        raise PackedError(f"byte {first:#x}, which no batch has")
    if number >= 24:
        width = _WIDTHS.get(number)
        if width is None:
            raise PackedError("a length that is not definite")
        if at + width > len(data):
            raise PackedError("the batch is cut")
        number = int.from_bytes(data[at : at + width], "big")
        at += width
    if major == _UNSIGNED:
        return number, at
    if major == _NEGATIVE:
        return -1 - number, at
    return _read_long(data, at, major, number, depth)


def _read_long(data: bytes, at: int, major: int, number: int, depth: int) -> tuple[Any, int]:
    """What has a length, which is never more than the bytes that are left."""
    if number > len(data) - at:
        raise PackedError("the batch is cut")
    if major == _TEXT:
        return data[at : at + number].decode(), at + number
    if major == _BYTES:
        return data[at : at + number], at + number
    if depth >= MAX_DEPTH:
        raise PackedError(f"nested deeper than {MAX_DEPTH}")
    if major == _ARRAY:
        items = []
        for _ in range(number):
            item, at = _read(data, at, depth + 1)
            items.append(item)
        return items, at
    if major == _MAP:
        return _read_map(data, at, number, depth)
    raise PackedError("a tag, which no batch has")


def _read_map(data: bytes, at: int, number: int, depth: int) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    for _ in range(number):
        name, at = _read(data, at, depth + 1)
        if name.__class__ is not str or name in members:
            raise PackedError("the names of a map must be texts, each once")
        members[name], at = _read(data, at, depth + 1)
    return members, at
