"""Programs that are damaged, newer, for another mote or malicious are refused; the machines never read outside."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from machine_kit import ATTRIBUTES, KNOWN, LAYOUT, content, part, samples, values_of
from spinney_mote import programs, vm, vm_viper
from spinney_mote.programs import ProgramError

from spinney import mote, parse, parse_filter
from spinney.mote import Compiled, Delivery
from spinney.mote import code as host_code
from spinney.mote import compiler as host
from spinney.subscription import DeadBand, StateSubscription

TEXTS = [
    "WHEN a > 25 AND b < 40 AND lat > 50.5 UNTIL a < 22 OR b > 45 OR lat < 1",
    "WHEN c * d > 300 AND abs(c - d) < 2.5 UNTIL c * d < 200 FOR lat > 3 AND lat <> 4",
    "a IN (0.1, 0.5, 3) OR b IS NULL AND NOT (lat BETWEEN 50 AND 60)",
]
UNDECIDED = ["WHEN abs(a - b) > 2.5 UNTIL abs(a - b) <= 2 FOR c < 100", "WHEN a > 25 UNTIL b > 20"]
"""Of version 2: with ties in doubt, and with an overlap."""


def good_programs() -> Iterator[bytes]:
    for number, text in enumerate(TEXTS):
        subscription = parse(text)
        if isinstance(subscription, StateSubscription):
            object.__setattr__(subscription, "debounce", 3.0)
            object.__setattr__(subscription, "dead_band", DeadBand(attribute="a", by=0.5))
        compiled = mote.compile(subscription, KNOWN, ATTRIBUTES, Delivery(number, 5, heartbeat=60))
        assert isinstance(compiled, Compiled)
        yield compiled.program
    for number, text in enumerate(UNDECIDED, len(TEXTS)):
        delivery = Delivery(number, 5, heartbeat=60 * (number % 2))
        compiled = mote.compile(parse(text), KNOWN, ATTRIBUTES, delivery, version=2)
        assert isinstance(compiled, Compiled)
        assert (compiled.program[0], compiled.keeps_bit) == (2, True)
        yield compiled.program


GOOD = list(good_programs())


def sealed(program: bytes | bytearray) -> bytes:
    return bytes(program[:-4]) + zlib.crc32(bytes(program[:-4])).to_bytes(4, "little")


def check(program: bytes) -> None:
    programs.check(program, len(ATTRIBUTES), LAYOUT)


class Watched(bytearray):
    """A program in its table: reading outside of the part that runs is found out."""

    bounds = (0, 0)

    def __getitem__(self, key: Any) -> Any:
        assert self.bounds[0] <= key < self.bounds[1], f"{key} is outside {self.bounds}"
        return super().__getitem__(key)


def run_watched(program: bytes, raws: list[int], present: int) -> None:
    for index in range(4):
        begin, end = part(program, index)
        code, values = Watched(program), Watched(values_of(raws))
        code.bounds, values.bounds = (begin, end), (0, len(values))
        results = [machine(code, begin, end, values, present) for machine in (vm.run, vm_viper.run)]
        assert results[0] == results[1]
        assert results[0] in (0, 1)


def test_good_programs_are_good() -> None:
    for program in GOOD:
        check(program)


@pytest.mark.parametrize("program", GOOD, ids=TEXTS + UNDECIDED)
def test_every_truncation_and_every_flipped_bit_is_refused(program: bytes) -> None:
    for size in range(len(program)):
        with pytest.raises(ProgramError):
            check(program[:size])
    for bit in range(8 * len(program)):
        flipped = bytearray(program)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProgramError):
            check(bytes(flipped))


def changed(program: bytes, at: int, value: int) -> bytes:
    found = bytearray(program)
    found[at] = value
    return sealed(found)


BEGIN = part(GOOD[0], 0)[0]


SEALED_BUT_WRONG = [
    (changed(GOOD[0], 0, 3), "version 3; this mote runs versions up to 2"),
    (changed(GOOD[0], 0, 0), "version 0"),
    (changed(GOOD[0], 0, 2), "a flag or an option"),
    (changed(GOOD[3], 0, 1), "a flag or an option"),
    (changed(GOOD[3], 13, GOOD[3][13] & 7), "do not add up"),
    (changed(GOOD[3], programs.option_at(GOOD[3], 0, programs.DOUBT), 255), "do not add up"),
    (changed(GOOD[4], 1, 0), "a state filter has an exit"),
    (changed(changed(GOOD[2], 0, 2), 13, 0), "only a state filter needs version 2"),
    (changed(GOOD[0], 4, GOOD[0][4] ^ 1), "other attributes"),
    (changed(GOOD[0], 1, 0x81), "flag"),
    (changed(GOOD[0], 13, 0x88), "option"),
    (changed(GOOD[0], 10, 0), "do not add up"),
    (changed(GOOD[0], 1, 0), "state filter has an exit"),
    (changed(GOOD[0], BEGIN, 0x60 | 6), "attribute"),
    (changed(GOOD[0], BEGIN, 0x20 | 29), "attribute"),
    (changed(GOOD[0], BEGIN, 7), "unknown or broken"),
    (changed(GOOD[0], part(GOOD[0], 0)[0] + 4, 255), "jump"),
    (changed(GOOD[0], part(GOOD[0], 0)[0] + 4, 1), "jump"),
    (sealed(bytes(601)), "600 bytes"),
]


@pytest.mark.parametrize(("program", "reason"), SEALED_BUT_WRONG, ids=[reason for _, reason in SEALED_BUT_WRONG])
def test_what_is_sealed_but_wrong_is_refused_with_the_reason(program: bytes, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        check(program)


def test_a_dead_band_of_no_attribute_is_refused() -> None:
    at = programs.option_at(GOOD[0], 0, programs.DEAD_BAND)
    with pytest.raises(ProgramError, match="dead band"):
        check(changed(GOOD[0], at, 6))


def mutate(random: Random, program: bytes) -> bytes:
    """Bytes changed, added or taken away, parts' sizes shifted."""
    found = bytearray(program)
    for _ in range(random.choice([1, 1, 2, 4])):
        at = random.randrange(len(found))
        match random.randrange(6):
            case 0:
                found[at] ^= 1 << random.randrange(8)
            case 1:
                found[at] = random.choice([0, 1, 2, 3, 4, 5, 6, 7, 29, 0x3F, 0x7D, 0xDD, 0xC0, 255])
            case 2:
                found.insert(at, random.randrange(256))
            case 3 if len(found) > 20:
                del found[at]
            case 4:
                found[10], found[11] = max(0, found[10] - 1), found[11] + 1 & 255
            case _:
                at = random.randrange(programs.HEADER, len(found))
                found[at] = random.randrange(256)
    return bytes(found)


