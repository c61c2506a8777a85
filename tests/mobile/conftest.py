"""The mobile broker's tests use the kits of the cloud, the mote and the core: real servers, the virtual radio."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("mote", "cloud", "core")] + [str(TESTS.parent / "firmware" / "lib")]

from servers import MosquittoServer, NatsServer  # noqa: E402 - found on the path just made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with the fixture `mosquitto` needs the program."""
    for item in items:
        if "mosquitto" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("mosquitto"))


@pytest.fixture
def nats(tmp_path: Path) -> Iterator[NatsServer]:
    """A nats-server of this test's own, with JetStream and MQTT."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[MosquittoServer]:
    """A mosquitto of this test's own."""
    with MosquittoServer(tmp_path / "mosquitto") as server:
        yield server
