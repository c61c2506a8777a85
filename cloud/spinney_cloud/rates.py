"""So many in such a period, as subscriptions ask for it: 10/min, 1/30s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from spinney.subscription_text import duration_seconds

MAX_RATE: Final = 10_000
"""The largest count of a rate: that many times are remembered."""
MAX_PERIOD_SECONDS: Final = 24 * 3600.0
"""The longest period of a rate or a digest."""

_RATE = re.compile(r"([1-9][0-9]{0,8})/([0-9.]*[a-z]+)")
_UNITS = {"second": "1s", "sec": "1s", "minute": "1m", "hour": "1h", "day": "1d"}


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many within a period."""

    count: int
    seconds: float


def read_rate(value: Any) -> Rate:
    """From a text; ValueError says what is expected."""
    found = _RATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("expected a rate such as 10/min or 1/30s")
    count, unit = int(found[1]), _UNITS.get(found[2], found[2])
    if count > MAX_RATE:
        raise ValueError(f"a rate has a count of at most {MAX_RATE}")
    return Rate(count, read_period(unit if unit[0].isdigit() else f"1{unit}"))


def read_period(value: Any) -> float:
    """Seconds, from a text; ValueError says what is expected."""
    if not isinstance(value, str):
        raise ValueError("expected a duration such as 30s or 5m")
    seconds = duration_seconds(value)
    if seconds > MAX_PERIOD_SECONDS:
        raise ValueError(f"a period is at most {MAX_PERIOD_SECONDS / 3600:.0f} h")
    return seconds
