"""Many connections: what each is granted, how many there may be, and what one that is refused costs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import ANY_PORTS, Cloud
from security_kit import KINDS, REAL, SECONDS, Client, Mosquitto
from servers import HOST

pytestmark = pytest.mark.slow

SUBSCRIBERS = 1_500
"""More than nats-server lets a stream have consumers, unless it is told."""
THREADS = 4


@pytest.fixture(params=KINDS)
def cloud(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cloud]:
    """With its own server, and with a mosquitto set up as `spinney cloud conf` says."""
    if request.param == "own":
        with Cloud(tmp_path / "data", program=REAL) as running:
            yield running
        return
    with Mosquitto(tmp_path / "mosquitto", tmp_path / "data", secured=False) as server:
        ports = ["--http-port", "0", "--nats-port", "0", *server.options]
        with Cloud(tmp_path / "data", program=REAL, ports=ports) as running:
            yield running


class Raw:
    """An MQTT client without a thread of its own."""

    def __init__(self, port: int, name: str) -> None:
        self.name = name
        self.link = socket.create_connection((HOST, port), SECONDS)
        id = f"{name}-id".encode()
        try:
            self._send(0x10, b"\x00\x04MQTT\x04\x02\x00\x3c" + len(id).to_bytes(2, "big") + id)
            self.accepted = self._read() == b"\x20\x02\x00\x00"
        except ConnectionError:
            self.accepted = False

    def subscribe(self, topic: str) -> int:
        """The SUBACK's code."""
        text = topic.encode()
        self._send(0x82, b"\x00\x01" + len(text).to_bytes(2, "big") + text + b"\x01")
        answer = self._read()
        assert answer[:4] == b"\x90\x03\x00\x01", answer
        return answer[4]

    def hear(self) -> bytes:
        """The next packet."""
        return self._read()

    def _send(self, kind: int, body: bytes) -> None:
        assert len(body) < 128
        self.link.sendall(bytes([kind, len(body)]) + body)

    def _read(self) -> bytes:
        """One packet; empty at the end of the connection."""
        head = self._exactly(2)
        if len(head) < 2:
            return head
        length, shift = head[1] & 127, 7
        while head[-1] & 128:
            head += self._exactly(1)
            length |= (head[-1] & 127) << shift
            shift += 7
        return head + self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self.link.recv(count - len(data))):
            data += more
        return data

    def close(self) -> None:
        self.link.close()


def test_fifteen_hundred_subscribers_are_all_granted_qos_1_and_all_hear(cloud: Cloud) -> None:
    port = cloud.port("MQTT")
    of_c0 = {f"c{number}" for number in range(0, SUBSCRIBERS, 100)}
    clients: list[Raw] = []
    codes: list[int] = []

    def join(first: int) -> None:
        for number in range(first, SUBSCRIBERS, THREADS):
            client = Raw(port, f"c{number}")
            clients.append(client)
            codes.append(client.subscribe(f"spinney/c{number % 100}/note/+"))

    # paho waits by select, which knows of no more than 1,024 files: so it comes first
    c0 = Client(port, "c0", secret="").__enter__()
    threads = [threading.Thread(target=join, args=(first,)) for first in range(THREADS)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(codes) == SUBSCRIBERS
        assert set(codes) == {1}
        c0.sub("hot", "n = 1")
        c0.pub({"n": 1})
        assert c0.next("note/hot")["publication"]["n"] == 1
        assert all(b"spinney/c0/note/hot" in client.hear() for client in clients if client.name in of_c0)
    finally:
        c0.__exit__()
        for client in clients:
            client.close()


def test_more_connections_than_may_be_are_refused_and_harm_no_others(tmp_path: Path) -> None:
    most = 20
    with (
        Cloud(tmp_path / "data", "--limits-connections", str(most), program=REAL, ports=ANY_PORTS) as cloud,
        Client(cloud.port("MQTT"), "kit", secret="") as kit,
    ):
        clients: list[Raw] = []
        try:
            clients.extend(Raw(cloud.port("MQTT"), f"c{number}") for number in range(200))
            accepted = [client for client in clients if client.accepted]
            assert most <= len(accepted) < 100
            kit.sub("hot", "n = 1")
            kit.pub({"n": 1})
            assert kit.next("note/hot")["publication"]["n"] == 1
        finally:
            for client in clients:
                client.close()
