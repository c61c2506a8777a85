"""What becomes of each sample: private rules and place, then its number, then who wants it, then the outbox.

All of it happens in one call, synchronously, and what it changes is stored in one step with what goes up: whenever this
process is killed, bits, numbers and budgets are those of the publications in the outbox.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from spinney import Label, PublicationError, PublicationId
from spinney.expression import Value
from spinney.publication import read

from .active import ActiveFilter
from .announcing import MAX_SOURCES, Announcer
from .deciding import NOBODY, Decider, Decision
from .leases import Lease, Leases
from .listening import Listener, Taken
from .numbering import Numbering
from .outbox import OutRecord
from .plain import check_place
from .rules import Publication, Ruled, Rules
from .samples import HEARD, Digest, Sample
from .valid import Kept, Valid
from .whole import Whole

HOLD_SECONDS: Final = 10.0
"""For how long the first adverts of a source without numbers wait to be told who owns it; while connected only."""
MAX_HELD: Final = 32
"""Of one source; of more, the oldest wait no longer."""
MAX_SENT: Final = 4_096
"""Publications that went up, remembered for labels that come after them."""
SIZED_EVERY: Final = 64
"""The size of a source's publications is looked at once in so many, for counting bytes."""


class Store(Protocol):
    """What the outbox is to others."""

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        """All of it, or nothing."""


class Placing(Protocol):
    """What adds to samples where they were made."""

    def __call__(self, sample: Sample) -> Mapping[str, Value]:
        """lat, long and cell, as far as they are known."""
        ...


class _Waiting(NamedTuple):
    sample: Sample
    ruled: Ruled
    since: float


