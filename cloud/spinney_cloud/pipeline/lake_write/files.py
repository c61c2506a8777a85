"""A task's part of the log as Parquet files in the lake; what it tells the driver is a row for each of them.

Nobody reads the files before they are committed; so an attempt that fails, or that a speculative copy has overtaken,
does no harm by what it has written (see leftover.py).
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..lake import ROW_GROUP, TABLES, LakeError, TableSpec, by_table, with_date
from ..schema import FILES
from .place import Place, filesystem, one_line, put, require
from .stats import stats_of

MAX_ROWS = 200_000
"""Rows that a task holds before it writes them; a batch has as many, unless set otherwise."""
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"


def write(batches: Iterator[pa.RecordBatch], after: int, upto: int, place: Place) -> Iterator[pa.RecordBatch]:
    """Write what was decoded (in the form `lake`) of the records with after < sequence <= upto. Gives rows of FILES."""
    require(place)
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= MAX_ROWS:
            yield from _write(held, after, upto, place)
            held, count = [], 0
    if count:
        yield from _write(held, after, upto, place)


def _write(held: list[pa.RecordBatch], after: int, upto: int, place: Place) -> Iterator[pa.RecordBatch]:
    have = dict(place.have)
    written: list[dict[str, Any]] = []
    for name, rows in by_table(pa.Table.from_batches(held)).items():
        fresh = rows.filter(pc.greater(rows["log_seq"], have.get(name, 0)))
        if fresh.num_rows:
            spec = TABLES[name]
            for values, part in _partitions(with_date(fresh, spec), spec):
                file = f"log-{after + 1}-{upto}-{uuid.uuid4().hex}.parquet"
                written.append(_write_file(place, name, values, part, file))
    if written:
        yield pa.RecordBatch.from_pylist(written, FILES)


def _partitions(rows: pa.Table, spec: TableSpec) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """The rows of each partition, in the log's order, without the columns that its folders say."""
    rows = rows.combine_chunks()
    keys = [rows[name].combine_chunks().dictionary_encode(null_encoding="encode") for name in spec.partition_by]
    codes = np.zeros(rows.num_rows, np.int64)
    for key in keys:
        codes = codes * len(key.dictionary) + key.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    others = rows.drop_columns(list(spec.partition_by))
    for places in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        values = [key.dictionary[key.indices[int(places[0])].as_py()].as_py() for key in keys]
        said = {
            name: None if value is None else str(value) for name, value in zip(spec.partition_by, values, strict=True)
        }
        yield said, others if len(places) == rows.num_rows else others.take(pa.array(places))


def _write_file(place: Place, table: str, values: dict[str, str | None], rows: pa.Table, file: str) -> dict[str, Any]:
    folder = "/".join(_folder(name, value) for name, value in values.items())
    out, found = pa.BufferOutputStream(), list[pq.FileMetaData]()
    pq.write_table(rows, out, row_group_size=ROW_GROUP, compression="zstd", metadata_collector=found)
    content = out.getvalue()
    files = filesystem(place, table)
    try:
        if "://" not in place.lake:
            files.create_dir(folder)
        put(files, f"{folder}/{file}", content)
    except OSError as error:
        raise LakeError(
            f"the lake's table {place.lake}/{table} cannot be written: {one_line(error)}. Nothing of this batch is in "
            f"it; is the disk full? Once there is room, start again: it goes on where it was"
        ) from error
    return {
        "table": table,
        "path": f"{folder}/{file}",
        "size": content.size,
        "rows": rows.num_rows,
        "first": pc.min(rows["log_seq"]).as_py(),
        "last": pc.max(rows["log_seq"]).as_py(),
        "arrival": pc.max(rows["arrival"]).as_py(),
        "values": orjson.dumps(values).decode(),
        "stats": stats_of(found[0]),
    }


def _folder(name: str, value: str | None) -> str:
    return f"{name}={_NO_VALUE if value is None else quote(value, safe='')}"
