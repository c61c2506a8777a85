"""Labels of the mote against the reference evaluator on the same samples: what makes edge = centre."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spinney_mote import ring, vm, vm_viper
from spinney_mote.exact import nearest
from spinney_mote.labels import Labels
from spinney_mote.ring import Ring
from spinney_mote.samples import Sample
from spinney_mote.table import Table

from spinney import Known, mote, parse
from spinney.evaluator import Evaluator
from spinney.identity import PublicationId
from spinney.mote import Attribute, Compiled, Delivery, layout
from spinney.subscription import DeadBand, StateSubscription

ATTRIBUTES = (Attribute("x", 1, 100, -300, 1_000), Attribute("y", 1, 4, -20, 40))
LAYOUT = layout(ATTRIBUTES)
NUMBER = 7


class Reading(NamedTuple):
    """What happens next: a sample, perhaps after seconds, a reboot or another owner."""

    x: int | None
    y: int | None
    seconds: int = 1
    change: str = ""


class Told(NamedTuple):
    """A label as both say it."""

    epoch: int
    boot: int
    sequence: int
    bit: bool


def state(text: str, **options: Any) -> StateSubscription:
    parsed = parse(text)
    assert isinstance(parsed, StateSubscription)
    return replace(parsed, **options)


def program(subscription: StateSubscription, **delivery: Any) -> bytes:
    compiled = mote.compile(subscription, Known(), ATTRIBUTES, Delivery(NUMBER, **delivery))
    assert isinstance(compiled, Compiled)
    assert compiled.keeps_bit, compiled.reasons
    return compiled.program


class Board:
    """A mote's table, ring and labels."""

    def __init__(self, machine: Callable[..., int] = vm.run) -> None:
        self.table = Table(len(ATTRIBUTES), LAYOUT)
        self.ring = Ring(2000)
        self.labels = Labels(self.table, self.ring, machine, [(item.p, item.q) for item in ATTRIBUTES])
        self.boot = 0
        self.time = 1000
        self.reboot()

    def reboot(self) -> None:
        self.boot += 1
        self.table.forget()
        self.sample = Sample([(item.low, item.high) for item in ATTRIBUTES], self.boot)

    def observe(self, reading: Reading) -> int:
        self.time += reading.seconds
        self.sample.begin(self.time, False)
        for index, raw in enumerate((reading.x, reading.y)):
            if raw is not None:
                self.sample.put(index, raw)
        return self.labels.observe(self.sample)

    def publication(self) -> dict[str, Any]:
        present = [index for index in range(len(ATTRIBUTES)) if self.sample.present >> index & 1]
        return {
            "time": float(self.sample.time),
            **{ATTRIBUTES[index].name: ATTRIBUTES[index].decode(self.sample.value(index)) for index in present},
        }

    def told(self) -> list[Told]:
        """All labels in the ring, which is emptied."""
        found = []
        for number in range(self.ring.first, self.ring.next):
            event = self.ring.read(number, self.time)
            assert event is not None
            _, filter_id, epoch, boot, sequence, flags, _, _ = ring.unpack_from(ring.HEAD, event, 0)
            assert filter_id == NUMBER
            assert flags & ring.LABEL
            found.append(Told(epoch, boot, sequence, bool(flags & ring.BIT)))
        self.ring.ack(self.ring.next - 1)
        return found


def compare(subscription: StateSubscription, history: Sequence[Reading], machine: Callable[..., int] = vm.run) -> None:
    board, evaluator, epoch = Board(machine), Evaluator(subscription), 1
    board.table.change([program(subscription, epoch=epoch)])
    marked: list[Told] = []
    told: list[Told] = []
    for reading in history:
        if reading.change == "reboot":
            board.reboot()
        elif reading.change == "owner":
            epoch += 1
            board.table.change([program(subscription, epoch=epoch)])
        elif reading.change == "again":
            board.table.change([program(subscription, epoch=epoch)])
        board.observe(reading)
        told += board.told()
        this = PublicationId("m", board.sample.boot, board.sample.sequence)
        mark = evaluator.observe(this, board.publication(), epoch)
        if mark is not None:
            marked.append(Told(*mark.order, mark.bit))
    assert told == marked


