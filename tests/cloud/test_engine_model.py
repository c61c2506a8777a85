"""The engine against a naive reader of the log; and the engine that is killed against the one that is not."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import orjson
import pytest
from engine_logs import SETTINGS, NaiveReader, begins, ends, joined, readings, through_bytes, whole
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinney import Label, Mark, parse
from spinney_cloud.engine import Engine
from spinney_cloud.notes import Notes, encode
from spinney_cloud.records import Announced, Publications, Record, RowLabel, SubscriptionChange, Tick, Unpublish
from spinney_cloud.subscriptions import form_of

POOL: list[str | dict[str, Any]] = [
    "x > 2",
    "x > 1 AND room = 'a'",
    "type LIKE 'air/%'",
    "TRUE",
    "WHEN x > 3 UNTIL x < 2",
    "WHEN x > 2 UNTIL x <= 2 EACH room",
    "WHEN x > 2 UNTIL x <= 2 ONCE",
    {"text": "WHEN x > 2 UNTIL x <= 2 EACH room", "lost": 5},
    {"text": "WHEN x > 2 UNTIL x <= 2 EACH room", "reorder": 4},
    {"text": "WHEN x > 2 UNTIL x <= 2 ONCE", "reorder": 3, "lost": 4},
    {"text": "WHEN x > 2 UNTIL x <= 2", "debounce": 2},
    {"text": "WHEN x > 2 UNTIL x <= 2", "dead_band": {"attribute": "x", "by": 2}},
    "WHEN x > 1 UNTIL y > 0 EACH room",
    "WHEN x > 2 UNTIL x > 2",
    "TOP 2 OVER 5s BY x DESC WHERE y > 0 EACH room",
    "TOP 2 OVER 8s BY x",
    "TOP 2 OVER LAST 4 BY x",
]
SOURCES = ("m1", "m2", "plain")
SIDS = ("s1", "s2", "s3", "s4", "s5")
DIGESTS = [form_of(parse(source)).digest for source in POOL if "WHEN" in str(source)]

values = st.fixed_dictionaries(
    {},
    optional={
        "x": st.sampled_from([0, 1, 2, 3, 4, 5.5, "x"]),
        "y": st.sampled_from([0, 1]),
        "room": st.sampled_from(["a", "b", True, 1]),
        "time": st.integers(0, 20),
        "type": st.sampled_from(["air/no2", "water"]),
        "valid_for": st.sampled_from([0, 3, 1000]),
    },
)


@st.composite
def runs(draw: st.DrawFn) -> Any:
    """Of one source: the numbers overlap, so that there are duplicates, late ones and gaps; the gateway's do not."""
    source = draw(st.sampled_from(SOURCES))
    rows = draw(st.lists(values, min_size=1, max_size=4))
    owned = source != "plain"
    epoch = draw(st.sampled_from([None, 1, 2])) if owned else None
    numbered = 0 if source == "plain" else 1
    first, boot = draw(st.integers(1, 12 if numbered else 10**9)), draw(st.sampled_from([1, 1, 1, 2]))
    labels = []
    for _ in range(draw(st.integers(0, 1)) if epoch else 0):
        row = draw(st.one_of(st.none(), st.integers(0, len(rows) - 1)))
        bit = draw(st.booleans())
        mark = Mark(
            source, (epoch or 0, boot, first + (row or 0)), bit, draw(st.sampled_from(["a", "b"])) if bit else None
        )
        others = (Mark("m2", (1, 1, 1), True, "a"),) if draw(st.integers(0, 3)) == 0 else ()
        labels.append(RowLabel(row, draw(st.sampled_from(DIGESTS)), Label(mark, others, row is None)))
    tenant = draw(st.sampled_from(["default", "default", "default", "other"]))
    return readings(source, first, *rows, boot=boot, epoch=epoch, numbered=numbered, labels=labels, tenant=tenant)


@st.composite
def changes(draw: st.DrawFn) -> SubscriptionChange:
    sid = draw(st.sampled_from(SIDS))
    tenant = draw(st.sampled_from(["default", "default", "other"]))
    if draw(st.integers(0, 5)) == 0:
        return ends(sid, tenant=tenant)
    return begins(sid, draw(st.sampled_from(POOL)), tenant=tenant, enabled=draw(st.integers(0, 7)) > 0)


