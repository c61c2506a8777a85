"""Dates and timestamps as numbers: seconds since 1970-01-01T00:00:00Z, without leap seconds."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from fractions import Fraction

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400
_END_OF_TIME = 253_402_300_800.0
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})", re.ASCII)
_TIMESTAMP = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,12}))?Z", re.ASCII)


def parse_date(text: str) -> float:
    """The first moment of a day such as 2026-11-18, in UTC. ValueError says what is wrong."""
    match = _DATE.fullmatch(text)
    if not match:
        raise ValueError(f"'{text[:40]}' is not a date like 2026-11-18")
    return float(_day(*match.groups()) * _DAY_SECONDS)


def parse_timestamp(text: str) -> float:
    """A moment such as 2026-11-18T12:30:00.5Z. ValueError says what is wrong."""
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        raise ValueError(f"'{text[:40]}' is not a UTC timestamp like 2026-11-18T12:30:00Z")
    day, hour, minute, second, fraction = match.groups()
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59:
        raise ValueError(f"'{text}' has no such time of day")
    whole = parse_date(day) + int(hour) * 3600 + int(minute) * 60 + int(second)
    seconds = float(Fraction(whole) + Fraction(int(fraction), 10 ** len(fraction))) if fraction else whole
    if seconds >= _END_OF_TIME:
        raise ValueError(f"'{text}' is, as a double, in the year 10000")
    return seconds


def _day(year: str, month: str, day: str) -> int:
    try:
        return date(int(year), int(month), int(day)).toordinal() - _EPOCH_DAY
    except ValueError:
        raise ValueError(f"{year}-{month}-{day} is not in the calendar") from None


def format_date(seconds: float) -> str:
    """The inverse of parse_date."""
    return date.fromordinal(int(seconds // _DAY_SECONDS) + _EPOCH_DAY).isoformat()


def format_timestamp(seconds: float) -> str:
    """The inverse of parse_timestamp, with as few digits as give the same double again."""
    exact = Decimal(repr(seconds))
    whole = int(exact // 1) - (exact < 0 and exact % 1 != 0)
    rest = whole % _DAY_SECONDS
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    fraction = format(exact - whole, "f").partition(".")[2].rstrip("0")
    return f"{format_date(whole)}T{clock}{'.' + fraction if fraction else ''}Z"
