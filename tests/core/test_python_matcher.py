"""The matcher in pure Python: it finds what it should without asking everyone."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import Matcher, parse_filter
from spinney.boxes import Range
from spinney.python_matcher import PythonMatcher
from spinney.sided import Sided


class Asked(PythonMatcher):
    """Counts the filters that it looks at."""

    asked = 0

    def _candidates(self, event: Any) -> Any:
        for entry in super()._candidates(event):
            self.asked += 1
            yield entry


@pytest.mark.parametrize(
    ("shape", "reading", "most", "matching"),
    [
        ("source = 'm{0}' AND a > 1", {"source": "m7", "a": 2.0}, 1, 1),
        ("a = {0}", {"a": 7.0}, 1, 1),
        ("a BETWEEN {0} AND {1}", {"a": 500.0}, 30, 6),
        ("a BETWEEN {0} AND {1} AND b > 1", {"a": 500.0, "b": 2.0}, 30, 6),
        ("a > {0}", {"a": 10.0}, 10, 10),
        ("a < {0}", {"a": 990.0}, 9, 9),
        ("a{0} > 1", {"a7": 2.0}, 1, 1),
        ("a{0} LIKE '%x'", {"a7": "x", "b": "x"}, 1, 1),
        ("a{0} + b{0} > 1", {"a7": 2.0, "b7": 2.0}, 1, 1),
        ("a{0} IS NOT NULL", {"a7": True}, 1, 1),
        ("a IN ({0}, {2})", {"a": 7.0}, 1, 1),
    ],
)
def test_only_filters_that_can_match_are_looked_at(
    shape: str, reading: dict[str, Any], most: int, matching: int
) -> None:
    matcher = Asked()
    for i in range(1000):
        matcher.add(i, matcher.prepare(parse_filter(shape.format(i, i + 5, -i - 1))))
    assert len(matcher.match(reading)) == matching
    assert matcher.asked <= most


def test_of_two_things_a_filter_needs_the_rarer_is_looked_for() -> None:
    matcher = Asked()
    for i in range(1000):
        matcher.add(i, matcher.prepare(parse_filter(f"type = 't{i % 4}' AND a BETWEEN {i} AND {i + 5}")))
    assert len(matcher.match({"type": "t0", "a": 500.0})) == 2
    assert matcher.asked < 50


_ends = st.one_of(st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e308, -1e308, 0.1, 0.3]), st.floats(allow_nan=False))
_finite = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e308, -1e308, 0.1, 0.2]), st.floats(allow_nan=False, allow_infinity=False)
)


@given(_finite, _finite, _finite)
def test_a_range_is_found_by_any_number_in_it(low: float, high: float, number: float) -> None:
    low, high = min(low, high), max(low, high)
    matcher = Matcher(native=False)
    matcher.add("in", parse_filter(f"a BETWEEN {low!r} AND {high!r}"))
    for inside in (
        low,
        high,
        min(high, max(low, low / 2 + high / 2)),
        math.nextafter(low, high),
        math.nextafter(high, low),
    ):
        assert matcher.match({"a": inside}) == ["in"]
    assert matcher.match({"a": number}) == (["in"] if low <= number <= high else [])


@given(st.lists(_ends, max_size=20), st.lists(st.integers(0, 19)), _finite)
def test_ranges_with_one_end(ends: list[float], removed: list[int], number: float) -> None:
    ranges = [Range(end, math.inf) if i % 2 else Range(-math.inf, end) for i, end in enumerate(ends)]
    ranges = [item for item in ranges if item != Range(-math.inf, math.inf)]
    sided: Sided[int] = Sided()
    for serial, item in enumerate(ranges):
        sided.add(item, serial, serial)
    gone = {serial for serial in removed if serial < len(ranges)}
    for serial in gone:
        sided.remove(ranges[serial], serial)
    expected = [i for i, (low, high) in enumerate(ranges) if i not in gone and low <= number <= high]
    assert sorted(sided.holding(number)) == expected


def test_levels_are_forgotten_with_the_last_of_their_ranges() -> None:
    matcher = PythonMatcher()
    matcher.add(0, matcher.prepare(parse_filter("a BETWEEN 1 AND 2")))
    matcher.add(1, matcher.prepare(parse_filter("a BETWEEN 1 AND 2 OR b BETWEEN 5 AND 99")))
    for number in (0, 1):
        matcher.remove(number)
    assert not any(matcher._levels.values())
    assert not matcher._found_by
