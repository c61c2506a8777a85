"""Joins the small files of a table, and orders by place what lies in days that are over."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction, WriterProperties

from .lake_table import commit_nothing

ORDERED = "spinney-ordered"
"""The application whose transaction version is the newest day, as an ordinal, up to which everything is z-ordered."""
FILE_BYTES = 128 * 1024**2
"""About, of a compacted file."""
MIN_FILES = 8
"""Of a partition that are worth compacting while its day goes on."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """What a compaction did."""

    table: str
    removed: int
    added: int
    ordered_days: int


def compact(table: DeltaTable, name: str, order: Sequence[str], properties: WriterProperties) -> Compacted:
    """`order`: columns by which days that are over are ordered; none: they are not."""
    days = _unordered_days(table) if order else []
    removed = added = 0
    for day in days:
        done = table.optimize.z_order(
            list(order),
            partition_filters=[("date", "=", day.isoformat())],
            target_size=FILE_BYTES,
            writer_properties=properties,
        )
        removed, added = removed + done["numFilesRemoved"], added + done["numFilesAdded"]
    if days:
        commit_nothing(table, CommitProperties(app_transactions=[Transaction(ORDERED, days[-1].toordinal())]))
    for partition in _scattered(table):
        done = table.optimize.compact(partition_filters=partition, target_size=FILE_BYTES, writer_properties=properties)
        removed, added = removed + done["numFilesRemoved"], added + done["numFilesAdded"]
    if removed:
        table.update_incremental()
        table.create_checkpoint()  # so that who opens it does not read how it came about
    return Compacted(name, removed, added, len(days))


def _unordered_days(table: DeltaTable) -> list[dt.date]:
    """Days that are over, as the log's time says: nothing is added to them."""
    days = sorted({dt.date.fromisoformat(each["date"]) for each in table.partitions()})
    done = table.transaction_version(ORDERED) or 0
    return [day for day in days[:-1] if day.toordinal() > done]


def _scattered(table: DeltaTable) -> Iterator[list[tuple[str, str, str]]]:
    """Filters for the partitions that have many small files."""
    columns = table.metadata().partition_columns
    actions = pa.table(table.get_add_actions(flatten=True))
    small = actions.filter(pc.less(actions["size_bytes"], FILE_BYTES // 2))
    keys = [f"partition.{column}" for column in columns]
    if not keys:
        if small.num_rows >= MIN_FILES:
            yield []
        return
    for group in small.group_by(keys).aggregate([("path", "count")]).to_pylist():
        if group["path_count"] >= MIN_FILES:
            values = ["" if group[key] is None else str(group[key]) for key in keys]  # "": null, for deltalake
            yield [(column, "=", value) for column, value in zip(columns, values, strict=True)]
