"""The lake: rows once each, however often a batch comes; compacted, ordered, kept for a while, carried off and back."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from kit import air, city, publications
from pyspark.sql import SparkSession

from spinney_cloud.pipeline import lake as lake_module
from spinney_cloud.pipeline import lake_compact
from spinney_cloud.pipeline.decode import Decoder
from spinney_cloud.pipeline.lake import DEAD_LETTERS, OBSERVATIONS, TABLES, Lake, LakeError, TableSpec, with_date
from spinney_cloud.pipeline.lake_files import export_lake, import_lake
from spinney_cloud.pipeline.session import configured
from spinney_cloud.records import Record, encode

DAY = 86_400.0
MIDNIGHT = 20_000 * DAY
FIRST_DAY = dt.date(2024, 10, 4)


def rows(*records: Record, first: int = 1, at: float = MIDNIGHT) -> pa.Table:
    """As an ingest writes them; the records follow one another in the log, all at one time of it."""
    decoder = Decoder()
    for sequence, record in enumerate(records, first):
        decoder.take(encode(record), sequence, at)
    return with_date(pa.Table.from_batches(decoder.give()), TABLES[OBSERVATIONS])


def fill(lake: Lake, days: int, batches: int = 3, size: int = 40) -> None:
    """So many days, each of several batches."""
    sequence = 0
    for day in range(days):
        for _ in range(batches):
            (record,) = city(1, rows=size, first=sequence)
            sequence += 1
            lake.append(OBSERVATIONS, rows(record, first=sequence, at=MIDNIGHT + day * DAY), sequence)


def ids(lake: Lake) -> list[str]:
    return sorted(lake.dataset().to_table(columns=["id"])["id"].to_pylist())


def test_a_batch_that_comes_again_adds_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    batch = rows(*city(3))
    assert lake.sequence() == 0
    assert lake.append(OBSERVATIONS, batch, 3)
    assert not lake.append(OBSERVATIONS, batch, 3)
    assert not Lake(tmp_path).append(OBSERVATIONS, batch, 3)
    assert not lake.append(OBSERVATIONS, batch, 2)
    assert Lake(tmp_path).sequence() == 3
    assert len(ids(lake)) == 60


def test_rows_come_out_as_they_went_in(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    odd = {"type": "a/b=c %2F é", "NO2": -0.0, "NO2_unit": "µg/m³", "text": '\n\0"', "ok": False}
    batch = rows(publications("m 1/ü", 0, [odd, {}, air(3)]))
    lake.append(OBSERVATIONS, batch, 1)
    found = lake.dataset().to_table().sort_by("log_row").select(batch.schema.names)
    assert found.to_pylist() == batch.to_pylist()
    assert found["units"].to_pylist()[0] == [("NO2", "µg/m³")]


def test_days_are_those_of_the_log_and_types_are_partitions(tmp_path: Path) -> None:
    """A sensor whose clock is years ahead does no harm."""
    lake = Lake(tmp_path)
    lake.append(OBSERVATIONS, rows(publications("m", 0, [{"type": "x", "time": 9e9}, {"time": -5.0}])), 1)
    lake.append(OBSERVATIONS, rows(*city(1, first=1), first=2, at=MIDNIGHT + DAY - 0.000001), 2)
    lake.append(OBSERVATIONS, rows(*city(1, first=2), first=3, at=MIDNIGHT + DAY), 3)
    found = {(each["date"], each["type"]) for each in lake.table(OBSERVATIONS).partitions()}
    first, second = FIRST_DAY.isoformat(), (FIRST_DAY + dt.timedelta(1)).isoformat()
    assert found == {
        (first, "x"), (first, None), (first, "air/no2"), (first, "air/o3"), (second, "air/no2"), (second, "air/o3")
    }  # fmt: skip


def test_the_lake_can_be_told_that_there_was_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.append(OBSERVATIONS, rows(*city(2)), 2)
    assert lake.advance(OBSERVATIONS, 9)
    assert not lake.advance(OBSERVATIONS, 9)
    assert Lake(tmp_path).sequence() == 9
    assert not lake.append(OBSERVATIONS, rows(*city(1, first=2), first=3), 3)
    assert len(ids(lake)) == 40


def test_two_writers_do_not_both_write(tmp_path: Path) -> None:
    """An ingest that was thought dead: the table as each knows it is looked at again before each append."""
    one, other = Lake(tmp_path), Lake(tmp_path)
    one.sequence(), other.sequence()
    assert one.append(OBSERVATIONS, rows(*city(2)), 2)
    assert not other.append(OBSERVATIONS, rows(*city(2)), 2)
    assert len(ids(one)) == 40


# ---- rows that are changed


SUMS = TableSpec(pa.schema([("date", pa.date32()), ("name", pa.string()), ("sum", pa.int64())]), ("date",))


def sums(**values: int) -> pa.Table:
    rows = [{"date": FIRST_DAY, "name": name, "sum": value} for name, value in values.items()]
    return pa.Table.from_pylist(rows, SUMS.schema)


def sums_of(lake: Lake) -> dict[str, int]:
    return {row["name"]: row["sum"] for row in lake.dataset("sums").to_table().to_pylist()}


def test_rows_of_the_same_key_are_replaced_in_one_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.table("sums", SUMS)
    lake.put("sums", sums(a=1, b=2), {"one": 5, "other": 7})
    lake.put("sums", sums(b=3, c=4), {"one": 6}, ["name"])
    lake.put("sums", sums(), {"one": 8})
    assert sums_of(lake) == {"a": 1, "b": 3, "c": 4}
    assert lake.dataset("sums").count_rows() == 3
    again = Lake(tmp_path).table("sums")
    assert (again.transaction_version("one"), again.transaction_version("other")) == (8, 7)


def test_rows_are_replaced_while_their_table_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of the table and the commit."""
    monkeypatch.setattr(lake_compact, "MIN_FILES", 2)
    lake, merge, removed = Lake(tmp_path), lake_module._merge, []
    lake.table("sums", SUMS)
    for at, name in enumerate("abc"):
        lake.put("sums", sums(**{name: at}), {"one": at})

    def compacted(*arguments: Any) -> None:
        if not removed:
            removed.append(lake.again().compact("sums").removed)
        merge(*arguments)

    monkeypatch.setattr(lake_module, "_merge", compacted)
    lake.put("sums", sums(b=9), {"one": 9}, ["name"])
    assert removed == [3]
    assert sums_of(lake) == {"a": 0, "b": 9, "c": 2}


