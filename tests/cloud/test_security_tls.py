"""TLS on every listener of a running cloud, with certificates of our own CA, and others in their place on SIGHUP."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from clouds import Cloud, wait_until
from security_kit import REAL, SECONDS, Client, ask, make_users, password
from servers import HOST

from spinney_cloud.certs import Certificates

pytestmark = pytest.mark.slow

SLOW_SECONDS = 2.5
LISTENERS = ("mqtt", "http", "nats")
HELLO = b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x3c\x00\x01a"
"""An MQTT client's CONNECT, without a user."""


class Secured:
    """A cloud with TLS on MQTT, MQTT over WebSocket, HTTP and NATS."""

    def __init__(self, folder: Path, *, ask_clients: bool) -> None:
        self.data = folder / "data"
        self.ask_clients = ask_clients
        make_users(self.data)
        self.certificates = Certificates(self.data)
        self.certificates.make_ca()
        self.certificates.make_server(["localhost", HOST])
        self.certificates.make_client("mob")
        # copies of the matcher that write snapshots come and go all the time
        options = ["--mqtt-websocket-port", "0", "--matching-snapshot-interval", "0.05"]
        for name in LISTENERS:
            options += [f"--{name}-tls-certificate", str(self.certificates.path("server"))]
            options += [f"--{name}-tls-key", str(self.certificates.key_path("server"))]
        if ask_clients:
            options += [
                word for name in ("mqtt", "http") for word in (f"--{name}-tls-ca", str(self.certificates.path("ca")))
            ]
        self.cloud = Cloud(self.data, *options, program=REAL)

    def context(self, *, shown: bool = True) -> ssl.SSLContext:
        """A client's that trusts our CA, with a certificate of its own."""
        context = ssl.create_default_context(cafile=self.certificates.path("ca"))
        if shown:
            context.load_cert_chain(self.certificates.path("client-mob"), self.certificates.key_path("client-mob"))
        return context

    def client(self, name: str, *, websocket: bool = False, shown: bool = True) -> Client:
        port = self.cloud.port("WebSocket" if websocket else "MQTT")
        return Client(port, name, tls=self.context(shown=shown), websocket=websocket)

    def serial(self, name: str) -> str:
        """Of the certificate that a listener shows now."""
        with socket.create_connection((HOST, self.cloud.port(name)), SECONDS) as link:
            if name == "NATS":
                assert link.recv(4096).startswith(b"INFO")
            with self.context().wrap_socket(link, server_hostname=HOST) as secure:
                found = secure.getpeercert()
        assert found
        return str(found["serialNumber"])

    def processes(self) -> set[int]:
        """The supervisor's own; the copies of itself by which the matcher writes snapshots come and go."""
        return {each.pid for each in psutil.Process(self.cloud.pid).children()}

    def health(self, **more: Any) -> tuple[int, Any]:
        return ask(f"{self.cloud.addresses()['HTTP']}/readyz", **more)


@pytest.fixture(scope="module", params=[False, True], ids=["server's only", "clients' too"])
def secured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """With and without certificates of clients."""
    made = Secured(tmp_path_factory.mktemp("tls"), ask_clients=request.param)
    with made.cloud:
        yield made


def test_mqtt_websocket_and_http_work_by_tls(secured: Secured) -> None:
    addresses = secured.cloud.addresses()
    assert [addresses[name].partition("://")[0] for name in ("MQTT", "WebSocket", "HTTP", "NATS")] == [
        "mqtts",
        "wss",
        "https",
        "tls",
    ]
    with secured.client("mob", websocket=True) as mob, secured.client("pat") as pat:
        mob.sub("hot", "NO2 > 40")
        pat.pub({"NO2": 57})
        assert mob.next("note/hot")["publication"]["NO2"] == 57
    assert secured.health(context=secured.context())[0] == 200


