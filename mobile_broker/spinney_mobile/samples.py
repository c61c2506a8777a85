"""What goes through the mobile broker: what an acquirer heard, and the sample that it means.

    Acquirer -> Heard -> decoded, allowed, named -> Sample -> private rules, place -> numbered -> decided -> outbox

Motes that are connected, local publishers and replays know their samples whole and skip the first half.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from spinney.expression import Value
from spinney.label import Mark

MAX_HEARD_BYTES: Final = 4096
"""Of one advert, line or message."""

HEARD: Final = "heard"
"""The attribute that says when the broker heard of a sample, where that is not when it was taken."""

CELL: Final = "cell"
"""The attribute that says in which cell a sample was taken."""

Digest = str
"""Of an active filter, as an activation names it."""


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that an acquirer heard, before anybody has looked into it."""

    acquirer: str
    """Its name, `ble:hci0` for instance."""
    address: str
    """Of what sent it, unique with the acquirer's kind: a Bluetooth address, a topic, a port."""
    time: float
    """When it was heard, by the broker's clock, in seconds since 1970."""
    name: str | None = None
    """As it calls itself."""
    rssi: int | None = None
    services: Mapping[str, bytes] = field(default_factory=dict)
    """Service data of an advert by UUID, in lower case and full length."""
    manufacturers: Mapping[int, bytes] = field(default_factory=dict)
    """Manufacturer data of an advert by company."""
    values: Mapping[str, Any] | None = None
    """What needs no decoder: an object of JSON, a row of CSV."""
    measured: float | None = None
    """When it was measured, where that is known; else it is as old as what was heard."""


def raw_of(heard: Heard) -> str:
    """The bytes of what was heard, in hexadecimal: of an advert its service and manufacturer's data, as on the air."""
    if heard.values is not None:
        return json.dumps(dict(heard.values), separators=(",", ":")).encode().hex()
    services = (b"\x16" + bytes.fromhex(uuid[4:8])[::-1] + data for uuid, data in heard.services.items())
    makers = (b"\xff" + company.to_bytes(2, "little") + data for company, data in heard.manufacturers.items())
    return b"".join(bytes([len(part)]) + part for part in (*services, *makers) if len(part) <= 0xFF).hex()


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample of one source with all its attributes (rule P2), as it was measured."""

    source: str
    values: Mapping[str, Value]
    """Attributes, none of them reserved."""
    time: float
    """When it was measured, by the broker's clock."""
    heard: float
    """When it was heard."""
    acquirer: str
    boot: int | None = None
    sequence: int | None = None
    """Its number; None where the source has none of its own, and its owner numbers it (rule I1)."""
    marks: Mapping[Digest, Mark] = field(default_factory=dict)
    """What the mote's own evaluators set, by filter (rule S2)."""
    undecided: frozenset[Digest] = frozenset()
    """The filters for which the mote does not know what this sample does to their bits (rule S2)."""
    passed: bool = False
    """A filter on the mote let it through, so that the mote holds nothing back that it would be needed for."""
    rssi: int | None = None
    battery: float | None = None
    """Of the source, 0 to 1."""
    valid_for: float | None = None
    place: tuple[float, float] | None = None
    """(lat, long), where the source itself tells it, or its settings do; else it is where the broker is."""
    type: str | None = None
    """What the attribute `type` will be."""
    raw: str | None = None
    """The bytes as they were heard, in hexadecimal, for devices of which they are to be kept."""


@dataclass(frozen=True, slots=True)
class Ability:
    """What can be said of an attribute before anything is heard of it; as an announcement has it."""

    minimum: float | None = None
    maximum: float | None = None
    unit: str | None = None
    kind: str = "number"


class Sink(Protocol):
    """Where acquirers put what they have. Never blocks; called in the event loop's thread."""

    def heard(self, heard: Heard) -> str | None:
        """Something that has to be decoded; why it is refused, for whoever can be told."""

    def sampled(self, sample: Sample) -> str | None:
        """Something that is known whole. Unless refused, it is decided upon, and stored if need be, when this returns;
        only what came by radio may wait for word of its owner."""


class Acquirer(ABC):
    """A way to hear sources. `run` is a task of its own: what it raises ends this acquirer, and no other."""

    may_be_silent: bool = False
    """That nothing comes is no sign that anything is wrong."""
    error: str | None = None
    """What was wrong with what it heard last, while it goes on."""

    def __init__(self, name: str) -> None:
        self.name = name
        """Unique among the acquirers, and how settings, metrics and pages call it."""
        self.counts: Counter[str] = Counter()
        """What it has heard, and what it had to leave out."""

    @abstractmethod
    async def run(self, sink: Sink) -> None:
        """Hear until cancelled. AcquirerError for what a person has to mend; it is tried again later."""


class AcquirerError(Exception):
    """Why nothing can be heard, and what to do about it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}: {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy
