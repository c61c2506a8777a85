"""What an existing MQTT broker is, found out by talking to it: its limits are to be known."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass

ANSWER_SECONDS = 1.0
CONNECT_SECONDS = 5.0
MOST_BYTES = 4096
"""Of what it says."""

_CONNACK, _PUBLISH = 0x20, 0x30
_VERSION_TOPIC = b"$SYS/broker/version"


class MqttRefusedError(Exception):
    """A broker that is there and does not let us in."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where it is, and as whom to come."""

    host: str
    port: int
    client_id: str
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None


async def detect(broker: Broker) -> str:
    """nats, mosquitto or other. OSError or TimeoutError while it cannot be reached."""
    async with asyncio.timeout(CONNECT_SECONDS):
        reader, writer = await asyncio.open_connection(broker.host, broker.port, ssl=broker.tls)
    try:
        writer.write(_connect(broker))
        async with asyncio.timeout(CONNECT_SECONDS):
            acknowledged = await _packet(reader)
        if acknowledged[0] != _CONNACK:
            return "other"
        if acknowledged[1:] == b"\x00\x01":
            return "nats"  # speaks no MQTT 5
        if acknowledged[2] >= 0x80:
            raise MqttRefusedError(f"reason code {acknowledged[2]:#x}: is the user or the password wrong?")
        writer.write(_subscribe(_VERSION_TOPIC))
        with suppress(TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(ANSWER_SECONDS):
                while (packet := await _packet(reader))[0] & 0xF0 != _PUBLISH:
                    pass
                return "mosquitto" if b"mosquitto" in packet else "other"
        return "other"
    except (asyncio.IncompleteReadError, IndexError):
        return "other"
    finally:
        writer.close()


async def _packet(reader: asyncio.StreamReader) -> bytes:
    """A packet: its first byte and its body."""
    first = await reader.readexactly(1)
    length = 0
    for shift in range(0, 28, 7):
        byte = (await reader.readexactly(1))[0]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
    return first + await reader.readexactly(min(length, MOST_BYTES))


def _connect(broker: Broker) -> bytes:
    """CONNECT of MQTT 5, with a clean start."""
    flags, credentials = 0x02, b""
    if broker.user is not None:
        flags |= 0x80
        credentials += _string(broker.user.encode())
    if broker.password is not None:
        flags |= 0x40
        credentials += _string(broker.password.encode())
    body = _string(b"MQTT") + bytes([5, flags, 0, 30, 0]) + _string(broker.client_id.encode()) + credentials
    return _framed(0x10, body)


def _subscribe(topic: bytes) -> bytes:
    return _framed(0x82, b"\x00\x01\x00" + _string(topic) + b"\x00")


def _string(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def _framed(first: int, body: bytes) -> bytes:
    rest, size = len(body), bytearray()
    while rest > 0x7F:
        size.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([first, *size, rest]) + body
