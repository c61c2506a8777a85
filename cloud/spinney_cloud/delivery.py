"""Delivery: from the notification log to subscribers over MQTT.

It reads the notification log in order and puts each notification into its subscriber's queue (subscriber_queue); the
sender takes from there what the MQTT server acknowledges promptly (delivery_sender). When more could be sent than the
server takes, it stops reading: the log holds the rest, and nothing is dropped for it. Queues are for those who asked
for fewer messages than there are, and for what waits its turn.

Whom the MQTT server knows as offline is the server's business: it acknowledges, and keeps a persistent session's
messages. How many of them, see mqtt_backlog.

What is done is written down at once (delivery_progress), so that a process killed at any instant sends again, when it
comes back, only what was not acknowledged: at most `settings.delivery.in_flight` messages, with the same ids.

Asks: `status` with {"tenant", "owner", "sid"} answers {"ok", "queued", "delivered", "dropped", "dead",
"last_delivered", "last_failure"}; `sessions` with {"client" or null, "after", "limit"} answers {"ok", "sessions"}.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import aclosing, suppress
from sys import intern
from time import monotonic
from typing import Any, Final

import orjson
from prometheus_client import generate_latest

from .cell_limits import Key, position_of
from .delivery_options import DEFAULT, OptionError, read_options
from .delivery_progress import Journal, Progress, Resumed
from .delivery_sender import Flight, Sender
from .delivery_start import READER, find_start, together
from .delivery_status import DeliveryStatus
from .log_errors import LogError, Truncated
from .log_writer import Stored
from .message_ages import MessageAges
from .mqtt.of_endpoints import mqtt_client
from .mqtt_backlog import MqttBacklog
from .names import DEAD, NOTES, READERS, SUBSCRIPTIONS, dead_subject, is_name
from .nats_log import Message, NatsLog, read_range
from .note_payload import encode_notes
from .notes import NotesError, decode
from .passed_file import PassedFile
from .positions import Position
from .service import Service
from .session_expiry import SessionExpiry
from .subscriber_queue import Bounds, DropReason, Item, SubscriberQueues

log = logging.getLogger(__name__)

READ_AHEAD: Final = 4_000
"""Messages that could be sent now and wait; beyond it nothing more is read."""
PUMP_AT: Final = 32
READ_AT_MOST: Final = 200
POSITION_SECONDS: Final = 0.1
AGES_SECONDS: Final = 5.0
"""How exactly it is known when what waits in the notification log came."""
DRAIN_SECONDS: Final = 5.0
PACKET_ROOM: Final = 1024
"""Of the server's largest message, for all but the payload."""
SILENT_SECONDS: Final = 10.0
"""Without any acknowledgement for so long the MQTT server is not well."""
NOBODY: Final = "-"
"""In a subject, for an owner who cannot be named there."""
MAX_DEAD_PAYLOAD: Final = 16 * 1024
"""Of a dead letter's payload so much is kept."""


async def serve(service: Service) -> None:
    """Deliver until told to stop."""
    async with await NatsLog.connect(service.endpoints, name=service.name) as nats_log:
        delivery = Delivery(service, nats_log)
        await delivery.start()
        service.ready()
        await delivery.run_until(service.stopping)


