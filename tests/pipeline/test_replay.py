"""Replays from the lake: the engine's own notifications, for each kind of subscription, whatever the log holds."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kit import publications
from pyspark.sql import SparkSession
from replay_kit import BEGIN, SETTINGS, Entry, LogMaker, by_engine, lake_of, told, wanted

from spinney import parse
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.replay import replay
from spinney_cloud.pipeline.replay_lake import Earlier
from spinney_cloud.pipeline.replay_rows import DAY_SECONDS
from spinney_cloud.pipeline.replay_spark import spark_tables
from spinney_cloud.records import Announced, Publications
from spinney_cloud.subscriptions import form_of

HOUR = 3_600.0
CONTENT = "temp > 25 AND (room = 'kitchen' OR lat < 45.8)"
STATE = "WHEN temp > 25 UNTIL temp <= 22"
SUBSCRIPTIONS: list[str | dict[str, Any]] = [
    CONTENT,
    "room IS NULL OR CASEI(room) LIKE 'ČA%'",
    "temp > 25 AND temp < 20",
    STATE,
    f"{STATE} EACH room",
    f"{STATE} FOR type = 'room' ONCE",
    "WHEN temp > 24 UNTIL temp < 26",
    {"text": STATE, "lost": 600},
    {"text": f"{STATE} EACH room", "reorder": 45, "lost": "20m"},
    {"text": STATE, "debounce": 30},
    {"text": STATE, "dead_band": {"attribute": "temp", "by": 4}},
    "TOP 3 OVER LAST 20 BY temp DESC",
    "TOP 2 OVER 10m BY temp WHERE type = 'room' EACH room",
    "TOP 3 OVER 30s BY distance(lat, long, 45.8, 15.95)",
]


@pytest.fixture(scope="module")
def log() -> list[Entry]:
    return LogMaker(1).make(600)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, log: list[Entry]) -> Path:
    """A lake of two days, the first of which is compacted and ordered by place."""
    folder = tmp_path_factory.mktemp("replay") / "lake"
    lake_of(folder, log).compact()
    return folder


@pytest.mark.parametrize("text", SUBSCRIPTIONS, ids=str)
def test_a_replay_tells_what_the_engine_tells(place: Path, log: list[Entry], text: str | dict[str, Any]) -> None:
    what = wanted(text, BEGIN, log[-1].time + HOUR)
    expected = by_engine(log, what)
    assert told(replay(Lake(place), what, SETTINGS)) == expected
    assert expected or text == SUBSCRIPTIONS[2]


@pytest.mark.parametrize("text", [STATE, f"{STATE} EACH room", f"{STATE} ONCE"])
def test_what_was_evaluated_at_the_edge_is_not_evaluated_again(tmp_path: Path, text: str) -> None:
    """Rule S2: a subscription that means the same as one of then is told by its labels, silent ones among them."""
    log = LogMaker(2, labels_for=text).make(300)
    lake = lake_of(tmp_path, log, batch=50)
    what = wanted(text, BEGIN, log[-1].time + HOUR)
    found = told(replay(lake, what, SETTINGS))
    assert found == by_engine(log, what)
    unlabelled = [Entry(time, replace(one, labels=()) if isinstance(one, Publications) else one) for time, one in log]
    assert found != by_engine(unlabelled, what)


@pytest.mark.parametrize("text", [CONTENT, STATE, "TOP 2 OVER 10m BY temp EACH room"])
def test_a_replay_of_a_part_is_what_the_engine_tells_of_that_part(tmp_path: Path, text: str) -> None:
    log = LogMaker(3, repeats=False).make(250)
    lake = lake_of(tmp_path, log, batch=50)
    cuts = [log[at].time + 0.001 for at in (0, 90, 91, 249)]
    for since, until in itertools.combinations(cuts, 2):
        what = wanted(text, since, until)
        assert told(replay(lake, what, SETTINGS)) == by_engine(log, what)


BY_SPARK = [CONTENT, f"{STATE} EACH room", {"text": STATE, "reorder": 45}, "TOP 2 OVER 10m BY temp EACH room"]


@pytest.mark.parametrize("text", BY_SPARK, ids=str)
def test_spark_reads_the_same(spark: SparkSession, place: Path, log: list[Entry], text: str | dict[str, Any]) -> None:
    what = wanted(text, log[100].time + 0.001, log[-1].time + HOUR)
    lake = Lake(place)
    found = told(replay(lake, what, SETTINGS, spark_tables(spark, lake, what)))
    assert found == told(replay(lake, what, SETTINGS))
    assert found


def test_spark_reads_labels(spark: SparkSession, tmp_path: Path) -> None:
    log = LogMaker(4, labels_for=STATE).make(200)
    lake = lake_of(tmp_path, log)
    what = wanted(STATE, BEGIN, log[-1].time + HOUR)
    assert told(replay(lake, what, SETTINGS, spark_tables(spark, lake, what))) == by_engine(log, what)


def test_what_falls_due_before_the_end_is_told_though_nothing_comes_any_more(tmp_path: Path) -> None:
    """Rules I3, S4: the log goes on after the end of the replay, so by then a source was lost."""
    log = [
        Entry(BEGIN, publications("m", 0, [{"temp": 30}])),
        Entry(BEGIN + 1, Announced("default", ("m",), over=True)),
        Entry(BEGIN + 3 * HOUR, publications("n", 0, [{"temp": 23}])),
    ]
    lake = lake_of(tmp_path, log)
    for until, whys in ((BEGIN + HOUR, ["enter"]), (BEGIN + 2 * HOUR, ["enter", "exit"])):
        what = wanted(STATE, BEGIN, until)
        found = told(replay(lake, what, SETTINGS))
        assert [why for _, _, why, *_ in found] == whys
        assert found == by_engine(log, what)


def test_a_lake_that_does_not_reach_back_says_so(tmp_path: Path) -> None:
    """Whether what came before its first day is missing, or never was."""
    log = LogMaker(7).make(10)
    form = form_of(parse(STATE))
    for name, first, whole in (("whole", 1, True), ("late", 4, False)):
        lake = lake_of(tmp_path / name, log, first=first)
        days_before = Earlier(lake.place, form, "default", BEGIN - 3 * DAY_SECONDS, log[-1].time, first + 10)
        assert days_before.is_whole() is whole
        assert Earlier(lake.place, form, "default", BEGIN, log[-1].time, first + 10).is_whole()
        assert not Earlier(lake.place, form, "default", BEGIN, log[-1].time, first + 11).is_whole()
