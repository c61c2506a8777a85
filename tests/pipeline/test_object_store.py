"""A lake in an object store is as one in a folder; what cannot be is said before anything is done."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from kit import city, make_log, publications, put
from object_store import BUCKET, ObjectStore
from pyspark.sql import SparkSession
from replay_kit import BEGIN, SETTINGS, Entry, LogMaker, lake_of, told, wanted
from servers import NatsServer
from test_lake import FIRST_DAY, fill
from test_lake_write import ODD, attempt
from test_windows import PLAN, City, rows_of

from spinney_cloud.pipeline import command_lake, replay_command
from spinney_cloud.pipeline.lake import OBSERVATIONS, OTHERS, TABLES, Lake
from spinney_cloud.pipeline.lake_write.commit import commit
from spinney_cloud.pipeline.lake_write.place import LakeNotShared, opened
from spinney_cloud.pipeline.maintenance import Maintenance, Policy
from spinney_cloud.pipeline.replay import replay
from spinney_cloud.pipeline.replay_rows import tables
from spinney_cloud.pipeline.replay_spark import spark_tables
from spinney_cloud.pipeline.running import PlaceError, check_checkpoint
from spinney_cloud.pipeline.subscriptions import TABLE, Subscriptions, save
from spinney_cloud.pipeline.windows import SPEC, WINDOWS, Windows

PLACE = f"s3://{BUCKET}/lake"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    with ObjectStore() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


def test_tasks_write_it_and_what_is_left_over_is_deleted(store: ObjectStore, tmp_path: Path) -> None:
    lake = Lake(PLACE, store.environment)
    batch = publications("m", 0, [{"type": kind} for kind in ODD])
    place = opened(lake)
    overtaken, heard = (attempt(place, batch, *city(2), b"junk") for _ in range(2))
    done = commit(lake, heard)
    assert (done.rows, done.dead) == (len(ODD) + 40, 1)
    assert commit(lake, heard).rows == 0
    open_batch = attempt(place, *city(1, first=2), after=4)
    keeping = Maintenance(lake, Policy(vacuum_seconds=0.0))
    keeping.round()
    assert (keeping.done.failed, keeping.done.deleted_files) == (0, overtaken.num_rows)
    assert commit(lake, open_batch).rows == 20
    folder = Lake(tmp_path)
    commit(folder, attempt(opened(folder), batch, *city(2), b"junk", *city(1, first=2)))
    order = [("log_seq", "ascending"), ("log_row", "ascending")]
    assert lake.dataset().to_table().sort_by(order).equals(folder.dataset().to_table().sort_by(order))
    with pytest.raises(LakeNotShared, match="give the executors the same AWS_"):
        attempt(place._replace(lake=f"s3://{BUCKET}/elsewhere"), *city(1))


@pytest.mark.usefixtures("store")
def test_all_its_tables_are_known_and_kept() -> None:
    lake = Lake(PLACE)
    assert lake.names() == []
    fill(lake, days=3)
    lake.table(WINDOWS, SPEC)
    save(lake, Subscriptions(7))
    assert set(OTHERS) == {WINDOWS, TABLE}
    assert lake.names() == sorted([OBSERVATIONS, *OTHERS])
    keeping = Maintenance(lake, Policy(retain_days=2, vacuum_seconds=0.0))
    keeping.round()
    done = keeping.done
    assert (done.failed, done.joined, done.removed_rows, done.deleted_files) == (0, 6, 120, 12)
    state = Lake(PLACE).state(OBSERVATIONS)
    assert (state.rows, state.first, state.sequence) == (240, FIRST_DAY + dt.timedelta(1), 9)


def test_spark_reads_in_its_tasks_what_is_asked_for(store: ObjectStore, spark: SparkSession) -> None:
    lake = Lake(PLACE, store.environment)  # Java began before there was the store
    assert lake.frame(spark).count() == 0
    fill(lake, days=2)
    rows = lake.frame(spark).collect()
    found = {row.id: row for row in rows}
    expected = {row["id"]: row for row in lake.dataset().to_table().to_pylist()}
    assert found.keys() == expected.keys()
    assert len(rows) == len(found)
    for id, row in expected.items():
        assert found[id].numbers == dict(row["numbers"])
        assert (found[id].date, found[id].type, found[id].arrival) == (row["date"], row["type"], row["arrival"])
    part = lake.frame(spark, columns=["id", "lat"], where=(ds.field("date") == FIRST_DAY) & (ds.field("lat") > 45.8))
    assert part.columns == ["id", "lat"]
    assert {row.id for row in part.collect()} == {
        id for id, row in expected.items() if row["date"] == FIRST_DAY and row["lat"] > 45.8
    }


def test_its_windows_are_those_of_a_folder(store: ObjectStore, spark: SparkSession, tmp_path: Path) -> None:
    log = City(5).make(80)
    for first, some in ((1, log[:50]), (51, log[50:])):  # the second time some are late
        lake_of(PLACE, some, first=first)
        Windows(spark, Lake(PLACE, store.environment), PLAN).step()
        lake_of(tmp_path / "lake", some, first=first)
    Windows(spark, Lake(tmp_path / "lake"), PLAN).step()  # however steps are cut, the table is the same
    found, expected = rows_of(Lake(PLACE)), rows_of(Lake(tmp_path / "lake"))
    assert found.keys() == expected.keys()
    for key, row in expected.items():
        assert found[key] == {**row, "mean": pytest.approx(row["mean"]) if row["count"] else None}


@pytest.fixture(scope="module")
def log() -> list[Entry]:
    return LogMaker(7).make(200)


@pytest.mark.parametrize("text", ["temp > 25 AND lat < 45.8", "WHEN temp > 25 UNTIL temp <= 22 EACH room"])
def test_a_replay_of_it_is_that_of_a_folder(
    store: ObjectStore, spark: SparkSession, tmp_path: Path, log: list[Entry], text: str
) -> None:
    lake_of(PLACE, log).compact()
    lake, what = Lake(PLACE, store.environment), wanted(text, BEGIN, log[-1].time)
    expected = told(replay(lake_of(tmp_path / "lake", log), what, SETTINGS))
    readings: list[int] = []
    by_arrow = tables(lake, what, lambda _date, count: readings.append(count))
    assert told(replay(lake, what, SETTINGS, by_arrow)) == expected
    assert told(replay(lake, what, SETTINGS, spark_tables(spark, lake, what))) == expected
    assert expected
    assert sum(readings) > len(expected)


# ---- as commands


@pytest.mark.usefixtures("store")
def test_where_there_is_none_it_says_so_and_makes_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay_command.main(["NO2 > 1", "--lake", PLACE]) == 1
    assert f"there is no lake in {PLACE}" in capsys.readouterr().err
    assert command_lake.main(["stats", "--lake", PLACE]) == 1
    assert f"there is no lake in {PLACE}" in capsys.readouterr().err
    assert Lake(PLACE).names() == []


def test_checkpoints_where_spark_cannot_write_are_refused_at_the_start(spark: SparkSession) -> None:
    check_checkpoint(spark, "/shared/checkpoints")
    check_checkpoint(spark, "file:///shared/checkpoints")
    with pytest.raises(
        PlaceError, match=r"this Spark has no file system for s3://. Choose a folder with --checkpoints"
    ):
        check_checkpoint(spark, f"{PLACE}/checkpoints")


@pytest.mark.soak
@pytest.mark.usefixtures("store")
def test_a_pipeline_keeps_its_lake_there_with_windows_and_matching(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    put(nats, [*city(10), b"junk"])
    command = [sys.executable, "-m", "spinney_tools", "pipeline", "--once", "--nats", nats.url, "--lake", PLACE]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=600)
    assert Lake(PLACE).names() == sorted([*TABLES, *OTHERS])
    assert Lake(PLACE).state(OBSERVATIONS).rows == 200
