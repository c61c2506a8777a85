"""The source `spinney`: what of the log it gives, in which batches, from where on; the same each time."""

from __future__ import annotations

import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit import TENANT, city, direct, expected_ids, make_log, messages, publications, purge, put, server_of
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from servers import NatsServer

from spinney_cloud.log_reader import Message
from spinney_cloud.names import LOG, log_subject
from spinney_cloud.pipeline import direct_get
from spinney_cloud.pipeline import duplicates as duplicates_module
from spinney_cloud.pipeline import scan as scan_module
from spinney_cloud.pipeline import spans as spans_module
from spinney_cloud.pipeline.direct_get import DirectGet
from spinney_cloud.pipeline.duplicates import SKEW_SECONDS, Duplicates, Windows
from spinney_cloud.pipeline.scan import Limits, LogReplaced, LogTrimmed, Scan, Slice
from spinney_cloud.pipeline.source import (
    LogBatchReader,
    LogSource,
    LogStreamReader,
    OptionError,
    Options,
    RecordsMissing,
    batches,
    readings,
)
from spinney_cloud.pipeline.spans import ALONE, LOOKING, Past, Span, _ends
from spinney_cloud.records import Publications, Run, SubscriptionChange, Tick, decode, encode

CHANGE = SubscriptionChange(TENANT, "0001.default.me.s", None)


def frame(spark: SparkSession, nats: NatsServer, **options: Any) -> DataFrame:
    return spark.read.format("spinney").options(**server_of(nats).options(), **options).load()


def reader(nats: NatsServer, **options: Any) -> LogStreamReader:
    """As Spark has it in the process that plans."""
    return LogStreamReader(Options.read({**server_of(nats).options(), **{k: str(v) for k, v in options.items()}}))


def stream(spark: SparkSession, nats: NatsServer, checkpoint: Path, **options: Any) -> list[list[str]]:
    """The ids of each batch until now, in order, by a query that begins or goes on at a checkpoint."""
    found: list[list[str]] = []

    def take(batch: DataFrame, _number: int) -> None:
        found.append(batch.select("id").toArrow()["id"].to_pylist())

    loaded = spark.readStream.format("spinney").options(**server_of(nats).options(), **options).load()
    query = loaded.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return found


def read_slices(nats: NatsServer, source: LogStreamReader, start: dict[str, int], end: dict[str, int]) -> list[str]:
    """What all tasks of a batch give, together."""
    with direct(nats) as log:
        return [
            id
            for part in source.partitions(start, end)
            for id in read_part(log, pickle.loads(pickle.dumps(part)).value)
        ]


def read_part(log: DirectGet, part: Slice | Span) -> list[str]:
    return [id for batch in batches(log, part, "publications") for id in batch["id"].to_pylist()]


def walk(nats: NatsServer, source: LogStreamReader, start: dict[str, int]) -> list[tuple[dict[str, int], list[str]]]:
    """The batches of a stream until now: end offset, ids."""
    found = []
    while (end := source.latestOffset(start, source.getDefaultReadLimit())) != start:
        found.append((end, read_slices(nats, source, start, end)))
        start = end
    return found


# ---- in Spark


