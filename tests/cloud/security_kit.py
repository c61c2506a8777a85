"""A whole cloud with users, with its own MQTT server or with a mosquitto set up as the manual says; and its clients."""

from __future__ import annotations

import base64
import contextlib
import os
import queue
import shutil
import signal
import ssl
import sys
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson
import paho.mqtt.client as paho
import pytest
from clouds import Cloud, wait_until
from paho.mqtt.enums import CallbackAPIVersion
from servers import HOST, Server, free_ports

from spinney_cloud import acl_command, conf_command
from spinney_cloud import users as users_module
from spinney_cloud.acl import MQTT_USER
from spinney_cloud.users import Role, Users, change

START = "import sys; from spinney_tools.cloud import main; sys.exit(main(sys.argv[1:]))"
REAL = [sys.executable, "-c", START]
SECONDS = 30.0
KINDS = ["own", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))]

CAST = {
    "pat": (Role.PUBLISHER, "city"),
    "sue": (Role.SUBSCRIBER, "city"),
    "mob": (Role.MOBILE_BROKER, "city"),
    "ops": (Role.OPERATOR, "city"),
    "eve": (Role.MOBILE_BROKER, "other"),
    "olga": (Role.OPERATOR, "other"),
}
"""Users, all with a password of this form."""


def password(name: str) -> str:
    """Of a user."""
    return f"{name}-and-nobody-else-knows"


def make_users(data: Path) -> None:
    """The cast, with hashes that are quick to check."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with quick_hashes():
        users = Users()
        for name, (role, tenant) in CAST.items():
            users = users.add(name, role, tenant, password(name))
    users.save(data)


@contextmanager
def quick_hashes() -> Iterator[None]:
    """Passwords are made to be slow, and tests are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users_module, "BCRYPT_ROUNDS", 4)
        yield


class Mosquitto(Server):
    """A mosquitto with what `spinney cloud acl` and `spinney cloud conf` write, and a place for its files."""

    kind = "mosquitto"

    def __init__(self, folder: Path, data: Path, *, secured: bool = True) -> None:
        super().__init__(folder, free_ports(2 if secured else 1))
        self.mqtt_port = self.ports[0]
        self.own_port = self.ports[-1]
        self._data = data
        arguments = ["mosquitto", "--listen", f"{HOST}:{self.mqtt_port}"]
        if secured:
            self.write_users()
            arguments += ["--acl", str(folder), "--own-listen", f"{HOST}:{self.own_port}"]
        with contextlib.redirect_stdout(StringIO()) as printed:
            assert conf_command.main(arguments) == 0
        user = "user root\n" if os.geteuid() == 0 else ""
        (folder / "spinney.conf").write_text(printed.getvalue())
        (folder / "mosquitto.conf").write_text(f"{user}persistence_location {folder}/\n{printed.getvalue()}")
        self.options = ["--mqtt", f"mqtt://{HOST}:{self.own_port}", *(["--mqtt-user", MQTT_USER] if secured else [])]

    def write_users(self) -> None:
        """As they are now."""
        assert acl_command.main(["mosquitto", "--to", str(self.folder), "--data", str(self._data)]) == 0

    def command(self) -> list[str]:
        return [shutil.which("mosquitto") or "mosquitto", "-c", str(self.folder / "mosquitto.conf")]


class Guarded:
    """A cloud with users."""

    def __init__(self, folder: Path, kind: str, *arguments: str) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.kind = kind
        make_users(self.data)
        self.mosquitto = Mosquitto(folder / "mosquitto", self.data) if kind == "mosquitto" else None
        ports = ["--http-port", "0", "--nats-port", "0"]
        ports += self.mosquitto.options if self.mosquitto else ["--mqtt-port", "0"]
        self.cloud = Cloud(self.data, *arguments, program=REAL, ports=ports)

    def __enter__(self) -> Self:
        if self.mosquitto:
            self.mosquitto.start()
        self.cloud.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cloud.__exit__(kind, error, at)
        if self.mosquitto:
            self.mosquitto.kill()

    @property
    def mqtt_port(self) -> int:
        """Of clients."""
        return self.mosquitto.mqtt_port if self.mosquitto else self.cloud.port("MQTT")

    def change_users(self, how: Any) -> None:
        """Change users while all runs; with mosquitto, as its manual says."""
        with quick_hashes():
            change(self.data, how)
        if self.mosquitto:
            self.mosquitto.write_users()
            os.kill(self.mosquitto.pid, signal.SIGHUP)

    def client(self, name: str, **more: Any) -> Client:
        """A client of that user, to be used in a `with`."""
        return Client(self.mqtt_port, name, **more)

    def ask(self, name: str, path: str, body: object = None, *, token: str | None = None) -> tuple[int, Any]:
        """Over HTTP, by password or token: the status and what is said."""
        secret = base64.b64encode(f"{name}:{password(name)}".encode()).decode()
        header = f"Bearer {token}" if token else f"Basic {secret}"
        return ask(f"{self.cloud.addresses()['HTTP']}{path}", body, {"Authorization": header} if name or token else {})


