"""./spinney sets up a fresh clone: what is due when, what it says, and what it leaves behind."""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from types import ModuleType
from typing import Any

import pytest
from launchers import PYPROJECT, TOP, launcher_of, make_clone

from spinney_tools import test as test_command
from spinney_tools.launcher import running
from spinney_tools.launcher.requirements import groups

COMPILING = "spinney: compiling the C core"
INTERPRETER = ("/usr/bin/python3.11", "3.11.2")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A small clone: the real launcher and core build, over a package and a C core of a few lines."""
    return make_clone(tmp_path / "a clone")


# Where these tests run is no part of a clone's own environment.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPINNEY_CORE", "CC")},
    "PIP_NO_INDEX": "1",
    "SPINNEY_REQUIRE_NATIVE": "0",
}


def call(top: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, top / "spinney", *arguments],
        env={**ENVIRONMENT, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def path_without_compiler(folder: Path) -> str:
    """A PATH with nothing on it but what a virtual environment's own scripts may want."""
    folder.mkdir()
    for program in ("sh", "env"):
        found = shutil.which(program)
        assert found is not None
        (folder / program).symlink_to(found)
    return str(folder)


# ---- The whole way, over a real environment and a real pip -------------------------------------------------------


@pytest.fixture(scope="module")
def first_call(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A clone with what `python -m venv` leaves where ensurepip is missing, a Python and no pip; and its first call."""
    top = make_clone(tmp_path_factory.mktemp("whole") / "a clone")
    (top / ".venv/bin").mkdir(parents=True)
    (top / ".venv/bin/python").symlink_to(sys.executable)
    (top / ".venv/half-a-package").touch()
    return top, call(top, "match", "-s", "NO2 > 40")


@pytest.fixture
def working(first_call: tuple[Path, subprocess.CompletedProcess[str]]) -> Iterator[Path]:
    """That clone, in which nothing is due; what a test changes in it is put back."""
    top, _ = first_call
    kept = {file: file.read_bytes() for file in (top / "pyproject.toml", top / "backend.py", top / "native/src/one.c")}
    call(top, "match")
    yield top
    for file, content in kept.items():
        file.write_bytes(content)


def said(done: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines of progress, without their times."""
    return [line.split(" ...")[0] for line in done.stderr.splitlines()]


def test_a_half_made_environment_is_made_again(first_call: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    making = f"spinney: making .venv with Python {sys.version.split()[0]}"
    assert said(first_call[1]) == [making, "spinney: installing spinney", COMPILING]
    assert not (first_call[0] / ".venv/half-a-package").exists()


def test_the_launcher_becomes_the_command(first_call: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    assert first_call[1].stdout == "called with ['match', '-s', 'NO2 > 40']\n"
    assert first_call[1].returncode == 7


def test_a_second_call_has_nothing_to_say(working: Path) -> None:
    done = call(working, "match")
    assert (done.returncode, done.stderr) == (7, "")


def test_changed_c_is_compiled_and_nothing_else_done(working: Path) -> None:
    (working / "native/src/one.c").write_text('#include "spinney.h"\nint spinney_one(void) { return 2 - 1; }\n')
    assert said(call(working, "match")) == [COMPILING]


def test_broken_c_is_shown_and_leaves_no_old_core(working: Path) -> None:
    (working / "native/src/one.c").write_text("this is not C\n")
    done = call(working, "match")
    assert done.returncode == 7, "pure Python goes on"
    assert "this is not C" in done.stderr
    assert not (working / "native/python/spinney/_core.abi3.so").exists()


def test_broken_c_fails_where_the_core_is_required(working: Path) -> None:
    (working / "native/src/one.c").write_text("this is not C\n")
    done = call(working, "match", SPINNEY_REQUIRE_NATIVE="1")
    assert done.returncode == 1
    assert "this is not C" in done.stderr


def test_without_a_compiler_one_line_names_the_package_and_pure_python_goes_on(working: Path, tmp_path: Path) -> None:
    bare = path_without_compiler(tmp_path / "bin")
    done = call(working, "match", PATH=bare)
    assert done.returncode == 7, done.stderr
    assert done.stderr.splitlines()[1:] == [
        "spinney: no C compiler found; install one for the fast core: sudo apt install build-essential "
        "(until then: pure Python, which is slower)"
    ]
    assert call(working, "match", PATH=bare).stderr == "", "said once, not at every call"
    assert said(call(working, "match")) == [COMPILING], "a compiler that came meanwhile is used"


def test_a_second_launcher_waits_for_the_first(working: Path) -> None:
    (working / "pyproject.toml").write_text(f"{PYPROJECT}# changed\n")
    with (working / "spinney").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = [sys.executable, working / "spinney", "match"]
        second = subprocess.Popen(command, env=ENVIRONMENT, stdout=PIPE, stderr=PIPE, text=True)
        assert second.stderr is not None
        assert second.stderr.readline() == "spinney: waiting for another ./spinney that is setting up .venv\n"
        fcntl.flock(lock, fcntl.LOCK_UN)
        _, rest = second.communicate()
    assert (second.returncode, rest.split(" ...")[0]) == (7, "spinney: installing spinney")


def test_a_failing_pip_speaks_for_itself_and_what_was_installed_stays(working: Path) -> None:
    (working / "backend.py").write_text("raise ImportError('a broken backend')\n")
    (working / "pyproject.toml").write_text(f"{PYPROJECT}# changed\n")
    done = call(working, "match")
    assert done.returncode == 1
    assert "a broken backend" in done.stderr
    assert json.loads((working / ".venv/spinney-stamp.json").read_text())["extras"] == []


def test_a_pip_without_a_network_is_said_in_one_line(working: Path) -> None:
    backend = (working / "backend.py").read_text()
    (working / "backend.py").write_text(
        backend.replace("Provides-Extra", "Requires-Dist: spinney-wants\\nProvides-Extra")
    )
    (working / "pyproject.toml").write_text(f"{PYPROJECT}# changed\n")
    done = call(
        working, "match", PIP_NO_INDEX="0", PIP_RETRIES="0", PIP_INDEX_URL="http://127.0.0.1:1/", PIP_EXTRA_INDEX_URL=""
    )
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith("spinney: No matching distribution found for spinney-wants; is there a network?"), (
        done.stderr
    )


# ---- What is due -------------------------------------------------------------------------------------------------


@pytest.fixture
def ready(clone: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, dict[str, Any]]:
    """A launcher, and the stamp of an environment in which nothing is due for a base command."""
    monkeypatch.delenv("SPINNEY_REQUIRE_NATIVE", raising=False)
    launcher = launcher_of(clone)
    (clone / ".venv/bin").mkdir(parents=True)
    for name in ("python", "spinney"):
        (clone / ".venv/bin" / name).touch()
    stamp = {
        "format": launcher.STAMP_FORMAT,
        "root": str(clone),
        "python": list(INTERPRETER),
        "extras": ["test"],
        "packages": launcher.packages_key(),
    }
    launcher.write_whole(launcher.CORE_STAMP, {"core": launcher.core_key(), "compiled": False})
    return launcher, stamp


def due(launcher: ModuleType, stamp: dict[str, Any], *extras: str, python: tuple[str, str] = INTERPRETER) -> list[str]:
    steps: list[str] = launcher.steps(stamp, launcher.Wanted(python, frozenset(extras)))
    return steps


EVERYTHING = ["environment", "packages"]
"""But the core: it is one for all environments."""


def test_nothing_is_due_for_what_is_installed(ready: tuple[ModuleType, dict[str, Any]]) -> None:
    assert due(*ready) == []
    assert due(*ready, "test") == []


def test_another_extra_is_installed_and_the_core_left_alone(ready: tuple[ModuleType, dict[str, Any]]) -> None:
    assert due(*ready, "test", "cloud") == ["packages"]


def test_another_interpreter_makes_everything_again(ready: tuple[ModuleType, dict[str, Any]]) -> None:
    assert due(*ready, python=("/usr/bin/python3.11", "3.11.3")) == EVERYTHING
    assert due(*ready, python=("/opt/python3.11", "3.11.2")) == EVERYTHING


@pytest.mark.parametrize("change", [{"format": 0}, {"root": "/elsewhere"}, {"python": None}])
def test_a_stamp_of_something_else_makes_everything_again(
    ready: tuple[ModuleType, dict[str, Any]], change: dict[str, Any]
) -> None:
    launcher, stamp = ready
    assert due(launcher, {**stamp, **change}) == EVERYTHING


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}'])
def test_a_torn_stamp_makes_everything_again(ready: tuple[ModuleType, dict[str, Any]], text: str) -> None:
    launcher, _ = ready
    (launcher.VENV / launcher.STAMP).write_text(text)
    assert due(launcher, launcher.read_stamp()) == EVERYTHING


def test_a_python_that_went_away_makes_everything_again(ready: tuple[ModuleType, dict[str, Any]]) -> None:
    launcher, stamp = ready
    (launcher.VENV / "bin/python").unlink()
    (launcher.VENV / "bin/python").symlink_to("/nowhere/python3")
    assert due(launcher, stamp) == EVERYTHING


@pytest.mark.parametrize("file", ["pyproject.toml", "native/hatch_build.py"])
def test_changed_packaging_is_installed_again(ready: tuple[ModuleType, dict[str, Any]], file: str) -> None:
    launcher, stamp = ready
    (launcher.ROOT / file).write_text("# changed\n")
    assert due(launcher, stamp) == ["packages"]


@pytest.mark.parametrize("file", ["src/new.c", "src/new.h", "include/spinney.h", "build_core.py"])
def test_changed_c_is_compiled_again(ready: tuple[ModuleType, dict[str, Any]], file: str) -> None:
    launcher, stamp = ready
    (launcher.ROOT / "native" / file).write_text("// changed\n")
    assert due(launcher, stamp) == ["core"]


def test_a_compiler_that_is_not_used_makes_no_difference(
    ready: tuple[ModuleType, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, stamp = ready
    there = {"cc": "/usr/bin/cc"}
    monkeypatch.setattr(launcher.shutil, "which", there.get)
    launcher.write_whole(launcher.CORE_STAMP, {"core": launcher.core_key(), "compiled": False})
    there["clang"] = "/usr/bin/clang"
    assert due(launcher, stamp) == []
    there["cc"] = "/opt/cc"
    assert due(launcher, stamp) == ["core"]


def test_the_core_is_compiled_once_whatever_is_installed_and_made_anew(
    ready: tuple[ModuleType, dict[str, Any]],
) -> None:
    launcher, stamp = ready
    assert due(launcher, stamp, "cloud") == ["packages"]
    assert due(launcher, {}, "cloud") == EVERYTHING, "as after a setup that was interrupted"
    wanted = launcher.Wanted(INTERPRETER, frozenset(["pipeline"]), launcher.PIPELINE_VENV)
    assert launcher.steps({}, wanted) == ["environment", "wheels", "packages"]


def test_a_core_that_went_away_is_compiled_again(ready: tuple[ModuleType, dict[str, Any]]) -> None:
    launcher, stamp = ready
    launcher.write_whole(launcher.CORE_STAMP, {"core": launcher.core_key(), "compiled": True})
    assert due(launcher, stamp) == ["core"]


def test_headers_that_came_meanwhile_are_used(
    ready: tuple[ModuleType, dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launcher, stamp = ready
    monkeypatch.setattr(launcher.sysconfig, "get_path", lambda _name: str(tmp_path))
    launcher.write_whole(launcher.CORE_STAMP, {"core": launcher.core_key(), "compiled": False})
    assert due(launcher, stamp) == []
    (tmp_path / "Python.h").touch()
    assert due(launcher, stamp) == ["core"]


def test_a_required_core_is_tried_again_each_time(
    ready: tuple[ModuleType, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPINNEY_REQUIRE_NATIVE", "1")
    assert due(*ready) == ["core"]


@pytest.mark.parametrize(
    ("line", "extras"),
    [
        ("match -s x readings.jsonl", set()),
        ("up --no-pipeline", {"cloud", "mobile", "sim"}),
        ("up --source ble --pipeline", {"cloud", "mobile"}),
        ("up --source=ble --no-pipeline --open", {"cloud", "mobile"}),
        ("doctor", set()),
        ("completion bash", set()),
        ("test core", {"test"}),
        ("test mobile -k outbox", {"test", "test-mobile", "test-mote", "test-cloud"}),
        ("test tests/cloud/test_gateway.py", {"test", "cloud", "test-cloud"}),
        ("test", {"test"}),
        ("test -k pipeline", {"test"}),
        ("soak", {"test"}),
        ("bench", {"test"}),
        ("bench matching", {"test"}),
        ("bench cloud", {"test", "cloud"}),
        ("bench mote --seed 2", {"test"}),
        ("bench all --strict", {"test", "mobile", "sim", "cloud", "pipeline", "test-mobile", "formats"}),
        ("mobile run --send all", {"mobile"}),
        ("mote ls", {"flash"}),
        ("cloud --check", {"cloud"}),
        ("cloud --with-pipeline", {"pipeline"}),
        ("pipeline --once", {"pipeline"}),
        ("lake stats", {"pipeline"}),
        ("dist", {"dist", "cloud", "mobile", "flash", "pipeline"}),
        ("sim city --motes 20", {"sim"}),
        ("check", {"dev", "test"}),
    ],
)
def test_a_command_installs_what_it_needs_and_no_more(clone: Path, line: str, extras: set[str]) -> None:
    assert launcher_of(clone).extras_for(line.split()) == extras


def test_all_tests_need_what_the_parts_that_have_tests_need(clone: Path) -> None:
    (clone / "tests/pipeline/deep").mkdir(parents=True)
    (clone / "tests/pipeline/deep/test_lake.py").touch()
    assert launcher_of(clone).extras_for(["test"]) == {"test", "test-cloud", "test-pipeline"}


@pytest.mark.parametrize("line", ["test", "test mote", "test tests/mote/test_firmware_types.py", "soak"])
def test_what_checks_the_firmwares_types_comes_with_the_tests(line: str) -> None:
    extras = launcher_of(TOP).extras_for(line.split())
    needs = [need for extra in extras for group in groups(TOP / "pyproject.toml", extra) for need in group]
    assert any(need.startswith("pyright") for need in needs)
    assert not any(need.startswith(("mypy", "ruff")) for need in needs), "as ./spinney check alone does"


def test_the_launcher_and_the_command_know_the_same_parts() -> None:
    assert tuple(launcher_of(TOP).PARTS) == test_command.PARTS


def test_a_raspberry_pi_never_pulls_spark() -> None:
    launcher = launcher_of(TOP)
    assert "pipeline" not in launcher.PARTS["mobile"]
    project = tomllib.loads((TOP / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert not any("pyspark" in need for need in [*project["dependencies"], *extras["mobile"], *extras["test"]])


# ---- What it says ------------------------------------------------------------------------------------------------


def test_an_old_python_is_told_so(clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launcher = launcher_of(clone)
    monkeypatch.setattr(launcher, "OLDEST", (4, 11))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launcher.SetupError, match=r"needs Python >= 3\.11; this is 3\.\d+\.\d+"):
        launcher.use_recent_python([])


def test_an_old_python_gives_way_to_a_newer_one_that_starts(
    clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    launcher = launcher_of(clone)
    for name, status in (("python3.11", 127), ("python3.12", 0)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n")
        (tmp_path / name).chmod(0o755)
    become: list[list[str]] = []
    monkeypatch.setattr(launcher, "OLDEST", (4, 11))
    monkeypatch.setattr(launcher, "become", become.append)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launcher.SetupError):  # only because become() comes back here
        launcher.use_recent_python(["test"])
    assert become == [[str(tmp_path / "python3.12"), str(clone / "spinney"), "test"]]


def test_a_python_without_venv_names_the_package(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = launcher_of(clone)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    with pytest.raises(launcher.SetupError, match=r"sudo apt install python3\.11-venv$"):
        launcher.make_environment({}, launcher.Wanted(INTERPRETER, frozenset()))


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "WARNING: Retrying\nERROR: No matching distribution found for cffi",
            "No matching distribution found for cffi; is there a network? It is needed once, to install what "
            "pyproject.toml names",
        ),
        (
            "Collecting x\nERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "Could not install packages due to an OSError: [Errno 28] No space left on device; "
            "make room on that disk, and start again",
        ),
        (
            "Error: [Errno 13] Permission denied: '/clone/.venv'",
            "Error: [Errno 13] Permission denied: '/clone/.venv'; "
            "this clone and what is in it must be yours to write: clone it to a folder of yours",
        ),
        ("ERROR: a compiler said no\nin two lines", "ERROR: a compiler said no\nin two lines"),
    ],
)
def test_a_known_cause_is_one_line_with_the_fix(clone: Path, output: str, line: str) -> None:
    assert launcher_of(clone).with_hint(output) == line


def test_a_clone_that_cannot_be_written_is_said_in_one_line(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = launcher_of(clone)

    def refuses(_wanted: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "/clone/.venv")

    monkeypatch.setattr(launcher, "set_up", refuses)
    assert launcher.prepare(launcher.wanted_for(["match"])) == 1
    said = capsys.readouterr().err
    assert said.startswith("spinney: /clone/.venv: Permission denied; this clone")
    assert said.count("\n") == 1


def test_at_a_terminal_seconds_go_by_on_one_line_and_then_stand_there(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    say, ticked = running.say, clone / "ticked"

    def say_and_mark(text: str, *, again: bool = False) -> None:
        say(text, again=again)
        if again:
            ticked.touch()

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(running, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(running, "say", say_and_mark)
    work = "import os, sys\nwhile not os.path.exists(sys.argv[1]): os.sched_yield()"
    running.run("doing it", [sys.executable, "-c", work, str(ticked)])
    first, *ticks, last, end = re.split(r"\r\x1b\[K|\n", capsys.readouterr().err)
    assert first == "spinney: doing it ..."
    assert ticks
    assert all(re.fullmatch(r"spinney: doing it \.\.\. \d+ s", tick) for tick in ticks)
    assert re.fullmatch(r"spinney: doing it \.\.\. \d+\.\d s ", last)
    assert end == ""


def test_what_is_said_of_the_pipeline_is_remembered(clone: Path) -> None:
    launcher = launcher_of(clone)
    assert launcher.answered(["up", "--open"]) == ["up", "--open"]
    assert not launcher.ANSWER.exists()
    assert launcher.answered(["up", "--no-pipeline"]) == ["up", "--no-pipeline"]
    assert launcher.answered(["up"]) == ["up", "--no-pipeline"]
    assert launcher.answered(["up", "--pipeline"]) == ["up", "--pipeline"]
    assert launcher.answered(["up"]) == ["up", "--pipeline"]
    assert launcher.answered(["match"]) == ["match"]


def test_an_interrupt_says_that_the_next_call_goes_on(
    clone: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launcher = launcher_of(clone)

    def interrupted(_wanted: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "set_up", interrupted)
    assert launcher.prepare(launcher.wanted_for(["match"])) == 130
    assert "the next ./spinney takes it up again" in capsys.readouterr().err


def test_what_is_cut_short_leaves_no_stamp(
    ready: tuple[ModuleType, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher, stamp = ready
    launcher.write_stamp(stamp)

    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        launcher.set_up(launcher.Wanted(INTERPRETER, frozenset(["cloud"])))
    assert launcher.read_stamp() == {}