SUBSCRIPTIONS = [
    state(text, **options)
    for text in (
        "WHEN x > 2.5 UNTIL x <= 2.2",
        "WHEN x >= 2 UNTIL x < 2 FOR y > 0",
        "WHEN x > 2 AND NOT y = 1 UNTIL x IS NULL OR x < 1",
        "WHEN x > y UNTIL x <= y",
    )
    for options in (
        {},
        {"debounce": 2.0},
        {"debounce": 2.5},
        {"dead_band": DeadBand(attribute="x", by=0.5)},
        {"dead_band": DeadBand(attribute="y", by=0.3), "debounce": 1.0},
    )
]
_RAWS = st.sampled_from((None, 0, 50, 100, 199, 200, 201, 220, 221, 249, 250, 251, 270, 300, 2000))
READINGS = st.builds(
    Reading,
    _RAWS,
    st.sampled_from((None, -1, 0, 1, 4, 5, 10, 11)),
    st.sampled_from((0, 1, 1, 1, 2, 3)),
    st.sampled_from(("",) * 12 + ("reboot", "owner", "again")),
)
HISTORIES = st.lists(READINGS, min_size=10, max_size=40)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SUBSCRIPTIONS), HISTORIES, st.sampled_from((vm.run, vm_viper.run)))
def test_a_mote_labels_what_the_reference_marks(
    subscription: StateSubscription, history: list[Reading], machine: Callable[..., int]
) -> None:
    compare(subscription, history, machine)


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SUBSCRIPTIONS), HISTORIES, st.sampled_from((vm.run, vm_viper.run)))
def test_a_mote_labels_what_the_reference_marks_many_times_over(
    subscription: StateSubscription, history: list[Reading], machine: Callable[..., int]
) -> None:
    compare(subscription, history, machine)


# ---- one by one


def feed(board: Board, *xs: int | None) -> list[tuple[int, bool]]:
    for x in xs:
        board.observe(Reading(x, None))
    return [(told.sequence, told.bit) for told in board.told()]


def board_with(subscription: StateSubscription, **delivery: Any) -> Board:
    board = Board()
    board.table.change([program(subscription, **delivery)])
    return board


def test_an_unknown_bit_is_labelled_by_the_first_sample_that_tells() -> None:
    board = board_with(state("WHEN x > 2.5 UNTIL x <= 2.2"))
    assert feed(board, 230, 220, 219, 251, 300) == [(2, False), (4, True)]
    board.reboot()
    assert feed(board, 230, 300, 300) == [(2, True)]


def test_the_same_program_again_keeps_the_bit_and_another_epoch_does_not() -> None:
    subscription = state("WHEN x > 2.5 UNTIL x <= 2.2")
    board = board_with(subscription, epoch=1)
    assert feed(board, 300) == [(1, True)]
    assert not board.table.change([program(subscription, epoch=1)])
    assert feed(board, 300) == []
    assert board.table.change([program(subscription, epoch=2)])
    assert feed(board, 300) == [(3, True)]


def test_a_dead_band_moves_as_doubles_do_not_as_raw_numbers_do() -> None:
    """0.57 - 0.07 is less than 0.5 in doubles, and 0.6 - 0.1 is not."""
    for start, end in ((7, 57), (10, 60)):
        subscription = state(
            f"WHEN x > {(end - 1) / 100} UNTIL x < {(start + 2) / 100}", dead_band=DeadBand(attribute="x", by=0.5)
        )
        board = board_with(subscription)
        moved = end / 100 - start / 100 >= 0.5
        assert moved is (start == 10)
        assert feed(board, start, end) == [(1, False), (2, True)][: 1 + moved]


def test_a_dead_band_waits_while_its_attribute_is_missing() -> None:
    subscription = state("WHEN x > 2.5 UNTIL x <= 2.2", dead_band=DeadBand(attribute="y", by=0.3))
    history = [Reading(0, 0), Reading(300, None), Reading(300, 1), Reading(300, 2), Reading(0, None), Reading(0, 10)]
    compare(subscription, history)
    board = board_with(subscription)
    assert [board.observe(reading) for reading in history] == [1, 0, 0, 1, 0, 1]


