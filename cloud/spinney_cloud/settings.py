"""Everything that can be set, with its default. One model for file, environment and flags (see configuration)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")
_ORIGIN = re.compile(r"(https?)://([a-z0-9.-]+|\[[0-9a-f:.]+\])(?::(\d{1,5}))?/?")
_USUAL_PORTS = {"http": 80, "https": 443}
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}


def _seconds(value: Any) -> Any:
    """`7d`, `10m`, `1.5s`, or a number."""
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return float(found[1]) * _SECONDS[found[2].lower()] if found and found[2].lower() in _SECONDS else value


def _bytes(value: Any) -> Any:
    """`512MiB`, `20GB`, or a number."""
    found = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    return round(float(found[1]) * _BYTES[found[2].lower()]) if found and found[2].lower() in _BYTES else value


def _origin(value: str) -> str:
    """As browsers say it: in small letters, without the port that goes without saying."""
    found = _ORIGIN.fullmatch(value.lower())
    if found is None:
        raise ValueError("a URL such as https://spinney.example.org, without path, name or password")
    scheme, host, port = found.groups()
    return f"{scheme}://{host}" + (f":{int(port)}" if port and int(port) != _USUAL_PORTS[scheme] else "")


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]
Bytes = Annotated[int, BeforeValidator(_bytes), Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
SyncInterval = Annotated[str, Field(pattern=r"^(\d+(ms|s|m|h)|always)$")]
Port = Annotated[int, Field(ge=0, le=65535)]
Origin = Annotated[str, AfterValidator(_origin)]
Place = Annotated[str, Field(min_length=1)]
"""A folder, or the URL of one."""


class Section(BaseModel):
    """A part of the settings. What is misspelt is refused. The text below each field is its help."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Tls(Section):
    """Certificates of a listener or of a connection to a server."""

    certificate: Path | None = None
    """PEM file; for a listener it turns TLS on."""
    key: Path | None = None
    """PEM file of the certificate's private key."""
    ca: Path | None = None
    """Of the servers that we connect to; for our own MQTT and HTTP: of clients, which then must show a certificate."""


class Nats(Section):
    """The log's server: our own, unless a URL is given."""

    url: str | None = None
    """nats://host:port or tls://host:port of an existing server; several with commas."""
    user: str | None = None
    """At an existing server; spinney-core after `spinney cloud acl nats`."""
    password_file: Path | None = None
    """Holds that user's password; that of spinney-core is in the data directory."""
    replicas: Count = 1
    """Servers of an existing cluster that keep each stream; 3 lets one of them fail."""
    host: str = "127.0.0.1"
    """Where our own server listens."""
    port: Port = 4222
    """Of our own server. 0: any free one."""
    max_payload: Bytes = 4 * 1024 * 1024
    """The largest message of our own server."""
    store_limit: Bytes = 20 * 1024**3
    """All that our own server may keep on disk."""
    sync_interval: SyncInterval = "10s"
    """What a power cut may lose at most; `always` loses nothing and is ten times slower."""
    tls: Tls = Tls()


class Mqtt(Section):
    """Where clients connect: our own nats-server's listener, unless a URL is given."""

    url: str | None = None
    """mqtt://host:port or mqtts://host:port of an existing broker."""
    kind: Literal["auto", "nats", "mosquitto", "other"] = "auto"
    """What the existing broker is; auto: it is asked."""
    user: str | None = None
    """At an existing broker; spinney-mqtt after `spinney cloud acl`."""
    password_file: Path | None = None
    """Holds that user's password; that of spinney-mqtt is in the data directory."""
    host: str = "127.0.0.1"
    """Where our own server listens."""
    port: Port = 1883
    """Of our own server. 0: any free one."""
    websocket_port: Port | None = None
    """Our own server's port for MQTT over WebSocket (path /mqtt); off unless given. 0: any free one."""
    max_ack_pending: Count = 100
    """QoS 1 messages that our own server has under way to one subscription."""
    tls: Tls = Tls()


class Http(Section):
    """The API, the metrics and the page."""

    host: str = "127.0.0.1"
    """Where it listens."""
    port: Port = 8080
    """0: any free one."""
    tls: Tls = Tls()
    public_url: Origin | None = None
    """Where browsers find us behind a reverse proxy, such as https://spinney.example.org. Only pages from there are
    ours then, and without users nobody is let in."""
    max_body: Bytes = 4 * 1024 * 1024
    """The largest body of a request."""
    max_connections: Count = 2_000
    """At one time."""


class Dashboard(Section):
    """The page at /dashboard."""

    enabled: bool = True
    """Whether there is one."""
    tiles: str = "https://tile.openstreetmap.org/{z}/{x}/{y}.png"
    """Where browsers get the map's tiles, a URL with {z}, {x}, {y}; empty: nowhere, the map is drawn by the page."""
    attribution: str = "© OpenStreetMap contributors"
    """Whose tiles they are, as the map says."""
    session: Seconds = 12 * 3600.0
    """How long somebody stays logged in."""


