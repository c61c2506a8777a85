"""Every example in README.md runs, and gives what stands there."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import spinney

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def _blocks(kind: str) -> list[str]:
    return [body for name, body in BLOCKS if name == kind]


def test_python_examples_give_what_stands_there() -> None:
    examples = "\n".join(_blocks("pycon"))
    assert examples.count(">>> ") >= 15
    test = doctest.DocTestParser().get_doctest(examples, {}, "README.md", "README.md", 0)
    assert doctest.DocTestRunner().run(test).failed == 0


def _commands() -> list[tuple[str, str]]:
    """Each command with what it prints."""
    found = [step for body in _blocks("console") for step in re.split(r"^\$ ", body, flags=re.MULTILINE) if step]
    return [(command, output) for command, _, output in (step.partition("\n") for step in found)]


def test_commands_print_what_stands_there(tmp_path: Path) -> None:
    ran = 0
    for command, expected in _commands():
        program, *arguments = shlex.split(command)
        if program == "cat":
            (tmp_path / arguments[0]).write_text(expected, encoding="utf-8")
            continue
        assert program == "./spinney"
        done = subprocess.run(
            [sys.executable, "-m", "spinney_tools", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/native/python:{ROOT}/tools"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout + done.stderr == expected, command
        ran += 1
    assert ran >= 3


def test_the_subscriptions_shown_can_be_read() -> None:
    block = re.search(r"^```\n(NO2 .*?)^```", README, re.MULTILINE | re.DOTALL)
    assert block
    texts = [text for text in block[1].splitlines() if text]
    assert len(texts) == 3
    for text in texts:
        assert spinney.parse(spinney.parse(text).to_text()) == spinney.parse(text)
