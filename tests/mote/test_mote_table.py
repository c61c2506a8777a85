"""The filter table: all or nothing, bits kept, damage refused; and the ring."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_kit import ATTRIBUTES, KNOWN, LAYOUT
from spinney_mote import ring, table
from spinney_mote.programs import ProgramError
from spinney_mote.ring import Ring
from spinney_mote.samples import Sample
from spinney_mote.table import Table, TableError

from spinney import mote, parse
from spinney.mote import Compiled, Delivery


def program(number: int, threshold: int = 20, epoch: int = 0) -> bytes:
    text = f"WHEN a > {threshold} UNTIL a < {threshold - 2}"
    compiled = mote.compile(parse(text), KNOWN, ATTRIBUTES, Delivery(number, epoch))
    assert isinstance(compiled, Compiled)
    return compiled.program


def new_table(*numbers: int, capacity: int = 8192) -> Table:
    found = Table(len(ATTRIBUTES), LAYOUT, capacity)
    found.change([program(number) for number in numbers])
    return found


def programs_of(found: Table) -> dict[int, bytes | None]:
    return {number: found.program(number) for number in range(40) if found.find(number)}


def test_programs_come_and_go_and_the_crc_says_which_there_are() -> None:
    one = new_table(3, 1, 2)
    other = new_table(2)
    other.change([program(1), program(3), program(5)])
    assert other.crc != one.crc
    other.change(drop=[5, 17])
    assert other.crc == one.crc
    assert len(one) == 3
    assert one.program(2) == program(2)
    assert one.program(4) is None


def test_a_change_is_made_wholly_or_not_at_all() -> None:
    found = new_table(1, 2)
    before = bytes(found.image)
    with pytest.raises(ProgramError):
        found.change([program(3), program(4)[:-1]], drop=[1])
    assert bytes(found.image) == before


def test_a_table_that_is_full_says_so_and_stays_as_it_is() -> None:
    found = new_table(1, 2, capacity=120)
    before = bytes(found.image)
    with pytest.raises(TableError, match="there are 120"):
        found.change([program(3), program(4)])
    assert bytes(found.image) == before
    assert found.change([program(3)], drop=[1])


def test_bits_stay_while_others_come_and_go() -> None:
    found = new_table(1, 2)
    found.image[found.find(2) + 2] = table.KNOWN | table.BIT
    found.change([program(0), program(2)], drop=[1])
    assert found.image[found.find(2) + 2] == table.KNOWN | table.BIT
    found.change([program(2, epoch=1)])
    assert found.image[found.find(2) + 2] == 0


def test_dropping_and_adding_the_same_program_keeps_its_bit() -> None:
    """Within one change a program is replaced, whichever list names it first."""
    found = new_table(1)
    found.image[found.find(1) + 2] = table.KNOWN
    assert not found.change([program(1)], drop=[1])
    assert found.image[found.find(1) + 2] == table.KNOWN


def test_after_a_start_every_bit_is_unknown() -> None:
    found = new_table(1, 2)
    crc = found.crc
    for number in (1, 2):
        for index in range(2, table.ENTRY):
            found.image[found.find(number) + index] = 255
    found.forget()
    assert programs_of(found) == programs_of(new_table(1, 2))
    assert all(found.image[found.find(number) + 2] == 0 for number in (1, 2))
    assert found.crc == crc


def test_a_written_table_comes_back_with_its_bits() -> None:
    found = new_table(1, 2)
    found.image[found.find(2) + 2] = table.KNOWN | table.BIT
    back = Table(len(ATTRIBUTES), LAYOUT)
    back.load(bytes(found.image))
    assert back.image == found.image
    assert back.generation == found.generation == 1


def test_a_damaged_table_is_refused_wherever_the_damage_is() -> None:
    whole = bytes(new_table(1, 2).image)
    status = [
        start + index
        for start in (table.HEADER, table.HEADER + table.ENTRY + len(program(1)))
        for index in range(2, table.ENTRY)
    ]
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 4
        assert table.is_whole(damaged) is (at in status)
        assert not table.is_whole(whole[:at])


def test_a_table_for_other_attributes_is_refused() -> None:
    other = Table(len(ATTRIBUTES), LAYOUT ^ 1)
    with pytest.raises(ProgramError, match="other attributes"):
        other.load(bytes(new_table(1).image))
    assert len(other) == 0


# ---- the ring of events


def filled(events: Ring, count: int) -> None:
    sample = Sample([(item.low, item.high) for item in ATTRIBUTES], 3)
    for n in range(count):
        sample.begin(1000 + n, n % 2 == 0)
        for index in range(n % 7):
            sample.put(index, -n)
        events.add(n % 5, 9, sample, ring.LABEL)


def heads(events: Ring, uptime: int = 2000) -> list[tuple[int, ...]]:
    found = [events.read(number, uptime) for number in range(events.first, events.next)]
    return [ring.unpack_from(ring.HEAD, event, 0) for event in found if event is not None]


def test_events_come_back_as_they_were_put_in() -> None:
    events = Ring(4096)
    filled(events, 9)
    assert heads(events)[6] == (7, 1, 9, 3, 7, ring.LABEL | ring.AGE, 2000 - 1006, 0b111111)
    assert heads(events)[5] == (6, 0, 9, 3, 6, ring.LABEL, 1005, 0b11111)
    event = events.read(4, 2000)
    assert event is not None
    assert ring.unpack_from("<iii", event, ring.HEAD_SIZE) == (-3, -3, -3)
    assert len(event) <= ring.MAX_EVENT <= 244


def test_an_age_that_cannot_be_is_none() -> None:
    events = Ring(4096)
    filled(events, 1)
    assert heads(events, 999)[0][6] == ring.NO_SECONDS


@settings(max_examples=60)
@given(st.lists(st.one_of(st.integers(1, 30), st.integers(-40, -1)), max_size=20), st.integers(0, 2**32 - 1))
def test_a_ring_is_a_queue_that_loses_its_oldest_and_counts_them(steps: list[int], seed: int) -> None:
    events = Ring(Random(seed).randint(150, 1500))
    sample = Sample([(item.low, item.high) for item in ATTRIBUTES], 3)
    acked = 0
    for step in steps:
        if step < 0:
            acked = max(acked, events.first - 1 if events.first > -step else min(-step, events.next - 1))
            events.ack(min(-step, events.next - 1))
            continue
        for _ in range(step):
            sample.begin(1000 + events.next, False)
            for index in range(events.next % 7):
                sample.put(index, events.next)
            events.add(events.next % 9, 1, sample, 0)
    assert [head[0] for head in heads(events)] == list(range(events.first, events.next))
    assert all(head[4:7] == (head[0], 0, 1000 + head[0]) for head in heads(events))
    assert len(events) == events.next - events.first
    assert events.first - 1 >= acked
    assert events.dropped <= events.first - 1
    assert events.read(events.next, 0) is None
    assert events.read(events.first - 1, 0) is None


def test_what_is_dropped_is_the_oldest_and_counted() -> None:
    events = Ring(200)
    filled(events, 50)
    assert events.dropped == events.first - 1 > 0
    assert len(events) >= 2


def test_an_ack_of_a_number_never_given_forgets_nothing() -> None:
    events = Ring(4096)
    filled(events, 5)
    events.ack(6)
    assert len(events) == 5
    events.ack(2)
    assert [head[0] for head in heads(events)] == [3, 4, 5]
    events.ack(5)
    assert len(events) == 0


def test_a_ring_holds_at_least_one_event() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Ring(ring.MAX_EVENT)
