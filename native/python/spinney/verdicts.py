"""Which verdicts a filter can have, when only the domains of its attributes are known.

The same walk as evaluate.py's, with sets of values for values and sets of verdicts for verdicts. Parts are taken as
independent, so an answer may hold verdicts that never come, and lacks none that may.
"""

from __future__ import annotations

import math
from itertools import product

from . import intervals, regions
from .casefold import fold
from .domain import ANY_STRING, Domain
from .expression import (
    And,
    Between,
    Compare,
    Constant,
    Expression,
    Filter,
    In,
    Interval,
    IsNull,
    Like,
    Location,
    Node,
    Not,
    Or,
    Spatial,
    Temporal,
)
from .geometry import Geometry, MultiPolygon, Place, Point, Polygon
from .intervals import Points
from .like import ANY_ONE, like, literal_prefix, pattern_covers, prefix_pattern, segments
from .ranges import ACCEPTED, MAX_COMBINATIONS, UNORDERED, Environment, Order, constant_of, domain_of, orders, orders_in
from .text_writer import value_text

T, F, U = 1, 2, 4
"""True, false and unknown, as parts of a set of verdicts."""
ALL = T | F | U
_CONSTANTS = {True: T, False: F, None: U}
VERDICTS: dict[int, bool | None] = {T: True, F: False, U: None}

Moment = Expression | float


def possible(condition: Filter, environment: Environment) -> int:
    """The set of verdicts that the condition can have."""
    for fact in environment.facts:
        if implies(fact, condition):
            return T
        if excludes(fact, condition):
            return F
    match condition:
        case Constant(verdict):
            return _CONSTANTS[verdict]
        case And(operands):
            return all_of([possible(operand, environment) for operand in operands])
        case Or(operands):
            return any_of([possible(operand, environment) for operand in operands])
        case Not(operand):
            return negate(possible(operand, environment))
        case Compare(operator, left, right):
            return _compare(operator, left, right, environment)
        case Between(operand, low, high):
            return all_of([_compare(">=", operand, low, environment), _compare("<=", operand, high, environment)])
        case In(operand, values):
            return any_of([_compare("=", operand, item, environment) for item in values])
        case Like():
            return _like(condition, domain_of(condition.operand, environment))
        case IsNull(operand):
            return _is_null(operand, environment)
        case Spatial():
            return _spatial(condition, environment.attribute("long"), environment.attribute("lat"))
        case Temporal():
            return _temporal(condition, environment)
    raise TypeError(f"not a condition: {condition!r}")


def all_of(sets: list[int]) -> int:
    """AND of one verdict from each set."""
    some, every = 0, T
    for verdicts in sets:
        if not verdicts & ~F:
            return F
        some |= verdicts
        every &= verdicts
    return some & (F | U) | every


def any_of(sets: list[int]) -> int:
    """OR of one verdict from each set."""
    return negate(all_of([negate(verdicts) for verdicts in sets]))


def negate(verdicts: int) -> int:
    """NOT of each."""
    return verdicts & U | (T if verdicts & F else 0) | (F if verdicts & T else 0)


# ---- comparisons


def _compare(operator: str, left: Expression, right: Expression, environment: Environment) -> int:
    if environment.terms and constant_of(left) is None and constant_of(right) is None:
        return _compare_terms(operator, left, right, environment)
    return _accepted(operator, orders(domain_of(left, environment), domain_of(right, environment)))


def _accepted(operator: str, found: int) -> int:
    accepted = ACCEPTED[operator]
    return (
        (T if found & accepted else 0) | (F if found & ~(accepted | UNORDERED) else 0) | (U if found & UNORDERED else 0)
    )


def _compare_terms(operator: str, left: Expression, right: Expression, environment: Environment) -> int:
    """What is known of how two terms compare counts too."""
    order, operator = ordered(operator, left, right)
    return _accepted(operator, orders_in(domain_of(order, environment)))


FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
"""The operator after its sides have changed places."""
INVERSE = {"=": "<>", "<>": "=", "<": ">=", ">": "<=", "<=": ">", ">=": "<"}
"""The operator that is true where this one is false."""


def ordered(operator: str, left: Expression, right: Expression) -> tuple[Order, str]:
    """The two terms in one order, whichever way they are written, and the operator for it."""
    if value_text(left) > value_text(right):
        return Order(right, left), FLIPPED[operator]
    return Order(left, right), operator


def _is_null(operand: Expression, environment: Environment) -> int:
    if isinstance(operand, Location):
        domains = [environment.attribute(name) for name in ("long", "lat")]
        if not all(domain.numbers for domain in domains):
            return T
        return F | (T if any(map(_is_more_than_numbers, domains)) else 0)
    domain = domain_of(operand, environment)
    present = domain.numbers or domain.strings or domain.booleans
    return (T if domain.null or not present else 0) | (F if present else 0)


def _is_more_than_numbers(domain: Domain) -> bool:
    return bool(domain.null or domain.strings or domain.booleans)


# ---- text


def pattern_of(condition: Like) -> str:
    """The pattern that decides."""
    return fold(condition.pattern) if condition.fold_pattern else condition.pattern


def like_points(pattern: str) -> Points | None:
    """The strings that are like a pattern, if it has no wildcard or just a % at its end."""
    parts = segments(pattern)
    if any(ANY_ONE in part for part in parts) or len(parts) > 2 or (len(parts) == 2 and parts[1]):
        return None
    prefix = literal_prefix(pattern)
    return intervals.single(prefix) if len(parts) == 1 else intervals.with_prefix(prefix)


def like_bounds(pattern: str) -> Points:
    """Strings among which are all that are like the pattern."""
    return intervals.with_prefix(literal_prefix(pattern)) or ANY_STRING


def _like(condition: Like, domain: Domain) -> int:
    pattern = pattern_of(condition)
    unknown = U if domain.null or domain.numbers or domain.booleans else 0
    if not domain.strings:
        return U
    texts = intervals.members(domain.strings, MAX_COMBINATIONS)
    if texts is not None:
        return unknown | sum({T if like(str(text), pattern) else F for text in texts})
    exact = like_points(pattern)
    if exact is not None:
        return unknown | _within(domain.strings, exact)
    if not intervals.meet(domain.strings, like_bounds(pattern)):
        return unknown | F
    return unknown | (T if all(_run_is_like(run, pattern) for run in intervals.ranges(domain.strings)) else T | F)


def _run_is_like(run: tuple[str, str | None], pattern: str) -> bool:
    """Whether all strings of a run are proven to be like the pattern."""
    if intervals.after(run[0]) == run[1]:
        return like(run[0], pattern)
    return intervals.is_prefix(run) and pattern_covers(pattern, prefix_pattern(run[0]))


def _within(points: Points, region: Points) -> int:
    """Whether members of points are members of the region."""
    if not intervals.meet(points, region):
        return F
    return T if intervals.subset(points, region) else T | F


# ---- place


def _spatial(condition: Spatial, x: Domain, y: Domain) -> int:
    unknown = U if _is_more_than_numbers(x) or _is_more_than_numbers(y) else 0
    if not (x.numbers and y.numbers):
        return U
    if condition.operator == "within" and not condition.location_first and not isinstance(condition.geometry, Point):
        return unknown | F
    return unknown | _region(condition.geometry, condition.operator, x.numbers, y.numbers)


def _region(geometry: Geometry, operator: str, x: Points, y: Points) -> int:
    if isinstance(geometry, MultiPolygon):
        return any_of([_region(polygon, operator, x, y) for polygon in geometry.polygons])
    box = regions.box_points(geometry, operator)
    if box is not None:
        return all_of([_within(x, box[0]), _within(y, box[1])])
    assert isinstance(geometry, Polygon)
    xs, ys = intervals.members(x, MAX_COMBINATIONS), intervals.members(y, MAX_COMBINATIONS)
    if xs is not None and ys is not None and len(xs) * len(ys) <= MAX_COMBINATIONS:
        places = frozenset(geometry.place(float(a), float(b)) for a, b in product(xs, ys))
    else:
        places = regions.places(geometry, intervals.hull(x), intervals.hull(y))
    wanted = {Place.INSIDE} if operator == "within" else {Place.INSIDE, Place.BORDER}
    return (T if places & wanted else 0) | (F if places - wanted else 0)


