"""Keeps Home Assistant told: entities when an attribute is new, readings as they come, and who has fallen silent."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from spinney.client import Notification
from spinney.client.address import Server
from spinney.client.dialogue import Pauses
from spinney.client.link import Acked, Arrived, Event, Granted, Link, Lost, Opened, Refused, Will
from spinney.expression import Value

from ..foreign_access import ForeignAccess, password_in
from ..listening import Taken
from ..loop_handover import LoopHandover
from ..settings import HomeAssistant as Settings
from . import discovery
from .discovery import Describer, Message

log = logging.getLogger(__name__)

MAX_SOURCES: Final = 1_000
"""Beyond it the one silent for longest is no longer known; it is described anew when it is heard again."""
MAX_UNACKED: Final = 1_000
"""Messages that the server has not acknowledged; beyond it readings are left out, and counted."""
MAX_SCOPES: Final = 10_000
"""In which one subscription's state holds; of more it is not known when the last has gone."""
MAX_EVENTS: Final = 2_000
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0

Units = Callable[[str], Mapping[str, str]]
"""The units of a source's attributes, as far as they are known."""


@dataclass(slots=True)
class _Known:
    """A source, and what Home Assistant has been told of it since the link came up."""

    newest: Taken
    described: set[str] = field(default_factory=set)
    there: bool = False


@dataclass(slots=True)
class _Subscription:
    """One whose notifications are told, too."""

    text: str
    has_state: bool
    holds_in: set[Value] = field(default_factory=set)
    """Scopes."""


