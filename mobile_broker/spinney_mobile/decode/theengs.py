"""Many more makers' formats by TheengsDecoder, where it is installed: `pip install "spinney[theengs]"`.

Its licence is the GPL, so it is never needed and never comes along.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from spinney.expression import Value
from spinney.publication import RESERVED

from ..samples import Ability, Heard
from .decoder import Decoded, DecodeError

_MODULE: Final = "TheengsDecoder"
_SAFE: Final = re.compile(r"[A-Za-z0-9 :._#()+-]{1,60}")
_ATTRIBUTES: Final = {
    "tempc": "temperature", "tempc2": "temperature_2", "hum": "humidity", "batt": "battery", "volt": "voltage",
    "pres": "pressure", "lux": "illuminance", "moi": "moisture", "fer": "conductivity", "accx": "acceleration_x",
    "accy": "acceleration_y", "accz": "acceleration_z", "mov": "movements",
}  # fmt: skip
"""Our words for its own; what is not here keeps its name."""
_ABOUT: Final = frozenset(
    ("id", "name", "servicedata", "servicedatauuid", "manufacturerdata", "rssi", "brand", "model", "model_id", "type",
     "mac", "track", "prmac", "cidc", "acts", "cont", "device", "encr", "tempf", "tempf2", "tx", "seq")
)  # fmt: skip
"""What it tells of the device, not of what is measured."""


class Theengs:
    """Asked last."""

    name = "theengs"
    abilities: Mapping[str, Ability] = {
        "temperature": Ability(unit="C"),
        "humidity": Ability(unit="%"),
        "battery": Ability(unit="%"),
        "voltage": Ability(unit="V"),
        "pressure": Ability(unit="hPa"),
        "illuminance": Ability(unit="lx"),
        "moisture": Ability(unit="%"),
        "conductivity": Ability(unit="uS/cm"),
        "acceleration_x": Ability(unit="m/s2"),
        "acceleration_y": Ability(unit="m/s2"),
        "acceleration_z": Ability(unit="m/s2"),
    }

    @staticmethod
    def is_installed() -> bool:
        """Whether it can be asked."""
        return find_spec(_MODULE) is not None

    def decode(self, heard: Heard, key: bytes | None) -> Decoded | None:
        """None if it knows nothing of it, or nothing that was measured."""
        del key  # it opens nothing that is encrypted
        if not heard.services and not heard.manufacturers:
            return None
        answer = _library()(json.dumps(_question(heard)))
        if answer is None:
            return None
        try:
            told: dict[str, Any] = json.loads(answer)
        except ValueError as error:
            raise DecodeError(f"TheengsDecoder's answer cannot be read: {error}") from None
        values = {
            _ATTRIBUTES.get(name, name): _value(value)
            for name, value in told.items()
            if name not in _ABOUT and name not in RESERVED and isinstance(value, bool | int | float | str)
        }
        return Decoded(values, told.get("seq")) if values else None


def _question(heard: Heard) -> dict[str, Any]:
    """Names go in as far as they come out again: its answer is no JSON where they would need escapes."""
    given = {"id": heard.address, "name": heard.name or ""}
    asked: dict[str, Any] = {key: text for key, text in given.items() if _SAFE.fullmatch(text)}
    for uuid, data in heard.services.items():
        asked |= {"servicedata": data.hex(), "servicedatauuid": f"0x{uuid[4:8]}"}
    for company, data in heard.manufacturers.items():
        asked["manufacturerdata"] = company.to_bytes(2, "little").hex() + data.hex()
    return asked


def _value(value: bool | float | str) -> Value:
    return value if isinstance(value, bool | str) else float(value)


@cache
def _library() -> Callable[[str], str | None]:
    found: Callable[[str], str | None] = import_module(_MODULE).decodeBLE
    return found
