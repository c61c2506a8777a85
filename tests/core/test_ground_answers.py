"""./spinney answers questions in a fresh clone at once: nothing is installed, nothing compiled, nothing left behind."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launchers import TOP, launcher_of

from spinney_tools import cli, version
from spinney_tools.launcher.answers import answer

SECONDS = 0.5
"""Of processor time, at most; a fifth of that is usual."""
GIT = ["git", "-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a clone has of the launcher and of the tools, as git leaves it."""
    top = tmp_path_factory.mktemp("fresh") / "a clone"
    shutil.copytree(TOP / "tools", top / "tools", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "native/include").mkdir(parents=True)
    (top / "native/python/spinney").mkdir(parents=True)
    for name in ("spinney", "pyproject.toml", "native/include/spinney.h", "native/build_core.py"):
        shutil.copy(TOP / name, top / name)
    (top / "native/hatch_build.py").touch()
    subprocess.run([*GIT, "init", "--quiet"], cwd=top, check=True)
    subprocess.run([*GIT, "commit", "--quiet", "--allow-empty", "-m", "one"], cwd=top, check=True)
    return top


def everything(top: Path) -> dict[str, tuple[int, int]]:
    """All files and folders, with size and time of change; reading leaves both as they are."""
    return {str(each): (each.lstat().st_size, each.lstat().st_mtime_ns) for each in top.rglob("*")}


def ask(top: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    command = [sys.executable, top / "spinney", *words]
    return subprocess.run(
        command, cwd=top, env={**kept, "COLUMNS": "120", **environment}, capture_output=True, text=True, check=False
    )


def processor_seconds() -> float:
    """That all processes have used which were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("", 0, "usage: spinney COMMAND"),
        ("--help", 0, "usage: spinney COMMAND"),
        ("help", 0, "usage: spinney COMMAND"),
        ("-h", 0, "usage: spinney COMMAND"),
        ("--version", 0, "spinney 0.1.0 (commit "),
        ("tset", 2, "spinney: no command 'tset', perhaps 'test'; see spinney --help"),
        ("--hlep", 2, "spinney: no command '--hlep'"),
        ("up --help", 0, "usage: spinney up [-h]"),
        ("up --nonsense", 2, "there is no option --nonsense"),
        ("up --motse 5", 2, "there is no option --motse, perhaps '--motes'"),
        ("up --source radio", 2, "invalid choice: 'radio'"),
        ("up --motes x", 2, "argument --motes: invalid _count value: 'x'"),
        ("up --motes 0", 2, "argument --motes: from 1 to 1000"),
        ("up --place here", 2, "argument --place: invalid"),
        ("sub --count many x", 2, "argument --count: invalid int value: 'many'"),
        ("test --help", 0, "usage: spinney test"),
        ("cloud --help", 0, "--http-port"),
        ("cloud --nats-pasword hunter2", 2, "there is no option --nats-pasword, perhaps '--nats-password"),
        ("cloud usr", 2, "spinney cloud: no command 'usr', perhaps 'user'; see spinney cloud --help"),
        ("cloud user add --help", 0, "--role"),
        ("mote", 0, "usage: spinney mote COMMAND"),
        ("mote flsh", 2, "perhaps 'flash'"),
        ("mobile run --help", 0, "[cloud]"),
        ("lake stats --json --nonsense", 2, "there is no option --nonsense"),
        ("sub", 2, "the following arguments are required: subscription"),
    ],
)
def test_a_question_is_answered_at_once_and_leaves_nothing_behind(
    fresh: Path, line: str, status: int, said: str
) -> None:
    before = everything(fresh)
    began = processor_seconds()
    done = ask(fresh, *line.split())
    assert processor_seconds() - began < SECONDS
    assert done.returncode == status, done.stderr
    assert said in (done.stderr if status else done.stdout)
    assert "hunter2" not in done.stderr, "what follows an option that there is not may be a secret"
    assert everything(fresh) == before


def test_nothing_but_git_is_started(fresh: Path, tmp_path: Path) -> None:
    for line in (["--help"], ["up", "--nonsense"], ["cloud", "user", "add", "--help"], ["--version"]):
        assert "Traceback" not in ask(fresh, *line, PATH=str(tmp_path)).stderr
    assert ask(fresh, "--version", PATH=str(tmp_path)).stdout.startswith("spinney 0.1.0 (commit ")


def test_an_option_for_pytest_is_none_of_the_launchers(fresh: Path) -> None:
    assert launcher_of(fresh).answer(["test", "--no-such-option"], launcher_of(fresh).wanted_for(["test"])) is None


def test_what_has_to_be_run_is_not_answered() -> None:
    for line in ("match -s x readings.jsonl", "up --motes 5", "cloud --http-port 0", "cloud user ls", "test -k x"):
        assert answer(line.split()) is None


def test_every_command_is_written_down() -> None:
    for name in cli.COMMANDS:
        assert answer([name, "--help"]) == 0


@pytest.mark.parametrize("packed", [False, True])
def test_the_commit_is_read_where_git_takes_too_long(tmp_path: Path, packed: bool) -> None:
    subprocess.run([*GIT, "init", "--quiet"], cwd=tmp_path, check=True)
    subprocess.run([*GIT, "commit", "--quiet", "--allow-empty", "-m", "one"], cwd=tmp_path, check=True)
    if packed:
        subprocess.run([*GIT, "pack-refs", "--all"], cwd=tmp_path, check=True)
    words = [*GIT, "rev-parse", "HEAD"]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert version.read_commit(tmp_path) == found[: version.SHOWN_DIGITS]
    subprocess.run([*GIT, "checkout", "--quiet", "--detach"], cwd=tmp_path, check=True)
    assert version.read_commit(tmp_path) == found[: version.SHOWN_DIGITS]
    assert version.read_commit(tmp_path / "nothing here") is None
