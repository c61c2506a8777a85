"""State filters against a model that goes through all readings again each time, and their rules one by one."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from state_model import FromTheBeginning, Publication, Reading, Told, reading, state

from spinney import parse
from spinney.errors import LabelError, SnapshotError
from spinney.evaluator import Evaluator
from spinney.label import Label, Mark
from spinney.late_readings import LateReadings
from spinney.late_readings import Reading as LateReading
from spinney.notification import Notification, scope_key
from spinney.state import StateFilter
from spinney.subscription import DeadBand, StateSubscription


def brief(notifications: list[Notification]) -> list[tuple[str, Any]]:
    return [(told.why, told.scope) for told in notifications]


# ---- against the model

PLAIN = [
    f"WHEN {enter} UNTIL {leave}{only}{scope}"
    for enter, leave in (("x > 2", "x <= 2"), ("x > 3", "x < 2"))
    for only in ("", " FOR y > 0")
    for scope in ("", " EACH room", " ONCE")
]
OVERLAPPING = ["WHEN x > 1 UNTIL y > 0 EACH room", "WHEN x > 1 UNTIL x > 2", "WHEN x > 1 UNTIL x < 4 ONCE"]
OPTIONS: list[dict[str, Any]] = [
    {"debounce": 2.0},
    {"dead_band": DeadBand(attribute="x", by=2.0)},
    {"debounce": 1.0, "dead_band": DeadBand(attribute="y", by=1.0)},
]
SUBSCRIPTIONS = st.one_of(
    st.sampled_from([(state(text), True) for text in PLAIN]),
    st.sampled_from([(state(text), False) for text in PLAIN + OVERLAPPING]),
    st.sampled_from([(state(text, **options), True) for text, options in product(PLAIN, OPTIONS)]),
)
_PUBLICATIONS: list[Publication] = [
    {name: value for name, value in zip(("x", "room", "y", "time"), values, strict=True) if value is not None}
    for values in product((0, 2, 3, 5), ("a", "b", 1.0, True, None), (None, 0, 1, 2), (None, 0, 1, 2, 5))
]
EVENTS = st.tuples(
    st.sampled_from(["p", "q", "r"]), st.sampled_from(_PUBLICATIONS), st.sampled_from([False] * 9 + [True])
)


@st.composite
def logs(draw: st.DrawFn) -> list[Reading]:
    """Readings in order; now and then a source boots."""
    boots = {"p": 1, "q": 1, "r": 1}
    log: list[Reading] = []
    for n, (source, publication, booted) in enumerate(draw(st.lists(EVENTS, max_size=25))):
        boots[source] += booted
        log.append((reading(source, n, boots[source]), publication))
    return log


def told_by(state_filter: StateFilter, log: list[Reading], start: int = 0) -> list[list[Told]]:
    return [
        [(told.why, scope_key(told.scope), n) for told in state_filter.feed(*one, log_time=float(n))]
        for n, one in enumerate(log[start:], start)
    ]


@settings(max_examples=400)
@given(SUBSCRIPTIONS, logs())
def test_a_state_filter_tells_what_the_model_tells(
    subscription: tuple[StateSubscription, bool], log: list[Reading]
) -> None:
    wanted, disjoint = subscription
    assert told_by(StateFilter(wanted, disjoint=disjoint), log) == FromTheBeginning(wanted, disjoint).told(log)


@given(SUBSCRIPTIONS, logs(), st.integers(0, 25))
def test_a_restored_snapshot_goes_on_as_if_nothing_had_happened(
    subscription: tuple[StateSubscription, bool], log: list[Reading], cut: int
) -> None:
    wanted, disjoint = subscription
    first, second = StateFilter(wanted, disjoint=disjoint), StateFilter(wanted, disjoint=disjoint)
    told = told_by(first, log[:cut])
    second.restore(json.loads(json.dumps(first.snapshot())))
    assert told + told_by(second, log, cut) == told_by(StateFilter(wanted, disjoint=disjoint), log)


@given(st.sampled_from(PLAIN), st.sampled_from([None, OPTIONS[1]]), logs())
def test_a_filter_applied_to_its_own_output_changes_nothing_s8(
    text: str, options: dict[str, Any] | None, log: list[Reading]
) -> None:
    evaluator, replica = Evaluator(state(text, **(options or {}))), Evaluator(state(text, **(options or {})))
    once = [(*one, mark) for one in log if (mark := evaluator.observe(*one)) is not None]
    twice = [(*one, mark) for *one, _ in once if (mark := replica.observe(*one)) is not None]
    assert twice == once


@given(logs())
def test_equal_enter_and_exit_make_a_content_filter_s7(log: list[Reading]) -> None:
    state_filter = StateFilter(state("WHEN x > 2 UNTIL x > 2 FOR y > 0"))
    told = [told for n, one in enumerate(log) for told in state_filter.feed(*one, log_time=float(n))]
    content = parse("x > 2 AND y > 0")
    expected = [one for one, publication in log if content.filter.evaluate(publication) is True]
    assert [(one.why, one.publication_id) for one in told] == [("match", one) for one in expected]


# ---- the bit of a source


def test_a_bit_enters_once_and_exits_once_s1() -> None:
    state_filter = StateFilter(state("WHEN temp > 25 UNTIL temp <= 22"))
    temperatures = [20, 26, 27, 24, 26, 22, 21, 26]
    told = [brief(state_filter.feed(reading("m", n), {"temp": t}, n)) for n, t in enumerate(temperatures)]
    assert told == [[], [("enter", "m")], [], [], [], [("exit", "m")], [], [("enter", "m")]]


def test_a_move_exits_the_value_it_was_set_in_and_enters_the_other_s1() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0 EACH room"))
    assert brief(state_filter.feed(reading("m", 1), {"x": 1, "room": "a"}, 1)) == [("enter", "a")]
    assert brief(state_filter.feed(reading("m", 2), {"x": 1, "room": "b"}, 2)) == [("exit", "a"), ("enter", "b")]
    assert brief(state_filter.feed(reading("m", 3), {"x": 0, "room": "c"}, 3)) == [("exit", "b")]


def test_an_exit_says_since_when_the_scope_held() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0"))
    state_filter.feed(reading("m", 1), {"x": 1}, 10.0)
    (told,) = state_filter.feed(reading("m", 2), {"x": 0}, 70.0)
    assert (told.since, told.time) == (10.0, 70.0)


def test_a_source_that_leaves_for_keeps_its_bit_s1() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0 FOR floor = 1"))
    told = [
        brief(state_filter.feed(reading("m", n), {"x": x, "floor": floor}, n))
        for n, (x, floor) in enumerate([(1, 1), (0, 2), (1, 1), (0, 1)])
    ]
    assert told == [[("enter", "m")], [], [], [("exit", "m")]]


def test_the_first_publication_of_an_evaluator_passes_whatever_it_sets_s2() -> None:
    evaluator = Evaluator(state("WHEN x > 3 UNTIL x < 2"))
    assert evaluator.observe(reading("m", 1), {"x": 2.5}) is None
    assert evaluator.observe(reading("m", 2), {"x": 1}) == Mark("m", (0, 1, 2), False)
    assert evaluator.observe(reading("m", 3), {"x": 1}) is None
    assert evaluator.observe(reading("m", 1, boot=2), {"x": 1}) == Mark("m", (0, 2, 1), False)
    assert evaluator.observe(reading("m", 2, boot=2), {"x": 1}, epoch=7) == Mark("m", (7, 2, 2), False)


def test_an_evaluator_ignores_and_counts_what_is_not_newer() -> None:
    evaluator = Evaluator(state("WHEN x > 3 UNTIL x < 2"))
    evaluator.observe(reading("m", 5), {"x": 4})
    assert evaluator.observe(reading("m", 5), {"x": 0}) is None
    assert evaluator.observe(reading("m", 4), {"x": 0}) is None
    assert evaluator.ignored == 2


def test_an_evaluator_forgets_the_source_unheard_for_longest_beyond_its_bound() -> None:
    evaluator = Evaluator(state("WHEN x > 3 UNTIL x < 2"), limit=2)
    for n, source in enumerate(["p", "q", "p", "r"]):
        evaluator.observe(reading(source, n), {"x": 4})
    assert evaluator.forgotten == 1
    assert evaluator.state("q") is None


# ---- labels


def test_a_label_sets_and_never_toggles_s2() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0"), disjoint=True)
    on = Label(Mark("m", (1, 1, 5), True))
    assert brief(state_filter.take(on, {"x": 1}, 1)) == [("enter", "m")]
    assert state_filter.take(on, {"x": 1}, 2) == []
    assert state_filter.take(Label(Mark("m", (1, 1, 6), True)), {"x": 1}, 3) == []
    assert brief(state_filter.take(Label(Mark("m", (1, 1, 7), False)), {"x": 0}, 4)) == [("exit", "m")]
    assert state_filter.ignored == 1


@pytest.mark.parametrize("older", [(1, 2, 8), (1, 1, 9), (0, 9, 9)])
def test_an_older_label_is_ignored_and_counted_s2(older: tuple[int, int, int]) -> None:
    """By owner epoch, then boot, then sequence."""
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0"), disjoint=True)
    state_filter.take(Label(Mark("m", (1, 2, 9), False)), {"x": 0}, 1)
    assert state_filter.take(Label(Mark("m", older, True)), {"x": 1}, 2) == []
    assert state_filter.ignored == 1
    assert brief(state_filter.take(Label(Mark("m", (2, 1, 1), True)), {"x": 1}, 3)) == [("enter", "m")]


def test_the_membership_in_a_label_is_taken_with_it_at_once_s3() -> None:
    """Its owner has withheld that q came, and that p went: the room holds on without a notification."""
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0 EACH room"), disjoint=True)
    state_filter.take(Label(Mark("p", (1, 1, 1), True, "a")), {"x": 1, "room": "a"}, 1)
    silent = Label(Mark("p", (1, 1, 2), False), (Mark("q", (1, 1, 1), True, "a"),), silent=True)
    assert state_filter.take(silent, None, 2) == []
    off = Label(Mark("q", (1, 1, 2), False))
    assert brief(state_filter.take(off, {"x": 0, "room": "a"}, 3)) == [("exit", "a")]


def test_a_silent_label_that_changes_something_repairs_what_was_lost() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0 ONCE"), disjoint=True)
    (told,) = state_filter.take(Label(Mark("p", (1, 1, 1), True), silent=True), None, 1)
    assert (told.why, told.reason, told.publication) == ("enter", "repaired", None)


MARKS = st.builds(
    Mark,
    st.text(max_size=3),
    st.tuples(*[st.integers(0, 2**53 - 1)] * 3),
    st.booleans(),
    st.one_of(st.none(), st.text(max_size=3), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)),
)


@given(st.builds(Label, MARKS, st.lists(MARKS, max_size=3).map(tuple), st.booleans()))
def test_labels_survive_json(label: Label) -> None:
    back = Label.from_json(json.loads(json.dumps(label.to_json())))
    assert repr(back) == repr(label)


@pytest.mark.parametrize(
    "item",
    [
        None,
        {},
        {"mark": ["m", 1, 1, 1, 1], "membership": [], "silent": False},
        {"mark": ["m", 1, 1, 1, 2, None], "membership": [], "silent": False},
        {"mark": ["m", 1, -1, 1, 1, None], "membership": [], "silent": False},
        {"mark": ["m", 1, True, 1, 1, None], "membership": [], "silent": False},
        {"mark": ["m", 1, 1, 2**53, 1, None], "membership": [], "silent": False},
        {"mark": ["m", 1, 1, 1, 1, float("nan")], "membership": [], "silent": False},
        {"mark": ["m", 1, 1, 1, 1, 10**400], "membership": [], "silent": False},
        {"mark": ["m", 1, 1, 1, 1, []], "membership": [], "silent": False},
        {"mark": ["m", 1, 1, 1, 1, None], "membership": [7], "silent": False},
        {"mark": ["m", 1, 1, 1, 1, None], "membership": [], "silent": False, "more": 1},
    ],
)
def test_what_is_no_label_is_refused(item: Any) -> None:
    with pytest.raises(LabelError, match="expected"):
        Label.from_json(item)


# ---- silence


def test_a_source_is_lost_when_its_announcement_has_been_over_for_long_s4() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0 EACH room", lost=60.0))
    state_filter.feed(reading("m", 1), {"x": 1, "room": "a"}, 0.0)
    state_filter.announcement_over("m", 10.0)
    assert state_filter.next_wake() == 70.0
    assert state_filter.tick(69.0) == []
    (told,) = state_filter.tick(70.0)
    assert (told.why, told.scope, told.reason, told.publication_id) == ("exit", "a", "lost", reading("m", 1))
    assert brief(state_filter.feed(reading("m", 2), {"x": 1, "room": "a"}, 80.0)) == [("enter", "a")]


@pytest.mark.parametrize("disjoint", [True, False])
def test_a_lost_source_enters_again_at_its_next_reading_s4(disjoint: bool) -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0", lost=60.0), disjoint=disjoint)
    state_filter.feed(reading("m", 1), {"x": 1}, 0.0)
    state_filter.announcement_over("m", 0.0)
    assert len(state_filter.tick(60.0)) == 1
    assert brief(state_filter.feed(reading("m", 2), {"x": 1}, 80.0)) == [("enter", "m")]


def test_a_source_that_is_announced_again_is_not_lost_s4() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0", lost=60.0))
    state_filter.feed(reading("m", 1), {"x": 1}, 0.0)
    state_filter.announcement_over("m", 10.0)
    state_filter.announced("m")
    assert state_filter.next_wake() is None
    assert state_filter.tick(1e6) == []


def test_silence_alone_never_ends_a_bit_s4() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0"))
    state_filter.feed(reading("m", 1), {"x": 1, "valid_for": 1}, 0.0)
    assert state_filter.next_wake() is None
    assert state_filter.tick(1e9) == []


def test_a_lost_source_ends_its_scope_only_if_it_was_the_last_s4() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0 ONCE", lost=60.0))
    for source in ("p", "q"):
        state_filter.feed(reading(source, 1), {"x": 1}, 0.0)
        state_filter.announcement_over(source, {"p": 0.0, "q": 30.0}[source])
    assert state_filter.tick(60.0) == []
    assert brief(state_filter.tick(90.0)) == [("exit", None)]


def test_it_may_be_told_late_that_sources_are_away_s4() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0", lost=60.0))
    for source in ("p", "q"):
        state_filter.feed(reading(source, 1), {"x": 1}, 0.0)
    state_filter.announcement_over("q", 30.0)
    state_filter.announcement_over("p", 10.0)
    assert state_filter.is_away("p")
    assert state_filter.next_wake() == 70.0
    assert brief(state_filter.tick(70.0)) == [("exit", "p")]
    assert not state_filter.is_away("p")
    assert brief(state_filter.tick(90.0)) == [("exit", "q")]


def test_what_comes_without_an_owner_goes_on_under_the_epoch_of_the_last_one() -> None:
    state_filter = StateFilter(state("WHEN x > 2 UNTIL x <= 2"), disjoint=True)
    assert state_filter.epoch("m") == 0
    state_filter.take(Label(Mark("m", (7, 1, 1), True)), {"x": 3}, 0.0)
    assert state_filter.epoch("m") == 7
    told = state_filter.feed(reading("m", 2), {"x": 0}, 1.0, state_filter.epoch("m"))
    assert brief(told) == [("exit", "m")]


def test_it_knows_the_sources_that_it_would_have_to_give_up() -> None:
    state_filter = StateFilter(state("WHEN x > 5 UNTIL x <= 0"))
    state_filter.feed(reading("examined", 1), {"x": 3}, 0.0)
    state_filter.feed(reading("set", 1), {"x": 6}, 0.0)
    assert [state_filter.knows(source) for source in ("examined", "set", "never")] == [True, True, False]
    held = StateFilter(state("WHEN x > 5 UNTIL x <= 0", reorder=5.0), disjoint=True)
    held.take(Label(Mark("p", (1, 1, 1), True)), {"x": 6}, 0.0)
    assert held.knows("p")


def test_sources_beyond_the_bound_are_forgotten_and_their_scopes_exit() -> None:
    state_filter = StateFilter(state("WHEN x > 0 UNTIL x <= 0"), limit=2)
    told = [brief(state_filter.feed(reading(source, 1), {"x": 1}, 0.0)) for source in ("p", "q", "r")]
    assert told[-1] == [("enter", "r"), ("exit", "p")]
    assert state_filter.forgotten == 1


# ---- order


def in_order(delay: float = 10.0, text: str = "WHEN x > 0 UNTIL x <= 0") -> StateFilter:
    return StateFilter(state(text, reorder=delay), disjoint=True)


def test_labels_take_effect_in_the_order_of_their_time_s5() -> None:
    """Otherwise q's exit, which was sampled first, would find the scope still held by p."""
    state_filter = in_order(text="WHEN x > 0 UNTIL x <= 0 ONCE")
    state_filter.feed(reading("q", 1), {"x": 1, "time": 1}, 0.0)
    assert state_filter.next_wake() == 10.0
    state_filter.feed(reading("p", 1), {"x": 1, "time": 9}, 1.0)
    state_filter.feed(reading("q", 2), {"x": 0, "time": 5}, 2.0)
    told = [*state_filter.tick(10.0), *state_filter.tick(11.0)]
    assert [(one.why, one.publication_id) for one in told] == [
        ("enter", reading("q", 1)),
        ("exit", reading("q", 2)),
        ("enter", reading("p", 1)),
    ]


