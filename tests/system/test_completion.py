"""`spinney completion` in real shells, and the help of every command that there is."""

from __future__ import annotations

import contextlib
import io
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spinney_tools import cli, completion
from spinney_tools.command_tree import tree

PATHS = [path for path, _ in tree().walk()]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("completion") / "spinney.bash"
    command = [sys.executable, "-m", "spinney_tools", "completion", "bash"]
    file.write_text(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return file


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    lines = f'source "$1"; shift; COMP_WORDS=(spinney "$@"); COMP_CWORD=$#; {completed_by(script)}; '
    lines += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-c", lines, "bash", script, *words], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def completed_by(script: Path) -> str:
    """The function that bash has been told to call for `spinney`."""
    lines = f"source '{script}'; complete -p spinney"
    said = subprocess.run(["bash", "--norc", "-c", lines], capture_output=True, text=True, check=True).stdout.split()
    return said[said.index("-F") + 1]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["u"], ["up"]),
        (["mobile", "inst"], ["install-service"]),
        (["cloud", "user", "pas"], ["passwd"]),
        (["up", "--so"], ["--source"]),
        (["up", "--source", ""], ["city", "ble"]),
        (["up", "--motes", "5", "--fr"], ["--fresh"]),
        (["mote", "flash", "--board", "esp32c"], ["esp32c3"]),
        (["completion", "f"], ["fish"]),
        (["ls", "s"], ["subscriptions", "sources"]),
        (["match", "readings"], []),
    ],
)
def test_bash_offers_what_may_come(script: Path, words: list[str], offered: list[str]) -> None:
    assert completed(script, *words) == offered


def test_bash_offers_every_command(script: Path) -> None:
    assert set(completed(script, "")) >= cli.COMMANDS.keys()


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_their_script(shell: str) -> None:
    program = shutil.which(shell)
    text = completion.SHELLS[shell](tree())
    for name in cli.COMMANDS:
        assert f"/{name}" in text
    if program is None:
        pytest.skip(f"{shell} is not here: only its words were looked at")
    done = subprocess.run([program, "-n"], input=text, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("path", PATHS, ids=[" ".join(path) or "spinney" for path in PATHS])
def test_every_help_says_what_it_is_with_examples_and_exit_codes(path: tuple[str, ...]) -> None:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        try:
            code = cli.main([*path, "--help"])
        except SystemExit as ended:
            code = int(ended.code or 0)
    assert code == 0
    text = said.getvalue()
    assert text.startswith("usage: spinney")
    assert "example" in text
    assert "exit code" in text


def test_the_version_names_the_commit() -> None:
    done = subprocess.run([sys.executable, "-m", "spinney_tools", "-V"], capture_output=True, text=True, check=True)
    top = Path(__file__).parents[2]
    if not (top / ".git").exists() or shutil.which("git") is None:
        pytest.skip("no repository here")
    commit = subprocess.run(["git", "-C", top, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True)
    assert done.stdout.startswith(f"spinney 0.1.0 (commit {commit.stdout.strip()}")
