"""`spinney completion` in real shells, and the help of every command that there is."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from clouds import wait_until
from terminals import Terminal

from spinney_tools import cli
from spinney_tools.command_tree import tree

PATHS = [path for path, _ in tree().walk()]


CASES = [
    ("u", ["up"]),
    ("mobile inst", ["install-service"]),
    ("cloud user pas", ["passwd"]),
    ("up --so", ["--source"]),
    ("up --source ", ["ble", "city"]),
    ("up --motes 5 --fr", ["--fresh"]),
    ("mote flash --board esp32c", ["esp32c3"]),
    ("completion f", ["fish"]),
    ("ls s", ["sessions", "sources", "subscriptions"]),
    ("match readings", []),
]
# It is told of all that zsh would offer, as a person is of one: in the line. There are no files to offer instead.
ZSH = """
fpath=({folder} $fpath); autoload -U compinit; compinit -u -d {folder}/dump
all() {{ _main_complete; compstate[insert]=all; compstate[list]= }}
zle -C all complete-word all; bindkey '^T' all
tell() {{ print -r -- "$BUFFER" > {folder}/part; mv {folder}/part {folder}/told; zle kill-buffer }}
zle -N tell; bindkey '^X' tell
print re""ady
"""
ALL_INTO_THE_LINE, TELL_THE_LINE = "\x14", "\x18"
Offers = Callable[[str], list[str]]
"""What a shell offers for the last word of a line, in order."""


def script(shell: str) -> str:
    command = [sys.executable, "-m", "spinney_tools", "completion", shell]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Offers:
    """It is asked through the function that it has been told to call."""
    file = tmp_path_factory.mktemp("bash") / "spinney.bash"
    file.write_text(script("bash"))
    lines = f"source '{file}'; complete -p spinney"
    said = subprocess.run(["bash", "--norc", "-c", lines], capture_output=True, text=True, check=True).stdout.split()
    function = said[said.index("-F") + 1]

    def offers(line: str) -> list[str]:
        ask = f'source "{file}"; COMP_WORDS=(spinney "$@"); COMP_CWORD=$#; {function}; '
        ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
        command = ["bash", "--norc", "-c", ask, "bash", *line.split(" ")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return sorted(done.stdout.split())

    return offers


@pytest.fixture(scope="module")
def fish(tmp_path_factory: pytest.TempPathFactory) -> Offers:
    """Its script where fish looks for it; fish does so for programs on PATH."""
    home = tmp_path_factory.mktemp("fish")
    (home / "fish/completions").mkdir(parents=True)
    (home / "fish/completions/spinney.fish").write_text(script("fish"))
    (home / "bin").mkdir()
    (home / "empty").mkdir()
    (home / "bin/spinney").symlink_to("/bin/true")
    homes = {"HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    environment = {**os.environ, **homes, "PATH": f"{home / 'bin'}:{os.environ['PATH']}"}

    def offers(line: str) -> list[str]:
        command = ["fish", "-c", f"complete -C './spinney {line}'"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=home / "empty", env=environment)
        assert done.stderr == ""
        return sorted(done.stdout.split())

    return offers


@pytest.fixture(scope="module")
def zsh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Offers]:
    """One at a terminal, its script where zsh looks for it."""
    folder = tmp_path_factory.mktemp("zsh")
    (folder / "_spinney").write_text(script("zsh"))
    (folder / "rc").write_text(ZSH.format(folder=folder))
    (folder / "empty").mkdir()
    told = folder / "told"
    with Terminal(["zsh", "-f", "-i"], folder / "empty", {**os.environ, "TERM": "dumb"}) as terminal:
        terminal.type("source ../rc\n")
        terminal.wait_for("ready")

        def offers(line: str) -> list[str]:
            told.unlink(missing_ok=True)
            terminal.type(f"spinney {line}{ALL_INTO_THE_LINE}{TELL_THE_LINE}")
            wait_until(told.exists, f"what zsh offers for {line!r}")
            begun, word = f"spinney {line}".rsplit(" ", 1)
            offered = told.read_text().removeprefix(begun).split()
            return sorted(offered) if offered != [word] else []

        yield offers


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in ("bash", "zsh", "fish")],
)
def offers(request: pytest.FixtureRequest) -> Offers:
    found: Offers = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize(("line", "offered"), CASES)
def test_a_shell_offers_what_may_come(offers: Offers, line: str, offered: list[str]) -> None:
    assert offers(line) == offered


def test_a_shell_offers_every_command(offers: Offers) -> None:
    assert set(offers("")) >= cli.COMMANDS.keys()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(
            ["zsh", "-f", "-c", 'autoload -U compinit; compinit -u -D; source "$1"; print $_comps[spinney]', "zsh"],
            "_spinney\n",
            marks=pytest.mark.needs("zsh"),
        ),
        pytest.param(
            ["fish", "--no-config", "-c", "source $argv[1]; complete -C './spinney ls su'"],
            "subscriptions\n",
            marks=pytest.mark.needs("fish"),
        ),
    ],
    ids=["zsh", "fish"],
)
def test_a_script_can_be_read_into_a_running_shell(tmp_path: Path, command: list[str], said: str) -> None:
    file = tmp_path / "script"
    file.write_text(script(command[0]))
    done = subprocess.run([*command, file], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert (done.stdout, done.stderr) == (said, "")


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
