"""What a mobile broker keeps to itself of its sources' scopes, and what the cloud makes of the rest (rule S3)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spinney import parse
from spinney.identity import PublicationId
from spinney.label import Label, Mark
from spinney.membership import Membership, OwnerFilter
from spinney.scopes import Scopes
from spinney.subscription import StateSubscription


def state(scope: str, **options: Any) -> StateSubscription:
    subscription = parse(f"WHEN x > 0 UNTIL x <= 0 {scope}")
    assert isinstance(subscription, StateSubscription)
    return replace(subscription, **options)


def on(source: str, sequence: int, room: str | None = None) -> Mark:
    return Mark(source, (1, 1, sequence), True, room)


def off(source: str, sequence: int) -> Mark:
    return Mark(source, (1, 1, sequence), False)


# Which source, into which room; none: its bit becomes 0; "release": its owner gives it up.
_ROOMS = ["a", "b", "c", None] * 3
STEPS = st.lists(
    st.sampled_from([(source, what) for source in "pqrst" for what in (*_ROOMS, "release", "restart")]),
    min_size=30,
    max_size=80,
)


@settings(max_examples=400)
@given(st.sampled_from(["EACH room", "ONCE"]), STEPS)
def test_the_cloud_sees_every_change_of_every_scope_at_the_right_mark(scope: str, steps: list[Any]) -> None:
    """Whatever is withheld. A source that is given up keeps its bit, and comes back to its owner unknown."""
    subscription = state(scope)
    membership, told_all, told_some = Membership(subscription), Scopes(subscription), Scopes(subscription)
    for n, (source, what) in enumerate(steps):
        if what == "release":
            silent = membership.release(source)
            assert silent is None or told_some.take(silent.marks(), n) == []
        elif what == "restart":
            snapshot = json.loads(json.dumps(membership.snapshot()))
            membership = Membership(subscription)
            membership.restore(snapshot)
        else:
            mark = Mark(source, (1, 1, n), what is not None, what if scope != "ONCE" else None)
            label = membership.take(mark)
            seen = [] if label is None else told_some.take(label.marks(), n)
            assert seen == told_all.take([mark], n)


def test_only_the_first_and_the_last_of_a_scope_go_up() -> None:
    membership = Membership(state("EACH room"))
    assert membership.take(on("p", 1, "a")) == Label(on("p", 1, "a"))
    assert membership.take(on("q", 1, "a")) == Label(on("q", 1, "a"), (on("p", 1, "a"),)), "q was unknown"
    assert membership.take(off("p", 2)) is None
    assert membership.take(on("p", 3, "a")) is None
    assert membership.take(off("q", 2)) is None
    assert membership.take(off("p", 4)) == Label(off("p", 4), (off("q", 2),))
    assert membership.withheld == 3


def test_a_source_is_given_up_with_the_whole_membership_of_its_scope() -> None:
    membership = Membership(state("ONCE"))
    membership.take(on("p", 1))
    membership.take(on("q", 1))
    membership.take(off("p", 2))
    assert membership.release("p") == Label(off("p", 2), (on("q", 1),), silent=True)
    assert membership.release("p") is None
    assert membership.release("q") is None, "the cloud knows all of it"


def test_a_source_that_is_its_own_scope_has_nothing_withheld() -> None:
    membership = Membership(state(""))
    assert [membership.take(mark) for mark in (on("p", 1), off("p", 2), off("p", 3))] == [
        Label(on("p", 1)),
        Label(off("p", 2)),
        Label(off("p", 3)),
    ]
    assert membership.release("p") is None


def test_with_reorder_nothing_is_withheld_and_no_label_speaks_for_others_s5() -> None:
    """Another source's mark would take effect before its time."""
    membership = Membership(state("ONCE", reorder=5.0))
    marks = [on("p", 1), on("q", 1), off("p", 2), off("q", 2)]
    assert [membership.take(mark) for mark in marks] == [Label(mark) for mark in marks]


