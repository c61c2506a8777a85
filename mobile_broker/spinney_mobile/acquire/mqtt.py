"""Topics of local devices that speak MQTT: each message is mapped to attributes by paths into its JSON."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from spinney.client.address import Access, Server
from spinney.client.link import Arrived, Event, Granted, Link, Lost, Opened, Refused
from spinney.publication import RESERVED

from ..foreign_access import ForeignAccess, password_in
from ..loop_handover import LoopHandover
from ..sample_time import read_time
from ..samples import MAX_HEARD_BYTES, Acquirer, AcquirerError, Heard, Sink
from ..settings import AcquireMqtt, MqttTopic
from .json_path import Finder, path, template

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 1000
"""Messages between paho's thread and the loop; beyond it the server waits."""
OPEN_SECONDS: Final = 20.0


class MqttTopics(Acquirer):
    """The topics of one MQTT server."""

    def __init__(self, name: str, settings: AcquireMqtt, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name)
        """Messages, and those left out: retained, too large, unmapped, without a source, with a bad time."""
        self._settings = settings
        self._clock = clock
        self._topics = [_Topic.of(topic) for topic in settings.topics]
        if not self._topics:
            raise AcquirerError("no topics", 'name some: topics = [{topic = "zigbee2mqtt/+"}]')

    async def run(self, sink: Sink) -> None:
        events: LoopHandover[Event] = LoopHandover(MAX_WAITING)
        link = Link(self._access(), f"spinney-{uuid4().hex[:12]}", clean=True, events=events)
        try:
            await self._open(link)
            while True:
                self._handle(await events.next(), link, sink)
        finally:
            await asyncio.to_thread(link.close)

    async def _open(self, link: Link) -> None:
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                await asyncio.to_thread(link.open)
        except OSError as error:
            problem = f"{self._settings.url}: {error or 'no answer'}"
            raise AcquirerError(problem, "is the MQTT server running, and reachable from here?") from None

    def _handle(self, event: Event, link: Link, sink: Sink) -> None:
        match event:
            case Opened():
                link.subscribe([topic.filter for topic in self._topics])
            case Refused(reason=reason):
                raise AcquirerError(f"{self._settings.url} refused us: {reason}", "check user and password_file")
            case Granted(granted=granted) if not all(granted):
                refused = [topic.filter for topic, ok in zip(self._topics, granted, strict=True) if not ok]
                raise AcquirerError(f"{self._settings.url} refused {', '.join(refused)}", "check the server's ACL")
            case Lost(reason=reason):
                raise AcquirerError(f"{self._settings.url}: the connection was lost: {reason}")
            case Arrived():
                self._arrived(event, sink)
                event.ack()

    def _arrived(self, message: Arrived, sink: Sink) -> None:
        self.counts["messages"] += 1
        topic = next((each for each in self._topics if each.matches(message.topic)), None)
        if topic is None:
            self.counts["unmapped"] += 1
        elif message.retained and topic.time is None:
            self.counts["retained"] += 1  # it was said before we came, and nobody knows when
        elif len(message.payload) > MAX_HEARD_BYTES:
            self.counts["too large"] += 1
        else:
            self._map(topic, message, sink)

    def _map(self, topic: _Topic, message: Arrived, sink: Sink) -> None:
        item = _item(message.payload)
        source = topic.source(message.topic, item)
        values = topic.values_of(message.topic, item)
        if not values or not source:
            self.counts["without a source" if values else "unmapped"] += 1
            return
        measured = self._measured(topic, item)
        sink.heard(Heard(self.name, source, self._clock(), values=values, measured=measured))

    def _measured(self, topic: _Topic, item: Any) -> float | None:
        told = topic.time(item) if topic.time else None
        if told is None:
            return None
        try:
            return read_time(told)
        except ValueError as error:
            self.counts["bad time"] += 1
            logger.debug("%s: %s", self.name, error)
            return None

    def _access(self) -> Access:
        settings, password = self._settings, None
        if settings.password_file is not None:
            try:
                password = password_in(settings.password_file)
            except OSError as error:
                raise AcquirerError(f"{settings.password_file}: {error.strerror}", "check password_file") from None
        return ForeignAccess(settings.user or "spinney", Server.parse(settings.url), password)


@dataclass(frozen=True, slots=True)
class _Topic:
    filter: str
    source: Callable[[str, Any], str | None]
    values: Mapping[str, Finder]
    time: Finder | None

    @classmethod
    def of(cls, settings: MqttTopic) -> _Topic:
        try:
            values = {name: path(text) for name, text in settings.values.items()}
            time = path(settings.time) if settings.time else None
            return cls(settings.topic, template(settings.source), values, time)
        except ValueError as error:
            raise AcquirerError(f"topic {settings.topic}: {error}") from None

    def matches(self, topic: str) -> bool:
        """As MQTT has it."""
        wanted, levels = self.filter.split("/"), topic.split("/")
        if wanted[-1] == "#":
            wanted.pop()
            levels = levels[: len(wanted)] if len(levels) >= len(wanted) else levels
        return len(wanted) == len(levels) and all(
            one in ("+", level) for one, level in zip(wanted, levels, strict=True)
        )

    def values_of(self, topic: str, item: Any) -> dict[str, Any]:
        """By the paths; without any, all that an object has of numbers, texts and booleans."""
        if self.values:
            found = {name: find(item) for name, find in self.values.items()}
            return {name: value for name, value in found.items() if value is not None}
        if not isinstance(item, dict):
            item = {topic.rpartition("/")[2]: item}
        return {name: value for name, value in item.items() if _is_plain(name, value)}


def _is_plain(name: str, value: Any) -> bool:
    """Devices use our reserved names for their own purposes; only a place means the same everywhere."""
    if name in RESERVED:
        return name in ("lat", "long") and isinstance(value, float)
    return bool(name) and isinstance(value, bool | int | float | str)


def _item(payload: bytes) -> Any:
    """JSON, or else a text."""
    try:
        return json.loads(payload)
    except (ValueError, RecursionError):
        return payload.decode("utf-8", "replace").strip()
