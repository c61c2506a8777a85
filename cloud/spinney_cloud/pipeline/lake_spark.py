"""A table as a frame of Spark.

Spark reads a folder's files itself. For an object store it has no file system: its tasks read by deltalake and pyarrow,
and find the store as this process does, by the options given, or by the same environment variables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from .lake_table import paths
from .schema import ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MAX_TASKS = 16
"""Each reads the table's log again."""
_BYTES = re.compile("/type=[^/]*%[89A-F]")
"""In a path: of a character beyond ASCII."""


def folder_frame(spark: SparkSession, table: DeltaTable, place: Path) -> DataFrame:
    """A version of a table in a folder."""
    from pyspark.sql.functions import expr

    schema = ddl(pa.schema(table.schema().to_arrow()))
    folder = f"file://{place.absolute()}"  # of disk, also where a cluster has something else
    files = [f"{folder}/{path}" for path in paths(table)]
    if not files:
        return spark.createDataFrame([], schema)
    frame = spark.read.schema(schema).option("basePath", folder).parquet(*files)
    if any(_BYTES.search(file) for file in files):
        # Spark takes each byte of a folder's name for a character
        frame = frame.withColumn("type", expr("decode(encode(type, 'ISO-8859-1'), 'UTF-8')"))
    return frame


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