# ---- keeping


def test_compaction_joins_small_files_and_orders_days_that_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_compact, "MIN_FILES", 3)
    lake = Lake(tmp_path)
    fill(lake, days=3, batches=3)
    before, sequence = ids(lake), lake.sequence()
    assert len(lake.files(OBSERVATIONS)) == 18
    done = lake.compact()
    assert (done.removed, done.added, done.ordered_days) == (18, 6, 2)
    assert ids(lake) == before
    assert Lake(tmp_path).sequence() == sequence
    again = Lake(tmp_path).compact()
    assert (again.removed, again.added, again.ordered_days) == (0, 0, 0)
    assert len(lake.files(OBSERVATIONS, [("date", "=", FIRST_DAY.isoformat())])) == 2


def test_readings_without_a_type_are_joined_like_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_compact, "MIN_FILES", 3)
    lake = Lake(tmp_path)
    for number in range(1, 5):
        lake.append(OBSERVATIONS, rows(publications("m", number, [{"NO2": 4.0}]), first=number), number)
    lake.append(OBSERVATIONS, rows(*city(1), first=5), 5)
    before = ids(lake)
    done = lake.compact()
    assert (done.removed, done.added) == (4, 1)
    assert ids(lake) == before


def test_an_ordered_day_is_read_in_part_for_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_module, "_PROPERTIES", lake_module.WriterProperties(max_row_group_size=100))
    lake = Lake(tmp_path)
    fill(lake, days=2, batches=4, size=500)
    lake.compact()
    place = (ds.field("date") == FIRST_DAY) & (ds.field("lat") < 45.76) & (ds.field("long") < 15.92)
    data = lake.dataset()
    groups = [len(each.subset(place, schema=data.schema).row_groups) for each in data.get_fragments(place)]
    everything = sum(fragment.metadata.num_row_groups for fragment in data.get_fragments())
    assert 0 < sum(groups) <= everything / 8


def test_an_append_goes_on_while_the_lake_is_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_compact, "MIN_FILES", 2)
    writer, keeper = Lake(tmp_path), Lake(tmp_path)
    fill(writer, days=2)
    keeper.table(OBSERVATIONS)
    last = writer.sequence()
    assert writer.append(OBSERVATIONS, rows(*city(1, rows=40, first=last), first=last + 1, at=MIDNIGHT + DAY), last + 1)
    keeper.compact()
    assert writer.append(
        OBSERVATIONS, rows(*city(1, rows=40, first=last + 1), first=last + 2, at=MIDNIGHT + DAY), last + 2
    )
    assert len(ids(writer)) == len(set(ids(writer))) == 8 * 40
    assert Lake(tmp_path).sequence() == last + 2


