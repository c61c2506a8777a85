"""How much is left in batteries: this machine's, where it has one, and those of sources that tell."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spinney.expression import Value

SUPPLIES: Final = Path("/sys/class/power_supply")


def battery(supplies: Path = SUPPLIES) -> float | None:
    """From 0 to 1; None for a machine without a battery, or that does not say."""
    for folder in sorted(supplies.glob("*")):
        try:
            if (folder / "type").read_text().strip() == "Battery":
                return min(1.0, max(0.0, int((folder / "capacity").read_text()) / 100))
        except (OSError, ValueError):
            continue
    return None


def battery_of(values: Mapping[str, Value]) -> float | None:
    """The share that is left, from the attribute `battery`, which is in percent."""
    battery = values.get("battery")
    return battery / 100 if isinstance(battery, float) and 0 <= battery <= 100 else None
