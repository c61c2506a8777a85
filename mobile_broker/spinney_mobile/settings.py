"""Everything that can be set, with its default. One model for file, environment and flags (see configuration).

The text below each field is its help: in `--help`, and in the sample that `spinney mobile config` prints.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .quantities import (
    Bytes,
    ClientName,
    Count,
    FilterText,
    HexKey,
    Latitude,
    Longitude,
    Port,
    Positive,
    Seconds,
    SecondsOrNever,
    ServerUrl,
    Share,
    SubscriptionText,
    Whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """The cloud broker that this one works for."""

    url: ServerUrl | None = "mqtt://127.0.0.1:1883"
    """Where it is: mqtt://, mqtts:// (TLS), ws:// or wss://. none: no cloud, all stays here."""
    user: ClientName | None = None
    """Whom to log in as; it is this broker's name there, too."""
    password_file: Path | None = None
    """Whose first line is that user's password."""
    ca: Path | None = None
    """The certificate to trust instead of the system's."""
    certificate: Path | None = None
    """This broker's own, where the cloud asks for one."""
    key: Path | None = None
    """Of that certificate."""


# ---- What is heard ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquire:
    """A way to hear sources; `kind` says which."""

    name: str | None = None
    """How pages and metrics call it; made from its kind and its first option unless given."""
    enabled: bool = True
    """false: it stays in the file and does nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireBle(Acquire):
    """Adverts of Bluetooth Low Energy sensors."""

    kind: Literal["ble"] = "ble"
    """Adverts of Bluetooth Low Energy sensors."""
    adapter: str | None = None
    """hci0 for instance; the system's first unless given."""
    mode: Literal["active", "passive"] = "active"
    """passive asks nothing of the sensors and saves their batteries; BlueZ needs --experimental for it."""
    duplicates: bool | None = None
    """true: BlueZ tells equal adverts again, too, which costs processor time; none: where motes are connected to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireMotes(Acquire):
    """Spinney motes: connects to them, puts filters onto them."""

    kind: Literal["motes"] = "motes"
    """Spinney motes: connects to them, puts filters onto them."""
    adapter: str | None = None
    """hci0 for instance; the system's first unless given."""
    addresses: tuple[str, ...] = ()
    """Addresses or names with * and ? of motes that only passive scanners hear: they cannot tell them from others."""
    connections: Count = 3
    """At one time; adapters manage 3 to 7."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttTopic:
    """One topic of local devices, and how its messages become attributes."""

    topic: str
    """With + and # as MQTT has them."""
    source: str = "{topic}"
    """A text with {topic} or {topic[1]}, or a path into the message such as $.device."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Attribute = path into the message, such as $.temperature; all numbers, texts and booleans if empty."""
    time: str | None = None
    """Path of the sample's time (epoch seconds or ISO 8601); when it arrived unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireMqtt(Acquire):
    """Local devices that speak MQTT, such as zigbee2mqtt's."""

    kind: Literal["mqtt"] = "mqtt"
    """Local devices that speak MQTT, such as zigbee2mqtt's."""
    url: ServerUrl = "mqtt://127.0.0.1:1883"
    """Their server."""
    user: str | None = None
    """Whom to log in as."""
    password_file: Path | None = None
    """Whose first line is that user's password."""
    topics: tuple[MqttTopic, ...] = ()
    """What to hear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireSerial(Acquire):
    """Lines from a serial or USB port, each one sample."""

    kind: Literal["serial"] = "serial"
    """Lines from a serial or USB port, each one sample."""
    port: str
    """Such as /dev/ttyUSB0."""
    baud: Count = 115200
    """Bits a second."""
    format: Literal["json", "csv"] = "json"
    """Of a line."""
    columns: tuple[str, ...] = ()
    """Of CSV; the first line names them unless given. An empty name leaves a column out."""
    source: str | None = None
    """The source's name, unless a line tells it as `source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireReplay(Acquire):
    """Samples from a file."""

    kind: Literal["replay"] = "replay"
    """Samples from a file."""
    file: Path
    """JSON lines or CSV, also .gz."""
    speed: Positive = 1.0
    """Times as fast as it was recorded; 0: as fast as possible."""
    repeat: bool = False
    """Over and over."""
    source: str | None = None
    """The source's name, unless a line tells it as `source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AcquireSimulator(Acquire):
    """Rooms that are not there, for trying without hardware."""

    kind: Literal["simulator"] = "simulator"
    """Rooms that are not there, for trying without hardware."""
    sources: Count = 5
    """How many."""
    every: Seconds = 5.0
    """Between two samples of a source."""
    seed: Whole = 1
    """The same one gives the same numbers."""


AnyAcquire = AcquireBle | AcquireMotes | AcquireMqtt | AcquireSerial | AcquireReplay | AcquireSimulator


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device, by its address; or a Spinney mote, by its name."""

    address: str | None = None
    """As `spinney mobile seen` shows it: a Bluetooth address, a topic, a port."""
    mote: ClientName | None = None
    """Instead of address: a mote's own name, whole. Passive scanners hear it of motes that advertise presence only."""
    name: str | None = None
    """The source's name; the address unless given."""
    allow: bool = True
    """false: nothing of it is taken."""
    lat: Latitude | None = None
    """Where it stands, if not where this broker is."""
    long: Longitude | None = None
    """With lat."""
    type: str | None = None
    """The attribute `type` of what it sends."""
    bindkey: HexKey | None = None
    """32 hexadecimal digits, for encrypted adverts."""
    raw: bool = False
    """Keep the bytes of each advert with the sample."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """Attributes under other names: temperature = "temp"."""
    attributes: Mapping[str, str | float | bool] = field(default_factory=dict)
    """More attributes for each of its samples, such as room = "lab 2"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """Which devices are taken."""

    allow: Literal["known", "listed"] = "known"
    """known: all that a decoder understands; listed: only those with a [[device]], or by these patterns."""
    patterns: tuple[str, ...] = ()
    """Addresses or names with * and ?, taken beside the listed ones. In passive scans new motes by whole names only."""
    bindkeys: Path | None = None
    """A file of bind keys, as `spinney mote key` writes it, for encrypted adverts; only this user may read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Motes:
    """What the Spinney motes that this broker owns advertise."""

    adverts: Literal["presence", "encrypted", "open", "leave"] = "presence"
    """presence: no readings; encrypted: for who has the bind key; open: for all; leave: as it is."""
    open_after: SecondsOrNever | None = None
    """Without our visits for so long a mote leaves presence; 0: never. As its mote.toml says (6h) unless given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSubscription:
    """A subscription of your own, evaluated here: `spinney mobile top` and the status page show what it tells."""

    sid: ClientName
    """Its name."""
    text: SubscriptionText
    """Such as NO2 > 40, or WHEN temp > 25 UNTIL temp <= 22."""


