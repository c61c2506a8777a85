"""Where this run's servers are, and as whom our processes come to them."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509

from .acl import CORE_USER, MQTT_USER
from .certs import CA, Certificates
from .conflicts import DEFAULT_PORTS, parse_url
from .data_dir import DataDir
from .mqtt_kind import Broker, detect
from .nats_server import NatsPorts
from .ports import Listener, at, held, reachable
from .service import Endpoints
from .settings import Mqtt, Nats, Settings, Tls

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class OurPorts(NamedTuple):
    """What we listen on ourselves."""

    http: int
    nats: NatsPorts | None
    """None: there is an existing server."""


@contextmanager
def our_ports(settings: Settings) -> Iterator[OurPorts]:
    """The ports that are set, and free ones where any will do, held for us; PortsError names all that cannot be had."""
    wanted = [Listener("HTTP", settings.http.host, settings.http.port, "--http-port")]
    if not settings.nats.url:
        wanted.append(Listener("nats-server", settings.nats.host, settings.nats.port, "--nats-port"))
        if not settings.mqtt.url:
            wanted.append(Listener("MQTT", settings.mqtt.host, settings.mqtt.port, "--mqtt-port"))
            if (port := settings.mqtt.websocket_port) is not None:
                wanted.append(Listener("MQTT over WebSocket", settings.mqtt.host, port, "--mqtt-websocket-port"))
    with held(wanted) as (http, *nats):
        yield OurPorts(http, NatsPorts(*nats) if nats else None)


def nats_endpoints(settings: Nats, ports: NatsPorts | None, data: DataDir) -> dict[str, Any]:
    """The fields of Endpoints that say where the log is."""
    if ports is None:
        # `spinney cloud acl` has given the server our own password
        ours = data.secrets.nats_password if settings.user == CORE_USER else None
        return {
            "nats_url": settings.url,
            "nats_user": settings.user,
            "nats_password": _secret(settings.password_file) or ours,
            "nats_ca": _text(settings.tls.ca),
            "nats_certificate": _text(settings.tls.certificate),
            "nats_key": _text(settings.tls.key),
        }
    scheme = "tls" if settings.tls.certificate else "nats"
    return {
        "nats_url": f"{scheme}://{at(reachable(settings.host), ports.nats)}",
        "nats_user": CORE_USER,
        "nats_password": data.secrets.nats_password,
        "nats_ca": _whom_to_trust(settings.tls, data),
    }


async def mqtt_endpoints(settings: Mqtt, ports: NatsPorts | None, data: DataDir) -> dict[str, Any]:
    """The fields of Endpoints that say where MQTT clients are; waits until an existing server can be asked."""
    if settings.url is None:
        assert ports is not None
        assert ports.mqtt is not None
        return {
            "mqtt_host": reachable(settings.host),
            "mqtt_port": ports.mqtt,
            "mqtt_kind": "nats",
            "mqtt_user": MQTT_USER,
            "mqtt_password": data.secrets.mqtt_password,
            "mqtt_tls": settings.tls.certificate is not None,
            "mqtt_ca": _whom_to_trust(settings.tls, data),
            **_own_certificate(settings.tls if settings.tls.ca else Tls()),
        }
    url = parse_url(settings.url)
    tls = ssl.create_default_context(cafile=settings.tls.ca) if url.scheme == "mqtts" else None
    if tls is not None and settings.tls.certificate:
        tls.load_cert_chain(settings.tls.certificate, settings.tls.key)
    # `spinney cloud acl` has given the server a hash of our own password
    ours = data.secrets.mqtt_password if settings.user == MQTT_USER else None
    broker = Broker(
        url.hostname or "",
        url.port or DEFAULT_PORTS[url.scheme],
        f"{data.secrets.client_prefix}-kind",
        settings.user,
        _secret(settings.password_file) or ours,
        tls,
    )
    return {
        "mqtt_host": broker.host,
        "mqtt_port": broker.port,
        "mqtt_kind": await _kind(broker) if settings.kind == "auto" else settings.kind,
        "mqtt_user": broker.user,
        "mqtt_password": broker.password,
        "mqtt_tls": tls is not None,
        "mqtt_ca": _text(settings.tls.ca),
        **_own_certificate(settings.tls),
    }


async def _kind(broker: Broker) -> str:
    said = ""
    while True:
        try:
            return await detect(broker)
        except (OSError, TimeoutError) as error:
            if str(error) != said:
                said = str(error)
                logger.warning("the MQTT server cannot be reached yet: %s", said or type(error).__name__)
            await asyncio.sleep(RETRY_SECONDS)


def addresses(settings: Settings, endpoints: Endpoints, ports: OurPorts, data: Path) -> dict[str, str]:
    """What people and programs connect to."""
    secure = "s" if settings.http.tls.certificate else ""
    found = {
        "MQTT": f"mqtt{'s' if endpoints.mqtt_tls else ''}://{at(endpoints.mqtt_host, endpoints.mqtt_port)}",
        "HTTP": f"http{secure}://{at(reachable(settings.http.host), endpoints.http_port)}",
        "NATS": endpoints.nats_url,
    }
    if ports.nats and ports.nats.websocket is not None:
        secure = "s" if endpoints.mqtt_tls else ""
        found["WebSocket"] = f"ws{secure}://{at(endpoints.mqtt_host, ports.nats.websocket)}/mqtt"
    return {**found, "data": str(data)}


def _whom_to_trust(tls: Tls, data: DataDir) -> str | None:
    """The CA of our own listener's certificate: itself, or our own CA; None: one that this machine knows."""
    if tls.certificate is None:
        return None
    certificate = x509.load_pem_x509_certificate(tls.certificate.read_bytes())
    if certificate.issuer == certificate.subject:
        return str(tls.certificate)
    ours = Certificates(data.path).path(CA)
    return str(ours) if ours.exists() else None


def _own_certificate(tls: Tls) -> dict[str, str | None]:
    return {"mqtt_certificate": _text(tls.certificate), "mqtt_key": _text(tls.key)}


def _secret(file: Path | None) -> str | None:
    return None if file is None else file.read_text().strip()


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
