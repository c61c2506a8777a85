"""What a program tests, two-valued: where a filter has the verdict that is wanted, and where not.

Kleene's logic needs no third value here. A filter is TRUE where a monotone formula of "this part is TRUE" and "this
part is FALSE" holds, with NOT moved inward; a part that is unknown is neither.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .attributes import HIGHEST, LOWEST

Terms = tuple[tuple[int, tuple[int, ...]], ...]
"""Whole factors, each with one attribute or two that are multiplied."""


class Formula:
    """A node of the formula."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Constant(Formula):
    """Always, or never."""

    value: bool


@dataclass(frozen=True, slots=True)
class Presence(Formula):
    """An attribute has a value, or has none."""

    index: int
    wanted: bool = True


@dataclass(frozen=True, slots=True)
class Within(Formula):
    """A value is there, and from low to high; or outside of that."""

    index: int
    low: int
    high: int
    inside: bool = True


@dataclass(frozen=True, slots=True)
class SumWithin(Formula):
    """A sum of attributes that are known to be there."""

    terms: Terms
    low: int
    high: int
    inside: bool = True


@dataclass(frozen=True, slots=True)
class All(Formula):
    """AND."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True, slots=True)
class Some(Formula):
    """OR."""

    parts: tuple[Formula, ...]


ALWAYS = Constant(True)
NEVER = Constant(False)


def every(parts: Iterable[Formula]) -> Formula:
    """AND, without what always holds and what is said twice."""
    kept = _flat(parts, All)
    if NEVER in kept:
        return NEVER
    kept = [part for part in kept if part != ALWAYS and not _is_implied(part, kept)]
    return All(tuple(kept)) if len(kept) > 1 else kept[0] if kept else ALWAYS


def some(parts: Iterable[Formula]) -> Formula:
    """OR, likewise."""
    kept = _flat(parts, Some)
    if ALWAYS in kept:
        return ALWAYS
    kept = [part for part in kept if part != NEVER]
    return Some(tuple(kept)) if len(kept) > 1 else kept[0] if kept else NEVER


def within(outer: Formula, inner: Formula) -> Formula:
    """AND, without what the second of them implies."""
    parts = outer.parts if isinstance(outer, All) else (outer,)
    return every([*(part for part in parts if not _implies(inner, part)), inner])


def _implies(one: Formula, other: Formula) -> bool:
    """Whether surely the other holds wherever this one does."""
    if one == other or other == ALWAYS:
        return True
    if isinstance(one, Some):
        return all(_implies(part, other) for part in one.parts)
    if isinstance(other, All):
        return all(_implies(one, part) for part in other.parts)
    if isinstance(other, Some) and any(_implies(one, part) for part in other.parts):
        return True
    if isinstance(one, All):
        return any(_implies(part, other) for part in one.parts)
    if not (isinstance(one, SumWithin) and isinstance(other, SumWithin) and one.inside and other.inside):
        return False
    return one.terms == other.terms and other.low <= one.low and one.high <= other.high


def _flat(parts: Iterable[Formula], kind: type[All] | type[Some]) -> list[Formula]:
    flat: dict[Formula, None] = {}
    for part in parts:
        flat.update(dict.fromkeys(part.parts if isinstance(part, kind) else (part,)))
    return list(flat)


def _is_implied(part: Formula, others: list[Formula]) -> bool:
    """A test of an attribute's value says that it is there."""
    if not (isinstance(part, Presence) and part.wanted):
        return False
    before = others[: others.index(part)]
    return any(isinstance(other, Within) and other.index == part.index for other in before)


def of_stretches(index: int, stretches: list[tuple[int, int]], low: int, high: int) -> Formula:
    """A value is in one of these ascending stretches, where it is never below low or above high."""
    if not stretches:
        return NEVER
    if stretches == [(low, high)]:
        return Presence(index)
    if len(stretches) == 2 and stretches[0][0] == low and stretches[1][1] == high:
        return Within(index, stretches[0][1] + 1, stretches[1][0] - 1, inside=False)
    return some(
        Within(index, LOWEST if first == low else first, HIGHEST if last == high else last) for first, last in stretches
    )
