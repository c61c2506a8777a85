"""What one of the lake's Delta tables says of itself, and a version of it that changes nothing but what it says."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable


@dataclass(frozen=True, slots=True)
class TableState:
    """What a table holds."""

    name: str
    rows: int
    files: int
    bytes: int
    first: dt.date | None
    last: dt.date | None
    sequence: int
    """Of the newest record of the log in it."""


def state_of(table: DeltaTable, name: str, app: str) -> TableState:
    """As it is; `app`: whose version in it is a sequence of the log."""
    actions = pa.table(table.get_add_actions(flatten=True))
    dates = (
        actions["partition.date"].to_pylist() if actions.num_rows and "partition.date" in actions.schema.names else []
    )
    return TableState(
        name,
        sum(actions["num_records"].to_pylist()) if actions.num_rows else 0,
        actions.num_rows,
        sum(actions["size_bytes"].to_pylist()) if actions.num_rows else 0,
        min(dates, default=None),
        max(dates, default=None),
        table.transaction_version(app) or 0,
    )


def paths(table: DeltaTable) -> list[str]:
    """Of the files of its version, below its folder. (In `file_uris` the folder has escapes, and the rest has not.)"""
    return [unquote(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()]


def commit_nothing(table: DeltaTable, properties: CommitProperties) -> None:
    """A new version without a new file, for what the properties say."""
    columns = table.metadata().partition_columns
    table.create_write_transaction([], "append", table.schema(), columns, commit_properties=properties)
    table.update_incremental()
