"""Announcements: which sources are where, what they give, and for how long that holds.

{"session": "s1", "validity": 600, "sources": [{"name": "m7", "constants": {"room": "kit"},
 "attributes": {"NO2": {"min": 0, "max": 400, "unit": "ug/m3", "presence": "maybe"}}}],
 "place": {"lat": 45.81, "long": 15.97, "radius": 200}, "battery": 0.8, "radio_load": 0.1, "lease": ["m7"],
 "have": 5}
{"session": "s1", "away": true}      the will: ignored if the session is an older one
{"session": "s1", "over": true}      the end
{"session": "s1", "report": {...}}   what it evaluates, where the cloud asks for that (see completeness/entries.py)
{"session": "s1", "counts": {"sent": 240, "spared": 660}}     a tally, for people to see: kept in memory only; it may
 come along with an announcement, too
{"session": "s1", "fetch": true}     it answers when it is asked for what it held back (see fetch/); may also come along
 with an announcement or a report. Optional, as is health: sent only to a cloud whose answer names it in `members`.
{"session": "s1", "health": "5x"}        battery and silence of each source (see spinney.source_health): a character for
{"session": "s1", "health": {"m7": "5"}}  each of `sources` in their order, or of those that have changed. May also come
 along with an announcement. Optional: sent only to a cloud whose answer names it in `members`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson

from spinney import Knowledge, KnownError
from spinney.geodesy import distance
from spinney.known import Known
from spinney.publication import RESERVED
from spinney.source_health import SourceHealth
from spinney.source_health import decode as decode_health

from .announced_health import Codes, ToldHealth, by_source, read_codes, to_string
from .cells import cell_at, centre, corners, is_cell
from .surroundings import OUTWARD, around

VERSION: Final = 1
MAX_SOURCES: Final = 10_000
"""Of one announcement."""
MAX_ATTRIBUTES: Final = 256
"""Of one source, constants included."""
MAX_NAME: Final = 256
DEFAULT_VALIDITY: Final = 3600.0
MAX_VALIDITY: Final = 30 * 24 * 3600.0
MAX_RADIUS_METERS: Final = 20_100_000.0
"""Half of the way around the world."""

MEMBERS: Final = ("health", "fetch")
"""Optional members that were added later: the answer to an announcement names them, and brokers that have been told
send them. An older cloud would refuse them."""
_KEPT = ("session", "validity", "sources", "place", "battery", "radio_load", "lease", "over", "health", "fetch")
_MEMBERS = (*_KEPT, "have", "away", "counts", "report")
COUNTS: Final = ("sent", "spared", "bytes_sent", "bytes_spared", "motes_sent", "motes_spared")
"""What a tally counts since the broker's start: publications, their bytes, and samples of its motes."""
MAX_COUNT: Final = 2**53
_SOURCE_MEMBERS = ("name", "constants", "attributes")
_NOT_KNOWLEDGE = ("unit",)


