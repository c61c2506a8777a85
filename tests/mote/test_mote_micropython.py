"""The library on real MicroPython: the same verdicts and labels, what it allocates, and what it compiles to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from machine_kit import ATTRIBUTES, KNOWN
from machine_kit import run as run_here
from places import FIRMWARE
from spinney_mote import programs
from vector_motes import MoteVector, expressed, vectors

from spinney import Known, mote, parse, parse_filter
from spinney.mote import Attribute, Compiled, Delivery, layout
from spinney.subscription import ContentSubscription
from spinney_tools import micropython
from spinney_tools.check.mote import FILTERING, library_ram
from spinney_tools.micropython import MicroPythonFailed, MicroPythonMissing

LEAST_EXPRESSED = 1_800
"""Of 2,690 shared vectors; the others hold numbers beyond int32, or computations that are left to the broker."""
MACHINES = """
from array import array
from spinney_mote import vm
plain = {"ptr8": lambda x: x, "ptr32": lambda x: array("i", x)}
with open("/lib/viper.py") as file:
    exec(file.read(), plain)
machines = (vm.run, plain["run"])
def verdicts(code, values, present):
    return [machine(code, 14, 14 + code[10], values, present) for machine in machines]
"""


@pytest.fixture(scope="module")
def library() -> dict[str, bytes]:
    """The firmware's files, and viper's text as Python; skips where MicroPython cannot be had."""
    try:
        micropython.module()
    except MicroPythonMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    text = (FIRMWARE / "spinney_mote" / "vm_viper.py").read_text(encoding="utf-8")
    text = text[text.index("@micropython.viper") :].replace("@micropython.viper\n", "")
    return {**micropython.library(FIRMWARE), "/lib/viper.py": text.encode()}


@pytest.fixture(scope="module")
def vector_runs() -> tuple[list[MoteVector], int]:
    return expressed()


def test_the_machines_agree_with_the_shared_vectors(vector_runs: tuple[list[MoteVector], int]) -> None:
    runs, count = vector_runs
    wrong = []
    for item in runs:
        programs.check(item.program, len(item.attributes), layout(item.attributes))
        if run_here(item.program, item.raws) is not item.holds:
            wrong.append(item)
    assert not wrong, wrong[0]
    assert count >= LEAST_EXPRESSED, f"{count} of {len(vectors())} vectors are expressed in int32"


def test_micropython_agrees_with_the_shared_vectors(
    library: dict[str, bytes], vector_runs: tuple[list[MoteVector], int]
) -> None:
    """With the portable machine, and with viper's text as Python, which this build lacks the native code for."""
    runs, _ = vector_runs
    lines = [f"{item.program.hex()} {int(item.holds)} {_values(item.raws)}" for item in runs]
    script = """
wrong = 0
with open("/vectors") as file:
    for line in file:
        code, holds, present, *raws = line.split()
        found = verdicts(bytes.fromhex(code), bytes(array("i", [int(raw) for raw in raws])), int(present))
        wrong += found != [int(holds)] * 2
print("wrong:", wrong)
"""
    files = {**library, "/vectors": "\n".join(lines).encode()}
    assert micropython.run(MACHINES + script, files=files).split() == ["wrong:", "0"]


def _values(raws: tuple[int | None, ...]) -> str:
    present = sum(1 << index for index, raw in enumerate(raws) if raw is not None)
    return " ".join(map(str, [present, *(raw if raw is not None else 77 for raw in raws)]))


TEXTS = [
    "WHEN a > 25 AND b < 40 AND lat > 50.5 UNTIL a < 22 OR b > 45 OR lat < 1",
    "WHEN a * 9 / 5 + 32 > 77 UNTIL a < 20 FOR NOT (c BETWEEN 1 AND 3)",
    "WHEN c + d > 3.5 UNTIL c + d < 2",
    "WHEN c * d > 300 UNTIL c * d < 200",
    "WHEN abs(c - d) < 2.5 UNTIL abs(c - d) >= 30",
    "WHEN a IS NULL UNTIL a > 3",
    "WHEN a > 25 UNTIL b > 20",
    "WHEN abs(a - b) > 2.5 UNTIL abs(a - b) <= 2",
]
UNDECIDED = 2
"""The last ones of these, whose bit the mote may not know."""