def test_labels_of_the_same_time_go_by_source_s5() -> None:
    state_filter = in_order()
    for source in ("q", "p"):
        state_filter.feed(reading(source, 1), {"x": 1, "time": 1}, 0.0)
    assert brief(state_filter.tick(10.0)) == [("enter", "p"), ("enter", "q")]


def test_labels_of_one_source_are_never_reordered_s5() -> None:
    """Even if its clock goes back."""
    state_filter = in_order()
    state_filter.feed(reading("m", 1), {"x": 1, "time": 9}, 0.0)
    state_filter.feed(reading("m", 2), {"x": 0, "time": 2}, 0.0)
    assert brief(state_filter.tick(10.0)) == [("enter", "m"), ("exit", "m")]


def test_a_label_that_is_too_late_is_evaluated_at_once_and_counted_s5() -> None:
    state_filter = in_order()
    state_filter.feed(reading("p", 1), {"x": 1, "time": 9}, 0.0)
    state_filter.tick(10.0)
    assert brief(state_filter.feed(reading("q", 1), {"x": 1, "time": 8}, 11.0)) == [("enter", "q")]
    assert state_filter.reorder is not None
    assert state_filter.reorder.late == 1


def test_a_late_reading_is_put_in_where_it_belongs_s5() -> None:
    state_filter = in_order()
    state_filter.feed(reading("m", 1), {"x": 1, "time": 1}, 0.0)
    state_filter.feed(reading("m", 3), {"x": 1, "time": 3}, 3.0)
    assert state_filter.feed(reading("m", 2), {"x": 0, "time": 2}, 4.0) == []
    told = [*state_filter.tick(10.0), *state_filter.tick(14.0)]
    assert [(one.why, one.publication_id.sequence) for one in told] == [("enter", 1), ("exit", 2), ("enter", 3)]


