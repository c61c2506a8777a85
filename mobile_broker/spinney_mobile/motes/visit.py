"""One connection to a mote of ours: its events come in, its table becomes what is planned, its clock is set.

Who evaluates a state filter changes hands in an overlap, never in a gap (rule S2). The broker stops only when every
event from before the mote's table has changed is here; it begins again before the table changes. Labels set a bit and
never toggle it, so that what both say in between is said once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import aclosing
from typing import Final, Protocol

from spinney.expression import Value
from spinney.mote import adverts
from spinney.mote.link import MoteLink
from spinney.mote.protocol import ControlOp, Event, Info, InfoFlag, LinkError, MoteRefused, PairingNeeded, Status

from ..samples import Digest
from .dialling import Caller, radio_errors
from .joining import Joiner
from .mote import Mote
from .table import Change

HOLD_SECONDS: Final = 10.0
"""For how long a connection is kept after the last event, if nobody else needs it."""
SLEEPER_HOLD_SECONDS: Final = 0.0
"""The same of a mote that sleeps, which each second of a connection costs."""
DRAIN_SECONDS: Final = 60.0
"""For the events that wait on a mote."""

_FULL = re.compile(r"full: .* there are (\d+)")

logger = logging.getLogger(__name__)


class Host(Protocol):
    """What a visit needs of the acquirer."""

    counts: Counter[str]
    clock: Callable[[], float]
    """Seconds since 1970."""
    on_table: Callable[[str, Collection[Digest]], None]
    bit: Callable[[Digest, str, Value | None], bool | None]
    """The owner's bit of a source, which is 1 in no EACH value but this; None while it is not known."""

    def steady(self) -> float:
        """Seconds that go by whatever becomes of the clock."""
        ...

    def told(self, mote: Mote, info: Info) -> None:
        """The mote has said what it is."""

    def take(self, mote: Mote, events: list[Event]) -> None:
        """All events of one sample; on return they are in the outbox."""

    def replan(self, mote: Mote) -> None:
        """What is planned for its table does not do any more."""

    def keep(self, mote: Mote) -> None:
        """What is known of its table must survive from now on."""