records: st.SearchStrategy[Record] = st.one_of(
    runs(),
    runs(),
    runs(),
    st.tuples(runs(), runs()).map(lambda two: joined(two[0], two[1])),
    changes(),
    changes(),
    st.just(Tick()),
    st.builds(Unpublish, st.just("default"), st.just("m1"), st.integers(1, 9).map(lambda n: f"m1:1:{n}")),
    st.builds(
        Announced,
        st.just("default"),
        st.lists(st.sampled_from(SOURCES), min_size=1, max_size=2).map(tuple),
        st.booleans(),
    ),
)
steps = st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0, -1.0, 40.0])
histories = st.lists(st.tuples(steps, records), min_size=10, max_size=60)
History = list[tuple[float, Record]]


def log_of(history: History) -> list[tuple[Record, int, float]]:
    """With sequences and times; the epochs of a source only grow, since the gateway refuses a former owner."""
    time, out = 100.0, []
    epochs: dict[tuple[str, str], int] = {}
    for sequence, (step, record) in enumerate(history, 1):
        time += step
        if isinstance(record, Publications):
            record = in_order(record, epochs)
        out.append((through_bytes(record), sequence, time))
    return out


def in_order(record: Publications, epochs: dict[tuple[str, str], int]) -> Publications:
    runs = []
    for run in record.runs:
        key = (record.tenant, run.source)
        if run.epoch is not None:
            epochs[key] = max(run.epoch, epochs.get(key, 0))
            run = run._replace(epoch=epochs[key])
        runs.append(run)
    owners = {run.source: run.epoch for run in runs}
    labels = tuple(
        one._replace(label=replace(one.label, mark=one.label.mark.owned(owners[one.label.mark.source] or 0)))
        for one in record.labels
    )
    return replace(record, runs=tuple(runs), labels=labels)


def check_against_the_naive_reader(history: History) -> None:
    engine, naive = Engine(SETTINGS), NaiveReader(SETTINGS)
    for record, sequence, time in log_of(history):
        told = engine.apply(record, sequence, time)
        assert engine.damaged == 0, engine.damage
        assert sorted(whole(told), key=str) == naive.apply(record, sequence, time)


class Killed:
    """An engine that is killed and goes on from its newest snapshot; what it says again is compared, not kept."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.engine = Engine(SETTINGS)
        self.subscriptions: dict[str, Any] = {}
        self.kept = self._keep()

    def _keep(self) -> bytes:
        state = {"engine": self.engine.snapshot(), "subscriptions": list(self.subscriptions.items())}
        return orjson.dumps(state, default=tuple)

    def _restart(self) -> None:
        state = orjson.loads(self.kept)
        self.engine = Engine(SETTINGS)
        self.random.shuffle(state["subscriptions"])
        self.subscriptions = dict(state["subscriptions"])
        for key, value in self.subscriptions.items():
            self.engine.begin(key, value)
        self.engine.restore(state["engine"])

    def read(self, log: list[tuple[Record, int, float]]) -> list[list[Notes]]:
        told: list[list[Notes]] = []
        while self.engine.sequence < len(log):
            record, sequence, time = log[self.engine.sequence]
            said = self.engine.apply(record, sequence, time)
            if isinstance(record, SubscriptionChange):
                self.subscriptions.pop(record.key, None)
                if record.value is not None:
                    self.subscriptions[record.key] = record.value
            if sequence <= len(told):
                assert said == told[sequence - 1]
            else:
                told.append(said)
            chance = self.random.random()
            if chance < 0.2:
                self.kept = self._keep()
            elif chance < 0.35:
                self._restart()
        return told


def check_kills(history: History, seed: int) -> None:
    log = log_of(history)
    uninterrupted = Engine(SETTINGS)
    wanted = [uninterrupted.apply(*entry) for entry in log]
    killed = Killed(seed)
    told = killed.read(log)
    assert [list(map(encode, said)) for said in told] == [list(map(encode, said)) for said in wanted]
    assert killed.engine.next_wake() == uninterrupted.next_wake()


quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
long = settings(max_examples=5_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(histories)
def test_the_engine_says_what_a_naive_reader_says(history: History) -> None:
    check_against_the_naive_reader(history)


@quick
@given(histories, st.integers(0, 2**32))
def test_an_engine_that_is_killed_says_what_an_uninterrupted_one_says(history: History, seed: int) -> None:
    check_kills(history, seed)


@pytest.mark.soak
@long
@given(histories)
def test_the_engine_says_what_a_naive_reader_says_at_length(history: History) -> None:
    check_against_the_naive_reader(history)


@pytest.mark.soak
@long
@given(histories, st.integers(0, 2**32))
def test_an_engine_that_is_killed_says_what_an_uninterrupted_one_says_at_length(history: History, seed: int) -> None:
    check_kills(history, seed)