def test_a_batch_and_a_stream_give_the_log_without_duplicates(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    put(nats, [*city(40), Tick(), CHANGE, *city(10), *city(20, first=40)])
    wanted = expected_ids(messages(nats))
    assert len(wanted) == 60 * 20
    table = frame(spark, nats, partitions=3).toArrow()
    assert table["id"].to_pylist() == wanted
    first = stream(spark, nats, tmp_path / "checkpoint", max_rows=300)
    assert [id for batch in first for id in batch] == wanted
    assert max(map(len, first)) <= 320
    put(nats, city(5, first=55))
    put(nats, city(5, first=60))
    later = stream(spark, nats, tmp_path / "checkpoint")
    assert [id for batch in later for id in batch] == expected_ids(messages(nats))[len(wanted) :]


def test_a_new_attribute_comes_through_a_running_stream(spark: SparkSession, nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    loaded = spark.readStream.format("spinney").options(**server_of(nats).options()).load()
    seen: list[dict[str, Any]] = []

    def take(batch: DataFrame, _number: int) -> None:
        seen.extend(batch.select("id", "numbers", "texts").toArrow().to_pylist())

    query = loaded.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    put(nats, [publications("m", 0, [{"old": 1}])])
    query.processAllAvailable()
    put(nats, [publications("m", 1, [{"old": "now a text", "new": 2}])])
    query.processAllAvailable()
    query.stop()
    assert seen == [
        {"id": "m:1:0", "numbers": [("old", 1.0)], "texts": []},
        {"id": "m:1:1", "numbers": [("new", 2.0)], "texts": [("old", "now a text")]},
    ]


def test_bad_rows_are_among_all_and_not_among_publications(spark: SparkSession, nats: NatsServer) -> None:
    make_log(nats)
    put(nats, [*city(2), b"junk", *city(1, first=2)])
    assert frame(spark, nats).count() == 60
    dead = frame(spark, nats, give="all").where("reason IS NOT NULL").select("log_seq", "reason", "raw").collect()
    assert [(row.log_seq, row.raw) for row in dead] == [(3, "junk")]
    assert "damaged record" in dead[0].reason


def test_records_are_given_as_they_are(spark: SparkSession, nats: NatsServer) -> None:
    make_log(nats)
    put(nats, [*city(1), Tick(), CHANGE])
    found = frame(spark, nats, give="records").collect()
    assert [(row.log_seq, row.kind, bytes(row.data)) for row in found] == [
        (1, "publications", encode(city(1)[0])),
        (2, "tick", encode(Tick())),
        (3, "subscription", encode(CHANGE)),
    ]


def test_an_option_that_will_not_do_is_named(spark: SparkSession, nats: NatsServer) -> None:
    with pytest.raises(PySparkException, match="option max_rows: 'many' will not do; expected: a whole number from 1"):
        frame(spark, nats, max_rows="many")


# ---- options


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_rows", "0"), ("max_bytes", "-1"), ("partitions", "x"), ("give", "more"), ("after", "newest"),
     ("upto", "1.5"), ("duplicate_window", "0"), ("content_window", "nan"), ("on_trimmed", "maybe")],
)  # fmt: skip
def test_options_are_checked(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=name):
        Options.read({"url": "nats://127.0.0.1", name: value})