# ---- Where, and what may be told --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where this broker is."""

    kind: Literal["none", "fixed", "gpsd", "nmea", "file"] = "none"
    """none: readings have no place; fixed: lat and long; the others follow a receiver or a file."""
    lat: Latitude | None = None
    """Of a fixed place."""
    long: Longitude | None = None
    """Of a fixed place."""
    gpsd: str = "127.0.0.1:2947"
    """Where gpsd listens."""
    port: str | None = None
    """Of an NMEA receiver, such as /dev/ttyACM0."""
    baud: Count = 9600
    """Of that receiver."""
    file: Path | None = None
    """JSON lines with time, lat, long; followed as it grows."""
    grid: Literal["h3", "mgrs"] = "h3"
    """What a cell is."""
    resolution: Whole = 9
    """Of the cell: H3 0 to 15, MGRS 0 to 5."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A private rule: what it stops or changes goes nowhere else."""

    name: str
    """What the counts call it."""
    when: FilterText = "TRUE"
    """Which readings it is for; `source`, `lat`, `long`, `cell` and all attributes may be in it."""
    hours: str | None = None
    """Only at these hours of the local day, such as 22:00-06:30."""
    share: Literal["never", "coarse", "only"] = "never"
    """never: stop them; coarse: place only as a cell's middle, and no raw; only: just these attributes."""
    attributes: tuple[str, ...] = ()
    """For `only`."""
    resolution: Whole | None = None
    """For `coarse`: of the cell; that of [place] unless given."""
    hourly: Count | None = None
    """At most so many of them an hour, instead of share."""
    battery: Share | None = None
    """Only while the source's battery is below this."""


