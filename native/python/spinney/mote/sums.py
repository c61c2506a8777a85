"""Comparisons of several attributes, as comparisons of one whole sum with whole bounds.

What the doubles compute is compared with what exact arithmetic would: the difference has a bound. Only sums for which
it could turn the verdict are in doubt. Where only the feed is wanted those are counted in: the formula is then a weaker
one. Where a bit is kept, the reference is asked for all raw values that give such a sum: mostly they are ties.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from spinney.compiled import compile_filter
from spinney.expression import (
    Arithmetic,
    Compare,
    ComparisonOperator,
    Expression,
    Instant,
    Literal,
    Property,
    properties,
)
from spinney.ranges import ACCEPTED, EQUAL, GREATER, LESS

from .attributes import HIGHEST, Mote
from .formula import ALWAYS, NEVER, Formula, SumWithin, Terms, some

_HALF_ULP = Fraction(1, 2**53)
_SMALLEST = Fraction(1, 2**1074)
_LARGEST = Fraction(2**1000)
_MAX_DOUBTS = 64
"""Sums in doubt that are looked at one by one."""
_MAX_DEGREE = 2
MAX_ASKED = 8
"""Sums in doubt for which the reference is asked; more of them are more than ties."""
MAX_PAIRS = 16_384
"""Of raw values that give one sum: more than two thermometers in hundredths have."""
ROUNDED = "doubles round it, where it is equal, one way or the other"

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


@dataclass(frozen=True, slots=True)
class _Sum:
    """A difference of two computations, as a whole sum."""

    terms: Terms
    reach: tuple[int, int]
    first: int
    """The least and the greatest sum for which the doubles may compare otherwise than the exact values."""
    last: int
    tie: int | None
    """The sum of equal values, if the doubles are surely equal there, too."""

    @property
    def doubts(self) -> list[int]:
        """Sums in doubt."""
        numbers = range(self.first, min(self.last, self.first + _MAX_DOUBTS) + 1)
        found = [number for number in numbers if number != self.tie]
        return found if found and found[0] <= self.reach[1] and found[-1] >= self.reach[0] else []


def sum_formula(left: Expression, operator: ComparisonOperator, right: Expression, mote: Mote) -> tuple[Formula, bool]:
    """Where the comparison is true, all its attributes being there; and whether just there."""
    found = _sum(left, operator, right, mote)
    if not isinstance(found, _Sum):
        return found
    return _bounded(found.terms, operator, (found.first, found.last), found.tie, found.reach), not found.doubts


def decided_sums(
    left: Expression, operator: ComparisonOperator, right: Expression, mote: Mote
) -> tuple[Formula, Formula]:
    """Where the comparison is surely true, all its attributes being there; and where raw values of one sum differ."""
    found = _sum(left, operator, right, mote)
    if not isinstance(found, _Sum):
        test, exact = found
        if not exact:
            raise NotASumError(ROUNDED)
        return test, NEVER
    doubts = found.doubts
    if not doubts:
        return _bounded(found.terms, operator, (found.first, found.last), found.tie, found.reach), NEVER
    if len(doubts) > MAX_ASKED:
        raise NotASumError("doubles round it one way or the other where it is nearly equal, too")
    judged = _judged(found, Compare(operator, left, right), mote)
    return _of_sums(found, judged, True), _of_sums(found, judged, None)


def _sum(left: Expression, operator: ComparisonOperator, right: Expression, mote: Mote) -> _Sum | tuple[Formula, bool]:
    """The sum to look at; where there is none, the formula and whether it is exact."""
    one, other = _compute(left, mote), _compute(right, mote)
    apart = _add(one.exact, other.exact, -1)
    terms, scale = _whole(apart)
    offset = apart.get((), Fraction(0))
    error = one.error + other.error
    if not terms:
        return _constant(operator, offset, error)
    equal = -offset / scale
    doubt = error / scale
    tie = int(equal) if equal.denominator == 1 and one.is_nearest and other.is_nearest else None
    return _Sum(terms, _reach(terms, mote), math.ceil(equal - doubt), math.floor(equal + doubt), tie)


# ---- what the reference says of each sum

Judged = list[tuple[int, int, bool | None]]
"""Stretches of sums, ascending, each with its verdict; None where raw values of one sum differ."""


def _judged(found: _Sum, comparison: Compare, mote: Mote) -> Judged:
    """All sums that raw values give."""
    accepted = ACCEPTED[comparison.operator]
    low, high = found.reach
    judged: Judged = [(low, min(found.first - 1, high), bool(accepted & LESS))]
    for number in range(max(found.first, low), min(found.last, high) + 1):
        if number == found.tie:
            judged.append((number, number, bool(accepted & EQUAL)))
            continue
        pairs = _pairs(found.terms, number, comparison, mote)
        if pairs is None or len(pairs) > MAX_PAIRS:
            judged.append((number, number, None))
        elif len(pairs):
            judged.append((number, number, _asked(comparison, pairs, mote)))
    judged.append((max(found.last + 1, low), high, bool(accepted & GREATER)))
    return judged


class _Pairs:
    """The raw values of two attributes that give one sum: of `first` each in `raws`, and what `second` is then."""

    def __init__(self, terms: Terms, number: int, raws: range) -> None:
        (self._by, (self.first,)), (self._other_by, (self.second,)) = terms
        self._number = number
        self._raws = raws

    def __len__(self) -> int:
        return len(self._raws)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for raw in self._raws:
            yield raw, (self._number - self._by * raw) // self._other_by


def _pairs(terms: Terms, number: int, comparison: Compare, mote: Mote) -> _Pairs | None:
    """None unless it is a sum of two attributes, and no other attribute cancels out."""
    if [len(factors) for _, factors in terms] != [1, 1] or len(properties(comparison)) != len(terms):
        return None
    (by, (first,)), (other_by, (second,)) = terms
    one, other = mote.attributes[first], mote.attributes[second]
    ends = sorted(Fraction(number - other_by * raw, by) for raw in (other.low, other.high))
    low, high = max(one.low, math.ceil(ends[0])), min(one.high, math.floor(ends[1]))
    step = abs(other_by)
    low += (number * pow(by, -1, step) - low) % step
    return _Pairs(terms, number, range(low, high + 1, step))


def _asked(comparison: Compare, pairs: _Pairs, mote: Mote) -> bool | None:
    """What the reference says of all pairs; None where it says both."""
    one, other = mote.attributes[pairs.first], mote.attributes[pairs.second]
    holds = compile_filter(comparison, clean=True)
    verdict: bool | None = None
    for raw, other_raw in pairs:
        said = holds({one.name: one.decode(raw), other.name: other.decode(other_raw)})
        if verdict is not None and said is not verdict:
            return None
        verdict = said
    return verdict


def _of_sums(found: _Sum, judged: Judged, wanted: bool | None) -> Formula:
    """The sums with a verdict."""
    stretches: list[tuple[int, int]] = []
    previous = None
    for low, high, verdict in judged:
        if low > high:
            continue
        if verdict is wanted and previous is wanted and stretches:
            stretches[-1] = (stretches[-1][0], high)  # no raw values give the sums between them
        elif verdict is wanted:
            stretches.append((low, high))
        previous = verdict
    return some(_range(found.terms, low, high, found.reach) for low, high in stretches)


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
