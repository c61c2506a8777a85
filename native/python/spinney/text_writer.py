"""Prints filters as CQL2 Text and subscriptions as one line, with as few parentheses as keep the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from . import instants
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
)
from .geometry import BBox, Geometry, Point, Polygon, Ring
from .subscription import ContentSubscription, StateSubscription, Subscription, TopKSubscription
from .text import CLAUSES, RESERVED
from .tokens import NAME, quote_string

_PLAIN_NAME = re.compile(NAME)
_QUOTED_WORDS = RESERVED | CLAUSES | {"DIV"}
_SUM, _PRODUCT, _POWER, _ATOM = range(4)
_POWERS = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "%": _PRODUCT, "div": _PRODUCT, "^": _POWER}
NEVER_KNOWN = "0 / 0 = 0"
"""How text says UNKNOWN: arithmetic without a finite result is null."""

_CACHED_NAMES = 4096
_UNITS = (("d", 86_400.0), ("h", 3_600.0), ("m", 60.0), ("s", 1.0))


def filter_text(condition: Filter) -> str:
    """CQL2 Text of a filter."""
    match condition:
        case Constant(value):
            return NEVER_KNOWN if value is None else _boolean(value)
        case Compare(operator, left, right):
            return f"{value_text(left)} {operator} {value_text(right)}"
        case And(operands):
            return " AND ".join(_in_parentheses(operand, Or) for operand in operands)
        case Or(operands):
            return " OR ".join(map(filter_text, operands))
        case Not(operand):
            return _negation(operand)
        case Temporal(operator, left, right):
            return f"T_{operator.upper()}({_moment_text(left)}, {_moment_text(right)})"
        case Spatial(operator, geometry, location_first):
            sides = ("location", geometry_text(geometry))
            return f"S_{operator.upper()}({', '.join(sides if location_first else reversed(sides))})"
    return _predicate(condition, "")


def _negation(operand: Filter) -> str:
    if isinstance(operand, Between | In | Like | IsNull):
        return _predicate(operand, "NOT ")
    return f"NOT {_in_parentheses(operand, And | Or)}"


def _predicate(condition: Filter, negation: str) -> str:
    match condition:
        case Between(operand, low, high):
            return f"{value_text(operand)} {negation}BETWEEN {value_text(low)} AND {value_text(high)}"
        case In(operand, values):
            return f"{value_text(operand)} {negation}IN ({', '.join(map(value_text, values))})"
        case Like(operand, pattern, fold_pattern):
            quoted = quote_string(pattern)
            return f"{value_text(operand)} {negation}LIKE {f'CASEI({quoted})' if fold_pattern else quoted}"
        case IsNull(operand):
            return f"{_null_operand(operand)} IS {negation}NULL"
    raise TypeError(f"not a condition: {condition!r}")


def _null_operand(operand: Expression) -> str:
    if isinstance(operand, Location):
        return "location"
    return '"location"' if operand == Property("location") else value_text(operand)


def _in_parentheses(operand: Filter, kinds: object) -> str:
    text = filter_text(operand)
    return f"({text})" if isinstance(operand, kinds) else text  # type: ignore[arg-type]  # a class or a union of them


def value_text(expression: Expression) -> str:
    """CQL2 Text of a value."""
    match expression:
        case Literal(value):
            return literal_text(value)
        case Property(name):
            return name_text(name)
        case Instant(seconds, is_date):
            return f"{'DATE' if is_date else 'TIMESTAMP'}('{_instant_text(seconds, is_date)}')"
        case Arithmetic(operator, left, right):
            right_power = _POWERS[operator] + (operator != "^")
            left_power = _POWERS[operator] + (operator == "^")
            return f"{_operand(left, left_power)} {operator} {_operand(right, right_power)}"
        case Call(name, arguments):
            return f"{name}({', '.join(map(value_text, arguments))})"
        case CaseFold(operand):
            return f"CASEI({value_text(operand)})"
    raise TypeError(f"not a value: {expression!r}")


def _operand(expression: Expression, power: int) -> str:
    text = value_text(expression)
    own = _POWERS[expression.operator] if isinstance(expression, Arithmetic) else _ATOM
    return f"({text})" if own < power else text


def literal_text(value: float | str | bool) -> str:
    """A number, a quoted string, TRUE or FALSE."""
    if isinstance(value, bool):
        return _boolean(value)
    return quote_string(value) if isinstance(value, str) else number_text(value)


def _boolean(value: bool) -> str:
    return "TRUE" if value else "FALSE"


def number_text(value: float) -> str:
    """The shortest digits that give the same double, without a point where it is whole."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


