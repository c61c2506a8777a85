"""What an expression can give, when only the domains of its attributes are known: interval arithmetic in doubles.

IEEE operations are monotone in each operand and round the same way everywhere, so the ends of a result are the results
of the ends, to the bit. A result that may overflow may be null (rule P1).
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from . import distances, intervals
from .casefold import fold
from .domain import ANY_NUMBER, ANY_STRING, ANYTHING, NULL, Domain, any_of, exactly
from .evaluate import EXACT_EXPONENT, arithmetic
from .expression import Arithmetic, Call, CaseFold, Expression, Filter, Instant, Literal, Property, Value
from .geodesy import distance
from .intervals import LARGEST, Points
from .text_writer import value_text

MAX_COMBINATIONS = 64
"""So many pairs of single values are computed one by one; beyond, only the ends are."""

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8
ACCEPTED: Mapping[str, int] = {
    "<": LESS,
    "=": EQUAL,
    ">": GREATER,
    "<=": LESS | EQUAL,
    ">=": GREATER | EQUAL,
    "<>": LESS | GREATER,
}
"""The orders of left and right in which a comparison holds."""
_ORDER_NUMBERS = {LESS: -1.0, EQUAL: 0.0, GREATER: 1.0}

Hull = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Order(Expression):
    """How left compares with right: -1, 0 or 1; null where a comparison is unknown. Never in a filter's tree."""

    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Environment:
    """What is known while a filter is looked at."""

    domains: Mapping[str, Domain] = field(default_factory=dict)
    """By attribute, and by key_of() for terms."""
    others: Domain = ANYTHING
    """What attributes can be that are not listed."""
    terms: Mapping[str, Expression] = field(default_factory=dict)
    """The computed expressions among the domains' keys."""
    facts: tuple[Filter, ...] = ()
    """Conditions that are true."""

    def attribute(self, name: str) -> Domain:
        """What an attribute can be."""
        return self.domains.get(name, self.others)


def key_of(expression: Expression) -> str:
    """A name for a term: an attribute's own, or the text of a computation, set apart from all names."""
    if isinstance(expression, Property):
        return expression.name
    if isinstance(expression, Order):
        return f"\0{value_text(expression.left)}\0{value_text(expression.right)}"
    return f"\0{value_text(expression)}"


def constant_of(expression: Expression) -> Value | None:
    """The value of a literal; None for anything else."""
    if isinstance(expression, Literal):
        return expression.value
    return expression.seconds if isinstance(expression, Instant) else None


def domain_of(expression: Expression, environment: Environment) -> Domain:
    """Every value that the expression can have, and perhaps some more."""
    match expression:
        case Property(name):
            return environment.attribute(name)
        case Literal(value):
            return exactly(value)
        case Instant(seconds):
            return exactly(seconds)
        case Arithmetic(sign, left, right):
            found = _arithmetic(sign, domain_of(left, environment), domain_of(right, environment))
        case Call(name, arguments):
            inputs = [domain_of(argument, environment) for argument in arguments]
            found = _absolute(inputs[0]) if name == "abs" else _distance(expression, inputs, environment)
        case CaseFold(operand):
            found = _folded(domain_of(operand, environment))
        case Order(left, right):
            found = _order_domain(orders(domain_of(left, environment), domain_of(right, environment)))
        case _:
            raise TypeError(f"not a value: {expression!r}")
    if environment.terms:
        known = environment.domains.get(key_of(expression))
        found = found.meet(known) if known is not None else found
    return found


# ---- order


def orders(left: Domain, right: Domain) -> int:
    """The orders in which two values of these domains can stand."""
    found = 0
    for kind in (float, str, bool):
        found |= _orders_within(left.of(kind), right.of(kind))
    kinds = {kind for side in (left, right) for kind in (float, str, bool) if side.of(kind)}
    if left.null or right.null or len(kinds) > 1:
        found |= UNORDERED
    return found


def _orders_within(left: Points, right: Points) -> int:
    if not (left and right):
        return 0
    found = EQUAL if intervals.meet(left, right) else 0
    if intervals.reaches(right, intervals.after(left[0])):
        found |= LESS
    if intervals.reaches(left, intervals.after(right[0])):
        found |= GREATER
    return found


def _order_domain(found: int) -> Domain:
    signs = any_of(number for order, number in _ORDER_NUMBERS.items() if found & order)
    return Domain(numbers=signs.numbers, null=bool(found & UNORDERED))


def orders_in(domain: Domain) -> int:
    """The orders that the domain of an Order allows."""
    found = sum(order for order, number in _ORDER_NUMBERS.items() if intervals.contains(domain.numbers, number))
    return found | (UNORDERED if domain.null else 0)


def order_points(found: int) -> Points:
    """The numbers of an Order for these orders."""
    return _order_domain(found).numbers


# ---- arithmetic


def _arithmetic(sign: str, left: Domain, right: Domain) -> Domain:
    if not (left.numbers and right.numbers):
        return NULL
    one_by_one = _each_of([left, right], lambda x, y: arithmetic(sign, x, y))
    if one_by_one is not None:
        return one_by_one
    found = _RANGES[sign](intervals.hull(left.numbers), intervals.hull(right.numbers))
    return Domain(numbers=found.numbers, null=found.null or _may_fail(left) or _may_fail(right))


