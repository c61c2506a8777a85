"""The log into the lake: each reading once, whatever comes twice, is killed, is bad, or is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from kit import (
    FIRST_BATCH_SECONDS,
    city,
    direct,
    expected_ids,
    make_log,
    messages,
    publications,
    purge,
    put,
    server_of,
    stop_at_batch,
    wait_until,
)
from pyspark.sql import SparkSession
from servers import NatsServer

from spinney_cloud.bucket import stream_of
from spinney_cloud.names import READERS
from spinney_cloud.pipeline import ingest as ingest_module
from spinney_cloud.pipeline import lake_files
from spinney_cloud.pipeline.duplicates import Windows
from spinney_cloud.pipeline.ingest import Floor, Ingest, IngestError, Plan, scratch_folder
from spinney_cloud.pipeline.lake import DEAD_LETTERS, OBSERVATIONS, TABLES, Lake, LakeError
from spinney_cloud.pipeline.scan import Limits, LogReplaced, LogTrimmed
from spinney_cloud.pipeline.session import configured
from spinney_cloud.positions import Position
from spinney_cloud.records import Announced, Tick


class Running:
    """An ingest in a thread of its own; `failure` is what it ended with."""

    def __init__(self, ingest: Ingest) -> None:
        self.ingest = ingest
        self.failure: Exception | None = None
        ingest.start()
        self._thread = threading.Thread(target=self._wait)
        self._thread.start()

    def _wait(self) -> None:
        try:
            self.ingest.wait()
        except IngestError as error:
            self.failure = error

    def until(self, sequence: int) -> None:
        wait_until(lambda: self.ingest.status.sequence >= sequence or self.failure, f"record {sequence} in the lake")
        assert self.failure is None

    def end(self) -> None:
        self.ingest.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def running(spark: SparkSession, nats: NatsServer, lake: Lake, **plan: Any) -> Iterator[Running]:
    one = Running(Ingest(spark, lake, Plan(server_of(nats), trigger_seconds=0, **plan)))
    try:
        yield one
    finally:
        one.end()


def ids(lake: Lake) -> list[str]:
    return sorted(lake.dataset().to_table(columns=["id"])["id"].to_pylist())


def dead(lake: Lake) -> list[tuple[int, str]]:
    found = lake.dataset(DEAD_LETTERS).to_table(columns=["log_seq", "reason"]).to_pylist()
    return sorted((row["log_seq"], row["reason"]) for row in found)


def position(nats: NatsServer) -> Position | None:
    with direct(nats) as log:
        value = log.newest_in_bucket(stream_of(READERS), f"$KV.{READERS}.pipeline")
    return None if value is None else Position.decode(value)


def test_each_reading_is_in_the_lake_once_over_stops_and_starts(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    last = put(nats, [*city(30), b"junk", *city(5)])
    with running(spark, nats, lake, limits=Limits(200)) as one:
        one.until(last - 5)
        last = put(nats, city(10, first=30))
        one.until(last)
        wait_until(lambda: (found := position(nats)) and found.sequence == last, "the keeper has been told")
    assert ids(lake) == sorted(expected_ids([m for m in messages(nats) if m.sequence != 31]))
    assert len(ids(lake)) == 800
    assert [number for number, _ in dead(lake)] == [31]
    last = put(nats, [b"junk again", *city(3), *city(10, first=40)])
    with running(spark, nats, Lake(tmp_path / "lake")) as one:
        one.until(last)
        assert one.ingest.status.rows == 200
    assert len(ids(lake)) == len(set(ids(lake))) == 1_000
    assert len(dead(lake)) == 2


@pytest.mark.parametrize("moment", ["before", "after"])
def test_told_to_stop_while_a_batch_is_taken_it_ends(
    moment: str, spark: SparkSession, nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_log(nats)
    last = put(nats, city(10))
    lake = Lake(tmp_path / "lake")
    ingest = Ingest(spark, lake, Plan(server_of(nats), trigger_seconds=0))
    stopped = stop_at_batch(monkeypatch, ingest, moment)
    one = Running(ingest)
    assert stopped.wait(FIRST_BATCH_SECONDS)
    one.end()
    assert one.failure is None
    assert lake.sequence() in (0, last)
    with running(spark, nats, lake) as one:
        one.until(last)
    assert len(ids(lake)) == 200


def test_on_a_cluster_with_a_file_system_of_its_own_the_checkpoint_is_still_here(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    last = put(nats, city(2))
    with configured(spark, {"fs.defaultFS": "hdfs://127.0.0.1:1"}), running(spark, nats, Lake(tmp_path / "l")) as one:
        one.until(last)


def test_a_lake_from_a_backup_is_filled_up_again(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    """Spark's own checkpoint would be ahead of it."""
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    last = put(nats, city(10))
    with running(spark, nats, lake) as one:
        one.until(last)
    shutil.copytree(tmp_path / "lake", tmp_path / "backup")
    last = put(nats, city(10, first=10))
    with running(spark, nats, lake) as one:
        one.until(last)
    wanted = ids(lake)
    shutil.rmtree(tmp_path / "lake")
    (tmp_path / "backup").rename(tmp_path / "lake")
    restored = Lake(tmp_path / "lake")
    assert len(ids(restored)) == 200
    with running(spark, nats, restored) as one:
        one.until(last)
    assert ids(restored) == wanted


