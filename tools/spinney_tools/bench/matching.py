"""`spinney bench matching`: the core against the scan on W1 to W4, and against its targets."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..workloads import programs, targets
from ..workloads.generate import WORKLOADS, checksums, generate
from .machine import describe, pinned
from .table import Table, number

QUICK_LIMIT = 20_000
"""`--quick` leaves out larger sets of subscriptions."""

Progress = Callable[[str], None]


class WrongAnswer(Exception):
    """The core matched something else than the scan."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure."""

    scan_seconds: float
    rounds: int


QUICK = Effort(scan_seconds=0.3, rounds=3)
FULL = Effort(scan_seconds=1.5, rounds=5)


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one workload and size took. Times without another word are after the changes."""

    workload: str
    size: int
    figures: dict[str, Any]

    @property
    def ratio(self) -> float:
        """How many times faster than the scan."""
        return float(self.figures["scan_us"] / self.figures["us"])

    @property
    def built_ratio(self) -> float:
        """The same before any change."""
        return float(self.figures["built_scan_us"] / self.figures["built_us"])

    @property
    def required(self) -> float:
        """What the ratio must be."""
        return targets.REQUIRED_RATIO[self.workload, self.size]

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        out = [f"{self.ratio:.0f} times instead of {self.required:.0f}"] if self.ratio < self.required else []
        if self.size < targets.LIMITS_FROM_SIZE:
            return out
        limits = (
            ("build", self.figures["build_s"], targets.BUILD_SECONDS_PER_MILLION * self.size / 1e6, "s"),
            ("memory", self.figures["bytes"], targets.BYTES_PER_SUBSCRIPTION, "bytes"),
            ("insert", self.figures["insert_us"], targets.CHANGE_US, "us"),
            ("delete", self.figures["delete_us"], targets.CHANGE_US, "us"),
        )
        return out + [
            f"{name} {value:.3g} {unit} over {most:.3g}" for name, value, most, unit in limits if value > most
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured, and what follows from it."""
        derived = {"ratio": self.ratio, "built_ratio": self.built_ratio, "required": self.required}
        return {"workload": self.workload, "size": self.size, **derived, "missed": self.missed(), **self.figures}


def measure(folder: Path, quick: bool, only: list[str], progress: Progress) -> Iterator[Measurement]:
    """Generates what is missing and measures each size of each workload in turn."""
    program = programs.build("matching", folder)
    for name in only or list(WORKLOADS):
        sizes = [size for size in WORKLOADS[name].sizes if not quick or size <= QUICK_LIMIT]
        generate(folder, name, sizes, progress)
        for size in sizes:
            oracle = _oracle(program, folder, name, size, progress)
            progress(f"measuring {name} with {size:,} subscriptions")
            yield _measure_one(program, folder, name, size, oracle, QUICK if quick else FULL)


def _oracle(program: Path, folder: Path, name: str, size: int, progress: Progress) -> Path:
    """What every event must match, by the scan: kept under the checksums of what it follows from."""
    digests = (checksums()[f"{name}.{size}.subs"][:8], checksums()[f"{name}.events"][:8])
    path = folder / f"{name}.{size}.{'-'.join(digests)}.oracle"
    if not path.exists():
        progress(f"scanning {name} with {size:,} subscriptions for what must match")
        half_made = path.with_suffix(".part")
        subprocess.run([str(program), "oracle", str(folder), name, str(size), str(half_made)], check=True)
        half_made.replace(path)
    return path


def _measure_one(program: Path, folder: Path, name: str, size: int, oracle: Path, effort: Effort) -> Measurement:
    what = [str(folder), name, str(size), str(oracle), str(effort.scan_seconds), str(effort.rounds)]
    done = subprocess.run(pinned([str(program), "measure", *what]), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 1):
        raise subprocess.CalledProcessError(done.returncode, done.args)
    found = Measurement(name, size, json.loads(done.stdout))
    if found.figures["wrong_events"]:
        raise WrongAnswer(f"{name} {size}: {found.figures['wrong_events']} events match something else than the scan")
    return found


_HEADER = (
    "workload",
    "subscriptions",
    "matches per event",
    "us per event",
    "scan us",
    "times faster",
    "as built",
    "required",
    "ok",
    "build s",
    "bytes each",
    "insert us",
    "delete us",
)
_NOTES = (
    "One thread, ids written to memory; best of several rounds, next to a naive scan in the same process, when half of",
    "the subscriptions have been removed and added again, in random orders. All answers are compared with the scan.",
)


def table(found: list[Measurement]) -> Table:
    """One row for each size."""
    simd = found[0].figures["simd"] if found else ""
    return Table(
        "matching",
        describe(programs.compiler_version(), " ".join(programs.FLAGS), simd),
        _HEADER,
        tuple(_row(item) for item in found),
        _NOTES,
    )


def _row(item: Measurement) -> tuple[str, ...]:
    figures = item.figures
    return (
        item.workload,
        f"{item.size:,}",
        number(figures["matches_per_event"]),
        number(figures["us"]),
        number(figures["scan_us"]),
        number(item.ratio),
        number(item.built_ratio),
        number(item.required),
        "no" if item.missed() else "yes",
        f"{figures['build_s']:.3f}",
        f"{figures['bytes']:.0f}",
        f"{figures['insert_us']:.2f}",
        f"{figures['delete_us']:.2f}",
    )
