"""What a scanner hears of a mote: BTHome v2 service data or mere presence, and Spinney's scan response."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from .protocol import SERVICE, ProtocolError

BTHOME = "0000fcd2-0000-1000-8000-00805f9b34fb"
COMPANY = 0xFFFF
SCAN_VERSION = 0x51
SCAN = struct.Struct("<BIHHHB")
PRESENCE = SERVICE
"""The service data of a mote that says only that it is there."""
PRESENCE_VERSION = 1
PRESENCE_DATA = struct.Struct("<BBII")
_BATTERY, _NO_BATTERY = 0x0F, 15
PRESENCE_EVENTS, PRESENCE_CLOCK_UNSET = 0x10, 0x20
_PACKET_ID = 0x00
_ENCRYPTED, _VERSION = 0x01, 0x40
TEXT, RAW, BUTTON, DIMMER = 0x53, 0x54, 0x3A, 0x3C

# object id: name, bytes (negative: signed), p, q. From the format's page at bthome.io.
OBJECTS: Mapping[int, tuple[str, int, int, int]] = {
    0x01: ("battery", 1, 1, 1),
    0x02: ("temperature", -2, 1, 100),
    0x03: ("humidity", 2, 1, 100),
    0x04: ("pressure", 3, 1, 100),
    0x05: ("illuminance", 3, 1, 100),
    0x06: ("mass", 2, 1, 100),
    0x07: ("mass_lb", 2, 1, 100),
    0x08: ("dew_point", -2, 1, 100),
    0x09: ("count", 1, 1, 1),
    0x0A: ("energy", 3, 1, 1000),
    0x0B: ("power", 3, 1, 100),
    0x0C: ("voltage", 2, 1, 1000),
    0x0D: ("pm25", 2, 1, 1),
    0x0E: ("pm10", 2, 1, 1),
    0x12: ("co2", 2, 1, 1),
    0x13: ("tvoc", 2, 1, 1),
    0x14: ("moisture", 2, 1, 100),
    0x2E: ("humidity", 1, 1, 1),
    0x2F: ("moisture", 1, 1, 1),
    0x3D: ("count", 2, 1, 1),
    0x3E: ("count", 4, 1, 1),
    0x3F: ("rotation", -2, 1, 10),
    0x40: ("distance", 2, 1, 1000),
    0x41: ("distance", 2, 1, 10),
    0x42: ("duration", 3, 1, 1000),
    0x43: ("current", 2, 1, 1000),
    0x44: ("speed", 2, 1, 100),
    0x45: ("temperature", -2, 1, 10),
    0x46: ("uv_index", 1, 1, 10),
    0x47: ("volume", 2, 1, 10),
    0x48: ("volume", 2, 1, 1000),
    0x49: ("volume_flow_rate", 2, 1, 1000),
    0x4A: ("voltage", 2, 1, 10),
    0x4B: ("gas", 3, 1, 1000),
    0x4C: ("gas", 4, 1, 1000),
    0x4D: ("energy", 4, 1, 1000),
    0x4E: ("volume", 4, 1, 1000),
    0x4F: ("water", 4, 1, 1000),
    0x50: ("timestamp", 4, 1, 1),
    0x51: ("acceleration", 2, 1, 1000),
    0x52: ("gyroscope", 2, 1, 1000),
    0x55: ("volume_storage", 4, 1, 1000),
    0x56: ("conductivity", 2, 1, 1),
    0x57: ("temperature", -1, 1, 1),
    0x58: ("temperature", -1, 35, 100),
    0x59: ("count", -1, 1, 1),
    0x5A: ("count", -2, 1, 1),
    0x5B: ("count", -4, 1, 1),
    0x5C: ("power", -4, 1, 100),
    0x5D: ("current", -2, 1, 1000),
    0x5E: ("direction", 2, 1, 100),
    0x5F: ("precipitation", 2, 1, 10),
    0x60: ("channel", 1, 1, 1),
    0x61: ("rotational_speed", 2, 1, 1),
    0x62: ("speed", -4, 1, 1_000_000),
    0x63: ("acceleration", -4, 1, 1_000_000),
    0x64: ("light_level", 1, 1, 1),
}
BINARY: Mapping[int, str] = {
    0x0F: "boolean", 0x10: "power_on", 0x11: "opening", 0x15: "battery_low", 0x16: "battery_charging",
    0x17: "carbon_monoxide", 0x18: "cold", 0x19: "connectivity", 0x1A: "door", 0x1B: "garage_door",
    0x1C: "gas_detected", 0x1D: "heat", 0x1E: "light", 0x1F: "lock", 0x20: "wet", 0x21: "motion", 0x22: "moving",
    0x23: "occupancy", 0x24: "plug", 0x25: "presence", 0x26: "problem", 0x27: "running", 0x28: "safety",
    0x29: "smoke", 0x2A: "sound", 0x2B: "tamper", 0x2C: "vibration", 0x2D: "window",
}  # fmt: skip
_OTHERS: Mapping[int, int] = {BUTTON: 1, DIMMER: 2, 0xF0: 2, 0xF1: 4, 0xF2: 3}  # object id: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """One object of an advert."""

    object_id: int
    name: str
    raw: int
    p: int
    q: int

    @property
    def value(self) -> float | bool:
        """The double nearest to raw * p / q; a Boolean for a binary sensor."""
        return bool(self.raw) if self.object_id in BINARY else self.raw * self.p / self.q


@dataclass(frozen=True, slots=True)
class Advert:
    """The service data of one BTHome advert."""

    packet_id: int | None
    readings: tuple[Reading, ...]
    encrypted: bool = False
    """Then there are no readings: BTHome's key is not the broker's."""
    unread: int = 0
    """Bytes from the first unknown object on, which says nothing of its size."""
    others: tuple[tuple[int, bytes], ...] = ()
    """Objects that are no numbers, by object id: texts, raw bytes, buttons, dimmers, what the device is."""

    @classmethod
    def decode(cls, data: bytes) -> Advert:
        """From the service data of BTHOME; ProtocolError for another version and what is cut off."""
        if not data or data[0] & 0xE0 != _VERSION:
            raise ProtocolError(f"no BTHome v2: {data[:1].hex() or 'no bytes'}")
        if data[0] & _ENCRYPTED:
            return cls(None, (), encrypted=True)
        packet_id, at = None, 1
        found: list[Reading] = []
        others: list[tuple[int, bytes]] = []
        while at < len(data):
            number, end = data[at], _end(data, at)
            if end == 0:
                break
            if end > len(data):
                raise ProtocolError(f"BTHome object {number:#04x} is cut off")
            if number == _PACKET_ID:
                packet_id = data[at + 1]
            elif number in OBJECTS or number in BINARY:
                found.append(_reading(number, data[at + 1 : end]))
            else:
                others.append((number, data[at + (2 if number in (TEXT, RAW) else 1) : end]))
            at = end
        return cls(packet_id, tuple(found), unread=len(data) - at, others=tuple(others))


def _end(data: bytes, at: int) -> int:
    """Where the object at `at` ends; 0 if it is not known."""
    number = data[at]
    if number == _PACKET_ID or number in BINARY:
        return at + 2
    if number in OBJECTS:
        return at + 1 + abs(OBJECTS[number][1])
    if number in (TEXT, RAW):
        return at + 2 + (data[at + 1] if at + 1 < len(data) else 0)
    return at + 1 + _OTHERS[number] if number in _OTHERS else 0


def _reading(number: int, value: bytes) -> Reading:
    name, size, p, q = OBJECTS.get(number) or (BINARY[number], 1, 1, 1)
    return Reading(number, name, int.from_bytes(value, "little", signed=size < 0), p, q)


@dataclass(frozen=True, slots=True)
class ScanData:
    """What a mote's scan response says beside its name: whether to connect, and which sample its advert is (I1)."""

    table_crc: int
    last_event: int
    """Its low 16 bits."""
    boot: int
    """Its low 16 bits."""
    sequence: int
    """Its low 24 bits."""

    @classmethod
    def decode(cls, data: bytes) -> ScanData:
        """From the manufacturer's data of COMPANY; ProtocolError for what is not a mote's."""
        if len(data) != SCAN.size or data[0] != SCAN_VERSION:
            raise ProtocolError(f"no scan response of a mote: {data[:16].hex()}")
        _, crc, event, boot, low, high = SCAN.unpack(data)
        return cls(crc, event, boot, high << 16 | low)

    def names(self, advert: Advert) -> bool:
        """Whether the advert is that very sample; else it is another one, and mere presence."""
        return advert.packet_id == self.sequence & 0xFF


