"""The uplink against the real cloud, on its own nats-server and on mosquitto: nothing lost, nothing sent for ever."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud
from servers import MosquittoServer
from uplink_kit import REAL, Edge, body, fixed_cloud, run, until

from spinney import Label, Mark, Notification, Subscriber, parse  # noqa: F401
from spinney_cloud.subscriptions import form_of


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests that leave it as it is: each has brokers and sources of its own."""
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


@contextmanager
def hearing(port: int, text: str, name: str = "ana") -> Iterator[list[Any]]:
    """All notifications of a subscription."""
    found: list[Any] = []
    with Subscriber(name, server=f"mqtt://127.0.0.1:{port}") as subscriber:
        subscriber.subscribe(text, sid="s", callback=found.append)
        yield found


def numbers(found: list[Any]) -> list[int]:
    return [int(each.publication["n"]) for each in found]


def digest(text: str) -> str:
    return form_of(parse(text)).digest


def test_what_is_appended_is_stored_in_order_and_leaves(cloud: Cloud, tmp_path: Path) -> None:
    async def scenario() -> None:
        port = cloud.port("MQTT")
        with hearing(port, "source = 'a1'") as found:
            async with Edge(tmp_path, "a", port) as edge:
                edge.uplink.announce(body("a1"))
                edge.uplink.want(["a1"])
                await edge.owns("a1")
                await until(lambda: edge.active, "an activation")
                for number in range(300):
                    edge.send(number, "a1")
                await edge.drained()
                await until(lambda: len(found) >= 300, "all notifications")
                assert numbers(found) == list(range(300))
                assert edge.uplink.counts.stored == 300
                assert edge.uplink.counts.refused == edge.uplink.counts.resent == 0
                status = edge.uplink.status()
                assert (status.connected, status.epoch, status.error) == (True, edge.activations.have, None)

    run(scenario())
