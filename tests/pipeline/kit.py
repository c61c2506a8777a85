"""What tests of the pipeline share: logs to read, made on a real nats-server, and the answers that the engine gives."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pytest
from pyspark.sql.classic.dataframe import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

sys.path.append(str(Path(__file__).parents[1] / "cloud"))

from engine_logs import begins
from servers import NatsServer

from spinney_cloud.engine import Engine
from spinney_cloud.engine.repeats import Repeats
from spinney_cloud.log_reader import Message
from spinney_cloud.names import LOG, NOTES, log_subject
from spinney_cloud.nats_log import NatsLog, read_range
from spinney_cloud.notes import MATCHER, PIPELINE, Notes
from spinney_cloud.notes import decode as decode_notes
from spinney_cloud.pipeline.direct_get import DirectGet, LogServer
from spinney_cloud.pipeline.running import Part
from spinney_cloud.records import Publications, Record, RecordError, Run, SubscriptionChange, encode, kind_of
from spinney_cloud.records import decode as decode_record
from spinney_cloud.settings import Settings

WAIT_SECONDS = 60.0
FIRST_BATCH_SECONDS = 300.0
"""For what Spark does for the first time, on a machine that is busy."""
TENANT = "default"


def wait_until(holds: Callable[[], object], what: str, seconds: float = WAIT_SECONDS) -> None:
    """Wait for a condition; an error that names it if it does not come."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for: {what}")
        time.sleep(0.01)


def server_of(nats: NatsServer) -> LogServer:
    """As a pipeline is told where the log is."""
    return LogServer(nats.url)


def direct(nats: NatsServer) -> DirectGet:
    """A connection to it."""
    return DirectGet(server_of(nats).endpoints())


def make_log(nats: NatsServer, **log: Any) -> None:
    """The streams of a cloud, empty; the keywords are settings of its section `log`."""

    async def make() -> None:
        async with await NatsLog.connect(nats.endpoints(), name="test") as made:
            await made.ensure(Settings.model_validate({"log": log}))

    asyncio.run(make())


def put(nats: NatsServer, records: Iterable[Record | bytes]) -> int:
    """Append to the log; the sequence of the last."""

    async def write() -> int:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            writer = log.writer(LOG)
            for record in records:
                if isinstance(record, bytes):
                    await writer.put(log_subject("publications", TENANT), record)
                else:
                    await writer.put(log_subject(kind_of(record), record.tenant), encode(record))
            await writer.drain()
            return (await log.state(LOG)).last

    return asyncio.run(write())


def purge(nats: NatsServer, up_to: int) -> None:
    """As the keeper does."""

    async def work() -> None:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            await log.purge(LOG, up_to)

    asyncio.run(work())


def messages(nats: NatsServer, first: int = 1, last: int = 2**60) -> list[Message]:
    """The log, as the cloud's own reader has it."""

    async def read() -> list[Message]:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            upto = min(last, (await log.state(LOG)).last)
            return [one async for some in read_range(log, LOG, first, upto) for one in some]

    return asyncio.run(read())


def publications(
    source: str,
    first: int,
    rows: Sequence[dict[str, Any]],
    *,
    boot: int = 1,
    client: str = "kit",
    numbered: int = 1,
    tenant: str = TENANT,
    received: float = 1_760_000_000.25,
    epoch: int | None = None,
) -> Publications:
    """A record of one run."""
    full = [{"id": f"{source}:{boot}:{first + at}", "source": source, **row} for at, row in enumerate(rows)]
    run = Run(source, boot, first, len(full), client, epoch, numbered)
    return Publications(tenant, received, (run,), orjson.dumps(full))


def air(number: int) -> dict[str, Any]:
    """A reading of the air in Zagreb."""
    place = random.Random(number % 50)
    return {
        "type": ("air/no2", "air/o3")[number % 2],
        "lat": round(45.75 + place.random() / 10, 5),
        "long": round(15.90 + place.random() / 10, 5),
        "time": 1_760_000_000.0 + number,
        "NO2": (number * 37 % 1000) / 10,
        "room": f"room {number % 7}",
        "indoors": number % 3 == 0,
    }