def test_an_export_beside_an_ingest_lacks_nothing_once_the_log_is_read_on(
    spark: SparkSession, nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each table that is opened there come readings, what cannot be read, and other records."""
    make_log(nats)
    lake = Lake(tmp_path / "lake")

    def come() -> int:
        return put(nats, [*city(1, first=len(messages(nats))), b"junk", Announced("default", ("m1",), True)])

    with running(spark, nats, lake) as one:
        one.until(come())

        def opened(path: str) -> DeltaTable:
            table = DeltaTable(path)
            one.until(come())
            return table

        monkeypatch.setattr(lake_files, "DeltaTable", opened)
        lake_files.export_lake(Lake(lake.place), tmp_path / "lake.tar")
        last = lake.sequence()
    restored = Lake(tmp_path / "restored")
    lake_files.import_lake(tmp_path / "lake.tar", restored)
    assert restored.sequence() < last
    with running(spark, nats, restored) as again:
        again.until(last)
    for name in TABLES:
        found = restored.dataset(name).to_table(columns=["log_seq"])["log_seq"].to_pylist()
        assert sorted(found) == sorted(lake.dataset(name).to_table(columns=["log_seq"])["log_seq"].to_pylist()), name


def test_a_log_trimmed_below_the_lake_is_a_clear_stop_and_a_way_on(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    last = put(nats, city(10))
    with running(spark, nats, lake) as one:
        one.until(last)
    last = put(nats, city(10, first=10))
    purge(nats, 15)
    with pytest.raises(LogTrimmed, match="records 11 to 15 were purged unread"):
        Ingest(spark, lake, Plan(server_of(nats))).start()
    assert lake.sequence() == 10
    with running(spark, nats, lake, skip_missing=True) as one:
        one.until(last)
    assert len(ids(lake)) == 300
    assert dead(lake) == [(15, "records 11 to 15 were purged before they were read")]


def test_a_log_trimmed_under_a_running_ingest_ends_it_with_the_reason(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    with running(spark, nats, lake) as one:
        one.until(put(nats, city(4)))
        one.ingest._writing.acquire()  # the lake takes nothing meanwhile
        put(nats, city(2, first=4))
        query = one.ingest._query
        assert query is not None
        wait_until(lambda: query.status["isTriggerActive"] and "Processing" in query.status["message"], "a batch")
        put(nats, city(4, first=6))
        purge(nats, 8)
        one.ingest._writing.release()
        wait_until(lambda: one.failure, "the end")
    assert "were purged" in str(one.failure)
    assert "Traceback" not in str(one.failure)


def test_another_log_is_not_taken_for_the_old_one(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    lake.advance(OBSERVATIONS, 50)
    put(nats, city(3))
    with pytest.raises(LogReplaced, match="ends at record 3, but the pipeline has read up to 50"):
        Ingest(spark, lake, Plan(server_of(nats))).start()


def test_a_new_lake_begins_where_the_log_does(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    last = put(nats, city(10))
    purge(nats, 4)
    lake = Lake(tmp_path / "lake")
    with running(spark, nats, lake) as one:
        one.until(last)
    assert len(ids(lake)) == 6 * 20
    assert dead(lake) == []


def test_a_full_disk_stops_it_with_the_reason_and_nothing_is_lost(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    """Here what cannot be written is a folder that a file is in the way of; test_lake has files that cannot grow."""
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    first = put(nats, city(3))
    with running(spark, nats, lake) as one:
        one.until(first)
        away = tmp_path / "away"
        (tmp_path / "lake" / OBSERVATIONS).rename(away)
        (tmp_path / "lake" / OBSERVATIONS).write_text("in the way")
        last = put(nats, city(3, first=3))
        wait_until(lambda: one.failure, "the end")
    assert isinstance(one.failure, IngestError)
    assert "the lake's table" in str(one.failure)
    assert isinstance(one.failure.__cause__, LakeError)
    (tmp_path / "lake" / OBSERVATIONS).unlink()
    away.rename(tmp_path / "lake" / OBSERVATIONS)
    with running(spark, nats, Lake(tmp_path / "lake")) as one:
        one.until(last)
    assert len(ids(lake)) == 120


def test_what_is_nothing_for_the_lake_is_remembered_all_the_same(
    spark: SparkSession, nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a log that was purged of what we had read would look as if something was missing."""
    monkeypatch.setattr(ingest_module, "ADVANCE_SECONDS", 0.0)
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    put(nats, city(5))
    last = put(nats, [*city(5), Tick(), *city(2)])
    with running(spark, nats, lake) as one:
        one.until(last)
    assert Lake(tmp_path / "lake").sequence() == last
    purge(nats, last - 1)
    put(nats, city(1, first=5))
    with running(spark, nats, Lake(tmp_path / "lake")) as one:
        one.until(last + 1)
    assert len(ids(lake)) == 120


def test_the_log_s_clock_that_steps_back_harms_nothing(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    """The sensors' clocks may say what they like, and so may the gateway's."""
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    odd = [
        publications("m", 0, [{"type": "x", "time": -1e12}], received=4e9),
        publications("m", 1, [{"type": "x", "time": 1e12}], received=0),
    ]
    with running(spark, nats, lake) as one:
        one.until(put(nats, odd))
    found = lake.dataset().to_table(columns=["time", "log_time", "arrival", "date"]).sort_by("time").to_pylist()
    assert [row["time"] for row in found] == [-1e12, 1e12]
    assert len({row["date"] for row in found}) <= 2  # of the log, not of the sensors
    assert all(abs(row["log_time"].timestamp() - row["arrival"]) < 1e-5 for row in found)


def test_checkpoints_of_the_killed_are_cleared_away_and_others_are_not() -> None:
    code = "from spinney_cloud.pipeline.ingest import scratch_folder; print(scratch_folder())"
    killed = Path(
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout[:-1]
    )
    mine = scratch_folder()
    assert killed.parent == mine.parent
    assert not killed.exists()
    other = scratch_folder()
    assert mine.is_dir()
    mine.rmdir()
    other.rmdir()


# ---- the floor


def test_the_floor_stays_behind_by_what_duplicates_need() -> None:
    floor = Floor(100.0, floor=7)
    assert floor.reach(10, 1_000.0) == 7
    assert floor.reach(20, 1_050.0) == 7
    assert floor.reach(30, 1_101.0) == 10
    assert floor.reach(40, 1_149.0) == 10
    assert floor.reach(50, 1_151.0) == 20
    assert floor.reach(60, 9_999.0) == 50


def test_the_floor_never_passes_and_never_falls_back() -> None:
    floor = Floor(100.0)
    reached = [floor.reach(number, number * 0.01) for number in range(1, 50_000)]
    assert reached == sorted(reached)
    for number, found in enumerate(reached, 1):
        assert found * 0.01 < max(number * 0.01 - 100.0, 0.005)
    assert reached[-1] > 50_000 - 10_000 - 50
    assert len(floor._marks) <= ingest_module.MAX_MARKS


def test_the_floor_is_what_the_keeper_is_told(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    lake = Lake(tmp_path / "lake")
    with running(spark, nats, lake, windows=Windows(3600.0, 60.0)) as one:
        last = put(nats, city(5))
        one.until(last)
        wait_until(lambda: (found := position(nats)) and found.sequence == last, "the keeper has been told")
    found = position(nats)
    assert found is not None
    assert found.floor == 0  # all of it is younger than W
    assert found.stream == "SPINNEY_LOG"
    assert found.time == messages(nats)[-1].time
