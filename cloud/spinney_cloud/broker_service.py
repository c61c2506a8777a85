"""Mobile brokers: takes their announcements in, keeps their leases, and tells each what is active on it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Final

import orjson
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from spinney.subscription import Subscription

from . import records
from .activation import Activations
from .announced_health import ToldHealth, by_source
from .announcement_table import Announcements, Change
from .announcements import (
    MEMBERS,
    Announcement,
    AnnouncementError,
    AnnouncementVersionError,
    Askable,
    Away,
    Counted,
    Over,
    Reporting,
    Said,
    read_announcement,
)
from .announcements import decode as decode_announcement
from .broker_knowledge import BrokerKnowledge
from .broker_sender import ActivationVersionError, BrokerSender, Wish
from .broker_sender import decode as decode_activation
from .completeness.entries import MAX_SECONDS, PASSING, REPORTS, read_report, reported
from .completeness.recorder import Recorder, entry_of
from .completeness.rewriting import rewrite
from .expiry import Expiry
from .leases import Leases
from .log_errors import LogError, TooLarge
from .names import ACTIVATIONS, ANNOUNCEMENTS, LOG, RELIABILITIES, SUBSCRIPTIONS, log_subject
from .nats_log import NatsLog
from .settings import Coordinator
from .source_report_store import Share, SourceReportStore
from .subscription_reading import Refusal
from .subscriptions import StoredSubscription, StoredSubscriptionError

log = logging.getLogger(__name__)

SLICE_SECONDS: Final = 0.004
"""For so long activation may work before others have their turn."""
LONGEST_TICK_SECONDS: Final = 30.0
KEEP_SECONDS: Final = 5.0
"""How much of the sources' reliability a killed coordinator forgets."""
MAX_BROKERS: Final = 100_000
"""Announcements of all tenants."""
ROOM_BYTES: Final = 1024
"""Of the server's max_payload, beside an announcement as it is kept: what its leases are kept with takes no more."""
READ_BYTES: Final = 16 * 1024
"""Of an announcement that is read at once."""
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Starts a task whose failure is the process's."""


