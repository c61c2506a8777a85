"""Settings that are fine each for itself and wrong together, or with what is on this machine."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from .acl import CORE_USER, MQTT_USER
from .ports import is_loopback, reachable
from .settings import Mqtt, Nats, Section, Settings, Tls
from .streams import DEAD_BYTES, HARD_CAP, REQUESTS_BYTES
from .users import Users, UsersError

DEFAULT_PORTS = {"nats": 4222, "tls": 4222, "mqtt": 1883, "mqtts": 8883}
RESERVED_STORE = REQUESTS_BYTES + DEAD_BYTES + 256 * 1024**2
"""Of our own server's store: for requests, dead letters, and what has no limit: buckets and MQTT sessions."""


class Conflict(NamedTuple):
    """What is wrong, and the keys that are to blame."""

    keys: tuple[str, ...]
    text: str


def conflicts(settings: Settings) -> Iterator[Conflict]:
    """All that is wrong."""
    yield from _server("nats", settings.nats, ("nats", "tls"))
    yield from _server("mqtt", settings.mqtt, ("mqtt", "mqtts"))
    if settings.nats.url and not settings.mqtt.url:
        yield Conflict(
            ("nats.url", "mqtt.url"), "with an existing NATS server, say where MQTT clients connect: --mqtt URL"
        )
    for name in ("nats", "mqtt", "http"):
        section: Section = getattr(settings, name)
        yield from _tls(f"{name}.tls", section.tls, listener=getattr(section, "url", None) is None)  # type: ignore[attr-defined]  # each of the three has it
        yield from _own_name(settings, name) if name != "http" else ()
    yield from _same_ports(settings)
    yield from _sizes(settings)
    yield from _open_doors(settings)
    yield from _pipeline(settings)


def parse_url(url: str) -> SplitResult:
    """The parts of a server's URL; ValueError says what is wrong."""
    parts = urlsplit(url)
    if not parts.hostname:
        raise ValueError("there is no host in it")
    _ = parts.port  # raises ValueError unless it is one
    return parts


def _server(name: str, section: Nats | Mqtt, schemes: tuple[str, ...]) -> Iterator[Conflict]:
    key = f"{name}.url"
    for url in (section.url or "").split(",") if section.url is not None else ():
        try:
            parts = parse_url(url.strip())
        except ValueError as error:
            yield Conflict((key,), f"is no URL: {error}; expected: {schemes[0]}://host:port")
            continue
        if parts.scheme not in schemes:
            yield Conflict((key,), f"has to begin with {' or '.join(f'{scheme}://' for scheme in schemes)}")
        if parts.username is not None:
            yield Conflict(
                (key,),
                f"secrets belong in files: give the user with --{name}-user, the password with --{name}-password-file",
            )
    ours = {"nats": CORE_USER, "mqtt": MQTT_USER}[name]  # whose password is in the data directory
    if section.user and not section.password_file and section.user != ours:
        yield Conflict((f"{name}.user",), f"needs a password, too: --{name}-password-file")
    if section.password_file:
        if not section.user:
            yield Conflict((f"{name}.password_file",), f"whose password is it? --{name}-user")
        yield from _file(f"{name}.password_file", section.password_file)


def _tls(name: str, tls: Tls, *, listener: bool) -> Iterator[Conflict]:
    files = [(f"{name}.{field}", getattr(tls, field)) for field in ("certificate", "key", "ca")]
    missing = [conflict for key, file in files if file for conflict in _file(key, file)]
    yield from missing
    pair = (f"{name}.certificate", f"{name}.key")
    if bool(tls.certificate) != bool(tls.key):
        yield Conflict(pair, "certificate and key go together; one of them is missing")
    elif tls.certificate and not missing:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
        except (ssl.SSLError, OSError) as error:
            yield Conflict(pair, f"they are no certificate with its key, in PEM: {error}")
    if listener and tls.ca and not tls.certificate:
        yield Conflict((f"{name}.ca",), "to ask clients for certificates, the listener needs its own, too")


