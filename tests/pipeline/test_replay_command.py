"""`spinney replay`: what it prints and writes, and how it ends."""

from __future__ import annotations

import csv
import datetime as dt
import json
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from replay_kit import SETTINGS, Entry, LogMaker, by_engine, lake_of, wanted

from spinney_cloud.notes import Note, Notes
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.replay import replay
from spinney_cloud.pipeline.replay_results import Counts, Output
from spinney_cloud.pipeline.replay_times import moment, written
from spinney_tools.replay import main

STATE = "WHEN temp > 25 UNTIL temp <= 22 EACH room"
COMMAND = [sys.executable, "-c", "import sys; from spinney_tools.replay import main; sys.exit(main(sys.argv[1:]))"]
END = "2024-10-04T02:00"


@pytest.fixture(scope="module")
def log() -> list[Entry]:
    return LogMaker(6).make(700)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, log: list[Entry]) -> Path:
    folder = tmp_path_factory.mktemp("replay") / "lake"
    lake_of(folder, log)
    return folder


@pytest.fixture(scope="module")
def expected(log: list[Entry]) -> list[tuple[object, ...]]:
    """For the state subscription, up to the next day."""
    return by_engine(log, wanted(STATE, 0.0, moment(END, 0.0)))


def run(place: Path, *arguments: str) -> int:
    return main([*arguments, "--lake", str(place), "--to", END])


# ---- what it prints and writes