class Taking:
    """Everything between acquirers and outbox. `take` is quick, and never waits."""

    def __init__(
        self,
        outbox: Store,
        leases: Leases,
        decider: Decider,
        *,
        announcer: Announcer,
        numbering: Numbering,
        rules: Rules,
        placing: Placing = lambda sample: {},  # noqa: ARG005  # as Placing names it
        constants: Callable[[str], Mapping[str, Value]] = lambda _: {},
        connected: Callable[[], bool] = lambda: False,
        send_all: bool = False,
        listeners: Iterable[Listener] = (),
    ) -> None:
        self.decider = decider
        self.announcer = announcer
        self.rules = rules
        self.whole = Whole()
        self.valid = Valid(on_gone=self.whole.gone)
        self.counts: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.spared: Counter[str] = Counter()
        """By source."""
        self.listeners = list(listeners)
        self._outbox = outbox
        self._leases = leases
        self._numbering = numbering
        self._placing = placing
        self._constants = constants
        self._connected = connected
        self._send_all = send_all
        self._waiting: dict[str, deque[_Waiting]] = {}
        self._gone_up: OrderedDict[PublicationId, None] = OrderedDict()
        self._sizes: dict[str, tuple[int, int]] = {}
        """By source: bytes of one, and how many more may be taken to be so large."""

    # ---- samples -----------------------------------------------------------------------------------------------

    def take(self, sample: Sample, now: float) -> str | None:
        """One sample, as it was heard or measured; why it is refused, if it is."""
        self.counts["sampled"] += 1
        try:
            publication = read(self._publication(sample))
        except PublicationError as error:
            self.counts["refused"] += 1
            return str(error)
        ruled = self.rules.apply(publication, sample.battery, now)
        if ruled.publication is None:
            self.counts["suppressed"] += 1
            return None
        if not self.announcer.hear(sample.source, now, self._constants(sample.source)):
            self.counts["refused"] += 1
            return f"{sample.source:.100} is one source more than the {MAX_SOURCES} that a broker may announce"
        if not self._leases.owns(sample.source):
            self.counts["others"] += 1
            self.whole.gone(sample.source, now)
            self.announcer.overheard(sample.source, ruled.publication, now)
            return f"{sample.source:.100} is another mobile broker's now"
        if self._is_to_wait(sample):
            self._hold(_Waiting(sample, ruled, now))
        else:
            self._take(sample, ruled, now)
        return None

    def _publication(self, sample: Sample) -> Publication:
        """A sample with all its attributes, but for its number."""
        publication: Publication = {**sample.values, "source": sample.source, "time": sample.time}
        if sample.place is not None:
            check_place(*sample.place)
            publication["lat"], publication["long"] = sample.place
        publication |= self._placing(sample)
        if sample.heard != sample.time:
            publication[HEARD] = sample.heard
        if sample.type is not None:
            publication["type"] = sample.type
        if sample.valid_for is not None:
            publication["valid_for"] = sample.valid_for
        if sample.raw is not None:
            publication["raw"] = sample.raw
        return publication

    def _take(self, sample: Sample, ruled: Ruled, now: float) -> None:
        if self.rules.stops(ruled.budgets, now):
            self.counts["suppressed"] += 1
            return
        epoch = self._leases.epoch(sample.source)
        numbered = self._numbering.number(sample, epoch)
        if numbered is None:
            self.counts["repeated"] += 1
            self._take_marks(sample, ruled, epoch, now)
            return
        assert ruled.publication is not None
        publication = {"id": str(numbered.id), **ruled.publication}
        outside = self.announcer.sampled(sample.source, publication, now)
        decision = self.decider.decide(
            numbered.id, publication, epoch, sample.marks, sample.undecided, late=numbered.late
        )
        self.counts["late"] += numbered.late
        self.counts["outside"] += outside
        self.counts["weak_hits"] += sample.passed and not decision.send
        for listener in self.listeners:  # first: if this is killed before it is stored, the source tells it again
            listener.taken(Taken(numbered.id, publication, sample, decision.send))
        needed = decision.send or outside
        if needed or self._send_all:
            self._send(numbered.id, publication, epoch, decision, ruled, now)
            self._count_unneeded(0 if needed else self._size(sample.source, publication))
        else:
            self._spare(publication, epoch, ruled, now)

    def _send(
        self,
        id: PublicationId,
        publication: Mapping[str, Any],
        epoch: int,
        decision: Decision,
        ruled: Ruled,
        now: float,
    ) -> None:
        self._gone_up[id] = None
        if len(self._gone_up) > MAX_SENT:
            self._gone_up.popitem(last=False)
        self.counts["sent"] += 1
        self.counts["sent_unwanted"] += not decision.send
        self.counts["bytes_sent"] += self._size(id.source, publication)
        self.sent[id.source] += 1
        spent = self.rules.spend(ruled.budgets, now)
        self._store([OutRecord(publication, epoch, decision.labels)], spent, id.source)

    def _count_unneeded(self, size: int) -> None:
        """What goes up only because all does: what demand-driven sending would have spared."""
        if size:
            self.counts["unneeded"] += 1
            self.counts["bytes_unneeded"] += size

    def _spare(self, publication: Mapping[str, Any], epoch: int, ruled: Ruled, now: float) -> None:
        source = publication["source"]
        self.counts["spared"] += 1
        self.counts["bytes_spared"] += self._size(source, publication)
        self.spared[source] += 1
        self.valid.stop(publication, epoch, now, ruled.budgets)
        self._store([], {}, source)

    def _size(self, source: str, publication: Mapping[str, Any]) -> int:
        size, left = self._sizes.get(source, (0, 0))
        if not left:
            size, left = len(json.dumps(publication, separators=(",", ":"))), SIZED_EVERY
        self._sizes[source] = (size, left - 1)
        return size

    def _take_marks(self, sample: Sample, ruled: Ruled, epoch: int, now: float) -> None:
        """Marks that a mote's event brings of a sample that has been heard before, as an advert."""
        if not (sample.marks or sample.undecided) or sample.boot is None or sample.sequence is None:
            return
        id = PublicationId(sample.source, sample.boot, sample.sequence)
        publication = {"id": str(id), **(ruled.publication or {})}
        labels = self.decider.marked(id, epoch, sample.marks)
        labels |= self.decider.undecided(id, publication, epoch, sample.undecided)
        if id in self._gone_up:
            decided = {digest: label for digest, label in labels.items() if label.mark.bit is not None}
            self.counts["undecided"] += len(labels) - len(decided)
            self._send_silent(decided, epoch)
        elif labels:
            self._send(id, publication, epoch, Decision(True, labels), ruled, now)
        else:
            self._store([], {})

    def _send_silent(self, labels: Mapping[Digest, Label], epoch: int) -> None:
        silent = {digest: Label(label.mark, label.membership, silent=True) for digest, label in labels.items()}
        self._store([OutRecord(None, epoch, silent)] if silent else [], {})

    def _store(
        self, records: Sequence[OutRecord], state: Mapping[str, bytes | None], source: str | None = None
    ) -> None:
        """In one step; with anything of a source also its number, so that none comes twice."""
        changes = {**state, **self.decider.changes(), **self.announcer.changes()}
        if source is not None and (records or changes or self._numbering.begins(source)):
            changes |= self._numbering.stored(source)
        if records or changes:
            self._outbox.append(records, changes)

    # ---- whose source it is ------------------------------------------------------------------------------------

    def _is_to_wait(self, sample: Sample) -> bool:
        """Whether to wait for word of who owns the source: what has no numbers of its own would be published twice, if
        others hear it, too. What came otherwise than by radio has been acknowledged, or will be, and does not wait.
        """
        if sample.source in self._waiting:
            return True
        if sample.rssi is None or sample.sequence is not None or not self._connected():
            return False
        return self._leases.epoch(sample.source) == NOBODY and sample.source not in self._leases.known

    def _hold(self, waiting: _Waiting) -> None:
        held = self._waiting.setdefault(waiting.sample.source, deque())
        held.append(waiting)
        self.counts["held"] += 1
        if len(held) > MAX_HELD:
            oldest = held.popleft()
            self._take(oldest.sample, oldest.ruled, waiting.since)

    def let_go(self, source: str, now: float) -> None:
        """What waits for word of the source's owner waits no longer: it is known, or takes too long to be."""
        for waiting in self._waiting.pop(source, ()):
            if self._leases.owns(source):
                self._take(waiting.sample, waiting.ruled, now)
            else:
                self.counts["others"] += 1
                self.whole.gone(source, now)

    # ---- what is active ----------------------------------------------------------------------------------------

    def change(
        self, added: Sequence[ActiveFilter], dropped: Sequence[Digest], leases: Mapping[str, Lease], now: float
    ) -> None:
        """An activation."""
        new = [one for one in added if one.digest not in self.decider.filters]
        labels = self.decider.change(added, dropped, leases)
        for digest, label in labels.items():
            self._send_silent({digest: label}, label.mark.order[0])
        for source in [source for source in self._waiting if source in leases]:
            self.let_go(source, now)
        for kept in self.valid.wanted_by(new, now):
            if self.rules.stops(kept.budgets, now):
                self.counts["suppressed"] += 1
                continue
            self.counts["sent_late"] += 1
            self._store([OutRecord(kept.publication, kept.epoch)], self.rules.spend(kept.budgets, now))
        self._store([], {})

    def stopped(self, test: Callable[[Mapping[str, Any]], bool], now: float) -> Iterator[Kept]:
        """What was stopped, is valid and passes the test, of sources that are ours; it stays here."""
        found = self.valid.matching(test, now)
        return (kept for kept in found if self._leases.owns(kept.publication["source"]))

    def tell(self, kept: Kept, now: float) -> bool:
        """Whether one of these may be told to somebody who asks; rules count it then as what goes up, once."""
        if self.rules.are_spent(kept.budgets, now):
            return False
        if kept.budgets:
            self.valid.spent(kept.publication["id"])
            self._store([], self.rules.spend(kept.budgets, now))
        return True

    def release(self, source: str) -> None:
        """Give a source up: what was withheld of its bits goes up before anything else is said of it."""
        epoch = self._leases.epoch(source)
        self._send_silent(self.decider.release(source) if epoch != NOBODY else {}, epoch)

    def forget(self, source: str) -> None:
        """A source that is not here any more is counted no longer."""
        for counts in (self.sent, self.spared, self._sizes):
            counts.pop(source, None)

    def finish(self, now: float) -> None:
        """Nothing more comes."""
        for source in list(self._waiting):
            self.let_go(source, now)
        self._store([], {})

    def tick(self, now: float) -> None:
        """Time has passed."""
        for source, held in list(self._waiting.items()):
            if now - held[0].since >= HOLD_SECONDS or not self._connected():
                self.let_go(source, now)
        self._store([], {})