class Log(Section):
    """How long publications are kept, and when one is a duplicate."""

    max_age: Seconds = 7 * 24 * 3600.0
    """The keeper purges what is older, once all required readers have read it."""
    max_bytes: Bytes = 8 * 1024**3
    """The keeper purges by this, too; half as much again is the hard cap."""
    notes_max_age: Seconds = 7 * 24 * 3600.0
    """The same for the notification log."""
    notes_max_bytes: Bytes = 2 * 1024**3
    """The same for the notification log."""
    duplicate_window: Seconds = 3600.0
    """How long the number of a publication is remembered."""
    content_window: Seconds = 60.0
    """How long the content of a publication without number is remembered."""
    free_disk_floor: Bytes = 512 * 1024**2
    """With less free disk than this, publications are refused until there is more."""
    keeper_interval: Seconds = 10.0
    """Between the keeper's rounds."""
    pipeline: bool = False
    """Whether the pipeline is a required reader, too."""


class Limits(Section):
    """What one client may do."""

    payload: Bytes = 1024 * 1024
    """The largest message."""
    rate: Count = 50_000
    """Readings a second, over ten seconds."""
    subscriptions: Count = 200_000
    """Of one owner."""
    subscription_text: Bytes = 64 * 1024
    """The longest subscription, text or JSON; one has at most 1,000 comparisons."""
    attributes: Count = 256
    """Of one reading."""
    connections: Count = 10_000
    """Of all clients together, at our own MQTT listener."""


class Matching(Section):
    """The matcher process."""

    snapshot_interval: Seconds = 30.0
    """What at most has to be read again after a crash."""
    snapshots_kept: Count = 3
    """Older ones are deleted."""
    valid_kept: Count = 100_000
    """Publications with valid_for that are kept for subscriptions to come."""


class Delivery(Section):
    """How notifications go out."""

    queue_count: Count = 10_000
    """Notifications that wait for one subscriber."""
    queue_bytes: Bytes = 16 * 1024**2
    """Of the notifications that wait for one subscriber."""
    queue_age: Seconds = 24 * 3600.0
    """Of the oldest that waits."""
    session_expiry: Seconds = 24 * 3600.0
    """On nats-server a subscriber's session that nobody has used for so long is ended. Other servers: see README."""
    in_flight: Count = 1_000
    """Notifications sent and not yet acknowledged, over all subscribers."""
    attempts: Count = 10
    """After these a notification is a dead letter."""
    retry: Seconds = 5.0
    """Between attempts."""


class Coordinator(Section):
    """Announcements and activation."""

    away_grace: Seconds = 120.0
    """A mobile broker that comes back within this was never away."""
    lease: Seconds = 60.0
    """How long a mobile broker owns a source without asking again."""


class Pipeline(Section):
    """The Spark pipeline: it keeps the log in a lake, and computes what needs history."""

    run: bool = False
    """Run it beside the broker, and have the log wait for it. Needs spinney[pipeline] and Java."""
    lake: Place | None = None
    """Where its tables are: a folder, or a URL such as s3://bucket/lake; `lake` in the data directory unless given."""
    trigger: Seconds = 10.0
    """Between batches; each makes a file for every type."""
    max_rows: Count = 200_000
    """Of a batch."""
    cores: Count = 2
    """That Spark uses on this machine."""
    heap: Bytes = 1024**3
    """Of Spark's Java process; half of that is too small for Spark."""
    compact: Seconds = 900.0
    """Between rounds of compaction, retention and vacuum."""
    retain_days: Count | None = None
    """Days that the lake keeps; what is older is removed. All, unless given."""
    retain_windows_days: Count | None = None
    """The same for the windows, which are what is left of older days. All, unless given."""
    vacuum_after: Seconds = 24 * 3600.0
    """Files that are no part of a table any more are deleted after this, for those who still read them."""
    windows: bool = True
    """Whether it sums up what was measured by minutes, quarters of an hour, hours and days."""
    matching: bool = True
    """Whether it answers the subscriptions that are marked "on": "pipeline"."""
    matching_trigger: Seconds = 1.0
    """Between batches of matching."""
    checkpoints: Place | None = None
    """Where matching keeps its state: a folder or a URL; unless given, `checkpoints` in the lake's folder, or in the
    data directory where the lake is a URL."""
    skip_missing: bool = False
    """Go on where the log begins if records were purged unread; else it stops there and says which."""


class Security(Section):
    """Who may connect."""

    anonymous: Literal["loopback", "never"] = "loopback"
    """Without users, clients on loopback need no password; anywhere else they do."""
    token_lifetime: Seconds = 30 * 24 * 3600.0
    """Of a token for HTTP, unless it says otherwise."""


class Logging(Section):
    """What the processes say."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Nothing below it is said."""
    format: Literal["text", "json"] = "text"
    """A line for people, or a JSON object."""


class Settings(Section):
    """All of it."""

    data: Path = Path("spinney-data")
    """The data directory: the log's store, users, secrets, snapshots."""
    nats: Nats = Nats()
    mqtt: Mqtt = Mqtt()
    http: Http = Http()
    dashboard: Dashboard = Dashboard()
    log: Log = Log()
    limits: Limits = Limits()
    matching: Matching = Matching()
    delivery: Delivery = Delivery()
    coordinator: Coordinator = Coordinator()
    pipeline: Pipeline = Pipeline()
    security: Security = Security()
    logging: Logging = Logging()

    @property
    def lake(self) -> str:
        """Where the pipeline's tables are: a folder, or a URL."""
        return self.pipeline.lake or str(self.data / "lake")

    @property
    def checkpoints(self) -> str:
        """Where the pipeline keeps its state: a folder, or a URL."""
        beside = self.data if "://" in self.lake else Path(self.lake)
        return self.pipeline.checkpoints or str(beside / "checkpoints")
