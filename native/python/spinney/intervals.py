"""Sets of values of one type, as the sorted points at which membership changes.

(1.0, 3.0) is 1 <= x < 3, (1.0,) is 1 <= x without end, () is nothing. Every value has a next one (the next double, the
string with a NUL more, TRUE after FALSE), so strict and closed bounds are both exact, and so are complements.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any

from .expression import Value

Points = tuple[Any, ...]

LARGEST = sys.float_info.max
BOTTOM: dict[type, Value] = {float: -LARGEST, str: "", bool: False}
"""The least value of each type."""

_LAST_CHARACTER = "\U0010ffff"
_BEFORE_SURROGATES = "\ud7ff"


def after(value: Value) -> Value | None:
    """The next value of the same type; None after the last."""
    if isinstance(value, str):
        return value + "\0"
    if isinstance(value, bool):
        return None if value else True
    following = math.nextafter(value, math.inf)
    return None if following == math.inf else following


def from_to(first: Value, last: Value | None) -> Points:
    """first <= x <= last; without end if last is None."""
    if last is None:
        return (first,)
    if first > last:  # type: ignore[operator]  # both of one type
        return ()
    end = after(last)
    return (first,) if end is None else (first, end)


def single(value: Value) -> Points:
    """Just this value."""
    return from_to(value, value)


def of_values(values: Iterable[Any]) -> Points:
    """Just these values, all of one type."""
    points: list[Any] = []
    for value in sorted(values):
        end = after(value)
        if points and points[-1] == value:
            points.pop()
        else:
            points.append(value)
        if end is not None:
            points.append(end)
    return tuple(points)


def everything(kind: type) -> Points:
    """All values of a type."""
    return (BOTTOM[kind],)


def compared(operator: str, value: Value) -> Points:
    """All x of the value's type with x operator value."""
    match operator:
        case "=":
            return single(value)
        case "<>":
            return complement(single(value), type(value))
        case "<":
            return complement((value,), type(value))
        case ">=":
            return (value,)
        case "<=":
            return from_to(BOTTOM[type(value)], value)
    return complement(from_to(BOTTOM[type(value)], value), type(value))


def with_prefix(prefix: str) -> Points | None:
    """All strings that begin so; None in the one case where the end could not be written."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if kept.endswith(_BEFORE_SURROGATES):
        return None
    return (prefix, kept[:-1] + chr(ord(kept[-1]) + 1)) if kept else (prefix,)


def is_prefix(run: tuple[Value, Value | None]) -> bool:
    """Whether a run is that of all strings with a prefix, which is then its first."""
    return isinstance(run[0], str) and with_prefix(run[0]) == (run if run[1] is not None else run[:1])


def contains(points: Points, value: Value) -> bool:
    """Whether the value is in the set."""
    return bisect_right(points, value) & 1 == 1


def complement(points: Points, kind: type) -> Points:
    """All other values of the type."""
    bottom = BOTTOM[kind]
    return points[1:] if points and points[0] == bottom else (bottom, *points)


def subset(inner: Points, outer: Points) -> bool:
    """Whether all of inner is in outer."""
    for i in range(0, len(inner), 2):
        at = bisect_right(outer, inner[i])
        if not at & 1:
            return False
        if at < len(outer) and (i + 1 == len(inner) or inner[i + 1] > outer[at]):
            return False
    return True


def intersection(first: Points, second: Points) -> Points:
    """What is in both."""
    return _sweep(first, second, 2) if first and second else ()


def union(first: Points, second: Points) -> Points:
    """What is in either."""
    return _sweep(first, second, 1) if first and second else first or second


def _sweep(first: Points, second: Points, needed: int) -> Points:
    """Walks the points of both in order; a value is in the result where at least so many contain it."""
    found: list[Any] = []
    i = j = 0
    while i < len(first) or j < len(second):
        take_first = j == len(second) or (i < len(first) and first[i] <= second[j])
        point = first[i] if take_first else second[j]
        if i < len(first) and first[i] == point:
            i += 1
        if j < len(second) and second[j] == point:
            j += 1
        inside = (i & 1) + (j & 1) >= needed
        if inside != bool(len(found) & 1):
            found.append(point)
    return tuple(found)


def meet(first: Points, second: Points) -> bool:
    """Whether anything is in both."""
    return bool(intersection(first, second))


def reaches(points: Points, value: Value | None) -> bool:
    """Whether some member is as great as the value; None is beyond them all."""
    return value is not None and bool(points) and (len(points) & 1 == 1 or points[-1] > value)


def ranges(points: Points) -> list[tuple[Any, Any]]:
    """(first, end) of each run, the end excluded; None for no end."""
    ends = (*points, None) if len(points) & 1 else points
    return [(ends[i], ends[i + 1]) for i in range(0, len(ends), 2)]


def members(points: Points, limit: int) -> list[Value] | None:
    """All members if each stands alone and they are at most so many, else None."""
    if len(points) > 2 * limit:
        return None
    found: list[Value] = []
    for i in range(0, len(points), 2):
        if after(points[i]) != (points[i + 1] if i + 1 < len(points) else None):
            return None
        found.append(points[i])
    return found


def hull(points: Points) -> tuple[float, float]:
    """The least and the greatest number of a set of numbers that is not empty."""
    return points[0], LARGEST if len(points) & 1 else math.nextafter(points[-1], -math.inf)
