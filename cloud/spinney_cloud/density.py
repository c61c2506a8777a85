"""Just enough sources: which of those that could serve a subscription do, so that each H3 cell has some.

    "density": {"per_cell": 3, "cell": 8, "every": "5m", "at_most": "1/5m"}

`at_most` stands beside it or, with `cell`, alone, and limits what is delivered from each cell (see cell_limits).
What has been chosen stays chosen while it serves. One that has failed (see source_reports) is passed over until it is
heard again; where there would be too few without, it is asked all the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from spinney.subscription_text import duration_seconds

from .rates import read_rate

MAX_PER_CELL: Final = 1_000
FINEST_CELL: Final = 15
"""H3's finest resolution."""
MIN_EVERY_SECONDS: Final = 1.0
MAX_EVERY_SECONDS: Final = 7 * 24 * 3600.0

LOW_BATTERY: Final = 0.15
"""At or below this a source gives way..."""
ENOUGH_BATTERY: Final = 0.3
"""...to one that has at least so much: the two are apart so that nothing goes back and forth."""

Reason = Literal["kept", "chosen", "for want of others"]


class DensityError(ValueError):
    """A density that cannot be obeyed: what is expected."""


@dataclass(frozen=True, slots=True)
class Density:
    """How many sources are wanted in each cell, and how often one must be heard of."""

    per_cell: int
    cell: int
    """The resolution of the H3 cells."""
    every_seconds: float


@dataclass(frozen=True, slots=True)
class AtMost:
    """So many notifications of a subscription from each cell in each period."""

    cell: int
    """The resolution of the H3 cells."""
    count: int
    seconds: float


EXPECTED: Final = 'expected {"per_cell": 3, "cell": 8, "every": "5m"}, {"cell": 8, "at_most": "1/5m"}, or all four'
_CHOOSING: Final = frozenset({"per_cell", "every"})


def read_density(item: Any) -> Density | None:
    """From the option's value; None if it asks for all sources, and only limits what they are heard of."""
    if not isinstance(item, dict) or not {"cell"} < item.keys() <= {"cell", "at_most", *_CHOOSING}:
        raise DensityError(EXPECTED)
    read_at_most(item)
    if _CHOOSING.isdisjoint(item):
        return None
    if not item.keys() >= _CHOOSING:
        raise DensityError(EXPECTED)
    per_cell = _whole(item["per_cell"], "per_cell", 1, MAX_PER_CELL)
    cell = _whole(item["cell"], "cell", 0, FINEST_CELL)
    try:
        every = item["every"]
        seconds = duration_seconds(every) if isinstance(every, str) else float(every)
    except (ValueError, TypeError) as error:
        raise DensityError(f'every: expected a duration such as "5m": {error}') from None
    if not MIN_EVERY_SECONDS <= seconds <= MAX_EVERY_SECONDS:
        raise DensityError(f"every: from {MIN_EVERY_SECONDS:.0f} s to {MAX_EVERY_SECONDS:.0f} s")
    return Density(per_cell, cell, seconds)


def read_at_most(item: Any) -> AtMost | None:
    """From the same value; None if it has no such member."""
    if not isinstance(item, dict) or "at_most" not in item:
        return None
    cell = _whole(item.get("cell"), "cell", 0, FINEST_CELL)
    try:
        rate = read_rate(item["at_most"])
    except ValueError as error:
        raise DensityError(f"at_most: {error}") from None
    if rate.seconds < MIN_EVERY_SECONDS:
        raise DensityError(f"at_most: a period is at least {MIN_EVERY_SECONDS:.0f} s")
    return AtMost(cell, rate.count, rate.seconds)


def _whole(value: Any, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise DensityError(f"{name}: expected a whole number from {least} to {most}")
    return value


class Candidate(NamedTuple):
    """A source that could serve."""

    source: str
    cell: str | None
    """None: nobody knows where it is; those are counted as one cell."""
    battery: float = 1.0
    """Its own, from 0 to 1; 1 where it is not said."""
    reliability: float = 1.0
    passed_over: bool = False
    """It has failed."""


class Choice(NamedTuple):
    """A source that serves, and why."""

    cell: str | None
    reason: Reason
    battery: float
    reliability: float


def choose(candidates: Iterable[Candidate], current: Iterable[str], per_cell: int) -> dict[str, Choice]:
    """In each cell `per_cell` sources, or all where there are fewer. The same whatever the order they come in."""
    cells: dict[str | None, list[Candidate]] = {}
    for one in candidates:
        cells.setdefault(one.cell, []).append(one)
    now = set(current)
    return {
        one.source: Choice(one.cell, _reason(one, now), one.battery, one.reliability)
        for cell in sorted(cells, key=lambda cell: (cell is None, cell or ""))
        for one in _best(cells[cell], now, per_cell)
    }


def _best(candidates: list[Candidate], current: set[str], per_cell: int) -> list[Candidate]:
    rested = any(
        one.battery >= ENOUGH_BATTERY and not one.passed_over for one in candidates if one.source not in current
    )

    def rank(one: Candidate) -> tuple[bool, bool, float, str]:
        tired = rested and one.battery <= LOW_BATTERY
        stays = one.source in current and not tired
        return one.passed_over, not stays, -one.battery * one.reliability, one.source

    return sorted(candidates, key=rank)[:per_cell]


def _reason(one: Candidate, current: set[str]) -> Reason:
    if one.passed_over:
        return "for want of others"
    return "kept" if one.source in current else "chosen"
