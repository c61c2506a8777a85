"""Xiaomi's thermometers with the firmware of ATC1441 or pvvx, plain and encrypted.

The formats are published at github.com/pvvx/ATC_MiThermometer; they are told apart by their size.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final

from spinney.expression import Value

from ..samples import Ability, Heard
from .ccm import TAG_BYTES, mac, opened
from .decoder import Decoded, DecodeError

SERVICE: Final = "0000181a-0000-1000-8000-00805f9b34fb"
_ATC: Final = struct.Struct(">6xhBBHB")
_PVVX: Final = struct.Struct("<6xhHHBBB")
_SEALED: Final = struct.Struct("<hHBB")
_PVVX_SEALED, _ATC_SEALED = 11, 8
_HEADER: Final = bytes.fromhex("161a18")
_WITH_IT: Final = b"\x11"


class Atc:
    """Adverts with service data of 0x181A, of one of these sizes."""

    name = "atc"
    abilities: Mapping[str, Ability] = {
        "temperature": Ability(-3276.8, 3276.7, "C"),
        "humidity": Ability(0, 655.35, "%"),
        "battery": Ability(0, 255, "%"),
        "voltage": Ability(0, 65.535, "V"),
    }

    def decode(self, heard: Heard, key: bytes | None) -> Decoded | None:
        """None for other sizes: environmental sensing is a service that others use, too."""
        data = heard.services.get(SERVICE)
        read = _FORMATS.get(len(data)) if data else None
        return read(data, heard.address, key) if data and read else None


def _atc(data: bytes, _address: str, _key: bytes | None) -> Decoded:
    temperature, humidity, battery, millivolts, count = _ATC.unpack(data)
    return Decoded(_values(temperature / 10, float(humidity), battery, millivolts / 1000), count)


def _pvvx(data: bytes, _address: str, _key: bytes | None) -> Decoded:
    temperature, humidity, millivolts, battery, count, _flags = _PVVX.unpack(data)
    return Decoded(_values(temperature / 100, humidity / 100, battery, millivolts / 1000), count)


def _pvvx_sealed(data: bytes, address: str, key: bytes | None) -> Decoded:
    temperature, humidity, battery, _flags = _SEALED.unpack(_opened(data, address, key))
    return Decoded(_values(temperature / 100, humidity / 100, battery), data[0])


def _atc_sealed(data: bytes, address: str, key: bytes | None) -> Decoded:
    temperature, humidity, battery = _opened(data, address, key)
    return Decoded(_values(temperature / 2 - 40, humidity / 2, battery & 0x7F), data[0])


def _values(temperature: float, humidity: float, battery: int, voltage: float | None = None) -> dict[str, Value]:
    values: dict[str, Value] = {"temperature": temperature, "humidity": humidity, "battery": float(battery)}
    if voltage is not None:
        values["voltage"] = voltage
    return values


def _opened(data: bytes, address: str, key: bytes | None) -> bytes:
    """A count of 8 bits is all that makes one advert differ from the next, so it cannot tell an old one."""
    nonce = mac(address)[::-1] + bytes([len(_HEADER) + len(data)]) + _HEADER + data[:1]
    plain = opened(key, nonce, data[1:], _WITH_IT)
    if len(plain) != len(data) - 1 - TAG_BYTES:
        raise DecodeError("an encrypted advert is cut off")
    return plain


_FORMATS: Final = {_ATC.size: _atc, _PVVX.size: _pvvx, _PVVX_SEALED: _pvvx_sealed, _ATC_SEALED: _atc_sealed}
