"""Where things are that tests of the mote use."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).parents[1]
FIRMWARE = TESTS.parent / "firmware" / "lib"
