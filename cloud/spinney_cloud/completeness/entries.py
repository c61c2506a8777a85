"""What the history says: the entries that records of the kind `history` hold, as objects of JSON.

    {"v":1,"what":"kept","seconds":3600}
    {"v":1,"what":"announced","client":"pi","session":"s-1","kinds":[{"NO2":{"min":0}}],"sources":{"m7":0},"place":null}
    {"v":1,"what":"present","client":"pi","session":"s-2"}        the same as announced before, on a new link
    {"v":1,"what":"away","client":"pi"}   {"v":1,"what":"over","client":"pi"}
    {"v":1,"what":"activated","client":"pi","epoch":7,"full":false,"add":[...],"drop":[...],"more":false,"leases":true}
    {"v":1,"what":"leased","client":"pi","add":{"m7":3},"drop":[],"full":false}
    {"v":1,"what":"reported","client":"pi","report":{...}}        see mobile_broker/spinney_mobile/reports.py
    {"v":1,"what":"broken","client":"pi"}                          something is missing before this

`add` is as in the activation, and `"chosen": true` stands in it where a density chose among sources. Entries that are
written again, for readers that do not go back further, have `"again": true`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from ..announcements import Announcement, AnnouncementError, read_announcement

VERSION: Final = 1
REPORTS: Final = 1
"""The version of reports that this cloud asks brokers for."""
MAX_PENDING: Final = 1_000
"""Sources that a report names; with more of them it says that all are behind."""
MAX_SECONDS: Final = 365 * 24 * 3600.0


class EntryError(ValueError):
    """An entry that cannot be read: its version is newer, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Kept:
    """History is being kept, and says so again within so many seconds. Of all tenants."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Announced:
    """What a broker announces from now on."""

    announcement: Announcement
    again: bool = False

    @property
    def client(self) -> str:
        """Whose."""
        return self.announcement.client


@dataclass(frozen=True, slots=True)
class Present:
    """A broker is there again, or on another link, and announces what it did before."""

    client: str
    session: str


@dataclass(frozen=True, slots=True)
class _OfBroker:
    client: str


class Away(_OfBroker):
    """A broker is not connected any more."""


class Over(_OfBroker):
    """A broker announces nothing any more."""


@dataclass(frozen=True, slots=True)
class Activated:
    """What a broker is about to be told to evaluate."""

    client: str
    epoch: int
    full: bool
    add: tuple[Mapping[str, Any], ...]
    drop: tuple[str, ...]
    more: bool
    leases: bool
    again: bool


@dataclass(frozen=True, slots=True)
class Leased:
    """Which sources a broker owns."""

    client: str
    add: Mapping[str, int]
    drop: tuple[str, ...]
    full: bool


@dataclass(frozen=True, slots=True)
class Report:
    """What a broker says that it evaluates, and its motes; and what it could not send."""

    run: str
    """The broker's process."""
    epoch: int
    """Of the activation that is at work."""
    pending: frozenset[str] | None
    """Sources whose motes have not committed it yet; None: perhaps all."""
    private: bool
    """Whether private rules may hold readings back."""
    all: bool
    """Whether it sends everything that it hears."""
    motes: bool
    """Whether any of its sources may be motes that hold readings back themselves."""
    fresh: bool
    """Whether it has sent all that it heard, from the beginning of this link until this was at work."""
    lost: int
    """Readings that it had to drop, or that were refused, since its report before."""
    seconds: float
    """How long ago the first of these may have been taken."""


@dataclass(frozen=True, slots=True)
class Reported:
    """A broker has reported."""

    client: str
    report: Report
    again: bool = False


class Broken(_OfBroker):
    """Of a broker something was not written down before this."""


Entry = Kept | Announced | Present | Away | Over | Activated | Leased | Reported | Broken


# ---- writing


def kept(seconds: float) -> dict[str, Any]:
    """An entry as an object."""
    return {"v": VERSION, "what": "kept", "seconds": seconds}


def announced(announcement: Announcement, *, again: bool = False) -> dict[str, Any]:
    """What is announced, each set of attributes once."""
    kinds: dict[bytes, int] = {}
    sources: dict[str, int] = {}
    for name, source in announcement.sources.items():
        sources[name] = kinds.setdefault(orjson.dumps(source.attributes, option=orjson.OPT_SORT_KEYS), len(kinds))
    return {
        **_of("announced", announcement.client),
        "session": announcement.session,
        "kinds": [orjson.Fragment(kind) for kind in kinds],
        "sources": sources,
        "place": None if announcement.place is None else announcement.place.to_json(),
        **({"again": True} if again else {}),
    }


def present(client: str, session: str) -> dict[str, Any]:
    """An entry as an object."""
    return {**_of("present", client), "session": session}


def away(client: str) -> dict[str, Any]:
    """An entry as an object."""
    return _of("away", client)


def over(client: str) -> dict[str, Any]:
    """An entry as an object."""
    return _of("over", client)


