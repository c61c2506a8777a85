"""specialise: what is known is folded in, and on every agreeing publication nothing changes (design: the one idea)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from strategies import filters, knowns, probes, seeds

from spinney import parse_filter
from spinney.errors import KnownError
from spinney.expression import Filter
from spinney.known import Known
from spinney.specialise import specialise

RANGED = Known.from_json(
    {
        "temp": {"type": "number", "min": -40, "max": 85},
        "sure": {"min": 0, "max": 10, "presence": "always"},
        "source": {"value": "m1", "presence": "always"},
        "room": {"values": ["a", "b"]},
        "one": {"value": 1, "presence": "always"},
        "gone": {"presence": "never"},
        "flag": {"type": "boolean", "presence": "always"},
        "lat": {"min": 45.8, "max": 45.9, "presence": "always"},
        "long": {"min": 15.9, "max": 16.0, "presence": "always"},
        "name": {"type": "string", "presence": "always"},
    },
    closed=True,
)

FOLDED = [
    ("sure > 20", "FALSE"),
    ("sure >= 0", "TRUE"),
    ("sure BETWEEN 0 AND 10", "TRUE"),
    ("sure = 20 OR temp > 50", "temp > 50"),
    ("sure < 20 AND temp > 50", "temp > 50"),
    ("source = 'm1'", "TRUE"),
    ("source = 'm2'", "FALSE"),
    ("source LIKE 'm%'", "TRUE"),
    ("CASEI(source) = CASEI('M1')", "TRUE"),
    ("source = 1", "0 / 0 = 0"),
    ("gone > 1", "0 / 0 = 0"),
    ("NOT gone > 1", "0 / 0 = 0"),
    ("gone IS NULL", "TRUE"),
    ("unheard > 1", "0 / 0 = 0"),
    ("temp IS NULL", "temp IS NULL"),
    ("sure IS NOT NULL", "TRUE"),
    ("temp BETWEEN -100 AND 20", "temp <= 20"),
    ("temp > 20 AND temp < 200", "temp > 20"),
    ("room IN ('x', 'a', 'y')", "room = 'a'"),
    ("temp > one + 2", "temp > 3"),
    ("sure * 2 + 1 > 30", "FALSE"),
    ("sure * 2 + 1 <= 21", "TRUE"),
    ("sure / 0 > 1", "0 / 0 = 0"),
    ("sure ^ 2 > 101", "FALSE"),
    ("abs(sure - 5) <= 5", "TRUE"),
    ("name LIKE '%'", "TRUE"),
    ("flag = TRUE OR flag = FALSE", "TRUE"),
    ("S_INTERSECTS(location, BBOX(15, 45, 17, 46))", "TRUE"),
    ("S_INTERSECTS(location, BBOX(170, 45, -170, 46))", "FALSE"),
    ("S_INTERSECTS(location, BBOX(15, 45, 15.95, 46))", "S_INTERSECTS(location, BBOX(15, 45, 15.95, 46))"),
    ("S_WITHIN(location, POLYGON((15 45, 17 45, 17.5 47, 15 46, 15 45)))", "TRUE"),
    ("S_WITHIN(location, POLYGON((0 0, 17 0, 8 45, 0 0)))", "FALSE"),
    ("S_INTERSECTS(location, MULTIPOLYGON(((0 0, 1 0, 0 1, 0 0)), ((15 45, 17 45, 17 47, 14 47, 15 45))))", "TRUE"),
    ("distance(lat, long, 45.85, 15.95) < 20000", "TRUE"),
    ("distance(lat, long, 46.85, 15.95) < 20000", "FALSE"),
    ("location IS NULL", "FALSE"),
    ("T_AFTER(sure, DATE('2026-01-01'))", "FALSE"),
    ("temp > 20 AND unheard = 1", "0 / 0 = 0 AND temp > 20"),  # unknown, or false where temp is low
]


@given(filters(), knowns(), seeds())
def test_the_verdict_stays_on_every_agreeing_publication(condition: Filter, known: Known, random: Random) -> None:
    special = specialise(condition, known)
    for publication in probes(random, condition, known=known, count=8):
        assert known.agrees(publication)
        assert special.evaluate(publication) is condition.evaluate(publication), (special.to_text(), publication)


@given(filters(), knowns())
def test_what_is_left_can_be_sent_as_text(condition: Filter, known: Known) -> None:
    special = specialise(condition, known)
    assert parse_filter(special.to_text()).to_text() == special.to_text()
    assert specialise(parse_filter(special.to_text()), known) == special


@pytest.mark.soak
@settings(max_examples=10_000)
@given(filters(), knowns(), seeds())
def test_the_verdict_stays_for_very_many_filters(condition: Filter, known: Known, random: Random) -> None:
    special = specialise(condition, known)
    for publication in probes(random, condition, known=known, count=20):
        assert special.evaluate(publication) is condition.evaluate(publication)


@pytest.mark.parametrize(("text", "left"), FOLDED)
def test_what_is_known_is_folded(text: str, left: str) -> None:
    assert specialise(parse_filter(text), RANGED).to_text() == left


def test_a_range_alone_never_yields_true_since_the_attribute_may_be_missing() -> None:
    left = specialise(parse_filter("temp < 100"), RANGED)
    assert left.evaluate({"temp": 20}) is True
    assert left.evaluate({}) is None


def test_time_is_not_folded_unless_it_is_known() -> None:
    condition = parse_filter("time > TIMESTAMP('2000-01-01T00:00:00Z')")
    assert specialise(condition, Known()).evaluate({"time": 0}) is False
    known = Known.from_json({"time": {"min": 1_767_225_600, "presence": "always"}})
    assert specialise(condition, known).to_text() == "TRUE"


def test_arithmetic_that_may_overflow_may_be_unknown() -> None:
    known = Known.from_json({"a": {"min": 1, "max": 1e308, "presence": "always"}})
    condition = parse_filter("a * 10 > 0")
    left = specialise(condition, known)
    assert left.evaluate({"a": 1e308}) is None
    assert left.evaluate({"a": 5}) is True


@pytest.mark.parametrize(
    "publication",
    [
        {
            "room": "c",
        },
        {"gone": 1},
        {"unheard": 1},
        {"temp": 86},
        {"temp": "warm"},
        {"source": "m2"},
        {"sure": None},
    ],
)
def test_publications_that_are_not_as_known_do_not_agree(publication: dict[str, Any]) -> None:
    usual = {"sure": 5, "source": "m1", "one": 1, "flag": True, "lat": 45.85, "long": 15.95, "name": "n"}
    assert RANGED.agrees(usual)
    assert not RANGED.agrees(usual | publication)


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ([], "a: expected an object with some of type, presence, value, values, min, max"),
        ({"minimum": 3}, "a: expected an object with some of type, presence, value, values, min, max"),
        ({"min": 3, "max": 2}, "a: min 3 is above max 2"),
        ({"min": "low"}, "a: min is a number"),
        ({"type": "int"}, 'a: type is "number", "string", "boolean" or "any"'),
        ({"presence": "often"}, 'a: presence is "always", "maybe" or "never"'),
        ({"type": "string", "value": 3}, "a: no value has this type and lies within these limits"),
        ({"values": []}, "a: expected one value, or values in an array of 1 to 10000"),
        ({"value": 1, "values": [1]}, "a: expected one value, or values in an array of 1 to 10000"),
        ({"value": None}, 'a: a value is not null; say "presence": "never"'),
        ({"value": float("nan")}, "a: a: nan is not a finite number"),
    ],
)
def test_what_cannot_be_known_is_refused(item: Any, message: str) -> None:
    with pytest.raises(KnownError) as caught:
        Known.from_json({"a": item})
    assert str(caught.value) == message
    assert caught.value.attribute == "a"


def test_knowledge_is_an_object_of_attributes() -> None:
    with pytest.raises(KnownError):
        Known.from_json(["a"])
