"""The mote's library as CPython imports it: the same files that are flashed. And the core's strategies."""

from __future__ import annotations

import sys

from places import FIRMWARE, TESTS

sys.path[:0] = [str(FIRMWARE), str(TESTS / "core")]
