"""Matching and state as functions of the log: the engine's answers, however the log is cut into batches and slices."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from engine_logs import SETTINGS, begins, ends, readings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit import in_order
from test_engine_model import History, histories, log_of

from spinney import Label, Mark, parse
from spinney_cloud.engine import Engine
from spinney_cloud.log_reader import Message
from spinney_cloud.notes import MATCHER, Notes
from spinney_cloud.pipeline.duplicates import Duplicates, Windows
from spinney_cloud.pipeline.matching import FOR_STATE, LOG_HAS_COME, MATCHED, MatchedSlice
from spinney_cloud.pipeline.notify import notes_of
from spinney_cloud.pipeline.scan import Slice
from spinney_cloud.pipeline.source import Reading
from spinney_cloud.pipeline.state import SHARDS, Happening, Limits, Moment, Shard, run
from spinney_cloud.pipeline.state_spark import TOLD, encode_said, rows_of
from spinney_cloud.pipeline.subscriptions import Subscriptions
from spinney_cloud.records import Announced, Record, RowLabel, SubscriptionChange, Tick, Unpublish, encode
from spinney_cloud.subscriptions import form_of

Log = list[tuple[Record, int, float]]
WINDOWS = Windows(SETTINGS.log.duplicate_window, SETTINGS.log.content_window)


def on_pipeline(record: Record) -> Record:
    if isinstance(record, SubscriptionChange) and record.value is not None:
        return replace(record, value={**record.value, "options": {"on": "pipeline"}})
    return record


class Kept(dict[str, bytes]):
    """What Spark's state store is to a shard."""

    def put(self, name: str, data: bytes) -> None:
        self[name] = data

    def remove(self, name: str) -> None:
        self.pop(name, None)


class Pipeline:
    """What the query does, without Spark and NATS."""

    def __init__(self, log: Log) -> None:
        self.log = [(on_pipeline(record), sequence, time) for record, sequence, time in log]
        self.after, self.arrival = 0, 0.0
        self.standing = Subscriptions()
        self.kept = [Kept() for _ in range(SHARDS)]
        self.wakes: list[dict[str, float]] = [{} for _ in range(SHARDS)]
        self.duplicates = Duplicates(WINDOWS)

    def batch(self, cuts: list[int]) -> list[Notes]:
        """The records up to the last of these; each cut ends a slice."""
        matching = self.standing.copy()
        after = self.after
        out: list[Any] = []
        for cut in cuts:
            slice_ = MatchedSlice(matching.copy(), Slice(after, cut, self.arrival, cut - after, {}, {}, 0))
            for record, sequence, time in self.log[after:cut]:
                message = Message(sequence, time, "", encode(record))
                seen = self.duplicates.apply(message)
                self.arrival = self.duplicates.arrival
                slice_.take(Reading(message, self.arrival, seen.repeated, seen.late))
                matching.apply(record, sequence, self.arrival)
            slice_.end()
            out += slice_.give().to_pylist()
            after = cut
        rows = [row for row in out if row["kind"] == MATCHED]
        for number in range(SHARDS):
            rows += self.shard(number, [row for row in out if row["shard"] == number])
        self.standing, self.after = matching, after
        return notes_of(
            pa.Table.from_pylist([{k: row[k] for k in ("kind", "at", "time", "data")} for row in rows], SCHEMA)
        )

    def shard(self, number: int, rows: list[Any]) -> list[Any]:
        ends = [row for row in rows if row["kind"] == LOG_HAS_COME]
        happens = [Happening(r["at"], r["time"], rows_of(r["data"])) for r in rows if r["kind"] == FOR_STATE]
        happens += [Happening(at, time, None) for row in ends for at, time in orjson.loads(row["data"])["control"]]
        shard = Shard(
            number, self.kept[number], self.wakes[number], self.after, self.standing.copy(), self.first_at,
            Limits(SETTINGS.matching.valid_kept, SETTINGS.log.max_age),
        )  # fmt: skip
        end = max(Moment(row["at"], row["time"]) for row in ends)
        run(shard, happens, lambda sequence: self.log[sequence - 1][0], end)
        return [{"kind": TOLD, "at": one.at, "time": one.time, "data": encode_said(one)} for one in shard.said]

    def first_at(self, wake: float) -> Moment:
        return next(Moment(sequence, time) for _, sequence, time in self.log if time >= wake)