def test_vacuum_frees_what_no_version_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lake_compact, "MIN_FILES", 2)
    lake = Lake(tmp_path)
    fill(lake, days=2)
    before = ids(lake)
    lake.compact()
    files = set(tmp_path.rglob("*.parquet"))
    assert lake.vacuum(hours=24) == 0  # who began to read before the compaction still reads
    assert lake.vacuum(hours=0) == 12
    gone = files - set(tmp_path.rglob("*.parquet"))
    assert len(gone) == 12
    assert ids(lake) == before


def test_days_beyond_the_retention_go_whole(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    assert lake.retain(3) == 0
    fill(lake, days=5, batches=1)
    assert lake.retain(7) == 0
    assert lake.retain(2) == 3 * 40
    state = lake.state(OBSERVATIONS)
    assert (state.rows, state.first, state.last) == (80, FIRST_DAY + dt.timedelta(3), FIRST_DAY + dt.timedelta(4))
    assert lake.sequence() == 5
    assert lake.vacuum(hours=0) > 0
    assert len(ids(lake)) == 80


def test_the_state_of_a_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    empty = lake.state(DEAD_LETTERS)
    assert (empty.rows, empty.files, empty.first, empty.sequence) == (0, 0, None, 0)
    fill(lake, days=1, batches=2)
    state = lake.state(OBSERVATIONS)
    assert (state.rows, state.files, state.sequence) == (80, 4, 2)
    assert state.bytes == sum(path.stat().st_size for path in tmp_path.glob("observations/date*/*/*.parquet"))
    assert lake.names() == [DEAD_LETTERS, OBSERVATIONS]


# ---- reading


def test_a_process_may_end_while_files_are_read_ahead(tmp_path: Path) -> None:
    fill(Lake(tmp_path), days=4, batches=4)
    code = f"from spinney_cloud.pipeline.lake import Lake; Lake({str(tmp_path)!r}).dataset().head(1)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(3):
        subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=60)


def test_spark_reads_the_newest_version_and_nothing_that_is_no_part_of_it(tmp_path: Path, spark: SparkSession) -> None:
    lake = Lake(tmp_path)
    assert lake.frame(spark).count() == 0
    lake.append(OBSERVATIONS, rows(publications("m", 0, [{"type": "7"}, {"lat": 1.5, "NO2": 4}])), 1)
    lake.append(OBSERVATIONS, rows(*city(2, first=1), first=2), 3)
    (tmp_path / OBSERVATIONS / "date=2024-10-04" / "type=7" / "junk.parquet").write_bytes(b"half written")
    frame = lake.frame(spark)
    assert frame.count() == 42
    (row,) = frame.where("type = '7'").collect()
    assert (row.id, row.date) == ("m:1:0", FIRST_DAY)  # a text, though it looks like a number
    (row,) = frame.where("type IS NULL").collect()
    assert (row.lat, row.numbers) == (1.5, {"NO2": 4.0})
    assert frame.where("type = 'air/no2' AND numbers['NO2'] >= 0").count() == 20


