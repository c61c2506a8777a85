"""Files that tasks write and the driver commits: each reading once, whatever was written twice, by whom or too late."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from kit import air, city, publications
from test_lake import DAY, MIDNIGHT, fill, ids, rows

from spinney_cloud.pipeline.decode import Decoder
from spinney_cloud.pipeline.lake import DEAD_LETTERS, LOG_RECORDS, OBSERVATIONS, Lake, LakeError
from spinney_cloud.pipeline.lake_write.commit import Batch, commit
from spinney_cloud.pipeline.lake_write.files import write
from spinney_cloud.pipeline.lake_write.leftover import delete_leftovers
from spinney_cloud.pipeline.lake_write.place import LakeNotShared, Place, opened
from spinney_cloud.pipeline.lake_write.stats import MAX_TEXT
from spinney_cloud.pipeline.maintenance import Maintenance, Policy
from spinney_cloud.pipeline.schema import FILES
from spinney_cloud.records import Record, Tick, encode

ODD = ("a/b", "é ü", "x=y", "100%", None, "a b", "a:b", "ключ", "q?*\"'<>|", "{}[]~^`#&+,;", "a.b-c_d", "\t\n\\", "😀")
"""Types that are strange names for folders."""


def attempt(place: Place, *records: Record | bytes, after: int = 0, at: float = MIDNIGHT) -> pa.Table:
    """What one task says that reads these records: each call is another attempt."""
    decoder = Decoder("lake")
    for sequence, record in enumerate(records, after + 1):
        decoder.take(record if isinstance(record, bytes) else encode(record), sequence, at)
    return pa.Table.from_batches(write(iter(decoder.give()), after, after + len(records), place), FILES)


def on_disk(lake: Lake) -> set[Path]:
    return {path for path in Path(lake.place).rglob("*.parquet") if "_delta_log" not in path.parts}


def named(lake: Lake) -> set[Path]:
    return {Path(file) for name in lake.names() for file in lake.files(name)}


def keep(lake: Lake, hours: float = 0.0) -> int:
    """A round of maintenance; how many files it deleted."""
    keeping = Maintenance(lake, Policy(vacuum_seconds=hours * 3600))
    keeping.round()
    assert keeping.done.failed == 0
    return keeping.done.deleted_files


# ---- what is written


def test_tasks_write_what_deltalake_itself_writes(tmp_path: Path) -> None:
    """Rows, folders, and what Delta's log says of each file, by which readers leave out files."""
    batch = publications("m", 0, [{**air(at), "type": kind, "NO2": at} for at, kind in enumerate(ODD)])
    ours, theirs = Lake(tmp_path / "ours"), Lake(tmp_path / "theirs")
    assert commit(ours, attempt(opened(ours), batch, *city(2))) == Batch(3, MIDNIGHT, len(ODD) + 40, 0)
    theirs.append(OBSERVATIONS, rows(batch, *city(2)), 3)
    tables = [
        lake.dataset().to_table().sort_by([("log_seq", "ascending"), ("log_row", "ascending")])
        for lake in (ours, theirs)
    ]
    assert tables[0].equals(tables[1])
    assert {path.parent.relative_to(ours.place) for path in on_disk(ours)} == {
        path.parent.relative_to(theirs.place) for path in on_disk(theirs)
    }
    said = [described(lake) for lake in (ours, theirs)]
    assert said[0] == said[1]
    assert said[0]


def described(lake: Lake) -> list[dict[str, object]]:
    found = pa.table(lake.table(OBSERVATIONS).get_add_actions(flatten=True)).to_pylist()
    apart = ("path", "size_bytes", "modification_time")
    said = [{name: value for name, value in row.items() if name not in apart} for row in found]
    return sorted(said, key=lambda row: str(row["partition.type"]))


def test_a_long_text_bounds_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    long = "s" * (MAX_TEXT + 1)
    commit(lake, attempt(opened(lake), publications(long, 0, [{"NO2": 1}]), publications("a", 0, [{"NO2": 2}])))
    [said] = described(lake)
    assert said["null_count.source"] == 0
    assert said.get("max.source") is None
    assert said["max.log_seq"] == 2


def test_each_record_goes_to_its_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    place = opened(lake)
    assert commit(lake, attempt(place, *city(1), b"junk", Tick())) == Batch(3, MIDNIGHT, 20, 1)
    assert [lake.state(name).rows for name in (OBSERVATIONS, DEAD_LETTERS, LOG_RECORDS)] == [20, 1, 1]
    assert commit(lake, attempt(place, b"junk", after=3)) == Batch(4, MIDNIGHT, 0, 1)
    assert lake.sequence() == 4  # a start goes by it, also where nothing was observed