def test_options_have_defaults_and_go_to_the_tasks_without_secrets(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("s3cret")
    options = Options.read({"url": "nats://h:1", "user": "me", "password_file": str(tmp_path / "password")})
    assert (options.after, options.limits, options.windows) == ("earliest", Limits(200_000, 64 * 1024**2), Windows())
    assert b"s3cret" not in pickle.dumps(LogStreamReader(options))
    assert LogSource.name() == "spinney"


def test_the_source_says_that_it_needs_an_address() -> None:
    with pytest.raises(Exception, match="needs the option url"):
        Options.read({})


# ---- admission


def test_batches_are_bounded_by_rows_and_by_bytes(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(50, rows=20))
    size = len(messages(nats)[0].data)
    by_rows = walk(nats, reader(nats, max_rows=100), {"seq": 0, "subs": 0})
    assert [end["seq"] for end, _ in by_rows] == list(range(5, 51, 5))
    by_bytes = walk(nats, reader(nats, max_bytes=int(9.5 * size)), {"seq": 0, "subs": 0})
    assert {len(ids) for _, ids in by_bytes[:-1]} <= {180, 200, 220}
    one_by_one = walk(nats, reader(nats, max_rows=1), {"seq": 0, "subs": 0})
    assert [len(ids) for _, ids in one_by_one] == [20] * 50  # a record is never cut


def test_available_now_ends_where_the_log_was_and_everything_is_everything(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(10))
    source = reader(nats, max_rows=20)
    source.prepareForTriggerAvailableNow()
    put(nats, city(10, first=10))
    assert walk(nats, source, {"seq": 0, "subs": 0})[-1][0]["seq"] == 10
    assert reader(nats, max_rows=20).latestOffset({"seq": 0, "subs": 0}, ReadAllAvailable())["seq"] == 20
    assert isinstance(source.getDefaultReadLimit(), ReadMaxRows)
    assert source.reportLatestOffset()["seq"] == 20


def test_partitions_are_ranges_of_about_as_many_rows(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "MIN_ROWS", 50)
    make_log(nats)
    put(nats, [*city(10, rows=1), *city(10, rows=40, first=10)])
    parts = [
        part.value for part in reader(nats, partitions=4).partitions({"seq": 0, "subs": 0}, {"seq": 20, "subs": 0})
    ]
    assert [(part.after, part.upto) for part in parts] == [(0, 13), (13, 16), (16, 19), (19, 20)]
    assert [part.records for part in parts] == [13, 3, 3, 1]
    assert len(reader(nats).partitions({"seq": 20, "subs": 0}, {"seq": 20, "subs": 0})) == 0


def test_a_log_longer_than_what_is_remembered_is_planned_in_pieces(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In more parts than are worth looking back for; so do a stream's batches."""
    monkeypatch.setattr(scan_module, "MAX_KEPT", 7)
    monkeypatch.setattr(spans_module, "MIN_BYTES", 1)
    make_log(nats)
    put(nats, [*city(20), Tick(), *city(4), Tick()])
    options = Options.read({**server_of(nats).options(), "partitions": "20"})
    with direct(nats) as log:
        parts = [part.value for part in LogBatchReader(options).partitions()]
        assert [(part.after, part.upto) for part in parts] == [(0, 7), (7, 14), (14, 21), (21, 26)]
        found = [id for part in parts for id in read_part(log, part)]
    assert found == expected_ids(messages(nats))
    streamed = walk(nats, reader(nats), {"seq": 0, "subs": 0})
    assert [end["seq"] for end, _ in streamed] == [7, 14, 21, 26]


@pytest.mark.parametrize("window", [3600.0, 1e-9])
def test_tasks_of_a_batch_find_out_by_themselves_what_are_duplicates(
    nats: NatsServer, monkeypatch: pytest.MonkeyPatch, window: float
) -> None:
    """As a stream's tasks are told it: of what came before their part, too, and of no more than the windows."""
    monkeypatch.setattr(spans_module, "MIN_BYTES", 1)
    monkeypatch.setattr(duplicates_module, "SKEW_SECONDS", 0.0)
    make_log(nats)
    random_ = random.Random(7)
    put(nats, [CHANGE, *(random_.choice(city(12)) for _ in range(60)), Tick(), CHANGE])
    given = {"partitions": "3", "duplicate_window": str(window), "content_window": str(window), "after": "2"}
    parts = [part.value for part in LogBatchReader(Options.read(server_of(nats).options() | given)).partitions()]
    assert [type(part) for part in parts] == [Span] * 3
    assert [parts[0].after, *(part.upto for part in parts)] == [2, *(part.after for part in parts[1:]), 63]
    with direct(nats) as log:
        found = [read_part(log, part) for part in parts]
        planned = [slice_ for part in parts for slice_ in Scan(log, parts[0].windows).slices(part.after, part.upto, 1)]
        assert found == [read_part(log, slice_) for slice_ in planned]
    before, whole = (expected_ids(messages(nats, 1, last), (window, window)) for last in (2, 63))
    assert [id for ids in found for id in ids] == whole[len(before) :]
    assert (len(set(whole)) < len(whole)) == (window < 1.0)


def test_a_short_log_is_read_by_one_task_and_an_empty_one_by_none(nats: NatsServer) -> None:
    make_log(nats)
    options = Options.read(server_of(nats).options())
    assert LogBatchReader(options).partitions() == []
    put(nats, city(30))
    assert [part.value[:2] for part in LogBatchReader(options).partitions()] == [(0, 30)]
    assert LogBatchReader(options._replace(after=30)).partitions() == []
    put(nats, [publications("m", at, [{"text": "x" * 500_000}]) for at in range(8)])
    assert len(LogBatchReader(options).partitions()) == 2


@given(st.integers(1, 10**9), st.integers(1, 200), st.builds(Past, st.integers(0, 10**9), st.integers(0, 10**9)))
def test_parts_take_about_as_long_each_or_a_plan_is_less_work(records: int, parts: int, past: Past) -> None:
    ends = _ends(records, parts, past)
    even = sum(past.of(records * part / parts) for part in range(parts))
    plan = ALONE * (records + past.of(0))
    if ends is None:
        assert even > plan * 0.9 - parts
        return
    assert parts == 1 or even <= plan * 1.1 + parts
    assert [0, *(end for _, end in ends)] == [*(begin for begin, _ in ends), records]
    costs = [end - begin + LOOKING * past.of(begin) for begin, end in ends]
    assert len(ends) < parts or max(costs) - min(costs) <= 3


# ---- offsets


def test_where_a_stream_begins(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, [CHANGE, *city(5), CHANGE, *city(5, first=5)])
    purge(nats, 2)
    assert reader(nats).initialOffset() == {"seq": 2, "subs": 0}  # what changed before is purged
    assert reader(nats, after="latest").initialOffset() == {"seq": 12, "subs": 7}
    assert reader(nats, after=6).initialOffset() == {"seq": 6, "subs": 0}
    assert reader(nats, after=9).initialOffset() == {"seq": 9, "subs": 7}


def test_the_version_of_the_subscriptions_moves_with_the_readings_and_never_alone(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, [CHANGE])
    source = reader(nats)
    start = source.initialOffset()
    assert start == {"seq": 0, "subs": 0}
    limit = source.getDefaultReadLimit()
    assert source.latestOffset(start, limit) == start  # no batch without a reading
    put(nats, [Tick(), *city(1)])
    end = source.latestOffset(start, limit)
    assert end == {"seq": 3, "subs": 1}
    put(nats, [CHANGE, Tick()])
    assert source.latestOffset(end, limit) == end
    put(nats, city(1, first=1))
    assert source.latestOffset(end, limit) == {"seq": 6, "subs": 4}
    assert reader(nats).latestOffset(end, limit) == {"seq": 6, "subs": 4}  # after a restart, the same


def test_a_range_gives_the_same_however_it_is_reached(nats: NatsServer) -> None:
    """From the beginning, after a restart, planned twice, and again after later batches."""
    make_log(nats)
    random_ = random.Random(5)
    put(nats, [random_.choice(city(12)) for _ in range(120)])
    source = reader(nats, max_rows=200)
    walked = walk(nats, source, {"seq": 0, "subs": 0})
    assert [id for _, ids in walked for id in ids] == expected_ids(messages(nats))
    assert len({id for _, ids in walked for id in ids}) == 12 * 20
    start = {"seq": 0, "subs": 0}
    for end, ids in walked:
        assert read_slices(nats, reader(nats), start, end) == ids
        assert read_slices(nats, source, start, end) == ids  # it is beyond that
        start = end


# ---- what may be wrong with the log


def test_a_log_trimmed_below_the_checkpoint_stops_the_stream_and_says_what_is_missing(
    spark: SparkSession, nats: NatsServer, tmp_path: Path
) -> None:
    make_log(nats)
    put(nats, city(10))
    stream(spark, nats, tmp_path / "checkpoint")
    put(nats, city(20, first=10))
    purge(nats, 25)
    with pytest.raises(PySparkException, match="records 11 to 25 were purged unread") as caught:
        stream(spark, nats, tmp_path / "checkpoint")
    assert "on_trimmed=skip" in str(caught.value)
    skipped = stream(spark, nats, tmp_path / "checkpoint", on_trimmed="skip")
    assert [id for batch in skipped for id in batch] == expected_ids(messages(nats))


def test_records_that_go_between_planning_and_reading_are_missed(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(10))
    source = reader(nats)
    (part,) = source.partitions({"seq": 0, "subs": 0}, {"seq": 10, "subs": 0})
    purge(nats, 4)
    with direct(nats) as log, pytest.raises(RecordsMissing, match="of the 10 records from 1 to 10 the log has 6 only"):
        list(batches(log, part.value, "publications"))


@pytest.mark.parametrize(("gone", "said"), [(3, "1 to 3"), (10, "1 to 10")])
def test_records_that_go_before_a_batch_is_read_are_missed(nats: NatsServer, gone: int, said: str) -> None:
    make_log(nats)
    put(nats, city(10))
    options = Options.read(server_of(nats).options())
    (part,) = LogBatchReader(options).partitions()
    purge(nats, gone)
    with direct(nats) as log:
        with pytest.raises(RecordsMissing, match=f"records {said} were purged before they were read"):
            list(batches(log, part.value, "publications"))
        skipping = part.value._replace(skip_trimmed=True)
        assert read_part(log, skipping) == expected_ids(messages(nats))
    with pytest.raises(LogTrimmed, match=f"records {said} were purged unread"):
        LogBatchReader(options._replace(after=0)).partitions()
    left = [part.value[:2] for part in LogBatchReader(options._replace(after=0, skip_trimmed=True)).partitions()]
    assert left == ([] if gone == 10 else [(gone, 10)])


def test_records_that_go_while_a_batch_is_read_are_missed(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the newest, and what was asked for already."""
    monkeypatch.setattr(direct_get, "BATCH", 2)
    make_log(nats)
    put(nats, city(12))
    (part,) = LogBatchReader(Options.read(server_of(nats).options())).partitions()
    with direct(nats) as log:
        found = readings(log, part.value)
        assert next(found).message.sequence == 1
        purge(nats, 12)
        with pytest.raises(RecordsMissing, match=r"records \d+ to 12 were purged before they were read"):
            list(found)


def test_records_that_go_while_the_stream_runs_stop_it(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(4))
    source = reader(nats)
    start = source.latestOffset({"seq": 0, "subs": 0}, source.getDefaultReadLimit())
    put(nats, city(6, first=4))
    purge(nats, 8)
    with pytest.raises(LogTrimmed, match="records 5 to 8"):
        source.latestOffset(start, source.getDefaultReadLimit())


def test_another_log_is_noticed_at_the_start_and_on_the_way(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(4))
    with direct(nats) as log:
        with pytest.raises(LogReplaced, match="ends at record 4, but the pipeline has read up to 50"):
            Scan(log).forward(50, Limits())
        now = [0.0]
        scan = Scan(log, clock=lambda: now[0])
        assert scan.forward(0, Limits()) == 4
        nats.kill()
        shutil.rmtree(nats.folder / "store")
        nats.start()
        make_log(nats)
        now[0] += 10
        with pytest.raises(LogReplaced):
            scan.forward(4, Limits())


# ---- duplicates: the engine's rule, from any place on

SOURCES = ("a", "b")
SUBJECT = log_subject("publications", TENANT)


@st.composite
def logs(draw: st.DrawFn) -> list[Message]:
    """A log of few sources and numbers, so that much comes again; its clock steps, also back."""
    found, time = [], 1_000_000.0
    for sequence in range(1, draw(st.integers(2, 25)) + 1):
        time += draw(st.sampled_from([0.0, 1.0, 30.0, 400.0, 2_000.0, 3_600.0, 5_000.0, -SKEW_SECONDS / 4]))
        runs, rows = [], []
        for _ in range(draw(st.integers(0, 2))):
            source, numbered = draw(st.sampled_from(SOURCES)), draw(st.integers(0, 1))
            first, length, boot = draw(st.integers(0, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 2))
            runs.append(Run(source, boot, first, length, "kit", None, numbered))
            rows += [
                {"id": f"{source}:{boot}:{first + at}", "source": source, "v": draw(st.integers(0, 2))}
                for at in range(length)
            ]
        record = Publications(draw(st.sampled_from(["default", "other"])), 0.0, tuple(runs), orjson.dumps(rows))
        found.append(Message(sequence, time, SUBJECT, encode(record)))
    return found


@settings(max_examples=300)
@given(logs(), st.data())
def test_who_begins_in_the_middle_says_the_same_as_who_has_read_it_all(log: list[Message], data: st.DataObject) -> None:
    windows = Windows(3_600.0, 60.0)
    whole = Duplicates(windows)
    wanted = [whole.apply(message) for message in log]
    middle = data.draw(st.integers(1, len(log)))
    now = log[middle - 1].time
    since = next(at for at, message in enumerate(log) if message.time >= now - windows.lookback)
    late = Duplicates(windows)
    for message in log[since:middle]:
        late.remember(message, now)
    found = [late.apply(message)._replace(late=()) for message in log[middle:]]  # that needs all of a source's past
    assert found == [seen._replace(late=()) for seen in wanted[middle:]]


@pytest.mark.parametrize("set_back", [0.0, SKEW_SECONDS - 2.0])
def test_a_reading_of_nearly_w_ago_is_known_to_who_begins_now(set_back: float) -> None:
    """Also where the log's clock was set back meanwhile: its time then stands still until it has caught up."""
    windows = Windows(3_600.0, 60.0)
    data = encode(publications("m", 0, [{"a": 1}]))
    times = [1e6, 1e6 + 3_599.0, 1e6 + 3_599.0 - set_back, 1e6 + 3_599.5 - set_back]
    log = [Message(at, time, SUBJECT, data if at in (1, 4) else encode(Tick())) for at, time in enumerate(times, 1)]
    now = log[2].time
    late = Duplicates(windows)
    for message in log[:3]:
        if message.time >= now - windows.lookback:
            late.remember(message, now)
    assert late.apply(log[3]).repeated == (0,)


@given(logs())
def test_duplicates_are_those_of_the_engine(log: list[Message]) -> None:
    found = Duplicates(Windows(3_600.0, 60.0))
    ids: list[str] = []
    all_rows = 0
    for message in log:
        seen = found.apply(message)
        record = decode(message.data)
        assert isinstance(record, Publications)
        ids += [str(id) for place, id in enumerate(record.ids()) if place not in seen.repeated]
        all_rows += seen.rows
    assert ids == expected_ids(log)
    assert found.duplicates == all_rows - len(ids)


def test_the_lookback_goes_to_the_right_place(nats: NatsServer) -> None:
    """A log longer than W: what is older than W is not read again."""
    make_log(nats)
    put(nats, city(300, rows=1))
    with direct(nats) as log:
        times = [message.time for message in log.range(LOG, 1, 300)]
        scan = Scan(log)
        for wanted in (0, 1, 150, 299):
            assert scan._since(times[wanted], 1, 300) == times.index(times[wanted]) + 1