def _each_of(inputs: list[Domain], compute: Callable[..., float | None]) -> Domain | None:
    """The results for all combinations of single numbers, if they are few."""
    choices = [intervals.members(domain.numbers, MAX_COMBINATIONS) for domain in inputs]
    few = [choice for choice in choices if choice is not None]
    if len(few) < len(choices) or math.prod(map(len, few)) > MAX_COMBINATIONS:
        return None
    results = [compute(*numbers) for numbers in itertools.product(*few)]
    numbers = any_of(result for result in results if result is not None).numbers
    return Domain(numbers=numbers, null=None in results or any(map(_may_fail, inputs)))


def _may_fail(domain: Domain) -> bool:
    return bool(domain.null or domain.strings or domain.booleans)


_ALL = Domain(numbers=ANY_NUMBER, null=True)


def _between(ends: list[float]) -> Domain:
    """From the least to the greatest; infinite ends are null where they are reached."""
    low, high = min(ends), max(ends)
    null = math.isinf(low) or math.isinf(high)
    if low == math.inf or high == -math.inf:
        return NULL
    return Domain(numbers=intervals.from_to(max(low, -LARGEST), min(high, LARGEST)), null=null)


def _corners(sign: Callable[[float, float], float]) -> Callable[[Hull, Hull], Domain]:
    return lambda left, right: _between([sign(x, y) for x in left for y in right])


def _quotient(left: Hull, right: Hull) -> Domain:
    if right[0] <= 0.0 <= right[1]:
        return _ALL if right[0] < right[1] else NULL
    return _between([x / y for x in left for y in right])


def _whole_quotient(left: Hull, right: Hull) -> Domain:
    found = _quotient(left, right)
    if not found.numbers:
        return found
    low, high = intervals.hull(found.numbers)
    return Domain(numbers=intervals.from_to(float(math.trunc(low)), float(math.trunc(high))), null=found.null)


def _remainder(left: Hull, right: Hull) -> Domain:
    size = max(abs(right[0]), abs(right[1]))
    if size == 0.0:
        return NULL
    null = right[0] <= 0.0 <= right[1]
    low, high = max(-size, min(0.0, left[0])), min(size, max(0.0, left[1]))
    return Domain(numbers=intervals.from_to(low, high), null=null)


def _power(base: Hull, exponent: Hull) -> Domain:
    if exponent[0] != exponent[1]:
        return _ALL
    n, (low, high) = exponent[0], base
    if n == 0.5:
        if high < 0.0:
            return NULL
        return Domain(numbers=intervals.from_to(math.sqrt(max(0.0, low)), math.sqrt(high)), null=low < 0.0)
    if not (n.is_integer() and 1.0 <= n <= EXACT_EXPONENT):
        return _ALL
    ends = [_whole_power(number, n) for number in base]
    return _between([*ends, 0.0] if low < 0.0 < high and n % 2 == 0 else ends)


def _whole_power(base: float, exponent: float) -> float:
    result = arithmetic("^", base, exponent)
    if result is None:
        return -math.inf if base < 0.0 and exponent % 2 else math.inf
    return result


_RANGES: Mapping[str, Callable[[Hull, Hull], Domain]] = {
    "+": _corners(operator.add),
    "-": _corners(operator.sub),
    "*": _corners(operator.mul),
    "/": _quotient,
    "div": _whole_quotient,
    "%": _remainder,
    "^": _power,
}


# ---- functions


def _absolute(domain: Domain) -> Domain:
    if not domain.numbers:
        return NULL
    one_by_one = _each_of([domain], math.fabs)
    if one_by_one is not None:
        return one_by_one
    low, high = intervals.hull(domain.numbers)
    least = 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))
    return Domain(numbers=intervals.from_to(least, max(abs(low), abs(high))), null=_may_fail(domain))


def _distance(call: Call, inputs: list[Domain], environment: Environment) -> Domain:
    if not all(domain.numbers for domain in inputs):
        return NULL
    one_by_one = _each_of(inputs, distance)
    if one_by_one is not None:
        return one_by_one
    null = any(map(_may_fail, inputs))
    lat1, long1, lat2, long2 = (intervals.hull(domain.numbers) for domain in inputs)
    low, high = distances.bounds(lat1, long1, lat2, long2)
    place = _literal_place(call)
    for term in environment.terms.values():
        other = _literal_place(term) if place and isinstance(term, Call) and term.name == "distance" else None
        if place and other and isinstance(term, Call) and term.arguments[:2] == call.arguments[:2]:
            known = environment.domains[key_of(term)].numbers
            if known:
                near, far = distances.around(other, intervals.hull(known), place)
                low, high = max(low, near), min(high, far)
    return Domain(numbers=intervals.from_to(low, high), null=null)


def _literal_place(call: Expression) -> Hull | None:
    """The second place of distance(), if it is given as numbers."""
    if not isinstance(call, Call) or call.name != "distance":
        return None
    lat, long = constant_of(call.arguments[2]), constant_of(call.arguments[3])
    return (lat, long) if isinstance(lat, float) and isinstance(long, float) else None


def _folded(domain: Domain) -> Domain:
    if not domain.strings:
        return NULL
    texts = intervals.members(domain.strings, MAX_COMBINATIONS)
    strings = ANY_STRING if texts is None else any_of(fold(str(text)) for text in texts).strings
    return Domain(strings=strings, null=bool(domain.null or domain.numbers or domain.booleans))


EVERYTHING = Environment()
"""Nothing is known."""
