"""The workload kit: the same files byte for byte, a scan that is right, and the core measured against it."""

from __future__ import annotations

import json
import math
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from spinney_tools.workloads import cache, main, programs, targets
from spinney_tools.workloads.generate import WORKLOADS, WorkloadError, check, checksums, file_names, generate, is_right

SMALLEST = {name: min(workload.sizes) for name, workload in WORKLOADS.items()}
QUICK_FLAGS = ("-std=c11", "-O1", "-ffp-contract=off")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All workloads at their smallest."""
    folder = tmp_path_factory.mktemp("workloads")
    for name, size in SMALLEST.items():
        generate(folder, name, [size])
    return folder


@pytest.fixture(scope="module")
def program(folder: Path) -> Path:
    """The harness, compiled fast rather than well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "FLAGS", QUICK_FLAGS)
        return programs.build("matching", folder)


# ---- files


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_is_the_same_byte_for_byte(folder: Path, name: str) -> None:
    for file_name in file_names(name, [SMALLEST[name]]):
        check(folder / file_name)


def test_every_file_has_a_checksum_and_every_size_a_target() -> None:
    assert set(checksums()) == {file for name in WORKLOADS for file in file_names(name)}
    assert set(targets.REQUIRED_RATIO) == {(w.name, size) for w in WORKLOADS.values() for size in w.sizes}


def test_a_damaged_file_is_noticed_and_made_again(tmp_path: Path) -> None:
    generate(tmp_path, "W3", [5_000])
    path = tmp_path / "W3.5000.subs"
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(WorkloadError, match=r"W3\.5000\.subs differs"):
        check(path)
    said: list[str] = []
    generate(tmp_path, "W3", [5_000], said.append)
    assert said == ["generating W3.5000.subs"]
    assert is_right(path)


def test_an_interrupted_run_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        if "events" in text:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generate(tmp_path, "W3", [5_000], interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["W3.schema"]


@pytest.mark.parametrize(
    ("name", "sizes", "problem"), [("W9", [1], "no workload 'W9'"), ("W1", [7], "W1 has no size 7")]
)
def test_what_does_not_exist_is_refused(tmp_path: Path, name: str, sizes: list[int], problem: str) -> None:
    with pytest.raises(WorkloadError, match=problem):
        generate(tmp_path, name, sizes)


def test_the_command_generates_verifies_and_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", str(tmp_path), "W1", "W3", "--max", "5000"]) == 0
    assert main(["verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "6 files of 21 are there, all as they should be\n"
    (tmp_path / "W1.schema").write_text("")
    assert main(["verify", str(tmp_path)]) == 1
    assert "W1.schema differs" in capsys.readouterr().err
    assert main(["list"]) == 0
    assert "W2  geo alerts" in capsys.readouterr().out


def test_the_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.default_folder() == tmp_path / "spinney" / "workloads"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert cache.default_folder() == tmp_path / ".cache" / "spinney" / "workloads"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache.default_folder() == tmp_path / "Library" / "Caches" / "spinney" / "workloads"


# ---- the scan


OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "=": lambda value, limit: value == limit,
}


def holds(line: str, event: list[str]) -> bool:
    """Whether a subscription's line holds for an event's values, straight from the format's description."""
    words = iter(line.split()[1:])
    for attribute in words:
        operator, value = next(words), event[int(attribute)]
        if operator == "S":
            held = value == next(words)
        elif operator == "B":
            held = float(next(words)) <= float(value) <= float(next(words))
        else:
            held = OPERATORS[operator](float(value), float(next(words)))
        if not held:
            return False
    return True


def mixed(identifier: int) -> int:
    """splitmix64."""
    mask = (1 << 64) - 1
    x = (identifier + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
    return x ^ (x >> 31)


def oracle(program: Path, folder: Path, name: str) -> Path:
    path = folder / f"{name}.oracle"
    subprocess.run([program, "oracle", folder, name, str(SMALLEST[name]), path], check=True)
    return path


@pytest.mark.needs("cc")
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_scan_finds_what_the_lines_say(program: Path, folder: Path, name: str) -> None:
    subscriptions = (folder / f"{name}.{SMALLEST[name]}.subs").read_text().splitlines()
    answers = oracle(program, folder, name).read_bytes()
    for number, line in enumerate((folder / f"{name}.events").read_text().splitlines()[:8]):
        ids = [i for i, subscription in enumerate(subscriptions) if holds(subscription, line.split()[1::2])]
        digest = sum(map(mixed, ids)) % 2**64
        assert struct.unpack_from("<QQ", answers, 16 * number) == (len(ids), digest)


# ---- the core


def measured(program: Path, folder: Path, name: str, answers: Path) -> tuple[int, dict[str, float]]:
    command = [str(program), "measure", str(folder), name, str(SMALLEST[name]), str(answers), "0.01", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.needs("cc")
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_core_finds_what_the_scan_finds_before_and_after_changes(program: Path, folder: Path, name: str) -> None:
    status, figures = measured(program, folder, name, oracle(program, folder, name))
    assert (status, figures["wrong_events"]) == (0, 0)
    assert all(math.isfinite(value) for value in figures.values() if not isinstance(value, str))


@pytest.mark.needs("cc")
def test_one_wrong_id_is_noticed_before_and_after_changes(program: Path, folder: Path) -> None:
    answers = oracle(program, folder, "W2")
    changed = np.fromfile(answers, dtype="<u8")
    event = int(np.argmax(changed[0::2]))
    changed[2 * event + 1] += np.uint64(1)
    other = folder / "changed.oracle"
    changed.tofile(other)
    status, figures = measured(program, folder, "W2", other)
    assert (status, figures["wrong_events"]) == (1, 2)


@pytest.mark.needs("cc")
def test_a_broken_file_ends_the_program_with_a_line(program: Path, folder: Path, tmp_path: Path) -> None:
    for file_name in file_names("W1", [1000]):
        (tmp_path / file_name).write_bytes((folder / file_name).read_bytes())
    (tmp_path / "W1.1000.subs").write_text("1 0 ? 3\n")
    done = subprocess.run([program, "oracle", tmp_path, "W1", "1000", tmp_path / "o"], capture_output=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"unknown operator in: ")


@pytest.mark.needs("cc")
def test_a_program_is_compiled_again_only_when_something_changed(
    program: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(programs, "FLAGS", QUICK_FLAGS)
    before = program.stat().st_mtime_ns
    assert programs.build("matching", folder) == program
    assert program.stat().st_mtime_ns == before
    monkeypatch.setattr(programs, "FLAGS", (*QUICK_FLAGS, "-DCHANGED"))
    assert programs._stamp(programs.core_sources()) not in program.name


def test_a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(programs.CompileError, match="no-such-compiler is not there"):
        programs.build("matching", tmp_path)