def test_a_reading_older_than_what_has_taken_effect_is_not_examined_s5() -> None:
    state_filter = in_order()
    state_filter.feed(reading("m", 3), {"x": 1, "time": 3}, 0.0)
    state_filter.tick(10.0)
    assert state_filter.feed(reading("m", 2), {"x": 0, "time": 2}, 11.0) == []
    assert state_filter.late == 1
    assert state_filter.next_wake() is None


@given(st.lists(st.sampled_from([0, 1, 2, 3]), max_size=8), st.randoms(use_true_random=False), st.booleans())
def test_within_the_delay_the_order_of_arrival_does_not_matter_s5(xs: list[int], random: Any, stored: bool) -> None:
    """With reorder, shuffled readings give what ordered ones do, also from a snapshot taken on the way."""
    log = [(reading("m", n), {"x": x, "time": n}) for n, x in enumerate(xs)]
    shuffled = random.sample(log, len(log))
    subscription = state("WHEN x > 2 UNTIL x < 1", reorder=10.0)
    at_once = StateFilter(replace(subscription, reorder=0.0), disjoint=True)
    expected = [told.id for one in log for told in at_once.feed(*one, log_time=1.0)]
    state_filter = StateFilter(subscription, disjoint=True)
    told = []
    for one in shuffled:
        told += state_filter.feed(*one, log_time=1.0)
        if stored:
            restored = StateFilter(subscription, disjoint=True)
            restored.restore(json.loads(json.dumps(state_filter.snapshot())))
            state_filter = restored
    told += state_filter.tick(11.0)
    assert [one.id for one in told] == expected


