"""`spinney bench spark`: matching in Spark's executors, next to the hop to Python alone and to Spark's own join."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import random
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it

from spinney import parse
from spinney_cloud.names import LOG, log_subject
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.pipeline.direct_get import DirectGet, LogServer
from spinney_cloud.pipeline.matching import match_frame, pruned_columns, standing_filters
from spinney_cloud.pipeline.session import session, stop
from spinney_cloud.pipeline.source import register
from spinney_cloud.pipeline.subscriptions import Where, at
from spinney_cloud.records import SubscriptionChange, encode
from spinney_cloud.subscriptions import StoredSubscription, form_of

from .machine import describe
from .matching import WrongAnswer
from .pipeline_log import TYPES, endpoints, fill, log_server
from .table import Table, number

SUBSCRIPTIONS = 10_000
RECORDS, ROWS = 20_000, 100
FRAME_RECORDS = 16_000
"""Of these, as many as a frame of Spark's is made of."""
SAMPLE = 20_000
"""Readings that are joined: more would take too long."""
ROUNDS = 3
HOP, FUSED, JOIN = 1.2, 1_000_000, 50.0
"""At most; readings a second, at least; times, at least."""
PLACE = ("log_seq", "log_row")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """One subscription: readings of a type, above a value, within a box."""

    type: str
    above: float
    south: float
    west: float

    @property
    def text(self) -> str:
        """As its owner writes it."""
        box = f"lat BETWEEN {self.south} AND {self.north} AND long BETWEEN {self.west} AND {self.east}"
        return f"type = '{self.type}' AND value > {self.above} AND {box}"

    @property
    def north(self) -> float:
        return round(self.south + 0.004, 6)

    @property
    def east(self) -> float:
        return round(self.west + 0.01, 6)


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    @property
    def hop(self) -> float:
        """Of the time of the empty hop."""
        return float(self.figures["match_seconds"] / self.figures["hop_seconds"])

    @property
    def join(self) -> float:
        """How many times as fast as Spark's own join of readings in memory: from the log on."""
        return float(self.figures["fused_per_s"] / self.figures["join_per_s"])

    @property
    def frame_join(self) -> float:
        """The same, of the same readings in memory."""
        return float(self.figures["match_per_s"] / self.figures["join_per_s"])

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        found = []
        if self.hop > HOP:
            found.append(f"matching takes {self.hop:.2f} times the time of the empty hop, not {HOP:g}")
        if self.figures["fused_per_s"] < FUSED:
            found.append(f"{self.figures['fused_per_s']:,.0f} readings a second fused into the read, not {FUSED:,}")
        if self.join < JOIN:
            found.append(f"matching from the log is {self.join:.0f} times as fast as Spark's join, not {JOIN:g}")
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {
            **self.figures,
            "hop": self.hop,
            "join": self.join,
            "frame_join": self.frame_join,
            "missed": self.missed(),
        }


def asked() -> list[Asked]:
    """All subscriptions; what they watch is rare, as it mostly is."""
    chance = random.Random(3)  # noqa: S311  # subscriptions are no secret
    return [
        Asked(
            chance.choice(TYPES),
            round(chance.uniform(95, 100), 2),
            round(chance.uniform(45.75, 45.85), 6),
            round(chance.uniform(15.85, 16.10), 6),
        )
        for _ in range(SUBSCRIPTIONS)
    ]


def measure(progress: Progress) -> Measurement:
    """All three, in one session."""
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder, log_server() as url:
        where = Where(LogServer(url), str(Path(folder) / "lake"))
        progress(f"{SUBSCRIPTIONS:,} subscriptions and {RECORDS * ROWS:,} readings into the log")
        _subscribe(url)
        fill(url, RECORDS, ROWS)
        spark = session("bench", Path(folder), heap="2g")
        try:
            register(spark)
            figures = _fused(spark, where, progress) | _hop(spark, where, progress)
        finally:
            stop(spark)
    return Measurement({**figures, "load": os.getloadavg()[0]})


def _subscribe(url: str) -> None:
    async def put() -> None:
        async with await NatsLog.connect(endpoints(url), name="bench") as log:
            writer = log.writer(LOG)
            for place, one in enumerate(asked()):
                await writer.put(log_subject("subscription", "default"), encode(_change(place, one)))
            await writer.drain()

    asyncio.run(put())


