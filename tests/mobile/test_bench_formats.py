"""`spinney bench formats` and the delays of `spinney bench footprint`: what they compare; packed is the smallest."""

from __future__ import annotations

import pytest

from spinney_tools.bench import footprint_delay as delay
from spinney_tools.bench import footprint_formats as formats
from spinney_tools.bench.footprint_setting import heard_at, walk


@pytest.fixture(scope="module")
def sizes() -> dict[str, dict[str, float]]:
    walked = walk(1, hours=0.3)
    rows = formats._rows(walked)
    cases = [
        formats.Case("one", [[row] for row in rows[:12]]),
        formats.Case("sixteen", [rows[start : start + 16] for start in range(0, 64, 16)]),
    ]
    forms = formats._forms(formats._rows(walk(formats.TRAINED_ON, hours=0.1))[:4])
    return {name: {case.name: formats._size(form, case) for case in cases} for name, form in forms.items()}


def test_the_packed_format_is_smallest_with_one_reading_and_with_several(sizes: dict[str, dict[str, float]]) -> None:
    assert {"JSON", "CBOR", "Arrow IPC", "JSON, deflate, dictionary", "JSON, deflate, refers", "packed"} <= sizes.keys()
    found = formats.Formats(sizes, {})
    assert found.missed() == []
    assert sizes["packed, refers"]["one"] < sizes["JSON"]["one"] / 4
    assert sizes["packed, refers"]["sixteen"] < sizes["JSON"]["sixteen"] / 12
    sizes["CBOR"]["one"] = 1.0
    assert found.missed() == ["formats: one: another is smaller"]


def test_the_readings_of_motes_that_stay_are_theirs() -> None:
    rows = formats._of_motes(walk(2, hours=0.1), 3)
    assert len({row["source"] for row in rows}) == len({(row["lat"], row["long"]) for row in rows}) == 3
    assert all(row["heard"] == heard_at(row["time"]) for row in rows)


def test_a_delay_is_told_by_its_median_and_its_worst_hundredth() -> None:
    found = delay.Delay.of([number / 1000 for number in range(1, 1001)], messages=7)
    assert (found.p50, found.p99, found.readings, found.messages) == (
        pytest.approx(500.5),
        pytest.approx(991.0),
        1000,
        7,
    )


@pytest.mark.slow
def test_delays_are_of_a_cloud_that_names_the_format_and_of_one_that_does_not() -> None:
    found = delay.measure(seconds=0.5)
    for load in (found.seldom, found.often):
        assert load.keys() == {delay.PACKED, delay.JSON}
        assert all(0 < one.p50 <= one.p99 for one in load.values())