class Delivery:
    """One process's delivery, between the log and the MQTT server."""

    def __init__(self, service: Service, nats_log: NatsLog) -> None:
        settings = service.settings
        bounds = settings.delivery
        self.status = DeliveryStatus(service.metrics)
        self.queues = SubscriberQueues(Bounds(bounds.queue_count, bounds.queue_bytes, bounds.queue_age), self._on_drop)
        self.backlog = MqttBacklog(service, nats_log)
        self.client = mqtt_client(
            service.endpoints,
            "delivery",
            clean=True,
            on_message=self.backlog.on_message,
            max_in_flight=bounds.in_flight,
            max_payload_bytes=settings.nats.max_payload - PACKET_ROOM,
        )
        self.expiry = SessionExpiry(service, nats_log, self.client)
        self.sender = Sender(
            self.client,
            self.queues,
            bounds,
            on_sent=self._on_sent,
            on_failure=lambda item, why: self.status.failed(item, why, time.time()),
            give_up=self._give_up,
        )
        self.progress = Progress()
        self.journal = Journal(settings.data / "delivery.journal")
        self.passed = PassedFile(settings.data / "delivery.passed")
        self._journal_trouble: str | None = None
        self._log = nats_log
        self._service = service
        self._dead = nats_log.writer(DEAD)
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None
        self._workers: set[asyncio.Task[Any]] = set()
        self._burials: set[asyncio.Task[None]] = set()
        self._ages = MessageAges()
        self.behind = 0
        """Messages of the notification log that are not read yet."""
        self._read_ahead = min(READ_AHEAD, bounds.queue_count)
        self._read_ahead_bytes = bounds.queue_bytes // 2
        self._watch_metrics()

    # ---- Start and end ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Know the subscriptions and the place in the log, and have a connection to the MQTT server."""
        self._service.health = self.health
        await self._answer()
        newest = 0
        async with aclosing(self._log.bucket(SUBSCRIPTIONS).each()) as changes:
            async for key, value, revision in changes:
                self._on_subscription(key, value)
                newest = revision
        resumed = await self._resume()
        await self.client.start()
        if self.backlog.topics:
            await self.client.subscribe(self.backlog.topics, 0)
        for work in (self._watch_subscriptions(newest), self.sender.watch(), self._keep_position()):
            self._begin(work)
        self._begin(self.backlog.run())
        if self._service.endpoints.mqtt_kind == "nats":
            self._begin(self.expiry.run())
        await self._look_at_ages()
        await self._read_open(resumed)
        for reading in (self._read(), self._watch_ages()):
            self._begin(reading)

    async def run_until(self, stopping: asyncio.Event) -> None:
        """Deliver; then finish what is under way. What fails for good ends the process: it is started again."""
        stop = asyncio.create_task(stopping.wait())
        try:
            await asyncio.wait({stop, *self._workers}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._workers:
                if task.done() and not task.cancelled() and (error := task.exception()):
                    raise error
        finally:
            stop.cancel()
            await self._end()

    async def _end(self) -> None:
        tasks = self._workers | self._burials
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._timer is not None:
            self._timer.cancel()
        await self.sender.drain(DRAIN_SECONDS if self.client.connected.is_set() else 0.0)
        self._flush()
        with suppress(LogError, TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._put_position()
        await self.client.close()
        self.journal.close()
        self.passed.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._workers.add(asyncio.create_task(work))

    # ---- Subscriptions ------------------------------------------------------------------------------------------

    async def _watch_subscriptions(self, newest: int) -> None:
        async for change in self._log.bucket(SUBSCRIPTIONS).watch(after_revision=newest):
            self._on_subscription(change.key, change.value)
            self._moved()

    def _on_subscription(self, name: str, value: bytes | None) -> None:
        """A key of the bucket: `slot.tenant.owner.sid`."""
        _, tenant, owner, sid = name.split(".")
        key: Key = (intern(tenant), intern(owner), sid)  # one of each, not one for each subscription
        if value is None:
            self.queues.forget(key)
            self.status.forget(key)
            return
        try:
            options = read_options(orjson.loads(value).get("options") or {})
        except (OptionError, ValueError) as error:
            log.warning("subscription %s: %s; delivered as if it had no options", name, error)
            options = DEFAULT
        self.queues.set_options(key, options, monotonic())

    # ---- From the log into the queues ---------------------------------------------------------------------------

    async def _resume(self) -> Resumed:
        entry = await self._log.bucket(READERS).get(READER)
        position = None if entry is None else Position.decode(entry.value)
        journal = self.journal.read()
        resumed = await find_start(self._log, journal, position)
        self.progress = Progress(resumed)
        if resumed is journal:
            self.journal.go_on()
        else:
            self.journal.begin(self.progress.header())
        self.queues.limits.restore(self.passed.read())
        self.passed.begin(self.queues.limits.lines())
        log.info("going on after %d of the notification log, %d messages open", resumed.last, len(resumed.open))
        return resumed

    async def _read_open(self, resumed: Resumed) -> None:
        """Read again what was begun and not done."""
        missing = set(resumed.open)
        for first, last in list(together(missing)):
            async for messages in read_range(self._log, NOTES, first, last):
                for message in messages:
                    if message.sequence in missing:
                        missing.discard(message.sequence)
                        await self._take(message)
        self.status.purged += len(missing)
        self.progress.gone(missing)

    async def _read(self) -> None:
        reader = self._log.reader(NOTES, after=self.progress.last)
        try:
            while True:
                before = reader.skipped
                for message in await reader.next(at_most=READ_AT_MOST):
                    await self._take(message)
                self.behind = reader.pending
                self.status.purged += reader.skipped - before
        except Truncated as error:
            # What is under way would be taken for what comes under the same numbers: begin anew.
            log.error("%s; delivery starts again", error)
            raise
        finally:
            await reader.close()

    async def _take(self, message: Message) -> None:
        """Queue a message's notifications, as fast as there is room."""
        try:
            notes = decode(message.data)
        except NotesError as error:
            log.error("message %d of the notification log: %s", message.sequence, error)
            self.status.damaged += 1
            self.progress.begin(message.sequence, 0, message.time)
            return
        done = self.progress.begin(message.sequence, len(notes.notes), message.time)
        if len(done) == len(notes.notes):
            return
        self.status.resumed += len(done)
        wanted = [index for index in range(len(notes.notes)) if index not in done] if done else None
        age = self._ages.age(message.sequence, message.time, monotonic())
        for told in encode_notes(notes, wanted):
            key = (notes.tenant, told.owner, told.sid)
            places = ((message.sequence, told.number),)
            item = Item(key, told.payload, places, told.id, notes.time, age)
            if (row := notes.notes[told.number].row) is not None:
                item.position = position_of(notes.publications[row])
            self.queues.push(item, monotonic())
            if self.queues.ready >= PUMP_AT:
                self._moved()
            while self._enough():
                self.sender.progress.clear()
                await self.sender.progress.wait()
        self._moved()

    async def _watch_ages(self) -> None:
        while True:
            await asyncio.sleep(AGES_SECONDS)
            with suppress(LogError):  # later, then: until it is known, a message is as young as can be
                await self._look_at_ages()

    async def _look_at_ages(self) -> None:
        state = await self._log.state(NOTES)
        if self.progress.settled():
            self.queues.limits.prune(self.progress.floor)
        self._ages.saw(state.last, state.now, monotonic(), self._service.settings.delivery.queue_age)

    def _enough(self) -> bool:
        """Whether so much could be sent now that reading more would only fill the queues."""
        return self.queues.ready >= self._read_ahead or self.queues.ready_bytes >= self._read_ahead_bytes

    def _moved(self) -> None:
        """Something came into the queues: send it, and wake when more will be due."""
        self.sender.pump()
        due = self.queues.next_due()
        if due is not None and (self._timer is None or due < self._timer.when()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_at(due, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        self.queues.run_due(monotonic())
        self._moved()

    # ---- What is done -------------------------------------------------------------------------------------------

    def _on_sent(self, item: Item) -> None:
        self.status.sent(item, time.time())
        self._done(item)

    def _on_drop(self, item: Item, reason: DropReason) -> None:
        self.status.drop(item, reason)
        self.sender.progress.set()
        self._done(item)

    def _done(self, item: Item) -> None:
        self.progress.done(item.places)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write down what is done: all that came in one turn of the loop. First what has passed a limit: what is done
        because it did not pass must find that again after a restart."""
        self._flushing = False
        entries = self.progress.take_entries()
        try:
            if passed := self.queues.limits.take_lines():
                self.passed.add(passed)
            if self.passed.is_long and self.progress.settled():
                self.passed.begin(self.queues.limits.lines())
            if entries:
                self.journal.add(entries)
            if self.journal.is_long and self.progress.settled():
                self.journal.begin(self.progress.header())
            self._journal_trouble = None
        except OSError as error:
            if self._journal_trouble is None:
                log.error("%s cannot be written: %s", self.journal.path, error)
            self._journal_trouble = str(error)

    async def _keep_position(self) -> None:
        """Tell the keeper, and whoever goes on without the journal."""
        floor = -1
        while True:
            if self.progress.floor != floor:
                floor = self.progress.floor
                await self._put_position()
            await asyncio.sleep(POSITION_SECONDS)

    async def _put_position(self) -> None:
        progress = self.progress
        position = Position(NOTES, progress.floor, progress.last, progress.time)
        await self._log.bucket(READERS).put(READER, position.encode())

    def _give_up(self, flight: Flight, why: str) -> None:
        """A message becomes a dead letter; only once that is stored it is done with."""
        now = time.time()
        self.status.failed(flight.item, why, now)
        task = asyncio.create_task(self._bury(flight, why, now))
        self._burials.add(task)
        task.add_done_callback(self._burials.discard)

    async def _bury(self, flight: Flight, why: str, now: float) -> None:
        item = flight.item
        log.error("a notification for %s/%s is given up: %s", item.key[1], item.key[2], why)
        letter = orjson.dumps(_letter(item, why, flight.attempts, now))
        client = item.key[1] if is_name(item.key[1]) else NOBODY
        stored: asyncio.Future[Stored] = await self._dead.put(dead_subject("delivery", client), letter)
        await stored
        self.status.died(item)
        self._done(item)
        self.sender.settle(flight)

    # ---- Questions ----------------------------------------------------------------------------------------------

    async def _answer(self) -> None:
        async def metrics(_: bytes) -> bytes:
            return generate_latest(self._service.metrics)

        async def health(_: bytes) -> bytes:
            return orjson.dumps(self._service.health())

        handlers = {"metrics": metrics, "health": health, "status": self._tell_status, "sessions": self._tell_sessions}
        for what, handler in handlers.items():
            await self._log.answer(self._service.name, what, handler)

    async def _tell_status(self, question: bytes) -> bytes:
        item = orjson.loads(question)
        key: Key = (item["tenant"], item["owner"], item["sid"])
        return orjson.dumps({"ok": True, "queued": self.queues.waiting(key), **self.status.peek(key).to_json()})

    async def _tell_sessions(self, question: bytes) -> bytes:
        item = orjson.loads(question)
        return orjson.dumps({"ok": True, "sessions": self.expiry.list(item["client"], item["after"], item["limit"])})

    @property
    def lag_seconds(self) -> float:
        """How old the oldest message is that is not done, with what a digest or a rate limit holds back."""
        oldest = self.progress.oldest or (self.progress.time if self.behind else None)
        return max(0.0, time.time() - oldest) if oldest else 0.0

    def health(self) -> dict[str, Any]:
        """Whether notifications can go out now."""
        why = None
        if not self._log.connected:
            why = "no connection to the log's server"
        elif not self.client.connected.is_set():
            why = "no connection to the MQTT server"
        elif self.sender.oldest_seconds > SILENT_SECONDS:
            why = f"the MQTT server has not acknowledged a notification for {self.sender.oldest_seconds:.0f} s"
        elif self._journal_trouble:
            why = f"{self.journal.path.name} cannot be written: {self._journal_trouble}"
        state = {"floor": self.progress.floor, "read": self.progress.last, "queued": self.queues.ready}
        lag = {"behind": self.behind, "lag_seconds": self.lag_seconds}
        return {"ready": why is None, **({"why": why} if why else {}), **state, **lag}

    def _watch_metrics(self) -> None:
        status, queues, sender = self.status, self.queues, self.sender
        status.watch_gauge("queued", "Messages that could be sent now and wait", lambda: queues.ready)
        status.watch_gauge("held", "Messages that a digest or a rate limit holds back", lambda: queues.held)
        status.watch_gauge("at_most_remembered", "Notifications that passed at_most", lambda: queues.limits.remembered)
        status.watch_counter("at_most_uncounted", "Passed, for want of room", lambda: queues.limits.uncounted)
        status.watch_gauge("queued_bytes", "Their size", lambda: queues.bytes)
        status.watch_gauge("longest_queue", "Messages in the longest queue of one owner", queues.longest)
        status.watch_gauge("in_flight", "Messages without their acknowledgement", lambda: sender.in_flight)
        status.watch_gauge("window", "Messages that may be so", lambda: sender.window.size)
        status.watch_gauge("floor", "All of the notification log up to here is done", lambda: self.progress.floor)
        status.watch_gauge("behind", "Messages of it that are not read yet", lambda: self.behind)
        status.watch_gauge("lag_seconds", "Age of the oldest message that is not done", lambda: self.lag_seconds)
        status.watch_gauge("read", "The newest message read of the notification log", lambda: self.progress.last)
        status.watch_counter("retried", "Attempts that failed", lambda: sender.retried)
        status.watch_counter("resent", "Messages sent again in a new connection", lambda: self.client.resent)
        status.watch_gauge("server_backlog", "Messages that our MQTT server keeps", lambda: self.backlog.messages)
        status.watch_counter("server_dropped", "Messages that it dropped at its bound", lambda: self.backlog.dropped)
        status.watch_counter("sessions_expired", "Sessions ended for being away", lambda: self.expiry.expired)


def _letter(item: Item, why: str, attempts: int, now: float) -> dict[str, Any]:
    tenant, owner, sid = item.key
    return {
        "v": 1,
        "client": owner,
        "tenant": tenant,
        "sid": sid,
        "id": item.id,
        "reason": why,
        "attempts": attempts,
        "time": now,
        "logged": item.logged,
        "places": item.places[:100],
        "size": len(item.payload),
        "payload": item.payload[:MAX_DEAD_PAYLOAD].decode(errors="replace"),
    }