def test_a_folder_with_a_space_is_read_by_spark_and_exported_whatever_else_a_cluster_has_for_files(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lake = Lake("my lake")
    odd = "a/b=c %2F é"
    lake.append(OBSERVATIONS, rows(publications("m", 0, [{"type": odd}])), 1)
    with configured(spark, {"fs.defaultFS": "hdfs://127.0.0.1:1"}):
        (row,) = lake.frame(spark).collect()
    assert (row.id, row.type, row.date) == ("m:1:0", odd, FIRST_DAY)
    export_lake(lake, tmp_path / "backup.tar")
    import_lake(tmp_path / "backup.tar", Lake("your lake"))
    assert ids(Lake("your lake")) == ["m:1:0"]


def test_duckdb_pandas_and_polars_read_it(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=2, batches=1)
    table = lake.table(OBSERVATIONS)
    duckdb = pytest.importorskip("duckdb", reason="needs duckdb")
    data = table.to_pyarrow_dataset()
    sql = "SELECT count(*), max(numbers['NO2']) FROM data WHERE type = 'air/no2'"
    assert duckdb.connect().register("data", data).sql(sql).fetchall() == [(40, 99.8)]
    polars = pytest.importorskip("polars", reason="needs polars")
    assert polars.scan_delta(lake.path(OBSERVATIONS)).filter(polars.col("type") == "air/no2").collect().height == 40
    pytest.importorskip("pandas", reason="needs pandas")
    assert len(table.to_pandas(columns=["id"], filters=[("type", "=", "air/no2")])) == 40


# ---- export and import


def test_an_export_is_imported_as_it_was_and_goes_on(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    fill(lake, days=2)
    lake.compact()
    lake.table(DEAD_LETTERS)
    before = ids(lake)
    told: list[tuple[str, int]] = []
    manifest = export_lake(lake, tmp_path / "backup.tar", lambda name, size: told.append((name, size)))
    assert manifest["tables"][OBSERVATIONS]["rows"] == 240
    assert {name for name, _ in told} == {OBSERVATIONS, DEAD_LETTERS}
    fill_more = rows(*city(1, first=6), first=7, at=MIDNIGHT + DAY)
    lake.append(OBSERVATIONS, fill_more, 7)
    other = Lake(tmp_path / "other")
    import_lake(tmp_path / "backup.tar", other)
    assert ids(other) == before
    assert other.sequence() == 6
    assert not other.append(OBSERVATIONS, fill_more, 6)
    assert other.append(OBSERVATIONS, fill_more, 7)
    assert ids(other) == ids(lake)
    assert other.compact().ordered_days == 0  # that, too, is remembered


def test_an_import_spoils_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "lake")
    fill(lake, days=1, batches=1)
    export_lake(lake, tmp_path / "backup.tar")
    with pytest.raises(LakeError, match="there is a lake in"):
        import_lake(tmp_path / "backup.tar", lake)
    whole = (tmp_path / "backup.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[: len(whole) // 2])
    flipped = bytearray(whole)
    at = whole.index(b"PAR1")
    flipped[at + 100] ^= 1
    (tmp_path / "flipped.tar").write_bytes(flipped)
    with tarfile.open(tmp_path / "evil.tar", "w") as archive:
        archive.add(tmp_path / "cut.tar", "../outside")
    (tmp_path / "junk.tar").write_bytes(b"no tar at all")
    for name in ("cut", "flipped", "evil", "junk", "missing"):
        with pytest.raises(LakeError, match=name):
            import_lake(tmp_path / f"{name}.tar", Lake(tmp_path / "new"))
        assert not (tmp_path / "new").exists()
        assert not (tmp_path / "outside").exists()


def test_an_export_of_nothing_and_to_nowhere_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="nothing to export"):
        export_lake(Lake(tmp_path / "none"), tmp_path / "backup.tar")
    lake = Lake(tmp_path / "lake")
    lake.table(DEAD_LETTERS)
    with pytest.raises(LakeError, match="cannot be exported"):
        export_lake(lake, tmp_path / "no such folder" / "backup.tar")


# ---- what goes wrong


def test_a_full_disk_leaves_the_lake_as_it_was_and_says_what_to_do(tmp_path: Path) -> None:
    """The disk is one on which no file may be larger than so much."""
    lake = Lake(tmp_path / "lake")
    fill(lake, days=1, batches=1)
    code = f"""
import resource, sys
sys.path[:0] = {sys.path!r}
from test_lake import *
lake = Lake({str(tmp_path / "lake")!r})
lake.sequence()
batch = rows(*city(40, first=1), first=2)
resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, resource.RLIM_INFINITY))
try:
    lake.append(OBSERVATIONS, batch, 41)
except LakeError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    before = lake.sequence(), len(ids(lake))
    again = lake.append(OBSERVATIONS, batch, 41)
    import json
    print(json.dumps([str(error), before, again, lake.sequence(), len(ids(lake))]))
"""
    ran = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    error, before, again, sequence, count = json.loads(ran.stdout)
    assert "is the disk full?" in error
    assert before == [1, 40]
    assert (again, sequence, count) == (True, 41, 41 * 20 + 20)


def test_a_damaged_lake_is_named(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=1, batches=1)
    (tmp_path / OBSERVATIONS / "_delta_log" / f"{1:020}.json").write_text("junk")
    with pytest.raises(LakeError, match=OBSERVATIONS):
        Lake(tmp_path).sequence()
