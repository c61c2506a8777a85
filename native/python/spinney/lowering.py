"""Places, times, ranges and lists said in comparisons alone: for boxes, programs and compiled filters.

What is said here has the same verdict on every publication, unknown included.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from .evaluate import evaluate
from .expression import (
    And,
    Arithmetic,
    Between,
    Call,
    Compare,
    ComparisonOperator,
    Constant,
    Expression,
    Filter,
    In,
    Instant,
    Interval,
    Literal,
    Property,
    Spatial,
    Temporal,
    disjunction,
)
from .geometry import BBox, Point

LAT = Property("lat")
LONG = Property("long")

OPPOSITE: Mapping[ComparisonOperator, ComparisonOperator] = {
    "=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
}  # fmt: skip
"""True where the other is false: NOT of a comparison is a comparison, since both are unknown together."""

_MIRRORED: Mapping[ComparisonOperator, ComparisonOperator] = {
    "=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=",
}  # fmt: skip

_ZERO = Literal(0.0)
_ONE = Literal(1.0)
_FOREVER = Literal(sys.float_info.max)
"""The open end of an interval: programs take no infinities, and nothing is later than this."""
_BEGINNING = Literal(-sys.float_info.max)
X: Expression = Arithmetic("+", LONG, Arithmetic("*", LAT, _ZERO))
"""The longitude, null unless the latitude is a number, too."""
Y: Expression = Arithmetic("+", LAT, Arithmetic("*", LONG, _ZERO))


def oriented(condition: Compare) -> tuple[Expression, ComparisonOperator, Expression]:
    """The comparison with its constant, if it has one, to the right."""
    left, operator, right = condition.left, condition.operator, condition.right
    if isinstance(left, Literal | Instant):
        return right, _MIRRORED[operator], left
    return left, operator, right


def between(condition: Between) -> Filter:
    """Both bounds."""
    operand = condition.operand
    return And((Compare(">=", operand, condition.low), Compare("<=", operand, condition.high)))


def any_equal(condition: In) -> Filter:
    """One of the values."""
    return disjunction(*(Compare("=", condition.operand, value) for value in condition.values))


def is_computed(condition: Spatial) -> bool:
    """Whether comparisons can say it: points and boxes, and nothing but a point has a location around it."""
    return isinstance(condition.geometry, Point | BBox) or _is_around(condition)


def _is_around(condition: Spatial) -> bool:
    return condition.operator == "within" and not condition.location_first


def spatial(condition: Spatial, x: Expression, y: Expression) -> Filter:
    """A computed spatial test, of numbers x and y."""
    geometry = condition.geometry
    if isinstance(geometry, Point):
        return And((Compare("=", x, Literal(geometry.position[0])), Compare("=", y, Literal(geometry.position[1]))))
    if _is_around(condition):
        return And((Compare("<>", x, x), Compare("<>", y, y)))
    assert isinstance(geometry, BBox)
    inside = condition.operator == "within"
    at_least: ComparisonOperator = ">" if inside else ">="
    at_most: ComparisonOperator = "<" if inside else "<="
    west, south = Compare(at_least, x, Literal(geometry.west)), Compare(at_least, y, Literal(geometry.south))
    east, north = Compare(at_most, x, Literal(geometry.east)), Compare(at_most, y, Literal(geometry.north))
    if geometry.west <= geometry.east:
        return And((west, east, south, north))
    return And((disjunction(west, east), south, north))


def temporal(condition: Temporal) -> Filter:
    """Comparisons of the ends; null unless all that is compared is a number."""
    left, right = condition.left, condition.right
    if isinstance(left, Interval) and isinstance(right, Interval):
        return Constant(evaluate(condition, {}))
    if condition.operator == "before":
        return _compare(_end(left), "<", _start(right))
    if condition.operator == "after":
        return _compare(_start(left), ">", _end(right))
    after_start: ComparisonOperator = ">=" if isinstance(right, Interval) and right.start is None else ">"
    before_end: ComparisonOperator = "<=" if isinstance(right, Interval) and right.end is None else "<"
    return And((_compare(_start(left), after_start, _start(right)), _compare(_end(left), before_end, _end(right))))


def _start(side: Expression | Interval) -> Expression:
    if isinstance(side, Interval):
        return side.start or _BEGINNING
    return side


def _end(side: Expression | Interval) -> Expression:
    if isinstance(side, Interval):
        return side.end or _FOREVER
    return side


def _compare(left: Expression, operator: ComparisonOperator, right: Expression) -> Filter:
    """Where neither side is sure to be a number, one is multiplied by 1: that makes null of anything else."""
    if not is_number(left) and not is_number(right):
        left = Arithmetic("*", left, _ONE)
    return Compare(operator, left, right)


def is_number(expression: Expression) -> bool:
    """Whether its value is a number or null, whatever the publication."""
    return isinstance(expression, Instant | Arithmetic | Call) or (
        isinstance(expression, Literal) and isinstance(expression.value, float)
    )