def compiled_states() -> Iterator[bytes]:
    for number, text in enumerate(TEXTS):
        compiled = mote.compile(parse(text), KNOWN, ATTRIBUTES, Delivery(number), version=2)
        assert isinstance(compiled, Compiled)
        assert compiled.keeps_bit, compiled.reasons
        yield compiled.program


def test_one_evaluation_allocates_nothing_whatever_the_numbers(
    library: dict[str, bytes], vector_runs: tuple[list[MoteVector], int]
) -> None:
    """With the heap locked, any allocation is a MemoryError, as the control shows. For the portable machine.

    On the shared vectors, and at the ends of int32, whose numbers are objects of 32 bytes on boards of 32 bits.
    """
    runs, _ = vector_runs
    cases = [(item.program, int(item.holds), _values(item.raws)) for item in [*runs, *_at_the_ends_of_int32()]]
    script = """
import micropython
def control():
    micropython.heap_lock()
    try:
        return [1]
    except MemoryError:
        return None
    finally:
        micropython.heap_unlock()
def evaluate(code, end, values, present):
    micropython.heap_lock()
    try:
        return vm.run(code, 14, end, values, present)
    finally:
        micropython.heap_unlock()
count = wrong = 0
with open("/cases") as file:
    for line in file:
        code, holds, present, *raws = line.split()
        code = bytes.fromhex(code)
        found = evaluate(code, 14 + code[10], bytes(array("i", [int(raw) for raw in raws])), int(present))
        wrong += found != int(holds)
        count += 1
print(control(), count, wrong)
"""
    lines = "\n".join(f"{program.hex()} {holds} {values}" for program, holds, values in cases)
    found = micropython.run(MACHINES + script, files={**library, "/cases": lines.encode()})
    assert found.split() == ["None", str(len(cases)), "0"]


def _at_the_ends_of_int32() -> Iterator[MoteVector]:
    """Comparisons, sums and products whose numbers, and results on the way, have 31 and 32 bits."""
    random = Random(4)
    whole, half = (-(2**31), 2**31 - 1), (-(2**29), 2**29)
    factors = (-46_340, 46_340)
    texts = {
        "x > 2000000000 AND y < -2000000000 AND NOT (z BETWEEN -1500000000 AND 1500000000)": (whole, whole, whole),
        "x + y - 2 * z > 1073741825": (half, half, (-(2**28), 2**28)),
        "x * y >= 1073741825 OR x * z < -1073741825": (factors, factors, factors),
        "65535 * x - y < 1073741825 AND 3 * y > x * z": ((-16_000, 16_000), (-16_000, 16_000), (-90_000, 90_000)),
    }
    for text, ranges in texts.items():
        attributes = tuple(Attribute(name, 1, 1, low, high) for name, (low, high) in zip("xyz", ranges, strict=True))
        condition = parse_filter(text)
        compiled = mote.compile(ContentSubscription(filter=condition), Known(), attributes)
        assert isinstance(compiled, Compiled)
        assert not compiled.weaker
        for _ in range(100):
            raws = tuple(random.choice([low, high, random.randint(low, high)]) for low, high in ranges)
            publication = {name: float(raw) for name, raw in zip("xyz", raws, strict=True)}
            yield MoteVector(compiled.program, attributes, raws, condition.evaluate(publication) is True)


def test_viper_s_native_code_calls_nothing_that_allocates() -> None:
    """Names that a viper function looks up are calls into the runtime: this one has none but casts."""
    text = (FIRMWARE / "spinney_mote" / "vm_viper.py").read_text(encoding="utf-8")
    body = text[text.index('    """As vm.run."""') :]
    assert set(re.findall(r"(\w+)\(", body)) <= {"ptr8", "ptr32", "int"}
    assert not re.search(r"[\[{]\s*\]|[\"'][^\"']*[\"']\s*%|\bfor\b|//|/", body.replace('"""As vm.run."""', ""))


