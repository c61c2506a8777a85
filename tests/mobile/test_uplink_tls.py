"""The uplink by TLS: a real cloud with a CA of its own, those who must not trust it, and files that will not do.

The same cloud takes small messages only, and refuses others as a whole, without a name.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import Cloud
from mobile_kit import command
from servers import free_ports
from uplink_kit import REAL, Edge, run, until

from spinney.client.address import Access, Server
from spinney_cloud.certs import Certificates
from spinney_mobile.settings import Cloud as CloudSettings
from spinney_mobile.settings import Settings
from spinney_mobile.uplink import access_of

pytestmark = pytest.mark.slow
LIMIT_BYTES = 4096


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("cloud"))
    made.make_ca()
    made.make_server(["127.0.0.1"])
    made.make_client("b1")
    return made


@pytest.fixture(scope="module")
def cloud(certificates: Certificates) -> Iterator[Cloud]:
    options = ("--mqtt-tls-certificate", certificates.path("server"), "--mqtt-tls-key", certificates.key_path("server"))
    limit = ("--limits-payload", str(LIMIT_BYTES))
    with Cloud(certificates.path("ca").parents[1], *map(str, options), *limit, program=REAL).start() as cloud:
        yield cloud


class Secured(Edge):
    """By TLS, trusting this CA; None: the system's."""

    def __init__(self, folder: Path, host: str, port: int, ca: Path | None) -> None:
        super().__init__(folder, "b1", port)
        self.access = Access("b1", Server.parse(f"mqtts://{host}:{port}"), None, ca)


def test_with_the_right_authority_readings_are_stored(cloud: Cloud, certificates: Certificates, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Secured(tmp_path, "127.0.0.1", cloud.port("MQTT"), certificates.path("ca")) as edge:
            edge.send(1)
            await edge.drained()
            assert edge.uplink.counts.stored == 1

    run(scenario())


def test_a_whole_message_that_is_refused_is_halved_down_to_the_reading_that_is_why_and_all_others_are_stored(
    cloud: Cloud, certificates: Certificates, tmp_path: Path
) -> None:
    """Where the cloud takes less than it said before: it says so with the refusal."""

    async def scenario() -> None:
        async with Secured(tmp_path, "127.0.0.1", cloud.port("MQTT"), certificates.path("ca")) as first:
            first.send(999, "w1")
            await first.drained()  # its first reply has told the limit; it will not be told for nothing again
        before = Secured(tmp_path, "127.0.0.1", cloud.port("MQTT"), certificates.path("ca"))
        before.outbox.open()
        before.outbox.keep({"uplink:max-payload": b"100000"})
        for number in range(120):
            text = {"text": "x" * 2 * LIMIT_BYTES} if number in (0, 60) else {}
            before.send(number, "w1", boot=2, **text)
        before.outbox.close()
        async with Secured(tmp_path, "127.0.0.1", cloud.port("MQTT"), certificates.path("ca")) as edge:
            await edge.drained()
            assert (edge.uplink.counts.stored, edge.uplink.counts.refused) == (118, 2)
            assert edge.uplink.counts.resent == 0, "no time-out was waited for"

    run(scenario())


@pytest.mark.parametrize("trusts", ["another", "the system's", "another name"])
def test_a_certificate_that_is_not_to_be_trusted_is_said_once_with_what_to_do_and_nothing_goes_up(
    cloud: Cloud, certificates: Certificates, tmp_path: Path, trusts: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = Certificates(tmp_path / "other")
    (tmp_path / "other").mkdir()
    ca = {"another": other.make_ca(), "the system's": None, "another name": certificates.path("ca")}[trusts]
    host = "localhost" if trusts == "another name" else "127.0.0.1"

    async def scenario() -> None:
        async with Secured(tmp_path / "edge", host, cloud.port("MQTT"), ca) as edge:
            edge.send(1)
            await until(lambda: "not trusted" in (edge.uplink.status().error or ""), "the reason")
            error = edge.uplink.status().error or ""
            assert "set cloud.ca" in error
            assert ("Hostname mismatch" in error) == (trusts == "another name")
            await until(lambda: edge.uplink._connection._pauses._next > 0.4, "more")  # type: ignore[union-attr]
            assert caplog.text.count("not trusted") == 1
            assert edge.outbox.log.count == 1

    with caplog.at_level(logging.INFO):
        run(scenario())


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_tls_to_a_port_that_speaks_none_is_said(tmp_path: Path, answer: bytes) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65_536)  # what is unread at the end makes it a reset
        writer.write(answer)
        writer.close()

    async def scenario() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Secured(tmp_path, "127.0.0.1", port, None) as edge:
            await until(lambda: "mqtts" in (edge.uplink.status().error or "")[10:], "the reason")

    run(scenario())


def test_an_authority_that_vanishes_while_it_runs_is_waited_for(certificates: Certificates, tmp_path: Path) -> None:
    async def scenario() -> None:
        (port,) = free_ports(1)
        async with Secured(tmp_path, "127.0.0.1", port, tmp_path / "gone.crt") as edge:
            await until(lambda: "No such file" in (edge.uplink.status().error or ""), "the reason")
            (tmp_path / "gone.crt").write_bytes(certificates.path("ca").read_bytes())
            await until(lambda: "refused" in (edge.uplink.status().error or ""), "another try")

    run(scenario())


@pytest.mark.parametrize(
    ("setting", "content", "reason"),
    [
        ("ca", None, "No such file or directory"),
        ("ca", "nothing", "not in PEM"),
        ("password_file", None, "No such file or directory"),
        ("certificate", "nothing", "not in PEM"),
        ("certificate", None, "No such file or directory"),
    ],
)
def test_files_that_will_not_do_are_named_at_the_start(
    tmp_path: Path, certificates: Certificates, setting: str, content: str | None, reason: str
) -> None:
    file = tmp_path / "file"
    if content is not None:
        file.write_text(content)
    more = {"certificate": {"key": certificates.key_path("client-b1")}, "password_file": {"user": "b1"}}
    cloud = CloudSettings(url="mqtts://127.0.0.1:1", **{setting: file, **more.get(setting, {})})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=rf"cloud\.{setting} {file}.*{reason}"):
        access_of(Settings(cloud=cloud))


def test_files_that_do_are_taken(certificates: Certificates) -> None:
    pair = (certificates.path("client-b1"), certificates.key_path("client-b1"))
    cloud = CloudSettings(url="mqtts://127.0.0.1:1", ca=certificates.path("ca"), certificate=pair[0], key=pair[1])
    access = access_of(Settings(name="b1", cloud=cloud))
    assert access is not None
    assert (access.ca, access.certificate) == (certificates.path("ca"), pair)
    assert isinstance(ssl.create_default_context(cafile=access.ca), ssl.SSLContext)


def test_the_command_says_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "mobile.toml").write_text('acquire = []\n[cloud]\nurl = "mqtts://127.0.0.1:1"\nca = "none.crt"\n')
    done = command(
        "run", "--config", str(tmp_path / "mobile.toml"), "--data", str(tmp_path / "d"), "--web-port", "none"
    )
    assert done.returncode == 1
    assert done.stderr == f"spinney mobile: cloud.ca {tmp_path / 'none.crt'}: No such file or directory\n"