class AnnouncementError(ValueError):
    """An announcement that cannot be one; `path` says where in it."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.message = message
        self.path = path


class AnnouncementVersionError(ValueError):
    """A stored announcement that a newer Spinney has written, or that is damaged."""


@dataclass(frozen=True, slots=True)
class Place:
    """Within a radius around a point, or in an H3 cell."""

    lat: float
    long: float
    radius_meters: float
    cell: str | None = None

    def cell_at(self, resolution: int) -> str:
        """The H3 cell around its point."""
        return cell_at(self.lat, self.long, resolution)

    def to_json(self) -> dict[str, Any]:
        """As it is announced."""
        if self.cell is not None:
            return {"cell": self.cell}
        return {"lat": self.lat, "long": self.long, "radius": self.radius_meters}


@dataclass(frozen=True, slots=True)
class Source:
    """A source as announced."""

    name: str
    attributes: Mapping[str, Mapping[str, Any]]
    """In the words of `spinney.Known.from_json`, and `unit`. Constants are among them."""
    known: Known
    """The same, with the reserved attributes that every publication may have, but for `source`. Sources of one kind
    share it."""

    def place(self) -> tuple[float, float] | None:
        """Where it is, if that is fixed."""
        found = [self.attributes.get(name, {}).get("value") for name in ("lat", "long")]
        lat, long = (float(one) if isinstance(one, int | float) else None for one in found)
        return None if lat is None or long is None else (lat, long)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a broker has said last."""

    tenant: str
    client: str
    session: str
    received: float
    validity: float
    sources: Mapping[str, Source]
    place: Place | None = None
    battery: float | None = None
    radio_load: float | None = None
    lease: tuple[str, ...] = ()
    have: int | None = None
    away: float | None = None
    """When its will came."""
    counts: Mapping[str, int] | None = field(default=None, compare=False)
    """A tally that came along."""
    health: Mapping[str, str] | None = None
    """Of each source the character that was told last; None: this broker tells of none."""
    fetch: bool = False
    """Whether it answers when it is asked for what it held back."""

    def ends(self, grace: float) -> float:
        """When it is over, unless something more is heard."""
        end = self.received + self.validity
        return end if self.away is None else min(end, self.away + grace)

    def cell_of(self, source: str, resolution: int) -> str | None:
        """The H3 cell that a source of it is in."""
        fixed = self.sources[source].place()
        if fixed is not None:
            return cell_at(*fixed, resolution)
        return None if self.place is None else self.place.cell_at(resolution)

    def health_of(self, source: str) -> SourceHealth:
        """What was told of a source's battery and silence."""
        code = None if self.health is None else self.health.get(source)
        return SourceHealth() if code is None else decode_health(code)

    def to_json(self) -> dict[str, Any]:
        """The value in the bucket of announcements."""
        item: dict[str, Any] = {} if self.health is None else {"health": to_string(self.health, self.sources)}
        return item | {
            "v": VERSION,
            "tenant": self.tenant,
            "client": self.client,
            "session": self.session,
            "received": self.received,
            "validity": self.validity,
            "sources": [{"name": one.name, "attributes": one.attributes} for one in self.sources.values()],
            "place": None if self.place is None else self.place.to_json(),
            "battery": self.battery,
            "radio_load": self.radio_load,
            "lease": self.lease,
            "away": self.away,
            **({"fetch": True} if self.fetch else {}),
        }

    def encode(self) -> bytes:
        """Its bytes in the bucket."""
        return orjson.dumps(self.to_json())


@dataclass(frozen=True, slots=True)
class _OfSession:
    session: str


class Away(_OfSession):
    """The will: the broker is not connected any more."""


class Over(_OfSession):
    """The broker is done."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What the broker and its motes have sent and spared."""

    session: str
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Reporting:
    """What the broker says that it evaluates, as it came."""

    session: str
    report: Any
    fetch: bool = False
    """It answers when it is asked for what it held back."""


@dataclass(frozen=True, slots=True)
class Askable:
    """The broker answers when it is asked for what it held back."""

    session: str


Said = Announcement | Away | Over | Counted | ToldHealth | Reporting | Askable
"""What a broker can say of itself."""


def decode(data: bytes) -> Announcement:
    """What gave these bytes of the bucket."""
    try:
        item = orjson.loads(data)
        if item["v"] > VERSION:
            raise AnnouncementVersionError(
                f"an announcement of version {item['v']}; this Spinney reads up to {VERSION}"
            )
        said = {name: item[name] for name in _KEPT if item.get(name) is not None}
        read = read_announcement(said, item["tenant"], item["client"], item["received"])
        assert isinstance(read, Announcement)
        return replace(read, away=item["away"])
    except AnnouncementVersionError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise AnnouncementVersionError(f"a damaged announcement: {data[:80]!r}: {error!r}") from error


