"""A mote of the messaging footprint: the firmware's table, machine, labels and ring, and its broker's plan for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from spinney.mote import Attribute, layout
from spinney.mote.protocol import Event
from spinney_mobile.active import ActiveFilter
from spinney_mobile.motes.joining import Joined, join
from spinney_mobile.motes.programs import NoProgram, Program, Programs, Wanted, everything
from spinney_mobile.motes.table import Table
from spinney_mobile.pushing import known
from spinney_mobile.samples import Digest

from .footprint_setting import ROWS
from .footprint_traffic import Traffic, Visits
from .matching import WrongAnswer
from .mote_setting import firmware

ATTRIBUTES: Final = [Attribute(row.name, row.p, row.q, row.low, row.high) for row in ROWS]
LAYOUT: Final = layout(ATTRIBUTES)
EVERY_SAMPLE: Final = everything(ATTRIBUTES, LAYOUT)
KNOWN: Final = known("mote", {})
"""What a broker that moves knows of each mote on it; no filter here asks for a mote by its name."""
BOOT: Final = 1
_NAMES: Final = [row.name for row in ROWS]


@dataclass(frozen=True)
class Pushed:
    """A filter that is active on a phone, and what it is on a mote."""

    active: ActiveFilter
    program: Program | NoProgram

    @classmethod
    def of(cls, active: ActiveFilter) -> Pushed:
        """Compiles it."""
        programs = Programs()
        for _ in programs.make(Wanted({active.digest: active}, KNOWN), ATTRIBUTES, LAYOUT):
            pass
        return cls(active, programs.made[active.digest])


@dataclass(slots=True)
class Counts:
    """Of one mote."""

    commits: int = 0
    visits: int = 0
    events: int = 0
    samples: int = 0
    """Those that left it."""
    kept_back: int = 0


class CarriedMote:
    """Its samples leave it if one of its programs lets them."""

    def __init__(self, source: str, ble: Traffic) -> None:
        library = firmware()
        self.counts = Counts()
        self._source = source
        self._ble = ble
        self._visits = Visits(source, ROWS)
        self._plan = Table()
        self._wanted = Wanted()
        self._table = library.Table(len(ROWS), LAYOUT)
        self._ring = library.Ring()
        self._labels = library.Labels(self._table, self._ring, library.run, [(row.p, row.q) for row in ROWS])
        self._sample = library.Sample([(row.low, row.high) for row in ROWS], BOOT)
        self._is_clock_set = False
        self._visits.look(ble)

    def want(self, pushed: Mapping[Digest, Pushed], epoch: int, on_mote: Callable[[Collection[Digest]], None]) -> None:
        """Makes its table what is wanted now, in a visit, if it is another. `on_mote` hears whose bits it keeps, each
        time before what is not to be kept goes."""
        self._wanted = Wanted({digest: one.active for digest, one in pushed.items()}, KNOWN, epoch)
        plan = self._plan.plan({digest: one.program for digest, one in pushed.items()}, EVERY_SAMPLE, epoch)
        if not self._plan.differs(plan):
            return
        on_mote(self._plan.bits(plan))
        changes = self._plan.begin(plan)
        for add, drop in changes:
            self._table.change(list(add.values()), drop)
            self._plan.changed((add, drop))
        if self._table.crc != self._plan.crc:
            raise WrongAnswer(f"the table of {self._source} is not what was planned")
        self._plan.drained()
        on_mote(self._plan.bits(plan))
        self.counts.commits += len(changes)
        self._visit(changes=changes)

    def observe(self, raws: tuple[int, ...], time_s: float) -> Joined | None:
        """Takes a sample; what a visit brings of it, None if it stays on the mote."""
        sample, ring = self._sample, self._ring
        sample.begin(int(time_s), False)
        for index, raw in enumerate(raws):
            sample.put(index, raw)
        if not self._labels.observe(sample):
            self.counts.kept_back += 1
            return None
        events = [Event.decode(bytes(ring.read(number, 0))) for number in range(ring.first, ring.next)]
        ring.ack(ring.next - 1)
        self.counts.samples += 1
        self.counts.events += len(events)
        self._visit(events=len(events))
        return join(events, self._plan.entries, self._wanted, self._source, ROWS, _NAMES, time_s)

    def _visit(self, *, events: int = 0, changes: list[tuple[dict[int, bytes], list[int]]] | None = None) -> None:
        self.counts.visits += 1
        self._visits.visit(self._ble, events=events, changes=changes or (), sets_clock=not self._is_clock_set)
        self._is_clock_set = True
