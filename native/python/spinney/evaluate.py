"""The meaning of a filter: the reference that every other tier is tested against.

Three-valued logic as in SQL (rule P1). None is null for values and unknown for conditions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
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
    Interval,
    IsNull,
    Like,
    Literal,
    Location,
    Node,
    Not,
    Or,
    Property,
    Spatial,
    Temporal,
    Value,
)
from .geodesy import distance
from .geometry import Place, Point, Position
from .like import like
from .publication import attribute

Verdict = bool | None
Trace = list[tuple[Filter, Verdict]]

EXACT_EXPONENT = 1024
"""Whole exponents up to this are repeated multiplication, so that every tier gets the same bits."""


def evaluate(condition: Filter, publication: Mapping[str, Any], trace: Trace | None = None) -> Verdict:
    """True, False or None (unknown). A trace receives each condition with its verdict, parts before the whole."""
    verdict = _verdict(condition, publication, trace)
    if trace is not None:
        trace.append((condition, verdict))
    return verdict


def _verdict(condition: Filter, publication: Mapping[str, Any], trace: Trace | None) -> Verdict:
    match condition:
        case Constant(verdict):
            return verdict
        case Compare(operator, left, right):
            return compare(operator, value(left, publication), value(right, publication))
        case And(operands):
            return all_of([evaluate(operand, publication, trace) for operand in operands])
        case Or(operands):
            return any_of([evaluate(operand, publication, trace) for operand in operands])
        case Not(operand):
            return negate(evaluate(operand, publication, trace))
        case Between(operand, low, high):
            middle = value(operand, publication)
            return all_of(
                [compare(">=", middle, value(low, publication)), compare("<=", middle, value(high, publication))]
            )
        case In(operand, values):
            wanted = value(operand, publication)
            return any_of([compare("=", wanted, value(item, publication)) for item in values])
        case Like(operand, pattern, fold_pattern):
            text = value(operand, publication)
            return like(text, fold(pattern) if fold_pattern else pattern) if isinstance(text, str) else None
        case IsNull(Location()):
            return location(publication) is None
        case IsNull(operand):
            return value(operand, publication) is None
        case Spatial():
            return _spatial(condition, location(publication))
        case Temporal(operator, left, right):
            return _temporal(operator, _span(left, publication), _span(right, publication))
    raise TypeError(f"not a condition: {condition!r}")


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """AND: the least of false < unknown < true."""
    seen = set(verdicts)
    return False if False in seen else None if None in seen else True


def any_of(verdicts: Iterable[Verdict]) -> Verdict:
    """OR: the greatest of false < unknown < true."""
    seen = set(verdicts)
    return True if True in seen else None if None in seen else False


def negate(verdict: Verdict) -> Verdict:
    """NOT."""
    return None if verdict is None else not verdict


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
}


def compare(operator: str, left: Value | None, right: Value | None) -> Verdict:
    """Numbers by size, strings by code point, false before true; unknown across types and with null."""
    if left is None or right is None or type(left) is not type(right):
        return None
    return _COMPARE[operator](left, right)


# ---- values


def value(expression: Expression, publication: Mapping[str, Any]) -> Value | None:
    """The value of an expression, or None (null)."""
    match expression:
        case Literal(constant):
            return constant
        case Property(name):
            return attribute(publication, name)
        case Instant(seconds):
            return seconds
        case Arithmetic(operator, left, right):
            return arithmetic(operator, value(left, publication), value(right, publication))
        case Call(name, arguments):
            return call(name, [value(argument, publication) for argument in arguments])
        case CaseFold(operand):
            text = value(operand, publication)
            return fold(text) if isinstance(text, str) else None
    raise TypeError(f"not a value: {expression!r}")


def arithmetic(operator: str, left: Value | None, right: Value | None) -> float | None:
    """One IEEE operation; null for operands that are not numbers and for results that are not finite."""
    if not isinstance(left, float) or not isinstance(right, float):
        return None
    try:
        result = _ARITHMETIC[operator](left, right)
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    return result if math.isfinite(result) else None


def _divide_whole(left: float, right: float) -> float:
    return float(math.trunc(left / right))


def _power(base: float, exponent: float) -> float:
    if exponent == 0.5:
        return math.sqrt(base)
    if not exponent.is_integer() or abs(exponent) > EXACT_EXPONENT:
        return math.pow(base, exponent)
    result, square, left = 1.0, base, int(abs(exponent))
    while left:
        if left & 1:
            result *= square
        left >>= 1
        if left:
            square *= square
    return 1.0 / result if exponent < 0 else result


_ARITHMETIC: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": math.fmod,
    "div": _divide_whole,
    "^": _power,
}


def call(name: str, arguments: list[Value | None]) -> float | None:
    """abs() and distance(); null unless all arguments are numbers."""
    numbers = [argument for argument in arguments if isinstance(argument, float)]
    if len(numbers) != len(arguments):
        return None
    return abs(numbers[0]) if name == "abs" else distance(*numbers)


# ---- place and time


def location(publication: Mapping[str, Any]) -> Position | None:
    """The point (long, lat), if the publication has both as numbers."""
    x, y = attribute(publication, "long"), attribute(publication, "lat")
    return (x, y) if isinstance(x, float) and isinstance(y, float) else None


def _spatial(condition: Spatial, point: Position | None) -> Verdict:
    if point is None:
        return None
    if condition.operator == "within" and not condition.location_first:
        return isinstance(condition.geometry, Point) and condition.geometry.position == point
    place = condition.geometry.place(*point)
    return place is Place.INSIDE if condition.operator == "within" else place is not Place.OUTSIDE


Span = tuple[float, float]


def _span(side: Node, publication: Mapping[str, Any]) -> Span | None:
    """First and last moment: the same for an instant; open ends are infinite."""
    if isinstance(side, Interval):
        return (
            side.start.seconds if side.start else -math.inf,
            side.end.seconds if side.end else math.inf,
        )
    assert isinstance(side, Expression)
    moment = value(side, publication)
    return (moment, moment) if isinstance(moment, float) else None


def _temporal(operator: str, left: Span | None, right: Span | None) -> Verdict:
    if left is None or right is None:
        return None
    if operator == "before":
        return left[1] < right[0]
    if operator == "after":
        return left[0] > right[1]
    return left[0] > right[0] and left[1] < right[1]
