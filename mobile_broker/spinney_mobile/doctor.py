"""`spinney mobile doctor`: what stands in the way, and what to do about it. It changes nothing."""

from __future__ import annotations

import asyncio
import grp
import os
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

from spinney.client.address import Access, Server
from spinney.client.link import Event, Granted, Link, Lost, Opened, Refused

from .acquire import make, name_of
from .acquire.serial import find_port
from .credentials import BindKeysError, bind_keys
from .foreign_access import password_in
from .listing import adverts
from .loop_handover import LoopHandover
from .pages import named
from .samples import AcquirerError
from .settings import AcquireBle, AcquireMotes, AcquireMqtt, AcquireReplay, AcquireSerial, AnyAcquire, Settings

ANSWER_SECONDS: Final = 10.0
LOW_DISK_BYTES: Final = 256 * 1024**2
DBUS_SOCKET: Final = Path("/run/dbus/system_bus_socket")
ADAPTERS: Final = Path("/sys/class/bluetooth")
SWITCHES: Final = Path("/sys/class/rfkill")
TIME_SYNCHRONISED: Final = Path("/run/systemd/timesync/synchronized")

State = Literal["good", "note", "bad"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    what: str
    state: State
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        mark = {"good": "ok  ", "note": "note", "bad": "BAD "}[self.state]
        line = f"{mark}  {self.what}: {self.text}"
        return f"{line}\n      -> {self.remedy}" if self.remedy else line


async def examine(settings: Settings, running: Mapping[str, Any] | None = None) -> list[Finding]:
    """All findings, in the order in which to mend them. `running`: the status of the broker that runs, if one does."""
    found = [*_system(settings), *_acquirers(settings), *_bind_keys(settings), *_broker(running)]
    if settings.cloud.url is None:
        found.append(
            Finding("cloud", "note", "none is set: everything stays here", "set cloud.url to send readings up")
        )
    else:
        found += await asyncio.to_thread(_reach, settings)
        if found[-1].state == "good":
            found.append(await _login(settings))
    return found


# ---- this machine -----------------------------------------------------------------------------------------------


def _system(settings: Settings) -> Iterator[Finding]:
    from spinney import native

    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("python", "good", f"{version}, {'64' if sys.maxsize > 2**32 else '32'} bit")
    if native.core() is not None:
        yield Finding("matcher", "good", "the C core")
    else:
        remedy = "with a C compiler it is built: sudo apt install build-essential python3-dev, then install again"
        yield Finding("matcher", "note", "pure Python: enough for about a thousand readings a second", remedy)
    yield _disk(settings)
    yield _clock()


def _disk(settings: Settings) -> Finding:
    folder = settings.data.absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return Finding("data", "bad", f"{folder} cannot be written", f"sudo chown {_me()} {there}, or --data elsewhere")
    free = shutil.disk_usage(there).free
    text = f"{folder}, {free / 2**20:,.0f} MiB free"
    if free < max(LOW_DISK_BYTES, settings.outbox.max_bytes):
        return Finding("data", "bad", text, "make room, set outbox.max_bytes lower, or --data elsewhere")
    return Finding("data", "good", text)


def _me() -> str:
    return str(os.environ.get("USER") or os.geteuid())


def _clock() -> Finding:
    """Times are the broker's; a Raspberry Pi has no clock of its own when it is off."""
    remedy = "sudo timedatectl set-ntp true, and wait for the network; or an RTC module"
    if TIME_SYNCHRONISED.exists():
        return Finding("clock", "good", "synchronised")
    said = _output("timedatectl", "show", "--property=NTPSynchronized", "--value")
    if said is None:
        return Finding("clock", "note", "there is no timedatectl to ask whether it is synchronised", "look at it: date")
    if said == "yes":
        return Finding("clock", "good", "synchronised")
    return Finding("clock", "bad", "not synchronised: readings get wrong times", remedy)


def _output(*command: str) -> str | None:
    """What a program says; None if it is not there, fails or hangs."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


# ---- what is heard ----------------------------------------------------------------------------------------------


def _bind_keys(settings: Settings) -> Iterator[Finding]:
    file = settings.devices.bindkeys
    if file is not None:
        try:
            yield Finding("bind keys", "good", f"{len(bind_keys(file)):,} in {file}")
        except BindKeysError as error:
            yield Finding("bind keys", "bad", str(error), "spinney mote key writes such a file")


def _acquirers(settings: Settings) -> Iterator[Finding]:
    wanted = [each for each in settings.acquire if each.enabled]
    if not wanted:
        yield Finding("acquirers", "note", "none is on", "add an [[acquire]]: spinney mobile config shows how")
    if any(isinstance(each, AcquireBle | AcquireMotes) for each in wanted):
        yield from _bluetooth(sys.platform)
    for each in wanted:
        if not isinstance(each, AcquireMotes):
            yield from _cannot_be_made(each)
        match each:
            case AcquireSerial(port=port):
                yield _serial(port)
            case AcquireReplay(file=file):
                yield _readable("replay", file)
            case AcquireMqtt(url=url):
                server = Server.parse(url)
                yield _tcp(f"mqtt {server}", server)
    if settings.place.kind == "nmea" and settings.place.port:
        yield _device_file("place", Path(settings.place.port))


def _cannot_be_made(one: AnyAcquire) -> Iterator[Finding]:
    try:
        make(one)
    except (AcquirerError, ImportError, OSError, ValueError) as error:
        problem, remedy = (error.problem, error.remedy) if isinstance(error, AcquirerError) else (str(error), "")
        yield Finding(name_of(one), "bad", problem, remedy)


def _broker(running: Mapping[str, Any] | None) -> Iterator[Finding]:
    """What the running broker says of its acquirers: it tries those that fail again and again."""
    if running is None:
        return
    yield Finding("running", "good", f"{running['name']}, version {running['version']}")
    for problem in running["problems"]:
        yield Finding("running", "bad", problem)
    for one in running["acquirers"]:
        if one["error"] is not None:
            yield Finding(f"running {one['name']}", "bad" if one["state"] == "failed" else "note", one["error"])
    for one in running["sources"]:
        if one["mote"] is not None and one["mote"].get("adverts_note"):
            yield Finding(f"mote {named(one)}", "note", adverts(one["mote"]))


def _bluetooth(platform: str) -> Iterator[Finding]:
    if platform != "linux":
        yield Finding("bluetooth", "note", f"{platform}: the system asks for leave when scanning begins")
        return
    adapters = sorted(path.name for path in ADAPTERS.glob("hci*")) if ADAPTERS.is_dir() else []
    if not adapters:
        remedy = "plug one in; on a Raspberry Pi: remove dtoverlay=disable-bt, sudo apt install pi-bluetooth, reboot"
        yield Finding("bluetooth", "bad", "no adapter", remedy)
    else:
        yield _blocked(adapters)
    if not DBUS_SOCKET.exists():
        yield Finding("bluez", "bad", "no D-Bus", "sudo apt install dbus bluez; in a container: share /run/dbus")
        return
    if (said := _output("systemctl", "is-active", "bluetooth")) is None and shutil.which("bluetoothctl") is None:
        yield Finding("bluez", "bad", "BlueZ is not there", "sudo apt install bluez")
    elif said is None:
        yield Finding("bluez", "bad", "its service does not run", "sudo systemctl enable --now bluetooth")
    else:
        yield Finding("bluez", "good", "its service runs")
    yield _group("bluetooth", "bluetooth permission")


def _blocked(adapters: list[str]) -> Finding:
    text = ", ".join(adapters)
    for file in SWITCHES.glob("rfkill*"):
        try:
            kind, soft, hard = ((file / name).read_text().strip() for name in ("type", "soft", "hard"))
        except OSError:
            continue
        if kind == "bluetooth" and "1" in (soft, hard):
            remedy = "sudo rfkill unblock bluetooth" if hard != "1" else "turn on the switch of the machine"
            return Finding("bluetooth", "bad", f"{text}, but blocked", remedy)
    return Finding("bluetooth", "good", text)


def _group(name: str, what: str) -> Finding:
    """Whether this user may use what a group may."""
    if os.geteuid() == 0:
        return Finding(what, "good", "root may")
    try:
        group = grp.getgrnam(name)
    except KeyError:
        return Finding(what, "note", f"there is no group {name} here; this system decides it another way")
    if group.gr_gid in os.getgroups():
        return Finding(what, "good", f"member of the group {name}")
    remedy = f"sudo usermod -aG {name} {_me()}, then log in again"
    return Finding(what, "note", f"{_me()} is not in the group {name}; a desktop session may do without", remedy)


def _serial(port: str) -> Finding:
    """The port, or what fits its pattern, as the acquirer will find it."""
    try:
        return _device_file("serial", Path(find_port(port)))
    except AcquirerError as error:
        return Finding("serial", "bad", error.problem, error.remedy)


def _device_file(what: str, path: Path) -> Finding:
    if not path.exists():
        return Finding(what, "bad", f"{path} is not there", "plug it in; ls /dev/serial/by-id names what is")
    if not os.access(path, os.R_OK | os.W_OK):
        return Finding(what, "bad", f"{path} may not be opened", f"sudo usermod -aG dialout {_me()}, then log in again")
    return Finding(what, "good", str(path))


def _readable(what: str, path: Path) -> Finding:
    if not path.is_file() or not os.access(path, os.R_OK):
        return Finding(what, "bad", f"{path} cannot be read", "correct the path")
    return Finding(what, "good", str(path))


# ---- the cloud --------------------------------------------------------------------------------------------------


def _reach(settings: Settings) -> list[Finding]:
    """Name, port, certificate: as far as it goes."""
    assert settings.cloud.url is not None
    server = Server.parse(settings.cloud.url)
    steps: list[Callable[[], Finding]] = [lambda: _name(server), lambda: _tcp("cloud port", server)]
    if server.tls:
        steps.append(lambda: _tls(server, settings.cloud.ca))
    return list(_stop_at_bad(steps))


def _stop_at_bad(steps: list[Callable[[], Finding]]) -> Iterator[Finding]:
    for step in steps:
        finding = step()
        yield finding
        if finding.state == "bad":
            return


def _name(server: Server) -> Finding:
    try:
        found = socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except OSError as error:
        remedy = "is there a network, and is cloud.url right? getent hosts " + server.host
        return Finding("cloud name", "bad", f"{server.host}: {error.strerror or error}", remedy)
    return Finding("cloud name", "good", f"{server.host} is {found[0][4][0]}")


def _tcp(what: str, server: Server) -> Finding:
    try:
        socket.create_connection((server.host, server.port), ANSWER_SECONDS).close()
    except OSError as error:
        remedy = (
            "is it running, and does a firewall let us through? On its machine: ./spinney cloud --mqtt-host 0.0.0.0"
        )
        return Finding(what, "bad", f"{server}: {error.strerror or error}", remedy)
    return Finding(what, "good", f"{server} answers")


def _tls(server: Server, ca: Path | None) -> Finding:
    remedy = "set cloud.ca to the cloud's certs/ca.crt (spinney cloud certs makes it), and see that the clock is right"
    try:
        context = ssl.create_default_context(cafile=ca)
        raw = socket.create_connection((server.host, server.port), ANSWER_SECONDS)
        with raw, context.wrap_socket(raw, server_hostname=server.host) as wrapped:
            return Finding("cloud certificate", "good", f"{wrapped.version()}")
    except ssl.SSLError as error:
        return Finding("cloud certificate", "bad", error.reason or str(error), remedy)
    except OSError as error:
        return Finding("cloud certificate", "bad", error.strerror or str(error), remedy)


async def _login(settings: Settings) -> Finding:
    """Come in as the broker does, but for its session: that is the broker's own, and may be in use."""
    cloud = settings.cloud
    assert cloud.url is not None
    server = Server.parse(cloud.url)
    try:
        password = password_in(cloud.password_file) if cloud.password_file else None
        certificate = (cloud.certificate, cloud.key) if cloud.certificate and cloud.key else None
        access = Access(settings.client, server, password, cloud.ca, certificate)
        events: LoopHandover[Event] = LoopHandover(10)
        link = Link(access, f"spinney-doctor-{uuid4().hex[:8]}", clean=True, events=events)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await asyncio.to_thread(link.open)
                return await _answer(events, link, access)
        finally:
            await asyncio.to_thread(link.close)
    except TimeoutError:
        return Finding("cloud login", "bad", f"{server} takes connections, and says nothing", "is it an MQTT server?")
    except OSError as error:
        remedy = "correct cloud.password_file, cloud.ca or cloud.certificate"
        return Finding("cloud login", "bad", f"{error.filename or server}: {error.strerror or error}", remedy)


async def _answer(events: LoopHandover[Event], link: Link, access: Access) -> Finding:
    while True:
        match await events.next():
            case Opened():
                link.subscribe([access.topic("act")])
            case Granted(granted=granted) if all(granted):
                return Finding("cloud login", "good", f"as {access.name}")
            case Granted():
                remedy = "the broker's name must be its user's: set cloud.user, and leave out name"
                return Finding("cloud login", "bad", f"{access.name} may not hear {access.topic('act')}", remedy)
            case Refused(reason=reason):
                remedy = f"check cloud.user and cloud.password_file; at the cloud: spinney cloud user add {access.name}"
                return Finding("cloud login", "bad", f"refused: {reason}", remedy)
            case Lost(reason=reason):
                return Finding("cloud login", "bad", f"the connection was lost: {reason}", "is it an MQTT server?")
