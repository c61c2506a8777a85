"""The system's tests use the kits of the tiers: real servers and real processes."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("mobile", "mote", "cloud", "core")]
