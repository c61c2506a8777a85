"""What clients send by MQTT: publications through the front door, requests unread to the coordinator's stream."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import orjson

from spinney import PublicationError
from spinney.packed import PackedError, is_packed

from . import arrivals
from .arrivals import Arrival, Arrivals
from .fetch.parts import MEMBER as FETCHED
from .fetch.parts import id_in
from .fetch.passing import Passing
from .front_door import FrontDoor
from .intake import Sender, Taken
from .log_errors import LogError
from .mqtt import Publish
from .mqtt.sessions import Sessions
from .names import Topic, parse_topic
from .packers import Packers, unpack_text
from .payloads import Kind, Refusal
from .replies import Replies
from .request_pump import RequestPump
from .source_owners import NotTheOwner

FILTERS = ("spinney/+/pub", "spinney/+/unpub", "spinney/+/ann", "spinney/+/sub/+")
MAX_PENDING_BYTES = 64 * 1024**2
"""Of messages that are not stored, with all that they take; beyond it nothing is read until half of it is."""
MAX_TOPICS = 10_000
"""That are known without being looked at again."""
NO_CLIENT = "_unknown"
"""Stands for the client of a topic that has none, in dead letters."""


_parsed = lru_cache(MAX_TOPICS)(parse_topic)


class MqttIntake:
    """Takes messages from the MQTT server, and acknowledges each once it is dealt with."""

    def __init__(
        self,
        mqtt: Sessions,
        door: FrontDoor,
        requests: RequestPump,
        replies: Replies,
        packers: Packers,
        passing: Passing,
        tenant_of: Callable[[str], str | None],
    ) -> None:
        self.arrivals = Arrivals(mqtt.ack)
        self.stopping = False
        """Nothing more is taken, nor acknowledged: it comes again."""
        self._mqtt = mqtt
        self._door = door
        self._requests = requests
        self._replies = replies
        self._packers = packers
        self._passing = passing
        self._tenant_of = tenant_of
        self._metrics = door.metrics
        self._paused = False

    def on_message(self, message: Publish) -> None:
        """A message of any client."""
        if self.stopping:
            return
        topic = _parsed(message.topic)
        lane = arrivals.REQUESTS if topic is not None and topic.leaf in ("sub", "ann") else arrivals.LOG
        arrival = self.arrivals.arrive(message, lane, time.monotonic())
        if arrival is None:
            self._metrics.redelivered += 1
            return
        self._take(arrival, topic)
        if self.arrivals.bytes > MAX_PENDING_BYTES:
            self._paused = True
            self._mqtt.pause_reading(True)  # again, too: it may be another connection by now

    def _take(self, arrival: Arrival, topic: Topic | None) -> None:
        message = arrival.message
        if topic is None:
            sender = Sender("", NO_CLIENT)
            self._refuse(
                arrival, sender, Topic(NO_CLIENT, "pub"), f"no client's topic: {message.topic[:80]!r}", "topic"
            )
            return
        self._metrics.messages[topic.leaf] += 1
        tenant = self._tenant_of(topic.client)
        sender = Sender(tenant or "", topic.client)
        if tenant is None:
            self._refuse(arrival, sender, topic, f"there is no user {topic.client}", "topic")
        elif message.retain:
            self._refuse(arrival, sender, topic, "a retained copy: publish without the retain flag", "retained")
        elif topic.leaf == "pub":
            self._publication(arrival, sender)
        elif topic.leaf == "unpub":
            self._unpublish(arrival, sender, topic)
        else:
            self._request(arrival, topic, sender)

    def _done(self, arrival: Arrival) -> None:
        self.arrivals.done(arrival)
        if self._paused and self.arrivals.bytes < MAX_PENDING_BYTES // 2:
            self._paused = False
            self._mqtt.pause_reading(False)

    def _refuse(self, arrival: Arrival, sender: Sender, topic: Topic, reason: str, kind: Kind) -> None:
        """The whole message, for good. It is told in the form that the client waits for."""
        taken = Taken(refusals=[Refusal(None, None, reason, kind)])
        self._door.refused(sender, arrival.message.topic, arrival.message.payload, taken)
        if topic.leaf == "pub" and sender.client != NO_CLIENT:
            self._replies.refused(sender.client, taken.refusals, None)
        elif topic.leaf != "pub":
            self._replies.tell(sender.client, _request_refused(topic, arrival.message.payload, reason))
        self._done(arrival)

    def _tell_refused(self, arrival: Arrival, sender: Sender, taken: Taken) -> None:
        self._door.refused(sender, arrival.message.topic, arrival.message.payload, taken)
        self._replies.refused(sender.client, taken.refusals, taken.batch)

    # ---- Publications

    def _publication(self, arrival: Arrival, sender: Sender) -> None:
        taken = self._door.take(sender, arrival.message.payload)
        if taken.busy is not None:
            batch = {} if taken.batch is None else {"batch": taken.batch}
            self._replies.tell(sender.client, {"busy": taken.busy} | batch)
        if taken.refusals:
            self._tell_refused(arrival, sender, taken)
        self._door.store(sender, taken, partial(self._stored, arrival, sender, taken))

    def _stored(self, arrival: Arrival, sender: Sender, taken: Taken, error: LogError | None) -> None:
        if error is not None:
            taken.refusals = [Refusal(None, None, f"the log does not take it: {error}", "size")]
            self._tell_refused(arrival, sender, taken)
        elif taken.rows or taken.labels:
            self._metrics.stored += len(taken.rows)
            self._metrics.took(time.monotonic() - arrival.started)
            self._replies.stored(sender.client, taken.stored(), taken.batch)
        self._done(arrival)

    def _unpublish(self, arrival: Arrival, sender: Sender, topic: Topic) -> None:
        id = _id_in(arrival.message.payload)

        def stored(error: LogError | None) -> None:
            told = {"ok": True} if error is None else {"ok": False, "error": {"message": str(error)}}
            self._replies.tell(sender.client, {"request": "unpub", "id": id, **told})
            self._done(arrival)

        try:
            self._door.unpublish(sender, id, stored)
        except (PublicationError, NotTheOwner) as error:
            self._refuse(arrival, sender, topic, str(error), "id")

    # ---- Requests

    def _request(self, arrival: Arrival, topic: Topic, sender: Sender) -> None:
        payload, limit = arrival.message.payload, self._door.intake.limits.payload
        if len(payload) > limit:
            self._refuse(arrival, sender, topic, f"a payload of {len(payload)} bytes; the limit is {limit}", "size")
            return

        if topic.leaf == "ann":
            try:
                payload, item = self._announcement(topic.client, payload)
            except PackedError as error:
                self._refuse(arrival, sender, topic, f"packed: {error}", "payload")
                return
            if FETCHED in item:  # it is kept nowhere: whoever asked has it, or nobody
                self._passing.put(sender.tenant, sender.client, id_in(item), payload)
                self._done(arrival)
                return

        def stored(error: LogError | None) -> None:
            if error is None:
                self._done(arrival)
            else:
                self._refuse(arrival, sender, topic, f"the log does not take it: {error}", "size")

        self._requests.put(topic.client, _request(topic, sender.tenant, payload), stored)

    def _announcement(self, client: str, payload: bytes) -> tuple[bytes, dict[str, Any]]:
        """As JSON, and read. Who packs announcements reads packed activations; a new session hears our limits."""
        packed = is_packed(payload)
        if packed:
            payload = unpack_text(payload)
        item = _object(payload)
        if isinstance(session := item.get("session"), str) and "sources" in item:
            self._packers.heard(client, packed=packed)
            self._replies.greet(client, session)
        return payload, item


def _request_refused(topic: Topic, payload: bytes, reason: str) -> dict[str, Any]:
    told: dict[str, Any] = {"request": topic.leaf, "ok": False, "error": {"message": reason}}
    if topic.leaf == "unpub":
        told["id"] = _id_in(payload)
    return told if topic.sid is None else told | {"sid": topic.sid}


def _id_in(payload: bytes) -> Any:
    return _object(payload).get("id")


def _object(payload: bytes) -> dict[str, Any]:
    """Empty if it is none."""
    try:
        item = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return {}
    return item if isinstance(item, dict) else {}


def _request(topic: Topic, tenant: str, payload: bytes) -> bytes:
    """A request as the coordinator reads it."""
    item: dict[str, Any] = {
        "v": 1,
        "client": topic.client,
        "tenant": tenant,
        "leaf": topic.leaf,
        "sid": topic.sid,
        "received": time.time(),
    }
    try:
        item["payload"] = payload.decode()
    except UnicodeDecodeError:
        item |= {"payload": None, "payload_b64": b64encode(payload).decode()}
    return orjson.dumps(item)
