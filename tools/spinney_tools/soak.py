"""`spinney soak`: what takes too long for every run: the soak tests, then longer fuzzing."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

from spinney_tools import clone, fuzz
from spinney_tools.check import line
from spinney_tools.check.step import Place, Step, StepSkipped, run_steps
from spinney_tools.test import run_pytest

FUZZ_SECONDS = 600


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="spinney soak",
        description="Fuzz the C core for long, then run the long tests. Other arguments go to pytest.",
        epilog="examples:\n  spinney soak\n  spinney soak --fuzz-seconds 3600 -k edge_is_centre\n\n"
        "exit codes: 0 all passed, 1 something failed, 2 wrong use",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--fuzz-seconds", type=int, default=FUZZ_SECONDS, help="of each harness; 0: none (%(default)s)")
    known, rest = parser.parse_known_args(arguments)
    try:
        top = clone.root()
    except clone.NotACloneError as error:
        parser.error(str(error))
    fuzzed = known.fuzz_seconds == 0 or fuzz_all(top, known.fuzz_seconds)
    os.environ["SPINNEY_HYPOTHESIS"] = "soak"
    status = run_pytest(top, ["-m", "soak", *rest])
    return status or int(not fuzzed)


def fuzz_all(top: Path, seconds: int) -> bool:
    """Whether all harnesses came through; prints a line for each, and what it found."""
    clean = True
    with tempfile.TemporaryDirectory(prefix="spinney-soak-") as scratch:
        place = Place(top, Path(scratch))
        try:
            built = fuzz.build(place)
        except StepSkipped as reason:
            print(f"skipped fuzzing: {reason}")
            return True
        steps = [Step(harness.name, partial(fuzz.run, harness=harness, seconds=seconds)) for harness in built]
        for outcome in run_steps(steps, place, at_once=os.cpu_count() or 1):
            print(line(outcome), flush=True)
            if outcome.verdict == "FAILED":
                clean = False
                print(outcome.note, file=sys.stderr)
    return clean
