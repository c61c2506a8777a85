"""Numbers, times and sizes in few characters, for pages and lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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


def place(item: Mapping[str, Any] | None) -> str:
    """Where something is, to about ten metres; empty if nobody knows."""
    return "" if item is None else f"{item['lat']:.4f}, {item['long']:.4f}"


def named(source: Mapping[str, Any]) -> str:
    """A source, and what it calls itself if that is something else."""
    called = source["called"]
    return source["name"] if called in (None, "", source["name"], source["address"]) else f"{source['name']} ({called})"


def since(seconds: float) -> str:
    """How long ago, in one unit."""
    text = ago(seconds)
    return text if text == "now" else f"{text} ago"


def size(count: float) -> str:
    """Bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
