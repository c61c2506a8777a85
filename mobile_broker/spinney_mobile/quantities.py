"""Kinds of values in settings: how each is read from what a person wrote, and what is expected there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from spinney.client.address import Server, is_name
from spinney.errors import SyntaxError
from spinney.parse import parse, parse_filter

_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_SECONDS = {"": 1, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_SHOWN_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_MAX_SECONDS = 365 * 86400
_SHOWN_BYTES = {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10}


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of value. `read` raises ValueError, whose words say more than `expected` where there are any."""

    expected: str
    read: Callable[[Any], Any]
    units: Mapping[str, float] | None = None
    """In which to show it, the largest first."""


def _scaled(value: Any, units: Mapping[str, float]) -> float:
    if isinstance(value, str):
        found = _QUANTITY.fullmatch(value)
        if found is None or found[2].lower() not in units:
            raise ValueError
        value = float(found[1]) * units[found[2].lower()]
    return _number(value)


def _number(value: Any) -> float:
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError
    return number


def _seconds(value: Any) -> float:
    seconds = _scaled(value, _SECONDS)
    if seconds <= 0:
        raise ValueError
    return seconds


def _seconds_or_never(value: Any) -> float:
    seconds = _scaled(value, _SECONDS)
    if not 0 <= seconds <= _MAX_SECONDS:
        raise ValueError
    return seconds


def _bytes(value: Any) -> int:
    count = round(_scaled(value, _BYTES))
    if count <= 0:
        raise ValueError
    return count


def _between(low: float, high: float, *, whole: bool = False) -> Callable[[Any], Any]:
    def read(value: Any) -> float | int:
        number = _number(value)
        if not low <= number <= high or (whole and number != int(number)):
            raise ValueError
        return int(number) if whole else number

    return read


def _client_name(value: Any) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise ValueError
    return value


def _server(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError
    Server.parse(value)
    return value


def _hex_key(value: Any) -> str:
    if not isinstance(value, str) or not re.fullmatch("[0-9A-Fa-f]{32}", value):
        raise ValueError
    return value


def _parsed(parser: Callable[[str], object]) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        try:
            parser(value)
        except SyntaxError as error:
            raise ValueError(str(error)) from None
        return value

    return read


Seconds = Annotated[float, Kind("a time above 0, such as 90, 10m or 7d", _seconds, _SHOWN_SECONDS)]
SecondsOrNever = Annotated[float, Kind("0, or a time up to 365d, such as 10m or 6h", _seconds_or_never, _SHOWN_SECONDS)]
Bytes = Annotated[int, Kind("a size above 0, such as 4096 or 64MiB", _bytes, _SHOWN_BYTES)]
Count = Annotated[int, Kind("a whole number above 0", _between(1, 2**53, whole=True))]
Whole = Annotated[int, Kind("a whole number, 0 or above", _between(0, 2**53, whole=True))]
Port = Annotated[int, Kind("a port from 0 to 65535", _between(0, 65535, whole=True))]
Share = Annotated[float, Kind("a number from 0 to 1", _between(0, 1))]
Positive = Annotated[float, Kind("a number, 0 or above", _between(0, math.inf))]
Latitude = Annotated[float, Kind("degrees from -90 to 90", _between(-90, 90))]
Longitude = Annotated[float, Kind("degrees from -180 to 180", _between(-180, 180))]
ClientName = Annotated[str, Kind("1 to 64 of A-Z a-z 0-9 _ -", _client_name)]
ServerUrl = Annotated[str, Kind("mqtt://host:port, or mqtts, ws or wss", _server)]
FilterText = Annotated[str, Kind("a CQL2 filter, such as temp > 25", _parsed(parse_filter))]
SubscriptionText = Annotated[str, Kind("a subscription, such as NO2 > 40", _parsed(parse))]
HexKey = Annotated[str, Kind("32 hexadecimal digits", _hex_key)]
