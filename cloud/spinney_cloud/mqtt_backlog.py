"""What the MQTT server keeps for subscribers that are offline or slow: bounded, and what is dropped counted.

Our own nats-server keeps all that is not acknowledged in one stream without a limit: notifications, and publications
that wait for the gateway. A limit of the stream would drop those, too. So what waits as a subscriber's notifications is
looked at every few seconds, and beyond `queue_count`, `queue_bytes` or `queue_age` of the settings the oldest are
removed. Bytes are counted by the stream's average. An existing nats-server gets the same.

mosquitto bounds each session itself, by `max_queued_messages` and `memory_limit` (see `spinney cloud conf mosquitto`),
and drops the newest; it says how many in all. What another server does is its own.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, Final

from .log_errors import NO_MESSAGE_FOUND, LogError, Refused, StreamMissing
from .message_ages import MessageAges
from .mqtt import Publish
from .names import TOPICS
from .nats_log import NatsLog, server_time
from .service import Service

log = logging.getLogger(__name__)

STREAM: Final = "$MQTT_msgs"
PREFIX: Final = "$MQTT.msgs."
NOTES: Final = f"{PREFIX}{TOPICS}.*.note.*"
LOOK_SECONDS: Final = 5.0
DROPPED_TOPIC: Final = "$SYS/broker/publish/messages/dropped"
MAX_PURGES: Final = 1_000
"""In one look; the next one does the rest."""


class MqttBacklog:
    """Looks after it; does nothing but count where the server is not nats-server."""

    def __init__(self, service: Service, nats_log: NatsLog, clock: Callable[[], float] = time.monotonic) -> None:
        self.messages = 0
        """Notifications that our server keeps."""
        self.dropped = 0
        self._settings = service.settings.delivery
        self._kind = service.endpoints.mqtt_kind
        self._log = nats_log
        self._clock = clock
        self._ages = MessageAges()

    @property
    def topics(self) -> tuple[str, ...]:
        """Where the server tells what it drops."""
        return (DROPPED_TOPIC,) if self._kind == "mosquitto" else ()

    def on_message(self, message: Publish) -> None:
        """What came on those topics."""
        if message.topic == DROPPED_TOPIC and message.payload.isdigit():
            self.dropped = int(message.payload)

    async def run(self) -> None:
        """Look every few seconds, until cancelled."""
        said = ""
        while True:
            if self._kind == "nats":
                try:
                    await self.look()
                    said = ""
                except LogError as error:
                    if str(error) != said:
                        log.warning("the MQTT server's backlog cannot be looked at: %s", error)
                        said = str(error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Count, and remove what is too much or too old."""
        try:
            info = await self._api("STREAM.INFO", {"subjects_filter": NOTES})
            if await self._too_old(info):
                info = await self._api("STREAM.INFO", {"subjects_filter": NOTES})
        except StreamMissing:
            return  # made when the first client subscribes at QoS 1
        state = info["state"]
        subjects: dict[str, int] = state.get("subjects") or {}
        self.messages = sum(subjects.values())
        average = max(1.0, state["bytes"] / max(1, state["messages"]))
        bound = max(1, min(self._settings.queue_count, int(self._settings.queue_bytes / average)))
        for subject, keep in list(_too_many(subjects, bound))[:MAX_PURGES]:
            await self._purge({"filter": subject, "keep": keep})

    async def _too_old(self, info: dict[str, Any]) -> bool:
        """Remove notifications that have waited too long; whether there were any."""
        age, now, before = self._settings.queue_age, self._clock(), self.dropped
        self._ages.saw(info["state"]["last_seq"], server_time(info), now, age)
        up_to = self._ages.older_than(age, now)
        first = await self._from(1)
        if first is not None and up_to < first[0] <= self._ages.last_before:
            up_to = await self._last_before(first, self._ages.timestamp(age, now))
        if first is not None and first[0] <= up_to:
            await self._purge({"filter": NOTES, "seq": up_to + 1})
        return self.dropped > before

    async def _last_before(self, first: tuple[int, float], moment: float) -> int:
        """Of those that were there when we began; found by halves, for their numbers have gaps."""
        if first[1] >= moment:
            return 0
        low, high = first[0], self._ages.last_before + 1
        while low + 1 < high:
            middle = (low + high) // 2
            found = await self._from(middle)
            if found is None or found[0] >= high or found[1] >= moment:
                high = middle
            else:
                low = found[0]
        return low

    async def _from(self, sequence: int) -> tuple[int, float] | None:
        """The first notification from there on: its sequence, and when it came."""
        try:
            found = (await self._api("STREAM.MSG.GET", {"seq": sequence, "next_by_subj": NOTES}))["message"]
        except Refused as error:
            if error.error_code == NO_MESSAGE_FOUND:
                return None
            raise
        return found["seq"], datetime.fromisoformat(found["time"]).timestamp()

    async def _api(self, what: str, question: object = None) -> Any:
        return await self._log.connection.api(f"{what}.{STREAM}", question)

    async def _purge(self, what: dict[str, Any]) -> None:
        purged = int((await self._api("STREAM.PURGE", what))["purged"])
        if purged:
            self.dropped += purged
            log.warning("%d notifications are dropped that no subscriber took: %s", purged, what["filter"])


def _too_many(subjects: dict[str, int], bound: int) -> Iterator[tuple[str, int]]:
    """Of each owner with more than the bound its subjects, and how many messages each may keep."""
    owners: dict[str, dict[str, int]] = defaultdict(dict)
    for subject, count in subjects.items():
        owners[subject.split(".")[3]][subject] = count
    for mine in owners.values():
        total = sum(mine.values())
        if total > bound:
            for subject, count in mine.items():
                yield subject, max(1, count * bound // total)
