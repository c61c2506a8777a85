"""Numbers, times and sizes in few characters, for pages and lists."""

from __future__ import annotations


def shown(value: object) -> str:
    """A value."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def ago(seconds: float) -> str:
    """How long, in one unit."""
    for limit, factor, unit in ((1, 0, "now"), (90, 1, "s"), (5400, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / factor:.0f} {unit}" if factor else unit
    return f"{seconds / 86_400:.0f} d"


def size(count: float) -> str:
    """Bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
