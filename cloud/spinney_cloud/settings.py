"""Everything that can be set, with its default. One model for file, environment and flags (see configuration)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]
Bytes = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(gt=0)]
Port = Annotated[int, Field(ge=0, le=65535)]


class Section(BaseModel):
    """A part of the settings. What is misspelt is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Tls(Section):
    """Certificates of a listener or of a connection to a server."""

    certificate: Path | None = None
    key: Path | None = None
    ca: Path | None = None
    """Of whom we connect to; for listeners: of clients that must show a certificate."""


class Nats(Section):
    """The log's server: our own, unless a URL is given."""

    url: str | None = None
    user: str | None = None
    password_file: Path | None = None
    host: str = "127.0.0.1"
    port: Port = 4222
    """Of our own server. 0: any free one."""
    max_payload: Bytes = 4 * 1024 * 1024
    store_limit: Bytes = 20 * 1024**3
    sync_interval: str = "10s"
    tls: Tls = Tls()


class Mqtt(Section):
    """Where clients connect: our own nats-server's listener, unless a URL is given."""

    url: str | None = None
    """mqtt://host:port or mqtts://host:port of an existing broker."""
    kind: Literal["auto", "nats", "mosquitto", "other"] = "auto"
    user: str | None = None
    password_file: Path | None = None
    host: str = "127.0.0.1"
    port: Port = 1883
    websocket_port: Port | None = None
    max_ack_pending: Count = 100
    """QoS 1 messages that our own server has under way to one subscription."""
    tls: Tls = Tls()


class Http(Section):
    """The API, the metrics and the page."""

    host: str = "127.0.0.1"
    port: Port = 8080
    tls: Tls = Tls()
    max_body: Bytes = 4 * 1024 * 1024
    max_connections: Count = 2_000


class Log(Section):
    """How long publications are kept, and when one is a duplicate."""

    max_age: Seconds = 7 * 24 * 3600.0
    max_bytes: Bytes = 8 * 1024**3
    """The keeper purges by these two what all required readers have read; half as much again is the hard cap."""
    notes_max_age: Seconds = 7 * 24 * 3600.0
    notes_max_bytes: Bytes = 2 * 1024**3
    duplicate_window: Seconds = 3600.0
    content_window: Seconds = 60.0
    free_disk_floor: Bytes = 512 * 1024**2
    keeper_interval: Seconds = 10.0
    pipeline: bool = False
    """Whether the pipeline is a required reader, too."""


class Limits(Section):
    """What one client may do."""

    payload: Bytes = 1024 * 1024
    rate: Count = 50_000
    """Readings a second, over ten seconds."""
    subscriptions: Count = 200_000
    """Of one owner."""
    attributes: Count = 256
    """Of one reading."""
    connections: Count = 10_000


class Matching(Section):
    """The matcher process."""

    snapshot_interval: Seconds = 30.0
    snapshots_kept: Count = 3
    valid_kept: Count = 100_000
    """Publications with valid_for that are kept for subscriptions to come."""


class Delivery(Section):
    """How notifications go out."""

    queue_count: Count = 10_000
    queue_bytes: Bytes = 16 * 1024**2
    queue_age: Seconds = 24 * 3600.0
    in_flight: Count = 1_000
    attempts: Count = 10
    retry: Seconds = 5.0


class Coordinator(Section):
    """Announcements and activation."""

    away_grace: Seconds = 120.0
    lease: Seconds = 60.0


class Security(Section):
    """Who may connect."""

    anonymous: Literal["loopback", "never"] = "loopback"
    """Without users, clients on loopback need no password; anywhere else they do."""
    token_lifetime: Seconds = 30 * 24 * 3600.0


class Logging(Section):
    """What the processes say."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class Settings(Section):
    """All of it."""

    data: Path = Path("spinney-data")
    """The data directory: the log's store, users, secrets, snapshots."""
    nats: Nats = Nats()
    mqtt: Mqtt = Mqtt()
    http: Http = Http()
    log: Log = Log()
    limits: Limits = Limits()
    matching: Matching = Matching()
    delivery: Delivery = Delivery()
    coordinator: Coordinator = Coordinator()
    security: Security = Security()
    logging: Logging = Logging()
