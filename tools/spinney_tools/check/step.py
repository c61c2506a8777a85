"""The steps of a check: what one is, and how several run side by side."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path


class StepFailed(Exception):
    """What was found wrong, as the tool that found it says it."""


class StepSkipped(Exception):
    """What is missing here for this step."""


@dataclass(frozen=True)
class Place:
    """Where a check works: on the clone, with a scratch folder for what it builds."""

    top: Path
    scratch: Path

    def sources(self) -> list[Path]:
        return sorted((self.top / "native" / "src").glob("*.c"))

    def folder(self, name: str) -> Path:
        """A scratch folder of this name."""
        folder = self.scratch / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class Step:
    """One thing to check. `run` returns a note for the step's line, and raises StepFailed or StepSkipped."""

    name: str
    run: Callable[[Place], str]


@dataclass(frozen=True)
class Outcome:
    name: str
    verdict: str  # "ok", "skipped" or "FAILED"
    seconds: float
    note: str


def run_steps(steps: Sequence[Step], place: Place, *, at_once: int) -> Iterator[Outcome]:
    """Runs all steps, whatever becomes of each, and gives their outcomes as they end."""
    with ThreadPoolExecutor(at_once) as pool:
        for future in as_completed([pool.submit(run_step, step, place) for step in steps]):
            yield future.result()


def run_step(step: Step, place: Place) -> Outcome:
    start = time.monotonic()
    try:
        verdict, note = "ok", step.run(place)
    except StepSkipped as reason:
        verdict, note = "skipped", str(reason)
    except StepFailed as failure:
        verdict, note = "FAILED", str(failure)
    return Outcome(step.name, verdict, time.monotonic() - start, note)


def command(
    words: Sequence[str | Path],
    place: Place,
    environment: Mapping[str, str] | None = None,
    *,
    warnings: bool = True,
) -> str:
    """Runs a program in the clone and returns what it printed, on stderr too unless told; a failure carries it all."""
    done = subprocess.run(
        [str(word) for word in words],
        cwd=place.top,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if warnings else subprocess.PIPE,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        raise StepFailed(
            f"{' '.join(map(str, words))}\n(exit code {done.returncode})\n{done.stdout}{done.stderr or ''}".rstrip()
        )
    return done.stdout
