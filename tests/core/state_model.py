"""State filters by the rules, word by word: nothing is kept but the log, and everything is worked out from it anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from spinney import parse
from spinney.identity import PublicationId
from spinney.notification import scope_key
from spinney.subscription import StateSubscription

Publication = dict[str, Any]
Reading = tuple[PublicationId, Publication]
Told = tuple[str, str, int]
"""Why, which scope, and by which reading of the log."""


def state(text: str, **options: Any) -> StateSubscription:
    subscription = parse(text)
    assert isinstance(subscription, StateSubscription)
    return replace(subscription, id="s", **options)


def reading(source: str, sequence: int, boot: int = 1) -> PublicationId:
    return PublicationId(source, boot, sequence)


class FromTheBeginning:
    """The rules, word by word: bits are worked out anew from all readings so far, then compared with those before."""

    def __init__(self, subscription: StateSubscription, disjoint: bool) -> None:
        self.subscription = subscription
        self.disjoint = disjoint

    def told(self, log: list[Reading]) -> list[list[Told]]:
        told, held = [], set()
        for n in range(len(log)):
            holding = self.scopes(log[: n + 1])
            told.append([("exit", scope, n) for scope in sorted(held - holding)])
            told[-1] += [("enter", scope, n) for scope in sorted(holding - held)]
            held = holding
        return told

    def scopes(self, log: list[Reading]) -> set[str]:
        """Rule S3: those of which any source's bit is 1."""
        bits = {source: self.bit([one for one in log if one[0].source == source]) for source in {o[0][0] for o in log}}
        return {scope for source in bits for scope in self.scope(source, bits[source])}

    def scope(self, source: str, bit: tuple[bool, Any]) -> list[str]:
        if not bit[0]:
            return []
        if self.subscription.each is not None:
            return [scope_key(bit[1])]
        return [scope_key(None if self.subscription.once else source)]

    def bit(self, readings: list[Reading]) -> tuple[bool, Any]:
        """Rules S1 and S6. Starts matter to debounce and dead band only (rule S2)."""
        bit: tuple[bool, Any] = (False, None)
        since_flip: list[Publication] = []
        flipped_at: Any = None
        boot = 0
        for one, publication in readings:
            if not self.in_for(publication):
                continue
            if one.boot != boot and self.disjoint:
                boot, since_flip, flipped_at = one.boot, [], None
                sure = False
            since_flip.append(publication)
            goal = self.goal(bit, since_flip[-1], sure if self.disjoint else True)
            if goal is None or not self.has_held(bit, goal, since_flip, sure if self.disjoint else True):
                continue
            if not self.has_moved(flipped_at, publication):
                continue
            bit, sure, since_flip = goal, True, []
            band = self.subscription.dead_band
            flipped_at = number(publication, band.attribute) if band else None
        return bit

    def in_for(self, publication: Publication) -> bool:
        only, each = self.subscription.only, self.subscription.each
        return (only is None or only.evaluate(publication) is True) and (each is None or each in publication)

    def goal(self, bit: tuple[bool, Any], publication: Publication, sure: bool) -> tuple[bool, Any] | None:
        """What rule S1 makes of a reading; with timers, until the first flip after a start, all that is TRUE counts."""
        enter = self.subscription.enter.evaluate(publication) is True
        leave = self.subscription.exit.evaluate(publication) is True
        value = publication[self.subscription.each] if self.subscription.each else None
        timed = self.subscription.debounce or self.subscription.dead_band
        if leave and (bit[0] or (timed and not sure)):
            return False, None
        if enter and (not bit[0] or scope_of(value) != scope_of(bit[1]) or (timed and not sure)):
            return True, value
        return None

    def has_held(self, bit: tuple[bool, Any], goal: Any, readings: list[Publication], sure: bool) -> bool:
        """Rule S6: all the readings back to one so much earlier wanted the same."""
        if not self.subscription.debounce:
            return True
        run: list[float | None] = []
        for publication in reversed(readings):
            found = self.goal(bit, publication, sure)
            if found is None or (found[0], scope_of(found[1])) != (goal[0], scope_of(goal[1])):
                break
            run.append(number(publication, "time"))
        times = [time for time in reversed(run) if time is not None]
        return run[0] is not None and run[0] - times[0] >= self.subscription.debounce

    def has_moved(self, flipped_at: float | None, publication: Publication) -> bool:
        band = self.subscription.dead_band
        if band is None or flipped_at is None:
            return True
        now = number(publication, band.attribute)
        return now is not None and abs(now - flipped_at) >= band.by


def scope_of(value: Any) -> str:
    return scope_key(float(value) if isinstance(value, int) and not isinstance(value, bool) else value)


def number(publication: Publication, name: str) -> float | None:
    found = publication.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else None
