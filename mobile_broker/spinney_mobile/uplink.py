"""The way to the cloud: one MQTT session, on which records go up and activations come down.

Records leave the outbox when the cloud has stored them, and never because an MQTT server took them. `run` it in a task;
`stop` sends what it can within a bound and says good-bye. All is in the event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spinney.client.address import Access, Server
from spinney.client.link import Arrived, Will
from spinney.client.outbox import Entry
from spinney.packed import PackedError

from .activations import Activations
from .batches import Batches, Refused
from .connection import LoopConnection
from .credentials import check_authority, check_certificate, password_of
from .dead_letters import DeadLetters
from .fetching import Fetches
from .health_report import HealthReport
from .leases import Leases
from .outbox import Outbox, OutRecord, decode, is_silent
from .packing import Packing, unpacked
from .presence import Presence
from .reports import Reports
from .settings import Settings
from .status import UplinkStatus
from .tally import Tally
from .withdrawals import Withdrawals

FLUSH_SECONDS: Final = 5.0
"""For what is under way, when it is asked to stop; the rest goes up after the next start."""
MAX_ACTIVATING: Final = 2_000
"""Activations that wait to be taken: more than a server sends before the first of them is acknowledged."""

_CLIENT_ID = "uplink:client-id"
_MAX_PAYLOAD = "uplink:max-payload"

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What has gone up and come back since the start."""

    batches: int = 0
    bytes_sent: int = 0
    stored: int = 0
    refused: int = 0
    labels_refused: int = 0
    resent: int = 0
    """How often all that was under way was sent again, for want of an answer."""
    lost: int = 0
    """How often the link was lost."""
    withdrawals_dropped: int = 0
    """Withdrawn readings of which the cloud was never told, for want of room."""
    unreadable: int = 0
    """Replies that made no sense."""


