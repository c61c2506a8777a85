"""Bits that a mote may not know: overlaps and ties left to the owner, and what the owner writes down (rule S2).

The mote and an owner that decides what it leaves open say together what one evaluator says that sees every sample.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_kit import part, run, values_of
from spinney_mote import owner, ring, table, vm, vm_viper, wire
from spinney_mote.labels import Labels
from spinney_mote.ring import Ring
from spinney_mote.samples import Sample
from spinney_mote.table import Table
from vector_motes import ties

from spinney import Known, mote, parse
from spinney.evaluator import Evaluator, Setting
from spinney.identity import PublicationId
from spinney.mote import Attribute, Compiled, Delivery, Refusal, layout
from spinney.mote.protocol import MAX_PROGRAM, Event, EventFlag
from spinney.subscription import DeadBand, StateSubscription

NUMBER = 7
TENTHS = (Attribute("a", 1, 10, -24, 24), Attribute("b", 1, 10, -24, 24))
HUNDREDTHS = (Attribute("a", 1, 100, 20, 68), Attribute("b", 1, 100, -24, 24))
THIRDS = (Attribute("a", 1, 3, -24, 24), Attribute("b", 1, 3, -24, 24))
MIXED = (Attribute("a", 1, 10, -30, 30), Attribute("b", 1, 3, -15, 15))
STEPS = {"0.1": TENTHS, "0.01": HUNDREDTHS, "1/3": THIRDS, "0.1 and 1/3": MIXED}


def state(text: str, **options: Any) -> StateSubscription:
    parsed = parse(text)
    assert isinstance(parsed, StateSubscription)
    return replace(parsed, **options)


def compiled(
    subscription: StateSubscription, attributes: tuple[Attribute, ...] = TENTHS, version: int = 2, **delivery: Any
) -> Compiled:
    made = mote.compile(subscription, Known(), attributes, Delivery(NUMBER, **delivery), version=version)
    assert isinstance(made, Compiled)
    return made


def program(subscription: StateSubscription, attributes: tuple[Attribute, ...] = TENTHS, **delivery: Any) -> bytes:
    made = compiled(subscription, attributes, **delivery)
    assert made.keeps_bit, made.reasons
    return made.program


# ---- sums: what is exact, and what is in doubt

SUMS = ("a - b > 0.3", "a + b >= 0.3", "a - b = 0.2", "a + b <> 1", "a + b > 1")
COMPARISONS = (*SUMS, "abs(a - b) > 0.7", "abs(a + b) <= 0.6")


def decided(code: bytes, raws: tuple[int | None, ...], index: int) -> bool | None:
    """What the mote says of enter (0) or exit (1); None where it says that it cannot decide."""
    begin, end = part(code, 3)
    if begin < end and run(code, raws, 3):
        return None
    return run(code, raws, index)


def readings(attributes: tuple[Attribute, ...], raws: tuple[int | None, ...]) -> dict[str, float]:
    return {item.name: item.decode(raw) for item, raw in zip(attributes, raws, strict=True) if raw is not None}


@pytest.mark.parametrize("text", COMPARISONS)
@pytest.mark.parametrize("step", STEPS)
def test_a_sum_is_decided_on_the_mote_but_where_raw_values_of_one_sum_differ(text: str, step: str) -> None:
    """For all raw values that there are: no verdict but the reference's, and no doubt without two verdicts."""
    attributes = STEPS[step]
    subscription = state(f"WHEN {text} UNTIL NOT ({text})")
    code = program(subscription, attributes)
    every = [range(item.low, item.high + 1) for item in attributes]
    doubts: dict[int, set[bool]] = {}
    verdicts: dict[int, set[bool]] = {}
    for raws in product(*every):
        holds = subscription.enter.evaluate(readings(attributes, raws)) is True
        total = int(sum_of(text, attributes, raws))
        verdicts.setdefault(total, set()).add(holds)
        if decided(code, raws, 0) is None:
            doubts.setdefault(total, set()).add(holds)
        else:
            assert (decided(code, raws, 0), decided(code, raws, 1)) == (holds, not holds), raws
    assert all(found == {True, False} for found in doubts.values()), "it would have been exact"
    assert {total for total, found in verdicts.items() if len(found) > 1} == doubts.keys()
    for raws in ((None, 5), (5, None), (None, None)):
        assert decided(code, raws, 0) is False, "unknown is not true, and not in doubt"
        assert decided(code, raws, 1) is False


