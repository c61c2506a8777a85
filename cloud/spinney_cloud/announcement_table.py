"""The current announcement of each mobile broker: what a new one changes, and who is found where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from spinney.geodesy import distance
from spinney.source_health import without_silence

from .announcements import Announcement, Away, Over, Source


@dataclass(frozen=True, slots=True)
class Change:
    """What an announcement, a will or an end has brought about."""

    before: Announcement | None
    after: Announcement | None
    new_session: bool = False
    was_due: bool = False
    """The announcement has expired: nothing was said of its end."""

    @property
    def is_change(self) -> bool:
        """False where an old will was ignored."""
        return self.before is not self.after


class Announcements:
    """The current announcement of each broker, and where each source is announced."""

    def __init__(self) -> None:
        self._by_client: dict[tuple[str, str], Announcement] = {}
        self._announcers: dict[tuple[str, str], dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._by_client)

    def __iter__(self) -> Iterator[Announcement]:
        return iter(list(self._by_client.values()))

    def get(self, tenant: str, client: str) -> Announcement | None:
        """A broker's."""
        return self._by_client.get((tenant, client))

    def of(self, tenant: str) -> list[Announcement]:
        """A tenant's."""
        return [one for one in self._by_client.values() if one.tenant == tenant]

    def announcers(self, tenant: str, source: str) -> list[str]:
        """The brokers that announce a source now."""
        return list(self._announcers.get((tenant, source), ()))

    def decide(self, tenant: str, client: str, said: Announcement | Away | Over, now: float) -> Change:
        """What it means; nothing is changed yet."""
        before = self.get(tenant, client)
        match said:
            case Announcement():
                return Change(
                    before, _with_what_was_told(before, said), before is None or before.session != said.session
                )
            case Away(session) if before is not None and before.session == session and before.away is None:
                return Change(before, replace(before, away=now))
            case Over(session) if before is not None and before.session == session:
                return Change(before, None)
        return Change(before, before)

    def put(self, tenant: str, client: str, after: Announcement | None) -> tuple[list[str], list[str]]:
        """Make this the broker's announcement; the sources that nobody announced before, and that nobody does now."""
        before = self._by_client.pop((tenant, client), None)
        if after is not None:
            self._by_client[tenant, client] = after
        old = set(before.sources) if before else set()
        new = set(after.sources) if after else set()
        come = [source for source in sorted(new - old) if not self._announcers.get((tenant, source))]
        for source in new - old:
            self._announcers.setdefault((tenant, source), {})[client] = None
        gone = [source for source in sorted(old - new) if self._leave(tenant, source, client)]
        return come, gone

    def _leave(self, tenant: str, source: str, client: str) -> bool:
        announcers = self._announcers[tenant, source]
        del announcers[client]
        if not announcers:
            del self._announcers[tenant, source]
        return not announcers

    # ---- Discovery

    def sources(
        self,
        tenant: str,
        *,
        near: tuple[float, float] | None = None,
        within_meters: float | None = None,
        attribute: str | None = None,
    ) -> list[dict[str, Any]]:
        """A tenant's sources as people are shown them, the nearest first if it is said to what, else by name."""
        found = []
        for announcement in self.of(tenant):
            for source in announcement.sources.values():
                if attribute is None or attribute in source.attributes:
                    away = _distance(announcement, source, near)
                    if within_meters is None or (away is not None and away <= within_meters):
                        found.append(_shown(announcement, source, away))
        return sorted(found, key=lambda one: (one["distance"] or 0.0, one["name"], one["broker"]))


def _with_what_was_told(before: Announcement | None, said: Announcement) -> Announcement:
    """What it told besides holds within a session."""
    is_askable = said.fetch or (before is not None and before.fetch and before.session == said.session)
    return replace(_with_health(before, said), fetch=is_askable)


def _with_health(before: Announcement | None, said: Announcement) -> Announcement:
    """What was told of sources holds until something else is, within a session; that one was silent, no longer."""
    if said.health is not None or before is None or before.health is None or before.session != said.session:
        return said
    kept = {source: without_silence(code) for source, code in before.health.items() if source in said.sources}
    return replace(said, health=kept)


def _distance(announcement: Announcement, source: Source, near: tuple[float, float] | None) -> float | None:
    """To the nearest place where the source may be; None if nobody knows, or nobody asks."""
    if near is None:
        return None
    fixed = source.place()
    if fixed is not None:
        return distance(*near, *fixed)
    place = announcement.place
    return None if place is None else max(0.0, distance(*near, place.lat, place.long) - place.radius_meters)


def _shown(announcement: Announcement, source: Source, away: float | None) -> dict[str, Any]:
    fixed, place, health = source.place(), announcement.place, announcement.health_of(source.name)
    return {
        "name": source.name,
        "broker": announcement.client,
        "attributes": source.attributes,
        "place": {"lat": fixed[0], "long": fixed[1], "radius": 0.0} if fixed else place and place.to_json(),
        "distance": away,
        "battery": health.battery,
        "silent": health.silent_seconds,
        "away": announcement.away is not None,
    }
