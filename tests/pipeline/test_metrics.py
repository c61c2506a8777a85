"""How far a pipeline is, in numbers and in words; and how the broker shows it beside its own processes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import orjson
import pytest
from api_kit import Cloud, cloud, wait_for
from kit import city, direct, make_log, put
from prometheus_client import CollectorRegistry, generate_latest
from pyspark.sql import SparkSession
from servers import NatsServer

from spinney_cloud.log_reader import Message
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.pipeline.ingest import Status
from spinney_cloud.pipeline.maintenance import Done
from spinney_cloud.pipeline.matching_query import MatchingStatus
from spinney_cloud.pipeline.metrics import PipelineMetrics, Seen
from spinney_cloud.pipeline.progress import Look, Progress, StateSize, look_at_log, look_at_state
from spinney_cloud.pipeline.windows_part import WindowsDone
from spinney_cloud.records import Tick


def shown(seen: Seen | None) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(PipelineMetrics(lambda: seen))
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_rows_batch_time_lag_and_state_are_shown() -> None:
    look = Look(newest=12, lag_seconds=3.5, states={"matching": StateSize(40, 9_000)})
    status = Status(sequence=10, rows=500, dead=2, batches=4, batch_seconds=0.5, seconds=1.75)
    found = shown(
        Seen(
            status,
            look,
            Done(rounds=3, joined=8, removed_rows=9),
            MatchingStatus(sequence=9, notes=6),
            WindowsDone(windows=4),
        )
    )
    assert found["spinney_pipeline_rows_total"] == 500
    assert found["spinney_pipeline_dead_letters_total"] == 2
    assert found["spinney_pipeline_batches_total"] == 4
    assert found["spinney_pipeline_batch_seconds"] == 0.5
    assert found["spinney_pipeline_batch_time_seconds_total"] == 1.75
    assert found["spinney_pipeline_sequence"] == 10
    assert found["spinney_pipeline_behind"] == 2
    assert found["spinney_pipeline_lag_seconds"] == 3.5
    assert found['spinney_pipeline_state_rows{query="matching"}'] == 40
    assert found['spinney_pipeline_state_bytes{query="matching"}'] == 9_000
    assert found["spinney_pipeline_keeping_rounds_total"] == 3
    assert found["spinney_pipeline_matching_notes_total"] == 6
    assert found["spinney_pipeline_matching_sequence"] == 9
    assert found["spinney_pipeline_windows_total"] == 4


def test_before_it_runs_and_without_matching_nothing_is_made_up() -> None:
    assert shown(None) == {}
    assert not [
        name for name in shown(Seen(Status(), Look(), Done(), None, None)) if "matching" in name or "windows" in name
    ]


# ---- lag


def test_what_waits_is_told_by_the_newest_publications_alone(nats: NatsServer) -> None:
    """A tick or a subscription is nothing for the lake."""
    make_log(nats)
    put(nats, [*city(5), Tick(), Tick()])
    look, status = Look(), Status(sequence=5)
    with direct(nats) as log:
        look_at_log(log, look, status, 100.0)
        assert (look.newest, look.behind(status), look.lag_seconds) == (5, 0, 0.0)
        status.sequence = 3
        look_at_log(log, look, status, 100.0)
        assert look.behind(status) == 2
        first = look.lag_seconds
        look_at_log(log, look, status, 130.0)
        assert look.lag_seconds == max(first, 30.0)  # a pipeline that stands still falls behind
        status.sequence = 5
        look_at_log(log, look, status, 160.0)
        assert look.lag_seconds == 0.0


def test_an_empty_log_has_nothing_that_waits(nats: NatsServer) -> None:
    make_log(nats)
    look = Look()
    with direct(nats) as log:
        look_at_log(log, look, Status(), 1.0)
    assert (look.newest, look.lag_seconds) == (0, 0.0)


@pytest.mark.parametrize("astray", [-1e9, 1e9])
def test_clocks_that_differ_make_no_lag(astray: float) -> None:
    """The log's server may have any time: it is only compared with itself."""
    look = Look(newest=7)
    oldest, newest = (Message(number, 1_795_000_000.0 + astray + number, "", b"") for number in (4, 7))
    look.wait(oldest, newest, 50.0)
    assert look.lag_seconds == 3.0
    look.wait(oldest, newest, 60.0)
    assert look.lag_seconds == 10.0
    look.wait(newest, newest, 61.0)
    assert look.lag_seconds == 0.0


