"""Each command line in the manuals is one that there is, with options that it has."""

from __future__ import annotations

import functools
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MANUALS = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("*/**/README.md")))
LINE = re.compile(r"(?:^|`|\$ )(?:sudo )?(?:~/spinney/bin/|\./)?spinney ([a-z][^`\n|&<>]*)", re.MULTILINE)


def lines() -> Iterator[str]:
    """What follows the program's name, wherever it is called."""
    for manual in MANUALS:
        for found in LINE.finditer((ROOT / manual).read_text(encoding="utf-8")):
            yield found[1].split(" # ")[0].strip()


@functools.cache
def help_of(*words: str) -> str | None:
    """What `--help` of a command says; None if there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "spinney_tools", *words, "--help"], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 and "spinney " + " ".join(words) in done.stdout else None


def command_of(words: list[str]) -> str | None:
    """Help of the longest command that the line begins with: what comes after it are its arguments."""
    names = list(itertools.takewhile(lambda word: re.fullmatch(r"[a-z-]*[a-z]", word) and word[0] != "-", words))
    return next((text for end in range(len(names), 0, -1) if (text := help_of(*names[:end]))), None)


def test_there_are_many() -> None:
    assert len(set(lines())) > 40


@pytest.mark.parametrize("line", sorted(set(lines())))
def test_a_command_of_the_manuals_has_the_options_shown(line: str) -> None:
    words = line.split()
    found = command_of(words)
    assert found is not None, f"there is no spinney {words[0]}"
    for option in [word.split("=")[0] for word in words if re.match(r"--[a-z]", word)]:
        assert re.search(rf"{option}\b", found), f"{option} is no option of spinney {line}"
