"""Snapshots, the journal that belongs to them, and the copy of the process that writes them."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from spinney_cloud import subscription_journal
from spinney_cloud.failpoints import VARIABLE
from spinney_cloud.snapshot_taker import SnapshotTaker
from spinney_cloud.snapshots import Moment, SnapshotDamaged, Snapshots
from spinney_cloud.subscription_journal import Journal, JournalDamaged, read

SECONDS = 20.0


def moment(sequence: int) -> Moment:
    return Moment(sequence, 100.0 + sequence, 1e9)


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path, kept=2)


def written(snapshots: Snapshots, sequence: int, state: dict[str, Any]) -> Path:
    return snapshots.publish(snapshots.write(moment(sequence), state))


# ---- files


def test_a_snapshot_is_read_as_it_was_written(snapshots: Snapshots) -> None:
    path = written(snapshots, 7, {"a": [1, 2.5, "x\ny", None], "b": (1, 2)})
    found = snapshots.read(path)
    assert found.moment == moment(7)
    assert found.state == {"a": [1, 2.5, "x\ny", None], "b": [1, 2]}


def test_the_oldest_go_and_the_newest_comes_first(snapshots: Snapshots) -> None:
    for sequence in (5, 10, 100):
        written(snapshots, sequence, {})
    assert [one.sequence for one in snapshots.moments()] == [100, 10]


def test_what_is_not_published_is_none_and_goes_at_the_next_start(snapshots: Snapshots) -> None:
    part = snapshots.write(moment(5), {})
    assert snapshots.newest_first() == []
    assert part.exists()
    Snapshots(snapshots.folder, kept=2)
    assert not part.exists()


def test_a_file_that_is_cut_or_altered_anywhere_is_damaged(snapshots: Snapshots) -> None:
    path = written(snapshots, 7, {"key": "value " * 20})
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place])
        with pytest.raises(SnapshotDamaged):
            snapshots.read(path)
        altered = bytearray(whole)
        altered[place] ^= 1
        path.write_bytes(altered)
        with pytest.raises(SnapshotDamaged):
            snapshots.read(path)


def test_a_newer_version_is_refused(snapshots: Snapshots) -> None:
    path = written(snapshots, 7, {})
    header, _, body = path.read_bytes()[9:].partition(b"\n")
    header = header.replace(b'"version":1', b'"version":2')
    path.write_bytes(b"%08x %b\n%b" % (zlib.crc32(header), header, body))
    with pytest.raises(SnapshotDamaged, match="of version 2; this Spinney reads up to 1"):
        snapshots.read(path)


def test_a_damaged_file_is_kept_aside_but_only_one(snapshots: Snapshots) -> None:
    for sequence in (1, 2):
        snapshots.set_aside(written(snapshots, sequence, {}))
    assert [path.name for path in snapshots.folder.iterdir()] == [f"{2:020d}.snapshot.damaged"]


# ---- the journal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    with Journal(tmp_path) as made:
        yield made


def test_a_journal_gives_the_subscriptions_as_they_were_at_each_snapshot(journal: Journal, tmp_path: Path) -> None:
    journal.begin({"a": {"n": 0}}, 1)
    now: dict[str, Any] = {"a": {"n": 0}}
    places = []
    random_ = random.Random(1)
    for at in range(2, 200):
        key, value = random_.choice("abcde"), None if random_.random() < 0.3 else {"n": at, "text": "line\nfeed"}
        journal.append(at, key, value)
        now.pop(key, None)
        if value is not None:
            now[key] = value
        places.append((journal.place(), dict(now)))
    for place, wanted in places:
        assert read(tmp_path, place) == wanted


def test_what_follows_a_snapshot_is_cut_off_and_written_again(journal: Journal, tmp_path: Path) -> None:
    journal.begin({"a": {"n": 0}}, 1)
    place = journal.place()
    journal.append(2, "b", {"n": 2})
    journal.place()
    with Journal(tmp_path) as again:
        assert again.resume(place) == {"a": {"n": 0}}
        again.append(2, "c", {"n": 3})
        assert read(tmp_path, again.place()) == {"a": {"n": 0}, "c": {"n": 3}}


def test_a_journal_that_is_not_the_snapshot_s_is_damaged(journal: Journal, tmp_path: Path) -> None:
    journal.begin({"a": {"n": 0}}, 1)
    place = journal.place()
    with pytest.raises(JournalDamaged):
        read(tmp_path, place | {"checksum": 1})
    with pytest.raises(JournalDamaged):
        read(tmp_path, place | {"length": place["length"] + 1})
    with pytest.raises(JournalDamaged):
        read(tmp_path, place | {"file": "none.journal"})


def test_a_long_journal_goes_on_in_a_new_file(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_journal, "MIN_DEAD", 10)
    journal.begin({}, 1)
    for at in range(2, 20):
        journal.append(at, "a", {"n": at})
    assert journal.is_long
    old = journal.place()
    journal.rewrite(20)
    assert not journal.is_long
    new = journal.place()
    assert new["file"] != old["file"]
    assert new["length"] < old["length"] / 10
    assert read(tmp_path, new) == read(tmp_path, old) == {"a": {"n": 19}}
    journal.remove_others({old["file"]})
    assert len(list(tmp_path.iterdir())) == 2
    journal.remove_others(set())
    assert [path.name for path in tmp_path.iterdir()] == [new["file"]]


# ---- the copy that writes


def finish(taker: SnapshotTaker, stored: int) -> None:
    deadline = time.monotonic() + SECONDS
    while taker.busy and time.monotonic() < deadline:
        taker.proceed(stored)
        time.sleep(0.001)
    assert not taker.busy


@pytest.fixture
def taker(journal: Journal, snapshots: Snapshots) -> SnapshotTaker:
    journal.begin({"a": {"n": 0}}, 0)
    return SnapshotTaker(snapshots, journal)


def test_the_copy_writes_what_was_at_the_instant_while_the_process_goes_on(
    taker: SnapshotTaker, snapshots: Snapshots, journal: Journal, tmp_path: Path
) -> None:
    state = {"value": list(range(300_000))}
    taker.take(moment(5), lambda: state)
    assert taker.busy
    state["value"].clear()
    journal.append(6, "b", {"n": 6})
    finish(taker, stored=5)
    assert taker.published is not None
    assert (taker.published.sequence, taker.floor) == (5, 5)
    found = snapshots.read(snapshots.newest_first()[0])
    assert len(found.state["value"]) == 300_000
    assert read(tmp_path, found.state["journal"]) == {"a": {"n": 0}}
    assert taker.pause_seconds < 1.0


def test_it_is_published_only_when_all_notifications_of_its_records_are_stored(
    taker: SnapshotTaker, snapshots: Snapshots
) -> None:
    taker.take(moment(5), dict)
    taker.proceed(4, wait=True)
    assert taker.busy
    assert snapshots.newest_first() == []
    taker.proceed(5)
    assert len(snapshots.newest_first()) == 1


def test_a_copy_that_fails_leaves_nothing_and_is_counted(taker: SnapshotTaker, snapshots: Snapshots) -> None:

    def broken() -> dict[str, Any]:
        raise OSError("no space left on device")

    taker.take(moment(5), broken)
    taker.proceed(5, wait=True)
    assert (taker.busy, taker.failed, taker.published) == (False, 1, None)
    assert not list(snapshots.folder.glob("*.part"))
    assert snapshots.newest_first() == []


def test_a_copy_that_is_killed_while_it_writes_leaves_no_snapshot(
    taker: SnapshotTaker, snapshots: Snapshots, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "snapshot.written")
    taker.take(moment(5), dict)
    taker.proceed(5, wait=True)
    assert (taker.failed, snapshots.newest_first()) == (1, [])


_DIES_BEFORE_PUBLISHING = """
import sys
from pathlib import Path
from spinney_cloud.snapshot_taker import SnapshotTaker
from spinney_cloud.snapshots import Moment, Snapshots
from spinney_cloud.subscription_journal import Journal