def fuzz(seed: int, count: int) -> int:
    """Mutated programs are refused by their CRC; sealed again, so that it does not help, some are good programs."""
    random = Random(seed)
    accepted = 0
    for _ in range(count):
        mutated = mutate(random, random.choice(GOOD))
        if mutated not in GOOD:
            with pytest.raises(ProgramError):
                check(mutated)
        program = sealed(mutated)
        try:
            check(program)
        except ProgramError:
            continue
        accepted += 1
        raws = [random.choice([item.low, item.high, 0, 7]) for item in ATTRIBUTES]
        run_watched(program, raws, random.randrange(64))
    return accepted


def test_20_000_mutations_are_refused_or_run_within_their_bounds() -> None:
    accepted = fuzz(20_261, 20_000)
    assert accepted > 1_000, "otherwise the machines were hardly tried"


@pytest.mark.soak
def test_mutations_are_refused_or_run_within_their_bounds_many_times_over() -> None:
    assert fuzz(7, 2_000_000) > 100_000


def test_random_bytes_are_refused() -> None:
    random = Random(3)
    for _ in range(5_000):
        with pytest.raises(ProgramError):
            check(random.randbytes(random.randrange(700)))


def test_compiler_and_mote_share_their_numbers() -> None:
    assert (host.VERSION, host.MAX_PROGRAM) == (programs.VERSION, programs.MAX_SIZE)
    assert (host.STATE, host.WEAKER, host.CRITICAL) == (programs.STATE, programs.WEAKER, programs.CRITICAL)
    assert (host.DEBOUNCE, host.HEARTBEAT, host.DEAD_BAND, host.DOUBT) == (
        programs.DEBOUNCE,
        programs.HEARTBEAT,
        programs.DEAD_BAND,
        programs.DOUBT,
    )
    assert host_code.SUM == vm.SUM
    assert mote.layout(ATTRIBUTES) == programs.layout(
        [(item.name, item.p, item.q, item.low, item.high) for item in ATTRIBUTES]
    )


@pytest.mark.parametrize("machine", [vm.run, vm_viper.run])
def test_wide_tests_and_sums_at_the_ends_of_int32(machine: Callable[..., int]) -> None:
    low, high = -(2**31), 2**31 - 1
    values = values_of([low, high, -1])
    for index, bound, value in ((0, low, low), (1, high, high), (2, -(2**30), -1)):
        packed = bound.to_bytes(4, "little", signed=True)
        assert machine(bytes([0xC0 | index, 0]) + packed, 0, 6, values, 7) == (value >= bound)
        assert machine(bytes([0xC0 | index, 1]) + packed, 0, 6, values, 7) == (value <= bound)
        assert machine(bytes([0xC0 | index, 2]) + packed * 2, 0, 10, values, 7) == (value == bound)
        assert machine(bytes([0xC0 | index, 3]) + packed * 2, 0, 10, values, 7) == (value != bound)
    assert machine(bytes([2, 3, 2]) + (-5).to_bytes(4, "little", signed=True) + b"\x7d\x05\x00", 0, 10, values, 7) == 1


def test_an_empty_sample_decides_without_values() -> None:
    compiled = mote.compile(content(parse_filter("a IS NULL AND NOT (b > 3)")), KNOWN, ATTRIBUTES)
    assert isinstance(compiled, Compiled)
    begin, end = part(compiled.program, 0)
    assert vm.run(compiled.program, begin, end, bytes(24), 0b000010) == 1
    assert vm.run(compiled.program, begin, end, bytes(24), 0) == 0
    assert samples(Random(1), parse_filter("a > 1"))
