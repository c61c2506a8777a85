"""What this broker announces: which sources are here, what they give within which limits, and where that is.

An announcement is a promise: the cloud leaves out filters that nothing promised can match. A reading outside of what
has been promised goes up unfiltered and widens the promise. Until the cloud has surely acted on a new announcement the
one before it holds, too: a reading is within only if both say so.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import astuple, dataclass, field
from typing import Any, Final

from spinney.expression import Value
from spinney.publication import RESERVED
from spinney.source_health import battery_bucket, silence_bucket
from spinney.source_health import encode as encode_health

from .cells import Grid
from .promises import Area, Pair, Promise, Promises, able, any_like, constant, decode, encode
from .samples import Ability

MAX_SOURCES: Final = 10_000
"""Of one announcement; further sources are not taken, and counted."""
MAX_ATTRIBUTES: Final = 200
"""Of one source; readings with more are outside for ever."""
SETTLE_SECONDS: Final = 10.0
"""From an announcement's departure until the activation that follows from it is surely here."""
GONE_SECONDS: Final = 30 * 60.0
"""A source silent for so long is not here any more."""
BURST: Final = 4
"""Announcements that may go out at once..."""
REFILL_SECONDS: Final = 10.0
"""...and how long it takes until one more may."""
GATHER_SECONDS: Final = 0.25
"""After the first change, for others to come along."""
STRAY: Final = 1.25
"""How far this broker may stray from a cell's middle, in radii of the cell, before it is in another cell..."""
MARGIN: Final = 1.75
"""...and how far what is announced reaches: by bicycle the cloud has acted on the next cell before this one is left."""
FREE_METERS: Final = 250.0
"""The same without cells."""
KNOWN: Final = "known"
"""Begins the keys of what is kept: known, source."""
_PLACE: Final = ("lat", "long")
_FREE: Final = frozenset(RESERVED) - frozenset(_PLACE)
"""Attributes that every publication may have without their being announced."""


@dataclass(slots=True)
class _Said:
    """One announcement, and when it departed; None while it has not."""

    sources: dict[str, Promises]
    area: Area | None
    departed: float | None = None

    def holds(self, source: str, publication: Mapping[str, Any]) -> bool:
        promises = self.sources.get(source)
        if promises is None:
            return False
        for name, value in publication.items():
            promise = promises.get(name)
            if promise is None:
                if name in _FREE or (name in _PLACE and _is_within(self.area, publication)):
                    continue
                return False
            if not promise.holds(value):
                return False
        return True


def _is_within(area: Area | None, publication: Mapping[str, Any]) -> bool:
    """Whether a reading's place is where this broker says that it is; None: it may be anywhere."""
    lat, long = publication.get("lat"), publication.get("long")
    return area is None or (isinstance(lat, float) and isinstance(long, float) and area.holds(lat, long))


@dataclass(slots=True)
class _Source:
    promises: Promises = field(default_factory=dict)
    """Never changed, but replaced."""
    heard: float | None = None
    """None since a restart."""
    present: float | None = None
    """The same, but that it stays None until it is heard."""
    battery: int = 0
    """The bucket of its battery; 0 while that is unknown."""


Abilities = Callable[[str], Mapping[str, Ability]]
"""Of a source, what its decoder knows."""