def ask(url: str, body: object = None, headers: dict[str, str] | None = None, **more: Any) -> tuple[int, Any]:
    """GET, or POST of a body: the status and what is said."""
    data = None if body is None else orjson.dumps(body)
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, **more) as answer:
            status, said = answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            status, said = error.code, error.read()
    return status, orjson.loads(said) if said.startswith((b"{", b"[")) else said.decode()


class Client:
    """An MQTT client that gathers what its topics bring. `refused` says whether it was let in."""

    def __init__(
        self,
        port: int,
        name: str,
        *,
        id: str | None = None,
        secret: str | None = None,
        clean: bool = True,
        tls: ssl.SSLContext | None = None,
        websocket: bool = False,
        leaves: tuple[str, ...] = ("reply", "note/+"),
    ) -> None:
        self.name = name
        self.gathered: defaultdict[str, queue.Queue[Any]] = defaultdict(queue.Queue)
        self.connects: queue.Queue[bool] = queue.Queue()
        self.ends: queue.Queue[None] = queue.Queue()
        self.granted: queue.Queue[list[bool]] = queue.Queue()
        self.acknowledged: queue.Queue[int] = queue.Queue()
        self.refused = True
        self._port = port
        self._leaves = leaves
        self.paho = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"{name}-{os.urandom(6).hex()}" if id is None else id,
            clean_session=clean,
            transport="websockets" if websocket else "tcp",
            reconnect_on_failure=False,
        )
        if websocket:
            self.paho.ws_set_options(path="/mqtt")
        if secret != "":
            self.paho.username_pw_set(name, password(name) if secret is None else secret)
        if tls is not None:
            self.paho.tls_set_context(tls)
        self.paho.on_connect = lambda _c, _u, _f, reason, _p: self.connects.put(not reason.is_failure)
        self.paho.on_disconnect = lambda *_: self.ends.put(None)
        self.paho.on_subscribe = lambda _c, _u, _m, reasons, _p: self.granted.put(
            [not reason.is_failure for reason in reasons]
        )
        self.paho.on_publish = lambda _c, _u, mid, *_: self.acknowledged.put(mid)
        self.paho.on_message = self._gather

    def _gather(self, _client: object, _data: object, message: paho.MQTTMessage) -> None:
        leaf = message.topic.removeprefix(f"spinney/{self.name}/")
        self.gathered[leaf].put(orjson.loads(message.payload) if message.payload else None)

    def __enter__(self) -> Self:
        self._connect()
        wait_until(self._is_answered, f"CONNACK for {self.name}", 2 * SECONDS)
        self.refused = not self.connects.get(timeout=SECONDS)
        if not self.refused and self._leaves:
            assert all(self.subscribe(*(f"spinney/{self.name}/{leaf}" for leaf in self._leaves)))
        return self

    def _connect(self) -> None:
        self.paho.connect(HOST, self._port)
        self.paho.loop_start()

    def _is_answered(self) -> bool:
        """A server that hung up without a CONNACK, since its store did not answer it in time, is asked again."""
        has_ended = not self.ends.empty()
        if not self.connects.empty():
            return True
        if has_ended:
            self.ends.get_nowait()
            self.paho.loop_stop()
            self._connect()
        return False

    def __exit__(self, *_error: object) -> None:
        self.paho.disconnect()
        self.paho.loop_stop()

    def subscribe(self, *topics: str) -> list[bool]:
        """What is granted of these."""
        self.paho.subscribe([(topic, 1) for topic in topics])
        return self.granted.get(timeout=SECONDS)

    def publish(self, leaf: str, payload: object) -> None:
        """To its own topic."""
        self.paho.publish(
            f"spinney/{self.name}/{leaf}", payload if isinstance(payload, str) else orjson.dumps(payload), 1
        )

    def next(self, leaf: str) -> Any:
        """The next message of a leaf."""
        return self.gathered[leaf].get(timeout=SECONDS)

    def sub(self, sid: str, text: str) -> None:
        """Subscribe, and be told that it is done."""
        self.publish(f"sub/{sid}", text)
        wait_until(lambda: (told := self.next("reply")).get("sid") == sid and told["ok"], f"{sid} is taken")

    def pub(self, reading: dict[str, Any]) -> None:
        """Publish a reading, and be told that it is stored."""
        self.publish("pub", reading)
        wait_until(lambda: reading.get("source", self.name) in self.next("reply").get("stored", ()), "it is stored")
