"""Means of many stretches, and how far they are spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..mote_setting import SAMPLES
from ..table import number
from .playing import Outcome


@dataclass(frozen=True, slots=True)
class Spread:
    """Of one count: the mean, and what 5 % and 95 % of the stretches are below."""

    mean: float
    low: float
    high: float

    def text(self) -> str:
        """For a table: without the brackets where all are alike."""
        if self.low == self.mean == self.high:
            return number(self.mean)
        return f"{number(self.mean)} ({number(self.low)} to {number(self.high)})"


@dataclass(frozen=True, slots=True)
class Summary:
    """Of one way of filtering, in thirty hours; the names are Outcome's."""

    sent: Spread
    covered: Spread
    ratio: Spread
    """The share of samples that the filters on the asked motes hold back."""
    shared: Spread
    suppressed: Spread
    told: Spread
    told_shared: Spread
    delivered: Spread
    mean_delay_s: float
    longest_s: float
    missed: float

    def as_json(self) -> dict[str, Any]:
        """Means by their names; the spreads of the ratio and of what was sent."""
        spreads = ("sent", "covered", "ratio", "shared", "suppressed", "told", "told_shared", "delivered")
        return {
            **{name: getattr(self, name).mean for name in spreads},
            **{f"{name}_spread": [getattr(self, name).low, getattr(self, name).high] for name in ("sent", "ratio")},
            "mean_delay_s": self.mean_delay_s,
            "longest_delay_s": self.longest_s,
            "missed": self.missed,
        }


def summarise(outcomes: Sequence[Outcome], asked_motes: int) -> Summary:
    """Of at least one stretch."""
    counts = {
        name: _spread([getattr(one, name) for one in outcomes])
        for name in ("sent", "covered", "shared", "suppressed", "told", "told_shared", "delivered")
    }
    samples = SAMPLES * asked_motes
    delays_s = [delay_s for one in outcomes for delay_s in one.delays_s]
    return Summary(
        ratio=_spread([1 - one.covered / samples for one in outcomes]),
        mean_delay_s=statistics.fmean(delays_s) if delays_s else 0.0,
        longest_s=max(delays_s, default=0.0),
        missed=statistics.fmean(one.missed for one in outcomes),
        **counts,
    )


def _spread(values: Sequence[float]) -> Spread:
    ordered = sorted(values)
    last = len(ordered) - 1
    return Spread(statistics.fmean(values), ordered[round(0.05 * last)], ordered[round(0.95 * last)])
