"""Just enough sources: which of those that could serve a subscription do, so that each H3 cell has some.

    "density": {"per_cell": 3, "cell": 8, "every": "5m"}

What has been chosen stays chosen while it serves. One that fails is passed over for a time; where there would be too
few without, it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from spinney.subscription_text import duration_seconds

MAX_PER_CELL: Final = 1_000
FINEST_CELL: Final = 15
"""H3's finest resolution."""
MIN_EVERY_SECONDS: Final = 1.0
MAX_EVERY_SECONDS: Final = 7 * 24 * 3600.0

SILENT_AFTER: Final = 2.0
"""A source has failed when it has been silent for so many times `every`."""
PASSED_OVER_FOR: Final = 10.0
"""And is then passed over for so many times `every`."""
NEW_WEIGHT: Final = 0.2
"""Of the newest period in a source's reliability."""
LOW_BATTERY: Final = 0.15
"""At or below this a source gives way..."""
ENOUGH_BATTERY: Final = 0.3
"""...to one that has at least so much: the two are apart so that nothing goes back and forth."""

Reason = Literal["kept", "chosen", "for want of others"]


class DensityError(ValueError):
    """A density that cannot be obeyed: what is expected."""


@dataclass(frozen=True, slots=True)
class Density:
    """How many sources are wanted in each cell, and how often one must be heard."""

    per_cell: int
    cell: int
    """The resolution of the H3 cells."""
    every_seconds: float


def read_density(item: Any) -> Density:
    """From the option's value."""
    if not isinstance(item, dict) or set(item) != {"per_cell", "cell", "every"}:
        raise DensityError('expected {"per_cell": 3, "cell": 8, "every": "5m"}')
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
    """From 0 to 1; 1 where it is not said."""
    reliability: float = 1.0
    passed_over: bool = False


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


@dataclass(slots=True)
class _Watched:
    """A source that serves."""

    period_began: float
    heard_at: float
    heard: bool = False


class Reliability:
    """How reliably sources are heard: the share of the periods in which something came, the newest counting most.

    `now` is monotonic: no step of a clock makes a source silent.
    """

    def __init__(self, every_seconds: float) -> None:
        self.failures = 0
        self._every = every_seconds
        self._watched: dict[str, _Watched] = {}
        self._shares: dict[str, float] = {}
        self._passed_over: dict[str, float] = {}

    def share(self, source: str) -> float:
        """From 0 to 1; 1 for one that was never watched."""
        return self._shares.get(source, 1.0)

    def passed_over(self, source: str, now: float) -> bool:
        """Whether it failed not long ago."""
        return self._passed_over.get(source, -1.0) > now

    def watch(self, sources: Iterable[str], now: float) -> None:
        """These serve from now on; those that did stay as they are."""
        self._watched = {source: self._watched.get(source) or _Watched(now, now) for source in sources}

    def heard(self, source: str, now: float) -> None:
        """A reading of it came."""
        watched = self._watched.get(source)
        if watched is not None:
            watched.heard_at, watched.heard = now, True
            self._passed_over.pop(source, None)

    def failed(self, now: float) -> list[str]:
        """Those that have been silent for too long by now; closes periods that are over."""
        found = []
        for source, watched in self._watched.items():
            self._close(source, watched, int((now - watched.period_began) // self._every))
            if now - watched.heard_at > SILENT_AFTER * self._every:
                found.append(source)
        for source in found:
            del self._watched[source]
            self._passed_over[source] = now + PASSED_OVER_FOR * self._every
            self.failures += 1
        return found

    def _close(self, source: str, watched: _Watched, periods: int) -> None:
        """What came, came in the first of them."""
        if periods > 0:
            share = self.share(source)
            first = share + NEW_WEIGHT * (watched.heard - share)
            self._shares[source] = first * (1 - NEW_WEIGHT) ** (periods - 1)
            watched.heard = False
            watched.period_began += periods * self._every

    def forget(self, known: Mapping[str, object] | set[str]) -> None:
        """Keep what is known of these sources only."""
        self._shares = {source: share for source, share in self._shares.items() if source in known}
        self._passed_over = {source: until for source, until in self._passed_over.items() if source in known}
