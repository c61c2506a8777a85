"""The mobile broker's tests use the kits of the cloud, the mote and the core: real servers, the virtual radio."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("mote", "cloud", "core")] + [str(TESTS.parent / "firmware" / "lib")]

# found on the path just made
from server_fixtures import mosquitto, nats, pytest_collection_modifyitems  # noqa: E402

__all__ = ["mosquitto", "nats", "pytest_collection_modifyitems"]
