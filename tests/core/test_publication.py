"""The door that every reading comes through (P1)."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from strategies import publications

from spinney import PublicationError, SpinneyError
from spinney.publication import attribute, read


def test_numbers_become_doubles_and_nulls_go() -> None:
    clean = read({"a": 1, "b": None, "c": True, "d": "x", "e": 0.5, "f": 2**53 + 1})
    assert clean == {"a": 1.0, "c": True, "d": "x", "e": 0.5, "f": 2.0**53}
    assert [type(value) for value in clean.values()] == [float, bool, str, float, float]


@given(publications())
def test_what_was_read_is_read_again_unchanged(publication: dict[str, Any]) -> None:
    if "time" in publication and not isinstance(publication["time"], float):
        del publication["time"]
    for name in ("lat", "long"):
        if not isinstance(publication.get(name, 0.0), float):
            del publication[name]
    once = read(OrderedDict(publication))
    assert read(once) == once == publication
    assert all(attribute(publication, name) == value for name, value in once.items())


def test_strings_of_a_subclass_become_plain() -> None:
    class Kind(str, enum.Enum):  # noqa: UP042  # what StrEnum was before 3.11
        AIR = "air"

    value = read({"kind": Kind.AIR})["kind"]
    assert type(value) is str
    assert value == "air"


def test_time_may_be_a_timestamp() -> None:
    assert read({"time": "1970-01-01T00:00:01.5Z"}) == {"time": 1.5}
    assert read({"other": "1970-01-01T00:00:01.5Z"}) == {"other": "1970-01-01T00:00:01.5Z"}


@pytest.mark.parametrize(
    ("publication", "message", "name"),
    [
        ({"a": math.nan}, "a: nan is not a finite number", "a"),
        ({"a": -math.inf}, "a: -inf is not a finite number", "a"),
        ({"a": 10**400}, "a: an integer of 1329 bits is not a finite number", "a"),
        ({"a": [1]}, "a: a value is a number, a string or a boolean, not list", "a"),
        ({"a": {"b": 1}}, "a: a value is a number, a string or a boolean, not dict", "a"),
        ({"id": 5}, "id: must be a string, not a number", "id"),
        ({"source": True}, "source: must be a string, not a boolean", "source"),
        ({"type": 1}, "type: must be a string, not a number", "type"),
        ({"lat": "45"}, "lat: must be a number, not a string", "lat"),
        ({"long": False}, "long: must be a number, not a boolean", "long"),
        ({"time": "noon"}, "time: 'noon' is not a UTC timestamp like 2026-11-18T12:30:00Z", "time"),
        ({"time": True}, "time: must be a number, not a boolean", "time"),
        ({"valid_for": "1h"}, "valid_for: must be a number, not a string", "valid_for"),
        ({"valid_for": -1}, "valid_for: must not be negative", "valid_for"),
        ({"a": "\ud800"}, "a: '\\ud800' is half of a surrogate pair, not a character", "a"),
        ({"": 1}, "an attribute's name is a string that is not empty, not ''", None),
        ({5: 1}, "an attribute's name is a string that is not empty, not 5", None),
        ([1], "a publication is an object of attributes, not list", None),
        (None, "a publication is an object of attributes, not NoneType", None),
    ],
)
def test_what_is_refused_and_why(publication: Any, message: str, name: str | None) -> None:
    with pytest.raises(PublicationError) as caught:
        read(publication)
    assert str(caught.value) == message
    assert caught.value.attribute == name
    assert isinstance(caught.value, SpinneyError)


def test_a_name_is_whole_characters_too() -> None:
    with pytest.raises(PublicationError, match="half of a surrogate pair"):
        read({"a\udfff": 1})


def test_an_attribute_is_checked_whenever_it_is_read() -> None:
    assert attribute({"a": None}, "a") is None
    assert attribute({}, "a") is None
    assert attribute({"a": True}, "a") is True
    assert attribute({"a": 3}, "a") == 3.0
    with pytest.raises(PublicationError, match="half of a surrogate pair"):
        attribute({"a": "\ud800"}, "a")