SCHEMA = pa.schema([("kind", pa.string()), ("at", pa.int64()), ("time", pa.float64()), ("data", pa.binary())])


def engine_says(log: Log) -> list[Notes]:
    engine = Engine(SETTINGS)
    told = [each for record, sequence, time in log for each in engine.apply(record, sequence, time)]
    assert engine.damaged == 0, engine.damage
    return told


def check_log(history: History, *ends: int) -> list[tuple[Any, ...]]:
    """In batches up to these records and the last; what both say."""
    log = log_of(history)
    pipeline, told = Pipeline(log), list[Notes]()
    for end in (*ends, len(log)):
        told += pipeline.batch([end])
    assert in_order(told) == in_order(engine_says(log))
    return in_order(told)


def check(history: History, seed: int) -> None:
    log = log_of(history)
    random_ = random.Random(seed)
    pipeline, told = Pipeline(log), list[Notes]()
    while pipeline.after < len(log):
        ends = random_.sample(range(pipeline.after + 1, len(log) + 1), k=1)
        slices = sorted({*ends, *random_.sample(range(pipeline.after + 1, ends[0] + 1), k=1)})
        told += pipeline.batch(slices)
    assert in_order(told) == in_order(engine_says(log))


def test_what_is_due_happens_at_the_first_record_that_is_late_enough() -> None:
    begin = (0.0, begins("s1", "TOP 1 OVER 5s BY x"))
    rows = [(1.0, readings("m1", 1, {"x": 1})), (1.0, readings("m1", 2, {"x": 2}))]
    said = check_log([begin, *rows, (4.5, Tick()), (9.0, Tick())])
    assert [(at, time) for at, _, time, *_ in said] == [(2, 101.0), (4, 106.5)]


def test_what_is_due_is_not_forgotten_between_batches() -> None:
    begin = (0.0, begins("s1", "TOP 1 OVER 5s BY x"))
    rows = [(1.0, readings("m1", 1, {"x": 1})), (1.0, readings("m1", 2, {"x": 2}))]
    assert len(check_log([begin, *rows, (1.0, Tick()), (3.5, Tick())], 2, 3, 4)) == 2


@pytest.mark.parametrize("scope", ["", " EACH room", " ONCE"])
def test_a_source_that_is_announced_no_longer_is_lost(scope: str) -> None:
    begin = (0.0, begins("s1", {"text": f"WHEN x > 2 UNTIL x <= 2{scope}", "lost": 5}))
    enter = (1.0, readings("m1", 1, {"x": 3, "room": "a"}))
    over, again = (1.0, Announced("default", ("m1",), True)), (1.0, Announced("default", ("m1",), False))
    assert len(check_log([begin, enter, over, (9.0, Tick())], 2)) == 2
    assert len(check_log([begin, enter, over, again, (9.0, Tick())], 2)) == 1
    assert len(check_log([begin, over, enter, (9.0, Tick())], 2)) == 2


@pytest.mark.parametrize(
    "source", ["WHEN x > 2 UNTIL x <= 2", "WHEN x > 2 UNTIL x <= 2 ONCE", "TOP 1 OVER 9s BY x EACH room"]
)
def test_a_subscription_that_begins_again_begins_empty(source: str) -> None:
    again = [(1.0, ends("s1")), (1.0, begins("s1", source))]
    enter = [(1.0, readings("m1", number, {"x": 3, "room": "a"})) for number in (1, 2)]
    history = [(0.0, begins("s1", source)), enter[0], *again, enter[1], (20.0, Tick())]
    assert len(check_log(history)) == len(check_log(history, 2, 3)) >= 2


def test_a_subscription_that_has_ended_is_due_no_more() -> None:
    begin, other = (0.0, begins("s1", "TOP 1 OVER 5s BY x EACH room")), (0.0, begins("s2", "TOP 1 OVER 5s BY x"))
    rows = [(1.0, readings("m1", number, {"x": number, "room": "a"})) for number in (1, 2)]
    said = check_log([begin, other, *rows, (1.0, ends("s1")), (3.5, Tick())], 4)
    assert len(said) == 3