def activated(
    client: str, message: Mapping[str, Any], chosen: frozenset[str], *, again: bool = False
) -> dict[str, Any]:
    """Of an activation's message; of leases only that there are some. `chosen`: digests for some sources only."""
    add = [{**item, "chosen": True} if item["filter"] in chosen else item for item in message["add"]]
    return {
        **_of("activated", client),
        "epoch": message["epoch"],
        "full": message["full"],
        "add": add,
        "drop": message["drop"],
        **({"more": True} if message.get("more") else {}),
        **({"leases": True} if "leases" in message else {}),
        **({"again": True} if again else {}),
    }


def leased(client: str, before: Mapping[str, int] | None, held: Mapping[str, int]) -> dict[str, Any]:
    """What has changed since, or (None) all of it."""
    add = held if before is None else {name: epoch for name, epoch in held.items() if before.get(name) != epoch}
    drop = [] if before is None else [name for name in before if name not in held]
    return {**_of("leased", client), "add": dict(add), "drop": drop, **({"full": True} if before is None else {})}


def reported(client: str, report: Mapping[str, Any], *, again: bool = False) -> dict[str, Any]:
    """As the broker said it."""
    return {**_of("reported", client), "report": dict(report), **({"again": True} if again else {})}


def broken(client: str) -> dict[str, Any]:
    """An entry as an object."""
    return _of("broken", client)


def _of(what: str, client: str) -> dict[str, Any]:
    return {"v": VERSION, "what": what, "client": client}


# ---- reading


def read_entry(item: Mapping[str, Any], tenant: str, at: float) -> Entry:
    """What gave this object."""
    try:
        if item["v"] > VERSION:
            raise EntryError(f"an entry of version {item['v']}; this Spinney reads up to {VERSION}")
        return _read(item, tenant, at)
    except EntryError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise EntryError(f"a damaged entry: {str(item)[:80]}: {error!r}") from error


def _read(item: Mapping[str, Any], tenant: str, at: float) -> Entry:
    again = bool(item.get("again"))
    match item["what"]:
        case "kept":
            return Kept(float(item["seconds"]))
        case "announced":
            return Announced(_announcement(item, tenant, at), again)
        case "present":
            return Present(item["client"], item["session"])
        case "away":
            return Away(item["client"])
        case "over":
            return Over(item["client"])
        case "activated":
            add, drop, more, leases = item["add"], item["drop"], bool(item.get("more")), bool(item.get("leases"))
            epoch, full = int(item["epoch"]), bool(item["full"])
            return Activated(item["client"], epoch, full, tuple(add), tuple(drop), more, leases, again)
        case "leased":
            return Leased(item["client"], item["add"], tuple(item["drop"]), bool(item.get("full")))
        case "reported":
            return Reported(item["client"], read_report(item["report"]), again)
        case "broken":
            return Broken(item["client"])
        case other:
            raise EntryError(f"an entry of an unknown kind: {other!r:.80}")


def _announcement(item: Mapping[str, Any], tenant: str, at: float) -> Announcement:
    kinds = item["kinds"]
    sources = [{"name": name, "attributes": kinds[kind]} for name, kind in item["sources"].items()]
    said = {"session": item["session"], "sources": sources}
    if item["place"] is not None:
        said["place"] = item["place"]
    read = read_announcement(said, tenant, item["client"], at)
    assert isinstance(read, Announcement)
    return read


_THINNED: Final = "thinned"
"""In older reports, of readings that were not sent since no more were wanted; to an answer they are as good as lost."""
PASSING: Final = ("fresh", "lost", _THINNED, "seconds")
"""Members of a report that hold for the time before it alone."""
_REPORT = ("run", "epoch", "pending", "private", "all", "motes", "fresh", "lost", _THINNED, "seconds")


def read_report(item: Any) -> Report:
    """A broker's report; AnnouncementError says what is wrong with it. Members that it does not have are 0 or none."""
    if not isinstance(item, dict) or any(name not in _REPORT for name in item):
        raise AnnouncementError(f"expected an object of {', '.join(_REPORT)}", "report")
    run, pending = item.get("run"), item.get("pending", [])
    if not isinstance(run, str) or not 1 <= len(run) <= 64:
        raise AnnouncementError("expected a string of 1 to 64 characters", "report.run")
    if pending is not None and not (isinstance(pending, list) and all(isinstance(one, str) for one in pending)):
        raise AnnouncementError("expected an array of sources, or null", "report.pending")
    if pending is not None and len(pending) > MAX_PENDING:
        raise AnnouncementError(f"at most {MAX_PENDING}; null says all", "report.pending")
    return Report(
        run,
        _whole(item, "epoch"),
        None if pending is None else frozenset(pending),
        item.get("private", False) is not False,
        item.get("all", False) is True,
        item.get("motes", False) is not False,
        item.get("fresh", False) is True,
        _whole(item, "lost") + _whole(item, _THINNED),
        _seconds(item),
    )


def _whole(item: Mapping[str, Any], name: str) -> int:
    value = item.get(name, 0)
    if type(value) is not int or not 0 <= value <= 2**53:
        raise AnnouncementError("expected a whole number", f"report.{name}")
    return value


def _seconds(item: Mapping[str, Any]) -> float:
    value = item.get("seconds", 0.0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise AnnouncementError(f"expected 0 to {MAX_SECONDS:.0f}", "report.seconds")
    return float(value)
