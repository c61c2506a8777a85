"""The running query: the engine's answers through Spark, from start to start, with what changes while it runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from engine_logs import ends
from kit import (
    FIRST_BATCH_SECONDS,
    city,
    engine_says,
    for_pipeline,
    in_order,
    make_log,
    publications,
    put,
    server_of,
    stop_at_batch,
    told,
    wait_until,
)
from pyspark.sql import SparkSession
from servers import NatsServer

from spinney import Label, Mark, parse, parse_filter
from spinney.filter_bytes import filter_bytes
from spinney_cloud.pipeline.decode import flat
from spinney_cloud.pipeline.matching import match_frame, pruned_columns
from spinney_cloud.pipeline.matching_query import Matching, MatchingPlan
from spinney_cloud.pipeline.scan import Limits
from spinney_cloud.pipeline.subscriptions import Where
from spinney_cloud.records import Announced, RowLabel
from spinney_cloud.subscriptions import form_of

STATE = "WHEN NO2 > 50 UNTIL NO2 <= 40"
LOST = {"text": "WHEN NO2 > 98 UNTIL NO2 <= 0", "lost": 1}
BEGINNING = [
    for_pipeline("content", "NO2 > 50 AND room = 'room 3'"),
    for_pipeline("state", STATE),
    for_pipeline("room", "WHEN NO2 > 90 UNTIL NO2 <= 10 EACH room"),
    for_pipeline("top", "TOP 2 OVER 2s BY NO2 DESC EACH room"),
    for_pipeline("last", "TOP 2 OVER LAST 50 BY NO2"),
]


@contextmanager
def running(spark: SparkSession, nats: NatsServer, folder: Path) -> Iterator[Matching]:
    where = Where(server_of(nats), str(folder / "lake"))
    matching = Matching(spark, MatchingPlan(where, str(folder / "matching"), limits=Limits(2_000), trigger_seconds=0))
    matching.start()
    waiter = threading.Thread(target=matching.wait)
    waiter.start()
    try:
        yield matching
    finally:
        matching.stop()
        waiter.join()


def labelled(first: int) -> Any:
    record = city(1, first=first)[0]
    run = record.runs[0]._replace(epoch=1)
    mark = Mark(run.source, (1, run.boot, run.first), True)
    label = RowLabel(0, form_of(parse(STATE)).digest, Label(mark))
    return type(record)(record.tenant, record.received, (run,), record.rows, (label,))


@pytest.mark.slow
def test_the_query_says_what_the_engine_says(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    """Over two starts, with subscriptions that begin, change and end meanwhile, and with what falls due in silence."""
    make_log(nats)
    put(nats, [*BEGINNING, *city(100)])
    with running(spark, nats, tmp_path) as matching:
        wait_until(lambda: matching.status.sequence >= 105, "the log's beginning is answered", FIRST_BATCH_SECONDS)
        changed = [for_pipeline("content", "NO2 > 95"), ends("last"), for_pipeline("new", "TOP 1 OVER 1s BY NO2")]
        end = put(nats, [*changed, labelled(100), *city(100, first=101), Announced("default", ("m1",), True)])
        wait_until(lambda: matching.status.sequence >= end, "what came while it ran is answered", FIRST_BATCH_SECONDS)
        assert matching.status.standing == 5
        assert matching.status.units > 0
    put(nats, [ends("new"), *city(20, first=201)])
    with running(spark, nats, tmp_path) as matching:
        begins = [for_pipeline("new", "TOP 1 OVER 1s BY NO2"), for_pipeline("lost", LOST)]
        gone = [publications("gone", 1, [{"NO2": 99}]), Announced("default", ("gone",), True)]
        again = put(nats, [*begins, *city(2, first=221), *gone])
        wait_until(lambda: matching.status.sequence >= again, "the second start goes on", FIRST_BATCH_SECONDS)
        wait_until(lambda: in_order(told(nats))[-1][0] > again, "what is due happens of itself", FIRST_BATCH_SECONDS)
        assert matching.status.readings < 100 * 20, "it began anew"
    found, wanted = told(nats), engine_says(nats)
    last = found[-1].at
    assert in_order(found) == in_order(each for each in wanted if each.at <= last)


@pytest.mark.slow
def test_told_to_stop_while_a_batch_is_taken_it_ends(
    spark: SparkSession, nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log(nats)
    end = put(nats, [*BEGINNING[:1], *city(10)])
    where = Where(server_of(nats), str(tmp_path / "lake"))
    matching = Matching(spark, MatchingPlan(where, str(tmp_path / "matching"), trigger_seconds=0))
    stopped = stop_at_batch(monkeypatch, matching, "after")
    matching.start()
    waiter = threading.Thread(target=matching.wait, daemon=True)
    waiter.start()
    assert stopped.wait(FIRST_BATCH_SECONDS)
    waiter.join()
    with running(spark, nats, tmp_path) as matching:
        wait_until(lambda: matching.status.sequence >= end, "what was left is answered", FIRST_BATCH_SECONDS)
    assert in_order(told(nats)) == in_order(engine_says(nats))


EXTRAS: list[dict[str, Any]] = [{}, {"type": "air/no2"}, {"indoors": True}, {"humidity": 3, "lat": 46, "long": 15}, {}]
FILTERS = {
    "number": "NO2 > 40",
    "text": "NO2 = 'high'",
    "flag": "NO2 = TRUE AND indoors = TRUE",
    "place": "type = 'air/no2' AND lat > 45.7",
    "missing": "humidity IS NULL",
    "all": "TRUE",
}


@pytest.mark.slow
def test_a_frame_is_matched_by_no_more_columns_than_the_filters_name(spark: SparkSession, nats: NatsServer) -> None:
    """Also where an attribute is a number here and a text there."""
    make_log(nats)
    rows = [{"NO2": value, **more} for value, more in zip((50, "high", True, 7, None), EXTRAS, strict=True)]
    put(nats, [publications("m1", 1, rows), *city(5)])
    frame = spark.read.format("spinney").option("url", nats.url).load()
    filters = {id: filter_bytes(parse_filter(text)) for id, text in FILTERS.items()}
    found = match_frame(frame, filters, ("id",))
    evaluated = {id: parse_filter(text) for id, text in FILTERS.items()}
    wanted = [
        (row["id"], id)
        for row in map(flat, frame.toArrow().to_pylist())
        for id, filter_ in evaluated.items()
        if filter_.evaluate(row) is True
    ]
    assert sorted((row.id, row.subscription) for row in found.collect()) == sorted(wanted)
    assert frame.select("id", *pruned_columns({"x": filters["number"]})).columns == ["id", "numbers:NO2"]
    assert set(frame.select("id", *pruned_columns({"x": filters["missing"]})).columns) == {
        "id",
        "numbers:humidity",
        "texts:humidity",
        "flags:humidity",
    }