def test_128_filters_of_three_comparisons_take_less_than_150_bytes_each(library: dict[str, bytes]) -> None:
    """gc.mem_alloc() before and after they are there, garbage collected."""
    compiled = mote.compile(parse(TEXTS[0]), KNOWN, ATTRIBUTES, Delivery(0, heartbeat=600))
    assert isinstance(compiled, Compiled)
    measure = "import gc\nmarks.append(gc.mem_alloc())\ngc.collect()"
    table = f"Table({len(ATTRIBUTES)}, {layout(ATTRIBUTES)}, 20000)"
    fill = f"""
import gc
from binascii import crc32
def numbered(number):
    code = bytearray(bytes.fromhex("{compiled.program.hex()}"))
    code[2] = number
    code[-4:] = crc32(bytes(code[:-4])).to_bytes(4, "little")
    return bytes(code)
"""
    steps = [
        f"from spinney_mote.table import Table\nmarks = [0] * 8\nmarks.clear()\n{fill}",
        measure,
        measure,
        f"table = {table}\ntable.change([numbered(n) for n in range(128)])\ngc.collect()",
        measure,
        "print(len(table), (marks[2] - marks[1]) / 128)",
    ]
    count, each = micropython.run(*steps, files=library).split()
    assert count == "128"
    assert float(each) <= 150


def test_labels_are_the_same_on_micropython(library: dict[str, bytes]) -> None:
    random = Random(7)
    codes = list(compiled_states())
    samples = [
        [random.choice([None, random.randint(max(item.low, -150), min(item.high, 4_000))]) for item in ATTRIBUTES]
        for _ in range(60)
    ]
    ranges = [(item.low, item.high) for item in ATTRIBUTES]
    script = f"""
from struct import pack
from spinney_mote import owner, vm, wire
from spinney_mote.labels import Labels
from spinney_mote.ring import Ring
from spinney_mote.samples import Sample
from spinney_mote.table import Table
table, ring, sample = Table({len(ATTRIBUTES)}, {layout(ATTRIBUTES)}), Ring(20000), Sample({ranges!r}, 1)
table.change([bytes.fromhex(code) for code in {[code.hex() for code in codes]!r}])
labels = Labels(table, ring, vm.run, {[(item.p, item.q) for item in ATTRIBUTES]!r})
class Mote:
    pass
mote, answers = Mote(), []
mote.table, mote.ring = table, ring
for time, raws in enumerate({samples!r}):
    sample.begin(1700000000 + time, False)
    for index, raw in enumerate(raws):
        if raw is not None:
            sample.put(index, raw)
    labels.observe(sample)
    for number in range({len(TEXTS) - UNDECIDED}, {len(TEXTS) + 1}):
        if time % 3 == 0:
            answers.append(owner.bit(mote, pack(wire.SET_BIT_WRITE, number, 0, ring.next - 1, time % 2)))
    if time % 10 == 5:
        table.forget()
told = [ring.read(number, 0) for number in range(ring.first, ring.next)]
print(len(told), table.crc)
print(answers)
for event in told:
    print(bytes(event))
"""
    there = micropython.run(script, files=library)
    lines: list[str] = []
    exec(script, {"print": lambda *words: lines.append(" ".join(map(str, words)))})
    assert int(there.split()[0]) > 30
    assert "(0, b'')" in there, "a bit was written down"
    assert "is known" in there
    assert there.splitlines() == lines


@pytest.mark.usefixtures("library")
def test_the_filtering_library_takes_at_most_3_kb_when_frozen() -> None:
    found = library_ram(Path(FIRMWARE) / "spinney_mote")
    assert set(found) == set(FILTERING)
    assert sum(found.values()) <= 3 * 1024, found
    assert all(0 < size < 1200 for size in found.values()), found


def test_an_error_on_micropython_is_told_in_its_words(library: dict[str, bytes]) -> None:
    with pytest.raises(MicroPythonFailed, match="ZeroDivisionError"):
        micropython.run("print(1)", "1 // 0", files=library)