# ---- The way up -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbox:
    """What waits on disk for the cloud's `stored`."""

    max_bytes: Bytes = 64 * 1024**2
    """Beyond it readings are dropped."""
    max_age: Seconds = 7 * 24 * 3600.0
    """What is older is dropped."""
    drop: Literal["oldest", "newest"] = "oldest"
    """Which end gives way when it is full."""
    sync: Literal["always", "interval", "never"] = "interval"
    """always: on disk before anything else happens; interval: within ten seconds; never: as the system likes."""


# ---- Local life -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """An MQTT port for local publishers and subscribers: the cloud's topics, served here."""

    port: Port | None = None
    """1883 for instance; none: no such port. 0: any free one."""
    host: str = "127.0.0.1"
    """Where it listens. Beyond loopback it wants password_file."""
    password_file: Path | None = None
    """Lines `client:password`; only readable by this broker's user."""
    certificate: Path | None = None
    """For TLS, with key; then the port speaks nothing else."""
    key: Path | None = None
    """Of that certificate."""
    subscriptions: Count = 1_000
    """Of all local clients together, without those in this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Web:
    """The status page for a browser."""

    port: Port | None = 8081
    """none: no page. 0: any free one."""
    host: str = "127.0.0.1"
    """Where it listens. Beyond loopback a token is asked for, which is made in the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeAssistant:
    """Sensors for Home Assistant, by its MQTT discovery."""

    url: ServerUrl | None = None
    """The MQTT server that Home Assistant listens to; none: nothing is told."""
    user: str | None = None
    """Whom to log in as."""
    password_file: Path | None = None
    """Whose first line is that user's password."""
    ca: Path | None = None
    """The certificate to trust instead of the system's."""
    prefix: str = "homeassistant"
    """As Home Assistant's discovery prefix is set."""
    expire_after: Seconds = 900.0
    """A source silent for so long is shown as unavailable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watchdog:
    """What happens when an adapter falls silent."""

    silent: Seconds = 120.0
    """Without any advert for so long: scan anew; twice that: reset the adapter; four times: exit for systemd."""
    reset: str | None = None
    """The command that resets an adapter, {adapter} in it. Unless given: busctl, hciconfig, btmgmt, until one works."""
    exit: bool = True
    """false: never exit because of an adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is said on stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Nothing below it is said."""
    format: Literal["text", "json"] = "text"
    """A line for people, or a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All of it."""

    name: ClientName | None = None
    """This broker's name at the cloud; the user's, else the host's unless given."""
    data: Path = Path("spinney-mobile")
    """The data directory: outbox, activations, numbering, the page's token."""
    send: Literal["wanted", "all"] = "wanted"
    """wanted: what somebody has subscribed to; all: everything, as plain gateways do."""
    cloud: Cloud = Cloud()
    acquire: tuple[AnyAcquire, ...] = (AcquireBle(), AcquireMotes())
    devices: Devices = Devices()
    device: tuple[Device, ...] = ()
    motes: Motes = Motes()
    place: Place = Place()
    rule: tuple[Rule, ...] = ()
    outbox: Outbox = Outbox()
    local: Local = Local()
    subscription: tuple[OwnSubscription, ...] = ()
    web: Web = Web()
    home_assistant: HomeAssistant = HomeAssistant()
    watchdog: Watchdog = Watchdog()
    logging: Logging = Logging()

    @property
    def client(self) -> str:
        """This broker's name at the cloud."""
        return self.name or self.cloud.user or host_name()


def host_name() -> str:
    """This machine's name, as far as a client may be called so."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", socket.gethostname().partition(".")[0])[:64].strip("-") or "mobile"
