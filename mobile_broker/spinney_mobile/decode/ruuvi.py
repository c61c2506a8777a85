"""Ruuvi's data formats 3, 5, 6 and E1, as published at docs.ruuvi.com. Pressure is told in hPa, as others do."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Final

from spinney.expression import Value

from ..samples import Ability, Heard
from .decoder import Decoded, DecodeError

COMPANY: Final = 0x0499
_G: Final = 9.80665
_DF3: Final = struct.Struct(">BbBHhhhH")
_DF5: Final = struct.Struct(">hHHhhhHBH")
_DF6: Final = struct.Struct(">hHHHHBBBxBB")
_DF6_STEP: Final = math.log(65536) / 254
"""Of the light, which is told by its logarithm."""
_E1: Final = struct.Struct(">hHHHHHHHBB")
_E1_BYTES: Final = 40
_NO_8, _NO_16, _NO_SIGNED, _NO_24 = 0xFF, 0xFFFF, -0x8000, 0xFFFFFF


class Ruuvi:
    """RuuviTag and Ruuvi Air."""

    name = "ruuvi"
    abilities: Mapping[str, Ability] = {
        "temperature": Ability(-163.835, 163.835, "C"),
        "humidity": Ability(0, 163.835, "%"),
        "pressure": Ability(500, 1155.35, "hPa"),
        "acceleration_x": Ability(-322, 322, "m/s2"),
        "acceleration_y": Ability(-322, 322, "m/s2"),
        "acceleration_z": Ability(-322, 322, "m/s2"),
        "voltage": Ability(0, 65.535, "V"),
        "movements": Ability(0, 254),
        "pm1": Ability(0, 6553.4, "ug/m3"),
        "pm25": Ability(0, 6553.4, "ug/m3"),
        "pm4": Ability(0, 6553.4, "ug/m3"),
        "pm10": Ability(0, 6553.4, "ug/m3"),
        "co2": Ability(0, 65534, "ppm"),
        "voc_index": Ability(0, 510),
        "nox_index": Ability(0, 510),
        "illuminance": Ability(0, 167772.14, "lx"),
        "calibrating": Ability(),
    }

    def decode(self, heard: Heard, key: bytes | None) -> Decoded | None:
        """None for other makers, and for formats that carry no measurements of these kinds."""
        del key  # these formats are never encrypted
        data = heard.manufacturers.get(COMPANY)
        read = _FORMATS.get(data[0]) if data else None
        if data is None or read is None:
            return None
        size, decode = read
        if len(data) < size:
            raise DecodeError(f"Ruuvi's format {data[0]:X} has {size} bytes, not {len(data)}")
        values, sequence = decode(data)
        return Decoded({name: value for name, value in values.items() if value is not None}, sequence)


_Values = tuple[dict[str, Value | None], int | None]


def _format_3(data: bytes) -> _Values:
    humidity, whole, hundredths, pressure, x, y, z, voltage = _DF3.unpack_from(data, 1)
    sign = -1 if whole < 0 else 1
    temperature = sign * ((whole & 0x7F) * 100 + hundredths) / 100
    return {
        "temperature": temperature,
        "humidity": humidity / 2,
        "pressure": (pressure + 50_000) / 100,
        **_acceleration(x, y, z),
        "voltage": voltage / 1000,
    }, None


def _format_5(data: bytes) -> _Values:
    temperature, humidity, pressure, x, y, z, power, movements, sequence = _DF5.unpack_from(data, 1)
    millivolts = power >> 5
    return {
        **_climate(temperature, humidity, pressure),
        **_acceleration(x, y, z),
        "voltage": None if millivolts == 0x7FF else (millivolts + 1600) / 1000,
        "movements": None if movements == 0xFF else float(movements),
    }, None if sequence == _NO_16 else sequence


def _format_6(data: bytes) -> _Values:
    temperature, humidity, pressure, pm25, co2, voc, nox, light, sequence, flags = _DF6.unpack_from(data, 1)
    return {
        **_climate(temperature, humidity, pressure),
        "pm25": _known(pm25, 10),
        "co2": _known(co2, 1),
        "voc_index": _index(voc, flags >> 6),
        "nox_index": _index(nox, flags >> 7),
        "illuminance": None if light == _NO_8 else round(math.expm1(light * _DF6_STEP), 2),
        "calibrating": bool(flags & 1),
    }, sequence


def _format_e1(data: bytes) -> _Values:
    temperature, humidity, pressure, pm1, pm25, pm4, pm10, co2, voc, nox = _E1.unpack_from(data, 1)
    light, sequence, flags = int.from_bytes(data[19:22], "big"), int.from_bytes(data[25:28], "big"), data[28]
    return {
        **_climate(temperature, humidity, pressure),
        "pm1": _known(pm1, 10),
        "pm25": _known(pm25, 10),
        "pm4": _known(pm4, 10),
        "pm10": _known(pm10, 10),
        "co2": _known(co2, 1),
        "voc_index": _index(voc, flags >> 6),
        "nox_index": _index(nox, flags >> 7),
        "illuminance": None if light == _NO_24 else light / 100,
        "calibrating": bool(flags & 1),
    }, None if sequence == _NO_24 else sequence


def _climate(temperature: int, humidity: int, pressure: int) -> dict[str, Value | None]:
    return {
        "temperature": None if temperature == _NO_SIGNED else temperature / 200,
        "humidity": _known(humidity, 400),
        "pressure": None if pressure == _NO_16 else (pressure + 50_000) / 100,
    }


def _acceleration(*axes: int) -> dict[str, Value | None]:
    return {
        f"acceleration_{axis}": None if raw == _NO_SIGNED else raw * _G / 1000
        for axis, raw in zip("xyz", axes, strict=True)
    }


def _known(raw: int, scale: int) -> float | None:
    return None if raw == _NO_16 else raw / scale


def _index(high: int, low_bit: int) -> float | None:
    raw = high << 1 | low_bit & 1
    return None if raw == 0x1FF else float(raw)


_FORMATS: Final = {
    0x03: (14, _format_3),
    0x05: (18, _format_5),
    0x06: (17, _format_6),
    0xE1: (_E1_BYTES - 6, _format_e1),
}
"""By format: its bytes (without the address at the end, which some systems cut off), and how to read it."""