# ---- time


def moments(condition: Temporal) -> list[tuple[str, Moment, Moment]]:
    """The comparisons of numbers, joined by AND, that a temporal condition stands for; open ends are infinite."""
    left_start, left_end = _ends(condition.left)
    right_start, right_end = _ends(condition.right)
    if condition.operator == "before":
        return [("<", left_end, right_start)]
    if condition.operator == "after":
        return [(">", left_start, right_end)]
    return [(">", left_start, right_start), ("<", left_end, right_end)]


def _ends(side: Node) -> tuple[Moment, Moment]:
    if isinstance(side, Interval):
        return side.start.seconds if side.start else -math.inf, side.end.seconds if side.end else math.inf
    assert isinstance(side, Expression)
    return side, side


def _temporal(condition: Temporal, environment: Environment) -> int:
    sides = [side for side in (condition.left, condition.right) if isinstance(side, Expression)]
    domains = [domain_of(side, environment) for side in sides]
    if not all(domain.numbers for domain in domains):
        return U
    unknown = U if any(map(_is_more_than_numbers, domains)) else 0
    return unknown | all_of([_moments(*pair, environment) for pair in moments(condition)])


def _moments(operator: str, left: Moment, right: Moment, environment: Environment) -> int:
    if not isinstance(left, Expression):
        if not isinstance(right, Expression):
            return T if (left < right if operator == "<" else left > right) else F
        return _moments(FLIPPED[operator], right, left, environment)
    numbers = Domain(numbers=domain_of(left, environment).numbers)
    if isinstance(right, Expression):
        return _accepted(operator, orders(numbers, Domain(numbers=domain_of(right, environment).numbers)))
    return _within(numbers.numbers, moment_points(operator, right))


def moment_points(operator: str, moment: float) -> Points:
    """The numbers before (<) or after (>) a moment that may be infinite."""
    if math.isinf(moment):
        return intervals.everything(float) if (moment > 0) == (operator == "<") else ()
    return intervals.compared(operator, moment)


# ---- what follows from a condition that is true


def implies(fact: Filter, condition: Filter) -> bool:
    """Whether the condition is proven true wherever the fact is."""
    if fact == condition:
        return True
    if isinstance(fact, Like) and isinstance(condition, Like):
        return fact.operand == condition.operand and pattern_covers(pattern_of(condition), pattern_of(fact))
    if isinstance(fact, Spatial) and isinstance(condition, Spatial):
        return _spatial_implies(fact, condition)
    if isinstance(fact, Not) and isinstance(condition, Not):
        return isinstance(fact.operand, Like | Spatial) and implies(condition.operand, fact.operand)
    return False


def excludes(fact: Filter, condition: Filter) -> bool:
    """Whether the condition is proven false wherever the fact is true."""
    if isinstance(fact, Not):
        return fact.operand == condition or (isinstance(condition, Like | Spatial) and implies(condition, fact.operand))
    if (
        isinstance(fact, Spatial)
        and isinstance(condition, Spatial)
        and fact.location_first
        and condition.location_first
    ):
        first, second = fact.geometry, condition.geometry
        return isinstance(first, Polygon) and isinstance(second, Polygon) and regions.disjoint(first, second)
    return False


def _spatial_implies(fact: Spatial, condition: Spatial) -> bool:
    if any(item.operator == "within" and not item.location_first for item in (fact, condition)):
        return False
    if fact.geometry == condition.geometry:
        return fact.operator == "within" or condition.operator == "intersects"
    inner, outer = fact.geometry, condition.geometry
    return isinstance(inner, Polygon) and isinstance(outer, Polygon) and regions.contains(outer, inner)