class Uplink:
    """Of one broker and one cloud. The outbox is open before, and closed after."""

    def __init__(
        self,
        access: Access,
        outbox: Outbox,
        activations: Activations,
        leases: Leases,
        dead_letters: DeadLetters,
    ) -> None:
        self.counts = Counts()
        self.on_announced: Callable[[Mapping[str, Any]], object] = lambda _: None
        """Told what `announce` was given, once the cloud has it."""
        self.tally = Tally()
        self.health = HealthReport(lambda: self.counts.bytes_sent)
        self.reports = Reports(
            lambda: outbox.log.end,
            lambda: next((entry.place for entry in outbox.log.entries()), None),
            outbox.max_age,
        )
        self.topics: Sequence[str] = (access.topic("act"), access.topic("reply"))
        self._access = access
        self._outbox = outbox
        self._activations = activations
        self._leases = leases
        self._dead = dead_letters
        self.fetches = Fetches(lambda: self._batches.max_payload)
        self._presence = Presence(
            lambda: activations.have, lambda: activations.is_lost, lambda: leases.wanted, self.tally.along, self.health
        )
        self._withdrawals = Withdrawals(outbox.state(), outbox.keep)
        self._batches = Batches(outbox, leases, secrets.token_urlsafe(6))
        self._sent: dict[int, str] = {}  # batches by the number of the server's acknowledgement
        self._connection: LoopConnection | None = None
        self._error: str | None = "not yet connected"
        self._since: float | None = None
        self._activating: asyncio.Queue[Arrived] = asyncio.Queue(MAX_ACTIVATING)
        self._drained = asyncio.Event()
        self._ended = asyncio.Event()
        outbox.on_append = self._appended
        kept = outbox.state().get(_MAX_PAYLOAD, b"")
        if kept.isdigit():
            self._batches.max_payload = int(kept)
        self._batches.again(0.0)
        self._bury_too_large(outbox.log.entries())

    # ---- Its life ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until `stop`. When cancelled it ends at once, and the server says the will."""
        self._connection = LoopConnection(
            self._access,
            self._client_id(),
            self,
            will=lambda: Will(self._access.topic("ann"), self._presence.will()),
            at_most_once=(self._access.topic("reply"),),
            on_state=self._state_changed,
        )
        try:
            async with asyncio.TaskGroup() as group:
                upkeep = [group.create_task(each) for each in (self._outbox.run(), self._take_activations())]
                await self._connection.run()
                for task in upkeep:
                    task.cancel()
        finally:
            self._ended.set()

    async def stop(self) -> None:
        """Send what can be sent within a bound, tell the cloud that this broker is gone, and end `run`."""
        connection = self._connection
        if connection is None:
            return
        if connection.up:
            self._batches.hurry = True
            connection.wake()
            await self._flush()
        if connection.up:
            connection.publish(self._access.topic("ann"), self._presence.over())
        connection.close()
        await self._ended.wait()

    async def _flush(self) -> None:
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                while self._outbox.log.count and self._connection is not None and self._connection.up:
                    self._drained.clear()
                    await self._drained.wait()
        except TimeoutError:
            _log.warning("%d records wait in the outbox for the next start", self._outbox.log.count)

    def _client_id(self) -> str:
        """The session's, a secret: who knows it could take the session over."""
        kept = self._outbox.state().get(_CLIENT_ID)
        if kept is None:
            kept = f"{self._access.name}-mobile-{secrets.token_hex(12)}".encode()
            self._outbox.keep({_CLIENT_ID: kept})
        return kept.decode()

    def _state_changed(self, error: str | None) -> None:
        self._error = error
        self._since = time.time()

    # ---- For the broker ----------------------------------------------------------------------------------------

    def announce(self, body: Mapping[str, Any]) -> None:
        """Say this from now on: the newest wins, at each link anew; session, have and lease are filled in."""
        self._presence.announce(body, time.monotonic())
        self._wake()

    def want(self, sources: Collection[str]) -> None:
        """Ask for the leases of these, and of no others."""
        if self._leases.want(sources):
            self._presence.lease_changed(time.monotonic())
            self._wake()

    def unpublish(self, id: str) -> None:
        """A reading is no longer valid: the cloud is told, however long that takes."""
        self._withdrawals.add(id)
        self.counts.withdrawals_dropped = self._withdrawals.dropped
        self._wake()

    @property
    def packing(self) -> Packing:
        """In which form messages go up."""
        return self._batches.packing

    @packing.setter
    def packing(self, packing: Packing) -> None:
        self._batches.packing = packing

    @property
    def connected(self) -> bool:
        """Whether the link is up at this moment."""
        return self._connection is not None and self._connection.up

    def status(self) -> UplinkStatus:
        """For pages."""
        error = self._error if not self.connected else self._batches.why or self._presence.error
        return UplinkStatus(self.connected, self._activations.have, error, self._since, str(self._access.server))

    def _appended(self, entries: Sequence[Entry]) -> None:
        now = time.monotonic()
        for entry in entries:
            self._batches.appended(entry, now)
        self._bury_too_large(entries)
        self._wake()

    def _bury_too_large(self, entries: Iterable[Entry]) -> None:
        for refused in self._batches.too_large(entries):
            self._bury(refused)

    def _wake(self) -> None:
        if self._connection is not None:
            self._connection.wake()

    # ---- A member of the connection ----------------------------------------------------------------------------

    def opened(self) -> None:
        """The link is up: who we are, then all that is not stored, from the oldest on."""
        now = time.monotonic()
        self._sent.clear()
        self._presence.opened(now)
        self._withdrawals.opened()
        self.tally.opened(now)
        self.reports.opened()
        self.fetches.opened()
        self._batches.opened(now)

    def lost(self, reason: str) -> None:
        """The link is down."""
        self.counts.lost += 1
        self._drained.set()
        _log.debug("lost: %s", reason)

    def acked(self, mid: int) -> None:
        """The server, not yet the cloud, has something."""
        if (batch := self._sent.pop(mid, None)) is not None:
            self._batches.acked(batch, time.monotonic())

    def work(self, now: float) -> float | None:
        """Send what can be sent."""
        connection = self._connection
        assert connection is not None
        if self._batches.unheard(now):
            connection.drop("the server does not acknowledge")
            return None
        if self._batches.overdue(now):
            self._unanswered()
        self._announce(connection, now)
        if (withdrawal := self._withdrawals.next(now)) is not None:
            connection.publish(self._access.topic("unpub"), withdrawal)
            return now
        self._batches.look(now)
        if (message := self._batches.next(now)) is not None:
            is_lone = self._batches.lone.batch == message.batch
            mid = connection.publish(self._access.topic("pub"), message.payload, at_most_once=is_lone)
            self._sent[mid] = message.batch
            self.counts.batches += 1
            self.counts.bytes_sent += len(message.payload)
            return now  # events first: between two batches others have their turn
        if (part := self.fetches.next(self._presence.session)) is not None:
            connection.publish(self._access.topic("ann"), self._batches.packing.text(part), at_most_once=True)
            return now
        dues = [one.due for one in (self._presence, self.tally, self.reports, self.fetches, self._withdrawals)]
        return min((due for due in (self._batches.due(now), *dues) if due is not None), default=None)

    def _announce(self, connection: LoopConnection, now: float) -> None:
        """What is due of who we are. The cloud's answer acknowledges an announcement: at first it goes at QoS 0."""
        packing, is_answered = self._batches.packing, self._presence.is_answered
        if (announcement := self._presence.next(now)) is not None:
            at_most_once = packing.agreed and is_answered
            connection.publish(self._access.topic("ann"), packing.text(announcement), at_most_once=at_most_once)
        if (tally := self.tally.next(self._presence.session, now)) is not None:
            connection.publish(self._access.topic("ann"), packing.text(tally))
        if (report := self.reports.next(self._presence.session, now)) is not None:
            connection.publish(self._access.topic("ann"), packing.text(self.fetches.along(report)))
        if (offer := self.fetches.offer(self._presence.session, now)) is not None:
            connection.publish(self._access.topic("ann"), packing.text(offer))

    def _unanswered(self) -> None:
        self.counts.resent += 1
        why = (
            f"{self._access.server} takes readings, and the cloud does not say that it has stored them: does it run, "
            f"and may {self._access.name} publish to {self._access.topic('pub')}?"
        )
        if self._batches.why is None:
            _log.warning("%s They are sent again until it does", why)
        self._batches.why = why

    def arrived(self, message: Arrived) -> None:
        """A reply or an activation."""
        if message.topic == self.topics[0]:
            self._activate(message)
            return
        message.ack()
        try:
            reply = json.loads(unpacked(message.payload))
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            self.counts.unreadable += 1
            return
        self._replied(reply)

    def _activate(self, message: Arrived) -> None:
        try:
            self._activating.put_nowait(message)
        except asyncio.QueueFull:
            assert self._connection is not None
            self._connection.drop("more activations than can be taken: they come again")

    async def _take_activations(self) -> None:
        """One after the other, however long each takes."""
        while True:
            await self._activated(await self._activating.get())

    async def _activated(self, message: Arrived) -> None:
        before = self._leases.known
        await self._activations.take(_unpacked(message.payload))
        message.ack()  # it is kept
        now = time.monotonic()
        after = self._leases.known
        if moved := [s for s in before.keys() | after.keys() if before.get(s) != after.get(s)]:
            self._batches.leases_told(moved, now)
        if self._activations.is_lost:
            self._presence.lost_count(now)
        self._wake()

    def _replied(self, reply: dict[str, Any]) -> None:
        if reply.get("request") == "ann":
            self._answered(reply)
        if reply.get("request") == "unpub":
            self._withdrawals.replied(reply)
        if "fetch" in reply:
            self.fetches.asked(reply["fetch"])
        before = self._batches.max_payload
        stored, refusals = self._batches.told(reply, time.monotonic())
        self.counts.stored += len(stored)
        for refusal in refusals:
            self._bury(refusal)
        if self._batches.max_payload != before:
            self._outbox.keep({_MAX_PAYLOAD: str(self._batches.max_payload).encode()})
        if stored or refusals:
            self._drained.set()

    def _answered(self, reply: dict[str, Any]) -> None:
        before = self._presence.error
        taken = self._presence.replied(reply)
        self.reports.replied(reply, time.monotonic())
        self.fetches.answered(reply, time.monotonic())
        if taken is not None:
            self.on_announced(taken)
        if self._presence.error not in (None, before):
            _log.error("%s", self._presence.error)

    def _bury(self, refused: Refused) -> None:
        """What the cloud will never store. The labels of a refused publication go up alone, so that bits stay right."""
        waiting = decode(refused.entry.data)
        if refused.digest is not None:
            self.counts.labels_refused += 1
            label = waiting.labels[refused.digest]
            self._dead.put({"filter": refused.digest, "label": label.to_json()}, refused.reason)
            return
        self.counts.refused += 1
        _log.warning("the cloud refused %s: %s", refused.entry.id, refused.reason)
        if not is_silent(refused.entry):
            self._dead.put({"publication": json.loads(waiting.publication)}, refused.reason)
            if waiting.labels and not refused.reason.startswith("lease:"):
                self._outbox.append([OutRecord(None, waiting.epoch, waiting.labels)])


def _unpacked(payload: bytes) -> bytes:
    """An activation as JSON. What cannot be unpacked is none: the next one shows the gap."""
    try:
        return unpacked(payload)
    except PackedError as error:
        _log.error("an activation cannot be unpacked: %s", error)
        return b""


def access_of(settings: Settings) -> Access | None:
    """How this broker gets into its cloud; None without one. ValueError says what is wrong."""
    cloud = settings.cloud
    if cloud.url is None:
        return None
    password = password_of("cloud", cloud.password_file)
    check_authority("cloud", cloud.ca)
    check_certificate("cloud", cloud.certificate, cloud.key)
    certificate = None if cloud.certificate is None or cloud.key is None else (cloud.certificate, cloud.key)
    return Access(settings.client, Server.parse(cloud.url), password, cloud.ca, certificate)