def test_a_mark_that_is_not_newer_is_ignored_and_counted() -> None:
    membership = Membership(state(""))
    membership.take(on("p", 5))
    assert membership.take(off("p", 5)) is None
    assert membership.take(off("p", 4)) is None
    assert membership.ignored == 2


def test_sources_beyond_the_bound_go_up_unwithheld_and_are_counted() -> None:
    membership = Membership(state("ONCE"), limit=1)
    membership.take(on("p", 1))
    assert [membership.take(on("q", n)) for n in (1, 2)] == [Label(on("q", 1)), Label(on("q", 2))]
    assert membership.beyond == 2


def test_an_owner_labels_readings_and_marks_of_motes_with_its_epoch() -> None:
    owner_filter = OwnerFilter(state("EACH room"))
    label = owner_filter.feed(PublicationId("sensor", 0, 1), {"x": 1, "room": "a"}, epoch=7)
    assert label == Label(Mark("sensor", (7, 0, 1), True, "a"))
    label = owner_filter.take(Mark("mote", (0, 3, 9), True, "b"), epoch=7)
    assert label == Label(Mark("mote", (7, 3, 9), True, "b"))


def test_a_source_that_joins_is_unknown_s2() -> None:
    owner_filter = OwnerFilter(state(""))
    assert owner_filter.feed(PublicationId("m", 0, 1), {"x": 1}, epoch=1) is not None
    assert owner_filter.feed(PublicationId("m", 0, 2), {"x": 1}, epoch=1) is None
    owner_filter.join("m")
    assert owner_filter.feed(PublicationId("m", 0, 3), {"x": 1}, epoch=1) is not None


@given(
    st.lists(st.tuples(st.sampled_from("pq"), st.integers(-1, 1), st.sampled_from("ab")), max_size=20), st.integers()
)
def test_an_owner_goes_on_from_its_snapshot(readings: list[tuple[str, int, str]], cut: int) -> None:
    def run(restarting: bool) -> list[Label | None]:
        owner_filter, labels = OwnerFilter(state("EACH room")), []
        for n, (source, x, room) in enumerate(readings):
            if restarting and n == cut % len(readings):
                snapshot = json.loads(json.dumps(owner_filter.snapshot()))
                owner_filter = OwnerFilter(state("EACH room"))
                owner_filter.restore(snapshot)
            labels.append(owner_filter.feed(PublicationId(source, 0, n), {"x": x, "room": room}))
        return labels

    assert run(restarting=True) == run(restarting=False)


@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.integers(-1, 1), st.sampled_from("ab")), max_size=20), st.integers()
)
def test_an_owner_goes_on_from_the_snapshots_of_the_sources_that_changed(
    readings: list[tuple[str, int, str]], cut: int
) -> None:
    def run(restarting: bool) -> list[Label | None]:
        owner_filter, labels = OwnerFilter(state("EACH room")), []
        kept: dict[str, list[Any]] = {}
        for n, (source, x, room) in enumerate(readings):
            if restarting and n == cut % len(readings):
                owner_filter = OwnerFilter(state("EACH room"))
                for name, snapshot in kept.items():
                    owner_filter.restore_source(name, json.loads(json.dumps(snapshot)))
            label = owner_filter.feed(PublicationId(source, 0, n), {"x": x, "room": room})
            changed = {source} if label is None else {mark.source for mark in label.marks()}
            kept.update({name: found for name in changed if (found := owner_filter.source_snapshot(name))})
            labels.append(label)
        return labels

    assert run(restarting=True) == run(restarting=False)


def test_what_is_remembered_of_one_source_is_nothing_before_it_is_heard_s2() -> None:
    owner_filter = OwnerFilter(state("EACH room"))
    assert owner_filter.source_snapshot("p") is None
    assert owner_filter.mark("p") is None
    owner_filter.feed(PublicationId("p", 0, 1), {"x": 1, "room": "a"}, epoch=3)
    assert owner_filter.mark("p") == Mark("p", (3, 0, 1), True, "a")
    owner_filter.take(Mark("q", (0, 0, 1), True, "a"))
    assert owner_filter.sources() == {"p", "q"}
