"""When something was measured, as devices tell it: epoch seconds or milliseconds, or ISO 8601 with its offset."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any, Final

EARLIEST: Final = 946_684_800.0
"""2000-01-01: what is before it comes from a clock that was never set."""
AHEAD_SECONDS: Final = 60.0
"""How far a device's clock may be ahead of ours; beyond it it is not believed."""
_MILLISECONDS_FROM: Final = 1e11


def read_time(value: Any) -> float:
    """Epoch seconds; ValueError for what is no time, or might mean several."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return value / 1000 if value >= _MILLISECONDS_FROM else float(value)
    if isinstance(value, str):
        when = datetime.fromisoformat(value)
        if when.tzinfo is None:
            raise ValueError(f"{value!r:.40} has no offset, so it may be any of a day's hours: write Z or +02:00")
        return when.timestamp()
    raise ValueError(f"{value!r:.40} is no time: epoch seconds, or ISO 8601 such as 2026-03-01T12:00:00Z")


def is_believable(measured: float, heard: float) -> bool:
    """Whether a device's clock can be right, seen from ours."""
    return EARLIEST <= measured <= heard + AHEAD_SECONDS
