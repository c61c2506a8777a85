"""Keeping a lake: the schedule, the policy, and what happens to it where the disk is full or a clock is wrong."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path

import pytest
from kit import publications, wait_until
from test_lake import DAY, FIRST_DAY, MIDNIGHT, fill, ids, rows

from spinney_cloud.pipeline import lake_compact
from spinney_cloud.pipeline import maintenance as maintenance_module
from spinney_cloud.pipeline.lake import DEAD_LETTERS, OBSERVATIONS, Lake, LakeFull
from spinney_cloud.pipeline.maintenance import Done, Maintenance, Policy, said
from spinney_cloud.pipeline.windows import SPEC, WINDOWS
from spinney_cloud.records import Publications


def state(lake: Lake) -> tuple[int, dt.date | None, dt.date | None]:
    found = lake.state(OBSERVATIONS)
    return found.rows, found.first, found.last


def one_reading() -> Publications:
    return publications("one", 0, [{"type": "x"}])


def files(lake: Lake) -> int:
    """On the disk, those that no version has among them."""
    return len(list(Path(lake.place).rglob("*.parquet")))


def test_a_round_orders_days_that_are_over_removes_old_ones_and_frees_the_disk(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=5)
    lake.table(DEAD_LETTERS)
    before = files(lake)
    keeping = Maintenance(lake, Policy(retain_days=3, vacuum_seconds=1.0))
    assert keeping._policy.vacuum_hours == 1
    keeping.round()
    assert state(lake) == (3 * 3 * 40, FIRST_DAY + dt.timedelta(2), FIRST_DAY + dt.timedelta(4))
    assert keeping.done == Done(rounds=1, joined=12, ordered_days=2, removed_rows=240)
    assert files(lake) >= before  # who reads an older version still can
    at_once = Maintenance(lake, Policy(retain_days=3, vacuum_seconds=0.0))
    at_once.round()
    assert at_once.done.deleted_files == 24
    assert files(lake) < before
    assert len(ids(lake)) == 360
    assert lake.sequence() == 15


def test_without_a_retention_everything_stays(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=5)
    Maintenance(lake, Policy()).round()
    assert state(lake)[0] == 5 * 3 * 40


def test_windows_are_kept_by_a_rule_of_their_own(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=3)
    (tmp_path / OBSERVATIONS).rename(tmp_path / WINDOWS)  # a table with dates is one
    Maintenance(Lake(tmp_path), Policy(retain_days=1)).round()
    assert Lake(tmp_path).state(WINDOWS).rows == 360
    Maintenance(Lake(tmp_path), Policy(retain_windows_days=2)).round()
    assert Lake(tmp_path).state(WINDOWS).rows == 240


def test_what_windows_have_not_summed_up_yet_stays(tmp_path: Path) -> None:
    """Readings of the first minute of a day may have come in the last one before it, by clocks that are ahead."""
    lake = Lake(tmp_path)
    fill(lake, days=5)
    keeping = Maintenance(lake, Policy(retain_days=1, lengths=(60, 86_400)))

    def after(minutes: float, days: float) -> tuple[int, dt.date | None, dt.date | None]:
        closed = {"spinney-windows-60-closed": minutes, "spinney-windows-86400-closed": days}
        lake.table(WINDOWS, SPEC)
        lake.put(WINDOWS, SPEC.schema.empty_table(), {app: int(MIDNIGHT + at * DAY) for app, at in closed.items()})
        keeping.round()
        return state(lake)

    keeping.round()
    last = FIRST_DAY + dt.timedelta(4)
    assert state(lake) == (600, FIRST_DAY, last)
    assert after(3.5, 3) == (360, FIRST_DAY + dt.timedelta(2), last)
    assert lake.removed_before() == FIRST_DAY + dt.timedelta(2)
    assert after(4.5, 3) == (360, FIRST_DAY + dt.timedelta(2), last)
    assert after(5.5, 5) == (120, last, last)


def test_a_clock_of_the_log_that_went_astray_removes_nothing(tmp_path: Path) -> None:
    """One record of a far future would else be the newest day, and all others beyond the retention."""
    lake = Lake(tmp_path)
    fill(lake, days=3)
    far = rows(one_reading(), first=10, at=4_000_000_000.0)
    lake.append(OBSERVATIONS, far, 10)
    assert lake.retain(30, today=FIRST_DAY + dt.timedelta(3)) == 0
    assert state(lake)[0] == 3 * 3 * 40 + 1
    assert lake.retain(2, today=FIRST_DAY + dt.timedelta(2)) == 3 * 40
    assert lake.retain(2) == 2 * 3 * 40  # by the table alone


def test_rounds_follow_one_another_while_rows_come_and_end_when_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_compact, "MIN_FILES", 2)
    lake = Lake(tmp_path)
    fill(lake, days=1, batches=2)
    keeping = Maintenance(lake, Policy(every_seconds=0.01, vacuum_seconds=0.0))
    keeping.start()
    thread = threading.Thread(target=keeping.wait)
    thread.start()
    try:
        wait_until(lambda: keeping.done.joined >= 4, "the first files joined")
        before = keeping.done.rounds
        lake.append(OBSERVATIONS, rows(one_reading(), first=20), 20)
        wait_until(lambda: keeping.done.rounds > before + 2, "more rounds")
    finally:
        keeping.stop()
        thread.join(60)
    assert not thread.is_alive()
    assert len(ids(lake)) == len(set(ids(lake))) == 81


def test_a_full_disk_takes_no_rows_and_is_still_freed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=4)
    full = Lake(tmp_path, free_floor=2**62)
    with pytest.raises(LakeFull, match="bytes are free on the disk of the lake"):
        full.append(OBSERVATIONS, rows(one_reading(), first=20), 20)
    assert full.sequence() == 12
    keeping = Maintenance(full, Policy(retain_days=1, vacuum_seconds=0.0))
    keeping.round()
    assert "nothing is written until there is more" in caplog.text
    assert keeping.done == Done(rounds=1, removed_rows=360, deleted_files=18)
    assert len(ids(lake)) == 120


def test_a_table_that_cannot_be_kept_is_said_and_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = Lake(tmp_path)
    fill(lake, days=3)
    damaged = tmp_path / "a_damaged_one" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020}.json").write_text("no JSON")
    keeping = Maintenance(lake, Policy(retain_days=1, vacuum_seconds=0.0))
    keeping.round()
    assert keeping.done.failed == 1
    assert keeping.done.removed_rows == 240
    assert "a_damaged_one" in caplog.text


def test_what_was_done_is_said_in_words_and_nothing_where_nothing_was() -> None:
    assert said(Done(), Done(rounds=1)) == ""
    done = Done(2, 0, 1_200, 1, 50_000, 7)
    assert said(Done(), done) == (
        "1,200 files joined, 1 days ordered by place, 50,000 rows beyond the retention removed, 7 files deleted"
    )
    assert said(Done(1, 0, 1_195, 1, 50_000, 7), done) == "5 files joined"


def test_the_first_round_does_not_wait_for_a_long_interval() -> None:
    assert maintenance_module.FIRST_SECONDS < maintenance_module.EVERY_SECONDS
