"""Our own certificates, as TLS libraries see them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spinney_cloud import certs, certs_command
from spinney_cloud.certs import CA, SERVER, Certificates, CertificatesError


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    certificates = Certificates(tmp_path)
    certificates.make_ca()
    certificates.make_server(["localhost", "127.0.0.1"])
    return certificates


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """What becomes of a client that connects to a server with these contexts: "" or why not."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(down, up, server_hostname=host), server.wrap_bio(up, down, server_side=True)]
    for _ in range(10):
        waiting = []
        for side in sides:
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting.append(side)
            except ssl.SSLError as error:
                return str(error)
        sides = waiting
        if not sides:
            return ""
    return "it never ends"


def server_context(certificates: Certificates, *, clients: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.path(SERVER), certificates.key_path(SERVER))
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(certificates.path(CA))
    return context


def client_context(certificates: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificates.path(CA)))


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_client_that_trusts_the_ca_connects_under_every_name(made: Certificates, host: str) -> None:
    assert shake_hands(server_context(made), client_context(made), host) == ""


def test_another_name_is_refused(made: Certificates) -> None:
    assert "mismatch" in shake_hands(server_context(made), client_context(made), "example.org")


def test_another_ca_is_refused(made: Certificates, tmp_path: Path) -> None:
    other = Certificates(tmp_path / "other")
    other.make_ca()
    assert "verify failed" in shake_hands(server_context(made), client_context(other), "localhost")


def test_a_client_can_show_its_own(made: Certificates) -> None:
    made.make_client("pi-3")
    client = client_context(made)
    client.load_cert_chain(made.path("client-pi-3"), made.key_path("client-pi-3"))
    assert shake_hands(server_context(made, clients=True), client, "localhost") == ""
    assert "did not return" in shake_hands(server_context(made, clients=True), client_context(made), "localhost")


def test_keys_are_their_owners_only(made: Certificates) -> None:
    assert made.key_path(SERVER).stat().st_mode & 0o077 == 0
    assert made.folder.stat().st_mode & 0o077 == 0


def test_nothing_is_overwritten_unless_told(made: Certificates) -> None:
    before = made.path(SERVER).read_bytes()
    with pytest.raises(CertificatesError, match="--force"):
        made.make_server(["localhost"])
    with pytest.raises(CertificatesError, match="--force"):
        made.make_ca()
    assert made.path(SERVER).read_bytes() == before
    made.make_server(["localhost"], force=True)
    assert made.path(SERVER).read_bytes() != before


def test_a_renewed_one_has_the_same_names_and_another_key(made: Certificates) -> None:
    before, key = made.show()[1], made.key_path(SERVER).read_bytes()
    made.renew(SERVER)
    assert made.show()[1].hosts == before.hosts
    assert made.key_path(SERVER).read_bytes() != key
    assert shake_hands(server_context(made), client_context(made), "localhost") == ""


def test_the_ca_is_not_renewed_in_passing(made: Certificates) -> None:
    with pytest.raises(CertificatesError, match="init --force"):
        made.renew(CA)


def test_what_there_is_is_shown_with_its_end(made: Certificates) -> None:
    ca, server = made.show()
    assert (ca.name, server.name, server.hosts) == (CA, SERVER, ("localhost", "127.0.0.1"))
    assert server.signed_by_us
    assert not server.expires_soon
    assert certs.CERTIFICATE_DAYS - 1 <= (server.until - datetime.now(UTC)).days <= certs.CERTIFICATE_DAYS
    made.make_ca(force=True)
    assert not made.show()[1].signed_by_us


@pytest.mark.parametrize("damage", [b"", b"no certificate"])
def test_a_damaged_one_is_named(made: Certificates, damage: bytes) -> None:
    made.path(CA).write_bytes(damage)
    with pytest.raises(CertificatesError, match=r"ca\.crt is damaged"):
        made.make_client("pi-3")


def test_the_command_makes_and_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(tmp_path)]
    assert certs_command.main(["server", "localhost", *data]) == 0
    assert certs_command.main(["client", "pi-3", *data]) == 0
    assert certs_command.main(["renew", "client-pi-3", *data]) == 0
    capsys.readouterr()
    assert certs_command.main(["show", *data]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ca", "client-pi-3", "server"]
    assert certs_command.main(["init", *data]) == 1
    assert capsys.readouterr().err.startswith("spinney cloud certs: ")
