"""`spinney bench ingest`: readings a second from the log into the lake, and how soon the lake has what the log has.

Each figure of throughput is of a process of its own, with Spark in it, and is taken twice: with the tasks writing the
lake's files, and with all rows going through the driver, which writes them, as it was before.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from spinney_cloud.names import LOG
from spinney_cloud.pipeline.direct_get import DirectGet, LogServer
from spinney_cloud.pipeline.ingest import TRIGGER_SECONDS, Ingest, Plan
from spinney_cloud.pipeline.lake import OBSERVATIONS, TABLES, Lake, by_table, with_date
from spinney_cloud.pipeline.lake_write.place import Place
from spinney_cloud.pipeline.session import PYTHON, is_local, session, stop

from .machine import describe, pinned
from .matching import WrongAnswer
from .pipeline_log import endpoints, fill, log_server
from .standalone import EXECUTORS, standalone
from .stuck import Stuck
from .table import Table, number

RECORDS, ROWS = 10_000, 100
ROUNDS = 2
"""Of each figure; the better one counts."""
TASKS, DRIVER = "tasks", "driver"
FASTER = 1.0
"""Tasks than the driver, at least, wherever Spark runs."""

PER_SECOND, MESSAGE_ROWS = 100, 10
WARM_SECONDS, SECONDS = 10.0, 25.0
SECONDS_OF_DEFAULT = 4 * TRIGGER_SECONDS
P50_MS, P99_MS = 200.0, 400.0
"""With trigger 0."""
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.002

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    def ratio(self, where: str) -> float:
        """How much faster tasks write."""
        return float(self.figures[f"{where}_{TASKS}"] / self.figures[f"{where}_{DRIVER}"])

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        found = [
            f"{what}: tasks write {self.ratio(where):.2f} times as many readings as the driver, not {FASTER:g}"
            for where, what in SETTINGS.items()
            if self.ratio(where) < FASTER
        ]
        for name, most in (("p50", P50_MS), ("p99", P99_MS)):
            if self.figures[f"at_once_{name}_ms"] > most:
                found.append(f"log to lake {name}: {self.figures[f'at_once_{name}_ms']:.0f} ms instead of {most:g}")
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**self.figures, "missed": self.missed()}


SETTINGS = {
    "one": "one machine, 1 core",
    "two": "one machine, 2 cores",
    "cluster": "a standalone master with two workers of 1 core, on the same machine",
}
"""Where Spark runs, by the name in the figures."""


class ThroughDriver(Ingest):
    """As it was before: Spark gathers all rows of a batch in the driver, which writes each table by itself."""

    def _options(self, after: int, place: Place) -> dict[str, Any]:
        return {**super()._options(after, place), "give": "lake"}

    def _take(self, batch: DataFrame, _number: int) -> None:
        rows = batch.toArrow()
        sequence = pc.max(rows["log_seq"]).as_py()
        for name, some in by_table(rows).items():
            if some.num_rows and self._lake.append(name, with_date(some, TABLES[name]), sequence):
                self.status.rows += some.num_rows if name == OBSERVATIONS else 0
        self.status.sequence = sequence
        self.status.batches += 1


def measure(progress: Progress) -> Measurement:
    """Throughput, in turn; then the way of single messages from the log to the lake."""
    figures: dict[str, Any] = {"readings": RECORDS * ROWS}
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        with log_server() as url:
            progress(f"{RECORDS * ROWS:,} readings into the log")
            fill(url, RECORDS, ROWS)
            for where in ("one", "two"):
                figures |= _both(url, Path(folder) / where, where, f"local[{1 if where == 'one' else 2}]", progress)
            with standalone(Path(folder) / "spark", 2) as master:
                figures |= _both(url, Path(folder) / "cluster", "cluster", master, progress)
        figures |= _latency(Path(folder) / "at_once", "at_once", 0.0, SECONDS, progress)
        figures |= _latency(Path(folder) / "default", "default", TRIGGER_SECONDS, SECONDS_OF_DEFAULT, progress)
    return Measurement({**figures, "load": os.getloadavg()[0]})


# ---- throughput


def _both(url: str, folder: Path, where: str, master: str, progress: Progress) -> dict[str, float]:
    best = {f"{where}_{way}": 0.0 for way in (TASKS, DRIVER)}
    for turn in range(ROUNDS):
        for way in (TASKS, DRIVER):
            progress(f"log to lake: {SETTINGS[where]}; the {way} write{'s' if way == DRIVER else ''}")
            words = [sys.executable, "-m", __name__, url, str(folder / f"{turn}-{way}"), master, way]
            command = pinned(words) if where == "one" else words
            out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
            best[f"{where}_{way}"] = max(best[f"{where}_{way}"], float(json.loads(out)["per_s"]))
    return best


def run(url: str, folder: Path, master: str, way: str) -> None:
    """All of the log into a new lake. Prints how many readings a second there were after the first batch, in which
    processes start and import what they need."""
    cores = 1 if master == "local[1]" else 2
    conf = {} if is_local(master) else {**EXECUTORS, **PYTHON}
    spark = session("bench", folder / "spark", master=master, conf=conf)
    lake = Lake(folder / "lake")
    ingest = (Ingest if way == TASKS else ThroughDriver)(spark, lake, Plan(LogServer(url), partitions=cores, once=True))
    marks: list[tuple[float, int]] = []
    ingest.start()
    waiter = threading.Thread(target=ingest.wait)
    waiter.start()
    while waiter.is_alive():
        if ingest.status.batches > len(marks):
            marks.append((time.perf_counter(), ingest.status.rows))
        time.sleep(LOOK_SECONDS)
    stop(spark)
    if lake.state(OBSERVATIONS).rows != RECORDS * ROWS:
        raise WrongAnswer("the lake has not as many readings as the log")
    (began, before), (ended, after) = marks[0], marks[-1]
    print(json.dumps({"per_s": (after - before) / (ended - began), "batches": len(marks)}))


# ---- latency


def _latency(folder: Path, name: str, trigger: float, seconds: float, progress: Progress) -> dict[str, Any]:
    """When each record is in the lake, by when the log had it."""
    spark = session("bench", folder / "spark")
    try:
        with log_server() as url:
            ingest = Ingest(spark, Lake(folder / "lake"), Plan(LogServer(url), trigger_seconds=trigger))
            ingest.start()
            waiter = threading.Thread(target=ingest.wait)
            waiter.start()
            try:
                progress(
                    f"{PER_SECOND} messages a second of {MESSAGE_ROWS} readings, for {WARM_SECONDS + seconds:g} s, "
                    f"trigger {trigger:g} s"
                )
                seen = _watch(ingest, url, WARM_SECONDS + seconds)
            finally:
                ingest.stop()
                waiter.join()
            with DirectGet(endpoints(url)) as log:
                messages = list(log.range(LOG, 1, len(seen)))
    finally:
        stop(spark)
    begun = messages[0].time + WARM_SECONDS
    waited = sorted(seen[one.sequence] - one.time for one in messages if one.time >= begun)
    return {
        f"{name}_p50_ms": waited[len(waited) // 2] * 1e3,
        f"{name}_p99_ms": waited[len(waited) * 99 // 100] * 1e3,
        f"{name}_batches": ingest.status.batches,
    }


def _watch(ingest: Ingest, url: str, seconds: float) -> dict[int, float]:
    """By record, the time at which the lake had it."""
    count = int(PER_SECOND * seconds)
    words = [url, str(PER_SECOND), str(seconds), str(MESSAGE_ROWS)]
    publisher = subprocess.Popen([sys.executable, "-m", "spinney_tools.bench.pipeline_log", *words])
    seen: dict[int, float] = {}
    deadline = time.monotonic() + seconds + WAIT_SECONDS
    try:
        while len(seen) < count:
            if time.monotonic() > deadline:
                raise Stuck(f"the lake has {len(seen)} of {count} messages")
            now = time.time()
            for sequence in range(len(seen) + 1, ingest.status.sequence + 1):
                seen[sequence] = now
            time.sleep(LOOK_SECONDS)
    finally:
        publisher.terminate()
        publisher.wait()
    return seen


def table(found: Measurement) -> Table:
    """One row for each question."""
    f = found.figures
    rows = [
        (
            f"readings a second from the log into the lake; {what}: tasks write, the driver writes",
            number(f[f"{where}_{TASKS}"]),
            number(f[f"{where}_{DRIVER}"]),
            f"{found.ratio(where):.1f} times",
        )
        for where, what in SETTINGS.items()
    ]
    for name, trigger in (("at_once", "0"), ("default", f"{TRIGGER_SECONDS:g} s, the default")):
        what = f"log to lake at {PER_SECOND} messages a second of {MESSAGE_ROWS} readings, trigger {trigger}: p50, p99"
        p50, p99 = f[f"{name}_p50_ms"], f[f"{name}_p99_ms"]
        rows.append((what, f"{number(p50)} ms", f"{number(p99)} ms", f"{f[f'{name}_batches']} batches"))
    machine = describe(*(f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "pyarrow", "deltalake")))
    return Table("ingest", machine, ("what", "first", "second", "difference"), tuple(rows))


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4])
