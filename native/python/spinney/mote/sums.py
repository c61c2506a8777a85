"""Comparisons of several attributes, as comparisons of one whole sum with whole bounds.

What the doubles compute is compared with what exact arithmetic would: the difference has a bound. Only sums for which
it could turn the verdict are in doubt, and those are counted in: the formula is then a weaker one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from spinney.expression import Arithmetic, ComparisonOperator, Expression, Instant, Literal, Property
from spinney.ranges import ACCEPTED, EQUAL, GREATER, LESS

from .attributes import HIGHEST, Mote
from .formula import ALWAYS, NEVER, Formula, SumWithin, Terms

_HALF_ULP = Fraction(1, 2**53)
_SMALLEST = Fraction(1, 2**1074)
_LARGEST = Fraction(2**1000)
_MAX_DOUBTS = 64
"""Sums in doubt that are looked at one by one."""
_MAX_DEGREE = 2

Factors = tuple[int, ...]
Polynomial = Mapping[Factors, Fraction]
"""Of raw values: what each product of attributes is multiplied with; () is the constant."""


class NotASumError(Exception):
    """The comparison cannot be said so, and why."""


@dataclass(frozen=True, slots=True)
class Computed:
    """What an expression gives: exactly, and how far its double may be from that."""

    exact: Polynomial
    error: Fraction
    is_nearest: bool
    """The double is the one nearest to the exact value."""
    size: Fraction
    """No double is greater."""


def sum_formula(left: Expression, operator: ComparisonOperator, right: Expression, mote: Mote) -> tuple[Formula, bool]:
    """Where the comparison is true, all its attributes being there; and whether just there."""
    one, other = _compute(left, mote), _compute(right, mote)
    apart = _add(one.exact, other.exact, -1)
    terms, scale = _whole(apart)
    offset = apart.get((), Fraction(0))
    error = one.error + other.error
    if not terms:
        return _constant(operator, offset, error)
    low, high = _reach(terms, mote)
    equal = -offset / scale
    doubt = error / scale
    first, last = math.ceil(equal - doubt), math.floor(equal + doubt)
    tie = int(equal) if equal.denominator == 1 and one.is_nearest and other.is_nearest else None
    doubts = [number for number in range(first, min(last, first + _MAX_DOUBTS) + 1) if number != tie]
    return _bounded(terms, operator, (first, last), tie, (low, high)), not doubts or not _matters(doubts, low, high)


def _matters(doubts: list[int], low: int, high: int) -> bool:
    return doubts[0] <= high and doubts[-1] >= low


def _bounded(
    terms: Terms, operator: ComparisonOperator, doubt: tuple[int, int], tie: int | None, reach: tuple[int, int]
) -> Formula:
    """The sums for which the comparison may be true; a tie alone is decided by the operator."""
    first, last = doubt
    strict = tie is not None and first == last == tie
    low, high = reach
    match operator:
        case ">" | ">=":
            return _range(terms, first + (strict and operator == ">"), high, reach)
        case "<" | "<=":
            return _range(terms, low, last - (strict and operator == "<"), reach)
        case "=":
            return _range(terms, first, last, reach)
    if strict and low <= first <= high:
        return SumWithin(terms, first, first, inside=False)
    return ALWAYS


def _range(terms: Terms, first: int, last: int, reach: tuple[int, int]) -> Formula:
    first, last = max(first, reach[0]), min(last, reach[1])
    if first > last:
        return NEVER
    return ALWAYS if (first, last) == reach else SumWithin(terms, first, last)


def _constant(operator: ComparisonOperator, offset: Fraction, error: Fraction) -> tuple[Formula, bool]:
    """A difference that is the same whatever the attributes are."""
    if error and abs(offset) <= error:
        return ALWAYS, False
    order = EQUAL if not offset else LESS if offset < 0 else GREATER
    return (ALWAYS if ACCEPTED[operator] & order else NEVER), True


def _whole(polynomial: Polynomial) -> tuple[Terms, Fraction]:
    """Its products with whole factors, and the scale of their sum."""
    factors = {attributes: factor for attributes, factor in polynomial.items() if attributes and factor}
    if not factors:
        return (), Fraction(1)
    denominator = math.lcm(*(factor.denominator for factor in factors.values()))
    divisor = math.gcd(*(int(factor * denominator) for factor in factors.values()))
    scale = Fraction(divisor, denominator)
    return tuple((int(factor / scale), attributes) for attributes, factor in sorted(factors.items())), scale


def _reach(terms: Terms, mote: Mote) -> tuple[int, int]:
    """The least and the greatest sum; nothing on the way to it exceeds int32 (design: on the mote)."""
    low = high = most = 0
    for factor, attributes in terms:
        product = (1, 1)
        for index in attributes:
            item = mote.attributes[index]
            product = _times(product, (item.low, item.high))
            most = max(most, *map(abs, product), abs(item.low), abs(item.high))
        term = _times(product, (factor, factor))
        most = max(most, abs(factor))
        low, high = low + min(0, term[0]), high + max(0, term[1])
    if max(most, -low, high) > HIGHEST:
        raise NotASumError("its sum would overflow int32 on the mote")
    least = sum(_term_reach(term, mote)[0] for term in terms)
    return least, sum(_term_reach(term, mote)[1] for term in terms)


def _term_reach(term: tuple[int, Factors], mote: Mote) -> tuple[int, int]:
    found = (term[0], term[0])
    for index in term[1]:
        found = _times(found, (mote.attributes[index].low, mote.attributes[index].high))
    return found


def _times(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    products = [a * b for a in one for b in other]
    return min(products), max(products)


# ---- exact arithmetic beside the doubles'


def _compute(expression: Expression, mote: Mote) -> Computed:
    match expression:
        case Literal(float(value)) | Instant(value):
            return Computed({(): Fraction(value)}, Fraction(0), True, abs(Fraction(value)))
        case Property(name) if name in mote.index:
            index = mote.index[name]
            item = mote.attributes[index]
            return _rounded({(index,): Fraction(item.p, item.q)}, Fraction(0), mote)
        case Arithmetic("+" | "-" as operator, left, right):
            one, other = _compute(left, mote), _compute(right, mote)
            exact = _add(one.exact, other.exact, 1 if operator == "+" else -1)
            return _rounded(exact, one.error + other.error, mote)
        case Arithmetic("*", left, right):
            return _multiplied(_compute(left, mote), _compute(right, mote), mote)
        case Arithmetic("/", left, Literal(float(divisor))) if divisor:
            one = _compute(left, mote)
            exact = {factors: factor / Fraction(divisor) for factors, factor in one.exact.items()}
            return _rounded(exact, one.error / abs(Fraction(divisor)), mote)
        case Arithmetic("^", base, Literal(2.0)):
            one = _compute(base, mote)
            return _multiplied(one, one, mote)
    raise NotASumError("it is more than sums and products of two attributes")


def _multiplied(one: Computed, other: Computed, mote: Mote) -> Computed:
    product: dict[Factors, Fraction] = {}
    for factors, factor in one.exact.items():
        for others, another in other.exact.items():
            both = tuple(sorted(factors + others))
            product[both] = product.get(both, Fraction(0)) + factor * another
    error = one.size * other.error + other.size * one.error + one.error * other.error
    return _rounded(product, error, mote)


def _rounded(exact: Polynomial, error: Fraction, mote: Mote) -> Computed:
    """One operation's result: the error of its operands, and that of rounding unless the doubles hold it exactly."""
    if any(len(factors) > _MAX_DEGREE for factors in exact):
        raise NotASumError("it is more than sums and products of two attributes")
    size = sum((abs(factor) * _largest(factors, mote) for factors, factor in exact.items()), Fraction(0)) + error
    if size > _LARGEST:
        raise NotASumError("its numbers are too large")
    denominator = math.lcm(*(factor.denominator for factor in exact.values()), 1)
    if not error and denominator & (denominator - 1) == 0 and size * denominator <= 2**53:
        return Computed(exact, Fraction(0), True, size)
    rounding = size * _HALF_ULP + _SMALLEST
    return Computed(exact, error + rounding, not error, size + rounding)


def _largest(factors: Factors, mote: Mote) -> int:
    return math.prod(max(abs(mote.attributes[index].low), abs(mote.attributes[index].high)) for index in factors)


def _add(one: Polynomial, other: Polynomial, sign: int) -> dict[Factors, Fraction]:
    total = dict(one)
    for factors, factor in other.items():
        total[factors] = total.get(factors, Fraction(0)) + sign * factor
    return total