def test_days_are_the_log_s(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    place = opened(lake)
    commit(lake, attempt(place, *city(1), at=MIDNIGHT - 0.000001))
    commit(lake, attempt(place, *city(1, first=1), after=1, at=MIDNIGHT + DAY))
    days = sorted(path.parent.parent.name for path in on_disk(lake))
    assert sorted(set(days)) == ["date=2024-10-03", "date=2024-10-05"]


# ---- once


def test_what_two_attempts_wrote_is_in_the_lake_once(tmp_path: Path) -> None:
    """As with a task that is repeated, or run twice because it is slow: the driver hears of one of them."""
    lake = Lake(tmp_path)
    place = opened(lake)
    overtaken = attempt(place, *city(3))
    heard = attempt(place, *city(3))
    assert set(overtaken["path"].to_pylist()).isdisjoint(heard["path"].to_pylist())
    commit(lake, heard)
    late = attempt(place, *city(3))  # of a task that nobody waits for any more
    assert len(ids(lake)) == len(set(ids(lake))) == 60
    assert len(on_disk(lake)) == 3 * len(named(lake)) == 3 * heard.num_rows
    assert keep(lake) == overtaken.num_rows + late.num_rows
    assert on_disk(lake) == named(lake)
    assert len(ids(lake)) == 60


def test_a_batch_that_is_committed_again_adds_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    files = attempt(opened(lake), *city(3), b"junk")
    assert commit(lake, files).rows == 60
    assert commit(lake, files) == Batch(4, MIDNIGHT, 0, 0)
    assert len(ids(lake)) == 60
    assert lake.state(DEAD_LETTERS).rows == 1


def test_a_commit_that_broke_off_between_tables_is_made_up_for(tmp_path: Path) -> None:
    """The dead letters were committed, the observations were not: the next start reads these records again."""
    lake = Lake(tmp_path)
    files = attempt(opened(lake), *city(1), b"junk", *city(1, first=1))
    commit(lake, files)
    shutil.rmtree(tmp_path / OBSERVATIONS)
    again = Lake(tmp_path)
    place = opened(again)
    assert dict(place.have) == {OBSERVATIONS: 0, DEAD_LETTERS: 3, LOG_RECORDS: 0}
    found = commit(again, attempt(place, *city(1), b"junk", *city(1, first=1), b"more junk"))
    assert (found.rows, found.dead) == (40, 1)
    assert again.state(DEAD_LETTERS).rows == 2


def test_of_two_pipelines_on_one_lake_one_is_stopped(tmp_path: Path) -> None:
    """In an object store nobody can be kept out."""
    one, other = Lake(tmp_path), Lake(tmp_path)
    place = opened(one)
    files = attempt(place, *city(4))
    commit(other, attempt(place, *city(2)))
    with pytest.raises(LakeError, match="has the log up to 2 already, and not by this pipeline"):
        commit(one, files)
    assert len(ids(one)) == 40


def test_a_lake_of_before_goes_on(tmp_path: Path) -> None:
    """Its files were all written by the driver."""
    lake = Lake(tmp_path)
    fill(lake, days=2)
    before = ids(lake)
    place = opened(Lake(tmp_path))
    assert dict(place.have)[OBSERVATIONS] == 6
    assert commit(lake, attempt(place, *city(2, first=500), after=6, at=MIDNIGHT + DAY)).rows == 40
    assert len(ids(lake)) == len(before) + 40
    assert lake.compact().ordered_days == 1
    assert keep(lake) > 0
    assert len(ids(lake)) == len(set(ids(lake))) == len(before) + 40


# ---- kept


def test_files_of_an_open_batch_are_left_alone_until_it_is_over(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    place = opened(lake)
    commit(lake, attempt(place, *city(2)))
    broken = attempt(place, *city(2, first=2), b"junk", after=2)
    open_batch = attempt(place, *city(2, first=2), b"junk", after=2)
    assert keep(lake) == 0
    assert all((tmp_path / row["table"] / row["path"]).exists() for row in open_batch.to_pylist())
    commit(lake, open_batch)
    assert keep(lake) == broken.num_rows
    assert on_disk(lake) == named(lake)
    assert len(ids(lake)) == 80


def test_what_a_compaction_replaced_is_no_leftover(tmp_path: Path) -> None:
    """Who reads an older version still needs it; its hours are vacuum's."""
    lake = Lake(tmp_path)
    place = opened(lake)
    for after in range(10):
        commit(lake, attempt(place, *city(1, first=after), after=after))
    older, files = Lake(tmp_path).dataset(), on_disk(lake)
    lost = attempt(place, *city(1, first=9), after=9)
    assert lake.compact().removed == 20
    assert delete_leftovers(Lake(tmp_path), OBSERVATIONS) == lost.num_rows
    assert files <= on_disk(lake)
    assert older.to_table().num_rows == 200
    assert keep(lake) == 20


def test_files_of_others_are_no_leftovers(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    commit(lake, attempt(opened(lake), *city(1)))
    strange = tmp_path / OBSERVATIONS / "date=2024-10-04" / "notes.parquet"
    strange.write_text("mine")
    assert keep(lake) == 0
    assert strange.exists()


# ---- who may write


def test_who_sees_another_storage_writes_nothing(tmp_path: Path) -> None:
    """The same path on another machine: there is a lake, or something like one, but it is not this one."""
    lake = Lake(tmp_path / "lake")
    place = opened(lake)
    elsewhere = place._replace(lake=str(tmp_path / "elsewhere"))
    with pytest.raises(LakeNotShared, match=r"not every executor sees the lake .* one storage, at the same path"):
        attempt(elsewhere, *city(1))
    assert not (tmp_path / "elsewhere").exists()
    shutil.copytree(lake.place, elsewhere.lake)
    opened(Lake(elsewhere.lake))
    with pytest.raises(LakeNotShared, match="another storage there, or another pipeline has begun"):
        attempt(elsewhere, *city(1))
    assert on_disk(Lake(elsewhere.lake)) == set()


def test_what_the_driver_does_not_see_is_not_committed(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    files = attempt(opened(lake), *city(1))
    (tmp_path / OBSERVATIONS / files["path"][0].as_py()).rename(tmp_path / "away")
    with pytest.raises(LakeNotShared, match="the driver does not find what it wrote"):
        commit(lake, files)
    assert lake.sequence() == 0


def test_a_task_that_cannot_write_says_so(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    place = opened(lake)
    (tmp_path / OBSERVATIONS / "date=2024-10-04").write_text("in the way")
    with pytest.raises(LakeError, match=r"the lake's table .*observations cannot be written: .* is the disk full\?"):
        attempt(place, *city(1))
