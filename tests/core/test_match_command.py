"""`spinney match`: real processes, files, pipes and signals."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from spinney import native
from spinney_tools.match.readings import BLOCK_BYTES, MAX_LINE_BYTES

COMMAND = [sys.executable, "-m", "spinney_tools", "match"]
READINGS = '{"NO2": 30, "room": "a"}\n{"NO2": 50.0,"room":"b"}\n{"temp": 21}\n{"NO2": 70, "room": "a"}\n'


def environment() -> dict[str, str]:
    """Ours, but with output buffered as usual, so that what is not flushed is missed."""
    pure = {} if native.core() else {native.PURE: "1"}
    usual = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**usual, "PYTHONPATH": os.pathsep.join(sys.path), **pure}


def match(*arguments: str | Path, stdin: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    data = stdin.encode() if isinstance(stdin, str) else stdin
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(command, input=data, capture_output=True, env=environment(), check=False, timeout=60)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def seen(done: subprocess.CompletedProcess[str]) -> list[tuple[int, list[str]]]:
    return [(line["line"], line["ids"]) for line in lines(done)]


# ---- what is printed


def test_a_matching_reading_is_printed_as_it_came_with_its_line_and_the_ids_in_their_order() -> None:
    done = match("-s", "room = 'a'", "-s", "high: NO2 > 40", stdin=READINGS)
    assert done.stdout.splitlines() == [
        '{"line":1,"ids":["1"],"why":"match","publication":{"NO2": 30, "room": "a"}}',
        '{"line":2,"ids":["high"],"why":"match","publication":{"NO2": 50.0,"room":"b"}}',
        '{"line":4,"ids":["1","high"],"why":"match","publication":{"NO2": 70, "room": "a"}}',
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_no_match_is_exit_code_1() -> None:
    done = match("-s", "NO2 > 400", stdin=READINGS)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


def test_several_files_and_standard_input_are_named(tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text(READINGS)
    done = match("-s", "NO2 > 40", tmp_path / "one.jsonl", "-", stdin='{"NO2": 41}')
    files = [(Path(line["file"]).name, line["line"]) for line in lines(done)]
    assert files == [("one.jsonl", 2), ("one.jsonl", 4), ("-", 1)]


@pytest.mark.parametrize("text", ["\ufeff" + READINGS, READINGS.replace("\n", "\r\n"), READINGS.replace("\n", "\n \n")])
def test_byte_order_marks_line_ends_and_blank_lines_do_not_matter(text: str) -> None:
    done = match("-s", "NO2 > 0", "--count", stdin=text)
    assert lines(done) == [{"id": "1", "match": 3}]


def test_gzip_is_known_by_its_first_bytes_in_files_and_in_pipes(tmp_path: Path) -> None:
    packed = gzip.compress(READINGS.encode()) + gzip.compress(b'{"NO2": 99}\n')
    (tmp_path / "readings.jsonl").write_bytes(packed)
    for done in (match("-s", "NO2 > 40", tmp_path / "readings.jsonl"), match("-s", "NO2 > 40", stdin=packed)):
        assert seen(done) == [(2, ["1"]), (4, ["1"]), (5, ["1"])]


def test_a_file_that_is_only_called_gz_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "readings.jsonl.gz").write_text(READINGS)
    assert match("-s", "NO2 > 40", tmp_path / "readings.jsonl.gz").returncode == 0


def test_counts_name_every_subscription() -> None:
    done = match("--count", "-s", "high: NO2 > 40", "-s", "never: NO2 > 400", stdin=READINGS)
    assert lines(done) == [{"id": "high", "match": 2}, {"id": "never", "match": 0}]


def test_explain_says_which_part_made_each_subscription_match() -> None:
    done = match("--explain", "-s", "x: NO2 > 60 OR room = 'b'", "-s", "NO2 > 400", stdin=READINGS)
    (explained,) = lines(done)[0]["explain"].items()
    assert explained[0] == "x"
    assert [(part["text"], part["verdict"]) for part in explained[1]["parts"]] == [
        ("NO2 > 60", False),
        ("room = 'b'", True),
    ]


def test_explain_all_prints_readings_that_do_not_match_too() -> None:
    done = match("--explain-all", "-s", "NO2 > 60", stdin=READINGS)
    assert [(line["ids"], line["why"], line["explain"]["1"]["verdict"]) for line in lines(done)] == [
        ([], None, False),
        ([], None, False),
        ([], None, None),
        (["1"], "match", True),
    ]


# ---- state and top-k


def test_a_state_subscription_prints_enter_and_exit_with_their_scope() -> None:
    readings = [
        {"source": s, "t": t, "room": r} for s, t, r in [("x", 26, "a"), ("y", 27, "a"), ("x", 20, "a"), ("y", 1, "a")]
    ]
    done = match("-s", "hot: WHEN t > 25 UNTIL t <= 22 EACH room", stdin="\n".join(map(json.dumps, readings)))
    assert [(line["line"], line["why"], line["scope"]) for line in lines(done)] == [(1, "enter", "a"), (4, "exit", "a")]


def test_a_reading_that_comes_into_the_top_when_another_expires_is_printed_with_its_own_line() -> None:
    readings = '{"time": 0, "NO2": 9}\n{"time": 50, "NO2": 5}\n{"time": 120, "NO2": 1}\n{"time": 130, "other": 1}\n'
    done = match("-s", "top: TOP 1 OVER 100s BY NO2 DESC", stdin=readings)
    assert [(line["line"], line["rank"], line["publication"]["NO2"]) for line in lines(done)] == [(1, 1, 9), (2, 1, 5)]


def test_a_reading_that_comes_when_another_expires_is_compared_with_what_is_left() -> None:
    readings = '{"time": 0, "NO2": 9}\n{"time": 50, "NO2": 5}\n{"time": 100, "NO2": 7}\n{"time": 101, "other": 1}\n'
    done = match("-s", "top: TOP 1 OVER 100s BY NO2 DESC", stdin=readings)
    assert [line["line"] for line in lines(done)] == [1, 3]


@pytest.mark.parametrize("early", ['{"NO2": 8}', '{"time": 10, "NO2": 8}'])
def test_a_reading_without_time_or_with_an_earlier_one_comes_when_the_one_before_it_did(early: str) -> None:
    readings = f'{{"time": 0, "NO2": 9}}\n{{"time": 60, "NO2": 1}}\n{early}\n{{"time": 120, "other": 1}}\n'
    done = match("-s", "top: TOP 1 OVER 100s BY NO2 DESC", stdin=readings)
    assert [line["line"] for line in lines(done)] == [1, 3]


def test_labels_that_reorder_holds_back_are_released_at_the_end() -> None:
    subscription = '{"when": "t > 25", "until": "t <= 22", "reorder": 60}'
    done = match("-s", subscription, stdin='{"time": 5, "source": "x", "t": 30}\n')
    assert [(line["line"], line["why"]) for line in lines(done)] == [(1, "enter")]


def test_kinds_of_subscriptions_are_counted_by_why() -> None:
    readings = "".join(f'{{"t": {t}}}\n' for t in (26, 20, 27))
    done = match(
        "--count",
        "-s",
        "s: WHEN t > 25 UNTIL t <= 22",
        "-s",
        "k: TOP 1 OVER LAST 2 BY t DESC",
        "-s",
        "t < 0",
        stdin=readings,
    )
    assert lines(done) == [{"id": "s", "enter": 2, "exit": 1}, {"id": "k", "top": 2}, {"id": "3", "match": 0}]


# ---- readings that are refused


@pytest.mark.parametrize(
    ("line", "column"),
    [
        ('{"NO2": 41', 11),
        ('  {"NO2": x}', 11),
        ('{"ü": "ü", "NO2": NaN}', 19),
        ('{"NO2": [1]}', 9),
        ('{"NO2": 1e999}', 9),
        ('{"NO2": 1, "NO2": 2}', 12),
        ("[1]", 1),
        ('[{"NO2": 41}]', 1),
        ('{"NO2": 41} {"NO2": 42}', 13),
    ],
)
def test_a_reading_that_is_no_flat_json_object_is_refused_with_line_and_column(line: str, column: int) -> None:
    done = match("-s", "NO2 > 40", stdin=f'{{"NO2": 41}}\n{line}\n{{"NO2": 42}}\n')
    assert done.returncode == 2
    assert done.stderr.startswith(f"-:2:{column}: ")
    assert seen(done) == [(1, ["1"])]


@pytest.mark.parametrize("explain", [[], ["--explain"]])
@pytest.mark.parametrize(
    "bad", ['"lat": "x"', '"time": "yesterday"', '"source": 7', '"valid_for": -1', '"\\u006cat": true']
)
def test_a_reserved_attribute_of_another_type_is_refused(bad: str, explain: list[str]) -> None:
    done = match("-s", "NO2 > 40", *explain, stdin=f'{{"NO2": 41, {bad}}}\n')
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("-:1:")


def test_keep_going_reports_what_is_refused_and_takes_the_rest() -> None:
    done = match("--keep-going", "-s", "NO2 > 40", stdin='{"NO2": 41}\n{"NO2": }\n{"NO2": 42}\n')
    assert seen(done) == [(1, ["1"]), (3, ["1"])]
    assert done.returncode == 2
    assert done.stderr.splitlines()[0].startswith("-:2:9: ")
    assert done.stderr.splitlines()[1] == "1 refused, 2 readings taken"


def test_a_line_beyond_the_limit_is_refused_and_skipped() -> None:
    long, more = '{"note": "' + "x" * (MAX_LINE_BYTES + 2 * BLOCK_BYTES) + '"}\n', '{"NO2": 42}\n' * 50_000
    done = match("--keep-going", "--count", "-s", "NO2 = 41", "-s", "NO2 = 42", stdin='{"NO2": 41}\n' + long + more)
    assert lines(done) == [{"id": "1", "match": 1}, {"id": "2", "match": 50_000}]
    assert done.stderr.startswith("-:2: the line is longer than")


def test_a_file_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    (tmp_path / "cut.gz").write_bytes(gzip.compress(READINGS.encode())[:-9])
    (tmp_path / "good.jsonl").write_text(READINGS)
    done = match("--keep-going", "-s", "NO2 > 60", tmp_path / "none", tmp_path / "cut.gz", tmp_path / "good.jsonl")
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"{tmp_path}/none: No such file or directory"
    assert done.stderr.splitlines()[1].startswith(f"{tmp_path}/cut.gz: damaged gzip data: ")
    assert lines(done)[-1]["file"].endswith("good.jsonl")


def test_a_timestamp_counts_as_its_seconds() -> None:
    readings = '{"time": "2026-01-01T00:00:01Z"}\n{"time": 1767225599}\n{"time": "2025-12-31T23:59:59Z"}\n'
    done = match("-s", "time > TIMESTAMP('2026-01-01T00:00:00Z')", stdin=readings)
    assert seen(done) == [(1, ["1"])]
    assert lines(done)[0]["publication"] == {"time": "2026-01-01T00:00:01Z"}


# ---- subscriptions


def test_a_subscriptions_file_may_hold_text_json_and_arrays(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text(
        """# what I want to know
        NO2 > 60   
        high: NO2 > 40
        {"id": "cold", "filter": {"op": "<", "args": [
            {"property": "temp"}, 30]}}
        ["b: room = 'b'", {"op": "=", "args": [{"property": "room"}, "a"]}] # and these
        []
        """  # noqa: W291  # a blank at the end of a line is part of the test
    )
    done = match("--subscriptions", tmp_path / "mine.txt", "--count", stdin=READINGS)
    assert lines(done) == [
        {"id": "1", "match": 1},
        {"id": "high", "match": 2},
        {"id": "cold", "match": 1},
        {"id": "b", "match": 1},
        {"id": "5", "match": 2},
    ], done.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("NO2 > 4\n  x: NO2 >", "2:11: "),
        ("NO2 > 4\n  NO2 > > 5", "2:9: "),
        ('{"op": ">", "args":\n [}', "2:3: "),
        ('["NO2 > 1",\n "NO2 >"', "2:8: "),
        ('["NO2 > 1"\n "NO2 > 2"]', "2:2: expected ',' or ']'"),
        ('\n ["NO2 > 1",\n "NO2 > 2"', "2:2: this array is not closed"),
        ("[3]", "1:2: expected a subscription"),
        ("a: NO2 > 1\na: NO2 > 2", "2:4: there is a subscription 'a' already, at FILE:1:4"),
        ("[" * 100_000, "1:2: nested too deeply"),
    ],
)
def test_a_subscription_that_cannot_be_read_is_refused_with_file_line_and_column(
    tmp_path: Path, text: str, problem: str
) -> None:
    file = tmp_path / "subscriptions.txt"
    file.write_text(text)
    done = match("--subscriptions", file, stdin=READINGS)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.replace(str(file), "FILE").startswith(f"FILE:{problem}")


def test_the_column_of_an_error_counts_in_the_option_as_it_was_typed() -> None:
    done = match("-s", "NO2 > 3", "-s", "x: NO2 >", stdin=READINGS)
    assert done.stderr.startswith("-s 2:1:9: ")


def test_no_subscription_at_all_is_an_error() -> None:
    done = match(stdin=READINGS)
    assert done.returncode == 2
    assert "give -s TEXT or --subscriptions FILE" in done.stderr


# ---- pipes, signals and memory


def start(*arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([*COMMAND, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, env=environment())


def test_a_live_pipe_is_answered_at_once() -> None:
    with start("-s", "NO2 > 40") as process:
        assert process.stdin
        assert process.stdout
        for number in (1, 2):
            process.stdin.write(b'{"NO2": 41}\n')
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["line"] == number
        process.stdin.close()
        assert process.wait(timeout=20) == 0


def test_ctrl_c_prints_the_counts_so_far_and_exits_with_130() -> None:
    counting, printing = start("--count", "-s", "NO2 > 40"), start("-s", "NO2 > 40")
    with counting, printing:
        for process in (counting, printing):
            assert process.stdin
            process.stdin.write(b'{"NO2": 41}\n' * 3)
            process.stdin.flush()
        assert printing.stdout
        assert printing.stderr
        assert len([printing.stdout.readline() for _ in range(3)]) == 3
        printing.send_signal(signal.SIGINT)
        assert printing.wait(timeout=20) == 130
        assert printing.stderr.read() == b"stopped after 3 readings, 3 of which matched\n"
        wait_until_read(counting)
        counting.send_signal(signal.SIGINT)
        assert counting.stdout
        assert json.loads(counting.stdout.readline()) == {"id": "1", "match": 3}
        assert counting.wait(timeout=20) == 130


def wait_until_read(process: subprocess.Popen[bytes]) -> None:
    """Blocks until the process has taken all that was in its pipe, and what it then reads has been counted.

    A pipe takes more only when there is room: filling it with blank lines ends when the readings before were taken.
    """
    assert process.stdin
    process.stdin.write(b"\n" * (4 << 20))
    process.stdin.flush()


def test_a_closed_pipe_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "many.jsonl").write_text('{"NO2": 41}\n' * 50_000)
    with start("-s", "NO2 > 40", str(tmp_path / "many.jsonl")) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=20) == 0


def peak_memory(readings: int) -> int:
    """The most that `spinney match` ever had in memory, in bytes, for so many readings of 200 bytes from a pipe."""
    block = (b'{"source": "mote-1", "NO2": 41.5, "note": "%s"}\n' % (b"x" * 152)) * 1000
    with start("--count", "-s", "NO2 > 40") as process:
        assert process.stdin
        assert process.stdout
        pipe = process.stdin

        def write() -> None:
            for _ in range(readings // 1000):
                pipe.write(block)
            pipe.close()

        writer = threading.Thread(target=write)
        writer.start()
        assert json.loads(process.stdout.read()) == {"id": "1", "match": readings}
        writer.join()
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
    return usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def test_memory_does_not_grow_with_the_readings() -> None:
    assert peak_memory(200_000) - peak_memory(2_000) < 4 << 20
