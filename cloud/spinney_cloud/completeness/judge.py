"""Follows the history of one tenant, entry by entry, and says of each source when something may have been held back.

Time is the log's. What is true of a source between two entries is worked out at the first of them; only the sources of
the broker that an entry is about can be others then.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spinney import Filter

from ..records import Run
from .answer import Answer, Reason, Why, merged
from .brokers import Broker
from .entries import (
    Activated,
    Announced,
    Away,
    Broken,
    Entry,
    Kept,
    Leased,
    Over,
    Present,
    Reported,
)
from .gaps import Numbers
from .proof import Proofs, TooMuchError

MAX_SECONDS: Final = 5.0
"""For one answer; beyond it nothing more is proven."""
MAX_NOTED: Final = 100_000
"""Reasons before what follows on one another is made one."""
LOSS_SECONDS: Final = 5.0
"""By how much earlier than a broker says a lost reading may have been taken."""
START_SECONDS: Final = 120.0
"""From the first record of a log, within which its first coordinator has begun to keep history."""
KEPT_SLACK: Final = 2.0
"""The history counts as kept for so many of the periods in which that is said."""


_FETCHED: Final = ("filters", "density")
"""Why a broker itself stopped readings: what it still has of them may be fetched."""
_ABSENT: Final = ("away", "unowned")
"""What may be taken back: a broker that comes back may have been there all the time, and say so."""


@dataclass(slots=True)
class _Open:
    """Why something may be missing of a source, and since when."""

    why: Why
    broker: str | None
    since: float
    instead: Why | None
    """What holds if the broker turns out to have been there."""
    is_owner: bool = False
    """Whether it alone may publish the source."""


def _is_same(before: _Open, now: _Open) -> bool:
    if before.broker != now.broker:
        return False
    is_same = before.why == now.why and before.is_owner == now.is_owner
    return is_same or (before.why in _ABSENT and now.why in _ABSENT)


class Judge:
    """Of one question: a subscription's feed, and a time. `entry` and `heard` in the log's order, then `answer`."""

    def __init__(
        self, kind: str, condition: Filter, digest: str | None, since: float, until: float, *, waits_for_labels: bool
    ) -> None:
        """`digest`: of the normal form of a state subscription; `waits_for_labels`: owners alone evaluate it."""
        self.since = since
        self.until = until
        self._kind = kind
        self._proofs = Proofs(condition, digest)
        self._waits_for_labels = waits_for_labels
        self._brokers: dict[str, Broker] = {}
        self._announcers: dict[str, set[str]] = {}
        self._owners: dict[str, str] = {}
        self._last_owners: dict[str, str] = {}
        self._open: dict[str, _Open] = {}
        self._outlooks: dict[str, object] = {}
        """Of each broker, after the last entry about it."""
        self._private: dict[str, float] = {}
        """By broker, since when private rules may hold readings back."""
        self._seen: set[str] = set()
        """Sources that were announced within the time."""
        self._numbers = Numbers()
        self._fetched: dict[tuple[str, str], tuple[float, float]] = {}
        """By broker and source, from when to when all that it held back has been fetched."""
        self._noted: list[Reason] = []
        self._kept_until: float | None = None
        self._begun: float | None = None
        self._seconds = 0.0
        """Spent on entries."""
        self._gave_up: float | None = None

    # ---- what is read

    def heard(self, at: float, runs: Iterable[Run]) -> None:
        """Publications of the log within the time."""
        self._numbers.heard(at, runs)

    def counted(self, source: str, client: str, boot: int, end: int, since: float, until: float, missing: int) -> None:
        """The same of a boot of a source: who sent it, up to before which number, and how many are missing."""
        self._numbers.counted(source, client, boot, end, since, until, missing)

    def nothing_before(self, at: float) -> None:
        """The log begins here, and nothing was ever there before."""
        self.since = min(max(self.since, at), self.until)
        self._begun = at

    def fetched(self, client: str, source: str, since: float, until: float) -> None:
        """All that a broker held back of a source in this time is in the answer. Before any entry.

        Where order matters, as for states and the best k, that proves nothing: when it would have come is not known.
        """
        if self._kind == "content":
            self._fetched[client, source] = (since, until)

    def note(self, why: Why, since: float, until: float) -> None:
        """Something that the history does not say."""
        self._note(Reason(why, None, None, since, until))

    def entry(self, at: float, entry: Entry) -> None:
        """What the history says. Of what comes after the time only losses count: they may have been in it."""
        if isinstance(entry, Reported) and not entry.again:
            self._lost(at, entry)
        if self._gave_up is not None or at > self.until:
            return
        begun = time.perf_counter()
        try:
            self._entry(at, entry)
        except TooMuchError:
            self._give_up(at)
            return
        self._seconds += time.perf_counter() - begun
        if self._seconds > MAX_SECONDS:
            self._give_up(at)

    def _give_up(self, at: float) -> None:
        self._gave_up = at
        self._note(Reason("effort", None, None, max(at, self.since), self.until))

    def unreadable(self, at: float) -> None:
        """An entry that this version cannot read: nothing is known from there on."""
        if self._gave_up is None and at <= self.until:
            self._gave_up = at
            self._note(Reason("broken", None, None, max(at, self.since), self.until))

    def _entry(self, at: float, entry: Entry) -> None:
        if isinstance(entry, Kept):
            self._is_kept(at, entry.seconds)
            return
        broker = self._brokers.get(entry.client)
        if broker is None:
            broker = self._brokers[entry.client] = Broker(entry.client, self._proofs)
        before = {*broker.places, *broker.owned}
        announced = dict(broker.places) if broker.is_announced else {}
        forgives = self._reported(at, broker, entry) if isinstance(entry, Reported) else self._apply(at, broker, entry)
        if at >= self.since:
            self._seen.update(announced, broker.places if broker.is_announced else ())
        outlook = broker.outlook()
        is_same = outlook is not None and outlook == self._outlooks.get(broker.client)
        self._outlooks[broker.client] = outlook
        if is_same and isinstance(entry, Activated | Reported):
            return
        for source in sorted(before | {*broker.places, *broker.owned}):
            if self._proofs.concerns(source):
                self._look(at, source, broker.client if forgives else None)

    def _reported(self, at: float, broker: Broker, entry: Reported) -> bool:
        """Whether the broker has been there all the time, as it turns out."""
        was_there = broker.report is not None and broker.report.run == entry.report.run
        if entry.report.fresh and broker.is_there:
            self._went_up(broker)
        broker.reported(entry)
        self._is_private(at, broker, is_so=entry.report.private)
        return was_there

    def _apply(self, at: float, broker: Broker, entry: Entry) -> bool:
        match entry:
            case Announced():
                self._announced(broker, entry)
            case Present():
                broker.present(entry)
                self._announce(broker)
            case Away():
                broker.away()
            case Over():
                broker.away(over=True)
                self._unannounce(broker, broker.places)
                self._is_private(at, broker, is_so=False)
            case Activated():
                broker.activated(entry)
            case Leased():
                self._leased(broker, entry)
            case Broken():
                broker.broken()
        return False

    # ---- brokers and their sources

    def _went_up(self, broker: Broker) -> None:
        """It has sent all it heard since it came, of which nothing was known until now."""
        for source in broker.places:
            open_ = self._open.get(source)
            if open_ is not None and (open_.why, open_.broker) == ("silent", broker.client):
                del self._open[source]

    def _announced(self, broker: Broker, entry: Announced) -> None:
        if entry.again and broker.is_there and broker.session == entry.announcement.session:
            return
        self._unannounce(broker, [name for name in broker.places if name not in entry.announcement.sources])
        broker.announced(entry)
        self._announce(broker)

    def _announce(self, broker: Broker) -> None:
        for source in broker.places:
            self._announcers.setdefault(source, set()).add(broker.client)

    def _unannounce(self, broker: Broker, sources: Iterable[str]) -> None:
        for source in sources:
            self._announcers.get(source, set()).discard(broker.client)

    def _leased(self, broker: Broker, entry: Leased) -> None:
        client, before = broker.client, set(broker.owned)
        moved = [name for name in entry.add if self._last_owners.get(name, client) != client]
        broker.leased(entry, moved)
        for source in before - broker.owned.keys():
            if self._owners.get(source) == client:
                del self._owners[source]
        for source in broker.owned:
            self._owners[source] = self._last_owners[source] = client

    def _look(self, at: float, source: str, forgiven: str | None) -> None:
        """What holds of a source from now on."""
        open_, found = self._open.get(source), self._reason(source)
        if open_ is not None and found is not None and _is_same(open_, found):
            open_.instead = open_.instead or found.instead
            open_.is_owner = open_.is_owner and found.is_owner
            return
        if open_ is not None:
            is_forgiven = open_.broker == forgiven and open_.why in _ABSENT
            self._close(source, open_, at, open_.instead if is_forgiven else open_.why)
            del self._open[source]
        if found is not None:
            found.since = at
            self._open[source] = found

    def _close(self, source: str, open_: _Open, at: float, why: Why | None) -> None:
        if why is None:
            return
        reason = Reason(why, source, open_.broker, open_.since, at)
        whole = self._fetched.get((open_.broker or "", source))
        if whole is None or not open_.is_owner or why not in _FETCHED:
            self._note(reason)
            return
        for since, until in ((reason.since, min(at, whole[0])), (max(reason.since, whole[1]), at)):
            if since < until:
                self._note(reason._replace(since=since, until=until))

    def _reason(self, source: str) -> _Open | None:
        owner = self._owners.get(source)
        is_owner = owner is not None
        clients = [owner] if owner is not None else sorted(self._announcers.get(source, ()))
        for client in clients:
            broker = self._brokers[client]
            why = broker.reason(source)
            if not broker.is_announced and not broker.excludes(source):
                return _Open("unowned", client, 0.0, why, is_owner)
            if why == "silent":
                return _Open(why, client, 0.0, None)
            if not broker.is_there or not broker.is_confirmed:
                if broker.excludes(source):  # what is on its way would be whatever had been asked for
                    continue
                return _Open("away", client, 0.0, why, is_owner)
            if why is not None:
                return _Open(why, client, 0.0, None, is_owner)
            if owner is not None and self._waits_for_labels:
                return _Open("labels", client, 0.0, None)
        return None if clients else self._unowned(source)

    def _unowned(self, source: str) -> _Open | None:
        """Whoever announced it last may yet turn out to have been there all the time. What it said of its readings'
        limits is a promise that holds without it.
        """
        last = [one for one in self._brokers.values() if source in one.places]
        if last and all(one.excludes(source) for one in last):
            return None
        if len(last) == 1:
            return _Open("unowned", last[0].client, 0.0, last[0].reason(source))
        return _Open("unowned", None, 0.0, None)

    # ---- what concerns all of a broker's sources

    def _is_private(self, at: float, broker: Broker, *, is_so: bool) -> None:
        if is_so:
            self._private.setdefault(broker.client, at)
        elif (since := self._private.pop(broker.client, None)) is not None:
            self._note(Reason("private", None, broker.client, since, at))

    def _lost(self, at: float, entry: Reported) -> None:
        report = entry.report
        since = at - report.seconds - LOSS_SECONDS
        if report.lost:
            self._note(Reason("lost", None, entry.client, since, at))

    def _is_kept(self, at: float, seconds: float) -> None:
        begun = self.since if self._kept_until is None else self._kept_until
        is_new = self._kept_until is None and self._begun is not None and at <= self._begun + START_SECONDS
        if at > begun and not is_new:
            self._note(Reason("before", None, None, begun, at))
        self._kept_until = at + KEPT_SLACK * seconds

    def _note(self, reason: Reason) -> None:
        """If it touches the time that is asked for."""
        if reason.until < self.since or reason.since > self.until or reason.since < reason.until == self.since:
            return
        if reason.since == reason.until and reason.source is not None:
            return
        clipped = reason._replace(since=max(reason.since, self.since), until=min(reason.until, self.until))
        if len(self._noted) < MAX_NOTED:
            self._noted.append(clipped)
        else:
            self._noted[-1] = Reason("effort", None, None, self.since, self.until)

    # ---- what follows

    def answer(self) -> Answer:
        """Once, when all has been read."""
        answer = Answer(self._kind)
        direct = self._gaps()
        announced = {source for source, clients in self._announcers.items() if clients}
        sources = self._seen | announced | direct
        for source, open_ in self._open.items():
            self._close(source, open_, self.until, open_.why)
        for client, since in self._private.items():
            self._note(Reason("private", None, client, since, self.until))
        begun = self.since if self._kept_until is None else self._kept_until
        if begun < self.until:
            self._note(Reason("before", None, None, begun, self.until))
        for reason in merged(self._noted):
            if reason.source is None or reason.source in sources:
                answer.add(reason)
        answer.sources = len(sources)
        return answer

    def _gaps(self) -> set[str]:
        """The sources that were heard; of those that no mobile broker sent, what is missing is noted."""
        found: set[str] = set()
        for source, clients, gaps in self._numbers.sources():
            found.add(source)
            if clients.isdisjoint(self._brokers) and self._proofs.concerns(source):
                for gap in gaps:
                    self._note(Reason("gap", source, None, gap.since, gap.until))
        if self._numbers.overflown:
            self._note(Reason("effort", None, None, self.since, self.until))
        return found
