"""W4, modelled on E-SilboPS: one to three ranges or equalities on five attributes.

The ranges are as wide as makes an event match a few tens of subscriptions at any size. Subscription i contains event
i, so that each event matches at least one.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .model import Attribute, Integers, Workload, rows

_HIGH = 100_000
_EVENTS = 5_000
_MATCHES_WANTED = 40.0
_EQUALITY_SHARE = 0.2

ATTRIBUTES = tuple(Attribute(f"a{i}", 2, 0, _HIGH) for i in range(5))


def _event_columns() -> list[Integers]:
    rng = np.random.default_rng(404)
    return [rng.integers(0, _HIGH + 1, _EVENTS) for _ in ATTRIBUTES]


def _width(count: int, predicates: int, with_equality: bool) -> int:
    """How wide each range must be, in grid steps, for so many predicates to hold with the wanted probability."""
    probability = _MATCHES_WANTED / count
    share: float
    if with_equality:
        share = min((probability / 1e-5) ** (1 / (predicates - 1)), 0.5)
    else:
        share = probability ** (1 / predicates)
    return max(1, int(share * _HIGH))


def _range(value: int, width: int, offset: float) -> tuple[int, int]:
    """A range of this width around the value, cut to the grid."""
    low = value - int(offset * width)
    start, end = max(low, 0), min(low + width, _HIGH)
    return start, max(end, start + 1)


def _subscriptions(count: int) -> Iterator[str]:
    rng = np.random.default_rng(4000 + count)
    predicates, equality = rng.integers(1, 4, count), rng.random(count) < _EQUALITY_SHARE
    anchor = rng.integers(0, _HIGH + 1, (count, len(ATTRIBUTES)))  # a point inside each subscription
    anchor[:_EVENTS] = np.stack(_event_columns(), axis=1)
    order, offsets = np.argsort(rng.random((count, len(ATTRIBUTES))), axis=1), rng.random((count, 3))
    text = ATTRIBUTES[0].text
    widths = {(k, eq): _width(count, k, eq) for k in (1, 2, 3) for eq in (False, True) if k > 1 or not eq}
    for k, wants_equality, point, chosen, offset in rows(predicates, equality, anchor, order, offsets):
        with_equality = wants_equality and k > 1
        parts = [str(k)]
        for j, a in enumerate(chosen[:k]):
            if with_equality and j == 0:
                parts.append(f"{a} = {text(point[a])}")
            else:
                low, high = _range(point[a], widths[k, with_equality], offset[j])
                parts.append(f"{a} B {text(low)} {text(high)}")
        yield " ".join(parts)


WORKLOAD = Workload("W4", "conjunctions", ATTRIBUTES, (10_000, 100_000, 1_000_000), _event_columns, _subscriptions)