class HomeAssistant:
    """A Listener. `run` keeps the link; without one, readings are not kept: the next one tells as much."""

    def __init__(
        self, settings: Settings, client: str, version: str, units: Units, clock: Callable[[], float] = time.time
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Entities, readings, left out."""
        self.error: str | None = "not connected yet"
        self._settings = settings
        self._client = client
        self._describer = Describer(settings.prefix, client, version, settings.expire_after)
        self._units = units
        self._clock = clock
        self._sources: OrderedDict[str, _Known] = OrderedDict()  # the one silent for longest first
        self._subscriptions: dict[str, _Subscription] = {}
        self._link: Link | None = None
        self._unacked = 0

    # ---- the broker's side

    def subscribed(self, sid: str, text: str, *, has_state: bool) -> None:
        """A new subscription, whose notifications come by `notified`; its state begins at off (rule I4)."""
        self._subscriptions[sid] = _Subscription(text, has_state)
        if self._link is not None:
            self._describe(sid, self._subscriptions[sid])

    def notified(self, note: Notification) -> None:
        """One notification of a subscription."""
        known = self._subscriptions[note.sid]
        publication = note.publication or {}
        if known.has_state:
            scope = publication.get("source") if note.scope is None else note.scope
            if note.why == "enter" and scope is not None and len(known.holds_in) < MAX_SCOPES:
                known.holds_in.add(scope)
            elif scope is not None:
                known.holds_in.discard(scope)
        if self._link is None or self._unacked >= MAX_UNACKED:
            self.counts["left out"] += 1
            return
        self._publish(discovery.event(note.sid, note.why, publication, note.scope))
        self.counts["notifications"] += 1
        if known.has_state:
            self._publish(discovery.in_state(note.sid, holds=bool(known.holds_in)))

    def _describe(self, sid: str, known: _Subscription) -> None:
        for message in self._describer.subscription(sid, known.text, has_state=known.has_state):
            self._publish(message)
        if known.has_state:
            self._publish(discovery.in_state(sid, holds=bool(known.holds_in)))

    def taken(self, taken: Taken) -> None:
        """One reading."""
        source = taken.id.source
        known = self._sources.get(source)
        if known is None:
            known = self._sources[source] = _Known(taken)
            if len(self._sources) > MAX_SOURCES:
                self._gone(self._sources.popitem(last=False)[1])
        known.newest = taken
        self._sources.move_to_end(source)
        if self._link is None:
            self.counts["left out"] += 1
        else:
            self._tell(known)

    def _tell(self, known: _Known) -> None:
        taken = known.newest
        source, publication = taken.id.source, taken.publication
        rssi = taken.sample.rssi
        if not known.described.issuperset(publication):
            entities = self._describer.entities(source, publication, self._units(source), rssi=rssi is not None)
            for name, message in entities:
                if name not in known.described:
                    self._publish(message)
                    self.counts["entities"] += 1
            known.described |= publication.keys()
        if not known.there:
            known.there = True
            self._publish(discovery.availability(source, there=True))
        if self._unacked >= MAX_UNACKED:
            self.counts["left out"] += 1
            return
        self._publish(discovery.state(source, publication, rssi))
        self.counts["readings"] += 1

    def _gone(self, known: _Known) -> None:
        if known.there:
            known.there = False
            self._publish(discovery.availability(known.newest.id.source, there=False))

    def _publish(self, message: Message) -> None:
        if self._link is not None:
            self._link.publish(message.topic, message.payload, retain=message.retain)
            self._unacked += 1

    # ---- Home Assistant's side

    async def run(self) -> None:
        """Until cancelled: connected, or trying to be."""
        pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            try:
                await self._connected(pauses)
            except OSError as error:
                self._failed(f"{self._settings.url}: {error.strerror or error or 'no answer'}; it is tried again")
            await asyncio.sleep(pauses.next())

    async def _connected(self, pauses: Pauses) -> None:
        """One link, from its opening to its end."""
        events: LoopHandover[Event] = LoopHandover(MAX_EVENTS)
        will = Will(discovery.broker_topic(self._client), discovery.OFFLINE, retain=True)
        link = Link(self._access(), f"spinney-ha-{uuid4().hex[:12]}", clean=True, events=events, will=will)
        try:
            await asyncio.to_thread(link.open)
            async with asyncio.TaskGroup() as tasks:
                expiring = tasks.create_task(self._expire())
                while self._handle(await events.next(), link):
                    if self._link is not None:
                        pauses.reset()
                expiring.cancel()
        finally:
            if self._link is not None:
                self._publish(Message(discovery.broker_topic(self._client), discovery.OFFLINE, retain=True))
                self._link = None
            await asyncio.to_thread(link.close)

    def _handle(self, event: Event, link: Link) -> bool:
        """Whether the link is still good."""
        match event:
            case Opened():
                link.subscribe([self._birth])
            case Granted():
                self._begin(link)
            case Arrived(payload=payload):
                event.ack()
                if payload == discovery.ONLINE:  # it has started again, and knows no state
                    self._begin(link)
            case Acked():
                self._unacked -= 1
            case Refused(reason=reason):
                self._failed(f"{self._settings.url} refused us: {reason}; check home_assistant.user and password_file")
                return False
            case Lost(reason=reason):
                self._link = None
                self._failed(f"{self._settings.url}: the connection was lost: {reason}")
                return False
        return True

    @property
    def _birth(self) -> str:
        return f"{self._settings.prefix}/status"

    def _begin(self, link: Link) -> None:
        """All that is known, from the beginning."""
        if self._link is None:
            log.info("Home Assistant's server %s: connected", self._settings.url)
            self._unacked = 0
        self._link, self.error = link, None
        self._publish(Message(discovery.broker_topic(self._client), discovery.ONLINE, retain=True))
        for sid, subscription in self._subscriptions.items():
            self._describe(sid, subscription)
        for known in self._sources.values():
            known.described.clear()
            known.there = False
            if not self._is_stale(known):
                self._tell(known)

    async def _expire(self) -> None:
        """Say who has fallen silent."""
        while True:
            for known in self._sources.values():
                if self._is_stale(known):
                    self._gone(known)
            await asyncio.sleep(self._settings.expire_after / 10)

    def _is_stale(self, known: _Known) -> bool:
        return self._clock() - known.newest.sample.heard > self._settings.expire_after

    def _failed(self, why: str) -> None:
        if why != self.error:
            log.warning("Home Assistant: %s", why)
        self.error = why

    def _access(self) -> ForeignAccess:
        settings = self._settings
        assert settings.url is not None
        password = password_in(settings.password_file) if settings.password_file else None
        return ForeignAccess(settings.user or "spinney", Server.parse(settings.url), password, settings.ca)
