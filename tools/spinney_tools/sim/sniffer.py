"""A plain scanner that hears all of the virtual air: what each radio transmits, counted there and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from uuid import UUID

from spinney.mote.protocol import SERVICE

OPEN, ENCRYPTED, PRESENCE, OTHER = "open", "encrypted", "presence", "other"
_DATA_16, _DATA_128 = 0x16, 0x21
"""Types of advertising data: service data under a short and under a long name."""
_BTHOME = b"\xd2\xfc"
_MOTE = UUID(str(SERVICE)).bytes[::-1]
_IS_ENCRYPTED = 0x01
_PACKET_ID = 0x00
_COUNTER_BYTES, _MIC_BYTES = 4, 4


@dataclass(slots=True)
class Traffic:
    """Of one radio. Bytes are those of the payload, without what surrounds it on the air."""

    adverts: int = 0
    """Advertising events; each is sent on three channels."""
    advert_bytes: int = 0
    scan_responses: int = 0
    scan_response_bytes: int = 0
    connections: int = 0
    """As the one that advertised."""
    connected_s: float = 0.0
    sent_packets: int = 0
    """On connections, as what follows."""
    sent_bytes: int = 0
    received_packets: int = 0
    received_bytes: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    """Adverts by what they tell: OPEN, ENCRYPTED, PRESENCE, OTHER."""
    readings: Counter[str] = field(default_factory=Counter)
    """Samples whose values were on the air, by OPEN and ENCRYPTED; each counts once, however often it was repeated."""

    def counts(self) -> dict[str, float]:
        """All of them by name."""
        found: dict[str, float] = {}
        for one in fields(self):
            value = getattr(self, one.name)
            if isinstance(value, Counter):
                found.update({f"{one.name}_{name}": count for name, count in sorted(value.items())})
            else:
                found[one.name] = value
        return found

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


class Sniffer:
    """What is on the air, by sender."""

    def __init__(self) -> None:
        self._traffic: dict[object, Traffic] = {}
        self._last: dict[object, bytes] = {}
        self._kinds: dict[object, str] = {}
        self._samples: dict[object, bytes] = {}

    def of(self, sender: object) -> Traffic:
        """The counts of one radio, which go on."""
        return self._traffic.setdefault(sender, Traffic())

    def advert(self, sender: object, data: bytes) -> None:
        """An advertising event."""
        traffic = self.of(sender)
        traffic.adverts += 1
        traffic.advert_bytes += len(data)
        if self._last.get(sender) != data:
            self._last[sender] = data
            self._kinds[sender], sample = told(data)
            if sample is not None and self._samples.get(sender) != sample:
                self._samples[sender] = sample
                traffic.readings[self._kinds[sender]] += 1
        traffic.kinds[self._kinds[sender]] += 1

    def scan_response(self, sender: object, data: bytes) -> None:
        """One scanner asked and was answered."""
        traffic = self.of(sender)
        traffic.scan_responses += 1
        traffic.scan_response_bytes += len(data)

    def data(self, sender: object, receiver: object, size: int) -> None:
        """A packet on a connection; `receiver` is None where it is gone."""
        traffic = self.of(sender)
        traffic.sent_packets += 1
        traffic.sent_bytes += size
        if receiver is not None:
            other = self.of(receiver)
            other.received_packets += 1
            other.received_bytes += size


def told(data: bytes) -> tuple[str, bytes | None]:
    """What an advert tells, and what tells its sample from the one before; None where no values are in it."""
    for kind, content in _structures(data):
        if kind == _DATA_16 and content[:2] == _BTHOME and len(content) > 2:
            return _bthome(content[2], content[3:])
        if kind == _DATA_128 and content[: len(_MOTE)] == _MOTE:
            return PRESENCE, None
    return OTHER, None


def _bthome(info: int, objects: bytes) -> tuple[str, bytes | None]:
    if info & _IS_ENCRYPTED:
        return ENCRYPTED, objects[-_COUNTER_BYTES - _MIC_BYTES : -_MIC_BYTES]
    if objects[:1] != bytes([_PACKET_ID]):
        return OPEN, objects
    return (OPEN, objects[1:2]) if len(objects) > 2 else (OPEN, None)


def _structures(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 1 < len(data) and data[at]:
        yield data[at + 1], data[at + 2 : at + 1 + data[at]]
        at += 1 + data[at]
