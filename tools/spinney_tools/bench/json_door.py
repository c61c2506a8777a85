"""`spinney bench json`: what JSON costs next to values, missing attributes next to none, two threads next to one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..workloads import programs
from ..workloads.generate import generate
from .machine import describe, pinned
from .table import Table, number

WORKLOAD, SIZE = "W2", 10_000
"""Few matches, so that the door is what is timed."""

ROUNDS = 5

DOOR_US = 1.0
"""A reading of 200 bytes may cost so much more than its values."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    @property
    def door_us(self) -> float:
        """What reading the JSON adds."""
        return float(self.figures["json_us"] - self.figures["values_us"])

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        return [f"the JSON door costs {self.door_us:.2f} us"] if self.door_us > DOOR_US else []

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {"door_us": self.door_us, "missed": self.missed(), **self.figures}


def measure(folder: Path, progress: Callable[[str], None]) -> Measurement:
    """Cost on one core; then threads, on as many as there are."""
    program = programs.build("json_door", folder)
    generate(folder, WORKLOAD, [SIZE], progress)
    figures: dict[str, Any] = {}
    progress("measuring the JSON door")
    for mode, around in (("cost", pinned), ("threads", list[str])):
        command = around([str(program), mode, str(folder), WORKLOAD, str(SIZE), str(ROUNDS)])
        figures |= json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    return Measurement(figures)


def table(found: Measurement) -> Table:
    """One row for each question."""
    f = found.figures
    rows = (
        (
            f"a reading of {f['bytes']} bytes: as values, as JSON",
            f"{number(f['values_us'])} us",
            f"{number(f['json_us'])} us",
            f"{found.door_us:+.2f} us",
        ),
        (
            f"an event with {f['present']} attributes: {f['present']} are known, {f['known']} are known",
            f"{number(f['present_us'])} us",
            f"{number(f['known_us'])} us",
            f"{f['known_us'] / f['present_us']:.2f} times",
        ),
        (
            f"readings a second as JSON: one thread, two threads (plain arithmetic: {f['plain_ratio']:.2f} times)",
            f"{f['one_per_s']:,.0f}",
            f"{f['two_per_s']:,.0f}",
            f"{f['two_per_s'] / f['one_per_s']:.2f} times",
        ),
    )
    machine = describe(programs.compiler_version(), " ".join(programs.FLAGS))
    return Table("json", machine, ("what", "first", "second", "difference"), rows)
