"""W3, modelled on SGIM: low < v < high on one of ten attributes with uniform ends, so that one third of all match."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .model import Attribute, Integers, Workload, rows

_HIGH = 100_000
_EVENTS = 10_000

ATTRIBUTES = tuple(Attribute(f"v{i}", 2, 0, _HIGH) for i in range(10))


def _event_columns() -> list[Integers]:
    rng = np.random.default_rng(303)
    return [rng.integers(0, _HIGH + 1, _EVENTS) for _ in ATTRIBUTES]


def _subscriptions(count: int) -> Iterator[str]:
    rng = np.random.default_rng(3000 + count)
    attribute = rng.integers(0, len(ATTRIBUTES), count)
    ends = np.sort(rng.integers(0, _HIGH + 1, (count, 2)), axis=1)
    ends[:, 1] = np.maximum(ends[:, 1], ends[:, 0] + 2)
    text = ATTRIBUTES[0].text
    for a, (low, high) in rows(attribute, ends):
        yield f"2 {a} > {text(low)} {a} < {text(high)}"


WORKLOAD = Workload("W3", "ranges", ATTRIBUTES, (5_000, 20_000, 100_000), _event_columns, _subscriptions)
