"""kill -9 of the driver, of Spark's JVM, of its Python processes, at any moment: nothing is lost, nothing is twice.

That is so of every table of the lake and of every notification; and what is read or asked again later is the same.
"""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ingest_driver import PLAN
from kills_kit import REPLAYED, Pipeline, log_of
from kit import engine_says, for_pipeline, in_order, make_log, messages, put, server_of, told
from pyspark.sql import SparkSession
from replay_kit import SETTINGS, wanted
from servers import NatsServer
from test_windows import rows_of

from spinney_cloud.notes import Note, Notes
from spinney_cloud.pipeline.lake import OBSERVATIONS, TABLES, Lake, by_table, with_date
from spinney_cloud.pipeline.replay import OWNER, SID, replay
from spinney_cloud.pipeline.replay_rows import newest_arrival
from spinney_cloud.pipeline.subscriptions import TABLE, Subscriptions, saved
from spinney_cloud.pipeline.windows import Windows
from spinney_cloud.records import RecordError, SubscriptionChange, decode

READINGS = 500_000
KINDS: tuple[str, ...] = ("driver", "worker", "JVM", "all")
BATCH_ROWS = 25_000
FIRST_SECONDS = 6.0
"""In which a pipeline has begun its work for the first time."""
ROUND_SECONDS = 8.0
"""What a pipeline does every minute or less often, so often that kills meet it."""
READ_RECORDS = 500
"""Of the log, at once: they go through a small heap."""


def kill_all(nats: NatsServer, folder: Path, kills: list[str], readings: int, seed: int) -> tuple[int, int]:
    """A pipeline over a log that grows, killed so often; up to where the lake is in the end, and matching."""
    chance = random.Random(seed)
    make_log(nats)
    parts = log_of(readings, chance, time.time() - 3600)
    moments = [0, *sorted(chance.randrange(1, sum(map(len, parts)) * 9 // 10) for _ in kills[1:])]
    end = 0
    with Pipeline(nats.url, folder, BATCH_ROWS, ROUND_SECONDS) as pipeline:
        for what, moment in zip(kills, moments, strict=True):
            while end <= moment:
                end = put(nats, parts.pop(0))
            pipeline.until(moment)
            pipeline.stays(chance.random() * (pipeline.batch_seconds or FIRST_SECONDS))
            names = pipeline.kill(what, chance)
            print(f"seed {seed}: at record {moment} of {end} killed {what}: {', '.join(names)}", flush=True)
        return pipeline.finish(put(nats, [record for part in parts for record in part]))


def compare(spark: SparkSession, nats: NatsServer, folder: Path, readings: int, lake_at: int, matching_at: int) -> None:
    """All that the pipeline wrote with what comes out if nobody is killed."""
    lake = Lake(folder / "lake")
    compare_with_the_log(spark, nats, lake, readings, lake_at)
    compare_subscriptions(nats, lake)
    compare_windows(spark, lake, folder / "again")
    live = told(nats)
    assert in_order(live) == in_order(engine_says(nats, matching_at, damaged=True))
    compare_replays(lake, live, min(lake_at, matching_at))


def compare_with_the_log(spark: SparkSession, nats: NatsServer, lake: Lake, readings: int, upto: int) -> None:
    """Each table row by row with the log as Spark reads it in one go; and each reading is there once."""
    reader = spark.read.format("spinney").options(**server_of(nats).options(), give="lake")
    cuts = [*range(0, upto, READ_RECORDS), upto]
    read = [by_table(reader.options(after=begin, upto=end).load().toArrow()) for begin, end in itertools.pairwise(cuts)]
    for name, spec in TABLES.items():
        expected = in_log_order(pa.concat_tables([with_date(part[name], spec) for part in read]))
        found = in_log_order(lake.dataset(name).to_table())
        assert found.num_rows == expected.num_rows > 0, name
        assert found.select(expected.schema.names).cast(expected.schema).equals(expected), name
        if name == OBSERVATIONS:
            assert found.num_rows == len(found["id"].unique()) == readings


def in_log_order(table: pa.Table) -> pa.Table:
    names = [name for name in ("log_seq", "log_row") if name in table.schema.names]
    return table.sort_by([(name, "ascending") for name in names])


def compare_subscriptions(nats: NatsServer, lake: Lake) -> None:
    """The lake's table with the changes in the log up to the record that it is of."""
    kept = saved(lake)
    assert kept is not None
    assert kept.at > 0
    expected = Subscriptions()
    for message in messages(nats, last=kept.at):
        try:
            expected.apply(decode(message.data), message.sequence, message.time)
        except RecordError:
            continue
    order = [("key", "ascending")]
    assert lake.table(TABLE).to_pyarrow_table().sort_by(order).equals(expected.rows().sort_by(order))


def compare_windows(spark: SparkSession, lake: Lake, again: Path) -> None:
    """The lake's table with one that is made at once, of the same observations."""
    shutil.copytree(lake.path(OBSERVATIONS), again / OBSERVATIONS)
    Windows(spark, Lake(again), PLAN).step()
    found, expected = rows_of(lake), rows_of(Lake(again))
    assert found.keys() == expected.keys()
    assert found.keys()
    for key, row in expected.items():
        mean = row["mean"] if row["gap"] else pytest.approx(row["mean"])
        assert found[key] == {**row, "mean": mean}, key


def compare_replays(lake: Lake, live: list[Notes], upto: int) -> None:
    """What subscribers were told with what a replay of the lake tells, note by note."""
    for sid, text in REPLAYED.items():
        what = wanted(text, 0.0, newest_arrival(lake) + 1.0)
        begun = for_pipeline(sid, text)
        assert isinstance(begun, SubscriptionChange)
        replayed = [each for each in replay(lake, what, SETTINGS) if each.at <= upto]
        was_told = [each for each in live if each.at <= upto]
        assert notes_of(replayed, OWNER, SID) == notes_of(was_told, "ana", sid) != [], sid


def notes_of(found: list[Notes], owner: str, sid: str) -> list[str]:
    """All that a subscription was told, but under its name."""
    return sorted(
        str((at, time, sorted((publication or {}).items()), note._replace(owner="", sid="", row=None)))
        for at, time, note, publication in all_of(found)
        if (note.owner, note.sid) == (owner, sid)
    )


def all_of(found: list[Notes]) -> Iterator[tuple[int, float, Note, dict[str, Any] | None]]:
    for each in found:
        for note in each.notes:
            yield each.at, each.time, note, None if note.row is None else each.publications[note.row]


@pytest.mark.slow
def test_nothing_is_lost_or_twice_when_it_is_killed(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    kills = random.Random(7).sample(["driver", "worker", "JVM", "worker"], 4)
    compare(spark, nats, tmp_path, READINGS, *kill_all(nats, tmp_path, kills, READINGS, seed=7))


@pytest.mark.soak
def test_nothing_is_lost_or_twice_when_it_is_killed_often(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    kills = random.Random(50).choices(KINDS, k=50)
    compare(spark, nats, tmp_path, READINGS, *kill_all(nats, tmp_path, kills, READINGS, seed=50))
