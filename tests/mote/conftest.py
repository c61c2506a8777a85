"""The mote's library as CPython imports it: the same files that are flashed."""

from __future__ import annotations

import sys
from pathlib import Path

FIRMWARE = Path(__file__).parents[2] / "firmware" / "lib"
sys.path.insert(0, str(FIRMWARE))