def test_what_the_session_s_queries_remember_is_added_up(spark: SparkSession, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load().dropDuplicates(["value"])
    writer = stream.writeStream.format("noop").queryName("distinct").outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    look = Look()
    try:
        wait_for(lambda: look_at_state(spark, look) or "distinct" in look.states)
    finally:
        query.stop()
    assert look.states["distinct"].bytes > 0
    look_at_state(spark, look)
    assert look.states == {}


# ---- lines


def test_a_line_says_what_is_new_and_none_comes_where_nothing_is() -> None:
    now = [0.0]
    progress, status, look = Progress(lambda: now[0]), Status(), Look()
    assert progress.line(status, look) is None
    now[0], look.newest = 10.0, 5_000
    status.sequence, status.rows = 1_200, 24_000
    assert progress.line(status, look) == (
        "the lake has 1,200 of 5,000 records of the log; 24,000 readings more (2,400.0/s)"
    )
    now[0] = 20.0
    assert progress.line(status, look) is None
    now[0] = 30.0
    status.sequence, status.rows, status.dead = 5_000, 24_500, 3
    assert progress.line(status, look) == (
        "the lake has all 5,000 records of the log; 500 readings more (25.0/s), 3 dead letters"
    )


def test_a_start_with_nothing_new_says_nothing() -> None:
    progress = Progress(lambda: 0.0)
    assert progress.line(Status(sequence=7), Look(newest=7)) is None


# ---- beside the broker's processes


async def answer_as_pipeline(running: Cloud, told: dict[str, bytes]) -> NatsLog:
    log = await NatsLog.connect(running.endpoints, name="test")
    for what, data in told.items():

        async def tell(_question: bytes, data: bytes = data) -> bytes:
            return data

        await log.answer("pipeline", what, tell)
    return log


def test_a_pipeline_that_the_log_waits_for_is_shown_and_holds_up_no_readiness(tmp_path: Path) -> None:
    with cloud(tmp_path, "http", log={"pipeline": True}) as running, running.client() as client:
        metrics = client.get("/metrics").text
        assert 'spinney_up{process="pipeline"} 0\n' in metrics
        health = client.get("/readyz").json()
        assert health["processes"]["pipeline"] == {"ready": False, "why": "does not answer"}
        assert not [why for why in health["why"] if why.startswith("pipeline")]
        assert [why for why in health["why"] if why.startswith("matcher")]


def test_a_pipeline_that_answers_is_shown_where_nobody_asked_for_one(tmp_path: Path) -> None:
    told = {"metrics": b"spinney_pipeline_rows_total 7.0\n", "health": orjson.dumps({"ready": True, "rows": 7})}

    async def shown_by(running: Cloud) -> tuple[str, dict[str, object]]:
        def get(path: str) -> bytes:
            with running.client() as client:
                return client.get(path).content

        async with await answer_as_pipeline(running, told):
            metrics = (await asyncio.to_thread(get, "/metrics")).decode()
            health = orjson.loads(await asyncio.to_thread(get, "/readyz"))
            return metrics, cast("dict[str, object]", health["processes"]["pipeline"])

    with cloud(tmp_path, "http") as running:
        metrics, health = asyncio.run(shown_by(running))
        assert "spinney_pipeline_rows_total 7.0\n" in metrics
        assert 'spinney_up{process="pipeline"} 1\n' in metrics
        assert health == {"ready": True, "rows": 7}
        with running.client() as client:
            assert "pipeline" not in client.get("/readyz").json()["processes"]
