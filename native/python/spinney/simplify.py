"""Rewrites a filter into the simplest that has the same verdict on every publication within an environment.

Exact in three-valued logic: Kleene's logic is a distributive lattice with De Morgan's laws, so NOT moves inward, AND
and OR flatten and absorb; and tests of one term against constants of one type, which are unknown for the same
publications, join into one test of membership in a set. The result depends on the meaning of the parts, not on how they
were written, and simplifying it again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from . import intervals
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
    IsNull,
    Like,
    Literal,
    Location,
    Not,
    Or,
    Property,
    Spatial,
    Temporal,
    conjunction,
    disjunction,
)
from .geometry import MultiPolygon, Point, Polygon
from .intervals import Points
from .point_text import membership
from .ranges import EVERYTHING, Environment, constant_of, domain_of, key_of
from .regions import rectangle
from .text_writer import filter_text, geometry_text, value_text
from .verdicts import (
    FLIPPED,
    INVERSE,
    VERDICTS,
    F,
    Moment,
    T,
    U,
    all_of,
    any_of,
    like_points,
    moment_points,
    moments,
    negate,
    ordered,
    pattern_of,
    possible,
)


@dataclass(slots=True)
class Part:
    """A simplified condition with its possible verdicts. Equal keys mean equal conditions."""

    key: str
    verdicts: int


@dataclass(slots=True)
class Leaf(Part):
    """A condition taken as it is."""

    condition: Filter


@dataclass(slots=True)
class Member(Part):
    """Whether a term is in a set of values of one type; unknown unless it is of that type."""

    operand: Expression
    kind: type
    points: Points


@dataclass(slots=True)
class Joined(Part):
    """Several joined by AND, or by OR."""

    conjunctive: bool
    parts: tuple[Part, ...]


def simplify(condition: Filter, environment: Environment) -> Filter:
    """The simplest filter with the same verdicts where the environment holds."""
    return filter_of(Simplifier(environment).part(condition))


def simplify_value(expression: Expression, environment: Environment) -> Expression:
    """The same for a value."""
    return Simplifier(environment).value(expression)


class Simplifier:
    """Makes parts of conditions; `negated` asks for NOT of the condition."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._knows_nothing = environment is EVERYTHING

    def part(self, condition: Filter, negated: bool = False) -> Part:
        """The part for a condition."""
        match condition:
            case Compare(operator, left, right):
                return self._compare(operator, self.value(left), self.value(right), negated)
            case And(operands):
                return self._join([self.part(operand, negated) for operand in operands], not negated)
            case Or(operands):
                return self._join([self.part(operand, negated) for operand in operands], negated)
            case Not(operand):
                return self.part(operand, not negated)
            case Constant(verdict):
                return _constant(verdict if verdict is None else verdict != negated)
            case Between(operand, low, high):
                return self._between(self.value(operand), self.value(low), self.value(high), negated)
            case In(operand, values):
                return self._in(self.value(operand), [self.value(item) for item in values], negated)
            case Like():
                return self._like(condition, negated)
            case IsNull(operand):
                inner = operand if isinstance(operand, Location) else self.value(operand)
                return self._leaf(IsNull(inner), negated)
            case Spatial():
                return self._leaf(_canonical(condition), negated)
            case Temporal():
                pairs = [self._moments(*pair, negated) for pair in moments(condition)]
                return self._join(pairs, not negated)
        raise TypeError(f"not a condition: {condition!r}")

    # ---- values

    def value(self, expression: Expression) -> Expression:
        """The expression with what is constant computed, and the sides of + and * in one order."""
        if isinstance(expression, Literal) or (isinstance(expression, Property) and self._knows_nothing):
            return expression
        constant = domain_of(expression, self._environment).constant()
        if constant is not None:
            return Literal(constant)
        match expression:
            case Arithmetic(operator, left, right):
                sides = [self.value(left), self.value(right)]
                if operator in ("+", "*"):
                    sides.sort(key=value_text)
                return Arithmetic(operator, *sides)
            case Call(name, arguments):
                return Call(name, tuple(self.value(argument) for argument in arguments))
            case CaseFold(operand):
                inner = self.value(operand)
                return CaseFold(inner) if isinstance(constant_of(inner), str | None) else expression
        return expression

    # ---- conditions

    def _leaf(self, condition: Filter, negated: bool) -> Part:
        verdicts = possible(condition, self._environment)
        if verdicts in VERDICTS:
            return self.part(Constant(VERDICTS[verdicts]), negated)
        if negated:
            condition, verdicts = Not(condition), negate(verdicts)
        return Leaf(filter_text(condition), verdicts, condition)

    def _compare(self, operator: str, left: Expression, right: Expression, negated: bool) -> Part:
        if negated:
            operator = INVERSE[operator]
        if constant_of(left) is not None:
            operator, left, right = FLIPPED[operator], right, left
        constant = constant_of(right)
        if constant is not None and constant_of(left) is None:
            return self._member(left, type(constant), intervals.compared(operator, constant))
        order, operator = ordered(operator, left, right)
        return self._leaf(Compare(operator, order.left, order.right), False)  # type: ignore[arg-type]  # an operator

    def _between(self, term: Expression, low: Expression, high: Expression, negated: bool) -> Part:
        first, last = constant_of(low), constant_of(high)
        if isinstance(first, float) and isinstance(last, float) and constant_of(term) is None:
            points = intervals.from_to(first, last)
            return self._member(term, float, intervals.complement(points, float) if negated else points)
        sides = [(">=", low), ("<=", high)]
        return self._join([self._compare(sign, term, side, negated) for sign, side in sides], not negated)

    def _in(self, term: Expression, items: Sequence[Expression], negated: bool) -> Part:
        constants = [constant_of(item) for item in items]
        kinds = set(map(type, constants))
        if len(kinds) == 1 and constants[0] is not None and constant_of(term) is None:
            kind = kinds.pop()
            points = intervals.of_values(set(constants))
            return self._member(term, kind, intervals.complement(points, kind) if negated else points)
        return self._join([self._compare("=", term, item, negated) for item in items], negated)

    def _like(self, condition: Like, negated: bool) -> Part:
        operand, pattern = self.value(condition.operand), pattern_of(condition)
        points = like_points(pattern)
        if points is None or constant_of(operand) is not None:
            return self._leaf(Like(operand, pattern), negated)
        return self._member(operand, str, intervals.complement(points, str) if negated else points)

    def _moments(self, operator: str, left: Moment, right: Moment, negated: bool) -> Part:
        """One comparison of a temporal condition."""
        left, right = self._moment(left), self._moment(right)
        if not isinstance(left, Expression):
            operator, left, right = FLIPPED[operator], right, left
        if not isinstance(left, Expression):
            assert not isinstance(right, Expression)
            return _constant((left < right if operator == "<" else left > right) != negated)
        if not isinstance(right, Expression):
            points = moment_points(operator, right)
            return self._member(left, float, intervals.complement(points, float) if negated else points)
        sides = (left, right) if operator == "<" else (right, left)
        return self._leaf(Temporal("before", *sides), negated)

    def _moment(self, side: Moment) -> Moment:
        if not isinstance(side, Expression):
            return side
        value = self.value(side)
        constant = constant_of(value)
        return constant if isinstance(constant, float) else value

    def _member(self, operand: Expression, kind: type, points: Points) -> Part:
        """Whether the operand is among these, of all the values that it can have."""
        everything = intervals.everything(kind)
        if self._knows_nothing and isinstance(operand, Property):
            all_points, found, others = everything, points, True
        else:
            domain = domain_of(operand, self._environment)
            all_points = domain.of(kind)
            found = points if all_points == everything else intervals.intersection(points, all_points)
            others = domain.null or any(domain.of(other) for other in (float, str, bool) if other is not kind)
        verdicts = (T if found else 0) | (F if found != all_points else 0) | (U if others else 0)
        if verdicts in VERDICTS:
            return _constant(VERDICTS[verdicts])
        wide = found if all_points == everything else _widened(found, all_points, kind)
        return Member(f"{key_of(operand)}\0{kind.__name__}\0{wide!r}", verdicts, operand, kind, wide)

    # ---- AND and OR

    def _join(self, parts: Sequence[Part], conjunctive: bool) -> Part:
        neutral, absorbing = (T, F) if conjunctive else (F, T)
        flat = [inner for part in parts for inner in _flattened(part, conjunctive)]
        unique = {part.key: part for part in self._merged(flat, conjunctive) if part.verdicts != neutral}
        kept = [part for part in unique.values() if not _absorbed(part, unique)]
        verdicts = (all_of if conjunctive else any_of)([part.verdicts for part in kept])
        if verdicts in VERDICTS or verdicts == absorbing:
            return _constant(VERDICTS[verdicts])
        if len(kept) == 1:
            return kept[0]
        kept.sort(key=lambda part: part.key)
        key = ("and(" if conjunctive else "or(") + "\1".join(part.key for part in kept) + ")"
        return Joined(key, verdicts, conjunctive, tuple(kept))

    def _merged(self, parts: Iterable[Part], conjunctive: bool) -> list[Part]:
        """Memberships of one term in sets of one type become one."""
        members: dict[tuple[str, type], list[Member]] = {}
        merged: list[Part] = []
        for part in parts:
            if isinstance(part, Member):
                members.setdefault((key_of(part.operand), part.kind), []).append(part)
            else:
                merged.append(part)
        return [*merged, *(self._one_member(same, conjunctive) for same in members.values())]

    def _one_member(self, same: Sequence[Member], conjunctive: bool) -> Part:
        """In pairs, so that thousands become one in a moment."""
        if len(same) == 1:
            return same[0]
        combine = intervals.intersection if conjunctive else intervals.union
        points = [part.points for part in same]
        while len(points) > 1:
            odd = points[len(points) & ~1 :]
            points = [combine(a, b) for a, b in zip(points[::2], points[1::2], strict=False)] + odd
        return self._member(same[0].operand, same[0].kind, points[0])


