"""`spinney bench source`: the source in Arrow batches next to tuples."""

from __future__ import annotations

import importlib.metadata
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from spinney_cloud.names import UNIT_SUFFIX
from spinney_cloud.pipeline.decode import cell_of
from spinney_cloud.pipeline.direct_get import connection
from spinney_cloud.pipeline.row_groups import rows_of
from spinney_cloud.pipeline.schema import COLUMNS, PUBLICATIONS, ddl
from spinney_cloud.pipeline.session import session, stop
from spinney_cloud.pipeline.source import LogBatchReader, Options, readings, register
from spinney_cloud.records import Publications, RecordError, decode

from .machine import describe
from .matching import WrongAnswer
from .pipeline_log import fill, log_server
from .table import Table, number

RECORDS, ROWS = 16_000, 100
ROUNDS = 3
FASTER = 5.0
"""Arrow than tuples, at least."""

_ELSEWHERE = frozenset({"id", "source", *COLUMNS})
"""Attributes that are columns of their own."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    @property
    def ratio(self) -> float:
        """How much faster Arrow is."""
        return float(self.figures["arrow_per_s"] / self.figures["tuples_per_s"])

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        return [f"Arrow is {self.ratio:.2f} times as fast as tuples, not {FASTER:g}"] if self.ratio < FASTER else []

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**self.figures, "ratio": self.ratio, "missed": self.missed()}


class TupleReader(LogBatchReader):
    """The same readings as Python's tuples, which Spark makes into rows: as quick as they are made without columns."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for message, arrival, repeated, _, known in readings(connection(self.options.server), partition.value):
            record = decode(message.data) if known is None else known
            if isinstance(record, Publications):
                yield from _tuples(record, message.sequence, arrival, repeated)


def _tuples(record: Publications, sequence: int, arrival: float, repeated: Any) -> Iterator[tuple[Any, ...]]:
    received, at = datetime.fromtimestamp(record.received, UTC), datetime.fromtimestamp(arrival, UTC)
    rows = rows_of(record)
    place = -1
    for run in record.runs:
        for step in range(run.length):
            place += 1
            if place in repeated:
                continue
            row = rows[place]
            lat, long = row.get("lat"), row.get("long")
            yield (
                row["id"],
                run.source,
                run.boot,
                run.first + step,
                row.get("time"),
                row.get("type"),
                lat,
                long,
                cell_of(lat, long),
                record.tenant,
                run.client,
                run.epoch,
                received,
                at,
                arrival,
                sequence,
                place,
                *_maps(row),
            )


def _maps(row: dict[str, Any]) -> tuple[dict[str, float], dict[str, str], dict[str, bool], dict[str, str]]:
    """Numbers, texts, flags and units, in one go through the attributes."""
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    flags: dict[str, bool] = {}
    units: dict[str, str] = {}
    for name, value in row.items():
        kind = value.__class__
        if name in _ELSEWHERE:
            continue
        if kind is float or kind is int:
            numbers[name] = float(value)
        elif kind is str:
            texts[name] = value
            if name.endswith(UNIT_SUFFIX) and name.removesuffix(UNIT_SUFFIX) in row:
                units[name.removesuffix(UNIT_SUFFIX)] = value
        elif kind is bool:
            flags[name] = value
        elif value is not None:
            raise RecordError(f"{name}: a value is a number, a string or a boolean, not {kind.__name__}")
    return numbers, texts, flags, units


class TupleSource(DataSource):
    """The format `spinney_tuples`."""

    @classmethod
    def name(cls) -> str:
        return "spinney_tuples"

    def schema(self) -> str:
        return ddl(PUBLICATIONS)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002  # there is but one
        return TupleReader(Options.read(self.options))


def measure(progress: Progress) -> Measurement:
    """Throughput of both, in turn."""
    from . import pipeline_source as importable  # what is registered is looked up by its module's name

    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        spark = session("bench", Path(folder))
        try:
            register(spark)
            spark.dataSource.register(importable.TupleSource)
            with log_server() as url:
                return Measurement(_throughput(spark, url, progress))
        finally:
            stop(spark)


def _throughput(spark: SparkSession, url: str, progress: Progress) -> dict[str, Any]:
    progress(f"{RECORDS * ROWS:,} readings into the log")
    fill(url, RECORDS, ROWS)
    best = {(name, way): 0.0 for name in ("spinney", "spinney_tuples") for way in (_count, _copy)}
    for turn in range(ROUNDS + 1):
        for name, way in best:
            progress(f"reading them as {name}" if turn else f"warming up {name}")
            began = time.perf_counter()
            way(spark.read.format(name).option("url", url).load())
            speed = RECORDS * ROWS / (time.perf_counter() - began)
            best[name, way] = max(best[name, way], speed) if turn else 0.0
    return {
        "readings": RECORDS * ROWS,
        "arrow_per_s": best["spinney", _count],
        "tuples_per_s": best["spinney_tuples", _count],
        "arrow_copied_per_s": best["spinney", _copy],
        "tuples_copied_per_s": best["spinney_tuples", _copy],
    }


def _count(frame: DataFrame) -> None:
    """All columns of all rows come to Spark, which does as little with them as it can."""
    if frame.count() != RECORDS * ROWS:
        raise WrongAnswer("Spark has not counted as many readings as there are")


def _copy(frame: DataFrame) -> None:
    """Spark's own sink for benchmarks, which copies every row once more."""
    frame.write.format("noop").mode("overwrite").save()


def table(found: Measurement) -> Table:
    """One row for each question."""
    f = found.figures
    rows = (
        (
            "readings a second from the log into Spark, counted there: Arrow batches, tuples",
            number(f["arrow_per_s"]),
            number(f["tuples_per_s"]),
            f"{found.ratio:.1f} times",
        ),
        (
            "the same into Spark's sink for benchmarks, which copies each row once more",
            number(f["arrow_copied_per_s"]),
            number(f["tuples_copied_per_s"]),
            f"{f['arrow_copied_per_s'] / f['tuples_copied_per_s']:.1f} times",
        ),
    )
    machine = describe(*(f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "pyarrow")))
    return Table("source", machine, ("what", "first", "second", "difference"), rows)
