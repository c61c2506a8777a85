"""The mobile broker: acquirers, devices, rules, decisions, outbox and uplink, put together; and what it says of itself.

All of it lives in one event loop. `run` goes on until `stop`, or until an adapter is lost for good.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from spinney.expression import Filter, Value

from .acquire import Acquirers, made, make, name_of
from .activations import Activations
from .active import ActiveFilter
from .announcing import Announcer
from .battery import battery
from .credentials import bind_keys
from .dead_letters import DeadLetters
from .deciding import Decider
from .decode import Registry
from .decode.spinney import Description
from .devices import DeviceTable
from .fetching import Question, Stopped
from .leases import Lease, Leases
from .listening import Listener
from .locating import Locating
from .motes import MoteInfo
from .numbering import Numbering
from .outbox import Outbox
from .place import Whereabouts
from .pushing import Pushing
from .reporting import evaluated_by, explain, has_motes, status_of, tally_of
from .rules import Rules
from .samples import Digest, Heard, Sample
from .settings import AcquireMotes, AnyAcquire, Settings
from .status import Status
from .surviving import StateOnly, survived, without_bits
from .taking import Taking
from .telling import Telling
from .uplink import Uplink, access_of
from .watchdog import Watchdog

TICK_SECONDS: Final = 0.25
"""Between looks for what has fallen due."""
BATTERY_SECONDS: Final = 60.0
FORGOTTEN_SECONDS: Final = 30.0
"""Without the link for so long, or since before the start, what was announced may not be in force any more."""

_log = logging.getLogger(__name__)


class Broker:
    """One mobile broker. The outbox is open before, and closed after; it belongs to this broker alone.

    ValueError, OSError, GridError, PlaceError or RuleError say what is wrong with the settings.
    """

    def __init__(
        self,
        settings: Settings,
        outbox: Outbox,
        *,
        listeners: Iterable[Listener] = (),
        registry: Registry | None = None,
        clock: Callable[[], float] = time.time,
        steady: Callable[[], float] | None = None,
    ) -> None:
        """`clock` is the wall's, by which samples have their times; durations go by `steady`, which is never set."""
        self.settings = settings
        self.outbox = outbox
        self.started = clock()
        self.notifications: Callable[[], list[Mapping[str, Any]]] = list
        """The newest of the user's own subscriptions, for the status."""
        self._clock = clock
        self._steady = steady or (_steady_clock(self.started) if clock is time.time else clock)
        self._latest: dict[str, Sample] = {}
        self._local: dict[Digest, ActiveFilter] = {}
        self._leaving: dict[str, int] = {}
        """Sources that are given up, and the place in the outbox before which all of theirs is."""
        self._over: set[str] = set()
        """Sources of which settings say that there are none any more: nothing is heard of them again."""
        self._announced: Mapping[str, Any] | None = None
        self._was_connected = False
        self._lost_at = -math.inf
        self._stopping = asyncio.Event()
        self._configuring = asyncio.Lock()
        self._battery = battery()
        self._battery_at = self.started
        kept = survived(outbox)
        motes = any(isinstance(one, AcquireMotes) and one.enabled for one in settings.acquire)
        keys = bind_keys(settings.devices.bindkeys)
        self.devices = DeviceTable(
            registry or Registry.installed(motes), settings.devices, settings.device, keys, kept, outbox.keep
        )
        self.leases = Leases(settings.client)
        self.whereabouts = Whereabouts(settings.place, clock=clock)
        self.locating = Locating(settings, self.whereabouts, lambda: self.devices.of)
        self.rules = Rules(settings.rule, grid=self.locating.any_grid, resolution=settings.place.resolution, kept=kept)
        self.announcer = Announcer(
            kept, grid=self.locating.grid, resolution=settings.place.resolution, abilities=self.devices.abilities
        )
        self.telling = Telling(self.rules, self.locating)
        for source in self.telling.hidden(self.announcer.sources, self.started):
            self.announcer.forget(source, self.started)
        self.telling.restrict(self.announcer, self.started)
        bits = without_bits(outbox, kept, lambda sources: self.telling.hidden(sources, self.started))
        self.decider = Decider(settings.client, bits)
        self.activations = Activations(self.leases, outbox, self._activated)
        self.uplink = self._make_uplink()
        self.taking = Taking(
            outbox if self.uplink is not None else StateOnly(outbox),
            self.leases,
            self.decider,
            announcer=self.announcer,
            numbering=Numbering(kept),
            rules=self.rules,
            placing=self.locating.of,
            constants=lambda source: self.telling.told(source, self.constants(source)),
            connected=self._is_connected,
            send_all=settings.send == "all",
            listeners=listeners,
        )
        self.acquirers = Acquirers(self, silent_seconds=settings.watchdog.silent, clock=self._steady)
        self.pushing = Pushing(self, kept, outbox.keep, clock)
        self._add_acquirers()
        self.watchdog = Watchdog(settings.watchdog, self.acquirers)
        self.activations.start(kept)

    def _make_uplink(self) -> Uplink | None:
        access = access_of(self.settings)
        if access is None:
            return None
        dead_letters = DeadLetters(self.outbox.log.folder)
        uplink = Uplink(access, self.outbox, self.activations, self.leases, dead_letters)
        uplink.on_announced = self._cloud_has
        uplink.tally.counts = lambda: tally_of(self)
        uplink.health.codes = lambda: self.announcer.health(self._steady(), self._tells_battery)
        uplink.reports.look = lambda: evaluated_by(self)
        uplink.fetches.look = self._stopped
        return uplink

    def _add_acquirers(self) -> None:
        for one in self.settings.acquire:
            if one.enabled:
                self._add_acquirer(one)

    def _add_acquirer(self, one: AnyAcquire) -> None:
        if isinstance(one, AcquireMotes):
            self.acquirers.add(self.pushing.make(one))
        else:
            self.acquirers.add(made(name_of(one), lambda: make(self.pushing.hearing(one), self._clock)))

    async def configure(self, settings: Settings) -> None:
        """Take over what may change while it runs: devices, and acquirers but for motes. One after another."""
        async with self._configuring:
            await self._configure(settings)

    async def _configure(self, settings: Settings) -> None:
        self._configure_devices(settings)
        await self.pushing.identify_again()
        before, after = _hot(self.settings), _hot(settings)
        there = {acquirer.name for acquirer in self.acquirers}
        for name in [name for name, one in before.items() if after.get(name) != one and name in there]:
            await self.acquirers.remove(name)
        for name, one in after.items():
            if before.get(name) != one:
                self._add_acquirer(one)
        self.settings = replace(
            self.settings, devices=settings.devices, device=settings.device, acquire=settings.acquire
        )

    def _configure_devices(self, settings: Settings) -> None:
        """Sources that are called otherwise now, or not taken, or hidden by a rule with what they are now, are over."""
        before = self.devices.sources
        self.devices.configure(settings.devices, settings.device, bind_keys(settings.devices.bindkeys))
        announced = set(self.announcer.sources)
        hidden = self.telling.hidden(announced, self._clock())
        self._over = announced & ((self._over | before) - self.devices.sources | hidden)
        for source in self._over:
            self._leave(source)
            self.taking.valid.forget(source)
        self.telling.restrict(self.announcer, self._steady())

    # ---- samples: what acquirers call ----------------------------------------------------------------------------

    def heard(self, heard: Heard) -> str | None:
        """Something that has to be decoded; why it is refused, if it is and somebody can be told."""
        is_presence = self.pushing.heard(heard)
        sample = self.devices.take(heard, over_gatt=is_presence)
        if is_presence:
            self.present(self.devices.of.source(heard.address))
        elif sample is not None:
            return self.sampled(sample)
        return None if heard.values is None else self.devices.why_refused(heard.address)

    def sampled(self, sample: Sample) -> str | None:
        """Something that is known whole; why it is refused, if it is."""
        now = self._steady()
        self._look_at_link(now)
        refused = self.taking.take(sample, now)
        if sample.source in self.announcer:
            self._latest[sample.source] = sample
            if sample.battery is not None:
                self.announcer.set_battery(sample.source, sample.battery)
        return refused

    def present(self, source: str) -> None:
        """A source is here, whatever it measures."""
        if self.telling.may_appear(source, self._clock()):
            self.announcer.hear(source, self._steady(), self.telling.told(source, self.constants(source)))

    def _tells_battery(self, source: str) -> bool:
        return bool(self.telling.told(source, {"battery": None}))

    def constants(self, source: str) -> dict[str, Value]:
        """Attributes that all publications of a source have."""
        return self.telling.constants(source)

    def unpublish(self, id: str) -> None:
        """A local publisher withdraws a reading; of what is never shared the cloud is not told that, either."""
        self.taking.valid.unpublish(id)
        if self.uplink is not None and not self.telling.is_hidden(id.split(":")[0], self._clock()):
            self.uplink.unpublish(id)

    # ---- what is active -----------------------------------------------------------------------------------------

    def _activated(
        self, added: Sequence[ActiveFilter], dropped: Sequence[Digest], leases: Mapping[str, Lease], more: bool
    ) -> None:
        self.taking.change(added, dropped, leases, self._steady())
        if not more:
            self.pushing.refresh()

    def is_private(self, source: str) -> bool:
        """Whether a private rule may stop or change its readings."""
        return self.rules.may_touch(source, self.constants(source))

    def epoch(self, source: str) -> int:
        """Of its lease; 0 while it has none."""
        return self.leases.epoch(source)

    def described(self, info: MoteInfo) -> None:
        """What a mote says of itself."""
        self.present(info.source)
        self.devices.describe(info.address, info.name, Description(info.rows, info.boot, info.sequence), info.battery)
        if info.source in self.announcer:
            abilities = {**info.abilities, **self.locating.abilities}
            self.announcer.describe(info.source, self.telling.told(info.source, abilities), self._steady())
            if info.battery is not None:
                self.announcer.set_battery(info.source, info.battery)

    def forgotten(self, source: str) -> None:
        """A mote is no longer this source; if nothing else is, it is over."""
        if source in self.announcer and source not in self.devices.sources:
            self._over.add(source)
            self._leave(source)

    def may_use(self, source: str) -> bool:
        """Whether to connect to a source: it is ours; or, without the cloud, nobody else's as far as we know."""
        if source in self._leaving:
            return False
        return self.leases.epoch(source) > 0 or (self.leases.owns(source) and not self._is_connected())

    def wanted(self) -> Mapping[Digest, ActiveFilter]:
        """All that is active, and what local subscriptions need."""
        return {**self.decider.filters, **self._local}

    def want_locally(self, feeds: Mapping[str, Filter]) -> None:
        """What local subscriptions need, by their keys: motes are to let it through, too."""
        self._local = {one.digest: one for one in (ActiveFilter.local(key, feed) for key, feed in feeds.items())}
        self.pushing.refresh()

    def on_mote(self, source: str, digests: Collection[Digest]) -> None:
        """The filters that a mote evaluates from now on."""
        self.decider.on_mote(source, digests)
        self.taking.tick(self._steady())

    def bit(self, digest: Digest, source: str, value: Value | None) -> bool | None:
        """This broker's bit of a source, which is 1 in no EACH value but this; None while it is not known."""
        return self.decider.bit(digest, source, value)

    def _is_connected(self) -> bool:
        return self.uplink is not None and self.uplink.connected

    # ---- its life -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop`; AdapterLost when an adapter does not hear any more, whatever is tried."""
        tasks = [asyncio.create_task(one, name=name) for name, one in self._parts().items()]
        try:
            async with self.acquirers:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            self.taking.finish(self._steady())
            if self.uplink is not None:
                await self.uplink.stop()
        finally:
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        for error in ended:
            if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
                raise error

    def _parts(self) -> dict[str, Any]:
        parts = {
            "stop": self._stopping.wait(),
            "time": self._keep_time(),
            "place": self._keep_place(),
            "watchdog": self._watch(),
        }
        parts["uplink"] = self.outbox.run() if self.uplink is None else self.uplink.run()
        return parts

    def stop(self) -> None:
        """Have `run` end: nothing more is heard, what can be sent soon is sent, the cloud is told."""
        self._stopping.set()

    async def _keep_place(self) -> None:
        await self.whereabouts.run()
        await self._stopping.wait()

    async def _watch(self) -> None:
        await self.watchdog.run()
        await self._stopping.wait()

    async def _keep_time(self) -> None:
        while not self._stopping.is_set():
            self.tick(self._steady())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await self._stopping.wait()

    def tick(self, now: float) -> None:
        """Let happen what has fallen due by the steady clock."""
        wall = self._clock()
        place = self.telling.place(wall)
        self.announcer.move(place, now, is_coarse=place != self.whereabouts.at(wall))
        silent = {*self.announcer.silent(now), *(one for one in self.pushing.closed if one in self.announcer)}
        for source in silent:
            self._leave(source)
        if self._leaving:
            self._forget_left({*silent, *self._over}, now)
        is_due = self.announcer.due(now)
        self.taking.tick(now)
        self._settle(now)
        self._look_at_link(now)
        if is_due:
            self._announce(now)

    def _settle(self, now: float) -> None:
        oldest = next(self.outbox.log.entries(), None)
        self.taking.whole.settle(now, self.outbox.log.end, None if oldest is None else oldest.place)

    def _stopped(self, question: Question) -> Stopped:
        """What there is to a question of the cloud's."""
        now, taking = self._steady(), self.taking
        stopped = taking.stopped(question.test, now)
        return Stopped(now, stopped, lambda kept: taking.tell(kept, now), self._whole, taking.whole.stored)

    def _whole(self) -> dict[str, float]:
        if has_motes(self):  # what those of them hold back that are not heard now, nobody here knows
            return {}
        sources = (one for one in self.announcer.sources if self.leases.epoch(one))
        found = {source: self.taking.whole.since(source) for source in sources}
        return {source: since for source, since in found.items() if since is not None}

    def _look_at_link(self, now: float) -> None:
        """A cloud that has not heard of this broker for long has dropped its activation, and will say so."""
        if self._was_connected == self._is_connected():
            return
        self._was_connected = not self._was_connected
        if not self._was_connected:
            self._lost_at = now
        elif now - self._lost_at > FORGOTTEN_SECONDS:
            self.announcer.forgotten(now)
        self.pushing.refresh()

    def _leave(self, source: str) -> None:
        """Give a source up: first all that concerns it goes up, under our lease; then it is announced no longer."""
        if source not in self._leaving:
            self.pushing.release(source)
            self.taking.let_go(source, self._steady())
            self.taking.release(source)
            self._leaving[source] = self.outbox.log.end

    def _forget_left(self, gone: Collection[str], now: float) -> None:
        """What is stored of sources that were given up is with the cloud; those that were heard again stay."""
        oldest = next(self.outbox.log.entries(), None)
        for source, end in list(self._leaving.items()):
            if oldest is not None and oldest.place < end:
                continue
            del self._leaving[source]
            if source in gone:
                self._over.discard(source)
                self._latest.pop(source, None)
                self.taking.forget(source)
                self.announcer.forget(source, now)
            else:
                self.pushing.refresh()

    def _announce(self, now: float) -> None:
        if now - self._battery_at >= BATTERY_SECONDS:
            self._battery, self._battery_at = battery(), now
        body = self.announcer.announce()
        self.taking.tick(now)  # what is announced is kept before anybody acts on it
        self._announced = body if self._battery is None else {**body, "battery": self._battery}
        if self.uplink is None:
            self.announcer.departed(now)
            return
        self.uplink.want([source for source in self.announcer.sources if source not in self._leaving])
        self.uplink.announce(self._announced)

    def _cloud_has(self, body: Mapping[str, Any]) -> None:
        if body is self._announced:
            self.announcer.departed(self._steady())

    # ---- what it says of itself ---------------------------------------------------------------------------------

    def status(self) -> Status:
        """All of it, at this moment."""
        return status_of(self, self._clock())

    def wall(self, moment: float | None) -> float | None:
        """What the wall's clock of now says that it was at a moment of the steady one."""
        return None if moment is None else moment + self._clock() - self._steady()

    def latest(self, source: str) -> Sample | None:
        """The sample of a source that was heard last."""
        return self._latest.get(source)

    def explain(self, publication: Mapping[str, Any]) -> list[dict[str, Any]]:
        """For each active filter, whether it wants this publication, and which parts of it made it so."""
        return explain(self, publication)


def _steady_clock(start: float) -> Callable[[], float]:
    """It runs on from the start, whatever becomes of the machine's clock, and over suspension as far as that does."""
    begun = time.monotonic()
    return lambda: start + time.monotonic() - begun


def _hot(settings: Settings) -> dict[str, AnyAcquire]:
    """The acquirers that may come and go."""
    return {name_of(one): one for one in settings.acquire if one.enabled and not isinstance(one, AcquireMotes)}
