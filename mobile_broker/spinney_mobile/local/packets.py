"""MQTT 3.1.1 from a server's side: what clients send, and what they are answered. QoS 0 and 1."""

from __future__ import annotations

from typing import Final, NamedTuple

from spinney.mqtt_codec import Framer, MqttError, PubAck, Publish, Will, length, read_id, read_publish

PROTOCOLS: Final = {("MQTT", 4), ("MQIsdp", 3)}

ACCEPTED: Final = 0
WRONG_PROTOCOL: Final = 1
WRONG_CLIENT_ID: Final = 2
WRONG_PASSWORD: Final = 4

CONNECT: Final = 0x10
"""The first byte of all that a client sends."""
PINGRESP: Final = b"\xd0\x00"


class Connect(NamedTuple):
    """A client that wants to come in."""

    known_protocol: bool
    """Else the rest is not read."""
    client_id: str = ""
    clean: bool = True
    keepalive_seconds: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None


class Subscribe(NamedTuple):
    """Filters, each with the QoS asked for."""

    id: int
    filters: tuple[tuple[str, int], ...]


class Unsubscribe(NamedTuple):
    """Filters that it wants no more."""

    id: int
    filters: tuple[str, ...]


class PingReq(NamedTuple):
    """It is alive."""


class Disconnect(NamedTuple):
    """It goes in order."""


ClientPacket = Connect | Publish | PubAck | Subscribe | Unsubscribe | PingReq | Disconnect


class ServerDecoder(Framer[ClientPacket]):
    """What a client sends."""

    def _packet(self, first: int, data: bytes, start: int, end: int) -> ClientPacket:
        body = _Body(data, start, end)
        match first:
            case 0x10:
                return _connect(body)
            case 0x40 if end - start == 2:
                return PubAck(read_id(data, start))
            case 0x82:
                return Subscribe(body.id(), tuple(_subscriptions(body)))
            case 0xA2:
                return Unsubscribe(body.id(), tuple(_filters(body)))
            case 0xC0 if start == end:
                return PingReq()
            case 0xE0 if start == end:
                return Disconnect()
        if first & 0xF0 == 0x30:
            return read_publish(first, data, start, end, self.connection)
        raise MqttError(f"no packet that a client sends at QoS 0 or 1: first byte {first:#04x}")


class _Body:
    """The body of a packet, read from its beginning."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        self._data = data
        self._at = start
        self._end = end

    def __bool__(self) -> bool:
        return self._at < self._end

    def byte(self) -> int:
        """The next one."""
        return self._take(1)[0]

    def number(self) -> int:
        """Two bytes."""
        return int.from_bytes(self._take(2), "big")

    def id(self) -> int:
        """Of the packet."""
        return read_id(self._take(2), 0)

    def binary(self) -> bytes:
        """Bytes with their length before them."""
        return self._take(self.number())

    def text(self) -> str:
        """A text with its length before it."""
        try:
            value = self.binary().decode()
        except UnicodeDecodeError as error:
            raise MqttError(f"a text that is not UTF-8: {error}") from None
        if "\x00" in value:
            raise MqttError("a text with a null character")
        return value

    def _take(self, count: int) -> bytes:
        found = self._data[self._at : min(self._at + count, self._end)]
        if len(found) < count:
            raise MqttError("a packet that ends too early")
        self._at += count
        return found


def _connect(body: _Body) -> Connect:
    protocol = body.text(), body.byte()
    if protocol not in PROTOCOLS:
        return Connect(known_protocol=False)
    flags, keepalive = body.byte(), body.number()
    if flags & 1 or (flags & 0x18) == 0x18 or (not flags & 4 and flags & 0x38):
        raise MqttError(f"flags that no CONNECT has: {flags:#04x}")
    client_id = body.text()
    will = None
    if flags & 4:
        topic, payload = body.text(), body.binary()
        will = Will(topic, payload, min(flags >> 3 & 3, 1), bool(flags & 0x20))
    user = body.text() if flags & 0x80 else None
    password = body.binary() if flags & 0x40 else None
    if body:
        raise MqttError("a CONNECT with something behind it")
    return Connect(True, client_id, bool(flags & 2), keepalive, user, password, will)


def _subscriptions(body: _Body) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    while body or not found:
        topic, qos = _checked(body.text()), body.byte()
        if qos > 2:
            raise MqttError(f"a subscription with QoS {qos}")
        found.append((topic, min(qos, 1)))
    return found


def _filters(body: _Body) -> list[str]:
    found: list[str] = []
    while body or not found:
        found.append(_checked(body.text()))
    return found


def _checked(topic: str) -> str:
    levels = topic.split("/")
    alone = all(level in ("+", "#") or not {"+", "#"} & set(level) for level in levels)
    if not topic or not alone or "#" in levels[:-1]:
        raise MqttError(f"not a topic filter: {topic!r:.80}")
    return topic


def matches(levels: list[str], topic: list[str]) -> bool:
    """Whether a topic filter's levels match a topic's."""
    for index, level in enumerate(levels):
        if level == "#":
            return True
        if index >= len(topic) or level not in ("+", topic[index]):
            return False
    return len(levels) == len(topic)


# ---- To the client ----------------------------------------------------------------------------------------------


def connack(code: int, *, session_present: bool = False) -> bytes:
    """CONNACK."""
    return bytes((0x20, 2, session_present and not code, code))


def suback(packet_id: int, codes: list[int]) -> bytes:
    """SUBACK."""
    body = packet_id.to_bytes(2, "big") + bytes(codes)
    return b"\x90" + length(len(body)) + body


def unsuback(packet_id: int) -> bytes:
    """UNSUBACK."""
    return b"\xb0\x02" + packet_id.to_bytes(2, "big")
