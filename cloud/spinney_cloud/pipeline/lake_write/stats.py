"""What Delta's log says about a file: rows, and for each column its least and greatest value and how many are missing.

Readers leave out files by it: a replay of one place and hour opens few of a day's.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow.parquet as pq

MAX_TEXT = 64
"""Characters; a column with a longer least or greatest text has no bounds."""


def stats_of(metadata: pq.FileMetaData) -> str:
    """As JSON, from a Parquet file's own metadata. Maps have none."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    missing: dict[str, int] = {}
    for column in _flat_columns(metadata):
        name = metadata.schema.column(column).name
        found = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
        if any(each is None or not each.has_null_count for each in found):
            continue
        missing[name] = sum(each.null_count for each in found)
        bounded = [each for each in found if each.null_count < each.num_values + each.null_count]
        if not bounded or not all(each.has_min_max for each in bounded):
            continue
        low, high = _said(min(each.min for each in bounded)), _said(max(each.max for each in bounded))
        if low is not None and high is not None:
            least[name], greatest[name] = low, high
    said = {"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": missing}
    return orjson.dumps(said).decode()


def _flat_columns(metadata: pq.FileMetaData) -> Iterator[int]:
    for column in range(metadata.num_columns):
        described = metadata.schema.column(column)
        if described.path == described.name:
            yield column


def _said(value: Any) -> Any:
    """As Delta writes it; None for what gives no bound."""
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else None
    return value
