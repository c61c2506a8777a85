"""The one schema of publications: fixed columns, and maps for all other attributes. A new attribute changes nothing.

| column | what |
| --- | --- |
| id, source, boot, sequence | which reading it is (rule I1) |
| time, lat, long, type | the reserved attributes, as published: time in epoch seconds |
| cell | the H3 cell of its place, at resolution CELL_RESOLUTION |
| tenant, client, epoch | whose it is, who sent it, and under which lease |
| received | when the gateway had it, by the gateway's clock |
| log_seq, log_row | its place in the log: the record, and the row in the record |
| arrival, log_time | the log's time (rule I3), in epoch seconds as the engine counts, and as a timestamp |
| numbers, texts, flags | all other attributes, by type |
| units | of numbers, where `NAME_unit` comes with NAME; it stays in texts, too |
"""

from __future__ import annotations

import pyarrow as pa

CELL_RESOLUTION = 9
"""Hexagons of a tenth of a square kilometre; coarser cells are their parents."""

_TIMESTAMP = pa.timestamp("us", tz="UTC")

PUBLICATIONS = pa.schema(
    [
        ("id", pa.string()),
        ("source", pa.string()),
        ("boot", pa.int64()),
        ("sequence", pa.int64()),
        ("time", pa.float64()),
        ("type", pa.string()),
        ("lat", pa.float64()),
        ("long", pa.float64()),
        ("cell", pa.string()),
        ("tenant", pa.string()),
        ("client", pa.string()),
        ("epoch", pa.int64()),
        ("received", _TIMESTAMP),
        ("log_time", _TIMESTAMP),
        ("arrival", pa.float64()),
        ("log_seq", pa.int64()),
        ("log_row", pa.int32()),
        ("numbers", pa.map_(pa.string(), pa.float64())),
        ("texts", pa.map_(pa.string(), pa.string())),
        ("flags", pa.map_(pa.string(), pa.bool_())),
        ("units", pa.map_(pa.string(), pa.string())),
    ]
)

COLUMNS = ("time", "lat", "long", "type")
"""Attributes that are columns under their own names; id and source are, too, from the record's runs."""

DEAD = (("reason", pa.string()), ("raw", pa.string()))
"""Of what cannot be decoded: why, and how it begins."""

ALL = pa.schema([*PUBLICATIONS, *(pa.field(name, kind) for name, kind in DEAD)])
"""Publications, and dead letters: those have a reason, and nothing but the columns of their place in the log."""

LABELS = "labels"
LAKE = pa.schema([*PUBLICATIONS, pa.field(LABELS, pa.string()), *(pa.field(name, kind) for name, kind in DEAD)])
"""All, and what else a replay of state and top-k needs: with a publication its labels (by filter, a JSON object; null
mostly), and rows of records that left no publication or say more: those have `raw`, without a reason (see decode)."""

RECORDS = pa.schema(
    [
        ("log_seq", pa.int64()),
        ("arrival", pa.float64()),
        ("log_time", _TIMESTAMP),
        ("kind", pa.string()),
        ("tenant", pa.string()),
        ("data", pa.binary()),
    ]
)
"""Records as they are in the log, of all kinds."""

MATCHES = pa.schema(
    [
        ("shard", pa.int32()),
        ("at", pa.int64()),
        ("time", pa.float64()),
        ("kind", pa.string()),
        ("data", pa.binary()),
    ]
)
"""What records tell the pipeline's subscriptions (see matching.py)."""

FILES = pa.schema(
    [
        ("table", pa.string()),
        ("path", pa.string()),
        ("size", pa.int64()),
        ("rows", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("arrival", pa.float64()),
        ("values", pa.string()),
        ("stats", pa.string()),
    ]
)
"""Files that a task has written into the lake: of which table, its path below the table's folder, how many bytes and
rows, of which records of the log, the greatest arrival, the values of its partition and Delta's statistics in JSON."""

FORMS = {
    "publications": PUBLICATIONS,
    "all": ALL,
    "lake": LAKE,
    "records": RECORDS,
    "matches": MATCHES,
    "files": FILES,
}
"""What the source gives, by its option `give`."""

_SPARK_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    _TIMESTAMP: "timestamp",
}


def ddl(schema: pa.Schema) -> str:
    """The same schema in the words of Spark."""
    return ", ".join(f"{field.name} {_spark_type(field.type)}" for field in schema)


def _spark_type(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return f"map<{_spark_type(kind.key_type)},{_spark_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{_spark_type(kind.value_type)}>"
    return _SPARK_TYPES[kind]
