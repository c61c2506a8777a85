"""Tests as the bytes that the mote's machine runs (firmware/README.md, Formats)."""

from __future__ import annotations

import struct

from .attributes import HIGHEST, LOWEST
from .formula import ALWAYS, NEVER, All, Formula, Presence, Some, SumWithin, Within

MAX_CODE = 255
"""Bytes of one part of a program: jumps and sizes are one byte."""

JUMP_FALSE, JUMP_TRUE, CLEAR, ADD, ADD_PRODUCT, NO, YES = range(7)
PRESENT, ABSENT, AT_LEAST, AT_MOST, BETWEEN, WIDE, OUTSIDE = (kind << 5 for kind in range(1, 8))
WIDE_AT_LEAST, WIDE_AT_MOST, WIDE_BETWEEN, WIDE_OUTSIDE = range(4)
SUM = 29
_SHORT = range(-(2**15), 2**15)


class TooLongError(Exception):
    """The filter does not fit into a program."""


def assemble(test: Formula) -> bytes:
    """The code of a test."""
    code = _code(test)
    if len(code) > MAX_CODE:
        raise TooLongError(f"the filter takes {len(code)} bytes, more than {MAX_CODE}")
    return code


def _code(test: Formula) -> bytes:
    match test:
        case All(parts):
            return _chain(parts, JUMP_FALSE)
        case Some(parts):
            return _chain(parts, JUMP_TRUE)
        case Presence(index, wanted):
            return bytes([(PRESENT if wanted else ABSENT) | index])
        case Within(index, low, high, inside):
            return _within(index, low, high, inside)
        case SumWithin(terms, low, high, inside):
            sums = b"".join(_term(factor, attributes) for factor, attributes in terms)
            return bytes([CLEAR]) + sums + _within(SUM, low, high, inside)
    assert test in (ALWAYS, NEVER)
    return bytes([YES if test == ALWAYS else NO])


def _chain(parts: tuple[Formula, ...], jump: int) -> bytes:
    """Each part decides the whole, or leaves it to the next."""
    code = _code(parts[-1])
    for part in reversed(parts[:-1]):
        if len(code) > MAX_CODE:
            raise TooLongError(f"the filter takes more than {MAX_CODE} bytes")
        code = _code(part) + bytes([jump, len(code)]) + code
    return code


def _term(factor: int, attributes: tuple[int, ...]) -> bytes:
    return bytes([ADD if len(attributes) == 1 else ADD_PRODUCT, *attributes]) + struct.pack("<i", factor)


def _within(index: int, low: int, high: int, inside: bool) -> bytes:
    if inside and (low == LOWEST or high == HIGHEST):
        bound, short, wide = (low, AT_LEAST, WIDE_AT_LEAST) if high == HIGHEST else (high, AT_MOST, WIDE_AT_MOST)
        if bound in _SHORT:
            return struct.pack("<Bh", short | index, bound)
        return struct.pack("<BBi", WIDE | index, wide, bound)
    if low in _SHORT and high in _SHORT:
        return struct.pack("<Bhh", (BETWEEN if inside else OUTSIDE) | index, low, high)
    return struct.pack("<BBii", WIDE | index, WIDE_BETWEEN if inside else WIDE_OUTSIDE, low, high)
