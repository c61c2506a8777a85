"""The gateway: from MQTT into the log, and the only way out to clients' `reply` and `act`.

It is a QoS 1 subscriber with a persistent session. A publication is validated, stored in the log, and then told as
`stored` and acknowledged, in this order; requests (`sub`, `ann`) go unread to the coordinator's stream. Back pressure
is what is not acknowledged: the MQTT server holds the rest.

Questions that it answers (names.ask_subject): `publish` is a line {"tenant", "client"} and a payload, answered once it
is stored; `unpublish` is {"tenant", "client", "id"}; `release` is {"reader"}: see the keeper.
"""

from __future__ import annotations

import asyncio
import logging
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson
from prometheus_client import generate_latest

from spinney import PublicationError, PublicationId

from . import arrivals, dead_letters
from .arrivals import Arrival, Arrivals
from .dead_letters import DeadLetters
from .gateway_metrics import GatewayMetrics
from .group_commit import MAX_RECORD_BYTES, GroupCommit
from .intake import Intake, Sender, Taken, TooLargeForRecord, parts
from .keeper import Disk, Keeper
from .log_errors import LogError, TooLarge
from .mqtt import Publish
from .mqtt.of_endpoints import mqtt_client
from .names import ACTIVATIONS, DEAD, LOG, NOTES, REQUESTS, Topic, parse_topic, request_subject
from .nats_log import NatsLog
from .numbering import Numbers, next_boot
from .payloads import Refusal, arrow_payload
from .pump import Pump
from .records import Unpublish
from .replies import Replies
from .service import Service
from .settings import Settings
from .source_owners import NotTheOwner, SourceOwners
from .users import Users, UsersError, UsersFile
from .way_out import WayOut

logger = logging.getLogger(__name__)

FILTERS = ("spinney/+/pub", "spinney/+/unpub", "spinney/+/ann", "spinney/+/sub/+")
MAX_PENDING_BYTES = 64 * 1024**2
"""Of payloads that are not stored; beyond it nothing is read until half of it is."""
MAX_PACKET_BYTES = 268_435_460
"""The most that MQTT allows. A smaller bound would end the connection, and the server would send it again for ever."""
LARGEST_ROW_ROOM = 64 * 1024
"""Of a record, beside its largest row."""
DISK_SECONDS = 0.5
USERS_SECONDS = 0.5
DRAIN_SECONDS = 5.0
ENVELOPE_ROOM = 1024
"""Of the server's max_payload, beside a client's payload."""
NO_CLIENT = "_unknown"
"""Stands for the client of a topic that has none, in dead letters."""


