"""Private rules: what a reading must lose before anything else sees it, or that it is never shared at all (rule P2).

They come before any evaluation, here and on motes: a filter is not pushed to a mote whose readings a rule may change.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
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
_PLACE: Final = frozenset({"lat", "long"})
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
        self._asks_for_place = bool(properties(self.when) & _PLACE)
        self._minutes = None if rule.hours is None else _minutes(rule)
        self._kept = _ALWAYS_SHARED | frozenset(rule.attributes)
        self._resolution = resolution if rule.resolution is None else rule.resolution
        self._grid = grid() if rule.share == "coarse" and self.budget is None else None
        if rule.share == "only" and self.budget is None and not rule.attributes:
            raise RuleError(f"rule {rule.name}: share = only needs attributes")

    def applies(self, publication: Publication, battery: float | None) -> bool:
        """Whether it is for this reading. Whether a reading without a place is in an area cannot be known: it is."""
        rule = self.rule
        if rule.battery is not None and (battery is None or battery >= rule.battery):
            return False
        if self._minutes is not None and not _is_between(self._minutes, publication["time"]):
            return False
        if self._asks_for_place and not publication.keys() >= _PLACE:
            return True
        return self._test(publication)

    def change(self, publication: Publication) -> Publication | None:
        """What is left of a reading that it is for."""
        if self.rule.share == "only":
            return {name: value for name, value in publication.items() if name in self._kept}
        return self.coarse(publication) if self._grid is not None else None

    def coarse(self, publication: Publication) -> Publication:
        """Its place as the middle of a cell."""
        assert self._grid is not None
        lat, long = publication.get("lat"), publication.get("long")
        if not isinstance(lat, float) or not isinstance(long, float):
            return publication
        cell = self._grid.cell(lat, long, self._resolution)
        lat, long = self._grid.centre(cell)
        changed = {**publication, "lat": lat, "long": long}
        return {**changed, "cell": cell} if "cell" in publication else changed

    def may_touch(self, constants: Known) -> bool:
        """Whether it may be for a reading of a source of which these are known."""
        lacks_place = self._asks_for_place and not constants.attributes.keys() >= _PLACE
        return lacks_place or overlaps(self.when, constants)


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

    def hides(self, publication: Publication) -> bool:
        """Whether a source of which only this is known is to stay unknown, too."""
        return any(
            one.budget is None and one.rule.share == "never" and one.applies(publication, None) for one in self._rules
        )

    def _stop(self, one: _Rule) -> Ruled:
        self.suppressed[one.rule.name] += 1
        return Ruled(None, one.rule.name)

    def spend(self, budgets: Iterable[str], now: float) -> dict[str, bytes | None]:
        """A reading goes up that these rules count; what is to be kept of that."""
        changes: dict[str, bytes | None] = {}
        for one in self._rules:
            if one.budget is not None and one.rule.name in budgets:
                _has_room(one.budget, one.rule, now)
                one.budget.spent += 1
                changes[_key(one.rule.name)] = json.dumps([one.budget.hour, one.budget.spent]).encode()
        return changes

    def place(self, lat: float, long: float, now: float) -> tuple[float, float] | None:
        """The place that may be announced: of this broker, as of a reading made here now; None if nothing may."""
        publication: Publication | None = {"time": now, "lat": lat, "long": long}
        for one in self._rules:
            if publication is not None and one.budget is None and one.rule.share != "only":
                publication = one.change(publication) if one.applies(publication, None) else publication
        return None if publication is None else (_number(publication["lat"]), _number(publication["long"]))

    def may_touch(self, source: str, constants: Mapping[str, Value]) -> bool:
        """Whether a rule may stop or change a reading of a source, of which these attributes never change."""
        known = Known({name: Knowledge.constant(value) for name, value in {**constants, "source": source}.items()})
        return any(one.may_touch(known) for one in self._rules)


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
    return first_hour * 60 + first_minute, last_hour * 60 + last_minute


def _is_between(minutes: tuple[int, int], moment: Any) -> bool:
    """Whether a moment is in these minutes of the local day, which may go over midnight."""
    local = time.localtime(moment)
    minute = local.tm_hour * 60 + local.tm_min
    first, last = minutes
    return first <= minute < last if first <= last else minute >= first or minute < last


def _number(value: Value) -> float:
    assert isinstance(value, float)
    return value