def test_labels_beyond_the_bound_are_let_go_early_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    state_filter = in_order()
    assert state_filter.reorder is not None
    monkeypatch.setattr(state_filter.reorder, "_limit", 2)
    told = [brief(state_filter.feed(reading(source, 1), {"x": 1}, 0.0)) for source in ("p", "q", "r")]
    assert told == [[], [], [("enter", "p")]]
    assert state_filter.reorder.hurried == 1


# ---- debounce and dead band


def test_debounce_wants_enter_to_have_held_on_end_s6() -> None:
    evaluator = Evaluator(state("WHEN x > 0 UNTIL x <= 0", debounce=5.0))
    samples = [(0, 1), (4, 1), (4.5, 0), (5, 1), (9, 1), (10, 1), (11, 1)]
    marks = [evaluator.observe(reading("m", n), {"time": t, "x": x}) for n, (t, x) in enumerate(samples)]
    assert [mark and mark.bit for mark in marks] == [None, None, None, None, None, True, None]


def test_a_dead_band_keeps_a_bit_until_the_attribute_has_moved_s6() -> None:
    evaluator = Evaluator(state("WHEN x > 5 UNTIL x <= 5", dead_band=DeadBand(attribute="x", by=1.0)))
    marks = [evaluator.observe(reading("m", n), {"x": x}) for n, x in enumerate([5.2, 4.9, 5.3, 4.2, 5.1, 5.2])]
    assert [mark and mark.bit for mark in marks] == [True, None, None, False, None, True]