class Gateway:
    """One process's gateway, between a connection to the log's server and two to the MQTT server."""

    def __init__(self, service: Service, log: NatsLog, boot: int) -> None:
        settings = service.settings
        self.service = service
        self.log = log
        self.owners = SourceOwners()
        self.intake = Intake(settings.limits, Numbers(boot), self.owners)
        self.mqtt = mqtt_client(
            service.endpoints, "gateway", on_message=self._on_message, max_packet_bytes=MAX_PACKET_BYTES
        )
        self.mqtt_out = mqtt_client(
            service.endpoints, "gateway-out", clean=True, max_payload_bytes=settings.nats.max_payload - ENVELOPE_ROOM
        )
        record_bytes = min(MAX_RECORD_BYTES, log.connection.max_payload // 4)
        self.writer = log.writer(LOG)
        self.commit = GroupCommit(self.writer, time.time, record_bytes)
        self.requests = Pump(log.writer(REQUESTS))
        self.dead = DeadLetters(log.writer(DEAD))
        self.replies = Replies(self.mqtt_out, _max_payload(settings))
        self.way_out = WayOut(log.connection, self.mqtt_out)
        self.keeper = Keeper(log, settings.log, settings.data)
        self.disk = Disk(settings.data, 0 if settings.nats.url else settings.log.free_disk_floor)
        self.arrivals = Arrivals(self.mqtt.ack)
        self.metrics = GatewayMetrics(service.metrics)
        self._users_file = UsersFile(settings.data)
        self._users = Users()
        self._owners_revision = 0
        self._stopping = False
        self._paused = False
        self._watch()

    # ---- Messages ----------------------------------------------------------------------------------------------

    def _on_message(self, message: Publish) -> None:
        if self._stopping:
            return  # not acknowledged: it comes again
        topic = parse_topic(message.topic)
        lane = arrivals.REQUESTS if topic is not None and topic.leaf in ("sub", "ann") else arrivals.LOG
        arrival = self.arrivals.arrive(message, lane, time.monotonic())
        if arrival is None:
            self.metrics.redelivered.inc()
            return
        self._take(arrival, topic)
        if self.arrivals.bytes > MAX_PENDING_BYTES and not self._paused:
            self._paused = True
            self.mqtt.pause_reading(True)

    def _take(self, arrival: Arrival, topic: Topic | None) -> None:
        message = arrival.message
        if topic is None:
            self._refuse_all(arrival, NO_CLIENT, f"no topic of a client: {message.topic[:100]!r}", "topic")
            return
        self.metrics.messages.labels(topic.leaf).inc()
        tenant = self.tenant_of(topic.client)
        if tenant is None:
            self._refuse_all(arrival, topic.client, f"there is no user {topic.client}", "topic")
        elif message.retain:
            self._refuse_all(arrival, topic.client, "a retained copy: publish without the retain flag", "retained")
        elif topic.leaf == "pub":
            self._publication(arrival, Sender(tenant, topic.client))
        elif topic.leaf == "unpub":
            self._unpublish(arrival, Sender(tenant, topic.client))
        else:
            self._request(arrival, topic, tenant)

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
            logger.error("the users stay as they were: %s", error)

    # ---- Publications ------------------------------------------------------------------------------------------

    def _publication(self, arrival: Arrival, sender: Sender) -> None:
        payload, client = arrival.message.payload, sender.client
        taken = self.take(sender, payload)
        if taken.busy is not None:
            self.replies.tell(client, _busy(taken))
        if taken.refusals:
            self.refused(sender, arrival.message.topic, payload, taken)
            self.replies.refused(client, taken.refusals, taken.batch)
        self.store(sender, taken, partial(self._stored, arrival, sender, taken))

    def take(self, sender: Sender, payload: bytes) -> Taken:
        """What can be taken in of a payload now. Nothing that a payload holds can end the process."""
        self.metrics.bytes.inc(len(payload))
        try:
            taken = self.intake.take(sender, payload, time.time())
        except Exception as error:  # else the server sends this payload again at each start, for ever
            logger.exception("a payload of %s cannot be dealt with", sender.client)
            return Taken(refusals=[Refusal(None, None, f"it cannot be dealt with: {error!r:.200}", "broken")])
        if self.disk.full and (taken.rows or taken.labels):
            taken = Taken(batch=taken.batch, busy="disk: too little space is free; send it again later")
        if taken.busy is not None:
            self.metrics.busy.labels(taken.busy.partition(":")[0]).inc()
        self.metrics.received.inc(len(taken.rows))
        return taken

    def store(self, sender: Sender, taken: Taken, done: Callable[[LogError | None], None]) -> None:
        """Put what was taken in into the log; `done` at once if there is nothing."""
        if not taken.rows and not taken.labels:
            done(None)
            return
        largest = self.log.connection.max_payload - LARGEST_ROW_ROOM
        try:
            made = list(parts(taken, self.commit.max_record_bytes, largest))
        except TooLargeForRecord as error:
            done(TooLarge(error.size, largest))
        else:
            self.commit.add(sender.tenant, made, done)

    def _stored(self, arrival: Arrival, sender: Sender, taken: Taken, error: LogError | None) -> None:
        if error is not None:
            self._never_stored(arrival, sender, taken, error)
        elif taken.rows or taken.labels:
            self.metrics.stored.inc(len(taken.rows))
            self.metrics.store_seconds.observe(time.monotonic() - arrival.started)
            self.replies.stored(sender.client, taken.stored(), taken.batch)
        self._done(arrival)

    def _never_stored(self, arrival: Arrival, sender: Sender, taken: Taken, error: LogError) -> None:
        taken.refusals = [Refusal(None, None, f"the log does not take it: {error}", "size")]
        self.refused(sender, arrival.message.topic, arrival.message.payload, taken)
        self.replies.refused(sender.client, taken.refusals, taken.batch)

    def refused(self, sender: Sender, topic: str, payload: bytes, taken: Taken) -> None:
        """Count what was refused of a payload, and keep it as a dead letter."""
        for kind, count in Counter(refusal.kind for refusal in taken.refusals).items():
            self.metrics.refused.labels(kind).inc(count)
        letter = dead_letters.letter(
            client=sender.client,
            tenant=sender.tenant,
            topic=topic,
            payload=payload,
            refusals=taken.refusals,
            received=time.time(),
        )
        self.dead.put("intake", sender.client, letter)

    def _refuse_all(self, arrival: Arrival, client: str, reason: str, kind: Any) -> None:
        taken = Taken(refusals=[Refusal(None, None, reason, kind)])
        self.refused(Sender("", client), arrival.message.topic, arrival.message.payload, taken)
        if client != NO_CLIENT:
            self.replies.refused(client, taken.refusals, None)
        self._done(arrival)

    def _done(self, arrival: Arrival) -> None:
        self.arrivals.done(arrival)
        if self._paused and self.arrivals.bytes < MAX_PENDING_BYTES // 2:
            self._paused = False
            self.mqtt.pause_reading(False)

    # ---- Unpublish and requests --------------------------------------------------------------------------------

    def _unpublish(self, arrival: Arrival, sender: Sender) -> None:
        try:
            id = self.checked_unpublish(sender, _id_in(arrival.message.payload))
        except (PublicationError, NotTheOwner) as error:
            self._refuse_all(arrival, sender.client, f"unpub: {error}", "id")
            return

        def stored(error: LogError | None) -> None:
            told = {"ok": True} if error is None else {"ok": False, "error": {"message": str(error)}}
            self.replies.tell(sender.client, {"request": "unpub", "id": id, **told})
            self._done(arrival)

        self.commit.add_record(Unpublish(sender.tenant, sender.client, id), stored)

    def checked_unpublish(self, sender: Sender, id: Any) -> str:
        """The id, if the client may unpublish it; PublicationError or NotTheOwner."""
        if not isinstance(id, str):
            raise PublicationError('expected {"id": "source:boot:sequence"}', attribute="id")
        source = PublicationId.parse(id).source
        self.owners.check(sender.tenant, sender.client, source, None)
        return id

    def _request(self, arrival: Arrival, topic: Topic, tenant: str) -> None:
        payload = arrival.message.payload
        if len(payload) > self.intake.limits.payload:
            reason = f"a payload of {len(payload)} bytes; the limit is {self.intake.limits.payload}"
            self._refuse_all(arrival, topic.client, reason, "size")
            return

        def stored(error: LogError | None) -> None:
            if error is None:
                self._done(arrival)
            else:
                self._refuse_all(arrival, topic.client, f"the log does not take it: {error}", "size")

        self.requests.put(request_subject(topic.client), _request(topic, tenant, payload), stored)

    # ---- Questions ---------------------------------------------------------------------------------------------

    async def answer_publish(self, question: bytes) -> bytes:
        """A payload that came by HTTP: see the module."""
        head, _, payload = question.partition(b"\n")
        asked = orjson.loads(head)
        sender = Sender(asked["tenant"], asked["client"])
        taken = self.take(sender, payload)
        if taken.busy is not None:
            return _no(503 if taken.busy.startswith("disk") else 429, taken.busy)
        if taken.refusals:
            self.refused(sender, "http", payload, taken)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.store(sender, taken, partial(_settle, stored))
        try:
            await stored
        except LogError as error:
            return _no(413, f"the log does not take it: {error}")
        self.metrics.stored.inc(len(taken.rows))
        answer = {
            "ok": True,
            "ids": [row["id"] for row in taken.rows],
            "stored": taken.stored(),
            "refused": [{"row": row, "id": id, "reason": reason} for row, id, reason, _ in taken.refusals],
            "batch": taken.batch,
        }
        return orjson.dumps(answer)

    async def answer_unpublish(self, question: bytes) -> bytes:
        """An id that came by HTTP."""
        asked = orjson.loads(question)
        sender = Sender(asked["tenant"], asked["client"])
        try:
            id = self.checked_unpublish(sender, asked.get("id"))
        except PublicationError as error:
            return _no(422, str(error))
        except NotTheOwner as error:
            return _no(403, str(error))
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.commit.add_record(Unpublish(sender.tenant, sender.client, id), partial(_settle, stored))
        await stored
        return orjson.dumps({"ok": True, "id": id})

    async def answer_release(self, question: bytes) -> bytes:
        """An operator does not want to wait for a reader any longer."""
        reader = orjson.loads(question)["reader"]
        try:
            floor = await self.keeper.release(reader)
        except ValueError as error:
            return _no(404, str(error))
        await self.keeper.keep()
        return orjson.dumps({"ok": True, "reader": reader, "floor": floor})

    async def answer_metrics(self, _question: bytes) -> bytes:
        """Prometheus' text."""
        return generate_latest(self.service.metrics)

    async def answer_health(self, _question: bytes) -> bytes:
        """JSON."""
        return orjson.dumps(self.health())

    def health(self) -> dict[str, Any]:
        """Whether publications go into the log now, and who holds it."""
        why = []
        if not self.mqtt.connected.is_set():
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

    # ---- Running -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Do all of it until the service is stopping."""
        self._read_users()
        self.disk.look()
        await self._load_owners()
        tasks = [
            asyncio.create_task(each)
            for each in (
                self.commit.run(),
                self.requests.run(),
                self.dead.run(),
                self.replies.run(),
                self.keeper.run(),
                self._watch_owners(),
                self._look_around(),
            )
        ]
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
            await self.mqtt.close()
            await self.mqtt_out.close()

    async def _open(self) -> None:
        """Answers first: what clients send may wait, and does."""
        await asyncio.to_thread(arrow_payload.preload)
        self.service.health = self.health
        self.service.on_reload = self.reload
        for what in ("publish", "unpublish", "release", "metrics", "health"):
            await self.log.answer("gateway", what, getattr(self, f"answer_{what}"))
        await self.mqtt_out.start()
        await self.way_out.start()
        await self.mqtt.start()
        await self.mqtt.subscribe(FILTERS, qos=1)
        self.service.ready()

    async def _drain(self) -> None:
        """Store and tell what has arrived, as far as that takes no longer than a few seconds."""
        self._stopping = True
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                await self.commit.drain()
                await self.requests.drain()
                await self.replies.drain()
                await self.mqtt_out.drain()
        except TimeoutError:
            logger.warning("%d messages are not stored; the MQTT server sends them again", len(self.arrivals))

    def reload(self, settings: Settings) -> None:
        """Limits, retention and the disk's floor hold from now on."""
        self.intake.set_limits(settings.limits)
        self.keeper.settings = settings.log
        self.disk.floor = 0 if settings.nats.url else settings.log.free_disk_floor
        self.replies.max_payload = _max_payload(settings)

    async def _load_owners(self) -> None:
        entries = await self.log.bucket(ACTIVATIONS).load()
        for key, entry in entries.items():
            self.owners.update(key, entry.value)
        self._owners_revision = max((entry.revision for entry in entries.values()), default=0)

    async def _watch_owners(self) -> None:
        async for change in self.log.bucket(ACTIVATIONS).watch(after_revision=self._owners_revision):
            self.owners.update(change.key, change.value)

    async def _look_around(self) -> None:
        """At the disk and at the users' file."""
        while True:
            self.disk.look()
            self._read_users()
            await asyncio.sleep(min(DISK_SECONDS, USERS_SECONDS))

    def _watch(self) -> None:
        watch, streams = self.metrics.watch, self.metrics.watch_streams
        watch("pending", "Messages that are not acknowledged yet", lambda: len(self.arrivals))
        watch("pending_bytes", "Bytes of these", lambda: self.arrivals.bytes)
        watch("records", "Records that went to the log", lambda: self.commit.records)
        watch("resent", "Records that were sent to the log again", lambda: self.writer.resent)
        watch("blocked", "Whether the log takes nothing", lambda: bool(self.writer.blocked))
        watch("replies", "Replies that were sent", lambda: self.replies.sent)
        watch("replies_dropped", "Replies for which there was no room", lambda: self.replies.dropped)
        watch("out", "Messages of other processes that went out", lambda: self.way_out.sent)
        watch("dead_letters", "Dead letters that were stored", lambda: self.dead.stored)
        watch("dead_letters_dropped", "Dead letters for which there was no room", lambda: self.dead.dropped)
        watch("disk_free_bytes", "Free space where the log is", lambda: self.disk.free)
        watch("disk_full", "Whether that is below the floor", lambda: self.disk.full)
        watch("keeper_failures", "Times that the keeper could not purge", lambda: self.keeper.failures)
        both = (LOG, NOTES)
        streams("purged", "Messages that the keeper purged", both, lambda name: self.keeper.purged[name])
        streams("held", "Messages kept beyond the limits for a reader", both, self._held)

    def _held(self, stream: str) -> float:
        hold = self.keeper.holds.get(stream)
        return 0 if hold is None else hold.messages


def _max_payload(settings: Settings) -> int:
    return min(settings.limits.payload, settings.nats.max_payload - ENVELOPE_ROOM)


def _busy(taken: Taken) -> dict[str, Any]:
    return {"busy": taken.busy} | ({} if taken.batch is None else {"batch": taken.batch})


def _id_in(payload: bytes) -> Any:
    try:
        item = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return item.get("id") if isinstance(item, dict) else None


def _request(topic: Topic, tenant: str, payload: bytes) -> bytes:
    """A request as the coordinator reads it."""
    text: str | None
    try:
        text, coded = payload.decode(), None
    except UnicodeDecodeError:
        text, coded = None, b64encode(payload).decode()
    item = {
        "v": 1,
        "client": topic.client,
        "tenant": tenant,
        "leaf": topic.leaf,
        "sid": topic.sid,
        "payload": text,
        "received": time.time(),
    }
    return orjson.dumps(item if coded is None else {**item, "payload_b64": coded})


def _settle(stored: asyncio.Future[None], error: LogError | None) -> None:
    if stored.done():
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(error)


def _no(status: int, message: str) -> bytes:
    return orjson.dumps({"ok": False, "status": status, "error": {"message": message}})


async def serve(service: Service) -> None:
    """The process."""
    async with await NatsLog.connect(service.endpoints, name="gateway") as log:
        boot = next_boot(service.settings.data, time.time())
        await Gateway(service, log, boot).run()
