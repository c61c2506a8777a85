"""The gateway: from MQTT into the log, and the only way out to clients' `reply` and `act`.

It is a QoS 1 subscriber with persistent sessions. A publication is validated, stored in the log, and then told as
`stored` and acknowledged; requests (`sub`, `ann`) go to the coordinator's stream, as JSON and not judged. Back pressure
is what is not acknowledged: the MQTT server holds the rest. The keeper lives here, too.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from prometheus_client import generate_latest

from . import session_redelivery
from .dead_letters import DeadLetters
from .fetch.passing import Passing
from .front_door import FrontDoor
from .gateway_answers import Answers
from .gateway_metrics import GatewayMetrics
from .group_commit import MAX_RECORD_BYTES, GroupCommit
from .intake import Intake
from .keeper import Disk, Keeper
from .mqtt import MqttClient, Publish
from .mqtt.of_endpoints import mqtt_client
from .mqtt.sessions import Sessions
from .mqtt_intake import FILTERS, MqttIntake
from .names import ACTIVATIONS, DEAD, LOG, NOTES, REQUESTS
from .nats_log import NatsLog
from .numbering import Numbers, next_boot
from .packers import Packers
from .payloads import arrow_payload
from .replies import Replies
from .request_pump import RequestPump
from .retention import required_readers
from .service import Service
from .settings import Settings
from .source_owners import SourceOwners
from .users import Users, UsersError, UsersFile
from .way_out import WayOut

logger = logging.getLogger(__name__)

MAX_PACKET_BYTES = 268_435_460
"""The most that MQTT allows. A smaller bound would end the connection, and the server would send it again for ever."""
ENVELOPE_ROOM = 1024
"""Of the server's max_payload, beside a client's payload."""
LOOK_AROUND_SECONDS = 0.5
"""How often the disk and the users' file are looked at."""
DRAIN_SECONDS = 5.0


