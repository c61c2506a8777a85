"""`spinney test`: the tests of all parts, or of some, in one run of pytest."""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from spinney_tools import clone

PARTS = ("core", "mote", "mobile", "cloud", "pipeline", "system")
MOST_WORKERS = 8


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="spinney test",
        description="Run the tests of all parts, or of those named. Other arguments go to pytest.",
        epilog="examples:\n  spinney test\n  spinney test core -k covers -x\n"
        "  spinney test tests/core/test_state.py\n\n"
        "exit codes: pytest's own: 0 all passed, 1 some failed, 2 wrong use or interrupted",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("part", nargs="*", help=f"{', '.join(PARTS)}, all (the default), or a test file")
    known, rest = parser.parse_known_args(arguments)
    try:
        top = clone.root()
    except clone.NotACloneError as error:
        parser.error(str(error))
    wanted = targets(top, known.part)
    if not wanted:
        print(f"{', '.join(known.part) or 'spinney'}: no tests yet")
        return 0
    return run_pytest(top, [*wanted, *rest])


def targets(top: Path, words: Sequence[str]) -> list[str]:
    """The folders of the parts named that have tests, and whatever else is named, as it stands."""
    named = [part for part in PARTS if part in words or "all" in words or not words]
    others = [word for word in words if word not in (*PARTS, "all")]
    return [f"tests/{part}" for part in named if has_tests(top, part)] + others


def has_tests(top: Path, part: str) -> bool:
    return any((top / "tests" / part).rglob("test_*.py"))


def run_pytest(top: Path, arguments: Sequence[str]) -> int:
    """Runs pytest over the clone; its closing line is the last thing printed."""
    command = [sys.executable, "-m", "pytest", *spread(arguments), *seed(arguments), *arguments]
    return subprocess.run(command, cwd=top, check=False).returncode


def spread(arguments: Sequence[str]) -> list[str]:
    """Options that use every processor, unless the caller says how many or debugs."""
    if any(word.startswith(("-n", "--numprocesses", "--pdb", "--collect", "-p")) for word in arguments):
        return []
    return ["-n", str(min(os.cpu_count() or 1, MOST_WORKERS)), "--dist", "worksteal"]


def seed(arguments: Sequence[str]) -> list[str]:
    """One seed for all property tests of this run, printed by pytest's header; CI is the same every time."""
    if any(word.startswith("--hypothesis-seed") for word in arguments) or os.environ.get("CI") == "true":
        return []
    return [f"--hypothesis-seed={random.randrange(2**32)}"]  # noqa: S311 - not for secrets
