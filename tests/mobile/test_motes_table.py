"""The plan for a mote's table, what is to change, and what numbers mean: without any radio."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from motes_kit import HOT, constants, wanted

from spinney import Known
from spinney.mote import Attribute, layout
from spinney.mote.link import MAX_STAGED, MAX_STAGED_BYTES
from spinney.mote.protocol import AttributeRow, Event, EventFlag, table_crc
from spinney_mobile.active import ActiveFilter
from spinney_mobile.motes import Identity
from spinney_mobile.motes.identity import UnusableMoteError, attributes_of
from spinney_mobile.motes.joining import MAX_JOINED, Joined, Joiner, join
from spinney_mobile.motes.open_bits import MAX_WRITES, OpenBits
from spinney_mobile.motes.programs import EVERYTHING, Programs, Wanted, everything
from spinney_mobile.motes.table import MAX_PROGRAMS, Plan, Table

ATTRIBUTES = [Attribute("temperature", 1, 100, -4000, 8500)]
LAYOUT = layout(ATTRIBUTES)
MANY = [f"WHEN temperature > {20 + n / 10:g} UNTIL temperature <= 5" for n in range(200)]


def planned(table: Table, *texts: str, epoch: int = 1, known: Known | None = None) -> Plan:
    programs = Programs()
    for _ in programs.make(Wanted(wanted(*texts), known or Known(), epoch), ATTRIBUTES, LAYOUT):
        pass
    return table.plan(programs.made, everything(ATTRIBUTES, LAYOUT), epoch)


def put(table: Table, plan: Plan) -> None:
    """As if the mote had made all of it, and sent all its events."""
    for change in table.begin(plan):
        table.changed(change)
    table.drained()


def digests(plan: Plan) -> list[str]:
    return [entry.digest for entry in plan.entries.values()]


def test_a_table_that_is_as_planned_needs_no_change_and_has_the_motes_crc() -> None:
    table = Table()
    plan = planned(table, HOT, "temperature > 30")
    assert table.differs(plan)
    put(table, plan)
    assert not table.differs(plan)
    assert table.crc == table_crc([entry.program for entry in plan.entries.values()])
    assert table.bits(plan) == {HOT}
    again = planned(table, HOT, "temperature > 30")
    assert again.entries == plan.entries


def test_a_number_is_not_given_anew_while_an_event_may_still_mean_what_it_was() -> None:
    table = Table()
    put(table, planned(table, HOT))
    (first,) = table.entries
    other = planned(table, "WHEN temperature > 30 UNTIL temperature <= 22")
    assert first not in other.entries
    for change in table.begin(other):
        table.changed(change)
    assert first in table.entries, "its events may still come"
    third = planned(table, "WHEN temperature > 40 UNTIL temperature <= 22")
    assert not third.entries.keys() & table.entries.keys()
    table.drained()
    assert first not in table.entries
    assert first in planned(table, "WHEN temperature > 40 UNTIL temperature <= 22").entries


def test_after_a_loss_bits_get_new_numbers_and_nothing_else_does() -> None:
    table = Table()
    before = planned(table, HOT, "temperature > 30")
    put(table, before)
    table.renew()
    after = planned(table, HOT, "temperature > 30")
    assert digests(after) == digests(before)
    kept = after.entries.keys() & before.entries.keys()
    assert [after.entries[number].digest for number in kept] == ["temperature > 30"]
    assert table.bits(after) == {HOT}, "the old program evaluates until the new one does"
    put(table, after)
    assert planned(table, HOT, "temperature > 30").entries == after.entries


def test_only_so_many_bits_go_onto_a_mote_and_the_ones_that_are_there_stay() -> None:
    table = Table()
    first = planned(table, *MANY[:100])
    assert digests(first) == [*MANY[:MAX_PROGRAMS], EVERYTHING]
    assert set(first.here) == set(MANY[MAX_PROGRAMS:100])
    put(table, first)
    second = planned(table, *MANY[100:150], *MANY[30:100])
    there = digests(second)
    assert set(MANY[30:MAX_PROGRAMS]) < set(there)
    assert len(there) == MAX_PROGRAMS + 1


def test_programs_that_only_let_samples_through_go_where_every_sample_is_needed() -> None:
    table = Table()
    plan = planned(table, "temperature > 30", "lat > 45", HOT)
    assert digests(plan) == [HOT, EVERYTHING]
    assert plan.here["temperature > 30"] == "the mote sends every sample"
    assert "lat" in plan.here["lat > 45"]
    assert plan.sends_everything


def test_nothing_is_put_for_what_no_sample_can_match() -> None:
    plan = planned(Table(), "temperature > 100", "room = 'kit'", known=constants(room="lab"))
    assert plan == Plan()


@pytest.mark.parametrize("room", [256, 400, 1000])
def test_a_plan_fits_into_what_the_mote_says_it_has(room: int) -> None:
    table = Table()
    assert table.has_only(room)
    assert not table.has_only(room), "a second refusal would be no news"
    plan = planned(table, *MANY[:100])
    assert 20 + sum(15 + len(entry.program) for entry in plan.entries.values()) <= room
    assert EVERYTHING in digests(plan)
    assert len(digests(plan)) > 2


def commits_of(table: Table, plan: Plan) -> Iterable[tuple[dict[int, int], set[str], set[str]]]:
    """After each commit, what the mote holds, and the digests before and after it."""
    before = {table.entries[number].digest for number in table.held}
    for add, drop in table.begin(plan):
        assert len(add) + len(drop) <= MAX_STAGED
        assert sum(map(len, add.values())) <= MAX_STAGED_BYTES
        table.changed((add, drop))
        after = {table.entries[number].digest for number in table.held}
        yield dict(table.held), before, after
        before = after


def test_a_change_of_several_commits_never_leaves_out_what_stays_wanted() -> None:
    table = Table()
    put(table, planned(table, *MANY[:MAX_PROGRAMS], epoch=1))
    plan = planned(table, *MANY[10:100], epoch=2)
    steps = list(commits_of(table, plan))
    assert len(steps) > 1
    stay = set(MANY[10:MAX_PROGRAMS])
    for held, _, after in steps:
        assert stay < after
        assert len(held) <= MAX_PROGRAMS + 1
    assert EVERYTHING in steps[0][2], "what takes the place of others comes first"
    assert not table.differs(plan)


def test_what_is_not_ours_in_a_table_is_replaced_even_if_it_says_the_same() -> None:
    ours, theirs = Table(), Table()
    put(theirs, planned(theirs, HOT))
    assert ours.found(theirs.held)
    assert ours.crc is None
    plan = planned(ours, HOT)
    assert not plan.entries.keys() & theirs.entries.keys()
    assert ours.bits(plan) == frozenset()
    ((add, drop),) = ours.begin(plan)
    assert (list(add), drop) == (list(plan.entries), list(theirs.held))


def test_a_number_of_ours_under_which_somebody_else_has_put_a_program_means_nothing_any_more() -> None:
    ours, theirs = Table(), Table()
    put(ours, planned(ours, HOT))
    put(theirs, planned(theirs, "WHEN temperature > 30 UNTIL temperature <= 22"))
    (number,) = ours.held
    assert list(theirs.held) == [number]
    assert ours.found(theirs.held)
    assert ours.crc is None
    assert number not in ours.entries, "its events would be taken for those of our filter"
    plan = planned(ours, HOT)
    assert number not in plan.entries
    assert ours.bits(plan) == frozenset()
    ((add, drop),) = ours.begin(plan)
    assert (list(add), drop) == (list(plan.entries), [number])


def test_what_is_kept_comes_back() -> None:
    table = Table()
    put(table, planned(table, HOT + " EACH room", "temperature > 30", known=constants(room="kit")))
    table.renew()
    table.has_only(500)
    table.shrink_count()
    kept = table.to_json()
    back = Table.from_json(json.loads(json.dumps(kept)))
    assert back.to_json() == kept
    assert (back.held, back.entries) == (table.held, table.entries)
    assert next(iter(back.entries.values())).value == "kit"


def test_filters_are_compiled_once_and_again_when_they_change() -> None:
    programs = Programs()

    def compiled(filters: dict[str, ActiveFilter], known: Known) -> int:
        return sum(1 for _ in programs.make(Wanted(filters, known, 1), ATTRIBUTES, LAYOUT))

    both = wanted(HOT, "temperature > 30")
    assert compiled(both, Known()) == 2
    assert compiled(both, Known()) == 0
    assert compiled({**both, HOT: wanted("temperature > 31")["temperature > 31"]}, Known()) == 1
    assert compiled(both, Known()) == 1
    assert compiled(both, constants(room="kit")) == 2
    half = programs.make(Wanted(wanted("temperature > 1", "temperature > 2"), Known(), 1), ATTRIBUTES, LAYOUT)
    next(half)
    assert compiled(wanted("temperature > 1", "temperature > 2"), Known()) == 1, "it goes on where it was left"
    assert set(programs.made) == {"temperature > 1", "temperature > 2"}


@pytest.mark.parametrize(
    "rows",
    [
        [AttributeRow(f"a{n}", "", 1, 1, 0, 9) for n in range(30)],
        [AttributeRow("a", "", 1, 1, 0, 9)] * 2,
        [AttributeRow("a", "", 1, 1, 9, 0)],
        [AttributeRow("", "", 1, 1, 0, 9)],
    ],
)
def test_a_mote_that_says_what_cannot_be_is_refused(rows: list[AttributeRow]) -> None:
    with pytest.raises(UnusableMoteError):
        attributes_of(rows, Identity("hut"))


def event(number: int, sequence: int, flags: int = 0) -> Event:
    return Event(number, 1, 1, 1, sequence, EventFlag(flags), None, {})


def joined(*events: Event, epoch: int = 1) -> Joined | None:
    """What events of a mote mean on which HOT is under number 1, and "temperature > 30" under 2."""
    table, texts = Table(), (HOT, "temperature > 30")
    put(table, planned(table, *texts, epoch=epoch))
    rows = [AttributeRow("temperature", "C", 5, 100, -4000, 8500)]
    return join(events, table.entries, Wanted(wanted(*texts), Known(), epoch), "hut", rows, ["warmth"], 1000.0)


def test_what_a_mote_tells_is_in_its_attributes_own_units_and_names() -> None:
    one = joined(Event(1, 2, 1, 3, 7, EventFlag.LAST, 990, {0: 420}))
    assert one == Joined(3, 7, {"warmth": 21.0}, 990.0, {}, passed=True, strays=0)


@pytest.mark.parametrize(
    ("flags", "time", "expected"),
    [
        (EventFlag.AGE, 10, 990.0),
        (EventFlag.AGE, None, 1000.0),
        (EventFlag(0), 990, 990.0),
        (EventFlag(0), 5000, 1000.0),
    ],
)
def test_a_sample_is_as_old_as_the_mote_says_and_never_from_the_future(
    flags: EventFlag, time: int | None, expected: float
) -> None:
    one = joined(Event(1, 2, 1, 3, 7, flags | EventFlag.LAST, time, {0: 420}))
    assert one is not None
    assert one.time == expected


def test_a_label_counts_only_under_the_lease_that_its_filter_was_put_for() -> None:
    label = EventFlag.LABEL | EventFlag.BIT | EventFlag.LAST
    ours = joined(Event(1, 1, 0x1_0000_0002 & 0xFFFFFFFF, 3, 7, label, 990, {0: 420}), epoch=0x1_0000_0002)
    theirs = joined(Event(1, 1, 1, 3, 7, label, 990, {0: 420}), epoch=2)
    assert ours is not None
    assert theirs is not None
    assert {digest: mark.bit for digest, mark in ours.marks.items()} == {HOT: True}
    assert (theirs.marks, theirs.strays) == ({}, 1)


def test_signs_of_life_are_no_sample() -> None:
    presence = Event(1, 1, 1, 3, 7, EventFlag.PRESENCE, 990, {0: 420})
    assert joined(presence) is None
    one = joined(presence, Event(2, 2, 1, 3, 7, EventFlag.LAST, 990, {0: 420}))
    assert one is not None
    assert (one.marks, one.strays, one.passed) == ({}, 0, True)


def test_events_of_a_sample_whose_end_was_lost_are_not_joined_with_the_next() -> None:
    joiner = Joiner()
    assert joiner.add(event(1, 7)) is None
    whole = joiner.add(event(3, 8, EventFlag.LAST))
    assert whole == [event(3, 8, EventFlag.LAST)]


def test_a_mote_that_never_ends_a_sample_does_not_fill_memory() -> None:
    joiner = Joiner()
    found = [joiner.add(event(number, 7)) for number in range(MAX_JOINED)]
    assert [whole is None for whole in found[-2:]] == [True, False]


# ---- bits that the mote does not know


def said(number: int, flags: EventFlag, wanted: int = 1, epoch: int = 1) -> Event:
    return Event(number, wanted, epoch, 1, number, flags, 1000, {0: 3000})


def open_after(*flags: EventFlag) -> OpenBits:
    found = OpenBits()
    for number, flag in enumerate(flags, 1):
        found.told([said(number, flag)])
    return found


def test_a_bit_is_to_be_written_after_an_undecided_sample_until_a_label_or_a_restart() -> None:
    assert open_after(EventFlag.UNKNOWN).due(1) == [1]
    assert open_after(EventFlag.UNKNOWN, EventFlag.PRESENCE | EventFlag.UNKNOWN).due(2) == [1]
    assert open_after(EventFlag.UNKNOWN, EventFlag.LABEL | EventFlag.BIT).due(2) == []
    assert open_after(EventFlag.PRESENCE | EventFlag.UNKNOWN, EventFlag(0)).due(2) == []
    restarted = open_after(EventFlag.UNKNOWN)
    restarted.clear()
    assert restarted.due(1) == []


def test_a_refused_bit_is_written_again_after_other_events_and_not_for_ever() -> None:
    bits = open_after(EventFlag.UNKNOWN)
    for newest in range(1, MAX_WRITES + 1):
        assert bits.due(newest) == [1]
        bits.refused(1, newest)
        assert bits.due(newest) == [], "the mote would say the same"
    assert bits.due(MAX_WRITES + 1) == []
    bits.told([said(9, EventFlag.UNKNOWN)])
    assert bits.due(9) == [1], "the next such sample begins anew"


def test_what_a_mote_leaves_undecided_is_joined_unless_it_labels_the_same_sample() -> None:
    """While a program takes the place of another, both tell of one sample."""
    table = Table()
    put(table, planned(table, HOT))
    (entry,) = table.entries.values()
    older = {**table.entries, 9: entry}
    rows = [AttributeRow("temperature", "C", 1, 100, -4000, 8500)]
    undecided, label = said(1, EventFlag.UNKNOWN, entry.number), said(2, EventFlag.LABEL, 9)
    for events, left in (([undecided], {HOT}), ([undecided, label], set()), ([label], set())):
        one = join(events, older, Wanted(wanted(HOT), Known(), 1), "m", rows, ["temperature"], 1000.0)
        assert one is not None
        assert one.undecided == left
    strange = said(1, EventFlag.UNKNOWN, entry.number, epoch=2)
    one = join([strange], older, Wanted(wanted(HOT), Known(), 1), "m", rows, ["temperature"], 1000.0)
    assert one is not None
    assert (one.undecided, one.passed) == (frozenset(), False), "of another owner's program"