def test_counts_by_day_and_a_summary(
    place: Path, expected: list[tuple[object, ...]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, STATE) == 0
    head, *rest = capsys.readouterr().out.splitlines()
    assert head == "notifications by day (UTC)"
    bars = {line.split()[0]: int(line.split()[1]) for line in rest if line.startswith("2024")}
    assert list(bars) == ["2024-10-03", "2024-10-04"]
    assert sum(bars.values()) == len(expected) > 50
    whys = [why for _, _, why, *_ in expected]
    summary = f"{len(expected):,} notifications ({whys.count('enter')} enter, {whys.count('exit')} exit) of "
    assert [summary in line for line in rest].count(True) == 1
    unknown = next(line for line in rest if line.startswith("It is not known how many are missing: "))
    assert "nothing was written down then of what brokers were asked for" in unknown, "a lake of before has no history"


def test_every_form_holds_the_same(place: Path, expected: list[tuple[object, ...]], tmp_path: Path) -> None:
    for end in ("parquet", "csv", "json", "jsonl"):
        assert run(place, STATE, "--out", str(tmp_path / f"out.{end}")) == 0
    told = [(id, why) for _, id, why, *_ in expected]
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [(row["publication_id"], row["why"]) for row in table] == told
    assert [row["time"].timestamp() for row in table] == pytest.approx([time for time, *_ in expected])
    assert json.loads(table[0]["publication"])["id"] == table[0]["publication_id"]
    assert {row["scope"] for row in table} == {'"kitchen"', '"hall"', '"čaj"', "7.0"}
    with (tmp_path / "out.csv").open() as file:
        assert [(row["publication_id"], row["why"]) for row in csv.DictReader(file)] == told
    whole = json.loads((tmp_path / "out.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert whole == lines
    assert [note["id"] for note in lines] == [row["notification"] for row in table]
    assert sorted(tmp_path.iterdir()) == [tmp_path / f"out.{end}" for end in ("csv", "json", "jsonl", "parquet")]


def test_content_is_counted_without_being_put_together(place: Path, log: list[Entry]) -> None:
    what = wanted("temp > 25", 0.0, moment(END, 0.0))
    found = list(replay(Lake(place), what, SETTINGS, whole=False))
    assert [note.publication_id for notes in found for note in notes.notes] == [
        id for _, id, *_ in by_engine(log, what)
    ]
    assert not any(notes.publications for notes in found)


def test_nothing_found_is_an_answer(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place, "temp > 99", "--out", str(tmp_path / "none.json")) == 0
    assert "0 notifications of " in capsys.readouterr().out
    assert json.loads((tmp_path / "none.json").read_text()) == []


def test_it_says_how_it_reads(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place, "temp > 25 AND lat > 45.8", "--explain") == 0
    told = capsys.readouterr().out
    assert "passed over by the files' bounds: (lat >= 45.8" in told
    assert run(place, STATE, "--explain") == 0
    assert "every reading counts" in capsys.readouterr().out


@pytest.mark.slow
def test_by_spark_it_is_the_same(place: Path, tmp_path: Path) -> None:
    """In a process of its own: it starts and ends its Spark."""
    assert main([STATE, "--lake", str(place), "--out", str(tmp_path / "arrow.jsonl")]) == 0
    command = [*COMMAND, STATE, "--lake", str(place), "--by", "spark", "--out", str(tmp_path / "spark.jsonl")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "the lake ends on 2024-10-04: what came later is not in it\n")
    assert (tmp_path / "spark.jsonl").read_text() == (tmp_path / "arrow.jsonl").read_text() != ""


# ---- what cannot be done


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["temp >"], "the subscription:1:7: expected a value after '>'\n  temp >\n        ^"),
        (["temp > 1", "--from", "soon"], "'soon' is no moment; expected 2026-10-01, "),
        (["temp > 1", "--from", "-7x"], "'-7x' is no time ago; expected -30m"),
        (["temp > 1", "--from", "2024-13-01"], "month must be in 1..12"),
        (["temp > 1", "--from", "2024-10-06"], "--from 2024-10-06 does not come before --to 2024-10-04 02:00:00Z"),
        (["temp > 1", "--from", "2024-09-01", "--to", "2024-10-01"], "it holds 2024-10-03 to 2024-10-04"),
        (["temp > 1", "--out", "x.xls"], "must end in one of .parquet, .csv, .json, .jsonl"),
        (["temp > 1", "--out", "no such folder/x.csv"], "No such file"),
        (["temp > 1", "--lake", "nowhere"], "there is no lake in nowhere: spinney pipeline makes one"),
    ],
)
def test_what_cannot_be_done_is_said(
    place: Path, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--lake", str(place), "--to", END]
    assert main([*given, *arguments]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("spinney replay: ")
    assert says in captured.err
    assert captured.out == ""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_is_stopped_in_a_line(place: Path, how: signal.Signals) -> None:
    """It waits for its reader, with most of its lines still to come."""
    command = [*COMMAND, "temp > 0", "--lake", str(place), "--out", "-"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["why"] == "match"
        running.send_signal(how)
        assert running.stderr.read() == b"spinney replay: stopped; nothing was written\n"
        running.stdout.read()
    assert running.returncode == 130


def test_a_file_appears_when_it_is_whole(tmp_path: Path) -> None:
    file = tmp_path / "out.csv"
    file.write_text("from before")

    def interrupted() -> None:
        with Output(str(file)) as output:
            output.put(Notes("default", 1, 2.0, 0, True, ({"a": 1},), (Note("o", "s", "match", None, 0, "m:1:0"),)))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "from before"
    assert list(tmp_path.iterdir()) == [file]


# ---- moments and charts

NOW = dt.datetime(2026, 11, 18, 15, 30, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "is_"),
    [
        ("now", "2026-11-18T15:30:00"),
        ("today", "2026-11-18"),
        ("yesterday", "2026-11-17"),
        ("-7d", "2026-11-11T15:30:00"),
        ("-90m", "2026-11-18T14:00:00"),
        ("2026-10-01", "2026-10-01"),
        ("2026-10", "2026-10-01"),
        ("2026-10-01T12:30", "2026-10-01T12:30:00"),
        ("2026-10-01 12:30:15.5", "2026-10-01T12:30:15.5"),
        ("2026-10-01T12:30:00Z", "2026-10-01T12:30:00"),
        ("2026-10-01T12:30:00+02:00", "2026-10-01T10:30:00"),
    ],
)
def test_moments_as_people_write_them(text: str, is_: str) -> None:
    assert moment(text, NOW) == dt.datetime.fromisoformat(is_).replace(tzinfo=dt.UTC).timestamp()


def test_moments_as_they_are_told() -> None:
    assert (written(moment("2026-10-01", NOW)), written(NOW)) == ("2026-10-01", "2026-11-18 15:30:00Z")


def counted(*days: tuple[str, int]) -> Counts:
    counts = Counts()
    for day, count in days:
        notes = tuple(Note("o", "s", "match", None, None, f"m:1:{at}") for at in range(count))
        counts.put(Notes("default", 1, moment(day, NOW), 0, True, (), notes))
    return counts


def test_bars_are_drawn_to_one_scale_and_days_without_anything_have_none() -> None:
    chart = counted(("2026-10-01", 80), ("2026-10-03", 1)).chart(dt.date(2026, 10, 1), dt.date(2026, 10, 3), "#")
    assert chart == ["notifications by day (UTC)", f"2026-10-01  80  {'#' * 40}", "2026-10-02   0", "2026-10-03   1  #"]


def test_long_times_are_shown_by_the_week_and_the_month() -> None:
    counts = counted(("2026-01-07", 3), ("2026-06-30", 5))
    weeks = counts.chart(dt.date(2026, 1, 1), dt.date(2026, 12, 31))
    assert weeks[0] == "notifications by week (UTC)"
    assert weeks[2].startswith("2026-01-05  3  ")
    months = counts.chart(dt.date(2024, 1, 1), dt.date(2026, 12, 31))
    assert (months[0], len(months)) == ("notifications by month (UTC)", 37)
    assert len(counts.chart(dt.date(1970, 1, 1), dt.date(2026, 12, 31))) == 63
