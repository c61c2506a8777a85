"""The `spinney` command, and its subcommands test, check and soak."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spinney_tools import cli, clone
from spinney_tools import test as test_command
from spinney_tools.check import coverage, report, step
from spinney_tools.check.step import Place, Step, StepFailed, StepSkipped

TOP = Path(__file__).parents[2]
# What only tests, extras or other tiers need: a help text, and a command on base, load none of it.
HEAVY = {"pyarrow", "numpy", "pyspark", "hypothesis", "pytest", "paho", "bleak", "nats"}


def python(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


# ---- spinney -----------------------------------------------------------------------------------------------------


def imported_by(*arguments: str) -> set[str]:
    """The top-level modules outside the standard library that a command line imports."""
    script = (
        "import sys; before = set(sys.modules)\n"
        "from spinney_tools.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "print('imported', *names)"
    )
    done = python("-c", script, *arguments)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split()[1:])


def test_help_imports_nothing_but_the_command_itself() -> None:
    assert imported_by("--help") == {"spinney_tools"}


@pytest.mark.parametrize("command", ["up", "match", "test", "check", "soak"])
def test_a_command_on_base_imports_nothing_heavy(command: str) -> None:
    assert not imported_by(command, "--help") & HEAVY


def test_every_command_has_its_module_and_a_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    for name, summary in cli.COMMANDS.items():
        assert importlib.util.find_spec(f"spinney_tools.{name}")
        assert summary in shown


def test_a_misspelt_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["chekc"]) == 2
    assert capsys.readouterr().err == "spinney: no command 'chekc', perhaps 'check'; see spinney --help\n"


def test_an_interrupted_command_exits_as_a_shell_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(test_command, "main", interrupted)
    assert cli.main(["test"]) == 130


def test_a_reader_that_is_gone_is_no_trouble() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "spinney_tools", "--help"]
    done = subprocess.run(command, env=environment, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


def test_python_m_is_the_command() -> None:
    done = python("-m", "spinney_tools", "--help")
    assert done.stdout.startswith("usage: spinney COMMAND")


def test_a_command_of_the_clone_says_so_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(clone, "__file__", str(tmp_path / "a/b/clone.py"))
    for command in ("test", "check", "soak"):
        with pytest.raises(SystemExit, match="2"):
            cli.main([command])
        assert "in a clone of the repository" in capsys.readouterr().err


# ---- spinney test ------------------------------------------------------------------------------------------------


@pytest.fixture
def small_clone(tmp_path: Path) -> Path:
    """A clone with two parts that have tests, over the real conftest and settings."""
    for part in ("core", "cloud", "mote"):
        (tmp_path / "tests" / part).mkdir(parents=True)
    for file in ("tests/conftest.py", "pyproject.toml"):
        shutil.copy(TOP / file, tmp_path / file)
    (tmp_path / "tests/core/test_one.py").write_text("def test_one():\n    assert True\n")
    (tmp_path / "tests/cloud/test_two.py").write_text(
        "import pytest\n"
        "@pytest.mark.needs('no-such-program')\n"
        "def test_two():\n    assert True\n"
        "@pytest.mark.soak\n"
        "def test_long():\n    assert True\n"
    )
    return tmp_path


def run_tests(top: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    script = "import sys; from pathlib import Path; from spinney_tools.test import run_pytest, targets\n"
    script += "sys.exit(run_pytest(Path(sys.argv[1]), [*targets(Path(sys.argv[1]), sys.argv[2:]), '-rs', '-n0']))"
    return python("-c", script, top, *arguments, **{"CI": "", **environment})


def test_the_closing_line_is_pytests_own_under_a_table_of_parts(small_clone: Path) -> None:
    done = run_tests(small_clone)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    assert "1 passed, 1 skipped, 1 deselected in" in lines[-1]
    table = dict(line.split(maxsplit=1) for line in lines if line.startswith(test_command.PARTS))
    assert list(table) == list(test_command.PARTS)
    assert table["core"].startswith("1 tests")
    assert table["mote"] == "no tests yet"
    assert "needs no-such-program: sudo apt install no-such-program" in done.stdout


def test_a_missing_program_fails_in_ci(small_clone: Path) -> None:
    done = run_tests(small_clone, "cloud", CI="true")
    assert done.returncode == 1
    assert "needs no-such-program" in done.stdout


def test_the_seed_of_property_tests_is_printed(small_clone: Path) -> None:
    assert "hypothesis seed: " in run_tests(small_clone, "core").stdout


def test_a_test_that_hangs_fails_with_its_stack_and_the_others_go_on(small_clone: Path) -> None:
    hangs = "import threading\ndef test_hangs():\n    threading.Event().wait()\ndef test_after():\n    assert True\n"
    (small_clone / "tests/core/test_one.py").write_text(hangs)
    settings = small_clone / "pyproject.toml"
    settings.write_text(settings.read_text().replace("timeout = 600", "timeout = 1"))
    done = run_tests(small_clone, "core")
    assert "1 failed, 1 passed" in done.stdout.splitlines()[-1]
    assert "threading.Event().wait()" in done.stdout
    assert "Timeout" in done.stdout


def test_a_soak_test_has_no_limit(small_clone: Path) -> None:
    slow = "import pytest, select\n@pytest.mark.soak\ndef test_long():\n    select.select([], [], [], 1.5)\n"
    (small_clone / "tests/core/test_one.py").write_text(slow)
    settings = small_clone / "pyproject.toml"
    settings.write_text(settings.read_text().replace("timeout = 600", "timeout = 1"))
    done = run_tests(small_clone, "core", "-m", "soak")
    assert "1 passed" in done.stdout.splitlines()[-1], done.stdout


def ci(top: Path, **environment: str) -> list[str]:
    """What .ci/run says in a clone whose launcher is the file `spinney` there; programs are taken as they are."""
    (top / ".ci").mkdir()
    text = (TOP / ".ci/run").read_text()
    assert "\ninstall_missing\nstatus=0" in text
    (top / ".ci/run").write_text(text.replace("\ninstall_missing\nstatus=0", "\nstatus=0"))
    (top / "spinney").chmod(0o755)
    done = subprocess.run(
        ["bash", top / ".ci/run"], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return [*done.stdout.splitlines(), f"exit code {done.returncode}"]


def test_ci_runs_the_tests_first_and_then_the_checks(tmp_path: Path) -> None:
    (tmp_path / "spinney").write_text('#!/bin/sh\necho "$@"; [ "$1" = check ]\n')
    assert ci(tmp_path) == ["test", "ci: ./spinney test failed with exit code 1", "check", "exit code 1"]


def test_ci_ends_what_hangs_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "spinney").write_text('#!/bin/sh\n[ "$1" = check ] || exec sleep 600\n')
    said = ci(tmp_path, CI_TEST_MINUTES="0.005")
    assert said == ["ci: ./spinney test was stopped after 0.005 minutes", "exit code 124"]


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ([], ["tests/core", "tests/cloud"]),
        (["all"], ["tests/core", "tests/cloud"]),
        (["cloud"], ["tests/cloud"]),
        (["mote"], []),
        (["tests/core/test_one.py"], ["tests/core/test_one.py"]),
    ],
)
def test_parts_and_files_are_chosen_by_name(small_clone: Path, words: list[str], chosen: list[str]) -> None:
    assert test_command.targets(small_clone, words) == chosen


def test_a_debugger_gets_one_process() -> None:
    assert test_command.spread(["--pdb"]) == []
    assert test_command.spread(["-k", "x"])[0] == "-n"


# ---- spinney check -----------------------------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / "scratch")


def fails(_place: Place) -> str:
    raise StepFailed("what the tool said")


def is_skipped(_place: Place) -> str:
    raise StepSkipped("clang is not installed")


def passes(_place: Place) -> str:
    return "3 files"


def test_all_steps_run_and_one_failure_fails_the_check(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert report([Step("bad", fails), Step("good", passes), Step("absent", is_skipped)], place) == 1
    shown = capsys.readouterr()
    assert "ok      good" in shown.out
    assert "3 files" in shown.out
    assert "clang is not installed" in shown.out
    assert "==== bad\nwhat the tool said" in shown.out
    assert "check: 1 ok, 1 skipped, 1 failed" in shown.err


def test_a_check_without_failure_passes(place: Place) -> None:
    assert report([Step("good", passes), Step("absent", is_skipped)], place) == 0


def test_a_failing_tool_shows_its_command_and_output(place: Place) -> None:
    with pytest.raises(StepFailed, match=r"(?s)exit code 3.*said before"):
        step.command([sys.executable, "-c", "print('said before'); raise SystemExit(3)"], place)


def test_lines_of_c_count_as_run_if_any_program_ran_them(place: Place) -> None:
    source = place.top / "native/src/a.c"
    lines: coverage.Lines = {}
    for counts in ({1: 0, 2: 5, 3: 0}, {1: 0, 2: 0, 3: 1}):
        entries = ", ".join(f'{{"line_number": {line}, "count": {count}}}' for line, count in counts.items())
        elsewhere = '{"file": "/usr/include/x.h", "lines": [{"line_number": 1, "count": 0}]}'
        files = f'[{{"file": "{source}", "lines": [{entries}]}}, {elsewhere}]'
        coverage.merge_gcov(f'{{"current_working_directory": "/", "files": {files}}}\n', place, lines)
    assert lines == {"a.c": {1: 0, 2: 5, 3: 1}}
    assert coverage.missed_lines(lines["a.c"]) == [1]


def test_missed_lines_are_shown_as_spans() -> None:
    assert coverage.spans([1, 2, 3, 7, 9, 10]) == "1-3, 7, 9-10"
