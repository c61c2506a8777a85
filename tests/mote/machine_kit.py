"""A mote of the tests: its attributes, samples near what matters, and programs run by both machines."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any

from spinney_mote import programs, vm, vm_viper

from spinney.expression import Filter, Literal
from spinney.known import Knowledge, Known
from spinney.mote import Attribute, Compiled, layout
from spinney.subscription import ContentSubscription

ATTRIBUTES = (
    Attribute("a", 1, 100, -18_000, 18_000),
    Attribute("b", 1, 100, -4_000, 8_500),
    Attribute("c", 1, 4, -1_000, 1_000),
    Attribute("lat", 1, 1_000, -90_000, 90_000),
    Attribute("long", 1, 10, -1_800, 1_800),
    Attribute("d", 1, 1, -40, 40_000),
)
"""Two in hundredths, which no double holds, two in quarters and wholes, which all do, and two that differ in scale."""
LAYOUT = layout(ATTRIBUTES)
KNOWN = Known({"s": Knowledge.constant("air/no2"), "t": Knowledge.never(), "flag": Knowledge.constant(True)})
CONSTANTS: Mapping[str, Any] = {"s": "air/no2", "flag": True}

Raws = tuple[int | None, ...]


def decoded(raws: Raws, attributes: Iterable[Attribute] = ATTRIBUTES) -> dict[str, Any]:
    """What a sample's publication holds of them."""
    return {item.name: item.decode(raw) for item, raw in zip(attributes, raws, strict=True) if raw is not None}


def publication(raws: Raws) -> dict[str, Any]:
    return {**decoded(raws), **CONSTANTS}


def part(program: bytes, index: int) -> tuple[int, int]:
    """Where enter (0), exit (1), FOR (2) or what is in doubt (3) is."""
    sizes = (*program[10:13], programs.doubt_size(program, 0))
    begin = programs.HEADER + programs.options_size(program[13]) + sum(sizes[:index])
    return begin, begin + sizes[index]


def values_of(raws: Iterable[int]) -> bytes:
    """As a sample holds them."""
    return array("i", raws).tobytes()


def run(program: bytes, raws: Raws, index: int = 0) -> bool:
    """The verdict of both machines, which is one."""
    values = values_of(raw if raw is not None else 0x7BAD for raw in raws)
    present = sum(1 << index for index, raw in enumerate(raws) if raw is not None)
    begin, end = part(program, index)
    found = vm.run(program, begin, end, values, present)
    assert vm_viper.run(program, begin, end, values, present) == found
    assert found in (0, 1)
    return bool(found)


def checked(compiled: Compiled, attributes: tuple[Attribute, ...] = ATTRIBUTES) -> bytes:
    """Its program, which a mote takes."""
    programs.check(compiled.program, len(attributes), layout(attributes))
    return compiled.program


def content(condition: Filter) -> ContentSubscription:
    return ContentSubscription(filter=condition)


def samples(random: Random, *conditions: Filter, count: int = 24) -> list[Raws]:
    """Raw values at and beside the filters' constants, equal and shifted ones, at the ends of ranges, and missing."""
    numbers = [number for condition in conditions for number in _numbers(condition)] or [0.0]
    return [_sample(random, numbers) for _ in range(count)]


def _sample(random: Random, numbers: list[float]) -> Raws:
    shared = random.choice(numbers)
    raws: list[int | None] = []
    for item in ATTRIBUTES:
        near = random.choice([shared, random.choice(numbers), random.choice(numbers) + shared, shared / 2])
        raw = round(max(-1e9, min(1e9, near)) * item.q / item.p) + random.choice([0, 0, 0, -1, 1])
        kind = random.randrange(10)
        if kind == 0:
            raw = random.randint(item.low, item.high)
        elif kind == 1:
            raw = random.choice([item.low, item.high])
        raws.append(None if kind == 2 else max(item.low, min(item.high, raw)))
    return tuple(raws)


def _numbers(node: Any) -> Iterable[float]:
    if isinstance(node, Literal) and isinstance(node.value, float) and math.isfinite(node.value):
        yield node.value
    for child in node.children():
        yield from _numbers(child)