def _constant(verdict: bool | None) -> Part:
    condition = Constant(verdict)
    return Leaf(filter_text(condition), U if verdict is None else T if verdict else F, condition)


def _flattened(part: Part, conjunctive: bool) -> Sequence[Part]:
    return part.parts if isinstance(part, Joined) and part.conjunctive is conjunctive else (part,)


def _absorbed(part: Part, others: dict[str, Part]) -> bool:
    """x AND (x OR y) is x; x OR (x AND y) is x."""
    return isinstance(part, Joined) and any(inner.key in others for inner in part.parts)


def _widened(found: Points, domain: Points, kind: type) -> Points:
    """A set that is simpler to say and the same within the domain: no bound where the domain ends anyway."""
    if not found or intervals.members(found, len(found)) is not None:
        return found
    points = list(found)
    if points[0] == domain[0]:
        points[0] = intervals.BOTTOM[kind]
    if len(points) % 2 == 0 and len(domain) % 2 == 0 and points[-1] == domain[-1]:
        points.pop()
    return tuple(points)


def _canonical(condition: Spatial) -> Spatial:
    """Rectangles as boxes, multipolygons in order, and location first wherever that says the same."""
    geometry = condition.geometry
    if isinstance(geometry, MultiPolygon):
        polygons = sorted(set(geometry.polygons), key=geometry_text)
        geometry = polygons[0] if len(polygons) == 1 else MultiPolygon(tuple(polygons))
    if isinstance(geometry, Polygon):
        geometry = rectangle(geometry) or geometry
    if isinstance(geometry, Point):
        return Spatial("intersects", geometry)
    return Spatial(condition.operator, geometry, condition.location_first or condition.operator == "intersects")


# ---- back to a filter


def filter_of(part: Part) -> Filter:
    """The filter that a part stands for."""
    if isinstance(part, Joined):
        return (conjunction if part.conjunctive else disjunction)(*map(filter_of, part.parts))
    if isinstance(part, Member):
        return membership(part.operand, part.kind, part.points)
    assert isinstance(part, Leaf)
    return part.condition
