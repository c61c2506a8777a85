"""How much is left in this machine's battery, where it has one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

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