# ---- notifications and snapshots


def test_a_notification_has_an_id_of_subscription_publication_why_and_scope_l2() -> None:
    (told,) = StateFilter(state("WHEN x > 0 UNTIL x <= 0 EACH room")).feed(reading("m", 7), {"x": 1, "room": "é"}, 5.0)
    assert told.id == '["s","m:1:7","enter","\\"\\\\u00e9\\""]'
    assert replace(told, time=9.0, publication=None).id == told.id


@given(*[st.one_of(st.none(), st.booleans(), st.sampled_from([0.0, -0.0, 1.0, 0.1]), st.text(max_size=4))] * 2)
def test_scopes_have_one_key_each(one: Any, other: Any) -> None:
    same = type(one) is type(other) and one == other
    assert (scope_key(one) == scope_key(other)) == same


def test_a_snapshot_of_another_version_is_refused() -> None:
    with pytest.raises(SnapshotError, match="expected a snapshot of state filter, version 1, not of state filter, v"):
        StateFilter(state("WHEN x > 0 UNTIL x <= 0")).restore({"format": "state filter", "version": 2})


def test_readings_kept_for_late_ones_are_bounded_and_dropped_after_the_delay() -> None:
    evaluator = Evaluator(state("WHEN x > 0 UNTIL x <= 0"))
    late_readings = LateReadings(evaluator, 10.0, limit=3)
    for n, arrival in enumerate([0, 1, 2, 3, 4, 14]):
        late_readings.observe("m", LateReading((0, 1, 10 * n), {"x": n % 2}, float(arrival), None))
        kept = len(late_readings.snapshot()["readings"]["m"])
        assert kept == [1, 2, 3, 3, 3, 1][n]
    assert late_readings.place("m", (0, 1, 45)) == 0
    assert late_readings.place("m", (0, 1, 35)) is None


def test_a_reading_that_is_fed_again_is_counted_and_changes_nothing() -> None:
    state_filter = in_order()
    for _ in range(2):
        state_filter.feed(reading("m", 1), {"x": 1, "time": 1}, 0.0)
    assert state_filter.late == 1
    assert brief(state_filter.tick(10.0)) == [("enter", "m")]


def test_what_no_longer_waits_does_not_pile_up() -> None:
    """Late readings withdraw labels and hold them anew, over and over."""
    state_filter = in_order(delay=1e6)
    state_filter.feed(reading("m", 0), {"x": 1, "time": 0}, 0.0)
    state_filter.feed(reading("m", 10_000), {"x": 0, "time": 10_000}, 0.0)
    for n in range(9_999, 9_850, -1):
        state_filter.feed(reading("m", n), {"x": 0, "time": n}, 0.0)
    assert state_filter.reorder is not None
    assert len(state_filter.reorder._arrivals) < 80
    told = state_filter.tick(1e6)
    assert [(one.why, one.publication_id.sequence) for one in told] == [("enter", 0), ("exit", 9_851)]
