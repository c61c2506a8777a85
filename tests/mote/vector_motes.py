"""The shared vectors as motes would meet them: int32 where that can be, the rest as constants that were announced."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from spinney import Knowledge, Known, mote, parse_filter
from spinney.expression import Filter, Not, properties
from spinney.mote import Attribute, Compiled
from spinney.subscription import ContentSubscription

FOLDER = Path(__file__).parents[1] / "vectors"
SCALES = (1, 2, 4, 10, 100, 1_000, 1_000_000, 3)
AROUND = 200


class MoteVector(NamedTuple):
    """What a mote of its own says of a vector: a program, raw values, and whether it is TRUE."""

    program: bytes
    attributes: tuple[Attribute, ...]
    raws: tuple[int | None, ...]
    holds: bool


def vectors() -> list[dict[str, Any]]:
    return [item for name in ("named", "generated") for item in json.loads((FOLDER / f"{name}.json").read_text())]


def expressed() -> tuple[list[MoteVector], int]:
    """The programs of all vectors that int32 can express, for TRUE and for FALSE; and how many vectors these are."""
    found: list[MoteVector] = []
    count = 0
    for vector in vectors():
        runs = list(_runs(parse_filter(vector["filter"]), vector["publication"], vector["verdict"]))
        if len(runs) == 2 and any(runs):
            count += 1
            found += [run for run in runs if run is not None]
    return found, count


def _runs(condition: Filter, publication: Mapping[str, Any], verdict: bool | None) -> Iterator[MoteVector | None]:
    """None where it is proven without a program; nothing where it cannot be exact."""
    attributes, raws, known = _mote(condition, publication)
    if attributes is None:
        return
    for wanted, asked in ((True, condition), (False, Not(condition))):
        compiled = mote.compile(ContentSubscription(filter=asked), known, attributes)
        if isinstance(compiled, Compiled) and not compiled.weaker:
            yield MoteVector(compiled.program, tuple(attributes), tuple(raws), verdict is wanted)
        elif not isinstance(compiled, Compiled) and compiled.never:
            assert verdict is not wanted
            yield None


def _mote(condition: Filter, publication: Mapping[str, Any]) -> tuple[list[Attribute] | None, list[int | None], Known]:
    attributes: list[Attribute] = []
    raws: list[int | None] = []
    known: dict[str, Knowledge] = {}
    for name in sorted(properties(condition) | publication.keys()):
        value = publication.get(name)
        if isinstance(value, str | bool):
            known[name] = Knowledge.constant(value)
            continue
        found = _raw(value)
        if found is None:
            return None, [], Known()
        raw, scale = found
        low, high = max(-(2**31), raw - AROUND), min(2**31 - 1, raw + AROUND)
        attributes.append(Attribute(name, 1, scale, low, high))
        raws.append(None if value is None else raw)
    return attributes, raws, Known(known, closed=True)


def ties() -> list[tuple[dict[str, Any], tuple[Attribute, ...], tuple[int | None, ...]]]:
    """The vectors whose sums are ties, with attributes and raw values of a mote."""
    found = []
    for vector in vectors():
        if "tie in" in vector.get("name", ""):
            attributes, raws, _ = _mote(parse_filter(vector["filter"]), vector["publication"])
            assert attributes is not None, vector
            found.append((vector, tuple(attributes), tuple(raws)))
    return found


def _raw(value: float | None) -> tuple[int, int] | None:
    """Raw number and denominator that decode to the value."""
    if value is None:
        return 0, 100
    for scale in SCALES:
        if abs(value) * scale < 2**31 - 1 and round(value * scale) / scale == value:
            return round(value * scale), scale
    return None
