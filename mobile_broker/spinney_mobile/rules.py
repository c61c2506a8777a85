"""Private rules: what a reading must lose before anything else sees it, or that it is never shared at all (rule P2).

They come before any evaluation, here and on motes: a filter is not pushed to a mote whose readings a rule may change.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spinney import Knowledge, Known, overlaps, parse_filter
from spinney.compiled import compile_filter
from spinney.expression import Value, properties

from .cells import Grid
from .settings import Rule

BUDGET: Final = "budget"
"""Begins the keys of what is kept: budget, rule."""
_ALWAYS_SHARED: Final = frozenset({"source", "time"})
_PLACE: Final = frozenset({"lat", "long", "cell"})
_DAY_MINUTES: Final = 24 * 60
_HOURS = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)-([01]?\d|2[0-4]):([0-5]\d)")
_HOUR_SECONDS: Final = 3600

Publication = dict[str, Value]


class RuleError(ValueError):
    """A rule that cannot be one, and why."""


class Ruled(NamedTuple):
    """What the rules leave of a reading."""

    publication: Publication | None
    """None: it is shared with nobody."""
    reason: str | None
    """The rule that stopped it."""
    budgets: tuple[str, ...] = ()
    """Rules that count it if it goes up."""


@dataclass(slots=True)
class _Budget:
    hour: int = -1
    spent: int = 0


class _Rule:
    """One rule, ready to be asked."""

    def __init__(self, rule: Rule, grid: Callable[[], Grid], resolution: int) -> None:
        self.rule = rule
        self.when = parse_filter(rule.when)
        self.budget = None if rule.hourly is None else _Budget()
        self._test = compile_filter(self.when)
        self._place = properties(self.when) & _PLACE
        self._minutes = None if rule.hours is None else _minutes(rule)
        self.kept = _ALWAYS_SHARED | frozenset(rule.attributes)
        """Attributes that `only` leaves."""
        self._resolution = resolution if rule.resolution is None else rule.resolution
        self._grid = grid() if rule.share == "coarse" and self.budget is None else None
        self.hides = rule.share == "never" and self.budget is None
        self.strips = rule.share == "only" and self.budget is None
        if self.strips and not rule.attributes:
            raise RuleError(f"rule {rule.name}: share = only needs attributes")

    def applies(self, publication: Publication, battery: float | None) -> bool:
        """Whether it is for this reading. Whether a reading without a place is in an area cannot be known: it is."""
        rule = self.rule
        if rule.battery is not None and (battery is None or battery >= rule.battery):
            return False
        if not self.is_now(publication["time"]):
            return False
        return self.lacks_place(publication) or self._test(publication)

    def is_now(self, moment: Any) -> bool:
        """Whether it is for readings of this moment."""
        return self._minutes is None or _is_between(self._minutes, moment)

    def lacks_place(self, publication: Mapping[str, Any]) -> bool:
        """Whether it asks for a place that is not known."""
        return not publication.keys() >= self._place

    def change(self, publication: Publication) -> Publication | None:
        """What is left of a reading that it is for."""
        if self.rule.share == "only":
            return {name: value for name, value in publication.items() if name in self.kept}
        return self.coarse(publication) if self._grid is not None else None

    def coarse(self, publication: Publication) -> Publication:
        """Its place as the middle of a cell; without the bytes that were heard, which may hold the place as it is."""
        assert self._grid is not None
        publication = {name: value for name, value in publication.items() if name != "raw"}
        lat, long = publication.get("lat"), publication.get("long")
        if not isinstance(lat, float) or not isinstance(long, float):
            return publication
        cell = self._grid.cell(lat, long, self._resolution)
        lat, long = self._grid.centre(cell)
        changed = {**publication, "lat": lat, "long": long}
        return {**changed, "cell": cell} if "cell" in publication else changed

    def may_touch(self, constants: Known) -> bool:
        """Whether it may be for a reading of a source of which these are known."""
        return self.lacks_place(constants.attributes) or overlaps(self.when, constants)


class Rules:
    """All of them, in their order. `stored` says what to keep together with a publication that goes up."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        grid: Callable[[], Grid],
        resolution: int,
        kept: Mapping[str, bytes] | None = None,
    ) -> None:
        self.suppressed: Counter[str] = Counter()
        """Readings, by the rule that stopped them."""
        self._rules = [_Rule(rule, grid, resolution) for rule in rules]
        for one in self._rules:
            found = (kept or {}).get(_key(one.rule.name))
            if one.budget is not None and found is not None:
                one.budget.hour, one.budget.spent = json.loads(found)

    def apply(self, publication: Publication, battery: float | None, now: float) -> Ruled:
        """What may be shared of a reading; it is counted if that is nothing."""
        budgets: list[str] = []
        for one in self._rules:
            if not one.applies(publication, battery):
                continue
            if one.budget is not None:
                if not _has_room(one.budget, one.rule, now):
                    return self._stop(one)
                budgets.append(one.rule.name)
                continue
            left = one.change(publication)
            if left is None:
                return self._stop(one)
            publication = left
        return Ruled(publication, None, tuple(budgets))

    def hides(self, publication: Publication, *, surely: bool = False) -> bool:
        """Whether a source of which only this is known is to stay unknown, too; `surely`: also if its place is not."""
        return any(
            one.applies(publication, None)
            for one in self._rules
            if one.hides and not (surely and one.lacks_place(publication))
        )

    def told(self, source: str, names: Iterable[str], constants: Mapping[str, Value]) -> frozenset[str]:
        """Of these attributes of a source the ones that may be announced: that are in whatever is shared of it."""
        known, left = _known(source, constants), frozenset(names)
        for one in self._rules:
            if one.strips and one.may_touch(known):
                left &= one.kept
        return left

    def _stop(self, one: _Rule) -> Ruled:
        self.suppressed[one.rule.name] += 1
        return Ruled(None, one.rule.name)

    def stops(self, budgets: Iterable[str], now: float) -> bool:
        """Whether an hour's share that a reading counts for has been used up while it waited; it is counted then."""
        spent = next(self._spent(budgets, now), None)
        if spent is not None:
            self._stop(spent)
        return spent is not None

    def are_spent(self, budgets: Iterable[str], now: float) -> bool:
        """The same for a reading that goes on waiting: it is not counted."""
        return next(self._spent(budgets, now), None) is not None

    def _spent(self, budgets: Iterable[str], now: float) -> Iterator[_Rule]:
        for one in self._rules:
            if one.budget is not None and one.rule.name in budgets and not _has_room(one.budget, one.rule, now):
                yield one

    def spend(self, budgets: Iterable[str], now: float) -> dict[str, bytes | None]:
        """A reading goes up that these rules count; what is to be kept of that."""
        changes: dict[str, bytes | None] = {}
        for one in self._rules:
            if one.budget is not None and one.rule.name in budgets:
                _has_room(one.budget, one.rule, now)
                one.budget.spent += 1
                changes[_key(one.rule.name)] = json.dumps([one.budget.hour, one.budget.spent]).encode()
        return changes

    def place(self, here: Mapping[str, Value], now: float) -> tuple[float, float] | None:
        """The place that may be announced: of this broker, as of a reading made here now; None if nothing may.

        It is announced together with all sources: what a rule does to the place of one of them, it does to this.
        """
        place: Publication | None = {**here, "time": now}
        for one in self._rules:
            if place is None or one.budget is not None:
                continue
            known = Known({name: Knowledge.constant(value) for name, value in place.items() if name != "time"})
            is_for_some = not one.hides and one.is_now(now) and one.may_touch(known)
            if is_for_some or one.applies(place, None):
                place = one.change(place)
        lat, long = (place or {}).get("lat"), (place or {}).get("long")
        return (lat, long) if isinstance(lat, float) and isinstance(long, float) else None

    def may_touch(self, source: str, constants: Mapping[str, Value]) -> bool:
        """Whether a rule may stop or change a reading of a source, of which these attributes never change."""
        known = _known(source, constants)
        return any(one.may_touch(known) for one in self._rules)


