"""overlaps and activation: a feed is asleep only where nothing announced can match it."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from strategies import filters, knowns, probes, seeds

from spinney import parse_filter
from spinney.expression import Filter
from spinney.known import Known
from spinney.overlaps import activation, overlaps

ANNOUNCED = Known.from_json(
    {
        "source": {"values": ["m1", "m2"], "presence": "always"},
        "NO2": {"type": "number", "min": 0, "max": 200},
        "temp": {"type": "number", "min": -40, "max": 85},
        "lat": {"min": 45.7, "max": 45.9, "presence": "always"},
        "long": {"min": 15.8, "max": 16.1, "presence": "always"},
    },
    closed=True,
)

ASLEEP = [
    "NO2 > 200",
    "humidity > 1",
    "NOT humidity > 1",
    "source = 'm3'",
    "source LIKE 'x%'",
    "NO2 = 'high'",
    "NO2 > 40 AND humidity > 3",
    "NO2 > 250 OR temp > 90",
    "NO2 > 50 AND NO2 < 40",
    "NO2 + temp > 300",
    "temp > NO2 + 100",
    "lat < 45 AND NO2 > 1",
    "S_INTERSECTS(location, BBOX(0, 0, 10, 10))",
    "S_INTERSECTS(location, POLYGON((0 0, 30 0, 30 45.5, 0 0)))",
    "distance(lat, long, 48, 16) < 100000",
    "source IS NULL",
    "location IS NULL",
]

AWAKE = [
    "NO2 > 40",
    "NO2 >= 200",
    "humidity IS NULL",
    "NO2 IS NULL",
    "source LIKE '%2'",
    "NO2 > 250 OR temp > 80",
    "NO2 + temp > 280",
    "temp > NO2",
    "S_INTERSECTS(location, POLYGON((0 0, 30 0, 30 90, 0 0)))",
    "distance(lat, long, 45.8, 16) < 1000",
    "TRUE",
]


@pytest.mark.parametrize("text", ASLEEP)
def test_what_cannot_match_sleeps(text: str) -> None:
    assert not overlaps(parse_filter(text), ANNOUNCED)
    assert activation(parse_filter(text), ANNOUNCED) is None


@pytest.mark.parametrize("text", AWAKE)
def test_what_may_match_is_awake(text: str) -> None:
    assert overlaps(parse_filter(text), ANNOUNCED.environment)
    assert activation(parse_filter(text), ANNOUNCED) is not None


def test_what_is_activated_is_smaller() -> None:
    condition = parse_filter("NO2 BETWEEN 40 AND 500 AND (source = 'm1' OR source = 'm7') AND lat > 40")
    left = activation(condition, ANNOUNCED)
    assert left is not None
    assert left.to_text() == "NO2 >= 40 AND source = 'm1'"


@given(filters(), knowns(), seeds())
def test_a_sleeping_filter_matches_nothing_that_agrees(condition: Filter, known: Known, random: Random) -> None:
    if not overlaps(condition, known):
        for publication in probes(random, condition, known=known, count=15):
            assert condition.evaluate(publication) is not True, publication


@given(filters(2), knowns(), seeds())
def test_an_activation_matches_what_its_feed_matches(condition: Filter, known: Known, random: Random) -> None:
    left = activation(condition, known)
    for publication in probes(random, condition, known=known, count=8):
        matches = left is not None and left.evaluate(publication) is True
        assert matches is (condition.evaluate(publication) is True), publication


@pytest.mark.soak
@settings(max_examples=10_000)
@given(filters(), knowns(), seeds())
def test_very_many_sleeping_filters_match_nothing(condition: Filter, known: Known, random: Random) -> None:
    if not overlaps(condition, known):
        for publication in probes(random, condition, known=known, count=30):
            assert condition.evaluate(publication) is not True
