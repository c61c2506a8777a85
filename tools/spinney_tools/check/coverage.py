"""Line coverage of native/python and of the C core, by one run of their tests over an instrumented core."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from spinney_tools.check.c_core import c_tests, installed, run_c_tests
from spinney_tools.check.step import Place, StepFailed, command

LEAST_PERCENT = 95.0
COVERING = (
    "tests/core",
    "tests/cloud/test_client_*.py",
    *(f"tests/mote/test_{name}.py" for name in ("mote_*", "protocol", "bthome", "radio", "ota*")),
)
"""The tests of what is in native/python."""
COUNTED = ("-std=c11", "-ffp-contract=off", "-O1", "-g", "--coverage", "-fprofile-update=atomic")
SHOWN_LINES = 40

Lines = dict[str, dict[int, int]]  # file -> line -> how often it ran


def coverage(place: Place) -> str:
    data = {"COVERAGE_FILE": str(place.folder("coverage") / "data")}
    objects = place.folder("coverage-core")
    core = objects / "_core.abi3.so"
    flags = ["--flags", " ".join(COUNTED), "--link-flags=--coverage"]
    build = [sys.executable, "native/build_core.py", str(core), "--objects", str(objects), *flags]
    command(build, place, {"CC": installed("gcc")})
    run_c_tests(c_tests(place), COUNTED, place, place.folder("coverage-c"))
    run_python_tests(place, {**data, "SPINNEY_CORE": str(core), "SPINNEY_HYPOTHESIS": "quick"})
    python_percent, python_table = python_coverage(place, data)
    c_percent, c_table = c_coverage(place, [objects, place.folder("coverage-c")])
    note = f"native/python {python_percent:.1f} %, C core {c_percent:.1f} %"
    if min(python_percent, c_percent) < LEAST_PERCENT:
        raise StepFailed(f"{note}; each must be at least {LEAST_PERCENT:.0f} %\n{python_table}\n{c_table}")
    return note


def run_python_tests(place: Place, environment: dict[str, str]) -> None:
    workers = str(min(os.cpu_count() or 1, 8))
    tests = [str(path) for pattern in COVERING for path in sorted(place.top.glob(pattern))]
    pytest = ["pytest", "-q", "-n", workers, "--dist", "worksteal", "-m", "not soak and not slow", *tests]
    command([sys.executable, "-m", "coverage", "run", "-m", *pytest], place, environment)


def python_coverage(place: Place, data: dict[str, str]) -> tuple[float, str]:
    tool = [sys.executable, "-m", "coverage"]
    command([*tool, "combine", "--quiet"], place, data)
    table = command([*tool, "report", "--show-missing", "--skip-covered", "--include=native/python/*"], place, data)
    report = place.folder("coverage") / "python.json"
    command([*tool, "json", "--quiet", "--include=native/python/*", "-o", report], place, data)
    return float(json.loads(report.read_text(encoding="utf-8"))["totals"]["percent_covered"]), table


def c_coverage(place: Place, folders: Iterable[Path]) -> tuple[float, str]:
    lines: Lines = {}
    for folder in folders:
        counts = sorted(folder.glob("*.gcda"))
        if counts:
            gcov: list[str | Path] = [installed("gcov"), "--json-format", "--stdout", *counts]
            merge_gcov(command(gcov, place, warnings=False), place, lines)
    rows = [(file, len(counted), missed_lines(counted)) for file, counted in sorted(lines.items())]
    total = sum(count for _, count, _ in rows)
    missed = sum(len(missing) for _, _, missing in rows)
    table = [f"{file}: {len(missing)} of {count} missed: {spans(missing)}" for file, count, missing in rows if missing]
    return (100.0 * (total - missed) / total if total else 0.0), "\n".join(table[:SHOWN_LINES])


def merge_gcov(output: str, place: Place, lines: Lines) -> None:
    """Adds the counts of gcov's reports, one JSON text in each line, of files under native/src."""
    folder = place.top / "native" / "src"
    for report in map(json.loads, filter(None, output.splitlines())):
        for file in report["files"]:
            path = (Path(report["current_working_directory"]) / file["file"]).resolve()
            if folder in path.parents:
                counted = lines.setdefault(path.name, {})
                for line in file["lines"]:
                    number = line["line_number"]
                    counted[number] = counted.get(number, 0) + line["count"]


def missed_lines(counted: dict[int, int]) -> list[int]:
    return sorted(number for number, count in counted.items() if not count)


def spans(numbers: list[int]) -> str:
    """12-14, 20: as people write line numbers."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