class Gateway:
    """One process's gateway, between a connection to the log's server and two to the MQTT server."""

    def __init__(self, service: Service, log: NatsLog, boot: int) -> None:
        settings = service.settings
        self.service = service
        self.log = log
        self.metrics = GatewayMetrics(service.metrics)
        self.mqtt_out = mqtt_client(
            service.endpoints, "gateway-out", clean=True, max_payload_bytes=settings.nats.max_payload - ENVELOPE_ROOM
        )
        self.writer = log.writer(LOG)
        self.requests = RequestPump(log.writer(REQUESTS))
        self.dead = DeadLetters(log.writer(DEAD))
        self.packers = Packers()
        self.replies = Replies(self.mqtt_out, _max_payload(settings), self.packers)
        self.way_out = WayOut(log.connection, self.mqtt_out, self.packers)
        self.keeper = Keeper(log, settings.log, settings.data)
        self.disk = Disk(settings.data, _floor(settings))
        self.owners = SourceOwners()
        self.intake = Intake(settings.limits, Numbers(boot), self.owners)
        record_bytes = min(MAX_RECORD_BYTES, log.connection.max_payload // 4)
        self.commit = GroupCommit(self.writer, time.time, record_bytes)
        self.door = FrontDoor(
            self.intake,
            self.owners,
            self.commit,
            self.dead,
            self.disk,
            self.metrics,
            lambda: self.log.connection.max_payload,
        )
        one_each = service.endpoints.mqtt_kind == "nats"
        groups = [(name,) for name in FILTERS] if one_each else [FILTERS]
        self.mqtt = Sessions(self._session, groups, lambda message: self.arriving.on_message(message))
        self.passing = Passing(log, self.replies.tell)
        self.arriving: MqttIntake = MqttIntake(
            self.mqtt, self.door, self.requests, self.replies, self.packers, self.passing, self.tenant_of
        )
        self._users_file = UsersFile(settings.data)
        self._users = Users()
        self._users_trouble: str | None = None
        self._owners_revision = 0
        self._watch()

    def _session(self, name: str, on_message: Callable[[Publish], None]) -> MqttClient:
        endpoints = self.service.endpoints
        return mqtt_client(endpoints, name, on_message=on_message, max_packet_bytes=MAX_PACKET_BYTES)

    # ---- Running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do all of it until the service is stopping."""
        self._read_users()
        self.disk.look()
        await self._load_owners()
        tasks = [asyncio.create_task(each) for each in self._work()]
        ending = asyncio.create_task(self.service.stopping.wait())
        try:
            await self._open()
            done, _ = await asyncio.wait([ending, *tasks], return_when=asyncio.FIRST_COMPLETED)
            for task in done - {ending}:
                task.result()
            await self._drain()
        finally:
            for task in (ending, *tasks):
                task.cancel()
            await asyncio.gather(ending, *tasks, return_exceptions=True)
            await self.passing.close()
            await self.mqtt.close()
            await self.mqtt_out.close()

    def _work(self) -> tuple[Coroutine[Any, Any, None], ...]:
        return (
            self.commit.run(),
            self.requests.run(),
            self.dead.run(),
            self.replies.run(),
            self.way_out.run(),
            self.keeper.run(),
            self._watch_owners(),
            self._look_around(),
        )

    async def _open(self) -> None:
        """Answers first: what clients send may wait, and does."""
        await asyncio.to_thread(arrow_payload.preload)
        self.service.health = self.health
        self.service.on_reload = self.reload
        await Answers(self.door, self.keeper).start(self.log)
        await self.log.answer("gateway", "metrics", self._answer_metrics)
        await self.log.answer("gateway", "health", self._answer_health)
        await self.mqtt_out.start()
        await self.way_out.start()
        if self.service.endpoints.mqtt_kind == "nats":
            await session_redelivery.hurry(self.log.connection, FILTERS)
        await self.mqtt.start()
        self.service.ready()

    async def _drain(self) -> None:
        """Store and tell what has arrived, as far as that takes no longer than a few seconds."""
        self.arriving.stopping = True
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.commit.drain()
                await self.requests.drain()
                await self.replies.drain()
                await self.mqtt_out.drain()
        except TimeoutError:
            left = len(self.arriving.arrivals)
            logger.warning("%d messages are not stored; the MQTT server will send them again", left)

    def reload(self, settings: Settings) -> None:
        """Limits, retention and the disk's floor hold from now on."""
        self.intake.set_limits(settings.limits)
        self.keeper.settings = settings.log
        self.disk.floor = _floor(settings)
        self.replies.max_payload = _max_payload(settings)

    # ---- What it goes by ---------------------------------------------------------------------------------------

    def tenant_of(self, client: str) -> str | None:
        """The tenant of a client; None for one that there is not. Who was just added is looked for in the file."""
        tenant = self._users.tenant_of(client)
        if tenant is None:
            self._read_users()
            tenant = self._users.tenant_of(client)
        return tenant

    def _read_users(self) -> None:
        try:
            self._users = self._users_file.current()
        except (UsersError, OSError) as error:
            if str(error) != self._users_trouble:
                logger.error("the users stay as they were: %s", error)
            self._users_trouble = str(error)
        else:
            self._users_trouble = None

    async def _look_around(self) -> None:
        while True:
            self.disk.look()
            self._read_users()
            await asyncio.sleep(LOOK_AROUND_SECONDS)

    async def _load_owners(self) -> None:
        entries = await self.log.bucket(ACTIVATIONS).load()
        for key, entry in entries.items():
            self.owners.update(key, entry.value)
        self._owners_revision = max((entry.revision for entry in entries.values()), default=0)

    async def _watch_owners(self) -> None:
        async for change in self.log.bucket(ACTIVATIONS).watch(after_revision=self._owners_revision):
            self.owners.update(change.key, change.value)

    # ---- Seen from outside -------------------------------------------------------------------------------------

    async def _answer_metrics(self, _question: bytes) -> bytes:
        return generate_latest(self.service.metrics)

    async def _answer_health(self, _question: bytes) -> bytes:
        return orjson.dumps(self.health())

    def health(self) -> dict[str, Any]:
        """Whether publications go into the log now, and who holds it."""
        why = []
        if not self.mqtt.connected:
            why.append("not connected to the MQTT server")
        if self.mqtt.refused:
            why.append(f"the MQTT server refuses {', '.join(sorted(self.mqtt.refused))}")
        if not self.log.connected:
            why.append("not connected to the log's server")
        if self.writer.blocked:
            why.append(f"the log takes nothing: {self.writer.blocked}")
        if self.disk.full:
            why.append(f"{self.disk.free} bytes are free on {self.disk.path}, below the floor of {self.disk.floor}")
        holds = [hold._asdict() for hold in self.keeper.holds.values()]
        return {"ready": not why, "holds": holds} | ({"why": "; ".join(why)} if why else {})

    def _watch(self) -> None:
        watch, watch_each = self.metrics.watch, self.metrics.watch_each
        watch("pending", "Messages that are not acknowledged yet", lambda: len(self.arriving.arrivals))
        watch("pending_bytes", "Memory that these take", lambda: self.arriving.arrivals.bytes)
        watch("records", "Records that went to the log", lambda: self.commit.records)
        watch("resent", "Records that were sent to the log again", lambda: self.writer.resent)
        watch("blocked", "Whether the log takes nothing", lambda: bool(self.writer.blocked))
        watch("replies", "Replies that were sent", lambda: self.replies.sent)
        watch("replies_dropped", "Replies for which there was no room", lambda: self.replies.dropped)
        watch("out", "Messages of other processes that went out", lambda: self.way_out.sent)
        watch("packed_out", "Messages that went out packed", lambda: self.packers.packed)
        watch("kept_bytes", "Memory of what brokers refer to", lambda: self.intake.kept.bytes)
        watch("kept_dropped", "Brokers of which it was dropped for want of room", lambda: self.intake.kept.dropped)
        watch("dead_letters", "Dead letters that were stored", lambda: self.dead.stored)
        watch("dead_letters_dropped", "Dead letters for which there was no room", lambda: self.dead.dropped)
        watch("disk_free_bytes", "Free space where the log is", lambda: self.disk.free)
        watch("disk_full", "Whether that is below the floor", lambda: self.disk.full)
        watch("keeper_failures", "Times that the keeper could not purge", lambda: self.keeper.failures)
        whats = [("passed",), ("refused",), ("dropped",)]
        watch_each(
            "fetch_parts",
            "Parts of what mobile brokers were asked for",
            ("what",),
            whats,
            self.passing.counts.__getitem__,
        )
        streams = [(LOG,), (NOTES,)]
        watch_each(
            "purged", "Messages that the keeper purged", ("stream",), streams, lambda name: self.keeper.purged[name]
        )
        pairs = [(name, reader) for (name,) in streams for reader in required_readers(name, pipeline=True)]
        watch_each("held", "Messages kept beyond the limits for a reader", ("stream", "reader"), pairs, self._held)

    def _held(self, stream: str, reader: str) -> float:
        hold = self.keeper.holds.get(stream)
        return hold.messages if hold is not None and hold.reader == reader else 0


def _max_payload(settings: Settings) -> int:
    return min(settings.limits.payload, settings.nats.max_payload - ENVELOPE_ROOM)


def _floor(settings: Settings) -> int:
    """Of free space on the data directory's disk; none is looked at where the log is elsewhere."""
    return 0 if settings.nats.url else settings.log.free_disk_floor


async def serve(service: Service) -> None:
    """The process."""
    async with await NatsLog.connect(service.endpoints, name="gateway") as log:
        boot = next_boot(service.settings.data, time.time())
        await Gateway(service, log, boot).run()
