"""`spinney bench footprint`: its targets, and what would miss them; its chart and its setting."""

from __future__ import annotations

import itertools
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from spinney_mobile import tally
from spinney_tools.bench import footprint_mote, mote_setting
from spinney_tools.bench import footprint_setting as setting
from spinney_tools.bench import mobile_footprint as bench
from spinney_tools.bench.footprint_chart import Line, chart
from spinney_tools.bench.matching import WrongAnswer


@pytest.fixture(scope="module")
def found() -> bench.Found:
    return bench.measure(lambda _: None, runs=4, coverages=(0.4, 0.85))


@pytest.mark.slow
def test_of_few_runs_the_targets_are_met(found: bench.Found) -> None:
    assert found.missed() == []
    for coverage in found.coverages:
        states, *ratios = [found.mean(way, coverage).messages for way in reversed(bench.WAYS[1:])]
        assert states < coverage
        assert ratios == sorted(ratios)
        assert all(ratio > coverage - setting.CLOSE for ratio in ratios)


@pytest.mark.slow
def test_each_coverage_has_a_row(found: bench.Found) -> None:
    rows = bench.table(found).markdown().splitlines()[-2:]
    assert [row.split("|")[1].strip() for row in rows] == ["40%", "85%"]
    assert [row["covered"] for row in found.as_json()["rows"]] == pytest.approx([0.4, 0.85], abs=setting.CLOSE)


@pytest.mark.slow
def test_what_the_paper_does_not_count_is_told_too(found: bench.Found) -> None:
    """Answers of the cloud, which the others do not have, and what a visit over BLE takes."""
    for row in found.as_json()["rows"]:
        ours = row[bench.SPINNEY]
        assert ours["messages_with_answers"] > ours["messages"]
        assert ours["ble_bytes"] > 0
    text = bench.table(found).markdown()
    assert f"{found.mean(bench.SPINNEY, 0.85).messages_with_answers:.2f} at 85%" in text
    assert f"{found.ble_of_a_sample:.0f} messages; of a mote that stays connected it would be one" in text
    assert "its bytes: Spinney" in text


@pytest.mark.slow
def test_the_chart_is_well_formed_and_names_each_way(found: bench.Found) -> None:
    path, text = bench.picture(found)
    root = ElementTree.fromstring(text)
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert set(bench.WAYS) <= words
    assert "prefers-color-scheme:dark" in text
    assert path.as_posix() == "mobile_broker/footprint.svg"


def ratio(messages: float) -> bench.Ratio:
    return bench.Ratio(messages, 1.0, 1.0, 1.0, 1.0, 1.0)


def of(spinney: float, cupus: float, coverage: float = 0.85) -> bench.Found:
    ways = {bench.MQTT: 1.0, bench.COAP: 1.2, bench.CUPUS: cupus, bench.SPINNEY: spinney, bench.STATES: 0.2}
    ratios = {way: ratio(messages) for way, messages in ways.items()}
    return bench.Found([bench.Run(coverage, coverage, ratios, dict.fromkeys(ways, 20.0), 0.0, 10.0)])


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (of(0.95, 0.98), 0),
        (of(0.95, 0.94), 1),
        (of(1.0, 1.01), 1),
        (of(1.02, 1.01), 2),
        (of(1.01, 1.02, coverage=0.9), 0),
    ],
)
def test_more_messages_than_cupus_or_than_mqtt_miss_the_targets(found: bench.Found, missed: int) -> None:
    assert len(found.missed()) == missed


def test_lines_cross_where_control_takes_what_filters_spare() -> None:
    assert of(0.95, 0.98).crosses(bench.SPINNEY, 36.0) == pytest.approx(0.8)


@pytest.mark.slow
def test_tallies_every_ten_seconds_would_miss_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "LONGEST_SECONDS", tally.TALLY_SECONDS)
    assert len(bench.Found(bench.one_run(0, (0.85,))).missed()) == 2


@pytest.mark.slow
def test_a_mote_that_keeps_back_what_is_wanted_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    library = replace(mote_setting.firmware(), run=lambda *_: 0)
    monkeypatch.setattr(footprint_mote, "firmware", lambda: library)
    with pytest.raises(WrongAnswer, match="is missing"):
        bench.one_run(0, (0.5,))


def test_the_same_seed_gives_the_same_walk_and_the_same_questions() -> None:
    walks = [setting.walk(3, hours=0.2) for _ in range(2)]
    assert walks[0] == walks[1] != setting.walk(4, hours=0.2)
    asked = [setting.Asking(walk).covering(0.5) for walk in walks]
    assert asked[0] == asked[1]


def test_labels_of_lines_that_end_close_to_each_other_stand_apart() -> None:
    lines = [Line(name, [0.5, 1.0], [0.4, 0.9], [0.6, 1.1]) for name in "abc"]
    root = ElementTree.fromstring(chart("a < b", "", (0.3, 0.9), lines))
    heights = [float(one.get("y", "0")) for one in root.iter() if one.text in ("a", "b", "c")]
    assert all(b - a > 15.9 for a, b in itertools.pairwise(heights))
