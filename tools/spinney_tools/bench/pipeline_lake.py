"""`spinney bench lake`: how much of the lake is read for a replay of one day in one cell."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from spinney import parse
from spinney_cloud.cells import cell_at, corners
from spinney_cloud.names import DEFAULT_TENANT
from spinney_cloud.pipeline.decode import Decoder
from spinney_cloud.pipeline.lake import OBSERVATIONS, TABLES, Lake, with_date
from spinney_cloud.pipeline.replay_rows import DAY_SECONDS, Wanted, tables
from spinney_cloud.pipeline.schema import CELL_RESOLUTION
from spinney_cloud.records import encode
from spinney_cloud.subscriptions import form_of

from .machine import describe
from .pipeline_log import place_of, record
from .table import Table, number

DAYS = 7
RECORDS_PER_DAY, ROWS = 2_000, 100
RECORDS_PER_BATCH = 200
FIRST_DAY = dt.date(2026, 10, 1)
CELL = cell_at(*place_of(0), CELL_RESOLUTION)
SHARE = 0.05
"""Of the lake's bytes, at most."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    @property
    def share(self) -> float:
        """Of the bytes that were read."""
        return float(self.figures["read"] / self.figures["bytes"])

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        return [f"a replay reads {self.share:.1%} of the lake, not {SHARE:.0%}"] if self.share > SHARE else []

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**self.figures, "share": self.share, "missed": self.missed()}


def measure(progress: Progress) -> Measurement:
    """A lake of a week, compacted as it is every quarter of an hour; then read by a process that knows nothing yet."""
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        lake = Lake(Path(folder) / "lake")
        for day in range(DAYS + 1):  # of the last, nothing is ordered yet
            progress(f"{RECORDS_PER_DAY * ROWS:,} readings of day {day + 1}")
            _fill_day(lake, day)
        progress("compacting")
        lake.compact()
        progress("reading a day in a cell")
        figures = {"bytes": lake.state(OBSERVATIONS).bytes, "rows": lake.state(OBSERVATIONS).rows}
        for name, command in (("one", "read"), ("all", "read_all")):
            code = f"from spinney_tools.bench import pipeline_lake as b; b.{command}({lake.place!r})"
            out = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True).stdout
            figures |= {f"{key}_{name}": value for key, value in json.loads(out).items()}
    return Measurement({**figures, "read": figures["read_one"]})


def _fill_day(lake: Lake, day: int) -> None:
    chance = random.Random(day)  # noqa: S311  # sensors are no secret
    at = dt.datetime.combine(FIRST_DAY + dt.timedelta(day), dt.time(), dt.UTC).timestamp()
    decoder = Decoder()
    for each in range(RECORDS_PER_DAY):
        sequence = day * RECORDS_PER_DAY + each + 1
        decoder.take(encode(record(sequence, ROWS, chance)), sequence, at + each * 43.0)
        if sequence % RECORDS_PER_BATCH == 0:
            batch = pa.Table.from_batches(decoder.give())
            lake.append(OBSERVATIONS, with_date(batch, TABLES[OBSERVATIONS]), sequence)


def read(place: str) -> None:
    """The readings of the second day in the cell, as `spinney replay` reads them. Prints rows and bytes."""
    ring = [(long, lat) for lat, long in corners(CELL)]
    points = ", ".join(f"{long!r} {lat!r}" for long, lat in [*ring, ring[0]])
    subscription = parse(f"S_INTERSECTS(location, POLYGON(({points})))")
    since = dt.datetime.combine(FIRST_DAY + dt.timedelta(1), dt.time(), dt.UTC).timestamp()
    wanted = Wanted(subscription, form_of(subscription), DEFAULT_TENANT, since, since + DAY_SECONDS)
    before = _bytes_read()
    _print(sum(table.num_rows for table in tables(Lake(place), wanted)), before)


def read_all(place: str) -> None:
    """Everything, for comparison: what is counted really is what is read."""
    before = _bytes_read()
    _print(Lake(place).dataset().to_table().num_rows, before)


def _print(rows: int, before: int) -> None:
    print(json.dumps({"rows": rows, "read": _bytes_read() - before}))


def _bytes_read() -> int:
    """By this process, from files or their cache, with the Delta log and the footers."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["rchar"])


def table(found: Measurement) -> Table:
    """One row."""
    f = found.figures
    rows = (
        (
            f"a replay of one day in one cell, of {f['rows']:,} readings in {DAYS + 1} days",
            f"{number(f['read'] / 1e6)} MB",
            f"{number(f['bytes'] / 1e6)} MB",
            f"{found.share:.1%}",
        ),
    )
    machine = describe(*(f"{name} {importlib.metadata.version(name)}" for name in ("pyarrow", "deltalake")))
    return Table("lake", machine, ("what", "read", "in the lake", "share"), rows)