@settings(max_examples=300)
@given(st.integers(1, 2**62), st.integers(1, 2**40))
def test_the_nearest_double_in_whole_numbers_is_the_double(n: int, d: int) -> None:
    m, shift = nearest(n, d)
    assert m / 2**shift == n / d


def test_a_run_begins_anew_when_the_clock_is_set() -> None:
    board = board_with(state("WHEN x > 2.5 UNTIL x <= 2.2", debounce=3.0))
    told = []
    for time, aged in ((10, True), (11, True), (1_763_424_000, False), (1_763_424_002, False), (1_763_424_003, False)):
        board.sample.begin(time, aged)
        board.sample.put(0, 300)
        told.append(board.labels.observe(board.sample))
    assert told == [0, 0, 0, 0, 1]


def test_a_heartbeat_says_that_the_mote_is_there_and_changes_no_bit() -> None:
    board = board_with(state("WHEN x > 2.5 UNTIL x <= 2.2"), heartbeat=3)
    flags = []
    for x in (230, 230, 230, 300, 300, 300, 300, 300):
        before = board.ring.next
        board.observe(Reading(x, None))
        event = board.ring.read(before, board.time)
        flags.append(None if event is None else event[18] & ~ring.LAST)
    silent = ring.PRESENCE | ring.UNKNOWN
    label, alive = ring.LABEL | ring.BIT, ring.PRESENCE | ring.BIT
    assert flags == [silent, None, None, label, None, None, alive, None]


def test_a_content_filter_sends_each_sample_that_matches() -> None:
    board = Board()
    compiled = mote.compile(parse("x > 2.5"), Known(), ATTRIBUTES, Delivery(3, critical=True))
    assert isinstance(compiled, Compiled)
    board.table.change([compiled.program])
    assert [board.observe(Reading(x, 1)) for x in (250, 251, None, 300, 300)] == [0, 1, 0, 1, 1]
    event = board.ring.read(board.ring.first, board.time)
    assert event is not None
    head = ring.unpack_from(ring.HEAD, event, 0)
    assert head == (1, 3, 0, 1, 2, ring.CRITICAL | ring.LAST, 1002, 0b11)
    assert ring.unpack_from("<ii", event, ring.HEAD_SIZE) == (251, 1)


def test_what_several_content_filters_want_goes_once_unless_it_becomes_critical() -> None:
    board = Board()
    texts = ("x > 1", "WHEN x > 2.5 UNTIL x <= 2.2", "x > 2", "x > 3", "x > 4", "x > 5")
    deliveries = [Delivery(n, critical=n in (4, 6)) for n in range(1, 7)]
    made = [mote.compile(parse(text), Known(), ATTRIBUTES, d) for text, d in zip(texts, deliveries, strict=True)]
    board.table.change([one.program for one in made if isinstance(one, Compiled)])
    told = []
    for x in (50, 150, 240, 260, 301, 700):
        board.observe(Reading(x, 1))
        events = [board.ring.read(number, board.time) for number in range(board.ring.first, board.ring.next)]
        told.append([event[4] for event in events if event])
        board.ring.ack(board.ring.next - 1)
    assert told == [[2], [1], [1], [1, 2], [1, 4], [1, 4]]


def test_the_last_event_of_a_sample_says_so_that_all_of_it_can_be_joined() -> None:
    board = Board()
    texts = ("x > 2.5", "WHEN x > 2.5 UNTIL x <= 2.2", "x > 9")
    made = [mote.compile(parse(text), Known(), ATTRIBUTES, Delivery(n)) for n, text in enumerate(texts, 1)]
    board.table.change([one.program for one in made if isinstance(one, Compiled)])
    assert [board.observe(Reading(x, 1)) for x in (300, 300, 100, 100)] == [2, 1, 1, 0]
    events = [board.ring.read(number, board.time) for number in range(board.ring.first, board.ring.next)]
    assert [(event[4], event[18] & ring.LAST) for event in events if event] == [
        (1, 0),
        (2, ring.LAST),
        (1, ring.LAST),
        (2, ring.LAST),
    ]


def test_a_value_outside_its_range_is_missing_and_counted() -> None:
    board = board_with(state("WHEN x > 2.5 UNTIL x IS NULL"))
    assert feed(board, 300, 1001) == [(1, True), (2, False)]
    assert board.sample.outside == 1
