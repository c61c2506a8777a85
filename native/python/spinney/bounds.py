"""What a filter needs of each attribute to be true: a range, or a few values. Coarser than boxes, quick to compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .boxes import Constraint, Equals, Is, Range, reach
from .expression import Filter


class Values(NamedTuple):
    """One of these strings and booleans."""

    values: frozenset[str | bool]


class AnyValue(NamedTuple):
    """Anything but null."""


Bound = Range | Values | AnyValue
Bounds = Mapping[str, Bound]
"""By attribute; one that is not named may be missing."""


def bounds(condition: Filter) -> Bounds:
    """What a publication must hold to match the filter, at least."""
    boxes = reach(condition, True).boxes
    common = set.intersection(*map(set, boxes)) if boxes else ()
    return {name: _around([box[name] for box in boxes]) for name in common}


def _around(constraints: Sequence[Constraint]) -> Bound:
    ranges = [item for item in constraints if isinstance(item, Range)]
    if len(ranges) == len(constraints):
        return Range(min(item.low for item in ranges), max(item.high for item in ranges))
    values = [
        item.text if isinstance(item, Equals) else item.flag for item in constraints if isinstance(item, Equals | Is)
    ]
    return Values(frozenset(values)) if len(values) == len(constraints) else AnyValue()
