"""Servers as fixtures: `nats`, `mosquitto`, and `mqtt_server`, which is one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import MosquittoServer, NatsServer


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


@pytest.fixture(params=["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def mqtt_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NatsServer | MosquittoServer]:
    """Each MQTT server in turn: `.mqtt_port`, `.kind`, `.kill()`, `.restart()`."""
    kind = MosquittoServer if request.param == "mosquitto" else NatsServer
    with kind(tmp_path / request.param) as server:
        yield server
