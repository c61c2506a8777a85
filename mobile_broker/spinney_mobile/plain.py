"""Objects of JSON and rows of CSV as samples: what is reserved among their attributes goes where it belongs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spinney.errors import PublicationError
from spinney.expression import Value
from spinney.identity import PublicationId
from spinney.publication import RESERVED, read

MAX_LAT: Final = 90.0
MAX_LONG: Final = 180.0


class Plain(NamedTuple):
    """A publication taken apart."""

    values: Mapping[str, Value]
    source: str | None
    number: tuple[int, int] | None
    """(boot, sequence), from an id `source:boot:sequence`."""
    time: float | None
    place: tuple[float, float] | None
    type: str | None
    valid_for: float | None


def plain(item: Mapping[str, Any]) -> Plain:
    """PublicationError for what no publication may be, or says nothing but who it is from."""
    publication = read(item)
    identity = _identity(publication.get("id"))
    source = publication.get("source", identity.source if identity else None)
    lat, long = publication.get("lat"), publication.get("long")
    check_place(lat, long)
    values = {name: value for name, value in publication.items() if name not in RESERVED}
    if not values:
        raise PublicationError("no attribute in it: nothing was measured")
    time, kind, valid_for = publication.get("time"), publication.get("type"), publication.get("valid_for")
    return Plain(
        values,
        source if isinstance(source, str) and source else None,
        (identity.boot, identity.sequence) if identity and identity.source == source else None,
        time if isinstance(time, float) else None,
        (lat, long) if isinstance(lat, float) and isinstance(long, float) else None,
        kind if isinstance(kind, str) else None,
        valid_for if isinstance(valid_for, float) else None,
    )


def check_place(lat: Value | None, long: Value | None) -> None:
    """PublicationError for what is no place on earth."""
    for name, value, most in (("lat", lat, MAX_LAT), ("long", long, MAX_LONG)):
        if isinstance(value, float) and abs(value) > most:
            raise PublicationError(f"{name} {value:g} is beyond {most:g} degrees")


def _identity(text: Value | None) -> PublicationId | None:
    """Another id than a sample's own says nothing here: its owner will number it."""
    try:
        return PublicationId.parse(text) if isinstance(text, str) else None
    except PublicationError:
        return None