@pytest.mark.parametrize("text", ["a + b - c >= 0.3", "a + b + c - c > 0.3", "a * b > 0.3", "a * b + c = 0.3"])
def test_what_the_compiler_cannot_ask_for_is_in_doubt_wherever_it_is_equal(text: str) -> None:
    """Of three attributes, of which one may cancel out but for its rounding, and of products."""
    attributes = tuple(Attribute(name, 1, 10, -8, 8) for name in "abc")
    subscription = state(f"WHEN {text} UNTIL NOT ({text})")
    code = program(subscription, attributes)
    doubts = 0
    for raws in product(range(-8, 9), repeat=3):
        holds = subscription.enter.evaluate(readings(attributes, raws)) is True
        said = decided(code, raws, 0)
        doubts += said is None
        assert said in (None, holds), raws
        assert decided(code, raws, 1) in (None, not holds), raws
    assert 0 < doubts < 17**3 / 10


def sum_of(text: str, attributes: tuple[Attribute, ...], raws: tuple[int, ...]) -> int:
    """The exact sum or difference, in thirtieths of a hundredth."""
    one, other = (raw * item.p * 300 // item.q for raw, item in zip(raws, attributes, strict=True))
    return one - other if "-" in text else one + other


def test_the_shared_ties_are_decided_as_everywhere_or_left_to_the_owner() -> None:
    """None as a content filter's feed, but by the programs that keep a bit."""
    undecided = 0
    for vector, attributes, raws in ties():
        code = program(state(f"WHEN {vector['filter']} UNTIL NOT ({vector['filter']})"), attributes)
        said = decided(code, raws, 0), decided(code, raws, 1)
        undecided += said == (None, None)
        assert said in ((None, None), (vector["verdict"] is True, vector["verdict"] is False)), vector["name"]
    assert len(ties()) >= 14
    assert 0 < undecided < len(ties()), "some are in doubt, and some can be shown not to be"


@pytest.mark.parametrize(("step", "text"), [("0.1", "a - b > 0.5"), ("0.01", "a - b > 0.05"), ("1/3", "a + b > 1")])
def test_ties_differ_where_doubles_do(step: str, text: str) -> None:
    """Otherwise the test above would show nothing: 8.05 - 3.05 > 5 is true in doubles."""
    attributes = STEPS[step]
    code = program(state(f"WHEN {text} UNTIL NOT ({text})"), attributes)
    begin, end = part(code, 3)
    assert end > begin
    assert parse_holds("8.05 - 3.05 > 5")
    assert not parse_holds("8 - 3 > 5")


def parse_holds(text: str) -> bool:
    return bool(state(f"WHEN {text} UNTIL x > 1").enter.evaluate({}))


def test_the_limits_of_attributes_bound_what_is_asked() -> None:
    """Of a - b = 5 in hundredths some are above in doubles, and some not; not so of those from 8 to 8.04."""
    text = "WHEN a - b > 5 UNTIL a - b <= 5"
    wide = (Attribute("a", 1, 100, -4000, 8500), Attribute("b", 1, 100, -4000, 8500))
    assert program(state(text), wide)[0] == 2
    above = [raw / 100 - (raw - 500) / 100 > 5 for raw in range(500, 1000)]
    alike = [low for low in range(500, 1000) if len(set(above[low - 500 : low - 496])) == 1]
    near = Attribute("a", 1, 100, alike[0], alike[0] + 3), Attribute("b", 1, 100, alike[0] - 500, alike[0] - 497)
    for narrow in ((near[0], wide[1]), (wide[0], near[1])):
        assert program(state(text), narrow)[0] == 1, "nothing is in doubt, so that motes of before can run it"
        assert compiled(state(text), narrow, version=1).keeps_bit


_SCALES = st.sampled_from(((1, 10), (1, 100), (1, 3), (1, 4), (3, 10), (1, 1000), (7, 100)))
_OPERATORS = st.sampled_from((">", ">=", "<", "<=", "=", "<>"))
_CONSTANTS = st.sampled_from((0.0, 0.1, 0.3, 0.5, 1.0, 2.5, 5.0, 0.07, 10.0, 1 / 3, -0.2))
_FORMS = st.sampled_from(("a - b", "a + b", "abs(a - b)", "abs(a + b)", "2 * a - b", "a - 3 * b", "a + b + 0.1"))


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(_SCALES, _SCALES, _FORMS, _OPERATORS, _CONSTANTS, st.integers(-3000, 3000), st.data())
def test_sums_of_any_two_attributes_mean_what_the_reference_says(
    one: tuple[int, int], other: tuple[int, int], form: str, operator: str, constant: float, low: int, data: Any
) -> None:
    text = f"{form} {operator} {constant!r}"
    attributes = (Attribute("a", *one, low, low + 4000), Attribute("b", *other, -2000, 2000))
    subscription = state(f"WHEN {text} UNTIL NOT ({text})")
    made = mote.compile(subscription, Known(), attributes, Delivery(NUMBER), version=2)
    if not isinstance(made, Compiled):
        assert made.never
        return
    if not made.keeps_bit:
        assert "abs" in form, made.reasons
        assert all("1.7976931348623157e+308" in one for one in made.reasons), "it holds of whatever there is"
        return
    for _ in range(20):
        raw = data.draw(st.integers(low, low + 4000))
        tie = near_tie(form, attributes, raw, constant)
        for other_raw in {max(-2000, min(2000, tie + by)) for by in (-1, 0, 1)}:
            holds = subscription.enter.evaluate(readings(attributes, (raw, other_raw))) is True
            said = decided(made.program, (raw, other_raw), 0)
            assert said in (None, holds), (raw, other_raw)
            assert decided(made.program, (raw, other_raw), 1) in (None, not holds)


def near_tie(form: str, attributes: tuple[Attribute, ...], raw: int, constant: float) -> int:
    """A raw value of b beside which the comparison may turn."""
    a = attributes[0].decode(raw)
    wanted = {
        "a - b": a - constant, "a + b": constant - a, "abs(a - b)": a + constant, "abs(a + b)": -a - constant,
        "2 * a - b": 2 * a - constant, "a - 3 * b": (a - constant) / 3, "a + b + 0.1": constant - a - 0.1,
    }[form]  # fmt: skip
    return round(wanted * attributes[1].q / attributes[1].p)


@pytest.mark.parametrize(
    ("text", "options", "reason"),
    [
        ("WHEN a > 2 UNTIL b > 2", {"debounce": 2.0}, "the cloud keeps the bit"),
        ("WHEN a - b > 0.3 UNTIL a - b <= 0.3", {"dead_band": DeadBand(attribute="a", by=0.5)}, "dead band"),
        ("WHEN a > 2 UNTIL b > 2 AND place = 'hall'", {}, "does not measure place"),
        ("WHEN a > 2 UNTIL b > 2", {"reorder": 5.0}, "the cloud keeps the bit"),
        ("WHEN a > 2 UNTIL a > 2", {}, "the cloud keeps the bit"),
    ],
)
def test_what_cannot_be_left_open_sends_its_feed(text: str, options: dict[str, Any], reason: str) -> None:
    made = compiled(state(text, **options))
    assert not made.keeps_bit
    assert made.program[0] == 1
    assert any(reason in one for one in made.reasons), made.reasons


@pytest.mark.parametrize(("constant", "keeps"), [("1000000000", True), ("100000000000", False)])
def test_more_in_doubt_than_ties_sends_its_feed(constant: str, keeps: bool) -> None:
    """Millionths beside a hundred thousand millions, where doubles are 15 of them apart."""
    millionths = tuple(Attribute(name, 1, 1_000_000, -100, 100) for name in "ab")
    text = f"a + {constant} - b > {constant}"
    made = compiled(state(f"WHEN {text} UNTIL NOT ({text})"), millionths)
    assert made.keeps_bit is keeps
    assert keeps or any("nearly equal" in one for one in made.reasons), made.reasons


def test_more_in_doubt_than_fits_into_a_program_sends_its_feed() -> None:
    enter = " OR ".join(f"a - b > {number / 10} AND a + b < {number}" for number in range(2, 6))
    made = compiled(state(f"WHEN {enter} UNTIL a - b < 0.1"))
    assert not made.keeps_bit
    assert any("more than 255" in one for one in made.reasons)


def test_a_program_is_no_longer_than_a_mote_takes() -> None:
    """Each of its parts would fit."""
    three = (*TENTHS, Attribute("c", 1, 10, -24, 24))
    even, odd = (", ".join(str(raw / 10) for raw in range(first, 24, 4)) for first in (-24, -22))
    enter, leave = (" AND ".join(f"{name} IN ({some})" for name in "abc") for some in (even, odd))
    subscription = state(f"WHEN {enter} UNTIL {leave} FOR {enter.replace('AND', 'OR')}")
    made = mote.compile(subscription, Known(), three)
    assert isinstance(made, Refusal)
    assert f"more than {MAX_PROGRAM}" in made.why


@pytest.mark.parametrize("text", ["WHEN a > 2 UNTIL b > 2", "WHEN a - b > 0.3 UNTIL a - b <= 0.3"])
def test_a_mote_of_the_version_before_gets_the_feed_as_ever(text: str) -> None:
    made = compiled(state(text), version=1)
    assert not made.keeps_bit
    assert made.program[0] == 1
    assert any("too old" in one for one in made.reasons)


# ---- bits: the mote and its owner together


class Reading(NamedTuple):
    """What happens next: a sample, perhaps after a reboot or with another owner; then perhaps a bit is written down."""

    a: int | None
    b: int | None
    change: str = ""
    writes: str = ""


class Side:
    """A mote whose table has one filter of version 2, and its owner, which decides what it leaves open."""

    def __init__(
        self,
        subscription: StateSubscription,
        attributes: tuple[Attribute, ...] = TENTHS,
        machine: Callable[..., int] = vm.run,
    ) -> None:
        self.subscription, self.attributes = subscription, attributes
        self.table = Table(len(attributes), layout(attributes))
        self.ring = Ring(4000)
        self.labels = Labels(self.table, self.ring, machine, [(item.p, item.q) for item in attributes])
        self.boot, self.epoch = 0, 1
        self.bit = False
        self.changes: list[tuple[int, int, bool]] = []
        self.flags: list[EventFlag] = []
        self.reboot()
        self.put()

    def put(self) -> None:
        self.table.change([program(self.subscription, self.attributes, epoch=self.epoch)])

    def reboot(self) -> None:
        self.boot += 1
        self.table.forget()
        self.sample = Sample([(item.low, item.high) for item in self.attributes], self.boot)

    def change(self, what: str) -> None:
        if what == "reboot":
            self.reboot()
        elif what == "owner":
            self.epoch += 1
            self.put()

    @property
    def is_known(self) -> bool:
        return bool(self.table.image[self.table.first() + 2] & table.KNOWN)

    def observe(self, *raws: int | None) -> dict[str, Any]:
        """A sample, whose events the owner takes at once; its publication."""
        self.sample.begin(1000 + self.sample.sequence, False)
        for index, raw in enumerate(raws):
            if raw is not None:
                self.sample.put(index, raw)
        self.labels.observe(self.sample)
        publication = {"time": float(self.sample.time), **readings(self.attributes, raws)}
        for event in self.events():
            self.flags.append(event.flags & ~EventFlag.LAST)
            if event.is_undecided:
                self.decide(publication)
            elif EventFlag.LABEL in event.flags:
                self.set(event.bit)
        return publication

    def events(self) -> Iterator[Event]:
        for number in range(self.ring.first, self.ring.next):
            event = self.ring.read(number, 0)
            assert event is not None
            yield Event.decode(bytes(event))
        self.ring.ack(self.ring.next - 1)

    def decide(self, publication: dict[str, Any]) -> None:
        """Rule S1 with the owner's bit."""
        wanted = self.subscription.exit if self.bit else self.subscription.enter
        if wanted.evaluate(publication) is True:
            self.set(not self.bit)

    def set(self, bit: bool) -> None:
        if bit is not self.bit:
            self.changes.append((self.boot, self.sample.sequence, bit))
        self.bit = bit

    def write(self, newest: int | None = None, bit: bool | None = None, epoch: int | None = None) -> tuple[int, bytes]:
        """The owner writes its bit down."""
        newest = self.ring.next - 1 if newest is None else newest
        bit = self.bit if bit is None else bit
        status, words = owner.bit(
            self, struct.pack(wire.SET_BIT_WRITE, NUMBER, self.epoch if epoch is None else epoch, newest, bit)
        )
        return status, words


def play(
    subscription: StateSubscription,
    history: list[Reading],
    attributes: tuple[Attribute, ...] = TENTHS,
    machine: Callable[..., int] = vm.run,
) -> Side:
    """A history, against one evaluator that sees every sample."""
    side = Side(subscription, attributes, machine)
    centre = Evaluator(subscription, recorded=lambda _: Setting(False))
    marks: list[tuple[int, int, bool]] = []
    for reading in history:
        side.change(reading.change)
        knew, before = side.is_known, len(side.flags)
        publication = side.observe(reading.a, reading.b)
        mark = centre.observe(PublicationId("m", side.boot, side.sample.sequence), publication, side.epoch)
        if mark is not None:
            marks.append((side.boot, side.sample.sequence, mark.bit))
        told = side.flags[before:]
        if knew and side.is_known:
            assert bool(told) is (mark is not None), "a bit that is known says each change, and nothing else"
        if reading.writes == "late":
            assert side.write(newest=side.ring.next - 2 & 0xFFFFFFFF)[0] == wire.REFUSED
        elif reading.writes:
            knows = side.is_known
            assert side.write()[0] == (wire.REFUSED if knows else wire.OK)
            assert side.is_known
    assert side.changes == marks
    return side


SUBSCRIPTIONS = [
    (state(text), attributes)
    for text, attributes in (
        ("WHEN a > 0.2 UNTIL b > 0.2", TENTHS),
        ("WHEN a > 0.2 UNTIL b > 0.2 FOR a + b < 4", TENTHS),
        ("WHEN a > b UNTIL a < 2", TENTHS),
        ("WHEN a - b > 0.3 UNTIL a - b <= 0.3", TENTHS),
        ("WHEN abs(a - b) > 0.3 UNTIL abs(a - b) <= 0.1", HUNDREDTHS),
        ("WHEN a + b > 1 UNTIL a + b <= 1 FOR a - b <= 2", THIRDS),
        ("WHEN a + b >= 0.3 UNTIL NOT (a + b >= 0.3) OR a IS NULL", MIXED),
        ("WHEN a - b > 0.3 UNTIL b > 0.1 FOR a - b < 2", TENTHS),
        ("WHEN a > 0.2 UNTIL a > 0.1", TENTHS),
    )
]
HISTORIES = st.lists(
    st.builds(
        Reading,
        st.sampled_from((None, -6, -1, 0, 1, 2, 3, 5, 6, 7, 8, 12, 13)),
        st.sampled_from((None, -3, 0, 1, 2, 3, 5, 7, 8)),
        st.sampled_from(("",) * 10 + ("reboot", "owner")),
        st.sampled_from(("", "", "", "now", "late")),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(SUBSCRIPTIONS), HISTORIES, st.sampled_from((vm.run, vm_viper.run)))
def test_a_mote_and_its_owner_say_what_one_evaluator_says(
    chosen: tuple[StateSubscription, tuple[Attribute, ...]], history: list[Reading], machine: Callable[..., int]
) -> None:
    play(chosen[0], history, chosen[1], machine)


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.sampled_from(SUBSCRIPTIONS), HISTORIES, st.sampled_from((vm.run, vm_viper.run)))
def test_a_mote_and_its_owner_say_what_one_evaluator_says_many_times_over(
    chosen: tuple[StateSubscription, tuple[Attribute, ...]], history: list[Reading], machine: Callable[..., int]
) -> None:
    play(chosen[0], history, chosen[1], machine)


# ---- one by one

OVERLAP = state("WHEN a > 0.2 UNTIL b > 0.2")
BOTH, RISES, FALLS, NEITHER = (3, 3), (3, 0), (0, 3), (0, 0)
LABEL, BIT, UNKNOWN = EventFlag.LABEL, EventFlag.BIT, EventFlag.UNKNOWN


def told(side: Side, *samples: tuple[int | None, int | None]) -> list[EventFlag | None]:
    """The event of each sample, if there is one."""
    found: list[EventFlag | None] = []
    for sample in samples:
        before = len(side.flags)
        side.observe(*sample)
        found.append(side.flags[-1] if len(side.flags) > before else None)
    return found


def test_while_the_bit_is_unknown_what_both_sets_and_ends_it_goes_undecided() -> None:
    side = Side(OVERLAP)
    assert told(side, BOTH, NEITHER, BOTH) == [UNKNOWN, None, UNKNOWN]
    assert told(side, RISES, RISES) == [LABEL | BIT, None], "one that tells sets it, as ever"


def test_while_the_bit_is_known_an_overlap_is_as_any_other_filter() -> None:
    side = Side(OVERLAP)
    assert told(side, FALLS, BOTH, BOTH, FALLS, BOTH) == [LABEL, LABEL | BIT, LABEL, None, LABEL | BIT]


def test_a_bit_that_is_written_down_spares_the_feed() -> None:
    side = Side(OVERLAP)
    assert told(side, BOTH, NEITHER) == [UNKNOWN, None]
    assert side.write() == (wire.OK, b"")
    assert told(side, NEITHER, RISES, BOTH, FALLS) == [None, None, LABEL, None]


def test_a_reboot_inside_the_overlap_leaves_the_bit_open_until_it_is_written_down() -> None:
    side = Side(OVERLAP)
    assert told(side, RISES) == [LABEL | BIT]
    side.reboot()
    assert told(side, BOTH) == [UNKNOWN]
    side.write()
    assert told(side, BOTH) == [LABEL | BIT]


def test_a_tie_in_doubt_makes_a_known_bit_unknown_until_the_owner_has_decided() -> None:
    """Of readings that are 0.3 apart in hundredths, some are above in doubles, and some not."""
    assert (0.2 - -0.1 > 0.3, 0.21 - -0.09 > 0.3) == (True, False)
    side = Side(state("WHEN a - b > 0.3 UNTIL a - b <= 0.3"), HUNDREDTHS)
    assert told(side, (60, 0), (20, -10), (21, -9)) == [LABEL | BIT, UNKNOWN, UNKNOWN]
    assert side.changes == [(1, 1, True), (1, 3, False)]
    assert side.write() == (wire.OK, b"")
    assert told(side, (29, 0), (31, 0)) == [None, LABEL | BIT]


def test_a_bit_is_not_taken_where_the_mote_knows_better() -> None:
    side = Side(OVERLAP)
    told(side, BOTH)
    newest = side.ring.next - 1
    assert side.write(epoch=9) == (wire.REFUSED, b"no such filter of this owner")
    told(side, BOTH)
    assert side.write(newest=newest) == (wire.REFUSED, b"the newest event is another one")
    assert side.write(newest=newest + 2)[0] == wire.REFUSED, "of another boot, perhaps"
    assert not side.is_known
    told(side, RISES)
    assert side.write() == (wire.REFUSED, b"the bit is known")
    assert owner.bit(side, struct.pack(wire.SET_BIT_WRITE, NUMBER, 1, newest, 2)) == (wire.MALFORMED, b"")
    side.table.change([], [NUMBER])
    assert side.write() == (wire.REFUSED, b"no such filter of this owner")


def test_a_bit_of_version_1_is_not_written_down() -> None:
    """It may be in a run of its debounce."""
    side = Side(OVERLAP)
    side.table.change([program(state("WHEN a > 0.2 UNTIL a < 0.1", debounce=5.0), epoch=1)])
    assert side.write() == (wire.REFUSED, b"no such filter of this owner")


def test_an_undecided_sample_is_critical_where_its_filter_is_and_goes_once() -> None:
    side = Side(OVERLAP)
    content = mote.compile(parse("a > 0.1"), Known(), TENTHS, Delivery(9, critical=True))
    assert isinstance(content, Compiled)
    side.table.change([program(OVERLAP, epoch=1, critical=True), content.program])
    assert told(side, BOTH) == [UNKNOWN | EventFlag.CRITICAL]
    assert len(side.flags) == 1, "the content filter needs no event of its own"


def test_an_undecided_sample_is_said_also_where_a_content_filter_has_sent_it() -> None:
    side = Side(OVERLAP)
    content = mote.compile(parse("a > 0.1"), Known(), TENTHS, Delivery(3))
    assert isinstance(content, Compiled)
    side.table.change([content.program])
    side.observe(*BOTH)
    assert side.flags == [EventFlag(0), UNKNOWN]


def test_a_heartbeat_says_that_the_bit_is_unknown_after_a_doubtful_sample() -> None:
    side = Side(OVERLAP)
    side.table.change([program(OVERLAP, epoch=1, heartbeat=1)])
    assert told(side, BOTH, NEITHER) == [UNKNOWN, EventFlag.PRESENCE | UNKNOWN]
    side.write()
    assert told(side, NEITHER) == [EventFlag.PRESENCE | BIT]


def test_an_event_that_is_undecided_is_no_label_and_no_presence() -> None:
    side = Side(OVERLAP)
    side.sample.begin(1, False)
    side.sample.put(0, 3)
    side.sample.put(1, 3)
    side.labels.observe(side.sample)
    (event,) = side.events()
    assert event.is_undecided
    assert (event.filter_id, event.owner_epoch, dict(event.values)) == (NUMBER, 1, {0: 3, 1: 3})
    assert event.flags == UNKNOWN | EventFlag.LAST
    assert ring.UNKNOWN == EventFlag.UNKNOWN
    assert values_of([3, 3]) == bytes(side.sample.values)