def _own_name(settings: Settings, name: str) -> Iterator[Conflict]:
    """Our own processes connect to our own listeners, and look whether the certificate is for where they do."""
    section: Nats | Mqtt = getattr(settings, name)
    if section.url or not section.tls.certificate:
        return
    try:
        certificate = x509.load_pem_x509_certificate(section.tls.certificate.read_bytes())
    except (OSError, ValueError):
        return  # which is told already
    address, found = reachable(section.host), _names(certificate)
    if name == "mqtt" and section.tls.ca and not _is_for_clients(certificate):
        yield Conflict(
            ("mqtt.tls.certificate", "mqtt.tls.ca"),
            "our own processes show this certificate when the listener asks for one; it has to be for clients, too",
        )
    if address not in found:
        yield Conflict(
            (f"{name}.tls.certificate",),
            f"is for {', '.join(found) or 'nobody'}, and our own processes connect to {address}: make one for both "
            f"(`spinney cloud certs server`), or listen on a name that it is for (--{name}-host)",
        )


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


def _is_for_clients(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usage


def _file(key: str, file: Path) -> Iterator[Conflict]:
    try:
        if not file.read_bytes().strip():
            yield Conflict((key,), f"{file} is empty")
    except OSError as error:
        yield Conflict((key,), f"{file} cannot be read: {error.strerror}")


def _same_ports(settings: Settings) -> Iterator[Conflict]:
    ports = {"http.port": (settings.http.host, settings.http.port)}
    if not settings.nats.url:
        ports["nats.port"] = (settings.nats.host, settings.nats.port)
    if not settings.mqtt.url:
        ports["mqtt.port"] = (settings.mqtt.host, settings.mqtt.port)
        ports["mqtt.websocket_port"] = (settings.mqtt.host, settings.mqtt.websocket_port or 0)
    users: dict[int, str] = {}
    for key, (_, port) in ports.items():
        if port and port in users:
            yield Conflict((users[port], key), f"both want port {port}")
        users.setdefault(port, key)


def _sizes(settings: Settings) -> Iterator[Conflict]:
    if settings.nats.url:
        return
    if settings.limits.payload > settings.nats.max_payload:
        yield Conflict(
            ("limits.payload", "nats.max_payload"),
            f"clients may send {settings.limits.payload} bytes, the log takes {settings.nats.max_payload}",
        )
    needed = int((settings.log.max_bytes + settings.log.notes_max_bytes) * HARD_CAP) + RESERVED_STORE
    if needed > settings.nats.store_limit:
        yield Conflict(
            ("nats.store_limit", "log.max_bytes", "log.notes_max_bytes"),
            f"all that is kept may take {needed} bytes, the store {settings.nats.store_limit}",
        )


def _open_doors(settings: Settings) -> Iterator[Conflict]:
    """Anonymous clients only on loopback."""
    try:
        if len(Users.load(settings.data)):
            return
    except (UsersError, OSError) as error:
        yield Conflict(("data",), f"users: {error}")
        return
    doors = [("http.host", settings.http.host)]
    if not settings.mqtt.url:
        doors.append(("mqtt.host", settings.mqtt.host))
    for key, host in doors:
        if not is_loopback(host):
            yield Conflict(
                (key,), f"{host} can be reached from elsewhere, and there are no users: first `spinney cloud user add`"
            )


def _pipeline(settings: Settings) -> Iterator[Conflict]:
    """What it needs is looked for before the broker starts."""
    if not settings.pipeline.run:
        return
    from .pipeline.java import NoJavaError, seek_java
    from .pipeline.needs import missing

    if text := missing():
        yield Conflict(("pipeline.run",), text)
        return
    try:
        seek_java()
    except NoJavaError as error:
        yield Conflict(("pipeline.run",), str(error))