def city(records: int, rows: int = 20, sources: int = 5, first: int = 0) -> list[Publications]:
    """Records of several sources in turn, without a repeat."""
    found = []
    for at in range(first, first + records):
        source, begin = at % sources, at // sources * rows
        found.append(publications(f"m{source}", begin, [air(at * rows + row) for row in range(rows)]))
    return found


def expected_ids(found: Iterable[Message], windows: tuple[float, float] = (3600.0, 60.0)) -> list[str]:
    """The readings of a log that the engine would look at: in order, without duplicates."""
    tenants: dict[str, Repeats] = {}
    arrival, ids = 0.0, []
    for message in found:
        arrival = max(arrival, message.time)
        record = decode_record(message.data)
        if isinstance(record, Publications):
            rows = orjson.loads(record.rows)
            repeats = tenants.setdefault(record.tenant, Repeats(*windows))
            repeated = repeats.examine(record.runs, lambda rows=rows: rows, arrival)[0]
            ids += [str(id) for place, id in enumerate(record.ids()) if place not in repeated]
    return ids


# ---- subscriptions and what they are told


def for_pipeline(sid: str, source: str | dict[str, Any], **others: Any) -> SubscriptionChange:
    """The record by which a subscription begins that is left to the pipeline."""
    record = begins(sid, source, **others)
    return replace(record, value={**(record.value or {}), "options": {"on": "pipeline"}})


def for_broker(record: SubscriptionChange) -> SubscriptionChange:
    """The same without the mark, for the engine."""
    return record if record.value is None else replace(record, value={**record.value, "options": {}})


def told(nats: NatsServer) -> list[Notes]:
    """The pipeline's messages in the notification log, as if they were the matcher's."""
    with direct(nats) as log:
        found = [decode_notes(message.data) for message in log.range(NOTES, 1, log.bounds(NOTES).last)]
    assert all(each.by == PIPELINE for each in found)
    return [replace(each, by=MATCHER) for each in found]


def engine_says(nats: NatsServer, upto: int = 2**60, *, damaged: bool = False) -> list[Notes]:
    """What one engine makes of the log that is never interrupted, had it all subscriptions itself. `damaged`: whether
    there are records in it that nobody can read."""
    engine, found = Engine(Settings()), list[Notes]()
    unread = 0
    for message in messages(nats, last=upto):
        try:
            record = decode_record(message.data)
        except RecordError:
            unread += 1
            continue
        if isinstance(record, SubscriptionChange):
            record = for_broker(record)
        found += engine.apply(record, message.sequence, message.time)
    assert bool(unread + engine.damaged) is damaged, engine.damage
    return found


def in_order(notes: Iterable[Notes]) -> list[tuple[Any, ...]]:
    """All of each notification with its message's place: what falls due at one record has no order of its own."""
    found = []
    for each in notes:
        for note in each.notes:
            publication = None if note.row is None else each.publications[note.row]
            found.append((each.at, each.tenant, each.time, str(note._replace(row=None)), str(publication)))
    return sorted(found)


def stop_at_batch(monkeypatch: pytest.MonkeyPatch, part: Part, moment: str) -> threading.Event:
    """Have a streaming part told to stop while it takes a batch, "before" or "after" that is read; set when it has."""
    read, stopped = DataFrame.toArrow, threading.Event()

    def stop() -> None:
        part.stop()
        stopped.set()

    def tell() -> None:
        threading.Thread(target=stop, daemon=True).start()
        wait_until(lambda: not any(query.isActive for query in active), "Spark stops the query")

    def taken(batch: DataFrame) -> pa.Table:
        active.extend(batch.sparkSession.streams.active)
        monkeypatch.undo()
        if moment == "before":
            tell()
        rows = read(batch)
        if moment == "after":
            tell()
        return rows

    active: list[StreamingQuery] = []
    monkeypatch.setattr(DataFrame, "toArrow", taken)
    return stopped
