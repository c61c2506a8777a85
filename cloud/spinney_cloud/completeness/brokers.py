"""One mobile broker at a time in the past: what it had been asked for, what it had acknowledged, and what that proves.

Until a broker reports that an activation is at work, either that or what was before may decide; for a source whose mote
has not committed it, longer. So nothing was held back of a source if all sets of filters that may have been at work
let it through.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from spinney.ranges import Environment

from .answer import Why
from .entries import Activated, Announced, Leased, Present, Report, Reported
from .proof import Proofs, Wanted, WantedSet, wanted

MAX_SETS: Final = 64
"""Sets of filters that may be at work, remembered of one broker or source; of more it is not known which."""

PossibleSet = WantedSet | None
"""None: nobody knows which."""


class Broker:
    """`reason` says why something may have been held back of a source now, had the broker been there."""

    def __init__(self, client: str, proofs: Proofs) -> None:
        self.client = client
        self.session = ""
        self.is_there = False
        self.is_confirmed = False
        """Whether it has reported on this link."""
        self.is_announced = False
        self.places: Mapping[str, Environment] = {}
        """What is known of each source's readings; of those it announced last, once it announces none any more."""
        self.report: Report | None = None
        self.owned: dict[str, int] = {}
        self._proofs = proofs
        self._sets: list[PossibleSet] = [None]
        self._behind: dict[str, list[PossibleSet]] = {}
        """By source, what its mote may still have, before the others."""
        self._moving: dict[str, int | None] = {}
        """Sources that it owns and may not know of, and the epoch with which it is told."""
        self._partly: dict[str, Wanted] | None = None
        self._new: set[str] = set()
        """Sources that it announces since its last report: they may be motes with filters of somebody else."""

    # ---- what the history says

    def announced(self, entry: Announced) -> None:
        """It announces this."""
        said = entry.announcement
        self._new |= said.sources.keys() - (self.places.keys() if self.is_announced else set())
        self.places = self._proofs.places(said)
        self._is_here(said.session)

    def present(self, entry: Present) -> None:
        """It is there again."""
        self._is_here(entry.session)

    def _is_here(self, session: str) -> None:
        self.is_confirmed = self.is_confirmed and self.is_there and self.session == session
        self.session, self.is_there, self.is_announced = session, True, True

    def away(self, *, over: bool = False) -> None:
        """It is not connected, or announces nothing any more."""
        self.is_there = self.is_confirmed = False
        self.is_announced = self.is_announced and not over

    def activated(self, entry: Activated) -> None:
        """It is about to be told."""
        newest = self._sets[-1]
        if entry.again and self._partly is None and newest is not None and newest.epoch == entry.epoch:
            return
        if entry.leases:
            self._moving = {name: entry.epoch if told is None else told for name, told in self._moving.items()}
        base = self._partly if self._partly is not None and not entry.full else None
        if base is None:
            base = {} if entry.full else None if newest is None else dict(newest.filters)
        if base is None:
            return
        for item in entry.add:
            read = wanted(item)
            base.pop(item["filter"], None)
            if read is not None:
                base[read.digest] = read
        for digest in entry.drop:
            base.pop(digest, None)
        self._partly = base if entry.more else None
        if not entry.more:
            self._begin(WantedSet(entry.epoch, base), is_jump=entry.again)

    def _begin(self, following: WantedSet, *, is_jump: bool) -> None:
        self._sets = [None, following] if is_jump else [*self._sets, following]
        if len(self._sets) > MAX_SETS:
            self._sets = [None, *self._sets[1 - MAX_SETS :]]

    def leased(self, entry: Leased, others: Collection[str]) -> None:
        """It owns these. `others`: those of them that were another's: it is not to publish them before it is told."""
        gone = [name for name in self.owned if name not in entry.add] if entry.full else entry.drop
        for name in tuple(gone):
            self.owned.pop(name, None)
            self._moving.pop(name, None)
        self._moving |= dict.fromkeys(others)
        self.owned |= entry.add

    def reported(self, entry: Reported) -> None:
        """It says what is at work."""
        report = entry.report
        self.report, self.is_confirmed = report, self.is_there
        place = next((at for at, one in enumerate(self._sets) if one is not None and one.epoch == report.epoch), None)
        older = [] if place is None else self._sets[:place]
        if place is not None:
            self._sets = self._sets[place:]
        behind = self.places if report.pending is None else report.pending
        found = {name: [*self._behind.get(name, ()), *older] for name in behind}
        self._behind = {name: sets if len(sets) <= MAX_SETS else [None] for name, sets in found.items() if sets}
        self._moving = {name: told for name, told in self._moving.items() if told is None or told > report.epoch}
        self._new.clear()

    def broken(self) -> None:
        """Something was not written down."""
        self._sets = [None]
        self._behind = {}
        self._partly, self.report, self.is_confirmed = None, None, False

    # ---- what follows

    def outlook(self) -> object:
        """Equal to an earlier one only if `reason` says the same of all sources as it did then. None equals nothing.

        Most of what happens to a broker changes nothing for a question, and need not be looked at source by source.
        """
        sets = [one for one in self._sets if one is not None]
        is_by_name = self._proofs.names_sources() or any(one.names_sources() for one in sets)
        if is_by_name or self._behind or self._moving or self._new or self.report is None:
            return None
        some = {id(environment): source for source, environment in self.places.items()}
        reasons = tuple((key, self.reason(source)) for key, source in some.items())
        return self.is_there, self.is_confirmed, self.is_announced, reasons

    def excludes(self, source: str) -> bool:
        """Whether nothing within what it announced of a source can match."""
        environment = self.places.get(source)
        return environment is not None and not self._proofs.may_match(environment)

    def reason(self, source: str) -> Why | None:
        """Why something of a source may have been held back, had the broker been there; None: nothing was."""
        environment = self.places.get(source)
        if self.report is None:
            return "silent"
        if environment is None:
            return "unowned"
        if self.report.all or not self._proofs.may_match(environment):
            return None
        if source in self._new and self.report.motes:
            return "changing"
        sets = [*self._behind.get(source, ()), *self._sets]
        return self._of_sets(source, environment, sets) or ("changing" if source in self._moving else None)

    def _of_sets(self, source: str, environment: Environment, sets: Sequence[PossibleSet]) -> Why | None:
        failing = [one for one in sets if one is None or not self._proofs.sends(one, source, environment)]
        if not failing:
            return None
        newest = sets[-1]
        if newest is None or newest not in failing:
            return "broken" if None in failing else "changing"
        if all(one is not None and self._proofs.has_label(one) for one in failing):
            return "labels"
        return "density" if self._proofs.is_chosen(newest, environment) else "filters"