@lru_cache(_CACHED_NAMES)
def name_text(name: str) -> str:
    """An attribute's name, in double quotes where it would not be read as one."""
    if _PLAIN_NAME.fullmatch(name) and name.upper() not in _QUOTED_WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def _instant_text(seconds: float, is_date: bool) -> str:
    return instants.format_date(seconds) if is_date else instants.format_timestamp(seconds)


def _moment_text(side: Node) -> str:
    if isinstance(side, Interval):
        ends = (f"'{_instant_text(end.seconds, end.is_date)}'" if end else "'..'" for end in (side.start, side.end))
        return f"INTERVAL({', '.join(ends)})"
    assert isinstance(side, Expression)
    return value_text(side)


# ---- geometries


def geometry_text(geometry: Geometry) -> str:
    """Well-known text, or BBOX."""
    match geometry:
        case BBox(west, south, east, north):
            return f"BBOX({', '.join(map(number_text, (west, south, east, north)))})"
        case Point((x, y)):
            return f"POINT({number_text(x)} {number_text(y)})"
        case Polygon(rings):
            return f"POLYGON{_rings_text(rings)}"
    return f"MULTIPOLYGON({', '.join(_rings_text(polygon.rings) for polygon in geometry.polygons)})"


def _rings_text(rings: Iterable[Ring]) -> str:
    return f"({', '.join(map(_ring_text, rings))})"


def _ring_text(ring: Ring) -> str:
    return f"({', '.join(f'{number_text(x)} {number_text(y)}' for x, y in ring)})"


# ---- subscriptions


def subscription_text(subscription: Subscription) -> str:
    """The one-line form of a subscription."""
    match subscription:
        case ContentSubscription(filter=condition):
            return filter_text(condition)
        case StateSubscription():
            return _state_text(subscription)
        case TopKSubscription():
            return _top_k_text(subscription)
    raise TypeError(f"not a kind of subscription: {subscription!r}")


def _state_text(subscription: StateSubscription) -> str:
    text = f"WHEN {filter_text(subscription.enter)} UNTIL {filter_text(subscription.exit)}"
    if subscription.only is not None:
        text += f" FOR {filter_text(subscription.only)}"
    if subscription.each is not None:
        text += f" EACH {name_text(subscription.each)}"
    return text + (" ONCE" if subscription.once else "")


def _top_k_text(subscription: TopKSubscription) -> str:
    if subscription.last is not None:
        window = f"LAST {subscription.last}"
    else:
        assert subscription.seconds is not None
        window = duration_text(subscription.seconds)
    text = f"TOP {subscription.k} OVER {window} BY {value_text(subscription.score)}"
    text += " DESC" if subscription.descending else ""
    if subscription.where is not None:
        text += f" WHERE {filter_text(subscription.where)}"
    return text + (f" EACH {name_text(subscription.each)}" if subscription.each is not None else "")


def duration_text(seconds: float) -> str:
    """24h is 86400 seconds; the largest unit that gives a whole number."""
    for unit, size in _UNITS:
        if seconds >= size and seconds % size == 0:
            return f"{number_text(seconds / size)}{unit}"
    return f"{Decimal(repr(seconds)):f}s"  # never with an exponent