def _known(source: str, constants: Mapping[str, Value]) -> Known:
    return Known({name: Knowledge.constant(value) for name, value in {**constants, "source": source}.items()})


def _key(name: str) -> str:
    return f"{BUDGET}:{name}"


def _has_room(budget: _Budget, rule: Rule, now: float) -> bool:
    """Whether the hour's share of a rule is not used up; a new hour brings a new share."""
    hour = int(now // _HOUR_SECONDS)
    if hour != budget.hour:
        budget.hour, budget.spent = hour, 0
    assert rule.hourly is not None
    return budget.spent < rule.hourly


def _minutes(rule: Rule) -> tuple[int, int]:
    found = _HOURS.fullmatch(rule.hours or "")
    if found is None:
        raise RuleError(f"rule {rule.name}: hours are like 22:00-06:30, not {rule.hours!r}")
    first_hour, first_minute, last_hour, last_minute = map(int, found.groups())
    first, last = first_hour * 60 + first_minute, last_hour * 60 + last_minute
    if max(first, last) > _DAY_MINUTES:
        raise RuleError(f"rule {rule.name}: a day ends at 24:00, and hours are {rule.hours}")
    if first % _DAY_MINUTES == last % _DAY_MINUTES and (first, last) != (0, _DAY_MINUTES):
        raise RuleError(f"rule {rule.name}: hours {rule.hours} are none; for the whole day leave hours out")
    return first % _DAY_MINUTES, last


def _is_between(minutes: tuple[int, int], moment: Any) -> bool:
    """Whether a moment is in these minutes of the local day, which may go over midnight."""
    local = time.localtime(moment)
    minute = local.tm_hour * 60 + local.tm_min
    first, last = minutes
    return first <= minute < last if first <= last else minute >= first or minute < last
