"""A set of values as the shortest usual condition: =, IN, <, BETWEEN, LIKE 'prefix%', and combinations of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from . import intervals
from .expression import (
    Between,
    Compare,
    Expression,
    Filter,
    In,
    Like,
    Literal,
    Not,
    Value,
    conjunction,
    disjunction,
)
from .intervals import Points
from .like import prefix_pattern
from .text_writer import number_text

Run = tuple[Value, Value | None]
"""From the first value up to, not including, the end; None for no end."""


def membership(operand: Expression, kind: type, points: Points) -> Filter:
    """The condition that is true for these values, false for others of their type, and unknown for all else."""
    bottom = intervals.BOTTOM[kind]
    if not points:
        return Compare("<", operand, Literal(bottom))
    if points == (bottom,):
        return Compare(">=", operand, Literal(bottom))
    if len(points) <= 2:
        run = intervals.ranges(points)[0]
        return _one_of(operand, run[:1]) if _is_single(run) else conjunction(*_bounds(operand, run))
    singles = intervals.members(points, len(points))
    if singles is not None:
        return _one_of(operand, singles)
    runs = intervals.ranges(points)
    gaps = [(first[1], second[0]) for first, second in pairwise(runs)]
    if all(_is_single(gap) or intervals.is_prefix(gap) for gap in gaps):
        return conjunction(*_bounds(operand, (runs[0][0], runs[-1][1])), *_without(operand, gaps))
    return disjunction(*_one_of_singles(operand, runs), *_each_wide(operand, runs))


def _is_single(run: Run) -> bool:
    return intervals.after(run[0]) == run[1]


def _without(operand: Expression, gaps: Sequence[Run]) -> list[Filter]:
    prefixes: list[Filter] = [Not(conjunction(*_bounds(operand, gap))) for gap in gaps if not _is_single(gap)]
    singles = [Literal(gap[0]) for gap in gaps if _is_single(gap)]
    if len(singles) == 1:
        return [Compare("<>", operand, singles[0]), *prefixes]
    return [Not(In(operand, tuple(singles))), *prefixes] if singles else prefixes


def _one_of_singles(operand: Expression, runs: Sequence[Run]) -> list[Filter]:
    singles = [first for first, end in runs if intervals.after(first) == end]
    return [_one_of(operand, singles)] if singles else []


def _each_wide(operand: Expression, runs: Sequence[Run]) -> list[Filter]:
    return [conjunction(*_bounds(operand, run)) for run in runs if not _is_single(run)]


def _one_of(operand: Expression, values: Sequence[Value]) -> Filter:
    if len(values) == 1:
        return Compare("=", operand, Literal(values[0]))
    return In(operand, tuple(map(Literal, values)))


def _bounds(operand: Expression, run: Run) -> list[Filter]:
    first, end = run
    if isinstance(first, str):
        assert end is None or isinstance(end, str)
        return _text_bounds(operand, first, end)
    assert isinstance(first, float)
    low = None if first == intervals.BOTTOM[float] else _lower(first)
    high = None if end is None else _upper(float(end))
    if low and high and (low[0], high[0]) == (">=", "<="):
        return [Between(operand, Literal(low[1]), Literal(high[1]))]
    return [
        Compare(side[0], operand, Literal(side[1]))  # type: ignore[arg-type]  # an operator
        for side in (low, high)
        if side is not None
    ]


def _lower(first: float) -> tuple[str, float]:
    """Closed or strict, whichever has fewer digits."""
    before = math.nextafter(first, -math.inf)
    return (">=", first) if len(number_text(first)) <= len(number_text(before)) else (">", before)


def _upper(end: float) -> tuple[str, float]:
    last = math.nextafter(end, -math.inf)
    return ("<=", last) if len(number_text(last)) <= len(number_text(end)) else ("<", end)


def _text_bounds(operand: Expression, first: str, end: str | None) -> list[Filter]:
    if end is not None and intervals.is_prefix((first, end)):
        return [Like(operand, prefix_pattern(first))]
    found: list[Filter] = []
    if first:
        strict = first.endswith("\0")
        found.append(Compare(">" if strict else ">=", operand, Literal(first[:-1] if strict else first)))
    if end is not None:
        closed = end.endswith("\0")
        found.append(Compare("<=" if closed else "<", operand, Literal(end[:-1] if closed else end)))
    return found