def read_announcement(item: Any, tenant: str, client: str, received: float) -> Said:
    """From the objects that JSON gives; AnnouncementError says what is wrong and where."""
    if not isinstance(item, dict):
        raise AnnouncementError("an announcement is an object")
    unknown = [name for name in item if name not in _MEMBERS]
    if unknown:
        raise AnnouncementError(f"no such member; there are {', '.join(_MEMBERS)}", unknown[0][:80])
    session = _session(item)
    if item.get("away") is True or item.get("over") is True:
        return Away(session) if item.get("over") is not True else Over(session)
    if item.keys() == {"session", "counts"}:
        return Counted(session, _counts(item["counts"]))
    if item.keys() == {"session", "health"}:
        return ToldHealth(session, _health(item["health"]))
    if "fetch" in item and item["fetch"] is not True:
        raise AnnouncementError("expected true", "fetch")
    if item.keys() - {"fetch"} == {"session", "report"}:
        return Reporting(session, item["report"], "fetch" in item)
    if item.keys() == {"session", "fetch"}:
        return Askable(session)
    place = _place(item.get("place"))
    sources = _sources(item.get("sources"), place)
    return Announcement(
        tenant=tenant,
        client=client,
        session=session,
        received=received,
        validity=_number(item, "validity", 1.0, MAX_VALIDITY, DEFAULT_VALIDITY) or DEFAULT_VALIDITY,
        sources=sources,
        place=place,
        battery=_number(item, "battery", 0.0, 1.0),
        radio_load=_number(item, "radio_load", 0.0, 1.0),
        lease=_lease(item.get("lease", []), sources),
        have=_have(item),
        counts=_counts(item["counts"]) if "counts" in item else None,
        health=None if item.get("health") is None else _health_of(item["health"], sources),
        fetch="fetch" in item,
    )


def _session(item: Mapping[str, Any]) -> str:
    session = item.get("session")
    if not isinstance(session, str) or not 1 <= len(session) <= MAX_NAME:
        raise AnnouncementError(f"expected a string of 1 to {MAX_NAME} characters", "session")
    return session


def _have(item: Mapping[str, Any]) -> int | None:
    have = item.get("have")
    if have is not None and (type(have) is not int or have < 0):
        raise AnnouncementError("expected an epoch, a whole number", "have")
    return have


def _counts(counts: Any) -> dict[str, int]:
    if not isinstance(counts, dict) or any(name not in COUNTS for name in counts):
        raise AnnouncementError(f"expected an object of {', '.join(COUNTS)}", "counts")
    for name, count in counts.items():
        if type(count) is not int or not 0 <= count <= MAX_COUNT:
            raise AnnouncementError("expected a whole number", f"counts.{name}")
    return dict(counts)


def _health(codes: Any) -> Codes:
    try:
        return read_codes(codes)
    except ValueError as error:
        raise AnnouncementError(str(error), "health") from None


def _health_of(codes: Any, sources: Mapping[str, Source]) -> dict[str, str]:
    read = _health(codes)
    try:
        return by_source(read, sources)
    except ValueError as error:
        raise AnnouncementError(str(error), "health") from None


def _number(
    item: Mapping[str, Any], name: str, least: float, most: float, usual: float | None = None, path: str = ""
) -> float | None:
    value = item.get(name, usual)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise AnnouncementError(f"expected a number from {least:g} to {most:g}", path + name)
    return float(value)


def _lease(names: Any, sources: Mapping[str, Source]) -> tuple[str, ...]:
    if not isinstance(names, list) or any(not isinstance(name, str) or name not in sources for name in names):
        raise AnnouncementError("expected an array of names of these sources", "lease")
    return tuple(dict.fromkeys(names))


def _place(item: Any) -> Place | None:
    if item is None:
        return None
    if not isinstance(item, dict) or (set(item) != {"cell"} and not {"lat", "long"} <= set(item) <= _POINT):
        raise AnnouncementError('expected {"lat", "long", "radius"} or {"cell"}', "place")
    if "cell" in item:
        return _place_of_cell(item["cell"])
    lat = _number(item, "lat", -90.0, 90.0, path="place.")
    long = _number(item, "long", -180.0, 180.0, path="place.")
    radius = _number(item, "radius", 0.0, MAX_RADIUS_METERS, 0.0, path="place.")
    if lat is None or long is None or radius is None:
        raise AnnouncementError("lat, long and radius are numbers", "place")
    return Place(lat, long, radius)


