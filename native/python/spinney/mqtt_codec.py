"""MQTT 3.1.1 as bytes: what a client sends, and what it gets. Pure functions, and a decoder that takes any chunks.

A server's side of it is in the mobile broker, on the same `Framer`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

MAX_PACKET_BYTES = 8 * 1024**2
MAX_TEXT_BYTES = 65_535
MAX_ID = 65_535
REFUSED = 128
"""The code in a SUBACK for a filter that the server does not grant."""

PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"


class MqttError(Exception):
    """Bytes that are no MQTT 3.1.1, or more of it than we take; or what cannot be said in it."""


class ConnAck(NamedTuple):
    """The server accepts us (code 0), or does not."""

    session_present: bool
    code: int


class Publish(NamedTuple):
    """A message for us."""

    topic: str
    payload: bytes
    qos: int
    id: int
    """For its PUBACK; 0 with QoS 0."""
    dup: bool
    retain: bool
    connection: int
    """Which connection it came by: an acknowledgement is good for that one only."""


class PubAck(NamedTuple):
    """The server has our message."""

    id: int


class SubAck(NamedTuple):
    """For each filter the QoS granted, or REFUSED."""

    id: int
    codes: tuple[int, ...]


class UnsubAck(NamedTuple):
    """The server has dropped the filters."""

    id: int


class PingResp(NamedTuple):
    """The server is alive."""


Packet = ConnAck | Publish | PubAck | SubAck | UnsubAck | PingResp
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Will:
    """What the server publishes for us when we vanish."""

    topic: str
    payload: bytes
    qos: int = 1
    retain: bool = False


# ---- To the server ----------------------------------------------------------------------------------------------


def connect(
    client_id: str,
    *,
    clean: bool,
    keepalive_seconds: int,
    user: str | None = None,
    password: str | None = None,
    will: Will | None = None,
) -> bytes:
    """CONNECT."""
    flags = 0x02 if clean else 0
    body = text(client_id)
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        body += text(will.topic) + _binary(will.payload)
    if user is not None:
        flags |= 0x80
        body += text(user)
        if password is not None:
            flags |= 0x40
            body += _binary(password.encode())
    head = b"\x00\x04MQTT\x04" + bytes((flags,)) + keepalive_seconds.to_bytes(2, "big")
    return b"\x10" + length(len(head) + len(body)) + head + body


def publish(
    topic: bytes, payload: bytes, packet_id: int, *, qos: int, dup: bool = False, retain: bool = False
) -> bytes:
    """PUBLISH; the topic comes from `topic_bytes`, the id counts with QoS 1 only."""
    first = 0x30 | dup << 3 | qos << 1 | retain
    if not qos:
        return b"%c%b%b%b" % (first, length(len(topic) + len(payload)), topic, payload)
    size = len(topic) + 2 + len(payload)
    return b"%c%b%b%b%b" % (first, length(size), topic, packet_id.to_bytes(2, "big"), payload)


def puback(packet_id: int) -> bytes:
    """PUBACK."""
    return b"\x40\x02" + packet_id.to_bytes(2, "big")


def subscribe(packet_id: int, filters: dict[str, int]) -> bytes:
    """SUBSCRIBE to filters, each with its QoS."""
    body = packet_id.to_bytes(2, "big") + b"".join(text(name) + bytes((qos,)) for name, qos in filters.items())
    return b"\x82" + length(len(body)) + body


def unsubscribe(packet_id: int, filters: list[str]) -> bytes:
    """UNSUBSCRIBE."""
    body = packet_id.to_bytes(2, "big") + b"".join(text(name) for name in filters)
    return b"\xa2" + length(len(body)) + body


def topic_bytes(topic: str) -> bytes:
    """A topic to publish to, with its length; MqttError for one with wildcards."""
    if not topic or "+" in topic or "#" in topic:
        raise MqttError(f"not a topic to publish to: {topic!r}")
    return text(topic)


def text(value: str) -> bytes:
    """A string with its length."""
    if "\x00" in value:
        raise MqttError(f"a text with a null character: {value!r}")
    try:
        return _binary(value.encode())
    except UnicodeEncodeError as error:
        raise MqttError(f"not UTF-8: {value!r}") from error


def _binary(value: bytes) -> bytes:
    if len(value) > MAX_TEXT_BYTES:
        raise MqttError(f"a text of {len(value)} bytes; MQTT allows {MAX_TEXT_BYTES}")
    return len(value).to_bytes(2, "big") + value


def length(value: int) -> bytes:
    """The remaining length of a packet, seven bits a byte."""
    if value < 0x80:
        return bytes((value,))
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value < 0x10000000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21))
    raise MqttError(f"a packet of {value} bytes; MQTT allows {0x10000000 - 1}")


# ---- From the server --------------------------------------------------------------------------------------------


class Framer(ABC, Generic[P]):
    """Takes bytes as they come and gives the packets in them. After a MqttError it is of no more use."""

    def __init__(self, *, max_packet_bytes: int = MAX_PACKET_BYTES, connection: int = 0) -> None:
        self._most = max_packet_bytes
        self.connection = connection
        self._buffer = bytearray()
        """The beginning of a packet."""
        self._needed = 0
        """How long the buffer must be before it is worth a look."""

    @property
    def held(self) -> int:
        """Bytes that wait for more."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[P]:
        """The packets that are whole with this chunk."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._needed:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        packets: list[P] = []
        position, end = 0, len(data)
        while position < end:
            start, size = self._header(data, position, end)
            if not start or start + size > end:
                self._needed = start + size - position if start else end - position + 1
                self._buffer += data[position:]
                break
            packets.append(self._packet(data[position], data, start, start + size))
            position = start + size
        return packets

    def _header(self, data: bytes, position: int, end: int) -> tuple[int, int]:
        """Where the body begins, and its length; (0, 0) if the length is not whole yet."""
        if end - position < 2:
            return 0, 0
        byte = data[position + 1]
        if byte < 0x80:
            start, size = position + 2, byte
        else:
            size, shift, start = byte & 0x7F, 7, position + 2
            while True:
                if start == end:
                    return 0, 0
                byte = data[start]
                start += 1
                size |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
                if shift == 28:
                    raise MqttError("a packet whose length has more than four bytes")
        if size > self._most:
            raise MqttError(f"a packet of {size} bytes; at most {self._most} are taken")
        return start, size

    @abstractmethod
    def _packet(self, first: int, data: bytes, start: int, end: int) -> P:
        """The packet with this first byte whose body is data[start:end]."""


class Decoder(Framer[Packet]):
    """What a server sends."""

    def _packet(self, first: int, data: bytes, start: int, end: int) -> Packet:
        if first & 0xF0 == 0x30:
            return read_publish(first, data, start, end, self.connection)
        size = end - start
        if first == 0x40 and size == 2:
            return PubAck(read_id(data, start))
        if first == 0x20 and size == 2 and data[start] <= 1:
            return ConnAck(bool(data[start]), data[start + 1])
        if first == 0x90 and size >= 3:
            return SubAck(read_id(data, start), _codes(data[start + 2 : end]))
        if first == 0xB0 and size == 2:
            return UnsubAck(read_id(data, start))
        if first == 0xD0 and size == 0:
            return PingResp()
        raise MqttError(f"no packet that a server sends at QoS 0 or 1: first byte {first:#04x}, {size} bytes of body")


def read_publish(first: int, data: bytes, start: int, end: int, connection: int) -> Publish:
    """A message, in either direction."""
    qos = first >> 1 & 3
    if qos > 1 or (not qos and first & 8):
        raise MqttError(f"a message with flags {first & 0xF:#x}: only QoS 0 and 1 are taken")
    body = start + 2 + (data[start] << 8 | data[start + 1]) if end - start >= 2 else end + 1
    payload = body + 2 * qos
    if payload > end:
        raise MqttError("a message that ends within its topic or id")
    try:
        topic = str(data[start + 2 : body], "utf-8")
    except UnicodeDecodeError as error:
        raise MqttError(f"a topic that is not UTF-8: {error}") from error
    if not topic or "\x00" in topic or "+" in topic or "#" in topic:
        raise MqttError(f"not a topic: {topic!r}")
    packet_id = read_id(data, body) if qos else 0
    return Publish(topic, data[payload:end], qos, packet_id, bool(first & 8), bool(first & 1), connection)


def read_id(data: bytes, at: int) -> int:
    """A packet's id."""
    packet_id = data[at] << 8 | data[at + 1]
    if not packet_id:
        raise MqttError("a packet with id 0")
    return packet_id


def _codes(codes: bytes) -> tuple[int, ...]:
    if any(code > 2 and code != REFUSED for code in codes):
        raise MqttError(f"codes that no SUBACK has: {codes.hex()}")
    return tuple(codes)
