"""Spinney motes over GATT: connected to only when there is something to do, and never more of them than slots allow.

Adverts tell when: a mote's scan response has the CRC of its table and the number of its last event; an advert without
readings says as much itself. Where nothing of that is heard, a mote is looked at at intervals. What the mote lets
through comes as events, each of which is acknowledged only when it is in the outbox.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from spinney.expression import Value
from spinney.known import Known
from spinney.mote.advert import BTHOME
from spinney.mote.adverts import Mode
from spinney.mote.link import MoteLink
from spinney.mote.protocol import Event, Info, NotAMote, PairingNeeded

from ..active import ActiveFilter
from ..decode.spinney import advert_mode, is_current, presence, scan_data
from ..device_settings import is_among
from ..samples import Acquirer, Digest, Heard, Sink
from .adverts import AdvertPolicy
from .dialling import Dial, Dialler, FellAsleep, dial, radio_errors
from .identity import Identity, MoteInfo, UnusableMoteError, described
from .joining import join
from .mote import AHEAD_SECONDS, Mote
from .programs import Wanted, everything
from .visit import Visit

MAX_MOTES: Final = 1000
"""Motes that are known; beyond it the one unheard for longest that nobody wants is forgotten."""
CONNECTIONS: Final = 3
"""At one time by one adapter, which manage 3 to 7."""
CLOSED_SECONDS: Final = 600.0
"""A mote that does not let us write is asked again after so long."""
TICK_SECONDS: Final = 1.0
"""Between looks for what has fallen due."""
COMPILE_AT_ONCE: Final = 8
"""Filters compiled before others get their turn."""
KEY: Final = "mote:"
"""Begins the keys of what is kept."""

logger = logging.getLogger(__name__)


class Motes(Acquirer):
    """All motes in reach. All methods belong to the event loop's thread.

    `identify` gives what settings say of the device at an address that calls itself so; None if it is not allowed.
    `addresses` are those of motes whose scan responses may never be heard, or their names, as patterns.
    `policy` is what motes of ours are to advertise.
    `kept` is what `keep` was given, by key, before the last restart.
    """

    may_be_silent = True

    def __init__(
        self,
        identify: Callable[[str, str | None], Identity | None],
        *,
        name: str = "motes",
        adapter: str | None = None,
        addresses: Collection[str] = (),
        connections: int = CONNECTIONS,
        adapters: Mapping[str, str | None] | None = None,
        policy: AdvertPolicy | None = None,
        kept: Mapping[str, bytes] | None = None,
        keep: Callable[[Mapping[str, bytes | None]], None] = lambda _: None,
        dial: Dial = dial,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name)
        self.clock = clock
        self.on_table: Callable[[str, Collection[Digest]], None] = lambda _, __: None
        """Told which filters' bits the mote of a source keeps from now on."""
        self.on_info: Callable[[MoteInfo], None] = lambda _: None
        """Told what a mote has said of itself, at each connection."""
        self.on_name: Callable[[str, str], None] = lambda _, __: None
        """Told before that what the mote at an address is called."""
        self.on_forgotten: Callable[[str], None] = lambda _: None
        """Told which source has no mote any more, so far as is known."""
        self.bit: Callable[[Digest, str, Value | None], bool | None] = lambda *_: None
        """Asked for the owner's bit of a source, which is 1 in no EACH value but this; None while it is not known."""
        self._identify = identify
        self._adapter = adapter
        self._adapters = adapters or {}
        self._addresses = addresses
        self._connections = connections
        self._policy = policy or AdvertPolicy()
        self._kept = {key: value for key, value in (kept or {}).items() if key.startswith(KEY)}
        self._keep = keep
        self._dialler = Dialler(dial)
        self._sink: Sink | None = None
        self._motes: OrderedDict[str, Mote] = OrderedDict()
        self._sources: dict[str, str] = {}
        """Addresses."""
        self._wanted: dict[str, Wanted] = {}
        """By source, of motes that have not been heard, too."""
        self._gone: dict[str, set[Digest]] = {}
        """By source, filters that were wanted, where the mote's table does not know it yet."""
        self._unplanned: dict[str, None] = {}
        """Addresses."""
        self._due: dict[str, float] = {}
        """Addresses and since when, the first first."""
        self._leaving: set[str] = set()
        """Addresses of motes that are forgotten when their visit has ended."""
        self._visits: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, Visit] = {}
        self._wake = asyncio.Event()

    @staticmethod
    def steady() -> float:
        """Seconds that go by whatever becomes of the clock."""
        return asyncio.get_running_loop().time()

    # ---- what others say

    def heard(self, heard: Heard) -> bool:
        """An advert, of whatever. True if its sample comes over GATT, so that the advert is mere presence."""
        scan, there = scan_data(heard), presence(heard)
        mote = self._motes.get(heard.address)
        if mote is None:
            if scan is None and there is None and KEY + heard.address not in self._kept and not self._is_named(heard):
                return False
            mote = self._meet(heard)
            if mote is None:
                return False
        self._motes.move_to_end(heard.address)
        mote.called = heard.name or mote.called
        now = self.steady()
        current = scan if scan is not None and is_current(scan, heard) else None
        mote.hear(heard.rssi, current, now, advert_mode(heard), there)
        if heard.address not in self._visits:
            mote.adapter = self._adapter or self._adapters.get(heard.acquirer)
            if heard.address not in self._due:
                self._look(mote, now)
        return mote.is_heard_over_gatt

    def _is_named(self, heard: Heard) -> bool:
        """Whether settings say that it is a mote, although its advert does not."""
        if not self._addresses or BTHOME not in heard.services:
            return False
        identity = self._identify(heard.address, heard.name)
        return identity is not None and is_among(self._addresses, heard.address, heard.name, identity.source)

    def want(
        self, source: str, filters: Mapping[Digest, ActiveFilter], known: Known | None = None, epoch: int = 0
    ) -> None:
        """A source is ours, under this epoch: these filters are wanted of it, the oldest first.

        `known` is what its publications hold beside what a mote measures: only what is fixed by settings, or is
        withdrawn by another call before it changes.
        """
        wanted = Wanted(dict(filters), known or Known(), epoch)
        if self._wanted.get(source) == wanted:
            return
        before = self._wanted.get(source, wanted)
        self._wanted[source] = wanted
        if gone := {digest for digest, one in before.filters.items() if _begins_again(one, filters.get(digest))}:
            self._gone.setdefault(source, set()).update(gone)
        mote = self._of(source)
        if mote is not None:
            self._set_wanted(mote, wanted)

    def release(self, source: str) -> None:
        """A source is another's, or gone: its mote is left as it is, for its next owner to change."""
        wanted = self._wanted.pop(source, None)
        mote = self._of(source)
        if wanted is not None and mote is not None:
            self._gone[source] = set(wanted.filters)
            self._set_wanted(mote, None)
            mote.told_bits = None
            self.on_table(source, ())

    async def identify_again(self) -> None:
        """Settings have changed: what they call otherwise, or give other attributes, is met anew, or no more."""
        for address in list(self._motes):
            self.identify(address)
        while visits := [self._visits[address] for address in self._leaving]:
            await asyncio.wait(visits)

    def identify(self, address: str) -> None:
        """The same of the mote at one address, which is forgotten when its visit has ended."""
        mote = self._motes.get(address)
        if mote is None or address in self._leaving or self._identify(address, mote.called) == mote.identity:
            return
        self.release(mote.source)
        visit = self._visits.get(address)
        if visit is None:
            self._forget(mote)
        else:
            self._leaving.add(address)
            visit.cancel()

    def _forget(self, mote: Mote) -> None:
        if self._sources.get(mote.source) == mote.address:
            self._wanted.pop(mote.source, None)
            del self._sources[mote.source]
            self.on_forgotten(mote.source)
        self._motes.pop(mote.address, None)
        self._due.pop(mote.address, None)
        self._unplanned.pop(mote.address, None)

    def has_committed(self, source: str) -> bool:
        """Whether nothing is held back on a source's mote but by what is wanted now."""
        mote = self._of(source)
        return mote is None or mote.has_committed

    def trouble(self, source: str) -> str | None:
        """Why the last connection to a source's mote failed; None if it did not."""
        mote = self._of(source)
        return None if mote is None else mote.error

    def _of(self, source: str) -> Mote | None:
        return self._motes.get(self._sources.get(source, ""))

    def has(self, source: str) -> bool:
        """Whether a source is a mote."""
        return source in self._sources

    def _set_wanted(self, mote: Mote, wanted: Wanted | None) -> None:
        if mote.table.forget_bits(self._gone.pop(mote.source, ())):
            self.keep(mote)  # they may come back after a restart, before the mote has been connected to
        mote.want(wanted, self.steady())
        self.replan(mote)
        if mote.address in self._running:
            self._running[mote.address].poke()

    def _meet(self, heard: Heard) -> Mote | None:
        identity = self._identify(heard.address, heard.name)
        if identity is None or not self._make_room():
            return None
        mote = self._motes[heard.address] = Mote(heard.address, identity, self._policy)
        self._sources[identity.source] = heard.address
        kept = self._kept.get(KEY + heard.address)
        if kept is not None:
            mote.restore(kept)
        if identity.source in self._wanted:
            self._set_wanted(mote, self._wanted[identity.source])
        return mote

    def _make_room(self) -> bool:
        if len(self._motes) < MAX_MOTES:
            return True
        unwanted = (address for address, mote in self._motes.items() if mote.wanted is None)
        address = next((one for one in unwanted if one not in self._visits), None)
        self.counts["forgotten" if address else "beyond"] += 1
        if address is None:
            return False
        self._forget(self._motes[address])
        if self._kept.pop(KEY + address, None) is not None:
            self._keep({KEY + address: None})
        return True

    # ---- what a visit says

    def told(self, mote: Mote, info: Info) -> None:
        """The mote has said what it is."""
        self.on_name(mote.address, info.name)
        if mote.address in self._leaving:
            return
        if mote.told(info):
            self.replan(mote)
        if not mote.is_closed:
            self.on_info(described(info, mote.address, mote.identity))

    def take(self, mote: Mote, events: list[Event]) -> None:
        """All events of one sample."""
        assert self._sink is not None
        assert mote.wanted is not None
        self.counts["events"] += len(events)
        now = self.clock()
        time_ = events[0].time
        if time_ is not None and time_ > now + AHEAD_SECONDS:
            mote.clock_set = None
        joined = join(events, mote.table.entries, mote.wanted, mote.source, mote.rows, mote.names, now)
        not_told = mote.kept_back(events[0].boot, events[0].sequence, came=joined is not None)
        # In any other mode its adverts have told everybody what its filters kept back.
        self.counts["kept back" if mote.adverts.mode is Mode.PRESENCE else "broadcast"] += not_told
        if joined is None:
            self.counts["presences"] += 1
            return
        self.counts["stray labels"] += joined.strays
        self.counts["samples"] += 1
        self._sink.sampled(joined.sample(mote.identity, self.name, now, mote.rssi))
        self.counts["undecided"] += bool(joined.undecided)
        mote.open_bits.told(events)

    def replan(self, mote: Mote) -> None:
        """What is planned for its table does not do any more."""
        mote.plan = None
        self._unplanned[mote.address] = None
        self._wake.set()

    def keep(self, mote: Mote) -> None:
        """What is known of its table must survive from now on."""
        key, now = KEY + mote.address, mote.to_bytes()
        if self._kept.get(key) != now:
            self._kept[key] = now
            self._keep({key: now})

    # ---- the loop

    async def run(self, sink: Sink) -> None:
        """Connects to whatever is due."""
        self._sink = sink
        try:
            while True:
                self._wake.clear()
                await self._make_plans()
                self._fill_slots()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS):
                        await self._wake.wait()
        finally:
            await self._end_visits()

    async def _end_visits(self) -> None:
        visits = list(self._visits.values())
        for visit in visits:
            visit.cancel()
        if visits:
            await asyncio.wait(visits)

    async def _make_plans(self) -> None:
        while self._unplanned:
            address = next(iter(self._unplanned))
            del self._unplanned[address]
            mote = self._motes.get(address)
            if mote is not None and mote.wanted is not None and mote.rows:
                await self._plan(mote, mote.wanted)

    async def _plan(self, mote: Mote, wanted: Wanted) -> None:
        try:
            attributes, layout = mote.attributes, mote.layout
        except UnusableMoteError as error:
            mote.failed(str(error), self.steady())
            return
        for count, _ in enumerate(mote.programs.make(wanted, attributes, layout, mote.program_version), 1):
            if count % COMPILE_AT_ONCE == 0:
                await asyncio.sleep(0)
        if mote.wanted is not wanted or mote.address in self._unplanned:
            return  # it has changed meanwhile, and is planned again
        mote.plan = mote.table.plan(mote.programs.made, everything(attributes, layout), wanted.epoch)
        if mote.address in self._running:
            self._running[mote.address].poke()

    def _look(self, mote: Mote, now: float) -> None:
        if mote.reason(now, self.clock()) is not None:
            self._due.setdefault(mote.address, now)
            self._wake.set()

    def _fill_slots(self) -> None:
        """The ones due for longest first; who only holds a connection gives way."""
        now, wall = self.steady(), self.clock()
        for address, mote in self._motes.items():
            if address not in self._visits and mote.reason(now, wall) is not None:
                self._due.setdefault(address, now)
        for address in list(self._due):
            due = self._motes.get(address)
            reason = None if due is None else due.reason(now, wall)
            if due is None or reason is None:
                del self._due[address]
            elif self._has_slot(due.adapter):
                del self._due[address]
                logger.debug("%s: connecting: %s", due.source, reason)
                self._begin(due)
            else:
                self._ask_to_leave(due.adapter)

    def _has_slot(self, adapter: str | None) -> bool:
        used = sum(1 for address in self._visits if self._motes[address].adapter == adapter)
        return used < self._connections

    def _ask_to_leave(self, adapter: str | None) -> None:
        for address, visit in self._running.items():
            if visit.is_settled and self._motes[address].adapter == adapter:
                visit.leave()
                return

    # ---- one connection

    def _begin(self, mote: Mote) -> None:
        self.counts["connections"] += 1
        task = asyncio.create_task(self._visit(mote), name=f"mote {mote.source}")
        self._visits[mote.address] = task
        task.add_done_callback(lambda ended: self._ended(mote, ended))

    async def _visit(self, mote: Mote) -> None:
        async with self._dialler.connection(mote, self.steady) as client, MoteLink(client) as link:
            visit = self._running[mote.address] = Visit(mote, link, client, self)
            try:
                await visit.run()
            finally:
                del self._running[mote.address]

    def _ended(self, mote: Mote, task: asyncio.Task[None]) -> None:
        """Whatever a mote, or what its samples bring about, raises ends this connection only."""
        del self._visits[mote.address]
        self._wake.set()
        if mote.address in self._leaving:
            self._leaving.remove(mote.address)
            self._forget(mote)
        if task.cancelled():
            return
        now, error = self.steady(), task.exception()
        if error is None:
            mote.succeeded(now)
        elif isinstance(error, FellAsleep):
            self.counts["asleep"] += 1
        else:
            self._failed(mote, error, now)
        if mote.rows:
            self.keep(mote)

    def _failed(self, mote: Mote, error: BaseException, now: float) -> None:
        self.counts["failures"] += 1
        why = str(error) or type(error).__name__
        mote.failed(why, now)
        if isinstance(error, PairingNeeded):
            mote.refusals += 1
            mote.error = f"it lets only paired brokers write ({why}): restart it, which opens its pairing for a while"
        elif isinstance(error, NotAMote) and not mote.rows:
            mote.is_none = True
            mote.error = f"{why}; if it is among addresses, take it out"
        if not mote.is_heard_over_gatt:
            mote.not_before = now + CLOSED_SECONDS
        if isinstance(error, (*radio_errors(), UnusableMoteError)):
            logger.info("%s: %s", mote.source, mote.error)
        else:
            logger.error("%s: what it sent could not be taken: %s", mote.source, why, exc_info=error)

    # ---- for pages

    def health(self, source: str) -> dict[str, Any] | None:
        """Of a source's mote, whether it is connected or waits for that, and which filters stay here, and why."""
        mote = self._of(source)
        if mote is None:
            return None
        return mote.health(connected=mote.address in self._running, waiting=mote.address in self._due)

    @property
    def closed(self) -> list[str]:
        """Sources whose motes give us nothing: who may write to them is to own them."""
        return [mote.source for mote in self._motes.values() if mote.is_closed]

    @property
    def connected(self) -> int:
        """Motes that are connected to at this moment."""
        return len(self._running)


def _begins_again(before: ActiveFilter, after: ActiveFilter | None) -> bool:
    """Whether the bits of a filter mean nothing any more: nobody wants it, or one more subscription begins with it."""
    return after is None or after.begins_again(before)