class BrokerService:
    """The one writer of announcements and activations."""

    def __init__(
        self,
        nats: NatsLog,
        settings: Coordinator,
        metrics: CollectorRegistry,
        *,
        spawn: Spawn,
        settled: Callable[[], Awaitable[object]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.announcements = Announcements()
        self.activations: dict[str, Activations] = {}
        """Of the tenants in which there are brokers."""
        self.leases: dict[str, Leases] = {}
        self.senders: dict[tuple[str, str], BrokerSender] = {}
        self.counts: dict[tuple[str, str], Mapping[str, int]] = {}
        """What brokers say that they sent and spared; as told since our start."""
        self.damaged = 0
        self._nats = nats
        self._clock = clock
        self._spawn = spawn
        self._settled = settled
        """Waits until the subscriptions that have been told of are in their bucket."""
        self._writer = nats.writer(LOG)
        self.recorder = Recorder(self._writer)
        self._bucket = nats.bucket(ANNOUNCEMENTS)
        self._ends: Expiry[tuple[str, str]] = Expiry()
        self._order = asyncio.Lock()
        self._work = asyncio.Event()
        self._tick = asyncio.Event()
        self._stored: dict[tuple[str, str], dict[str, Any]] = {}
        self._loading: dict[str, set[str]] = {}
        """Tenants whose subscriptions are being read, with the keys that have changed meanwhile."""
        self._reports = SourceReportStore(nats.bucket(RELIABILITIES))
        self._shares: dict[str, list[Share]] = {}
        """How reliable sources were before the start, of tenants without brokers since."""
        self._works: dict[str, Iterator[str | None]] = {}
        self._marked: dict[str, float] = {}
        """When the oldest change came that a tenant's activation has not dealt with."""
        self._is_told = False
        """False until all is known that is in the buckets: only then brokers are told."""
        self._announced = Counter(
            "spinney_coordinator_announcements", "Announcements, wills and ends", ["what"], registry=metrics
        )
        self._active = Gauge(
            "spinney_coordinator_active_filters", "Filters on a mobile broker", ["tenant", "broker"], registry=metrics
        )
        self._brokers = Gauge("spinney_coordinator_brokers", "Mobile brokers that are announced", registry=metrics)
        self._seconds = Histogram(
            "spinney_coordinator_activation_seconds",
            "From a change to its departure to a mobile broker",
            buckets=_BUCKETS,
            registry=metrics,
        )

    # ---- From the start ----------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read announcements and activations; subscriptions come by `subscribed`."""
        for key, entry in (await self._nats.bucket(ACTIVATIONS).load()).items():
            tenant, _, client = key.partition(".")
            try:
                stored = decode_activation(entry.value)
            except ActivationVersionError as error:
                self._complain(key, error)
                continue
            self._stored[tenant, client] = stored
            self._leases(tenant).restore(client, stored["leases"])
            self._leases(tenant).epoch = max(self._leases(tenant).epoch, stored["lease_epoch"])
        self._shares = await self._reports.load()
        self.damaged += self._reports.damaged
        for key, entry in (await self._bucket.load()).items():
            try:
                self._restore(decode_announcement(entry.value))
            except AnnouncementVersionError as error:
                self._complain(key, error)
        for leases in self.leases.values():
            leases.settle()

    @property
    def failures(self) -> int:
        """Filters that could not be compared with announcements."""
        return sum(activations.failures for activations in self.activations.values())

    def _complain(self, key: str, error: Exception) -> None:
        self.damaged += 1
        log.error("%s is passed over: %s", key, error)

    def _restore(self, announcement: Announcement) -> None:
        tenant, client = announcement.tenant, announcement.client
        self.announcements.put(tenant, client, announcement)
        self._ends.set((tenant, client), announcement.ends(self.settings.away_grace))
        self._leases(tenant).want(client, announcement.lease)
        activations = self.activations.get(tenant) or self._begin(tenant)
        activations.restore_choice(self._stored.get((tenant, client), {}).get("chosen", {}))
        activations.announce(announcement)

    def _begin(self, tenant: str) -> Activations:
        """The first of its brokers is announced."""
        activations = self.activations[tenant] = Activations()
        for source, period, share in self._shares.pop(tenant, ()):
            activations.reports.restore(source, period, share, time.monotonic())
        return activations

    def start(self) -> None:
        """Work: first on all that has been loaded, then on what happens."""
        for tenant, client in list(self._stored):
            self._sender(tenant, client)
        for announcement in self.announcements:
            self._sender(announcement.tenant, announcement.client)
        self._spawn(self._activate())
        self._spawn(self._keep_time())
        self._spawn(self._keep_reports())
        self._spawn(rewrite(self))

    def _leases(self, tenant: str) -> Leases:
        return self.leases.setdefault(tenant, Leases())

    # ---- What happens ------------------------------------------------------------------------------------------

    def subscribed(self, key: str, stored: StoredSubscription | None, parsed: Subscription | None) -> None:
        """A subscription has begun, changed or ended."""
        tenant = key.split(".")[1]
        activations = self.activations.get(tenant)
        if activations is None:
            return
        if tenant in self._loading:
            self._loading[tenant].add(key)
        if activations.subscribe(key, stored, parsed):
            self._mark(tenant)

    def _mark(self, tenant: str) -> None:
        self._marked.setdefault(tenant, time.monotonic())
        self._work.set()

    async def announced(self, tenant: str, client: str, item: Any, received: float) -> dict[str, Any] | None:
        """Take what a broker says; what to reply."""
        try:
            said, knowledge = await _understand(item, tenant, client, min(received, self._clock()))
        except AnnouncementError as error:
            raise Refusal(422, str(error), path=error.path) from None
        if isinstance(said, Counted):
            self._count(tenant, client, said)
            return None
        if isinstance(said, ToldHealth):
            async with self._order:
                await self._told_health(tenant, client, said)
            return None
        if isinstance(said, Askable):
            async with self._order:
                await self._askable(tenant, client, said)
            return None
        if isinstance(said, Reporting):
            await self._reported(tenant, client, said, received)
            return None
        if isinstance(said, Announcement):
            self._check_size(said)
        async with self._order:
            change = self.announcements.decide(tenant, client, said, self._clock())
            self._announced.labels(_name(said) if change.is_change else "ignored").inc()
            if change.before is None and len(self.announcements) >= MAX_BROKERS:
                raise Refusal(429, f"{MAX_BROKERS} mobile brokers are announced; that is the limit")
            if change.is_change:
                await self._make(tenant, client, change, knowledge)
            if isinstance(said, Announcement) and said.counts is not None:
                self.counts[tenant, client] = said.counts
        if isinstance(said, Away):
            return None
        return {"request": "ann", "ok": True, "session": said.session, "members": MEMBERS, "reports": REPORTS}

    def _check_size(self, said: Announcement) -> None:
        """Before anything changes: what the bucket cannot take would be refused at each start again. What it can take
        is larger than the record of its sources, and than its leases. Their health may be told later."""
        size, most = len(said.encode()) + len(said.sources), self._nats.connection.max_payload - ROOM_BYTES
        if size > most:
            raise Refusal(413, f"{size} bytes as it is kept, at most {most}: announce fewer sources or attributes")

    async def _reported(self, tenant: str, client: str, said: Reporting, received: float) -> None:
        """Into the history, as of now: what was lost may be older by as much as the report is."""
        try:
            report = read_report(said.report)
        except AnnouncementError as error:
            raise Refusal(422, str(error), path=error.path) from None
        if said.fetch:
            async with self._order:
                await self._askable(tenant, client, Askable(said.session))
        announcement = self.announcements.get(tenant, client)
        is_current = announcement is not None and announcement.session == said.session and announcement.away is None
        self._announced.labels("reported" if is_current else "ignored").inc()
        if is_current:
            late = max(0.0, self._clock() - received)
            value = {**said.report, "seconds": min(report.seconds + late, MAX_SECONDS)}
            await self.recorder.write(tenant, reported(client, value))
            lasting = {name: one for name, one in value.items() if name not in PASSING}
            await self._sender(tenant, client).reported(said.session, lasting)

    def _count(self, tenant: str, client: str, said: Counted) -> None:
        announcement = self.announcements.get(tenant, client)
        is_current = announcement is not None and announcement.session == said.session
        self._announced.labels("counts" if is_current else "ignored").inc()
        if is_current:
            self.counts[tenant, client] = said.counts

    async def _told_health(self, tenant: str, client: str, said: ToldHealth) -> None:
        before = self.announcements.get(tenant, client)
        codes = None
        if before is not None and before.session == said.session and before.away is None:
            with suppress(ValueError):  # it told of an announcement that we do not have: the next one tells again
                codes = by_source(said.codes, before.sources)
        self._announced.labels("ignored" if codes is None else "health").inc()
        if before is None or codes is None:
            return
        after = replace(before, health={**(before.health or {}), **codes})
        self.announcements.put(tenant, client, after)
        await self._bucket.put(f"{tenant}.{client}", after.encode())
        if self.activations[tenant].told_health(after):
            self._mark(tenant)

    async def _askable(self, tenant: str, client: str, said: Askable) -> None:
        before = self.announcements.get(tenant, client)
        is_current = before is not None and before.session == said.session and before.away is None
        self._announced.labels("askable" if is_current else "ignored").inc()
        if before is not None and is_current and not before.fetch:
            after = replace(before, fetch=True)
            self.announcements.put(tenant, client, after)
            await self._bucket.put(f"{tenant}.{client}", after.encode())

    async def _make(self, tenant: str, client: str, change: Change, knowledge: BrokerKnowledge | None = None) -> None:
        """First the log is told of sources that come and go (rule S4), then the bucket, then all others."""
        after = change.after
        come, gone = self.announcements.put(tenant, client, after)
        if (entry := entry_of(client, change)) is not None:
            await self.recorder.write(tenant, entry)
        for sources, over in ((come, False), (gone, True)):
            if sources:
                record = records.Announced(tenant, tuple(sources), over)
                await (await self._writer.put(log_subject("announced", tenant), records.encode(record)))
        if after is None:
            self.counts.pop((tenant, client), None)
            await self._bucket.delete(f"{tenant}.{client}")
        else:
            await self._bucket.put(f"{tenant}.{client}", after.encode())
        self._ends.set((tenant, client), None if after is None else after.ends(self.settings.away_grace))
        self._tick.set()
        leases = self._leases(tenant)
        moved = leases.end(client) if after is None else leases.ask(client, after.lease)
        self._follow(tenant, client, change, knowledge)
        for one in {one for source, before in moved.items() for one in (before, *leases.asking(source)) if one}:
            self._due(self._sender(tenant, one))

    def _follow(self, tenant: str, client: str, change: Change, knowledge: BrokerKnowledge | None) -> None:
        """What the change means for activation."""
        after = change.after
        sender = self._sender(tenant, client)
        if after is None:
            if tenant in self.activations:
                self.activations[tenant].end(client, was_due=change.was_due)
            self._due(sender)
        else:
            if tenant not in self.activations:
                self._begin(tenant)
                self._loading[tenant] = set()
                self._spawn(self._load_subscriptions(tenant))
            lost_count = after.have != sender.epoch if after.have is not None else change.new_session
            sender.is_full_due = sender.is_full_due or (after.away is None and lost_count)
            self.activations[tenant].announce(after, knowledge)
        self._mark(tenant)

    async def _load_subscriptions(self, tenant: str) -> None:
        """The tenant's first broker has come: what is wanted must be known."""
        activations = self.activations[tenant]
        await self._settled()
        async with aclosing(self._nats.bucket(SUBSCRIPTIONS).each()) as changes:
            async for key, value, revision in changes:
                if value is not None and key.split(".")[1] == tenant and key not in self._loading[tenant]:
                    try:
                        activations.subscribe(key, StoredSubscription.decode(value))
                    except StoredSubscriptionError as error:
                        self._complain(key, error)
                if revision % 50 == 0:
                    await asyncio.sleep(0)
        del self._loading[tenant]
        activations.tell_all()
        self._mark(tenant)

    # ---- What follows ------------------------------------------------------------------------------------------

    def _sender(self, tenant: str, client: str) -> BrokerSender:
        sender = self.senders.get((tenant, client))
        if sender is None:
            stored = self._stored.pop((tenant, client), None)
            sender = self.senders[tenant, client] = BrokerSender(
                self._nats, tenant, client, stored, self._clock, self.recorder
            )
        return sender

    async def _activate(self) -> None:
        """Works for each tenant in turn, so that one with much to do holds up nobody else for long."""
        while True:
            busy = [tenant for tenant, activations in self.activations.items() if activations.has_work]
            for tenant in {*busy, *self._works}:
                self._work_for(tenant)
                await asyncio.sleep(0)
            self._brokers.set(len(self.announcements))
            if not busy and not self._works:
                self._begin_to_tell()
                self._work.clear()
                await self._work.wait()

    def _begin_to_tell(self) -> None:
        if not self._is_told and not self._loading:
            self._is_told = True
            for sender in list(self.senders.values()):
                self._due(sender)

    def _work_for(self, tenant: str) -> None:
        work = self._works.get(tenant)
        if work is None:
            work = self._works[tenant] = self.activations[tenant].work()
        end = time.perf_counter() + SLICE_SECONDS
        for client in work:
            if client is not None and tenant not in self._loading:
                self._due(self._sender(tenant, client))
            if time.perf_counter() > end:
                return
        del self._works[tenant]
        self._marked.pop(tenant, None)

    def _due(self, sender: BrokerSender) -> None:
        sender.mark(self._marked.get(sender.tenant))
        if self._is_told and sender.task is None:
            sender.task = self._spawn(self._send(sender))

    async def _send(self, sender: BrokerSender) -> None:
        """Tell the broker until there is nothing more to tell. One that is away is told when it is back."""
        tenant, client = sender.tenant, sender.client
        try:
            while sender.is_due:
                sender.is_due = False
                announcement = self.announcements.get(tenant, client)
                self._active.labels(tenant, client).set(0 if sender.sent is None else len(sender.sent))
                if announcement is not None and announcement.away is not None:
                    break
                wish = self._wish(tenant, client)
                try:
                    seconds = await sender.send(wish)
                except TooLarge as error:
                    sender.cannot(error)
                    continue
                if seconds is not None:
                    self._seconds.observe(seconds)
                self._active.labels(tenant, client).set(len(wish.active))
        finally:
            sender.task = None
        if self.announcements.get(tenant, client) is None:
            self._active.remove(tenant, client)

    def _wish(self, tenant: str, client: str) -> Wish:
        leases = self._leases(tenant)
        told = []
        for source in sorted(leases.wanted_by(client)):
            lease = leases.owner(source)
            told.append({"source": source, "owner": lease and lease.client, "epoch": lease and lease.epoch})
        activations = self.activations.get(tenant)
        broker = activations.brokers.get(client) if activations else None
        active = {} if broker is None else broker.desired()
        chosen = {} if broker is None or activations is None else activations.chosen_on(client)
        return Wish(active, told, leases.held_by(client), leases.epoch, chosen)

    @property
    def is_told(self) -> bool:
        """Whether all is known that is in the buckets."""
        return self._is_told

    # ---- What is shown -----------------------------------------------------------------------------------------

    def show_broker(self, one: Announcement) -> dict[str, Any]:
        """A broker as people see it."""
        sender = self.senders.get((one.tenant, one.client))
        return {
            "broker": one.client,
            "session": one.session,
            "received": one.received,
            "ends": one.ends(self.settings.away_grace),
            "away": one.away is not None,
            "fetch": one.fetch,
            "sources": len(one.sources),
            "place": one.place and one.place.to_json(),
            "battery": one.battery,
            "radio_load": one.radio_load,
            "leases": self._leases(one.tenant).held_by(one.client),
            "epoch": sender and sender.epoch,
            "filters": len(sender.sent or ()) if sender else 0,
            "counts": self.counts.get((one.tenant, one.client)),
        }

    def show_activation(self, one: Announcement, at_most: int) -> dict[str, Any]:
        """What is active on it."""
        activations = self.activations.get(one.tenant)
        sender = self.senders.get((one.tenant, one.client))
        sent = (sender.sent if sender else None) or {}
        shown = []
        for digest, active in list(sent.items())[:at_most]:
            item = active.to_json()
            if active.sources is not None and activations is not None:
                item = {**item, "chosen": activations.choices(digest, active.sources)}
            shown.append(item)
        return {
            "broker": one.client,
            "epoch": sender and sender.epoch,
            "count": len(sent),
            "active": shown,
            "sent_at": sender and sender.sent_at,
            "pending": bool(sender and (sender.is_due or sender.task)),
            "trouble": sender and sender.why,
            "leases": self._leases(one.tenant).held_by(one.client),
        }

    # ---- Time --------------------------------------------------------------------------------------------------

    async def _keep_time(self) -> None:
        """End announcements."""
        while True:
            self._tick.clear()
            for tenant, client in self._ends.due(self._clock()):
                async with self._order:
                    before = self.announcements.get(tenant, client)
                    ends = None if before is None else before.ends(self.settings.away_grace)
                    if before is not None and ends is not None and ends <= self._clock():
                        self._announced.labels("ended").inc()
                        await self._make(tenant, client, Change(before, None, was_due=True))
                    elif ends is not None:
                        self._ends.set((tenant, client), ends)
            try:
                async with asyncio.timeout(self._until_next()):
                    await self._tick.wait()
            except TimeoutError:
                continue

    def _until_next(self) -> float:
        following = self._ends.next()
        return max(LONGEST_TICK_SECONDS if following is None else following - self._clock(), 0.001)

    async def _keep_reports(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                await self.keep_reports()
            except LogError as error:
                log.warning("the reliability of sources is written later: %s", error)

    async def keep_reports(self) -> None:
        """Write down how reliable sources have been."""
        reports = {tenant: activations.reports for tenant, activations in self.activations.items()}
        await self._reports.keep(reports, time.monotonic())


async def _understand(item: Any, tenant: str, client: str, received: float) -> tuple[Said, BrokerKnowledge | None]:
    """What is said, and what follows from it. A long one is read in a thread: others have their turns beside it."""
    if len(orjson.dumps(item)) > READ_BYTES:
        return await asyncio.to_thread(_read, item, tenant, client, received)
    return _read(item, tenant, client, received)


def _read(item: Any, tenant: str, client: str, received: float) -> tuple[Said, BrokerKnowledge | None]:
    said = read_announcement(item, tenant, client, received)
    return said, BrokerKnowledge(said) if isinstance(said, Announcement) else None


def _name(said: Announcement | Away | Over) -> str:
    return {Announcement: "announced", Away: "away", Over: "over"}[type(said)]