class Visit:
    """`run` ends when there is nothing left to do, and raises what goes wrong."""

    def __init__(self, mote: Mote, link: MoteLink, client: Caller, host: Host) -> None:
        self._mote = mote
        self._link = link
        self._client = client
        self._host = host
        self._work = asyncio.Event()
        self._newest = 0
        """The number of the newest event that is in the outbox."""
        self._acked = 0
        self._lost = 0
        self._last_event = 0.0
        self._must_leave = False
        self._has_set_adverts = False
        self.is_settled = False
        """Nothing is left to do but to wait for events."""

    def poke(self) -> None:
        """Something else may be wanted of the mote now."""
        self.is_settled = False
        self._work.set()

    def leave(self) -> None:
        """Somebody else needs the connection: end as soon as nothing is left to do."""
        self._must_leave = True
        self._work.set()

    async def run(self) -> None:
        """The whole visit."""
        mote = self._mote
        info = await self._link.info()
        self._host.told(mote, info)
        if mote.wanted is None:
            return
        await self._be_let_in(info)
        if info.table_crc != mote.table.crc and mote.table.found(await self._link.filters()):
            self._host.replan(mote)
        self._tell_table()
        await self._follow(info)

    async def _be_let_in(self, info: Info) -> None:
        """Pairs where only bonded brokers may write. A mote that does not let us in refuses, or hangs up."""
        if InfoFlag.BONDED_WRITES not in info.flags:
            await self._set_clock()
            return
        try:
            await self._client.pair()
            await self._set_clock()
            await self._link.control(ControlOp.PING)
        except radio_errors() as error:
            raise PairingNeeded("pair", Status.NOT_ALLOWED, str(error), address=self._mote.address) from error

    async def _set_clock(self) -> None:
        """First of all, since the mote gives all its events their time by it."""
        if self._mote.is_time_due(self._host.steady(), self._host.clock()):
            await self._link.set_time(self._host.clock)
            self._mote.clock_set = self._host.steady(), self._host.clock()
            self._host.counts["clocks set"] += 1

    def _tell_table(self) -> None:
        mote = self._mote
        if mote.plan is not None:
            bits = mote.table.bits(mote.plan)
            if bits != mote.told_bits:
                mote.told_bits = bits
                self._host.on_table(mote.source, bits)

    # ---- events

    async def _follow(self, info: Info) -> None:
        """Takes events until there is nothing left to do."""
        mote = self._mote
        if not info.first_event <= mote.next_event <= info.next_event:
            mote.next_event = info.first_event  # of a new boot; or others have been acknowledged meanwhile
        self._newest = self._acked = mote.next_event - 1
        self._last_event = self._host.steady()
        self._lose(mote.dropped_since(info))
        taking = asyncio.create_task(self._take_events(mote.next_event))
        taking.add_done_callback(lambda _: self._work.set())
        try:
            await self._drained(info.next_event, taking)
            mote.table.drained()
            await self._attend(taking)
        finally:
            taking.cancel()
            await asyncio.wait([taking])
            if not taking.cancelled():
                taking.exception()  # has been raised by _turn already, or does not matter any more

    async def _take_events(self, first: int) -> None:
        joiner = Joiner()
        async with aclosing(self._link.events(first)) as events:
            async for event in events:
                if self._mote.wanted is None:
                    return  # it is for the next owner to take
                whole = joiner.add(event)
                if whole is not None:
                    self._host.take(self._mote, whole)
                    self._mote.next_event = event.number + 1
                    self._newest = event.number
                    self._last_event = self._host.steady()
                    self._work.set()

    async def _turn(self, taking: asyncio.Task[None], seconds: float) -> None:
        """Waits for something new; then acknowledges what is in the outbox."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._work.wait()
        self._work.clear()
        if taking.done():
            taking.result()
        if self._newest != self._acked:
            newest = self._newest
            await self._link.ack(newest)
            self._acked = newest
            self._mote.progressed()
        self._look_for_losses()

    async def _drained(self, end: int, taking: asyncio.Task[None]) -> None:
        """Returns when all events before number `end` are in the outbox."""
        async with asyncio.timeout(DRAIN_SECONDS):
            while self._mote.next_event < end and self._mote.wanted is not None:
                await self._turn(taking, DRAIN_SECONDS)

    def _look_for_losses(self) -> None:
        lost = self._link.events_lost - self._lost
        if lost and self.is_settled:
            self._mote.table.shrink_count()  # we were there all the time: one sample gave more than the ring holds
        self._lost += lost
        self._lose(lost)

    def _lose(self, lost: int) -> None:
        """A lost event may have been a label: then all bits are to be told anew."""
        if not lost:
            return
        self._host.counts["events lost"] += lost
        logger.warning("%s: lost %d events, since its ring was full", self._mote.source, lost)
        self._mote.table.renew()
        self._host.replan(self._mote)

    # ---- what is wanted

    async def _attend(self, taking: asyncio.Task[None]) -> None:
        mote = self._mote
        while mote.wanted is not None:
            if mote.plan is not None and mote.table.differs(mote.plan):
                await self._change_table(taking)
                continue
            if mote.plan is not None:
                await self._set_clock()
                await self._switch_sampling()
                await self._set_adverts()
                self._tell_table()
                await self._write_bits()
                self.is_settled = True
                mote.progressed()
            hold = SLEEPER_HOLD_SECONDS if mote.sleeps else HOLD_SECONDS
            left = self._last_event + hold - self._host.steady()
            if self.is_settled and (left <= 0 or self._must_leave):
                return
            await self._turn(taking, max(left, 0.0) if self.is_settled else HOLD_SECONDS)

    async def _switch_sampling(self) -> None:
        mote = self._mote
        on = mote.switch_sampling(self._host.steady())
        if on is not None:
            await self._link.set_sampling(on)
            self._host.counts["sampling on" if on else "sampling off"] += 1
            self._host.told(mote, await self._link.info())

    async def _set_adverts(self) -> None:
        """Once in each visit, now that its table is as planned; that renews it, too."""
        mote = self._mote
        crc = mote.table.crc
        mode = None if mote.info is None else mote.adverts.to_set(mote.info)
        if mode is None or crc is None or self._has_set_adverts:
            return
        self._has_set_adverts = True
        try:
            state = await adverts.set_mode(self._link, mode, crc, mote.adverts.policy.open_after_s)
        except MoteRefused as error:
            mote.adverts.answered(await adverts.state(self._link), self._host.steady(), error.reason or str(error))
            self._host.counts["adverts refused"] += 1
        else:
            mote.adverts.answered(state, self._host.steady())
            self._host.counts["adverts set"] += 1

    async def _write_bits(self) -> None:
        """Bits that the mote does not know and the owner does, as of the newest event (rule S2)."""
        mote = self._mote
        for number in mote.open_bits.due(self._newest):
            entry = mote.table.entries.get(number)
            bit = None if entry is None else self._host.bit(entry.digest, mote.source, entry.value)
            if entry is None or bit is None:
                mote.open_bits.close(number)
                continue
            newest = self._newest
            try:
                await self._link.set_bit(number, entry.epoch & 0xFFFFFFFF, newest, bit)
            except PairingNeeded:
                raise
            except MoteRefused as error:
                logger.debug("%s: %s", mote.source, error)
                mote.open_bits.refused(number, newest)
                self._host.counts["bits refused"] += 1
            else:
                mote.open_bits.close(number)
                mote.progressed()
                self._host.counts["bits written"] += 1

    async def _change_table(self, taking: asyncio.Task[None]) -> None:
        """Makes the table what is planned, and says who evaluates what, in an order that leaves no gap."""
        mote = self._mote
        assert mote.plan is not None
        self.is_settled = False
        self._tell_table()
        changes = mote.table.begin(mote.plan)
        self._host.keep(mote)
        for change in changes:
            if not await self._commit(change):
                return
        info = await self._link.info()
        if info.table_crc != mote.table.crc:
            raise LinkError("its table is not what was committed", address=mote.address)
        await self._drained(info.next_event, taking)
        mote.table.drained()
        self._tell_table()
        self._host.keep(mote)
        self._last_event = self._host.steady()

    async def _commit(self, change: Change) -> bool:
        """False if the mote has less room than was believed, and now it is known."""
        try:
            await self._link.change_filters(*change)
        except MoteRefused as error:
            room = _FULL.search(error.reason)
            if room is None or not self._mote.table.has_only(int(room[1])):
                raise
            self._host.replan(self._mote)
            return False
        self._mote.table.changed(change)
        self._mote.progressed()
        self._host.counts["commits"] += 1
        return True
