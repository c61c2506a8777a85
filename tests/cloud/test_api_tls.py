"""HTTPS: certificates of our own CA, client certificates, and another certificate without a restart."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from api_kit import Cloud, cloud, wait_for

from spinney_cloud.certs import Certificates

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


def made(folder: Path) -> Certificates:
    certificates = Certificates(folder)
    certificates.make_ca()
    certificates.make_server(["localhost", "127.0.0.1"])
    certificates.make_client("ana")
    return certificates


@pytest.fixture(params=["server", "both"])
def secure(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Cloud, Certificates]]:
    """HTTPS; with `both`, clients must show a certificate, too."""
    certificates = made(tmp_path)
    tls = {"certificate": certificates.path("server"), "key": certificates.key_path("server")}
    if request.param == "both":
        tls["ca"] = certificates.path("ca")
    with cloud(tmp_path, "http", http={"tls": tls}) as running:
        yield running, certificates


def connect(cloud: Cloud, certificates: Certificates, user: str | None = "ana") -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=certificates.path("ca"))
    if user is not None:
        context.load_cert_chain(certificates.path(f"client-{user}"), certificates.key_path(f"client-{user}"))
    return context.wrap_socket(
        socket.create_connection(("127.0.0.1", cloud.http_port), 10), server_hostname="localhost"
    )


def asked(connection: ssl.SSLSocket) -> bytes:
    connection.sendall(REQUEST)
    answer = b""
    while not answer.endswith(b"}") and (more := connection.recv(4096)):
        answer += more
    return answer


def serial(connection: ssl.SSLSocket) -> str:
    found = connection.getpeercert()
    assert found is not None
    return str(found["serialNumber"])


@pytest.mark.slow
def test_a_new_certificate_is_shown_after_sighup_and_open_connections_stay(
    secure: tuple[Cloud, Certificates],
) -> None:
    running, certificates = secure
    with connect(running, certificates) as old:
        assert asked(old).startswith(b"HTTP/1.1 200")
        certificates.renew("server")
        running.processes["http"].popen.send_signal(signal.SIGHUP)

        def shown() -> str:
            with connect(running, certificates) as new:
                assert asked(new).startswith(b"HTTP/1.1 200")
                return serial(new)

        before = serial(old)
        wait_for(lambda: shown() != before)
        assert asked(old).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_a_broken_certificate_is_said_and_the_old_one_stays(secure: tuple[Cloud, Certificates]) -> None:
    running, certificates = secure
    certificates.path("server").write_text("broken")
    running.processes["http"].popen.send_signal(signal.SIGHUP)
    wait_for(lambda: "the old one stays" in running.processes["http"].log())
    with connect(running, certificates) as connection:
        assert asked(connection).startswith(b"HTTP/1.1 200")


@pytest.mark.slow
def test_without_a_certificate_clients_come_in_only_where_none_is_asked_for(
    secure: tuple[Cloud, Certificates],
) -> None:
    running, certificates = secure
    wanted = running.settings.http.tls.ca is not None
    try:
        with connect(running, certificates, None) as connection:
            let_in = asked(connection).startswith(b"HTTP/1.1 200")
    except (ssl.SSLError, ConnectionError):
        let_in = False
    assert let_in is not wanted
    with socket.create_connection(("127.0.0.1", running.http_port), 10) as plain:
        plain.sendall(REQUEST)
        assert b"200" not in plain.recv(100)
