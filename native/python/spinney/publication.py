"""Publications: the values that an attribute can have, and the door that every reading comes through (rule P1)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from . import instants
from .errors import PublicationError
from .expression import Value
from .limits import check_string

RESERVED: Mapping[str, type] = {
    "id": str,
    "source": str,
    "time": float,
    "lat": float,
    "long": float,
    "type": str,
    "valid_for": float,
}
"""The attributes with a fixed meaning, and the type that each must have."""

_TYPE_NAMES = {float: "a number", str: "a string", bool: "a boolean"}


def attribute(publication: Mapping[str, Any], name: str) -> Value | None:
    """The value of one attribute, numbers as doubles; None when it is missing."""
    value = publication.get(name)
    if value is None or value.__class__ is bool or (value.__class__ is str and value.isascii()):
        return value
    return _clean(name, value)


def _clean(name: str, value: Any) -> Value:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _clean_string(name, value)
    if not isinstance(value, int | float):
        raise PublicationError(
            f"{name}: a value is a number, a string or a boolean, not {type(value).__name__}", attribute=name
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise PublicationError(f"{name}: {_short(value)} is not a finite number", attribute=name)
    return number


def _clean_string(name: str, value: str) -> str:
    try:
        check_string(value)
    except ValueError as error:
        raise PublicationError(f"{name}: {error}", attribute=name) from None
    return str.__str__(value)  # the plain string of a subclass, such as a member of an enum


def _short(value: Any) -> str:
    text = str(value) if not isinstance(value, int) else f"an integer of {value.bit_length()} bits"
    return text if len(text) <= 40 else text[:37] + "..."


def read(item: Any) -> dict[str, Value]:
    """A publication as it may be kept: flat, nulls dropped, numbers as doubles, reserved attributes as they must be.

    `time` may come as an RFC 3339 timestamp in UTC and becomes epoch seconds.
    """
    if not isinstance(item, Mapping):
        raise PublicationError(f"a publication is an object of attributes, not {type(item).__name__}")
    publication: dict[str, Value] = {}
    for name, value in item.items():
        if not isinstance(name, str) or not name:
            raise PublicationError(f"an attribute's name is a string that is not empty, not {name!r}")
        _clean_string(repr(name), name)
        if value is not None:
            publication[name] = _reserved(name, value) if name in RESERVED else _clean(name, value)
    return publication


def _reserved(name: str, value: Any) -> Value:
    if name == "time" and isinstance(value, str):
        try:
            return instants.parse_timestamp(value)
        except ValueError as error:
            raise PublicationError(f"time: {error}", attribute=name) from None
    clean = _clean(name, value)
    if not isinstance(clean, RESERVED[name]):
        raise PublicationError(
            f"{name}: must be {_TYPE_NAMES[RESERVED[name]]}, not {_TYPE_NAMES[type(clean)]}", attribute=name
        )
    if name == "valid_for" and isinstance(clean, float) and clean < 0:
        raise PublicationError("valid_for: must not be negative", attribute=name)
    return clean
