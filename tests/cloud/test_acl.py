"""What each role may do, tried against the real servers."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from servers import HOST, MosquittoServer, NatsServer

from spinney_cloud import acl
from spinney_cloud import users as users_module
from spinney_cloud.data_dir import Secrets
from spinney_cloud.users import Role, Users, hashes

SECONDS = 60.0
SECRETS = Secrets(nats_password="core-secret", mqtt_password="mqtt-secret", system_password="s", client_prefix="x")


@pytest.fixture(scope="module")
def users() -> Iterator[Users]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users_module, "BCRYPT_ROUNDS", 4)
        made = Users()
        for name, role in [("pat", Role.PUBLISHER), ("sue", Role.SUBSCRIBER), ("mob", Role.MOBILE_BROKER)]:
            made = made.add(name, role, "city", f"{name}-password")
        yield made.add("eve", Role.MOBILE_BROKER, "city", "eve-password")


@pytest.fixture(scope="module", params=["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, users: Users
) -> Iterator[NatsServer | MosquittoServer]:
    folder = tmp_path_factory.mktemp("acl")
    if request.param == "nats":
        with NatsServer(folder, extra=acl.nats_authorization(users, SECRETS)) as nats:
            yield nats
        return
    write_mosquitto_files(folder, users)
    extra = f"allow_anonymous false\nacl_file {folder}/acl\npassword_file {folder}/passwords\n"
    with MosquittoServer(folder, extra=extra) as mosquitto:
        yield mosquitto


def write_mosquitto_files(folder: Path, users: Users) -> None:
    (folder / "acl").write_text(acl.mosquitto_acl(users))
    (folder / "passwords").write_text(acl.mosquitto_passwords(users, hashes(SECRETS.mqtt_password)[1]))
    for name in ("acl", "passwords"):
        (folder / name).chmod(0o600)


@dataclass
class Client:
    """A paho client that waits for what it asks for."""

    port: int
    name: str
    password: str | None
    id: str = ""
    messages: list[tuple[str, bytes]] = field(default_factory=list)

    def __enter__(self) -> Client:
        self.paho = paho.Client(CallbackAPIVersion.VERSION2, client_id=self.id or f"{self.name}-{os.urandom(4).hex()}")
        if self.password is not None:
            self.paho.username_pw_set(self.name, self.password)
        self.told, self.changed = threading.Event(), threading.Condition()
        self.refused, self.granted = None, None
        self.paho.on_connect = self._connected
        self.paho.on_subscribe = self._subscribed
        self.paho.on_message = self._message
        self.paho.connect(HOST, self.port)
        self.paho.loop_start()
        assert self.told.wait(SECONDS)
        return self

    def __exit__(self, *error: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def _connected(self, _client: object, _data: object, _flags: object, reason: object, _more: object) -> None:
        self.refused = getattr(reason, "is_failure", False)
        self.told.set()

    def _subscribed(self, _client: object, _data: object, _id: object, reasons: list, _more: object) -> None:
        with self.changed:
            self.granted = [not reason.is_failure for reason in reasons]
            self.changed.notify_all()

    def _message(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        with self.changed:
            self.messages.append((message.topic, message.payload))
            self.changed.notify_all()

    def subscribe(self, topic: str) -> bool:
        self.granted = None
        self.paho.subscribe(topic, 1)
        with self.changed:
            assert self.changed.wait_for(lambda: self.granted is not None, SECONDS)
        return bool(self.granted[0])

    def publish(self, topic: str, payload: bytes) -> None:
        # nats-server ends a connection that publishes where it may not; then there is nothing to wait for
        self.paho.publish(topic, payload, 1)

    def wait_for(self, payload: bytes) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: any(seen == payload for _, seen in self.messages), SECONDS)


def core(server: NatsServer | MosquittoServer) -> Client:
    return Client(server.mqtt_port, acl.MQTT_USER, SECRETS.mqtt_password)


def client(server: NatsServer | MosquittoServer, name: str) -> Client:
    return Client(server.mqtt_port, name, f"{name}-password")


@pytest.mark.parametrize(
    ("name", "leaf"),
    [("pat", "pub"), ("pat", "unpub"), ("mob", "pub"), ("mob", "ann"), ("mob", "sub/s1"), ("sue", "sub/s1")],
)
def test_a_role_publishes_what_it_may(server: NatsServer | MosquittoServer, name: str, leaf: str) -> None:
    with core(server) as ours, client(server, name) as theirs:
        assert ours.subscribe("spinney/#")
        theirs.publish(f"spinney/{name}/{leaf}", b"may")
        ours.wait_for(b"may")


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("pat", "spinney/sue/pub"),
        ("pat", "spinney/pat/ann"),
        ("pat", "spinney/pat/sub/s1"),
        ("sue", "spinney/sue/pub"),
        ("sue", "spinney/sue/note/s1"),
        ("mob", "spinney/eve/note/s1"),
        ("mob", "spinney/mob/reply"),
        ("mob", "spinney/eve/sub/s1"),
        ("mob", "spinney_cloud/log/publications/city"),
        ("mob", "spinney_cloud/notes/city"),
        ("mob", "$JS/API/STREAM/DELETE/SPINNEY_LOG"),
        ("mob", "$KV/spinney_subscriptions/x"),
    ],
)
def test_nothing_else_that_a_role_publishes_arrives(
    server: NatsServer | MosquittoServer, name: str, topic: str
) -> None:
    with core(server) as ours, client(server, name) as theirs, client(server, "pat") as other:
        for pattern in ("spinney/#", "spinney_cloud/#"):
            assert ours.subscribe(pattern)
        theirs.publish(topic, b"may not")
        theirs.publish(topic, b"may not again")
        other.publish("spinney/pat/pub", b"after")
        ours.wait_for(b"after")
        assert [payload for _, payload in ours.messages] == [b"after"]


@pytest.mark.parametrize(
    "topic", ["spinney/sue/#", "spinney/sue/note/#", "spinney/sue/note/+", "spinney/sue/note/s1", "spinney/sue/reply"]
)
def test_a_subscriber_hears_what_is_theirs(server: NatsServer | MosquittoServer, topic: str) -> None:
    with core(server) as ours, client(server, "sue") as theirs:
        assert theirs.subscribe(topic)
        ours.publish("spinney/sue/reply" if topic.endswith("reply") else "spinney/sue/note/s1", b"theirs")
        theirs.wait_for(b"theirs")


@pytest.mark.parametrize(
    "topic",
    [
        "#",
        "+/#",
        "spinney/#",
        "spinney/+/note/#",
        "spinney/eve/note/s1",
        "spinney/eve/reply",
        "spinney_cloud/#",
        "$MQTT/#",
    ],
)
def test_a_subscriber_hears_nothing_else(server: NatsServer | MosquittoServer, topic: str) -> None:
    with core(server) as ours, client(server, "sue") as theirs:
        granted = theirs.subscribe(topic)
        # mosquitto grants what covers more than is allowed and filters as it delivers; nats-server refuses
        assert not granted or server.kind == "mosquitto"
        assert theirs.subscribe("spinney/sue/note/last")
        ours.publish("spinney/eve/note/s1", b"secret")
        ours.publish("spinney/eve/reply", b"secret")
        ours.publish("spinney/sue/note/last", b"last")
        theirs.wait_for(b"last")
        assert {payload for _, payload in theirs.messages} == {b"last"}


@pytest.mark.parametrize(
    ("name", "password"),
    [
        ("pat", "wrong"),
        ("nobody", "x"),
        ("pat", None),
        (acl.CORE_USER, SECRETS.nats_password),
        (acl.ANONYMOUS_USER, ""),
    ],
)
def test_nobody_else_comes_in(server: NatsServer | MosquittoServer, name: str, password: str | None) -> None:
    with Client(server.mqtt_port, name, password) as stranger:
        assert stranger.refused


@pytest.mark.parametrize("name", ["pat", acl.MQTT_USER, acl.ANONYMOUS_USER])
def test_clients_do_not_come_in_by_nats(tmp_path: Path, users: Users, name: str) -> None:
    password = SECRETS.mqtt_password if name == acl.MQTT_USER else f"{name}-password"
    hello = {"user": name, "pass": password, "verbose": False, "pedantic": False, "lang": "test", "version": "1"}
    with (
        NatsServer(tmp_path, extra=acl.nats_authorization(users, SECRETS)) as server,
        socket.create_connection((HOST, server.port), SECONDS) as link,
    ):
        link.sendall(f"CONNECT {json.dumps(hello)}\r\nPING\r\n".encode())
        said = b""
        while more := link.recv(4096):
            said += more
        assert b"-ERR 'Authorization Violation'" in said
        assert b"PONG" not in said


def test_without_users_anybody_on_loopback_is_a_client_and_no_more(tmp_path: Path) -> None:
    with (
        NatsServer(tmp_path, extra=acl.nats_authorization(Users(), SECRETS)) as server,
        core(server) as ours,
        Client(server.mqtt_port, "anybody", None) as theirs,
    ):
        assert not theirs.refused
        assert ours.subscribe("spinney/#")
        theirs.publish("spinney/anybody/pub", b"hello")
        ours.wait_for(b"hello")
        assert theirs.subscribe("spinney/anybody/note/#")
        assert not theirs.subscribe("$JS/#")
        assert not theirs.subscribe("spinney_cloud/#")
