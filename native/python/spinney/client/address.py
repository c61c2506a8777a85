"""Where the server is: `mqtt://host:port`, and how to get in."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

VARIABLE = "SPINNEY_SERVER"
"""The environment variable that names the server where the caller does not."""

DEFAULT = "mqtt://127.0.0.1:1883"

_PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(text: str) -> bool:
    """Whether this can be a client's name or a subscription's id."""
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Server:
    """An MQTT server. Schemes: mqtt, mqtts (TLS), ws and wss (MQTT over WebSocket, path /mqtt unless given)."""

    scheme: str
    host: str
    port: int
    path: str = "/mqtt"

    @classmethod
    def parse(cls, text: str | None = None) -> Server:
        """From its URL; None: from SPINNEY_SERVER, else this machine. ValueError for what is no such URL."""
        text = text or os.environ.get(VARIABLE) or DEFAULT
        url = urlsplit(text if "://" in text else f"mqtt://{text}")
        if url.scheme not in _PORTS or not url.hostname:
            raise ValueError(f"{text}: a server is mqtt://host:port, or mqtts, ws or wss")
        if url.username or url.password:
            raise ValueError(f"{url.scheme}://{url.hostname}: user and password do not belong into the address")
        try:
            port = url.port or _PORTS[url.scheme]
        except ValueError:
            raise ValueError(f"{text}: a port is a number up to 65535") from None
        return cls(url.scheme, url.hostname, port, url.path or "/mqtt")

    @property
    def tls(self) -> bool:
        """Whether the link is encrypted."""
        return self.scheme in ("mqtts", "wss")

    @property
    def web_socket(self) -> bool:
        """Whether MQTT goes through a WebSocket."""
        return self.scheme in ("ws", "wss")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Access:
    """How a client gets in: its name, which is its user's, and what proves it."""

    name: str
    server: Server
    password: str | None = field(default=None, repr=False)
    ca: Path | None = None
    """The certificate to trust instead of the system's, for TLS."""
    certificate: tuple[Path, Path] | None = None
    """The client's own, and its key, where the server asks for one."""

    def __post_init__(self) -> None:
        if not is_name(self.name):
            raise ValueError(f"{self.name!r:.80}: a client's name is 1 to 64 of A-Z a-z 0-9 _ -")

    @property
    def user(self) -> str | None:
        """The MQTT user; None for an anonymous client, which servers on loopback may allow."""
        return self.name if self.password is not None else None

    def topic(self, *levels: str) -> str:
        """`spinney/<name>/...`."""
        return "/".join(("spinney", self.name, *levels))