@dataclass(frozen=True, slots=True)
class Presence:
    """What a mote in presence mode says in its advert: that it is there, and whether to connect. No measurement."""

    table_crc: int
    name_crc: int
    """Of its name, which a passive scanner does not hear: name_crc()."""
    battery: float | None
    """0 to 1 in tenths, rounded down; None: not known."""
    has_events: bool
    """Some wait that have not been acknowledged."""
    clock_is_set: bool
    """It is not after a start, until somebody sets it."""

    @classmethod
    def decode(cls, data: bytes) -> Presence | None:
        """From the service data of PRESENCE; None for a later version: a mote of which nothing else is known."""
        if not data:
            raise ProtocolError("presence without a version")
        if data[0] != PRESENCE_VERSION:
            return None
        if len(data) != PRESENCE_DATA.size:
            raise ProtocolError(f"presence of {len(data)} bytes")
        _, bits, table_crc, name_crc_ = PRESENCE_DATA.unpack(data)
        tenths = bits & _BATTERY
        battery = None if tenths == _NO_BATTERY else min(tenths, 10) / 10
        return cls(table_crc, name_crc_, battery, bool(bits & PRESENCE_EVENTS), not bits & PRESENCE_CLOCK_UNSET)


def name_crc(name: str) -> int:
    """By which a mote's presence can be told by its name."""
    return zlib.crc32(name.encode())
