"""What the engine promises, rule by rule."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from engine_logs import SETTINGS, begins, brief, ends, joined, readings, through_bytes

from spinney import Label, Mark, parse
from spinney_cloud.engine import Engine, SnapshotError
from spinney_cloud.engine import tenant as tenant_module
from spinney_cloud.engine import told as told_module
from spinney_cloud.engine import valid as valid_module
from spinney_cloud.notes import Notes
from spinney_cloud.records import (
    Announced,
    Publications,
    Record,
    RowLabel,
    Run,
    SubscriptionChange,
    Tick,
    Unpublish,
)
from spinney_cloud.settings import Matching
from spinney_cloud.subscriptions import form_of


class Log:
    """An engine, and the sequence of its next record."""

    def __init__(self, engine: Engine | None = None) -> None:
        self.engine = engine or Engine(SETTINGS)

    def add(self, *records: Record, time: float = 0.0) -> list[tuple[str, str, Any, str]]:
        return brief(self.messages(*records, time=time))

    def messages(self, *records: Record, time: float = 0.0) -> list[Notes]:
        return [
            notes
            for record in records
            for notes in self.engine.apply(through_bytes(record), self.engine.sequence + 1, time)
        ]

    def restarted(self, *subscriptions: SubscriptionChange) -> Log:
        snapshot = orjson.loads(orjson.dumps(self.engine.snapshot(), default=tuple))
        engine = Engine(SETTINGS)
        for change in subscriptions:
            assert change.value is not None
            engine.begin(change.key, change.value)
        engine.restore(snapshot)
        return Log(engine)


def digest(source: str | dict[str, Any]) -> str:
    return form_of(parse(source)).digest


def label(filter_: str, source: str, order: tuple[int, int, int], *, bit: bool | None, row: int | None = 0) -> RowLabel:
    return RowLabel(row, filter_, Label(Mark(source, order, bit), silent=row is None))


# ---- the three kinds


def test_a_content_subscription_gets_every_match_once_with_its_publication() -> None:
    log = Log()
    log.add(begins("hot", "NO2 > 40"))
    (notes,) = log.messages(readings("m", 7, {"NO2": 39}, {"NO2": 41}), time=5.0)
    (note,) = notes.notes
    assert (note.owner, note.sid, note.why, note.row, note.publication_id) == ("ana", "hot", "match", 0, "m:1:8")
    assert notes.publications == ({"id": "m:1:8", "source": "m", "NO2": 41},)
    assert (notes.at, notes.time, notes.part, notes.last) == (2, 5.0, 0, True)


def test_a_publication_is_there_once_for_all_who_hear_of_it() -> None:
    log = Log()
    log.add(begins("a", "NO2 > 40"), begins("b", "NO2 > 40", owner="bob"), begins("c", "WHEN NO2 > 40 UNTIL NO2 < 30"))
    (notes,) = log.messages(readings("m", 1, {"NO2": 41}))
    assert len(notes.publications) == 1
    assert sorted((note.owner, note.sid, note.why, note.row) for note in notes.notes) == [
        ("ana", "a", "match", 0),
        ("ana", "c", "enter", 0),
        ("bob", "b", "match", 0),
    ]


def test_a_topic_is_a_filter_on_type_that_the_index_finds() -> None:
    log = Log()
    log.add(begins("exact", "type = 'air/no2'"), begins("below", "type LIKE 'air/%'"))
    assert sorted(log.add(readings("m", 1, {"type": "air/no2"}, {"type": "air/o3"}, {"type": "water"}))) == [
        ("below", "match", None, "m:1:1"),
        ("below", "match", None, "m:1:2"),
        ("exact", "match", None, "m:1:1"),
    ]
    assert form_of(parse("type = 'air/no2'")).cost == form_of(parse("type LIKE 'air/%'")).cost == "indexed"


def test_equal_subscriptions_that_start_apart_keep_apart_r3() -> None:
    log = Log()
    log.add(begins("early", "WHEN x > 2 UNTIL x <= 2"))
    log.add(readings("m", 1, {"x": 3}))
    log.add(begins("late", "WHEN x > 2 UNTIL x <= 2"))
    assert log.add(readings("m", 2, {"x": 4})) == [("late", "enter", "m", "m:1:2")]


def test_what_is_due_happens_before_a_record_at_the_same_time_i3() -> None:
    log = Log()
    log.add(begins("top", "TOP 1 OVER 10s BY x"))
    log.add(readings("m", 1, {"x": 1}), time=100.0)
    log.add(readings("m", 2, {"x": 5}), time=101.0)
    assert log.engine.next_wake() == 110.0
    assert log.add(begins("other", "x > 99"), time=110.0) == [("top", "top", None, "m:1:2")]


def test_a_tick_lets_happen_what_is_due_for_all_tenants() -> None:
    log = Log()
    for tenant in ("one", "two"):
        log.add(begins("s", {"text": "WHEN x > 2 UNTIL x <= 2", "reorder": 5}, tenant=tenant))
        assert log.add(readings("m", 1, {"x": 3}, tenant=tenant), time=100.0) == []
    messages = log.messages(Tick(), time=105.0)
    assert [(one.tenant, one.part, one.last, one.at) for one in messages] == [("one", 0, False, 5), ("two", 1, True, 5)]
    assert brief(messages) == [("s", "enter", "m", "m:1:1")] * 2


def test_time_never_steps_back_i3() -> None:
    log = Log()
    log.add(begins("hot", "x > 0"))
    first, second = log.messages(readings("m", 1, {"x": 1}), time=100.0) + log.messages(
        readings("m", 2, {"x": 1}), time=90.0
    )
    assert (first.time, second.time) == (100.0, 100.0)


def test_a_tenant_hears_only_of_its_own() -> None:
    log = Log()
    log.add(begins("s", "x > 0", tenant="one"))
    assert log.add(readings("m", 1, {"x": 1}, tenant="two")) == []
    # a number that has been seen in one tenant is news in another
    assert log.add(readings("m", 1, {"x": 1}, tenant="one")) == [("s", "match", None, "m:1:1")]


# ---- beginning, changing, ending


def test_a_subscription_ends_and_is_replaced() -> None:
    log = Log()
    log.add(begins("s", "x > 0"), begins("t", "x > 0"))
    log.add(ends("s"), begins("t", "x > 5"))
    assert log.add(readings("m", 1, {"x": 1}, {"x": 6})) == [("t", "match", None, "m:1:2")]


def test_a_change_that_means_the_same_keeps_the_state() -> None:
    log = Log()
    log.add(begins("s", "WHEN x > 2 UNTIL x <= 2"), readings("m", 1, {"x": 3}))
    log.add(begins("s", "WHEN x > 1 + 1 UNTIL NOT x > 2"))
    assert log.add(readings("m", 2, {"x": 4}, {"x": 0})) == [("s", "exit", "m", "m:1:3")]


def test_a_disabled_subscription_hears_nothing_and_begins_anew_when_enabled() -> None:
    log = Log()
    log.add(begins("s", "WHEN x > 2 UNTIL x <= 2"), readings("m", 1, {"x": 3}))
    log.add(begins("s", "WHEN x > 2 UNTIL x <= 2", enabled=False))
    assert log.add(readings("m", 2, {"x": 0})) == []
    log.add(begins("s", "WHEN x > 2 UNTIL x <= 2"))
    assert log.add(readings("m", 3, {"x": 3})) == [("s", "enter", "m", "m:1:3")]


def test_ended_subscriptions_leave_nothing_that_wakes() -> None:
    log = Log()
    log.add(begins("top", "TOP 1 OVER 10s BY x"), readings("m", 1, {"x": 1}))
    log.add(ends("top"))
    assert log.engine.next_wake() is None
    assert log.add(Tick(), time=1000.0) == []


def test_after_a_gap_in_the_log_it_has_the_subscriptions_of_the_bucket_and_keeps_what_means_the_same() -> None:
    log = Log()
    log.add(begins("stays", "WHEN x > 2 UNTIL x <= 2"), begins("goes", "x > 0"), begins("changes", "x > 0"))
    log.add(readings("m", 1, {"x": 3, "valid_for": 50}))
    bucket = [begins("stays", "WHEN x > 2 UNTIL x <= 2"), begins("changes", "x < 0"), begins("comes", "x = 0")]
    log.engine.become({one.key: one.value for one in bucket if one.value}, 77)
    assert log.engine.sequence == 77
    assert sorted(log.add(readings("m", 2, {"x": 0}))) == [
        ("comes", "match", None, "m:1:2"),
        ("stays", "exit", "m", "m:1:2"),
    ]


# ---- duplicates and lateness


def test_duplicates_go_before_any_evaluation_i2() -> None:
    log = Log()
    log.add(begins("s", "x > 0"), begins("t", "TOP 1 OVER LAST 2 BY x"))
    assert len(log.add(readings("m", 1, {"x": 1}, {"x": 2}))) == 2 + 1
    assert log.add(readings("m", 1, {"x": 1}, {"x": 2})) == []
    assert ("s", "match", None, "m:1:3") in log.add(readings("m", 2, {"x": 2}, {"x": 3}))


def test_equal_readings_without_numbers_are_duplicates_for_a_while_i2() -> None:
    log = Log()
    log.add(begins("s", "x > 0"))
    assert log.add(readings("plain", 1, {"x": 1}, numbered=0), time=100.0) != []
    assert log.add(readings("plain", 2, {"x": 1.0}, numbered=0), time=103.0) == []
    assert log.add(readings("plain", 3, {"x": 1}, numbered=0), time=110.0) != []


def test_late_readings_are_matched_but_not_examined_by_state_filters() -> None:
    log = Log()
    log.add(begins("s", "WHEN x > 2 UNTIL x <= 2"), begins("c", "x <= 2"))
    log.add(readings("m", 5, {"x": 3}))
    assert log.add(readings("m", 4, {"x": 0})) == [("c", "match", None, "m:1:4")]
    assert log.engine.tenants["default"].repeats.late == 1


def test_with_reorder_a_late_reading_is_put_in_s5() -> None:
    log = Log()
    log.add(begins("s", {"text": "WHEN x > 2 UNTIL x <= 2", "reorder": 10}), time=100.0)
    log.add(readings("m", 2, {"x": 0, "time": 2}), readings("m", 1, {"x": 3, "time": 1}), time=100.0)
    assert [told[1] for told in log.add(Tick(), time=111.0)] == ["enter", "exit"]


# ---- validity


def test_a_new_content_subscription_gets_what_is_valid_then_what_comes_l2() -> None:
    log = Log()
    log.add(
        readings("m", 1, {"x": 1, "valid_for": 10}, {"x": 2}, {"x": 3, "valid_for": 20}, {"x": -1, "valid_for": 20})
    )
    assert log.add(begins("s", "x > 0"), time=5.0) == [("s", "match", None, "m:1:1"), ("s", "match", None, "m:1:3")]
    assert log.add(begins("t", "x > 0"), time=10.0) == [("t", "match", None, "m:1:3")]
    assert log.add(begins("t", "0 < x"), time=11.0) == []  # the same, nothing new
    assert sorted(told[0] for told in log.add(readings("m", 5, {"x": 9}), time=12.0)) == ["s", "t"]


def test_state_and_top_k_start_empty_i4() -> None:
    log = Log()
    log.add(readings("m", 1, {"x": 3, "valid_for": 1000}))
    assert log.add(begins("s", "WHEN x > 2 UNTIL x <= 2"), begins("t", "TOP 1 OVER LAST 9 BY x")) == []


def test_validity_is_never_longer_than_the_log_keeps_l1() -> None:
    log = Log()
    log.add(readings("m", 1, {"x": 1, "valid_for": 1e9}))
    assert log.add(begins("s", "x > 0"), time=SETTINGS.log.max_age - 1) != []
    assert log.add(begins("t", "x > 0"), time=SETTINGS.log.max_age) == []


def test_what_is_unpublished_is_not_valid_even_if_that_comes_first_l2() -> None:
    log = Log()
    log.add(readings("m", 1, {"x": 1, "valid_for": 50}), Unpublish("default", "m", "m:1:1"))
    log.add(Unpublish("default", "m", "m:1:2"))
    log.add(readings("m", 2, {"x": 1, "valid_for": 50}), readings("m", 3, {"x": 1, "valid_for": 50}))
    assert log.add(begins("s", "x > 0")) == [("s", "match", None, "m:1:3")]


def test_what_is_kept_as_valid_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_module, "MAX_UNPUBLISHED", 1)
    log = Log(Engine(SETTINGS.model_copy(update={"matching": Matching(valid_kept=2)})))
    log.add(readings("m", 1, *[{"x": 1, "valid_for": 50}] * 3))
    assert [told[3] for told in log.add(begins("s", "x > 0"))] == ["m:1:2", "m:1:3"]
    log.add(Unpublish("default", "m", "a:1:1"), Unpublish("default", "m", "b:1:1"))
    assert log.engine.tenants["default"].valid.dropped == 2


# ---- where a bit is evaluated


TEXT = "WHEN x > 2 UNTIL x <= 2"


def test_labels_tell_what_the_owner_has_evaluated_and_readings_no_more_s2() -> None:
    log = Log()
    log.add(begins("s", TEXT), begins("same", TEXT))
    told = log.add(readings("m", 1, {"x": 3}, epoch=1, labels=[label(digest(TEXT), "m", (1, 1, 1), bit=True)]))
    assert sorted(told) == [("s", "enter", "m", "m:1:1"), ("same", "enter", "m", "m:1:1")]
    # its owner withholds the exit: here nothing may be made of the reading
    assert log.add(readings("m", 2, {"x": 0}, epoch=1)) == []
    assert log.restarted(begins("s", TEXT)).add(readings("m", 3, {"x": 0}, epoch=1)) == []


def test_an_owned_source_is_evaluated_here_until_its_owner_has_labelled_it_s2() -> None:
    log = Log()
    log.add(begins("s", TEXT))
    assert log.add(readings("m", 1, {"x": 3}, epoch=1)) == [("s", "enter", "m", "m:1:1")]
    log.add(readings("m", 2, {"x": 3}, epoch=1, labels=[label(digest(TEXT), "m", (1, 1, 2), bit=True)]))
    assert log.add(readings("m", 3, {"x": 0}, epoch=1)) == []
    # a new owner has not
    assert log.add(readings("m", 4, {"x": 0}, epoch=2)) == [("s", "exit", "m", "m:1:4")]


def test_what_comes_without_an_owner_afterwards_is_evaluated_here_s2() -> None:
    log = Log()
    log.add(begins("s", TEXT))
    log.add(readings("m", 1, {"x": 3}, epoch=7, labels=[label(digest(TEXT), "m", (7, 1, 1), bit=True)]))
    assert log.add(readings("m", 2, {"x": 0})) == [("s", "exit", "m", "m:1:2")]


def test_a_debounced_bit_of_an_owned_source_waits_for_labels_s6() -> None:
    source = {"text": TEXT, "debounce": 2}
    log = Log()
    log.add(begins("s", source))
    rows = ({"x": 3, "time": 0}, {"x": 3, "time": 9})
    assert log.add(readings("m", 1, *rows, epoch=1)) == []
    assert log.add(readings("free", 1, *rows)) == [("s", "enter", "free", "free:1:2")]
    labelled = readings("m", 3, {"x": 3, "time": 10}, epoch=1, labels=[label(digest(source), "m", (1, 1, 3), bit=True)])
    assert log.add(labelled) == [("s", "enter", "m", "m:1:3")]


def test_where_enter_and_exit_overlap_labels_set_the_bit_and_undecided_ones_are_decided_here_s2() -> None:
    text = "WHEN x > 1 UNTIL y > 0"
    log = Log()
    log.add(begins("s", text))

    def sent(sequence: int, row: dict[str, Any], bit: bool | None) -> Any:
        return log.add(
            readings("m", sequence, row, epoch=1, labels=[label(digest(text), "m", (1, 1, sequence), bit=bit)])
        )

    assert sent(1, {"x": 3, "y": 1}, None) == [("s", "enter", "m", "m:1:1")]
    assert sent(2, {"x": 3, "y": 1}, None) == [("s", "exit", "m", "m:1:2")]
    assert sent(3, {"x": 3, "y": 0}, bit=True) == [("s", "enter", "m", "m:1:3")]
    assert log.add(readings("m", 4, {"x": 3, "y": 1}, epoch=1)) == [], "its owner would have labelled it"
    assert sent(5, {"x": 3, "y": 1}, None) == [("s", "exit", "m", "m:1:5")]
    assert sent(6, {"x": 0, "y": 1}, bit=False) == []
    assert sent(7, {"x": 3, "y": 1}, None) == [("s", "enter", "m", "m:1:7")]
    assert sent(4, {"x": 0, "y": 1}, None) == [], "a late one is not examined"


def test_an_undecided_label_without_its_reading_changes_nothing_s2() -> None:
    text = "WHEN x > 1 UNTIL y > 0"
    log = Log()
    log.add(begins("s", text))
    log.add(readings("m", 1, {"x": 3}, epoch=1, labels=[label(digest(text), "m", (1, 1, 1), bit=True)]))
    silent = label(digest(text), "m", (1, 1, 2), bit=None, row=None)
    assert log.add(readings("m", 3, {"z": 0}, epoch=1, labels=[silent])) == []
    told = log.add(readings("m", 4, {"y": 1}, epoch=1, labels=[label(digest(text), "m", (1, 1, 4), bit=False)]))
    assert told == [("s", "exit", "m", "m:1:4")]


def test_filters_that_wait_and_may_overlap_are_evaluated_here_whatever_labels_say_s2() -> None:
    source = {"when": "x > 1", "until": "y > 0", "debounce": 5}
    log = Log()
    log.add(begins("s", source))
    told = log.add(readings("m", 1, {"x": 3, "y": 0, "time": 0}, {"x": 3, "y": 0, "time": 9}, epoch=1, labels=[
        label(digest(source), "m", (1, 1, 1), bit=False)]))  # fmt: skip
    assert told == [("s", "enter", "m", "m:1:2")]


def test_a_silent_label_comes_after_the_rows_of_its_record_s3() -> None:
    log = Log()
    log.add(begins("s", TEXT))
    on = label(digest(TEXT), "m", (1, 1, 1), bit=True)
    off = label(digest(TEXT), "m", (1, 1, 2), bit=False, row=None)
    (notes,) = log.messages(readings("m", 1, {"x": 3}, {}, epoch=1, labels=[off, on]))
    assert [(note.why, note.reason, note.row) for note in notes.notes] == [
        ("enter", None, 0),
        ("exit", "repaired", None),
    ]


def test_labels_of_what_nobody_wants_or_of_rows_that_are_not_there_are_harmless() -> None:
    log = Log()
    log.add(begins("s", TEXT))
    odd = [label("0123456789abcdef", "m", (1, 1, 1), bit=True), label("no digest", "m", (1, 1, 1), bit=True)]
    odd += [
        label(digest(TEXT), "m", (1, 1, 1), bit=True, row=99),
        label(digest(TEXT), "m", (1, 1, 1), bit=True, row=-1),
    ]
    assert log.add(readings("m", 1, {"x": 3}, labels=odd)) == [("s", "enter", "m", "m:1:1")]
    assert log.engine.damaged == 0


# ---- announcements


def test_a_source_is_lost_some_time_after_its_announcement_s4() -> None:
    log = Log()
    log.add(begins("s", {"text": TEXT, "lost": 10}), readings("m", 1, {"x": 3}))
    log.add(Announced("default", ("m",), over=True), time=5.0)
    assert log.engine.next_wake() == 15.0
    (notes,) = log.messages(Tick(), time=15.0)
    assert [(note.why, note.reason) for note in notes.notes] == [("exit", "lost")]


def test_it_is_not_if_it_is_announced_again_s4() -> None:
    log = Log()
    log.add(begins("s", {"text": TEXT, "lost": 10}), readings("m", 1, {"x": 3}))
    log.add(Announced("default", ("m",), over=True), Announced("default", ("m",), over=False), time=5.0)
    assert log.add(Tick(), time=500.0) == []


def test_a_source_first_heard_of_after_its_announcement_is_lost_all_the_same_s4() -> None:
    log = Log()
    log.add(begins("s", {"text": TEXT, "lost": 10}))
    log.add(Announced("default", ("m",), over=True), time=5.0)
    log.add(readings("m", 1, {"x": 3}), time=8.0)
    log = log.restarted(begins("s", {"text": TEXT, "lost": 10}))
    assert log.engine.next_wake() == 15.0
    assert log.add(Tick(), time=15.0) == [("s", "exit", "m", "m:1:1")]


def test_sources_away_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_module, "MAX_AWAY", 2)
    log = Log()
    log.add(Announced("default", tuple("abc"), over=True))
    assert dict(log.engine.snapshot()["tenants"]["default"]["away"]).keys() == {"b", "c"}


# ---- messages


def test_what_is_too_much_for_one_message_comes_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(told_module, "PART_BYTES", 2_000)
    log = Log()
    log.add(*(begins(f"s{n}", "x > 0", owner=f"o{n}") for n in range(60)))
    messages = log.messages(readings("m", 1, {"x": 1}, {"x": 2}))
    assert len(messages) > 3
    assert [one.part for one in messages] == list(range(len(messages)))
    assert [one.last for one in messages] == [False] * (len(messages) - 1) + [True]
    for one in messages:
        for note in one.notes:
            assert note.row is not None
            assert one.publications[note.row]["id"] == note.publication_id
    assert len({(note.sid, note.publication_id) for one in messages for note in one.notes}) == 120


def test_the_order_of_notifications_does_not_depend_on_history() -> None:
    changes = [begins(f"s{n}", "x > 0") for n in range(20)]
    forward, backward = Log(), Log()
    forward.add(*changes)
    backward.add(*reversed(changes))
    assert forward.add(readings("m", 1, {"x": 1})) == backward.add(readings("m", 1, {"x": 1}))


# ---- damage


@pytest.mark.parametrize(
    "record",
    [
        Publications("default", 0.0, (Run("m", 1, 1, 1, "m", None, 1),), b"[{}"),
        Publications("default", 0.0, (Run("m", 1, 1, 2, "m", None, 1),), b"[{}]"),
        SubscriptionChange("default", "no key", None),
        SubscriptionChange("default", "0001.other.ana.s", None),
        SubscriptionChange("default", "0001.default.ana.s", {"v": 99}),
        SubscriptionChange("default", "0001.default.ana.s", {"v": 1}),
    ],
)
def test_a_damaged_record_harms_nobody_and_is_counted(record: Record) -> None:
    log = Log()
    log.add(begins("s", "x > 0"))
    assert log.add(record) == []
    assert log.engine.damaged == 1
    assert f"record {log.engine.sequence}" in log.engine.damage
    assert log.add(readings("m", 1, {"x": 1})) == [("s", "match", None, "m:1:1")]


def test_a_snapshot_of_another_version_is_refused() -> None:
    with pytest.raises(SnapshotError, match="version 99"):
        Engine(SETTINGS).restore(Engine(SETTINGS).snapshot() | {"version": 99})


def test_runs_of_several_sources_in_one_record() -> None:
    log = Log()
    log.add(begins("s", "x > 1"))
    record = joined(
        readings("a", 5, {"x": 1}, {"x": 2}), readings("b", 9, {"x": 3}), readings("a", 6, {"x": 2}, {"x": 9})
    )
    assert [told[3] for told in log.add(record)] == ["a:1:6", "b:1:9", "a:1:7"]