_POINT = {"lat", "long", "radius"}


def _place_of_cell(cell: Any) -> Place:
    if not isinstance(cell, str) or not is_cell(cell):
        raise AnnouncementError("expected an H3 cell", "place.cell")
    lat, long = centre(cell)
    return Place(lat, long, max(distance(lat, long, *corner) for corner in corners(cell)) * OUTWARD, cell)


# ---- Sources, and what is known of their publications

_KIND_NAMES: Final = {float: "number", str: "string", bool: "boolean"}


def _sources(items: Any, place: Place | None) -> dict[str, Source]:
    if not isinstance(items, list) or len(items) > MAX_SOURCES:
        raise AnnouncementError(f"expected an array of at most {MAX_SOURCES} sources", "sources")
    kinds = _Kinds(_reserved(place))
    found: dict[str, Source] = {}
    for index, item in enumerate(items):
        source = _source(item, f"sources[{index}]", kinds)
        if source.name in found:
            raise AnnouncementError(f"{source.name!r:.80} stands there twice", f"sources[{index}].name")
        found[source.name] = source
    return found


class _Kinds:
    """What is known of the sources that give the same, worked out once."""

    def __init__(self, reserved: Mapping[str, Knowledge]) -> None:
        self._reserved = reserved
        self._known: dict[bytes, Known] = {}

    def known(self, attributes: Mapping[str, Any], path: str) -> Known:
        key = orjson.dumps(attributes)
        found = self._known.get(key)
        if found is None:
            try:
                said = Known.from_json({name: _words(words) for name, words in attributes.items() if name != "source"})
            except KnownError as error:
                raise AnnouncementError(str(error), f"{path}.attributes") from None
            found = self._known[key] = Known({**self._reserved, **said.attributes}, closed=True)
        return found


def _source(item: Any, path: str, kinds: _Kinds) -> Source:
    if not isinstance(item, dict) or any(name not in _SOURCE_MEMBERS for name in item):
        raise AnnouncementError(f"expected an object of {', '.join(_SOURCE_MEMBERS)}", path)
    name = item.get("name")
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME or ":" in name:
        raise AnnouncementError(f"expected a string of 1 to {MAX_NAME} characters without a colon", f"{path}.name")
    attributes = _attributes(item, path)
    return Source(name, attributes, kinds.known(attributes, path))


def _words(words: Any) -> Any:
    if not isinstance(words, dict):
        return words
    return {name: value for name, value in words.items() if name not in _NOT_KNOWLEDGE}


def _attributes(item: Mapping[str, Any], path: str) -> dict[str, Mapping[str, Any]]:
    attributes, constants = item.get("attributes", {}), item.get("constants", {})
    for name, members in (("attributes", attributes), ("constants", constants)):
        if not isinstance(members, dict) or len(members) > MAX_ATTRIBUTES:
            raise AnnouncementError(f"expected an object of at most {MAX_ATTRIBUTES}", f"{path}.{name}")
    twice = attributes.keys() & constants.keys()
    if twice:
        raise AnnouncementError("a constant and an attribute at once", f"{path}.constants.{min(twice):.80}")
    return {**attributes, **{name: {"value": value, "presence": "always"} for name, value in constants.items()}}


def _reserved(place: Place | None) -> dict[str, Knowledge]:
    """What publications may have without its being announced; where they are follows from the place."""
    known = {name: Knowledge.from_json({"type": _KIND_NAMES[kind]}, name) for name, kind in RESERVED.items()}
    del known["source"]
    known["id"] = Knowledge.from_json({"type": "string", "presence": "always"}, "id")
    return known if place is None else known | around(place.lat, place.long, place.radius_meters)
