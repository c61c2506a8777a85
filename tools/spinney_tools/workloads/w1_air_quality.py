"""W1, modelled on CUPUS' air quality: one predicate per subscription, a tenth or more of all match.

A fifth of the subscriptions are ranges of time; the others compare one of seven measured attributes with a constant
that comes from the same distribution as the events.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .model import Attribute, Floats, Integers, Workload, rows

_OPERATORS = ("<", "<=", ">", ">=", "=")
_MEASURED = 7
_TIME = 9
_SAMPLE_ROWS = 50_000
_EVENTS = 10_000
_TIME_RANGE = (1_700_000_000, 1_702_592_001)

ATTRIBUTES = (
    Attribute("temp", 1, 0, 400),
    Attribute("hum", 1, 100, 1000),
    Attribute("pressure", 1, 9700, 10400),
    Attribute("CO", 3, 0, 20000),
    Attribute("NO2", 3, 0, 5000),
    Attribute("SO2", 3, 0, 3000),
    Attribute("battery", 0, 0, 100),
    Attribute("lat", 5, 4575000, 4585000),
    Attribute("long", 5, 1590000, 1610000),
    Attribute("time", 0, 1700000000, 1702592000),
)


def _on_grid(values: Floats, attribute: int) -> Integers:
    limits = ATTRIBUTES[attribute]
    return np.clip(np.rint(values), limits.low, limits.high).astype(np.int64)


def _readings(rng: np.random.Generator, count: int) -> list[Integers]:
    return [
        _on_grid(rng.normal(190, 70, count), 0),
        _on_grid(rng.normal(600, 150, count), 1),
        _on_grid(rng.normal(10130, 80, count), 2),
        _on_grid(rng.lognormal(6.8, 0.6, count), 3),
        _on_grid(rng.lognormal(4.5, 0.7, count), 4),
        _on_grid(rng.lognormal(3.5, 0.8, count), 5),
        rng.integers(1, 101, count),
        rng.integers(4575000, 4585001, count),
        rng.integers(1590000, 1610001, count),
        rng.integers(*_TIME_RANGE, count),
    ]


def _sample_and_events() -> tuple[list[Integers], list[Integers]]:
    rng = np.random.default_rng(101)
    return _readings(rng, _SAMPLE_ROWS), _readings(rng, _EVENTS)


def _event_columns() -> list[Integers]:
    return _sample_and_events()[1]


def _subscriptions(count: int) -> Iterator[str]:
    sample = np.stack(_sample_and_events()[0])
    rng = np.random.default_rng(1000 + count)
    is_time = rng.random(count) < 0.2
    row, attribute, operator = (
        rng.integers(0, _SAMPLE_ROWS, count),
        rng.integers(0, _MEASURED, count),
        rng.integers(0, len(_OPERATORS), count),
    )
    times = np.sort(rng.integers(*_TIME_RANGE, (count, 2)), axis=1)
    constant = sample[attribute, row]
    for timed, a, op, value, (start, end) in rows(is_time, attribute, operator, constant, times):
        if timed:
            yield f"1 {_TIME} B {start} {max(end, start + 1)}"
        else:
            yield f"1 {a} {_OPERATORS[op]} {ATTRIBUTES[a].text(value)}"


WORKLOAD = Workload("W1", "air quality", ATTRIBUTES, (1_000, 10_000, 100_000), _event_columns, _subscriptions)
