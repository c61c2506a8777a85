"""Conditions as programs of the C core's stack machine (spinney.h, section 3)."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

from .casefold import fold
from .expression import (
    And,
    Arithmetic,
    Between,
    Call,
    CaseFold,
    Compare,
    Constant,
    Expression,
    Filter,
    In,
    Instant,
    IsNull,
    Like,
    Literal,
    Location,
    Not,
    Or,
    Property,
    Spatial,
    Temporal,
    Value,
)
from .geometry import MultiPolygon, Polygon
from .lowering import LAT, LONG, X, Y, any_equal, between, is_computed, spatial, temporal

_NUMBER, _STRING, _BOOLEAN, _NULL, _ATTRIBUTE = 0x01, 0x02, 0x03, b"\x04", 0x05
_ARITHMETIC = {"+": 0x10, "-": 0x11, "*": 0x12, "/": 0x13, "%": 0x14, "div": 0x15, "^": 0x16}
_CALL = {"abs": b"\x17", "distance": b"\x18"}
_CASEFOLD = b"\x19"
_COMPARE = {"=": 0x20, "<>": 0x21, "<": 0x22, ">": 0x23, "<=": 0x24, ">=": 0x25}
_ISNULL, _LIKE, _IN = b"\x26", 0x27, 0x28
_AND, _OR, _NOT = 0x30, 0x31, b"\x32"
_UNLESS_FALSE, _UNLESS_TRUE = 0x33, 0x34
_POLYGON, _NOT_OUTSIDE, _INSIDE = 0x40, 0, 1

_MAX_LIST = 0xFFFF
"""Constants in one IN."""


def program(condition: Filter, index: Mapping[str, int]) -> bytes:
    """The program that leaves the verdict. The index has the number of each attribute."""
    return _Writer(index).condition(condition)


class _Writer:
    def __init__(self, index: Mapping[str, int]) -> None:
        self._index = index

    def condition(self, condition: Filter) -> bytes:
        return _CONDITIONS[type(condition)](self, condition)

    def value(self, expression: Expression) -> bytes:
        return _VALUES[type(expression)](self, expression)

    # ---- conditions

    def constant(self, condition: Constant) -> bytes:
        return _NULL if condition.value is None else _literal(condition.value)

    def compare(self, condition: Compare) -> bytes:
        return self.value(condition.left) + self.value(condition.right) + bytes([_COMPARE[condition.operator]])

    def all_of(self, condition: And) -> bytes:
        return self._several(condition.operands, _UNLESS_FALSE, _AND)

    def any_of(self, condition: Or) -> bytes:
        return self._several(condition.operands, _UNLESS_TRUE, _OR)

    def _several(self, operands: tuple[Filter, ...], unless: int, combine: int) -> bytes:
        """Each jumps over what is left once the verdict is settled."""
        first, *others = (self.condition(operand) for operand in operands)
        left = b""
        for code in reversed(others):
            left = code + bytes([combine]) + left
            left = struct.pack("<BI", unless, len(left)) + left
        return first + left

    def negation(self, condition: Not) -> bytes:
        return self.condition(condition.operand) + _NOT

    def between(self, condition: Between) -> bytes:
        return self.condition(between(condition))

    def one_of(self, condition: In) -> bytes:
        constants = [_constant(value) for value in condition.values]
        if None in constants or len(constants) > _MAX_LIST:
            return self.condition(any_equal(condition))
        codes = b"".join(_literal(constant) for constant in constants if constant is not None)
        return self.value(condition.operand) + struct.pack("<BH", _IN, len(constants)) + codes

    def like(self, condition: Like) -> bytes:
        pattern = fold(condition.pattern) if condition.fold_pattern else condition.pattern
        return self.value(condition.operand) + _text(_LIKE, pattern)

    def is_null(self, condition: IsNull) -> bytes:
        operand = X if isinstance(condition.operand, Location) else condition.operand
        return self.value(operand) + _ISNULL

    def spatial(self, condition: Spatial) -> bytes:
        if is_computed(condition):
            return self.condition(spatial(condition, X, Y))
        geometry = condition.geometry
        assert isinstance(geometry, Polygon | MultiPolygon)
        polygons = geometry.polygons if isinstance(geometry, MultiPolygon) else (geometry,)
        mode = _INSIDE if condition.operator == "within" else _NOT_OUTSIDE
        head = struct.pack("<BBH", _POLYGON, mode, len(polygons))
        return self.value(LONG) + self.value(LAT) + head + b"".join(map(_polygon, polygons))

    def temporal(self, condition: Temporal) -> bytes:
        return self.condition(temporal(condition))

    # ---- values

    def literal(self, expression: Literal) -> bytes:
        return _literal(expression.value)

    def instant(self, expression: Instant) -> bytes:
        return _literal(expression.seconds)

    def property(self, expression: Property) -> bytes:
        return struct.pack("<BH", _ATTRIBUTE, self._index[expression.name])

    def arithmetic(self, expression: Arithmetic) -> bytes:
        operator = bytes([_ARITHMETIC[expression.operator]])
        return self.value(expression.left) + self.value(expression.right) + operator

    def call(self, expression: Call) -> bytes:
        return b"".join(map(self.value, expression.arguments)) + _CALL[expression.name]

    def casefold(self, expression: CaseFold) -> bytes:
        return self.value(expression.operand) + _CASEFOLD


def _constant(expression: Expression) -> Value | None:
    if isinstance(expression, Literal):
        return expression.value
    return expression.seconds if isinstance(expression, Instant) else None


def _literal(value: Value) -> bytes:
    if isinstance(value, bool):
        return bytes([_BOOLEAN, value])
    return _text(_STRING, value) if isinstance(value, str) else struct.pack("<Bd", _NUMBER, value)


def _text(opcode: int, text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<BI", opcode, len(encoded)) + encoded


def _polygon(polygon: Polygon) -> bytes:
    rings = [
        struct.pack(f"<I{2 * len(ring)}d", len(ring), *(number for position in ring for number in position))
        for ring in polygon.rings
    ]
    return struct.pack("<4dH", *polygon.bounds(), len(rings)) + b"".join(rings)


_CONDITIONS: dict[type[Filter], Callable[[_Writer, Any], bytes]] = {
    Constant: _Writer.constant,
    Compare: _Writer.compare,
    And: _Writer.all_of,
    Or: _Writer.any_of,
    Not: _Writer.negation,
    Between: _Writer.between,
    In: _Writer.one_of,
    Like: _Writer.like,
    IsNull: _Writer.is_null,
    Spatial: _Writer.spatial,
    Temporal: _Writer.temporal,
}

_VALUES: dict[type[Expression], Callable[[_Writer, Any], bytes]] = {
    Literal: _Writer.literal,
    Instant: _Writer.instant,
    Property: _Writer.property,
    Arithmetic: _Writer.arithmetic,
    Call: _Writer.call,
    CaseFold: _Writer.casefold,
}
