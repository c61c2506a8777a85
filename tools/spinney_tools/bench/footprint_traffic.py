"""What is counted of the messaging footprint: messages and bytes on the uplink, and over BLE between phone and mote.

Over BLE a message is a GATT write, a value that is read, or a notification, with the bytes of its value, in the order
in which a mobile broker visits a mote. Not counted, since they are the same for each visit or whatever is sent, are
adverts, setting up a connection, and the link layer's and ATT's own acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from spinney import mqtt_codec
from spinney.mote.adverts import STATE as MODE_STATE
from spinney.mote.adverts import WRITE as MODE_WRITE
from spinney.mote.protocol import (
    EVENT_HEAD,
    FILTER_HEAD,
    FILTER_REPLY,
    INFO_HEAD,
    MAX_CHUNK,
    ROW,
    TIME_WRITE,
    AttributeRow,
)
from spinney_mobile.motes.table import Change

PUBACK_BYTES: Final = len(mqtt_codec.puback(1))
_SUBSCRIBE: Final = 2
_CONTROL: Final = 2
"""Op and tag, before what an op carries."""
_ANSWER: Final = 3
_EVENT_NUMBER: Final = 4
_CRC: Final = 4


@dataclass(slots=True)
class Traffic:
    """Messages and their bytes."""

    messages: int = 0
    bytes: int = 0

    def add(self, size: int, times: int = 1) -> None:
        """So many of a size."""
        self.messages += times
        self.bytes += size * times


@dataclass(slots=True)
class Footprint:
    """What one way of messaging took in one run."""

    uplink: Traffic = field(default_factory=Traffic)
    """Readings, and what controls acquisition, both ways; as the paper counts, without acknowledgements."""
    answers: Traffic = field(default_factory=Traffic)
    """PUBACKs, `stored`, the cloud's answers to announcements, and what it says of itself at a new link."""
    ble: Traffic = field(default_factory=Traffic)

    def publish(self, topic: str, payload: bytes, *, at_most_once: bool = False) -> None:
        """One message by MQTT with QoS 1, and its PUBACK; or with QoS 0, which has none."""
        self.uplink.add(_publish_bytes(topic, payload, qos=int(not at_most_once)))
        if not at_most_once:
            self.answers.add(PUBACK_BYTES)

    def answer(self, topic: str, payload: bytes) -> None:
        """One message by MQTT with QoS 0."""
        self.answers.add(_publish_bytes(topic, payload, qos=0))

    @property
    def acknowledged(self) -> Traffic:
        """All of the uplink."""
        return Traffic(self.uplink.messages + self.answers.messages, self.uplink.bytes + self.answers.bytes)


def _publish_bytes(topic: str, payload: bytes, *, qos: int) -> int:
    return len(mqtt_codec.publish(mqtt_codec.topic_bytes(topic), payload, qos, qos=qos))


@dataclass(frozen=True)
class Visits:
    """What visits of one mote take; it is made from what the mote says of itself."""

    name: str
    rows: Sequence[AttributeRow]
    firmware: str = "0.1.0"

    @cached_property
    def info_bytes(self) -> int:
        """Of `info`, where the mote has never crashed."""
        texts = [self.firmware, self.name, ""]
        texts += [text for row in self.rows for text in (row.name, row.unit)]
        return INFO_HEAD.size + sum(1 + len(text.encode()) for text in texts) + ROW.size * len(self.rows) + _CRC

    @property
    def event_bytes(self) -> int:
        """Of an event with all attributes."""
        return EVENT_HEAD.size + 4 * len(self.rows)

    def look(self, ble: Traffic, times: int = 1) -> None:
        """A first visit, of a mote that is nobody's yet; every visit begins and ends so."""
        ble.add(_SUBSCRIBE, 2 * times)
        ble.add(self.info_bytes, times)

    def visit(self, ble: Traffic, *, events: int = 0, changes: Iterable[Change] = (), sets_clock: bool = False) -> None:
        """Takes events; then changes the table; and sets, or renews, what the mote advertises."""
        self.look(ble)
        if sets_clock:
            ble.add(TIME_WRITE.size)
            _ask(ble, 0, 0)
        ble.add(_SUBSCRIBE, 2)
        _ask(ble, _EVENT_NUMBER, 2 * _EVENT_NUMBER)
        ble.add(self.event_bytes, events)
        if events:
            _ask(ble, _EVENT_NUMBER, 0)
        commits = list(changes)
        for add, drop in commits:
            self._commit(ble, add.values(), len(drop))
        if commits:
            ble.add(self.info_bytes)
        _ask(ble, MODE_WRITE.size, MODE_STATE.size)

    @staticmethod
    def _commit(ble: Traffic, programs: Iterable[bytes], drops: int) -> None:
        for program in programs:
            chunks = -(-len(program) // MAX_CHUNK)
            ble.add(FILTER_HEAD.size, 1 + chunks)
            ble.bytes += len(program)
            ble.add(FILTER_REPLY.size, 1 + chunks)
        ble.add(FILTER_HEAD.size, drops + 1)
        ble.add(FILTER_REPLY.size, drops + 1)


def _ask(ble: Traffic, request: int, answer: int) -> None:
    ble.add(_CONTROL + request)
    ble.add(_ANSWER + answer)
