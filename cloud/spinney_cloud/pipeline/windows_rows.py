"""Readings summed up by Spark: for each window, type, cell and attribute that has a number."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from ..density import Density
from .lake import Lake
from .schema import CELL_RESOLUTION

AHEAD_SECONDS = 60.0
"""A sensor's clock that is further ahead of the log's is not believed."""
KEPT_SECONDS = 7 * 86_400.0
"""A reading that comes later than this after its time is in no window."""
QUANTILES = {"p05": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}

SERIES = ("tenant", "type", "cell", "attribute")
KEY = (*SERIES, "start")
DATA = pa.schema(
    [
        *((name, pa.string()) for name in SERIES),
        ("start", pa.int64()),
        ("count", pa.int64()),
        ("mean", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        *((name, pa.float64()) for name in QUANTILES),
        ("last", pa.float64()),
        ("sources", pa.int64()),
        ("late", pa.int64()),
        ("log_seq", pa.int64()),
        ("coverage", pa.float64()),
    ]
)
"""Of what is summed up. `start` is in epoch seconds."""

_CELL_BITS = 3
_RESOLUTION_AT = 52
"""In an H3 index four bits say the resolution, and below them three for each step say which child; unused ones: 7."""


class Place(NamedTuple):
    """Where late readings belong."""

    tenant: str
    type: str
    cell: str
    start: int


class Task(NamedTuple):
    """Which windows of one length are to be summed up, and from what."""

    length: int
    since: int
    """Windows that begin from here on..."""
    until: int
    """...and end by here..."""
    late: frozenset[Place]
    """...and these, which are over for longer."""
    upto: int
    """Of readings up to this record of the log."""
    delay: float
    resolution: int
    wanted: Mapping[str | None, Density]


def event_time() -> Column:
    """The sample's time; the log's where there is none, or none to be believed."""
    time, arrival = F.col("time"), F.col("arrival")
    return F.coalesce(F.when(time <= arrival + AHEAD_SECONDS, time), arrival)


def parent(cell: Column, resolution: int) -> Column:
    """The cell of this resolution that holds a cell of the lake, as H3 has it; empty for none."""
    index = F.conv(cell, 16, 10).cast("bigint")
    unused = (1 << _CELL_BITS * (15 - resolution)) - 1
    index = index.bitwiseAND(F.lit(~(15 << _RESOLUTION_AT))).bitwiseOR(F.lit(resolution << _RESOLUTION_AT | unused))
    return F.coalesce(F.lower(F.hex(index)), F.lit(""))


def summed(spark: SparkSession, lake: Lake, task: Task) -> pa.Table:
    """The windows of a task that have readings."""
    rows = _rows(spark, lake, task)
    found = rows.groupBy(*KEY).agg(
        F.count("value").alias("count"),
        F.avg("value").alias("mean"),
        F.min("value").alias("min"),
        F.max("value").alias("max"),
        F.percentile("value", F.array(*map(F.lit, QUANTILES.values()))).alias("quantiles"),
        F.max_by("value", F.struct("event", "log_seq", "log_row")).alias("last"),
        F.count_distinct("source").alias("sources"),
        F.count_if(F.col("arrival") >= F.col("start") + task.length + task.delay).alias("late"),
        F.max("log_seq").alias("log_seq"),
    )
    quantiles = [F.col("quantiles")[at].alias(name) for at, name in enumerate(QUANTILES)]
    found = found.select("*", *quantiles).drop("quantiles")
    if task.wanted:
        found = found.join(_coverage(rows, task), [*KEY], "left")
    else:
        found = found.withColumn("coverage", F.lit(None).cast("double"))
    table = found.select(*DATA.names).toArrow()
    return table.cast(DATA)


def whole_from(lake: Lake) -> float:
    """Windows that begin from here on have all their readings in the lake, as far as it had them ever."""
    day = lake.removed_before()
    if day is None:
        return -math.inf
    return dt.datetime.combine(day, dt.time(), dt.UTC).timestamp() + AHEAD_SECONDS


def _rows(spark: SparkSession, lake: Lake, task: Task) -> DataFrame:
    """A row for each number of a reading that lies in the windows."""
    begin = min([task.since, *(place.start for place in task.late)])
    arrived = (ds.field("date") >= _date(begin)) & (ds.field("arrival") >= begin - AHEAD_SECONDS)
    frame = lake.frame(spark, columns=_COLUMNS, where=arrived & (ds.field("log_seq") <= task.upto))
    whole = whole_from(lake)  # of this version, or a newer one: days may go at any time
    frame = frame.where(F.col("log_seq") <= task.upto).withColumn("event", event_time())
    frame = frame.where((F.col("event") >= F.col("arrival") - KEPT_SECONDS) & (F.col("event") < task.until))
    fresh = _from(frame, task.since).where(F.col("event") >= task.since)
    rows = _placed(fresh, task)
    if task.late:
        places = pa.Table.from_pylist([place._asdict() for place in sorted(task.late)])
        earlier = _from(frame, begin).where(F.col("event") < task.since)
        again = F.broadcast(spark.createDataFrame(places))
        rows = rows.unionByName(_placed(earlier, task).join(again, [*Place._fields], "left_semi"))
    rows = rows.where(F.col("start") >= whole)
    return rows.select(*Place._fields, *_READING, F.explode("numbers").alias("attribute", "value"))


_READING = ("source", "event", "arrival", "log_seq", "log_row")
_COLUMNS = ("tenant", "type", "cell", "numbers", "source", "time", "arrival", "log_seq", "log_row", "date")


def _from(frame: DataFrame, start: int) -> DataFrame:
    """What may be of this time: nothing arrives before its time, but for clocks that are ahead."""
    return frame.where((F.col("date") >= F.lit(_date(start))) & (F.col("arrival") >= start - AHEAD_SECONDS))


def _date(start: float) -> dt.date:
    return dt.datetime.fromtimestamp(max(start - AHEAD_SECONDS, 0.0), dt.UTC).date()


def _placed(frame: DataFrame, task: Task) -> DataFrame:
    start = F.floor(F.col("event") / task.length) * task.length
    cell = (
        F.coalesce("cell", F.lit("")) if task.resolution == CELL_RESOLUTION else parent(F.col("cell"), task.resolution)
    )
    return frame.select(
        "tenant",
        F.coalesce("type", F.lit("")).alias("type"),
        cell.alias("cell"),
        start.alias("start"),
        "numbers",
        *_READING,
    )


def _coverage(rows: DataFrame, task: Task) -> DataFrame:
    """Which part of the readings that were asked for there is: over the window's slots, how many of the sources."""
    slots, expected = [], []
    for kind, density in task.wanted.items():
        seconds = min(density.every_seconds, task.length)
        sources = density.per_cell * 7.0 ** (density.cell - task.resolution)
        slots.append((kind, seconds))
        expected.append((kind, sources * seconds / density.every_seconds))
    slot, needed = _by_type(slots), _by_type(expected)
    heard = (
        rows.where(slot.isNotNull())
        .groupBy(*KEY, F.floor((F.col("event") - F.col("start")) / slot).alias("slot"))
        .agg(F.least(F.lit(1.0), F.count_distinct("source") / needed).alias("share"))
    )
    return heard.groupBy(*KEY).agg(
        F.least(F.lit(1.0), F.sum("share") / F.first(F.lit(task.length) / slot)).alias("coverage")
    )


def is_wanted(task: Task, kind: str) -> bool:
    """Whether anybody asks for readings of this type."""
    return kind in task.wanted or None in task.wanted


def _by_type(values: list[tuple[str | None, float]]) -> Column:
    """The value of a row's type; that of None for all that have none of their own."""
    known = {kind: value for kind, value in values if kind is not None}
    rest = F.lit(dict(values).get(None)).cast("double")
    if not known:
        return rest
    pairs = [part for kind, value in known.items() for part in (F.lit(kind), F.lit(float(value)))]
    return F.coalesce(F.create_map(*pairs)[F.col("type")], rest)
