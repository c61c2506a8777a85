"""A filter as cases: it is true exactly where everything that at least one case says holds.

A case says which values terms (attributes and computations) have; what cannot be said so stays a condition that must
be true. Nothing is approximated: where cases would become too many, a part of the filter stays a condition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from . import intervals, regions
from .domain import A_NUMBER, A_STRING, ANYTHING, NO_NUMBER, NULL, PRESENT, Domain, of_type
from .expression import (
    Arithmetic,
    Call,
    CaseFold,
    Compare,
    Constant,
    Expression,
    Filter,
    IsNull,
    Like,
    Location,
    Not,
    Property,
    Spatial,
    Temporal,
)
from .geometry import MultiPolygon, Polygon
from .ranges import ACCEPTED, EQUAL, EVERYTHING, GREATER, LESS, Environment, Order, domain_of, key_of, order_points
from .simplify import Joined, Leaf, Member, Part, Simplifier, filter_of
from .verdicts import T, like_bounds, pattern_of, possible

MAX_CASES = 16
"""Of one filter."""

Domains = Mapping[str, Domain]


@dataclass(frozen=True, slots=True)
class Case:
    """What must hold together. Domains are by key_of() their term."""

    own: Domains = field(default_factory=dict)
    """What makes the filter true."""
    follows: Domains = field(default_factory=dict)
    """The same, and what follows from it: a > b needs both to be there."""
    terms: Mapping[str, Expression] = field(default_factory=dict)
    """The computed ones among the terms."""
    rest: tuple[Filter, ...] = ()
    """Conditions that must be true besides."""

    def environment(self) -> Environment:
        """All that is known where the case holds."""
        return Environment(self.follows, terms=self.terms, facts=self.rest)


def cases_of(condition: Filter) -> list[Case]:
    """At most MAX_CASES cases; none if the filter is never true."""
    return _cases(Simplifier(EVERYTHING).part(condition))


def satisfiable(case: Case, known: Environment) -> bool:
    """Whether a publication may be in the case, within what is known. False only when proven."""
    domains = dict(known.domains)
    for key, domain in case.follows.items():
        other = ANYTHING if key in case.terms else known.attribute(key)
        domains[key] = domain if other is ANYTHING else domain.meet(other)
        if domains[key].is_empty():
            return False
    environment = Environment(domains, known.others, case.terms)
    if any(domain_of(term, environment).is_empty() for term in case.terms.values()):
        return False
    for i, condition in enumerate(case.rest):
        others = case.rest[:i] + case.rest[i + 1 :]
        if not possible(condition, Environment(domains, known.others, case.terms, others)) & T:
            return False
    return True


def meet(first: Case, second: Case) -> Case | None:
    """Where both hold; None if they contradict each other outright."""
    follows = _meet_domains(first.follows, second.follows)
    if follows is None:
        return None
    own = _meet_domains(first.own, second.own)
    assert own is not None
    new = tuple(condition for condition in second.rest if condition not in first.rest)
    return Case(own, follows, {**first.terms, **second.terms}, first.rest + new)


def _meet_domains(first: Domains, second: Domains) -> Domains | None:
    found = dict(first)
    for key, domain in second.items():
        other = found.get(key)
        found[key] = domain if other is None else domain.meet(other)
        if found[key].is_empty():
            return None
    return found


# ---- AND and OR


def _cases(part: Part) -> list[Case]:
    if isinstance(part, Member):
        return [_of_terms({part.operand: of_type(part.kind, part.points)})]
    if isinstance(part, Joined):
        return _all_of(part) if part.conjunctive else _any_of(part)
    assert isinstance(part, Leaf)
    return _limited(part, _leaf(part.condition))


def _any_of(part: Joined) -> list[Case]:
    found: list[Case] = []
    for inner in part.parts:
        for case in _cases(inner):
            _add(found, case)
    return _limited(part, found)


def _all_of(part: Joined) -> list[Case]:
    found = [Case()]
    for inner, cases in sorted(((inner, _cases(inner)) for inner in part.parts), key=lambda pair: len(pair[1])):
        if len(found) * len(cases) > MAX_CASES:
            cases = [_opaque(inner, cases)]
        both = [meet(first, second) for first, second in product(found, cases)]
        found = []
        for case in both:
            if case is not None:
                _add(found, case)
    return found


def _limited(part: Part, cases: list[Case]) -> list[Case]:
    return cases if len(cases) <= MAX_CASES else [_opaque(part, cases)]


def _opaque(part: Part, cases: list[Case]) -> Case:
    """The part as a condition, with what follows from each of its cases."""
    first, *others = cases
    follows = {key: domain for key, domain in first.follows.items() if key not in first.terms}
    for case in others:
        follows = {key: domain.join(case.follows[key]) for key, domain in follows.items() if key in case.follows}
    return Case({}, follows, {}, (filter_of(part),))


def _add(cases: list[Case], case: Case) -> None:
    """Adds a case to others, joined with one from which it differs in a single term."""
    for i, other in enumerate(cases):
        joined = _joined(other, case)
        if joined is not None:
            cases[i] = joined
            return
    cases.append(case)


def _joined(first: Case, second: Case) -> Case | None:
    if first.own.keys() != second.own.keys() or first.rest != second.rest:
        return None
    if sum(first.own[key] != second.own[key] for key in first.own) > 1:
        return None
    own = {key: domain.join(second.own[key]) for key, domain in first.own.items()}
    shared = first.follows.keys() & second.follows.keys()
    follows = {key: domain.join(second.follows[key]) for key, domain in first.follows.items() if key in shared}
    return Case(own, follows, first.terms, first.rest)


# ---- single conditions


def _of_terms(
    own: Mapping[Expression, Domain], implied: Mapping[Expression, Domain] | None = None, *rest: Filter
) -> Case:
    """A case that says this of these terms, and what follows from their having values."""
    follows: dict[str, Domain] = {}
    for term, domain in [*own.items(), *(implied or {}).items()]:
        for name, needed in () if domain.null else _needs(term):
            follows[name] = needed.meet(follows.get(name, needed))
        key = key_of(term)
        follows[key] = domain.meet(follows.get(key, domain))
    terms = {key_of(term): term for term in [*own, *(implied or {})] if not isinstance(term, Property)}
    return Case({key_of(term): domain for term, domain in own.items()}, follows, terms, rest)


def _needs(term: Expression) -> Iterable[tuple[str, Domain]]:
    """What the attributes within a computation must be for it to have a value."""
    inner: tuple[Expression, ...]
    match term:
        case Order(left, right):
            inner, needed = (left, right), PRESENT
        case Arithmetic(_, left, right):
            inner, needed = (left, right), A_NUMBER
        case Call(_, arguments):
            inner, needed = arguments, A_NUMBER
        case CaseFold(operand):
            inner, needed = (operand,), A_STRING
        case _:
            return
    for item in inner:
        if isinstance(item, Property):
            yield item.name, needed
        yield from _needs(item)


_LAT: Expression = Property("lat")
_LONG: Expression = Property("long")


def _leaf(condition: Filter) -> list[Case]:
    match condition:
        case Constant(verdict):
            return [Case()] if verdict else []
        case Compare(operator, left, right):
            return [_ordered(left, right, ACCEPTED[operator])]
        case Like(operand):
            bounds = Domain(strings=like_bounds(pattern_of(condition)))
            return [_of_terms({}, {operand: bounds}, condition)]
        case IsNull(Location()):
            return [_of_terms({_LAT: NO_NUMBER}), _of_terms({_LONG: NO_NUMBER})]
        case IsNull(operand):
            return [_of_terms({operand: NULL})]
        case Spatial():
            return _spatial(condition)
        case Temporal(_, left, right):
            return [_moments(left, right, LESS)]
        case Not(operand):
            return _negated(condition, operand)
    raise TypeError(f"not a simplified condition: {condition!r}")


def _negated(condition: Filter, operand: Filter) -> list[Case]:
    match operand:
        case Like(text):
            return [_of_terms({}, {text: A_STRING}, condition)]
        case IsNull(Location()):
            return [_of_terms({_LAT: A_NUMBER, _LONG: A_NUMBER})]
        case IsNull(term):
            return [_of_terms({term: PRESENT})]
        case Spatial():
            return _not_spatial(operand)
        case Temporal(_, left, right):
            return [_moments(left, right, EQUAL | GREATER)]
    raise TypeError(f"not a simplified condition: {condition!r}")


def _ordered(left: Expression, right: Expression, accepted: int) -> Case:
    return _of_terms({Order(left, right): Domain(numbers=order_points(accepted))})


def _moments(left: object, right: object, accepted: int) -> Case:
    """As _ordered, for numbers only."""
    assert isinstance(left, Expression)
    assert isinstance(right, Expression)
    order: dict[Expression, Domain] = {Order(left, right): Domain(numbers=order_points(accepted))}
    return _of_terms(order | {side: A_NUMBER for side in (left, right) if isinstance(side, Property)})


def _spatial(condition: Spatial) -> list[Case]:
    geometry = condition.geometry
    if condition.operator == "within" and not condition.location_first:
        return []
    if isinstance(geometry, MultiPolygon):
        return [case for polygon in geometry.polygons for case in _spatial(Spatial(condition.operator, polygon))]
    points = regions.box_points(geometry, condition.operator)
    if points is not None:
        case = _of_terms({_LONG: Domain(numbers=points[0]), _LAT: Domain(numbers=points[1])})
        return [] if () in points else [case]
    assert isinstance(geometry, Polygon)
    west, south, east, north = geometry.bounds()
    x, y = intervals.from_to(west, east), intervals.from_to(south, north)
    return [_of_terms({}, {_LONG: Domain(numbers=x), _LAT: Domain(numbers=y)}, condition)]


def _not_spatial(condition: Spatial) -> list[Case]:
    geometry = condition.geometry
    numbers: dict[Expression, Domain] = {_LONG: A_NUMBER, _LAT: A_NUMBER}
    if condition.operator == "within" and not condition.location_first:
        return [_of_terms(numbers)]
    if isinstance(geometry, MultiPolygon):
        return [_of_terms({}, numbers, *(Not(Spatial(condition.operator, item)) for item in geometry.polygons))]
    points = regions.box_points(geometry, condition.operator)
    if points is None:
        return [_of_terms({}, numbers, Not(condition))]
    x, y = (Domain(numbers=intervals.complement(side, float)) for side in points)
    return [_of_terms(numbers | {_LONG: x}), _of_terms(numbers | {_LAT: y})]