def _change(place: int, one: Asked) -> SubscriptionChange:
    form = form_of(parse(one.text))
    stored = StoredSubscription(
        tenant="default",
        owner="bench",
        sid=f"s{place}",
        source=one.text,
        start=0,
        created=0.0,
        kind=form.kind,
        normal=form.normal,
        digest=form.digest,
        program=form.program,
        options={"on": "pipeline"},
    )
    return SubscriptionChange(stored.tenant, stored.key, stored.to_json())


def _best(what: Callable[[], Any]) -> tuple[float, Any]:
    """The shortest time, once it is warm, and the answer."""
    what()
    best, answer = float("inf"), None
    for _ in range(ROUNDS):
        began = time.perf_counter()
        answer = what()
        best = min(best, time.perf_counter() - began)
    return best, answer


def _fused(spark: SparkSession, where: Where, progress: Progress) -> dict[str, Any]:
    """From the log to what subscribers are told, in Spark."""
    progress("matching within the source's read")
    options: dict[str, Any] = {**where.server.options(), "give": "matches", "lake": where.lake, "after": SUBSCRIPTIONS}
    frame = spark.read.format("spinney").options(**options).load()
    seconds, _ = _best(lambda: frame.write.format("noop").mode("overwrite").save())
    return {"readings": RECORDS * ROWS, "subscriptions": SUBSCRIPTIONS, "fused_per_s": RECORDS * ROWS / seconds}


def _hop(spark: SparkSession, where: Where, progress: Progress) -> dict[str, Any]:
    """Of readings that are in Spark already."""
    with DirectGet(where.server.endpoints()) as log:
        last = log.bounds(LOG).last
    filters = standing_filters(at(where, last), "default")
    options: dict[str, Any] = {**where.server.options(), "after": SUBSCRIPTIONS, "upto": SUBSCRIPTIONS + FRAME_RECORDS}
    whole = spark.read.format("spinney").options(**options).load()
    names = ("type", "lat", "long", "numbers", "texts", "flags")
    frame = whole.select(*PLACE, *names).persist()
    rows = frame.count()
    empty = frame.select(*PLACE, *pruned_columns(filters)).mapInArrow(_nothing, "log_seq bigint")
    progress("the empty hop")
    hop, _ = _best(empty.count)
    progress("the hop with matching")
    match, found = _best(match_frame(frame, filters).count)
    progress(f"Spark's own join of {SAMPLE:,} readings")
    sample = frame.limit(SAMPLE).repartition(2).persist()
    count = sample.count()
    join, joined = _best(_joined(spark, sample).count)
    if (matched := match_frame(sample, filters).count()) != joined:
        raise WrongAnswer(f"Spark's join finds {joined:,} matches of the sample, the core {matched:,}")
    return {
        "rows": rows,
        "matches": found,
        "hop_seconds": hop,
        "match_seconds": match,
        "match_per_s": rows / match,
        "join_per_s": count / join,
    }


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.slice(0, 0).select(["log_seq"])


def _joined(spark: SparkSession, sample: DataFrame) -> DataFrame:
    """The same predicates, as Spark would have them."""
    columns = ("of", "above", "south", "north", "west", "east")
    rows = [(one.type, one.above, one.south, one.north, one.west, one.east) for one in asked()]
    subscriptions = F.broadcast(spark.createDataFrame(rows, list(columns)))
    within = F.col("lat").between(F.col("south"), F.col("north")) & F.col("long").between(F.col("west"), F.col("east"))
    above = F.col("numbers")["value"] > F.col("above")
    return sample.join(subscriptions, (F.col("type") == F.col("of")) & above & within)


def table(found: Measurement) -> Table:
    """One row for each question."""
    f = found.figures
    what = f"{f['subscriptions']:,} subscriptions"
    rows = (
        (
            f"{what}: C matching, next to the empty mapInArrow hop, of {f['rows']:,} readings",
            f"{f['match_seconds']:.2f} s",
            f"{f['hop_seconds']:.2f} s",
            f"{found.hop:.2f} times",
        ),
        (
            f"{what}: readings a second from the log, matched in the source's read, next to Spark's own broadcast join",
            number(f["fused_per_s"]),
            number(f["join_per_s"]),
            f"{found.join:.0f} times",
        ),
        (
            f"{what}: readings a second of a frame in memory, matched by mapInArrow, next to the same join",
            number(f["match_per_s"]),
            number(f["join_per_s"]),
            f"{found.frame_join:.0f} times",
        ),
    )
    machine = describe(*(f"{name} {importlib.metadata.version(name)}" for name in ("pyspark", "pyarrow")))
    return Table("spark", machine, ("what", "first", "second", "difference"), rows)
