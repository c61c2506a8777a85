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
from spinney_tools.bench.footprint_chart import Line, Panel, chart
from spinney_tools.bench.footprint_found import (
    COAP,
    CUPUS,
    MQTT,
    PACKED,
    SPINNEY,
    SPINNEY_JSON,
    STATES,
    WAYS,
    Found,
    Ratio,
    Run,
)
from spinney_tools.bench.matching import WrongAnswer


@pytest.fixture(scope="module")
def found() -> Found:
    return bench.walked(runs=3, coverages=(0.4, 0.75, 0.85))


@pytest.mark.slow
def test_of_few_runs_the_targets_are_met(found: Found) -> None:
    assert found.missed() == []
    for coverage in found.coverages:
        states, *ratios = [found.mean(way, coverage).messages for way in reversed(WAYS[1:])]
        assert states < coverage
        assert ratios == sorted(ratios)
        assert all(ratio > coverage - setting.CLOSE for ratio in ratios)


@pytest.mark.slow
def test_each_coverage_has_a_column(found: Found) -> None:
    assert bench.table(found).header[1:] == ("40%", "75%", "85%")
    assert [row["covered"] for row in found.as_json()["rows"]] == pytest.approx([0.4, 0.75, 0.85], abs=setting.CLOSE)


@pytest.mark.slow
def test_what_the_paper_does_not_count_is_told_too(found: Found) -> None:
    """Answers of the cloud, which the others do not have, and what a visit over BLE takes."""
    for row in found.as_json()["rows"]:
        ours = row[SPINNEY]
        assert ours["bytes_with_answers"] > ours["bytes"]
        assert ours["ble_bytes"] > 0
    text = bench.table(found).markdown()
    cells = {row[0]: row[1:] for row in bench.table(found).rows}
    ours = [f"{found.mean(SPINNEY, one).bytes_with_answers:.2f}" for one in found.coverages]
    assert list(cells["bytes, acknowledged: Spinney"]) == ours
    assert f"{found.ble_of_a_sample:.0f} messages; of a mote that stays connected it would be one" in text
    assert text.startswith("*Modelled*")


@pytest.mark.slow
def test_with_acknowledgements_it_takes_less_than_cupus_and_mqtt_and_in_json_it_does_not(found: Found) -> None:
    """And each contender is there with our codec, too."""
    for coverage in (0.4, 0.75):
        ours, json, cupus = (found.mean(way, coverage) for way in (SPINNEY, SPINNEY_JSON, CUPUS))
        assert ours.messages_with_answers < min(cupus.messages_with_answers, 1.0)
        assert ours.bytes_with_answers < min(cupus.bytes_with_answers, 1.0) / 1.5
        assert json.messages_with_answers > cupus.messages_with_answers
        assert all(found.mean(packed, coverage).bytes < 0.5 for packed in PACKED)


@pytest.mark.slow
def test_the_chart_is_well_formed_and_names_each_way(found: Found) -> None:
    path, text = bench.picture(found)
    root = ElementTree.fromstring(text)
    words = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {*WAYS, "MQTT, packed", "CUPUS, packed"} <= words
    assert {title for title, *_ in bench._PANELS} <= words
    assert "prefers-color-scheme:dark" in text
    assert path.as_posix() == "mobile_broker/footprint.svg"


def ratio(messages: float, bytes_with_answers: float = 0.5) -> Ratio:
    return Ratio(messages, 1.0, messages, bytes_with_answers, 1.0, 1.0)


def of(spinney: float, cupus: float, coverage: float = 0.85, bytes_with_answers: float = 0.4) -> Found:
    ways = {MQTT: 1.0, COAP: 1.2, CUPUS: cupus, SPINNEY: spinney, STATES: 0.2}
    ratios = {way: ratio(messages) for way, messages in ways.items()}
    ratios[SPINNEY] = ratio(spinney, bytes_with_answers)
    return Found([Run(coverage, coverage, ratios, dict.fromkeys(ways, 20.0), 0.0, 10.0)])


@pytest.mark.parametrize(
    ("found", "missed"),
    [
        (of(0.95, 0.98), 0),
        (of(0.95, 0.94), 1),
        (of(1.0, 1.01), 1),
        (of(1.02, 1.01), 2),
        (of(1.01, 1.02, coverage=0.9), 0),
        (of(0.8, 0.9, coverage=0.75), 0),
        (of(0.8, 0.9, coverage=0.75, bytes_with_answers=0.51), 1),
        (of(0.9, 0.9, coverage=0.75), 1),
        (of(1.01, 1.1, coverage=0.75), 2),
    ],
)
def test_more_messages_than_cupus_or_than_mqtt_miss_the_targets(found: Found, missed: int) -> None:
    assert len(found.missed()) == missed


def test_lines_cross_where_control_takes_what_filters_spare() -> None:
    assert of(0.95, 0.98).crosses(SPINNEY, 36.0) == pytest.approx(0.8)


@pytest.mark.slow
def test_tallies_every_ten_seconds_would_miss_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "LONGEST_SECONDS", tally.TALLY_SECONDS)
    assert len(Found(bench.one_run(0, (0.85,))).missed()) == 2


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
    root = ElementTree.fromstring(chart("a < b", "", (0.3, 0.9), [Panel("p", lines)]))
    heights = [float(one.get("y", "0")) for one in root.iter() if one.text in ("a", "b", "c")]
    assert all(b - a > 15.9 for a, b in itertools.pairwise(heights))
