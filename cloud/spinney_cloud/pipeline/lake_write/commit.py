"""The driver's part: the files that the tasks of a batch have written, in one Delta transaction for each table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
from deltalake.transaction import AddAction

from ..lake import DEAD_LETTERS, OBSERVATIONS, TABLES, Lake
from .place import LakeNotShared, told


@dataclass(frozen=True, slots=True)
class Batch:
    """What a batch has brought."""

    sequence: int
    """The newest record of the log that left anything."""
    time: float
    """Of the log, there."""
    rows: int
    """Observations."""
    dead: int


def commit(lake: Lake, files: pa.Table) -> Batch:
    """Have the lake hold these files, rows of FILES, which are all of a batch, and at least one.

    The observations last: a start goes by what is in them. LakeError if a table cannot be written, or has some of these
    records already, by another pipeline.
    """
    rows: list[dict[str, Any]] = files.to_pylist()
    sequence, arrival = max(row["last"] for row in rows), max(row["arrival"] for row in rows)
    if lake.is_folder:
        _check_seen(lake, rows)
    added = dict.fromkeys(TABLES, 0)
    for name in sorted(TABLES, key=lambda name: name == OBSERVATIONS):
        of_table = [row for row in rows if row["table"] == name]
        if of_table and lake.add(name, _actions(of_table), min(row["first"] for row in of_table), sequence):
            added[name] = sum(row["rows"] for row in of_table)
    if not added[OBSERVATIONS]:
        lake.advance(OBSERVATIONS, sequence)
    return Batch(sequence, arrival, added[OBSERVATIONS], added[DEAD_LETTERS])


def _check_seen(lake: Lake, rows: Sequence[dict[str, Any]]) -> None:
    """What a task has written must be what is here."""
    for row in rows:
        path = Path(lake.path(row["table"])) / row["path"]
        if not path.is_file() or path.stat().st_size != row["size"]:
            raise LakeNotShared(told(lake.place, {"a task": f"the driver does not find what it wrote, {path}"}))


def _actions(rows: Sequence[dict[str, Any]]) -> list[AddAction]:
    now = int(time.time() * 1000)
    return [
        AddAction(row["path"], row["size"], orjson.loads(row["values"]), now, data_change=True, stats=row["stats"])
        for row in rows
    ]
