"""What a filter implies of the columns that lie in the lake's files as they are: so that files and row groups are
passed over whose least and greatest values say that nothing in them can match.

It is said in the words of whoever reads: Spark's Columns and pyarrow's expressions have the same operators. Days that
are over lie in the order of their cells (lake.py), so a small place is said in cells, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import h3  # type: ignore[import-untyped]  # ships without types

from spinney.cases import Case, cases_of
from spinney.domain import Domain
from spinney.expression import Filter
from spinney.intervals import BOTTOM, LARGEST, after, hull, ranges

from .schema import CELL_RESOLUTION

STORED: dict[str, type] = {"time": float, "lat": float, "long": float, "type": str, "source": str, "id": str}
"""Attributes that are columns, and of which type."""

MAX_RANGES = 32
"""Of one column; more are not said, but the range from the first to the last."""
MAX_CELLS = 2_000
"""Of a place, about 200 square kilometres; a larger one is not said in cells."""

_CELL_KM2 = 0.1
_DEGREE_KM = 111.0
_MARGIN_KM = 0.3
"""More than it is from a cell's centre to its corners."""
_FAR_NORTH = 80.0
"""Beyond that, degrees of longitude are too short to reckon with."""


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
    cells = _cells(case)
    if cells is None or found is None:
        return found
    return found & _any_range(_few(cells), str, column("cell"))


def _cells(case: Case) -> list[str] | None:
    """Those that may hold a place of the case, sorted; None if they are too many."""
    sides = [case.follows.get(name) for name in ("lat", "long")]
    if any(side is None or side.null or not side.numbers for side in sides):
        return None
    (south, north), (west, east) = (hull(side.numbers) for side in sides if side is not None)
    if not (-_FAR_NORTH < south <= north < _FAR_NORTH and -179 < west <= east < 179):
        return None
    margin = _MARGIN_KM / _DEGREE_KM
    wide = margin / math.cos(math.radians(max(abs(south), abs(north))))
    south, north, west, east = south - margin, north + margin, west - wide, east + wide
    if (north - south) * (east - west) * _DEGREE_KM**2 / _CELL_KM2 > MAX_CELLS:
        return None
    place = h3.LatLngPoly([(south, west), (south, east), (north, east), (north, west)])
    return sorted(h3.h3shape_to_cells(place, CELL_RESOLUTION))


def _few(cells: list[str]) -> list[tuple[str, str]]:
    """The same and some more, in at most so many ranges: they stay apart where they are furthest apart."""
    numbers = [int(cell, 16) for cell in cells]
    apart = sorted(range(1, len(cells)), key=lambda at: numbers[at] - numbers[at - 1], reverse=True)
    starts = [0, *sorted(apart[: MAX_RANGES - 1])]
    return [(cells[start], cells[end - 1] + "\0") for start, end in zip(starts, [*starts[1:], len(cells)], strict=True)]


def _within(domain: Domain, kind: type, column: Any) -> Any | None:
    """None if any value will do."""
    if domain.null:
        return None
    runs = ranges(domain.of(kind))
    if len(runs) > MAX_RANGES:
        runs = [(runs[0][0], runs[-1][1])]
    return _any_range(runs, kind, column)


def _any_range(runs: Iterable[tuple[Any, Any]], kind: type, column: Any) -> Any:
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