folder = Path(sys.argv[1])
snapshots, journal = Snapshots(folder, 2), Journal(folder)
journal.begin({}, 0)
taker = SnapshotTaker(snapshots, journal)
for sequence in (1, 2, 3):
    taker.take(Moment(sequence, 0.0, 0.0), lambda: {"n": sequence})
    taker.proceed(sequence, wait=True)
"""


def test_killed_between_writing_and_publishing_the_one_before_is_the_newest(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _DIES_BEFORE_PUBLISHING, str(tmp_path)],
        env=os.environ | {VARIABLE: "snapshot.publish:3"},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    snapshots = Snapshots(tmp_path, 2)
    assert [snapshots.read(path).state["n"] for path in snapshots.newest_first()] == [2, 1]


def test_a_snapshot_of_many_states_stops_nothing_for_long(taker: SnapshotTaker, tmp_path: Path) -> None:
    ballast = [{"n": n, "text": str(n)} for n in range(300_000)]
    pauses = []
    for sequence in (1, 2, 3):
        taker.take(moment(sequence), lambda: {"ballast": ballast})
        pauses.append(taker.pause_seconds)
        finish(taker, sequence)
    assert min(pauses) < 0.25, "a busy machine may delay some"
    assert len(orjson.loads(next(tmp_path.glob("*.snapshot")).read_bytes().partition(b"\n")[2])["ballast"]) == 300_000
