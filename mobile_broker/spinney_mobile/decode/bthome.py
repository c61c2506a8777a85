"""BTHome v2, plain and encrypted. The format and its table are published at bthome.io."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from spinney.expression import Value
from spinney.mote.advert import BINARY, BTHOME, BUTTON, DIMMER, OBJECTS, TEXT, Advert
from spinney.mote.protocol import ProtocolError

from ..samples import Ability, Heard
from .ccm import TAG_BYTES, mac, opened
from .decoder import Decoded, DecodeError

_UUID_LE: Final = b"\xd2\xfc"
ENCRYPTED: Final = 0x01
_PLAIN: Final = b"\x40"
_COUNTER_BYTES: Final = 4
_SEAL_BYTES: Final = _COUNTER_BYTES + TAG_BYTES
_BUTTONS: Final = {
    0x01: "press", 0x02: "double_press", 0x03: "triple_press", 0x04: "long_press", 0x05: "long_double_press",
    0x06: "long_triple_press", 0x80: "hold_press", 0xFE: "hold_press",
}  # fmt: skip
_DIMMERS: Final = {0x01: "left", 0x02: "right"}
_UNITS: Final = {
    "acceleration": "m/s2", "battery": "%", "co2": "ppm", "conductivity": "uS/cm", "current": "A", "dew_point": "C",
    "direction": "deg", "distance": "m", "duration": "s", "energy": "kWh", "gas": "m3", "gyroscope": "deg/s",
    "humidity": "%", "illuminance": "lx", "mass": "kg", "mass_lb": "lb", "moisture": "%", "pm10": "ug/m3",
    "pm25": "ug/m3", "power": "W", "precipitation": "mm", "pressure": "hPa", "rotation": "deg",
    "rotational_speed": "rpm", "speed": "m/s", "temperature": "C", "tvoc": "ug/m3", "voltage": "V", "volume": "L",
    "volume_flow_rate": "m3/h", "volume_storage": "L", "water": "L",
}  # fmt: skip


def _abilities() -> Mapping[str, Ability]:
    """By attribute; several objects may give one, and then it can be what any of them can."""
    found: dict[str, Ability] = {}
    for name, size, p, q in OBJECTS.values():
        bits = 8 * abs(size)
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if size < 0 else (0, (1 << bits) - 1)
        before = found.get(name, Ability(low * p / q, high * p / q))
        assert before.minimum is not None
        assert before.maximum is not None
        found[name] = Ability(
            min(before.minimum, low * p / q), max(before.maximum, high * p / q), _UNITS.get(name)
        )  # fmt: skip
    found["dimmer_steps"] = Ability(0, 255)
    return found | {name: Ability() for name in (*BINARY.values(), "text", "button", "dimmer")}


class BTHome:
    """Adverts with service data of 0xFCD2."""

    name = "bthome"
    abilities: Mapping[str, Ability] = _abilities()

    def decode(self, heard: Heard, key: bytes | None) -> Decoded | None:
        """None without such service data, or of a version before the second."""
        data = heard.services.get(BTHOME)
        if not data or data[0] & 0xE0 != 0x40:
            return None
        counter = None
        if data[0] & ENCRYPTED:
            counter, data = opened_data(data, heard.address, key)
        try:
            advert = Advert.decode(data)
        except ProtocolError as error:
            raise DecodeError(str(error)) from None
        return Decoded(values_of(advert), advert.packet_id if counter is None else counter, counter)


def values_of(advert: Advert) -> dict[str, Value]:
    """The readings by name; a second temperature is `temperature_2`."""
    values: dict[str, Value] = {reading.name: reading.value for reading in advert.readings}
    if len(values) < len(advert.readings):
        values = _numbered([(reading.name, reading.value) for reading in advert.readings])
    if advert.others:
        values |= _numbered([pair for number, data in advert.others for pair in _event(number, data)])
    return values


def _numbered(pairs: list[tuple[str, Value | None]]) -> dict[str, Value]:
    """An object without a value (a button of several that was not pressed) keeps its number."""
    count: Counter[str] = Counter()
    values: dict[str, Value] = {}
    for name, value in pairs:
        count[name] += 1
        if value is not None:
            values[name if count[name] == 1 else f"{name}_{count[name]}"] = value
    return values


def _event(number: int, data: bytes) -> list[tuple[str, Value | None]]:
    if number == BUTTON:
        return [("button", _BUTTONS.get(data[0]))]
    if number == DIMMER:
        turned = _DIMMERS.get(data[0])
        return [("dimmer", turned), ("dimmer_steps", float(data[1]) if turned else None)]
    if number == TEXT:
        return [("text", data.decode("utf-8", "replace"))]
    return []


def opened_data(data: bytes, address: str, key: bytes | None) -> tuple[int, bytes]:
    """The counter, and the service data as if it had not been encrypted; DecodeError."""
    if len(data) <= 1 + _SEAL_BYTES:
        raise DecodeError(f"an encrypted BTHome advert of {len(data)} bytes is cut off")
    counter = data[-_SEAL_BYTES:-TAG_BYTES]
    nonce = mac(address) + _UUID_LE + data[:1] + counter
    plain = opened(key, nonce, data[1:-_SEAL_BYTES] + data[-TAG_BYTES:])
    return int.from_bytes(counter, "little"), _PLAIN + plain
