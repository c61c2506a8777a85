"""Where a filter can be true: boxes, that is, what single attributes must hold, for the indexes (spinney.h, section 3).

Boxes are exact when the filter has the verdict in them and nowhere else; otherwise they only contain where it has it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .casefold import fold
from .distance_box import circle, stretches
from .evaluate import evaluate, value
from .expression import (
    And,
    Between,
    CaseFold,
    Compare,
    ComparisonOperator,
    Constant,
    Expression,
    Filter,
    In,
    Instant,
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
    properties,
)
from .geometry import MultiPolygon, Polygon
from .like import literal_prefix, segments
from .lowering import LAT, LONG, OPPOSITE, any_equal, between, is_computed, is_number, oriented, spatial, temporal

MAX_BOXES = 256
"""Of one filter: an index looks into each. Where there would be more, one around them takes their place."""

_MAX_MEETINGS = 4096
"""Pairs of boxes looked at to find where two parts of a filter meet."""


class Range(NamedTuple):
    """A number from low to high, both included."""

    low: float
    high: float


class Equals(NamedTuple):
    """This string."""

    text: str


class Prefix(NamedTuple):
    """A string that begins so."""

    text: str


class Is(NamedTuple):
    """This boolean."""

    flag: bool


class Present(NamedTuple):
    """Anything but null."""


Constraint = Range | Equals | Prefix | Is | Present
Box = dict[str, Constraint]
"""What each attribute must be; an attribute that is not named may be anything."""

NUMBER = Range(-math.inf, math.inf)
STRING = Prefix("")
PRESENT = Present()


class Reach(NamedTuple):
    """Boxes around every publication of which a filter has a verdict."""

    boxes: list[Box]
    exact: bool


NOWHERE = Reach([], True)
EVERYWHERE = Reach([{}], True)


# ---- meeting and joining


def meet(one: Constraint, other: Constraint) -> Constraint | None:
    """Both at once; None if that cannot be."""
    if isinstance(one, Present):
        return other
    if isinstance(other, Present):
        return one
    if isinstance(one, Range) and isinstance(other, Range):
        low, high = max(one.low, other.low), min(one.high, other.high)
        return Range(low, high) if low <= high else None
    if isinstance(one, Prefix) and isinstance(other, Equals | Prefix):
        one, other = other, one
    if isinstance(one, Equals | Prefix) and isinstance(other, Prefix):
        if one.text.startswith(other.text):
            return one
        return other if isinstance(one, Prefix) and other.text.startswith(one.text) else None
    return one if type(one) is type(other) and one == other else None


def meet_boxes(one: Box, other: Box) -> Box | None:
    """Both at once; None if that cannot be."""
    both = dict(one)
    for name, constraint in other.items():
        if name in both:
            met = meet(both[name], constraint)
            if met is None:
                return None
            both[name] = met
        else:
            both[name] = constraint
    return both


def all_of(reaches: Iterable[Reach]) -> Reach:
    """Where all have it. The first are kept as they are; later ones give way where it gets too much."""
    boxes: list[Box] = [{}]
    exact = True
    for reach in reaches:
        more = reach.boxes
        met = _meetings(boxes, more) if len(boxes) * len(more) <= _MAX_MEETINGS else None
        if met is None or len(met) > MAX_BOXES:
            met, exact = _meetings(boxes, [_around(more)]), False
        boxes, exact = met, exact and reach.exact
        if not boxes:
            return NOWHERE
    return Reach(boxes, exact)


def _meetings(some: list[Box], others: list[Box]) -> list[Box]:
    if len(some) == 1 and not some[0]:
        return others
    return [box for one in some for other in others if (box := meet_boxes(one, other)) is not None]


def any_of(reaches: Iterable[Reach]) -> Reach:
    """Where one of them has it."""
    boxes: list[Box] = []
    exact = True
    for reach in reaches:
        boxes += reach.boxes
        exact = exact and reach.exact
    if len(boxes) > MAX_BOXES:
        return Reach([_around(boxes)], False)
    return Reach(boxes, exact)


def _around(boxes: Sequence[Box]) -> Box:
    """One box that contains all of these."""
    first, *others = boxes
    common = [name for name in first if all(name in box for box in others)]
    return {name: _join([box[name] for box in boxes]) for name in common}


def _join(constraints: Sequence[Constraint]) -> Constraint:
    ranges = [item for item in constraints if isinstance(item, Range)]
    if len(ranges) == len(constraints):
        return Range(min(item.low for item in ranges), max(item.high for item in ranges))
    texts = [item.text for item in constraints if isinstance(item, Equals | Prefix)]
    if len(texts) == len(constraints):
        return Prefix(_common_prefix(min(texts), max(texts)))
    return PRESENT


def _common_prefix(one: str, other: str) -> str:
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return one[:length]


# ---- conditions


def reach(condition: Filter, wanted: bool) -> Reach:
    """Where the filter is true, or where it is false."""
    return _REACH[type(condition)](condition, wanted)


def conjuncts(condition: Filter, wanted: bool = True) -> list[tuple[Filter, bool]]:
    """The parts that must all have their verdict for the whole to have the one that is wanted."""
    if isinstance(condition, Not):
        return conjuncts(condition.operand, not wanted)
    if isinstance(condition, And if wanted else Or):
        return [part for operand in condition.operands for part in conjuncts(operand, wanted)]
    return [(condition, wanted)]


def _constant(condition: Constant, wanted: bool) -> Reach:
    return EVERYWHERE if condition.value is wanted else NOWHERE


def _and(condition: And, wanted: bool) -> Reach:
    parts = [reach(operand, wanted) for operand in condition.operands]
    return all_of(sorted(parts, key=_size)) if wanted else any_of(parts)


def _or(condition: Or, wanted: bool) -> Reach:
    parts = [reach(operand, wanted) for operand in condition.operands]
    return any_of(parts) if wanted else all_of(sorted(parts, key=_size))


def _size(item: Reach) -> int:
    return len(item.boxes)


def _not(condition: Not, wanted: bool) -> Reach:
    return reach(condition.operand, not wanted)


def _compare(condition: Compare, wanted: bool) -> Reach:
    left, operator, right = oriented(condition)
    operator = operator if wanted else OPPOSITE[operator]
    if isinstance(left, Property):
        if isinstance(right, Literal):
            return _against(left.name, operator, right.value)
        if isinstance(right, Instant):
            return _against(left.name, operator, right.seconds)
        if not properties(right):
            return _against(left.name, operator, value(right, {}))
    return _of_computed(left, operator, right)


def _against(name: str, operator: ComparisonOperator, constant: Value | None) -> Reach:
    if constant is None:
        return NOWHERE
    if isinstance(constant, float):
        return Reach(_ranges(name, operator, constant), True)
    if isinstance(constant, str):
        return Reach([{name: Equals(constant)}], True) if operator == "=" else Reach([{name: STRING}], False)
    flags = [flag for flag in (False, True) if evaluate(Compare(operator, Literal(flag), Literal(constant)), {})]
    return Reach([{name: Is(flag)} for flag in flags], True)


def _ranges(name: str, operator: ComparisonOperator, number: float) -> list[Box]:
    number += 0.0  # -0 becomes 0, so that equal filters have equal boxes
    below = Range(-math.inf, math.nextafter(number, -math.inf))
    above = Range(math.nextafter(number, math.inf), math.inf)
    match operator:
        case "=":
            found = [Range(number, number)]
        case "<":
            found = [below]
        case "<=":
            found = [Range(-math.inf, number)]
        case ">":
            found = [above]
        case ">=":
            found = [Range(number, math.inf)]
        case _:
            found = [below, above]
    return [{name: item} for item in found if item.low != math.inf and item.high != -math.inf]


def _of_computed(left: Expression, operator: ComparisonOperator, right: Expression) -> Reach:
    """A comparison with something computed: what its parts must be for it to be known."""
    if not properties(left) and not properties(right):
        return EVERYWHERE if evaluate(Compare(operator, left, right), {}) else NOWHERE
    kind = _kind(left) or _kind(right)
    return all_of([_demand(left, kind), _demand(right, kind), _in_circle(left, operator, right)])


def _in_circle(left: Expression, operator: ComparisonOperator, right: Expression) -> Reach:
    around = circle(left, operator, right)
    if around is None:
        return INEXACT
    boxes: list[Box] = []
    for lat, long in stretches(around):
        sides = ((around.lat_name, lat), (around.long_name, long))
        boxes.append({name: Range(*stretch) for name, stretch in sides if stretch})
    return Reach(boxes, False)


def _between(condition: Between, wanted: bool) -> Reach:
    operand, low, high = condition.operand, condition.low, condition.high
    if wanted and isinstance(operand, Property) and isinstance(low, Literal) and isinstance(high, Literal):
        first, last = low.value, high.value
        if isinstance(first, float) and isinstance(last, float):
            return Reach([{operand.name: Range(first + 0.0, last + 0.0)}] if first <= last else [], True)
    return reach(between(condition), wanted)


def _in(condition: In, wanted: bool) -> Reach:
    return reach(any_equal(condition), wanted)


def _like(condition: Like, wanted: bool) -> Reach:
    pattern = fold(condition.pattern) if condition.fold_pattern else condition.pattern
    operand = condition.operand
    if not isinstance(operand, Property) or not wanted:
        return all_of([_demand(operand, str), INEXACT])
    parts = segments(pattern)
    prefix = literal_prefix(pattern)
    whole_prefix = len(prefix) == len(parts[0])
    if whole_prefix and len(parts) == 1:
        return Reach([{operand.name: Equals(prefix)}], True)
    return Reach([{operand.name: Prefix(prefix)}], whole_prefix and not any(parts[1:]))


def _is_null(condition: IsNull, wanted: bool) -> Reach:
    operand = condition.operand
    if wanted:
        return INEXACT
    if isinstance(operand, Location):
        return LOCATED
    return all_of([_demand(operand, None), EVERYWHERE if isinstance(operand, Property) else INEXACT])


LOCATED = Reach([{LAT.name: NUMBER, LONG.name: NUMBER}], True)
INEXACT = Reach([{}], False)


def _spatial(condition: Spatial, wanted: bool) -> Reach:
    if is_computed(condition):
        return all_of([LOCATED, reach(spatial(condition, LONG, LAT), wanted)])
    if not wanted:
        return all_of([LOCATED, INEXACT])
    geometry = condition.geometry
    assert isinstance(geometry, Polygon | MultiPolygon)
    polygons = geometry.polygons if isinstance(geometry, MultiPolygon) else (geometry,)
    return any_of([*(Reach([_bounds(polygon)], False) for polygon in polygons)])


def _bounds(polygon: Polygon) -> Box:
    west, south, east, north = polygon.bounds()
    return {LONG.name: Range(west, east), LAT.name: Range(south, north)}


def _temporal(condition: Temporal, wanted: bool) -> Reach:
    return reach(temporal(condition), wanted)


_REACH: dict[type[Filter], Callable[[Any, bool], Reach]] = {
    Constant: _constant,
    And: _and,
    Or: _or,
    Not: _not,
    Compare: _compare,
    Between: _between,
    In: _in,
    Like: _like,
    IsNull: _is_null,
    Spatial: _spatial,
    Temporal: _temporal,
}


# ---- values

Kind = type[float] | type[str] | type[bool] | None
"""What a value must be; None for anything but null."""


def _kind(expression: Expression) -> Kind:
    """What the value of an expression is, if it is not null; None if that depends on the publication."""
    if is_number(expression):
        return float
    if isinstance(expression, CaseFold):
        return str
    return type(expression.value) if isinstance(expression, Literal) else None


def _demand(expression: Expression, kind: Kind) -> Reach:
    """Where the value of an expression can be of a kind."""
    if isinstance(expression, Property):
        return Reach([{expression.name: NUMBER if kind is float else STRING if kind is str else PRESENT}], True)
    own = _kind(expression)
    if kind is not None and kind is not own:
        return NOWHERE
    inner: Kind = str if isinstance(expression, CaseFold) else float
    return all_of([_demand(child, inner) for child in _operands(expression)])


def _operands(expression: Node) -> list[Expression]:
    return [child for child in expression.children() if isinstance(child, Expression)]
