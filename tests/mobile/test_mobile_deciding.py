"""What goes up: what a feed wants, and labels of state filters, each bit by one evaluator (rules R4, S1 to S3)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from deciding_kit import active, ours
from hypothesis import given
from hypothesis import strategies as st

from spinney import Evaluator, Label, Mark, OwnerFilter, PublicationId
from spinney.subscription import DeadBand, StateSubscription
from spinney_mobile.deciding import NOBODY, Decider, Decision
from spinney_mobile.leases import Lease

HOT = "WHEN temp > 25 UNTIL temp <= 22"


class Deciding:
    """A decider with readings that count on by themselves."""

    def __init__(self, *filters: Any, decider: Decider | None = None, **leases: int) -> None:
        self.decider = decider or Decider("pi")
        self.sequence = 0
        self.decider.change(
            filters, [], {name: Lease(name, "pi", epoch) for name, epoch in (leases or {"m1": 7}).items()}
        )

    def decide(
        self, source: str = "m1", *, epoch: int = 7, boot: int = 1, late: bool = False, marks: Any = None, **values: Any
    ) -> Decision:
        self.sequence += 1
        id = PublicationId(source, boot, self.sequence)
        return self.decider.decide(id, {"source": source, **values}, epoch, marks or {}, late=late)

    def bits(self, decision: Decision, digest: str = "s") -> bool | None:
        label = decision.labels.get(digest)
        return None if label is None else label.mark.bit


# ---- content and top-k


def test_a_reading_goes_up_if_any_feed_wants_it_and_the_first_is_enough_r4() -> None:
    decider = Decider("pi")
    world = Deciding(active("wide", "NO2 > 10"), active("narrow", "NO2 > 40"), decider=decider)
    assert world.decide(NO2=5.0) == Decision(False)
    found = world.decide(NO2=50.0)
    assert found.send
    assert found.why in ("wide", "narrow")
    assert sum(decider.matched.values()) == 1


def test_a_filter_in_another_form_takes_the_place_of_the_one_before() -> None:
    world = Deciding(active("f", "NO2 > 10"))
    world.decider.change([active("f", "NO2 > 40")], [], ours("m1"))
    assert not world.decide(NO2=20.0).send
    assert world.decide(NO2=50.0).send


def test_what_is_dropped_wants_nothing_any_more() -> None:
    world = Deciding(active("f", "NO2 > 10"), active("s", HOT))
    world.decider.change([], ["f", "s", "never there"], ours("m1"))
    assert world.decide(NO2=20.0, temp=30.0) == Decision(False)
    assert world.decider.filters == {}


# ---- state filters


def test_a_state_filter_sends_what_sets_its_bit_and_nothing_between_s1() -> None:
    world = Deciding(active("s", HOT))
    told = [world.bits(world.decide(temp=temp)) for temp in (24.0, 26.0, 27.0, 24.0, 22.0, 20.0, 23.0, 26.0)]
    assert told == [None, True, None, None, False, None, None, True]


def test_when_one_more_subscription_shares_a_filter_its_bits_are_told_anew_r3() -> None:
    world = Deciding(active("s", HOT))
    world.decide(temp=26.0)
    world.decider.change([replace(active("s", HOT), start=9)], [], ours("m1"))
    assert [world.bits(world.decide(temp=temp)) for temp in (24.0, 27.0, 28.0)] == [None, True, None]
    world.decider.change([replace(active("s", HOT), start=3)], [], ours("m1"))
    assert world.bits(world.decide(temp=28.0)) is None


@pytest.mark.parametrize("restarts", [False, True])
def test_what_is_withheld_of_a_scope_is_told_to_a_subscription_that_shares_it_later_r3(restarts: bool) -> None:
    once = active("s", f"{HOT} ONCE")
    world = Deciding(once, m1=7, m2=7)
    for source, temp in (("m1", 26.0), ("m2", 20.0), ("m2", 26.0)):
        last = world.decide(source, temp=temp)
    assert not last.labels, "it is withheld: the scope holds"
    world.decider.change([replace(once, start=9)], [], ours("m1", "m2"))
    if restarts:
        kept = {key: value for key, value in world.decider.changes().items() if value is not None}
        world.decider = Decider("pi", kept)
        world.decider.change([replace(once, start=9)], [], ours("m1", "m2"))
    told = world.decide("m2", temp=27.0).labels["s"]
    assert (told.mark.source, told.mark.bit) == ("m2", True)
    assert world.decide("m2", temp=20.0).labels, "of m1 the new one knows nothing: it must hear of all others"
    assert world.decide("m1", temp=27.0).labels
    assert not world.decide("m2", temp=27.0).labels


def test_the_first_reading_with_enter_or_exit_true_goes_up_labelled_s2() -> None:
    assert world_says(20.0) is False
    assert world_says(30.0) is True


def world_says(temp: float) -> bool | None:
    world = Deciding(active("s", HOT))
    return world.bits(world.decide(temp=temp))


def test_labels_carry_the_epoch_of_the_lease_and_the_number_of_the_reading() -> None:
    world = Deciding(active("s", HOT))
    assert world.decide(temp=26.0).labels == {"s": Label(Mark("m1", (7, 1, 1), True))}


@pytest.mark.parametrize(("epoch", "boot"), [(8, 1), (7, 2)])
def test_after_a_new_boot_or_lease_the_bit_is_unknown_s2(epoch: int, boot: int) -> None:
    world = Deciding(active("s", HOT))
    world.decide(temp=26.0)
    assert world.bits(world.decide(temp=27.0)) is None
    assert world.bits(world.decide(temp=27.0, epoch=epoch, boot=boot)) is True


def test_of_a_source_that_nobody_owns_a_state_filter_is_as_good_as_its_feed_s2() -> None:
    world = Deciding(active("s", HOT))
    for temp, send in ((26.0, True), (26.0, True), (24.0, False), (20.0, True)):
        assert world.decide("m9", epoch=NOBODY, temp=temp) == Decision(send, {}, "s" if send else None)


def test_a_late_reading_is_for_content_only_i3() -> None:
    world = Deciding(active("s", HOT), active("f", "temp > 40"))
    assert world.decide(temp=50.0, late=True) == Decision(True, {}, "f")
    assert world.bits(world.decide(temp=50.0)) is True


def test_each_enters_again_in_another_value_s1() -> None:
    world = Deciding(active("s", HOT + " EACH room"))
    marks = [world.decide(temp=30.0, room=room).labels.get("s") for room in ("a", "a", "b")]
    assert [None if one is None else one.mark.value for one in marks] == ["a", None, "b"]


def test_what_leaves_a_scope_as_it_is_is_withheld_and_comes_with_the_next_label_s3() -> None:
    world = Deciding(active("s", HOT + " ONCE"), m1=7, m2=7, m3=7)
    assert world.bits(world.decide("m1", temp=30.0)) is True
    assert world.bits(world.decide("m2", temp=20.0)) is False  # the first mark of a source is always told
    assert world.decide("m2", temp=30.0) == Decision(False)
    assert world.decide("m2", temp=20.0) == Decision(False)
    assert world.bits(world.decide("m1", temp=20.0)) is False


def test_a_filter_in_another_form_keeps_its_bits() -> None:
    world = Deciding(active("s", HOT))
    world.decide(temp=30.0)
    world.decider.change([active("s", HOT, lost=5.0)], [], ours("m1"))
    assert world.bits(world.decide(temp=30.0)) is None
    assert world.bits(world.decide(temp=20.0)) is False


# ---- motes


def test_a_mark_of_the_mote_goes_up_as_its_owners_label() -> None:
    world = Deciding(active("s", HOT))
    world.decider.on_mote("m1", ["s"])
    found = world.decide(temp=24.0, marks={"s": Mark("m1", (0, 1, 1), True)})
    assert found.labels == {"s": Label(Mark("m1", (7, 1, 1), True))}


def test_what_the_mote_evaluates_is_not_evaluated_here_s2() -> None:
    world = Deciding(active("s", HOT))
    world.decider.on_mote("m1", ["s"])
    assert world.decide(temp=30.0) == Decision(False)
    assert world.decider.elsewhere("m1") == {"s"}


def test_it_is_ours_again_with_an_unknown_bit_when_the_mote_holds_it_no_more_s2() -> None:
    world = Deciding(active("s", HOT))
    world.decide(temp=30.0)
    world.decider.on_mote("m1", ["s"])
    world.decide(temp=30.0)
    world.decider.on_mote("m1", [])
    assert world.bits(world.decide(temp=30.0)) is True


def test_the_bit_that_was_set_last_is_known_for_motes_that_have_lost_it() -> None:
    world = Deciding(active("s", HOT))
    assert world.decider.bit("s", "m1") is None
    world.decide(temp=30.0)
    assert world.decider.bit("s", "m1") is True
    world.decider.on_mote("m1", ["s"])
    world.decide(temp=20.0, marks={"s": Mark("m1", (0, 1, 2), False)})
    assert world.decider.bit("s", "m1") is False
    assert world.decider.bit("no such", "m1") is None


def test_a_bit_that_is_1_in_another_each_value_is_not_known_for_this_one() -> None:
    world = Deciding(active("s", HOT + " EACH room"))
    world.decide(temp=30.0, room="lab")
    assert [world.decider.bit("s", "m1", value) for value in ("lab", "hall", None)] == [True, None, None]
    world.decide(temp=20.0, room="lab")
    assert [world.decider.bit("s", "m1", value) for value in ("lab", "hall", None)] == [False] * 3


def test_a_mark_of_a_filter_that_is_not_active_any_more_is_counted() -> None:
    world = Deciding()
    assert world.decide(temp=30.0, marks={"s": Mark("m1", (0, 1, 1), True)}) == Decision(False)
    assert world.decider.strays == 1


# ---- sources that come and go


def test_a_source_given_up_leaves_a_silent_label_with_the_rest_of_its_scope_s3() -> None:
    world = Deciding(active("s", HOT + " ONCE"), m1=7, m2=7)
    world.decide("m1", temp=30.0)
    world.decide("m2", temp=20.0)
    world.decide("m2", temp=30.0)  # withheld
    labels = world.decider.release("m1")
    assert labels["s"].silent
    assert {mark.source for mark in labels["s"].marks()} == {"m1", "m2"}


def test_of_a_source_that_is_anothers_now_only_the_rest_of_its_scope_is_told_s3() -> None:
    world = Deciding(active("s", HOT + " ONCE"), m1=7, m2=7)
    world.decide("m1", temp=30.0)
    world.decide("m2", temp=20.0)
    world.decide("m2", temp=30.0)
    labels = world.decider.change([], [], {**ours("m2"), "m1": Lease("m1", "other", 8)})
    assert labels == {"s": Label(Mark("m2", (7, 1, 3), True), (), silent=True)}


# ---- restarts


def restarted(world: Deciding, *filters: Any) -> Deciding:
    kept = {key: value for key, value in world.decider.changes().items() if value is not None}
    again = Deciding(*filters, decider=Decider("pi", kept), m1=7, m2=7)
    again.sequence = world.sequence
    return again


def test_after_a_restart_no_bit_is_flipped_and_nothing_is_told_twice() -> None:
    world = Deciding(active("s", HOT))
    world.decide(temp=30.0)
    world = restarted(world, active("s", HOT))
    assert world.bits(world.decide(temp=30.0)) is None
    assert world.bits(world.decide(temp=20.0)) is False


def test_what_was_withheld_survives_a_restart_s3() -> None:
    world = Deciding(active("s", HOT + " ONCE"), m1=7, m2=7)
    for source, temp in (("m1", 30.0), ("m2", 20.0), ("m2", 30.0)):
        world.decide(source, temp=temp)
    world = restarted(world, active("s", HOT + " ONCE"))
    assert world.decide("m1", temp=20.0) == Decision(False)  # m2 still holds the scope, though nobody was told of it
    assert world.bits(world.decide("m2", temp=20.0)) is False


def test_what_is_kept_of_filters_that_are_not_active_any_more_is_forgotten() -> None:
    world = Deciding(active("s", HOT))
    world.decide(temp=30.0)
    again = restarted(world)
    assert again.decider.changes() == {"bit:s:m1": None}


def test_only_what_a_reading_changed_is_to_be_stored() -> None:
    world = Deciding(active("s", HOT), active("t", "WHEN x > 1 UNTIL x < 1"))
    world.decide(temp=30.0)
    assert set(world.decider.changes()) == {"bit:s:m1"}
    world.decide(temp=31.0)
    assert world.decider.changes() == {}


# ---- what is looked at is enough


STATES: list[tuple[str, dict[str, Any]]] = [
    ("WHEN x > 3 UNTIL x < 2", {}),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {}),
    ("WHEN x >= 2 UNTIL x < 2 FOR y > 0 ONCE", {}),
    ("WHEN x > 2 UNTIL x <= 2", {"debounce": 90.0}),
    ("WHEN x > 2 UNTIL x <= 2", {"dead_band": DeadBand(attribute="x", by=2.0)}),
]
READINGS = st.lists(
    st.tuples(
        st.sampled_from(["m1", "m2"]),
        st.sampled_from([1, 2]),
        st.sampled_from([None, 0.0, 2.0, 2.5, 3.0, 5.0, "5"]),
        st.sampled_from([None, "a", "b"]),
        st.sampled_from([None, 0.0, 1.0]),
    ),
    max_size=40,
)


@given(READINGS, st.integers(0, 40))
def test_an_evaluator_that_is_fed_everything_says_the_same_r4(readings: list[Any], change: int) -> None:
    filters = {str(n): active(str(n), text, **options) for n, (text, options) in enumerate(STATES)}
    decider = Decider("pi")
    decider.change(filters.values(), [], ours("m1", "m2"))
    plain = {
        digest: OwnerFilter(one.subscription)
        for digest, one in filters.items()
        if isinstance(one.subscription, StateSubscription)
    }
    boots = {"m1": 1, "m2": 1}
    for n, (source, boot, x, room, y) in enumerate(readings):
        boots[source] = max(boots[source], boot)
        values = {"x": x, "room": room, "y": y, "time": 60.0 * n}
        publication = {name: value for name, value in values.items() if value is not None}
        id = PublicationId(source, boots[source], n)
        if n == change:  # another form of one changes nothing
            decider.change([filters["0"]], [], ours("m1", "m2"))
        expected = {digest: label for digest, one in plain.items() if (label := one.feed(id, publication, 7))}
        assert decider.decide(id, publication, 7, {}).labels == expected


def test_of_many_state_filters_only_the_few_that_a_reading_may_flip_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(Evaluator, "observe", lambda self, *_: asked.append(self))
    world = Deciding(*(active(f"s{n}", f"WHEN temp > {n} UNTIL temp < {n - 1}") for n in range(300)))
    monkeypatch.undo()
    for temp in (150.5, 150.5):
        world.decide(temp=temp)  # sets all bits
    monkeypatch.setattr(Evaluator, "observe", lambda self, *_: asked.append(self))
    world.decide(temp=152.5)
    assert 0 < len(asked) < 10
