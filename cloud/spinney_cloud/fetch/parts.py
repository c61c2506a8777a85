"""Questions to mobile brokers, and the parts of what they answer. Pure.

    {"fetch": {"id": "5f0c", "filter": "NO2 > 40", "since": 3600, "until": 0, "slack": 5, "readings": 1000,
     "bytes": 1048576}}                                                                                    on `reply`
    {"session": "...", "fetched": {"id": "5f0c", "part": 0, "more": true, "readings": [[12.5, 3, {"id": ...}]]}}
    {"session": "...", "fetched": {"id": "5f0c", "part": 1, "more": false, "readings": [], "whole": {"m7": 3600.5}}}

mobile_broker/spinney_mobile/fetching.py says what the members mean.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import orjson

from spinney import PublicationError, PublicationId
from spinney.publication import read

MEMBER: Final = "fetched"
DEFAULT_SECONDS: Final = 5.0
LONGEST_SECONDS: Final = 30.0
"""To wait for answers."""
MAX_SOURCES: Final = 10_000
"""That one broker may say are whole: as many as it may announce."""
MAX_NAME: Final = 256
MAX_AGE_SECONDS: Final = 400 * 24 * 3600.0
SLACK_SECONDS: Final = 1.0
"""That a reading may seem to be older than it is valid: ages are rounded."""
MAX_ERROR: Final = 200
"""Characters of what a broker says is wrong."""


class PartError(ValueError):
    """A part that cannot be one, and why."""


class Reading(NamedTuple):
    """A publication that was stopped."""

    id: PublicationId
    age: float
    """Seconds since it was taken, when the answer was made."""
    epoch: int | None
    """Of the lease under which it was taken; None without one."""
    publication: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """Of one broker's answer."""

    session: str
    number: int
    more: bool
    readings: tuple[Reading, ...]
    refused: int = 0
    """Readings that cannot be any."""
    whole: Mapping[str, float] = field(default_factory=dict)
    cut: bool = False
    error: str | None = None


def question(id: str, text: str, *, since: float, until: float, slack: float, readings: int, size: int) -> bytes:
    """What goes to a broker: `since` and `until` are seconds ago."""
    item = {"id": id, "filter": text, "since": since, "until": until, "slack": slack, "readings": readings}
    return orjson.dumps({"fetch": {**item, "bytes": size}})


def id_in(item: Mapping[str, Any]) -> str | None:
    """The question that a message answers."""
    said = item.get(MEMBER)
    id = said.get("id") if isinstance(said, dict) else None
    return id if isinstance(id, str) and len(id) <= MAX_NAME else None


def read_part(data: bytes, attributes: int) -> Part:
    """A message of a broker's, as JSON; a reading has at most so many attributes. PartError."""
    try:
        item = orjson.loads(data)
        said = item[MEMBER]
        session, number, more, items = item["session"], said["part"], said["more"], said["readings"]
    except (ValueError, KeyError, TypeError) as problem:
        raise PartError(f"no part of an answer: {problem!r}"[:MAX_ERROR]) from None
    if not isinstance(session, str) or type(number) is not int or type(more) is not bool or not isinstance(items, list):
        raise PartError("expected session, part, more and readings")
    readings = [_reading(one, attributes) for one in items]
    error = said.get("error")
    return Part(
        session,
        number,
        more,
        tuple(one for one in readings if one is not None),
        sum(one is None for one in readings),
        _whole(said.get("whole", {})),
        said.get("cut", False) is not False,
        None if error is None else str(error)[:MAX_ERROR],
    )


def _reading(item: Any, attributes: int) -> Reading | None:
    match item:
        case [int() | float() as age, int(epoch), dict(values)] if _is_age(age) and len(values) <= attributes:
            try:
                publication = read(values)
                id = PublicationId.parse(str(publication.get("id")))
            except PublicationError:
                return None
            valid_for = publication.get("valid_for")
            is_valid = isinstance(valid_for, float) and age <= valid_for + SLACK_SECONDS
            if is_valid and publication.get("source") == id.source and len(id.source) <= MAX_NAME:
                return Reading(id, float(age), epoch if epoch > 0 else None, publication)
    return None


def _whole(item: Any) -> dict[str, float]:
    if not isinstance(item, dict) or len(item) > MAX_SOURCES or not all(map(_is_age, item.values())):
        raise PartError(f"whole: expected seconds of at most {MAX_SOURCES} sources")
    return {source: float(seconds) for source, seconds in item.items()}


def _is_age(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and 0 <= value <= MAX_AGE_SECONDS
