"""A table in an object store, for Spark, which has no file system for it: its tasks read by deltalake and pyarrow.

They find the store as this process does: by the options given, or by the same environment variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from .schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_TASKS = 16
"""Each reads the table's log again."""


def remote_frame(
    spark: SparkSession, table: DeltaTable, options: Mapping[str, str] | None, columns: list[str], where: Any
) -> DataFrame:
    """These columns of a version of a table. `where`: files and row groups that it excludes are passed over."""
    place, version = table.table_uri, table.version()
    settings = dict(options or {}) or None

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch["id"].to_pylist():
                data = DeltaTable(place, version, storage_options=settings).to_pyarrow_dataset()
                for file in _files(data, where)[task::tasks]:
                    yield from file.to_batches(schema=data.schema, columns=columns, filter=where)

    data = table.to_pyarrow_dataset()
    schema = ddl(pa.schema([data.schema.field(name) for name in columns]))
    tasks = min(len(_files(data, where)), MAX_TASKS)
    if not tasks:
        return spark.createDataFrame([], schema)
    return spark.range(0, tasks, 1, tasks).mapInArrow(read, schema)


def _files(data: Any, where: Any) -> list[Any]:
    """In an order that is the same in all processes."""
    return sorted(data.get_fragments(where), key=lambda file: file.path)