def test_a_label_may_speak_of_other_sources() -> None:
    source = "WHEN x > 2 UNTIL x <= 2"
    digest = form_of(parse(source)).digest
    label = Label(Mark("m1", (1, 1, 1), True, None), (Mark("m2", (1, 1, 2), True, None),))
    record = readings("m1", 1, {"x": 3}, epoch=1, labels=[RowLabel(0, digest, label)])
    off = Label(Mark("m2", (1, 1, 1), False, None))
    heard = readings("m2", 1, {"x": 1}, epoch=1, labels=[RowLabel(0, digest, off)])
    assert len(check_log([(0.0, begins("s1", source)), (1.0, heard), (2.0, record)])) == 2
    assert len(check_log([(0.0, heard), (1.0, begins("s1", source)), (2.0, record)])) == 1, "it began later (rule R3)"


def test_silent_labels_come_after_all_rows() -> None:
    source = "WHEN x > 2 UNTIL x <= 2 ONCE"
    digest = form_of(parse(source)).digest
    silent = RowLabel(None, digest, Label(Mark("m1", (1, 1, 2), False, None), (), True))
    set_ = RowLabel(0, digest, Label(Mark("m1", (1, 1, 1), True, None)))
    record = readings("m1", 1, {"x": 3}, {"x": 3}, epoch=1, labels=[set_, silent])
    log = log_of([(0.0, begins("s1", source)), (0.0, begins("s2", "x > 0")), (1.0, record)])
    said = [replace(each, by=MATCHER) for each in Pipeline(log).batch([3])]
    assert said == engine_says(log), "in the engine's order"
    assert [note.why for note in said[0].notes] == ["match", "enter", "match", "exit"]


def test_what_is_put_in_order_is_so_among_all_sources() -> None:
    """Rule S5: what another source's has overtaken is too late, and told at once."""
    begin = (0.0, begins("s1", {"text": "WHEN x > 2 UNTIL x <= 2", "reorder": 5}))
    first = (1.0, readings("m1", 1, {"x": 3, "time": 200}))
    late, in_time = readings("m2", 1, {"x": 3, "time": 100}), readings("m3", 1, {"x": 3, "time": 300})
    said = check_log([begin, first, (9.0, Tick()), (1.0, late), (1.0, in_time), (9.0, Tick())], 3, 4)
    assert [at for at, *_ in said] == [3, 4, 6]


def test_a_new_content_subscription_gets_what_is_valid() -> None:
    valid = [(1.0, readings("m1", number, {"x": number, "valid_for": 50})) for number in (1, 2, 3)]
    over = (1.0, Unpublish("default", "m1", "m1:1:2"))
    early = (0.5, Unpublish("default", "m1", "m1:1:3"))
    said = check_log([valid[0], valid[1], over, early, valid[2], (1.0, begins("s1", "x > 0"))], 2, 3)
    assert len(said) == 1
    assert not check_log([valid[0], (60.0, begins("s1", "x > 0"))], 1)


def test_subscriptions_of_the_broker_are_none_of_ours() -> None:
    marked = on_pipeline(begins("s1", "x > 0"))
    assert isinstance(marked, SubscriptionChange)
    assert marked.value is not None
    plain = begins("s2", "x > 0")
    subscriptions, engine = Subscriptions(), Engine(SETTINGS)
    for sequence, record in enumerate([marked, plain], 1):
        subscriptions.apply(record, sequence, 1.0)
        engine.apply(record, sequence, 1.0)
    assert set(subscriptions.tenant("default").standing) == {marked.key}
    assert engine.tenants["default"].all_keys() == [plain.key]
    subscriptions.apply(replace(marked, value={**marked.value, "options": {"on": "broker"}}), 3, 1.0)
    engine.apply(replace(plain, value={**(plain.value or {}), "options": {"on": "pipeline"}}), 3, 1.0)
    assert len(subscriptions) == 0
    assert engine.tenants["default"].all_keys() == []


COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@settings(max_examples=150, **COMMON)
@given(histories, st.integers(0, 99))
def test_the_pipeline_says_what_the_engine_says(history: History, seed: int) -> None:
    check(history, seed)


@pytest.mark.soak
@settings(max_examples=5000, **COMMON)
@given(histories, st.integers(0, 9999))
def test_the_pipeline_says_what_the_engine_says_of_many_logs(history: History, seed: int) -> None:
    check(history, seed)