@pytest.mark.parametrize("name", ["MQTT", "WebSocket", "HTTP", "NATS"])
def test_plain_connections_and_strange_authorities_are_no_use(secured: Secured, name: str) -> None:
    with (
        socket.create_connection((HOST, secured.cloud.port(name)), SECONDS) as link,
        contextlib.suppress(ConnectionError),
    ):
        if name == "NATS":
            link.recv(4096)
            link.sendall(b'CONNECT {"verbose":true}\r\nPING\r\n')
        elif name == "MQTT":
            link.sendall(HELLO)
        else:
            link.sendall(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n")
        said = link.recv(4096)
        assert b"PONG" not in said
        assert b"200" not in said
        assert not said.startswith(b"\x20\x02")
    if name != "NATS":
        with (
            socket.create_connection((HOST, secured.cloud.port(name)), SECONDS) as link,
            pytest.raises(ssl.SSLCertVerificationError),
        ):
            ssl.create_default_context().wrap_socket(link, server_hostname=HOST)


@pytest.mark.parametrize("name", ["MQTT", "WebSocket", "HTTP"])
def test_clients_show_a_certificate_only_where_one_is_asked_for(secured: Secured, name: str) -> None:
    said = b""
    with socket.create_connection((HOST, secured.cloud.port(name)), SECONDS) as link:
        try:
            with secured.context(shown=False).wrap_socket(link, server_hostname=HOST) as secure:
                secure.sendall(HELLO if name == "MQTT" else b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                said = secure.recv(4096)
        except (ssl.SSLError, ConnectionError):
            assert secured.ask_clients
    assert bool(said) is not secured.ask_clients


def test_who_is_slow_to_shake_hands_is_waited_for(secured: Secured) -> None:
    """A mobile broker far away, or a busy machine: nats-server itself waits 2 s for all of TLS."""
    names = ("MQTT", "WebSocket", "HTTP", "NATS")
    with contextlib.ExitStack() as links:
        slow = [
            links.enter_context(socket.create_connection((HOST, secured.cloud.port(name)), SECONDS)) for name in names
        ]
        assert slow[-1].recv(4096).startswith(b"INFO")
        assert select.select(slow, [], [], SLOW_SECONDS)[0] == [], "a listener has hung up"
        for link in slow:
            with secured.context().wrap_socket(link, server_hostname=HOST) as secure:
                assert secure.getpeercert()


def test_a_certificate_is_no_password(secured: Secured) -> None:
    with Client(secured.cloud.port("MQTT"), "mob", secret="wrong", tls=secured.context()) as client:
        assert client.refused


def test_certificates_rotate_by_sighup_and_nobody_is_dropped(secured: Secured) -> None:
    before = {name: secured.serial(name) for name in ("MQTT", "WebSocket", "HTTP", "NATS")}
    assert len(set(before.values())) == 1
    processes = secured.processes()
    with secured.client("mob") as mob, secured.client("pat", websocket=True) as pat:
        mob.sub("rotated", "turn > 0")
        secured.certificates.renew("server")
        secured.cloud.send(signal.SIGHUP)
        for name in before:
            wait_until(lambda name=name: secured.serial(name) != before[name], f"{name} shows the new certificate")
        for turn in (1, 2):
            pat.pub({"turn": turn})
            assert mob.next("note/rotated")["publication"]["turn"] == turn
        assert mob.ends.empty()
        assert pat.ends.empty()
    assert secured.processes() == processes


def test_a_certificate_that_will_not_do_is_said_and_the_old_one_stays(secured: Secured) -> None:
    path = secured.certificates.path("server")
    good = path.read_bytes()
    with secured.client("mob") as mob:
        path.write_text("broken")
        said = len(secured.cloud.said)
        secured.cloud.send(signal.SIGHUP)
        wait_until(lambda: "certificate" in secured.cloud.said[said:], "it is said")
        mob.sub("still", "still = 1")
        path.write_bytes(good)
    assert secured.health(context=secured.context())[0] == 200


def test_no_password_goes_to_the_log(secured: Secured) -> None:
    assert password("mob") not in secured.cloud.said
