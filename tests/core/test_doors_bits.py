"""The C core computes distances and folds case to the bit as Python does, and its doors read what Python's do."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matchers import NATIVE

from spinney import Matcher
from spinney.casefold import fold
from spinney.expression import Call, CaseFold, Compare, Filter, Literal, Property
from spinney.geodesy import distance

pytestmark = pytest.mark.skipif(not NATIVE, reason="no C core")

BLOCK = 0x8000
"""Code points of one test: a filter has a largest size."""

anything = st.floats(allow_nan=False, allow_infinity=False)
degrees = st.one_of(
    st.floats(-180, 180), st.sampled_from((0.0, -0.0, 45.0, 90.0, -90.0, 135.0, 180.0, -180.0, 360.0)), anything
)


def matches(condition: Filter, publication: dict[str, Any]) -> bool:
    matcher = Matcher()
    matcher.add("it", condition)
    return list(matcher.match(publication)) == ["it"]


@given(degrees, degrees, degrees, degrees)
@example(45.815, 15.977, -45.815, -164.023)
@example(45.815, 15.977, 45.815, 15.977000000000002)
def test_distance_has_the_same_bits(lat1: float, long1: float, lat2: float, long2: float) -> None:
    places = Property("lat"), Property("long"), Literal(lat2), Literal(long2)
    same = Compare("=", Call("distance", places), Literal(distance(lat1, long1, lat2, long2)))
    assert matches(same, {"lat": lat1, "long": long1})


@pytest.mark.parametrize("first", range(0, sys.maxunicode + 1, BLOCK), ids=hex)
def test_every_code_point_folds_the_same(first: int) -> None:
    text = "".join(chr(code) for code in range(first, first + BLOCK) if not 0xD800 <= code < 0xE000)
    assert matches(Compare("=", CaseFold(Property("s")), Literal(fold(text))), {"s": text})


@given(anything)
def test_a_number_in_json_is_the_double_that_was_written(number: float) -> None:
    matcher = Matcher()
    matcher.add("it", Compare("=", Property("a"), Literal(number)))
    for text in (repr(number), f"{number:.17e}", f"{number:.25e}"):
        assert list(matcher.match_json(f'{{"a": {text}}}'.encode())) == ["it"], text


@given(st.integers(0, 10**40), st.integers(-340, 300))
def test_a_number_of_many_digits_is_the_nearest_double(digits: int, power: int) -> None:
    nearest = float(f"{digits}e{power}")
    if math.isfinite(nearest):
        matcher = Matcher()
        matcher.add("it", Compare("=", Property("a"), Literal(nearest)))
        assert list(matcher.match_json(f'{{"a": {digits}e{power}}}'.encode())) == ["it"]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.booleans())
def test_a_string_in_json_is_the_string_that_was_written(text: str, ascii_only: bool) -> None:
    matcher = Matcher()
    matcher.add("it", Compare("=", Property("s"), Literal(text)))
    document = json.dumps({text + "key": None, "s": text}, ensure_ascii=ascii_only)
    assert list(matcher.match_json(document.encode())) == ["it"]
