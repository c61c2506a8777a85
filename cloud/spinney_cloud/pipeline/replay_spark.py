"""The rows of a replay, read by Spark: for more of the lake than one process should go through.

Spark chooses the matches (columns.py) and sorts them; they come to the driver a batch at a time, in the log's order.
What pyarrow's way leaves to the engine, and tells it the numbers of all other readings for, is done before: what is
late is left out.
"""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from spinney import StateSubscription, TopKSubscription

from .columns import compile_filter, where
from .columns_bounds import implied
from .lake import LOG_RECORDS, Lake
from .replay_rows import ATTRIBUTES, NO_ROW, NUMBERS, Wanted, days, times, within
from .schema import LABELS

BATCH_ROWS = 10_000
"""That come to the driver together; besides, Spark has one partition there."""
_PAYLOAD = [name for name in ATTRIBUTES if name != "source"] + [LABELS]
_ORDER = ("log_seq", "log_row")


def spark_tables(spark: SparkSession, lake: Lake, wanted: Wanted) -> Iterator[pa.Table]:
    """As replay_rows.tables, with no more of what does not match than the times of records, where they count."""
    frame = _range(lake.frame(spark, where=_pushed(wanted)), wanted)
    found = _examined(frame, wanted) if wanted.drops_late else _matching(frame, wanted)
    found = found.select(*NUMBERS, *_PAYLOAD, F.lit(True).alias("hit"))
    if _times_count(lake, wanted):
        found = found.unionByName(_times(frame), allowMissingColumns=True)
    yield from _in_order(found)


def _pushed(wanted: Wanted) -> Any:
    """What of it pyarrow can say, for lakes that Spark does not read by itself."""
    first, last = wanted.days()
    found = (ds.field("date") >= first) & (ds.field("date") <= last) & times(wanted)
    if wanted.all_records:
        return found
    bounds = implied(wanted.feed, ds.field)
    mine = ds.field("tenant") == wanted.tenant
    return found & mine if bounds is None else found & mine & bounds


def _range(frame: DataFrame, wanted: Wanted) -> DataFrame:
    first, last = wanted.days()
    found = frame.where(F.col("date").between(F.lit(first), F.lit(last)))
    found = found.where((F.col("arrival") >= wanted.since) & (F.col("arrival") < wanted.until))
    return found if wanted.before is None else found.where(F.col("log_seq") < wanted.before)


def _matching(frame: DataFrame, wanted: Wanted) -> DataFrame:
    mine = frame.where(F.col("tenant") == wanted.tenant)
    if wanted.digest is None:
        return where(mine, wanted.feed)
    return mine.where(compile_filter(wanted.feed).column | _labelled(wanted.digest))


def _labelled(digest: str) -> Column:
    return F.coalesce(F.col(LABELS).contains(digest), F.lit(False))


def _examined(frame: DataFrame, wanted: Wanted) -> DataFrame:
    """The matches that are not late: older than what came of their source before, whether that matched or not."""
    assert wanted.digest is not None
    mine = frame.where(F.col("tenant") == wanted.tenant)
    labelled = _labelled(wanted.digest)
    hit = F.coalesce(compile_filter(wanted.feed).column, F.lit(False)) | labelled
    narrow = mine.select(*NUMBERS, hit.alias("hit"), *(F.when(hit, F.col(name)).alias(name) for name in _PAYLOAD))
    before = Window.partitionBy("source").orderBy(*_ORDER).rowsBetween(Window.unboundedPreceding, -1)
    number = F.struct("boot", "sequence")
    late = F.coalesce(number < F.max(number).over(before), F.lit(False))
    return narrow.withColumn("late", late).where(F.col("hit") & (~F.col("late") | labelled))


def _times_count(lake: Lake, wanted: Wanted) -> bool:
    """Whether anything may fall due between matches (rule I3): windows, what is held back, sources that are lost."""
    match wanted.subscription:
        case TopKSubscription(seconds=seconds):
            return seconds is not None
        case StateSubscription(reorder=reorder):
            return bool(reorder) or _is_anybody_away(lake, wanted)
    return False


def _is_anybody_away(lake: Lake, wanted: Wanted) -> bool:
    data = lake.dataset(LOG_RECORDS)
    over = pc.match_substring(ds.field("record"), '"over":true')
    return any(
        data.head(1, columns=["log_seq"], filter=within(wanted, day.date) & over).num_rows
        for day in days(lake, wanted, LOG_RECORDS)
    )


def _times(frame: DataFrame) -> DataFrame:
    """A row for each record."""
    records = frame.groupBy("log_seq").agg(F.min("arrival").alias("arrival"))
    return records.withColumn("log_row", F.lit(NO_ROW))


def _in_order(rows: DataFrame) -> Iterator[pa.Table]:
    """Sorted, no record in two parts."""
    packed = rows.sort(*_ORDER).mapInArrow(_pack, "batch binary")
    left: pa.Table | None = None
    for row in packed.toLocalIterator(prefetchPartitions=True):
        with pa.ipc.open_stream(pa.py_buffer(row.batch)) as stream:
            table = stream.read_all()
        table = table if left is None else pa.concat_tables([left, table])
        last = pc.equal(table["log_seq"], table["log_seq"][-1])
        newest = table.filter(last)
        if newest.num_rows < table.num_rows:
            yield table.filter(pc.invert(last))
        left = newest
    if left is not None:
        yield left


def _pack(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each batch as one value, so that it stays one on its way to the driver."""
    for batch in batches:
        if batch.num_rows:
            out: Any = pa.BufferOutputStream()
            with pa.ipc.new_stream(out, batch.schema) as stream:
                stream.write_batch(batch)
            yield pa.record_batch({"batch": pa.array([out.getvalue().to_pybytes()], pa.binary())})
