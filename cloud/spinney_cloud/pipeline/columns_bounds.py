"""What a filter implies of the columns that lie in the lake's files as they are: so that files and row groups are
passed over whose least and greatest values say that nothing in them can match.

It is said in the words of whoever reads: Spark's Columns and pyarrow's expressions have the same operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spinney.cases import Case, cases_of
from spinney.domain import Domain
from spinney.expression import Filter
from spinney.intervals import BOTTOM, LARGEST, after, ranges

STORED: dict[str, type] = {"time": float, "lat": float, "long": float, "type": str, "source": str, "id": str}
"""Attributes that are columns, and of which type."""

MAX_RANGES = 32
"""Of one column; more are not said, but the range from the first to the last."""


def implied(condition: Filter, column: Callable[[str], Any]) -> Any | None:
    """A condition on columns that is true wherever the filter is; None if that would be all rows."""
    found = None
    for case in cases_of(condition):
        one = _case(case, column)
        if one is None:
            return None
        found = one if found is None else found | one
    return found if found is not None else _never(column)


def _case(case: Case, column: Callable[[str], Any]) -> Any | None:
    found = None
    for name, kind in STORED.items():
        domain = case.follows.get(name)
        one = None if domain is None else _within(domain, kind, column(name))
        if one is not None:
            found = one if found is None else found & one
    return found


def _within(domain: Domain, kind: type, column: Any) -> Any | None:
    """None if any value will do."""
    if domain.null:
        return None
    runs = ranges(domain.of(kind))
    if len(runs) > MAX_RANGES:
        runs = [(runs[0][0], runs[-1][1])]
    found = None
    for first, end in runs:
        one = _range(first, end, kind, column)
        found = one if found is None else found | one
    return found if found is not None else _nothing(kind, column)


def _range(first: Any, end: Any, kind: type, column: Any) -> Any:
    """first <= x < end; whatever the bounds, the value is there."""
    if end is not None and after(first) == end:
        return column == first
    if first == BOTTOM[kind]:
        return column <= LARGEST if end is None and kind is float else column >= first if end is None else column < end
    return column >= first if end is None else (column >= first) & (column < end)


def _nothing(kind: type, column: Any) -> Any:
    """Of a column that would have to be of another type."""
    return (column > BOTTOM[kind]) & (column < BOTTOM[kind])


def _never(column: Callable[[str], Any]) -> Any:
    return _nothing(float, column("time"))
