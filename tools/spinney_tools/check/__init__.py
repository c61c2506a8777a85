"""`spinney check`: everything but the tests' own run that a change has to pass."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import tempfile
import time
from pathlib import Path

from spinney_tools import clone, fuzz
from spinney_tools.check import c_core, coverage, firmware_types, mote, python
from spinney_tools.check.step import Outcome, Place, Step, run_steps

FUZZ_SECONDS = 24  # of all harnesses together


def all_steps() -> list[Step]:
    """The longest first, so that the short ones fill the gaps beside it."""
    return [
        Step("coverage", coverage.coverage),
        Step("fuzzing", functools.partial(fuzz.short, seconds=FUZZ_SECONDS)),
        Step("C under memory sanitizers", c_core.memory),
        Step("C under thread sanitizer", c_core.threads),
        Step("C on arm64, emulated", c_core.arm),
        Step("C warnings, gcc", functools.partial(c_core.warnings, "gcc")),
        Step("C warnings, clang", functools.partial(c_core.warnings, "clang")),
        Step("types, mypy", python.mypy),
        Step("types, pyright", python.pyright),
        Step("types of the firmware", firmware_types.firmware_types),
        Step("size of the firmware", mote.sizes),
        Step("format and lint, ruff", python.ruff),
        Step("references in the READMEs", python.references),
    ]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="spinney check",
        description="Check format, lint, types, C warnings, sanitizers, a short fuzzing and coverage. "
        "All steps run, whatever becomes of each; exit code 1 if one failed, 2 if called wrongly.",
        epilog="examples: spinney check    spinney check ruff types",
    )
    parser.add_argument("step", nargs="*", help="only steps with one of these words in their name")
    words = parser.parse_args(arguments).step
    try:
        top = clone.root()
    except clone.NotACloneError as error:
        parser.error(str(error))
    with tempfile.TemporaryDirectory(prefix="spinney-check-") as scratch:
        place = Place(top, Path(scratch))
        steps = [step for step in all_steps() if not words or any(word in step.name for word in words)]
        if not steps:
            parser.error(f"no step is named so; there are: {', '.join(step.name for step in all_steps())}")
        return report(steps, place)


def report(steps: list[Step], place: Place) -> int:
    """Runs the steps and prints a line for each as it ends, then what failed, whole."""
    start = time.monotonic()
    outcomes = []
    for outcome in run_steps(steps, place, at_once=min(os.cpu_count() or 1, len(steps))):
        outcomes.append(outcome)
        print(line(outcome), flush=True)
    failed = [outcome for outcome in outcomes if outcome.verdict == "FAILED"]
    for outcome in failed:
        print(f"\n==== {outcome.name}\n{outcome.note}")
    skipped = sum(outcome.verdict == "skipped" for outcome in outcomes)
    print(
        f"\ncheck: {len(outcomes) - len(failed) - skipped} ok, {skipped} skipped, {len(failed)} failed "
        f"in {time.monotonic() - start:.0f} s",
        file=sys.stderr if failed else sys.stdout,
    )
    return 1 if failed else 0


def line(outcome: Outcome) -> str:
    note = outcome.note if outcome.verdict != "FAILED" else "see below"
    return f"{outcome.verdict:<8}{outcome.name:<28}{outcome.seconds:>6.1f} s  {note}".rstrip()