class Announcer:
    """Pure: time is handed in. When something is `due`, `announce` gives it, and `departed` says that it is on its way.

    Kept are, of each source, what was announced last, which must not become less while the source is ours, and what is
    in force, from which the filters that are active follow.
    """

    def __init__(
        self,
        kept: Mapping[str, bytes] | None = None,
        *,
        grid: Grid | None = None,
        resolution: int = 9,
        abilities: Abilities = lambda _: {},
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Readings outside; sources refused because there were too many; announcements."""
        self._grid = grid
        self._resolution = resolution
        self._abilities = abilities
        self._sources: dict[str, _Source] = {}
        self._area: Area | None = None
        self._said: deque[_Said] = deque()
        """The one in force; those that have departed since; the one that is to depart."""
        self._changed_at: float | None = -math.inf
        """Since when there is something to announce; from the start on there is."""
        self._kept: dict[str, Pair] = {}
        self._kept_area: tuple[Area | None, Area | None] = (None, None)
        self._tokens = float(BURST)
        self._filled_at = 0.0
        self._changes: dict[str, bytes | None] = {}
        self._restore(kept or {})

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        in_force = _Said({}, None, 0.0)
        for key, value in kept.items():
            kind, _, source = key.partition(":")
            if kind == KNOWN and source:
                said, force = self._kept[source] = decode(value)
                if said is not None:
                    self._sources[source] = _Source(said)
                if force is not None:
                    in_force.sources[source] = force
            elif kind == KNOWN:
                areas = [None if item is None else Area(*item) for item in json.loads(value)]
                self._kept_area = (areas[0], areas[1])
                in_force.area = areas[1]  # the other is not announced again: `move` says where we are, and may say
        self._said.append(in_force)

    def _promises(self) -> dict[str, Promises]:
        return {name: one.promises for name, one in self._sources.items()}

    # ---- what is here

    @property
    def sources(self) -> list[str]:
        """Those that are announced."""
        return list(self._sources)

    def __contains__(self, source: object) -> bool:
        return source in self._sources

    def hear(self, source: str, now: float, constants: Mapping[str, Value] | None = None) -> bool:
        """A source is here, with attributes that never change; whether there is room for it."""
        known = self._sources.get(source)
        if known is None:
            if len(self._sources) >= MAX_SOURCES:
                self.counts["refused"] += 1
                return False
            promises = {name: constant(value) for name, value in (constants or {}).items()}
            known = self._sources[source] = _Source(promises)
            self._change(now)
        known.heard = known.present = now
        return True

    def set_battery(self, source: str, share: float) -> None:
        """How full the battery of a source is, from 0 to 1."""
        known = self._sources.get(source)
        if known is not None:
            known.battery = battery_bucket(share, known.battery)

    def health(self, now: float, tells_battery: Callable[[str], bool]) -> dict[str, str]:
        """By source, battery and silence in one character; the battery of those only of which it may be told."""
        return {
            source: encode_health(
                one.battery if one.battery and tells_battery(source) else 0,
                silence_bucket(None if one.present is None else now - one.present),
            )
            for source, one in self._sources.items()
        }

    def describe(self, source: str, abilities: Mapping[str, Ability], now: float) -> None:
        """What is known of a source before it is heard; what has been heard stays within."""
        known = self._sources[source]
        new = {name: able(ability) for name, ability in abilities.items() if name not in known.promises}
        if new and len(known.promises) + len(new) <= MAX_ATTRIBUTES:
            known.promises = {**known.promises, **new}
            self._change(now)

    def names(self, source: str) -> Collection[str]:
        """The attributes that are announced of a source."""
        return self._sources[source].promises.keys()

    def restrict(self, source: str, names: Collection[str], constants: Mapping[str, Value], now: float) -> None:
        """Of a source announce no more than these attributes, and no constants but with these values."""
        known = self._sources[source]
        left = {
            name: one
            for name, one in known.promises.items()
            if name in names and (one.constant is None or (name in constants and one.holds(constants[name])))
        }
        if left != known.promises:
            known.promises = left
            self._change(now)

    def heard(self, source: str) -> float | None:
        """When a source was heard last, or the start if it has not been heard since."""
        return self._sources[source].heard

    def forget(self, source: str, now: float) -> None:
        """A source is not here any more."""
        if self._sources.pop(source, None) is not None:
            self._change(now)

    def silent(self, now: float) -> list[str]:
        """The sources that have not been heard for so long that they are gone."""
        for one in self._sources.values():
            one.heard = now if one.heard is None else one.heard
        return [name for name, one in self._sources.items() if now - (one.heard or 0.0) > GONE_SECONDS]

    def move(self, place: tuple[float, float] | None, now: float, *, is_coarse: bool = False) -> None:
        """This broker is here. What is announced changes only when that is another cell, well beyond its border.

        With `is_coarse` it is not here, but may say nothing else: what was announced before may be nearer.
        """
        if place is None:
            area = None
        elif not is_coarse and self._area is not None and self._area.holds(*place, share=STRAY / MARGIN):
            return
        else:
            area = self._around(*place)
        if area != self._area:
            self._area = area
            self._change(now)

    def _around(self, lat: float, long: float) -> Area:
        if self._grid is None:
            return Area(lat, long, FREE_METERS * MARGIN)
        cell = self._grid.cell(lat, long, self._resolution)
        return Area(*self._grid.centre(cell), self._grid.radius_meters(cell) * MARGIN)

    def sampled(self, source: str, publication: Mapping[str, Value], now: float) -> bool:
        """A reading as it would go up; whether it is outside of what has been announced, which it widens then."""
        if all(said.holds(source, publication) for said in self._said):
            return False
        self.counts["outside"] += 1
        self.overheard(source, publication, now)
        return True

    def overheard(self, source: str, publication: Mapping[str, Value], now: float) -> None:
        """A reading that may not go up, being another's: what it has is announced, to be ready to own it."""
        known = self._sources[source]
        new = {name: self._widened(source, publication, name) for name in publication}
        promises = {**known.promises, **{name: one for name, one in new.items() if one is not None}}
        if promises != known.promises and len(promises) <= MAX_ATTRIBUTES:
            known.promises = promises
            self._change(now)

    def _widened(self, source: str, publication: Mapping[str, Value], name: str) -> Promise | None:
        """What is to be promised of an attribute, if anything."""
        promise = self._sources[source].promises.get(name)
        if promise is not None:
            return promise if promise.holds(publication[name]) else promise.widened(publication[name])
        if name in _FREE or (name in _PLACE and _is_within(self._area, publication)):
            return None
        ability = self._abilities(source).get(name)
        return any_like(publication[name]) if ability is None else able(ability).widened(publication[name])

    # ---- what is said

    def due(self, now: float) -> bool:
        """Whether something new is to be announced now: not for each change at once, and not too often."""
        self._settle(now)
        self._tokens = min(float(BURST), self._tokens + max(0.0, now - self._filled_at) / REFILL_SECONDS)
        self._filled_at = now
        waited = self._changed_at is not None and now - self._changed_at >= GATHER_SECONDS
        return waited and self._tokens >= 1.0

    def body(self) -> dict[str, Any]:
        """The announcement, but for what the uplink adds."""
        item: dict[str, Any] = {
            "sources": [
                {"name": name, "attributes": {key: one.to_json() for key, one in source.promises.items()}}
                for name, source in self._sources.items()
            ]
        }
        return item if self._area is None else {**item, "place": self._area.to_json()}

    def announce(self) -> dict[str, Any]:
        """The body of an announcement that is about to depart, in place of one that has not departed."""
        self._changed_at = None
        self._tokens -= 1.0
        self.counts["announced"] += 1
        if self._said[-1].departed is None:
            self._said.pop()
        self._said.append(_Said(self._promises(), self._area))
        self._keep()
        return self.body()

    def departed(self, now: float) -> None:
        """What was announced last has been sent."""
        if self._said[-1].departed is None:
            self._said[-1].departed = now

    def forgotten(self, now: float) -> None:
        """The cloud may hold nothing of what was announced: until it has acted on it anew, every reading is outside."""
        self._said.clear()
        self._said.append(_Said({}, None, 0.0))
        self._change(now)

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing that was announced is in force, so that every reading is outside."""
        return not self._said[0].sources

    def _settle(self, now: float) -> None:
        """An announcement takes the place of the one before it once the cloud has surely acted on it."""
        while len(self._said) > 1:
            departed = self._said[1].departed
            if departed is None or now - departed < SETTLE_SECONDS:
                return
            self._said.popleft()
            self._keep()

    def _keep(self) -> None:
        """Of what was announced last and of what is in force, note what is not kept yet."""
        last, force = self._said[-1], self._said[0]
        for source in {**self._kept, **last.sources, **force.sources}:
            pair = (last.sources.get(source), force.sources.get(source))
            if pair == (None, None):
                self._changes[f"{KNOWN}:{source}"] = None
                del self._kept[source]
            elif pair != self._kept.get(source):
                self._changes[f"{KNOWN}:{source}"] = encode(pair)
                self._kept[source] = pair
        areas = (last.area, force.area)
        if areas != self._kept_area:
            self._changes[KNOWN] = json.dumps([one and astuple(one) for one in areas]).encode()
            self._kept_area = areas

    def _change(self, now: float) -> None:
        if self._changed_at is None:
            self._changed_at = now

    def changes(self) -> dict[str, bytes | None]:
        """What is to be kept, by key, since it was asked last."""
        changes, self._changes = self._changes, {}
        return changes

    def units(self, source: str) -> dict[str, str]:
        """By attribute."""
        known = self._sources.get(source)
        found = {} if known is None else known.promises
        return {name: one.unit for name, one in found.items() if one.unit is not None}
