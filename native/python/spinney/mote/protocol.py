"""What a mote and its host tell each other: the service, what its characteristics carry, the errors of a link.

The mote's side is firmware/lib/spinney_mote/wire.py and ring.py; a test holds their constants equal.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from spinney.errors import SpinneyError

VERSION = 1
SERVICE = "e44c0001-7dff-4244-8d30-07b10a20c995"
FILTERS = "e44c0002-7dff-4244-8d30-07b10a20c995"
EVENTS = "e44c0003-7dff-4244-8d30-07b10a20c995"
INFO = "e44c0004-7dff-4244-8d30-07b10a20c995"
TIME = "e44c0005-7dff-4244-8d30-07b10a20c995"
CONTROL = "e44c0006-7dff-4244-8d30-07b10a20c995"

MTU = 247
MAX_CHUNK = 180
MAX_NOTE = 244
MAX_VALUE = 512
MAX_PROGRAM = 600

FILTER_HEAD = struct.Struct("<BHHHI")
FILTER_REPLY = struct.Struct("<BBBHHHI")
FILTER_ANSWER = 0x80
INFO_HEAD = struct.Struct("<BBHIIIIIIIBIBBB")
ROW = struct.Struct("<iiiiB")
TIME_VALUE = struct.Struct("<Bqi")
TIME_WRITE = struct.Struct("<q")
FILTER_ROW = struct.Struct("<HI")
SET_BIT_WRITE = struct.Struct("<HIIB")
EVENT_HEAD = struct.Struct("<IHIIIBII")
NO_BATTERY = 255
NO_OBJECT = 255
NO_SECONDS = 0xFFFFFFFF
_ANSWER_HEAD = 3


class FilterOp(IntEnum):
    """What a write to `filters` asks for."""

    PUT = 1
    DROP = 2
    COMMIT = 3
    STATUS = 4
    DISCARD = 5


class ControlOp(IntEnum):
    """What a write to `control` asks for."""

    ACK = 1
    REPLAY = 2
    QUIET = 3
    DESCRIBE = 4
    CRASH = 5
    SAMPLING = 6
    REBOOT = 7
    OTA = 8
    PAIRING = 9
    FORGET = 10
    PING = 11
    LIST = 12
    ADVERTS = 13
    BIND_KEY = 14
    SET_BIT = 15


class Status(IntEnum):
    """How a mote answers."""

    OK = 0
    UNKNOWN_OP = 1
    MALFORMED = 2
    NOT_ALLOWED = 3
    REFUSED = 4
    BUSY = 5
    DAMAGED = 6
    OUT_OF_ORDER = 7
    TOO_LARGE = 8


class InfoFlag(IntFlag):
    """What is so on a mote."""

    TIME_SET = 1
    SAMPLING_ON = 2
    BONDED_WRITES = 4
    PAIRING_OPEN = 8
    ADVERT_MODES = 16
    SLEEPS = 32
    ENCRYPTED = 64
    PRESENCE = 128


class EventFlag(IntFlag):
    """What an event is."""

    BIT = 1
    LABEL = 2
    PRESENCE = 4
    UNKNOWN = 8
    AGE = 16
    CRITICAL = 32
    WEAKER = 64
    LAST = 128


class LinkError(SpinneyError):
    """What can go wrong between a host and a mote; `address` is the mote's."""

    def __init__(self, message: str, *, address: str = ""):
        super().__init__(f"{address}: {message}" if address else message)
        self.address = address


class ProtocolError(LinkError, ValueError):
    """Bytes from a mote that are none of this protocol."""


class NotAMote(LinkError):
    """A device without the service of a mote."""


class LinkLost(LinkError):
    """The connection is gone, or was never there. The caller may connect again and go on."""


class AnswerTimedOut(LinkError):
    """A mote that did not answer: what was asked (`op`), and for how long it was waited."""

    def __init__(self, op: str, seconds: float, *, address: str = ""):
        super().__init__(f"no answer to {op} for {seconds:g} s", address=address)
        self.op = op
        self.seconds = seconds


class MoteRefused(LinkError):
    """A mote that says no: to what (`op`), with which status, and the reason where it gives one."""

    def __init__(self, op: str, status: int, reason: str = "", *, address: str = ""):
        named = status in Status.__members__.values()
        words = Status(status).name.lower().replace("_", " ") if named else f"status {status}"
        super().__init__(f"{op}: {words}" + (f": {reason}" if reason else ""), address=address)
        self.op = op
        self.status = status
        self.reason = reason


class PairingNeeded(MoteRefused):
    """A write that only bonded centrals may make."""


@dataclass(frozen=True, slots=True)
class AttributeRow:
    """What a mote says of one attribute; `object_id` is BTHome's, None where its adverts do not carry it."""

    name: str
    unit: str
    p: int
    q: int
    low: int
    high: int
    object_id: int | None = None


@dataclass(frozen=True, slots=True)
class Info:
    """The value of `info`. Where `attribute_count` is above the number of attributes, `control` gives the others."""

    version: int
    program_version: int
    layout: int
    boot: int
    sequence: int
    table_crc: int
    first_event: int
    next_event: int
    events_dropped: int
    writes_refused: int
    battery: int | None
    free_heap: int
    boot_cause: int
    flags: InfoFlag
    attribute_count: int
    firmware: str
    name: str
    last_crash: str
    attributes: tuple[AttributeRow, ...]

    @classmethod
    def decode(cls, value: bytes) -> Info:
        """ProtocolError for what is damaged, or of another version."""
        if len(value) < INFO_HEAD.size + 7:
            raise ProtocolError(f"info of {len(value)} bytes")
        if value[0] != VERSION:
            raise ProtocolError(f"a mote of protocol version {value[0]}; this is version {VERSION}")
        if zlib.crc32(value[:-4]) != int.from_bytes(value[-4:], "little"):
            raise ProtocolError("damaged info: its CRC is wrong")
        *numbers, battery, free_heap, cause, flags, count = INFO_HEAD.unpack_from(value)
        texts = _Reader(value[:-4], INFO_HEAD.size)
        firmware, name, crash = texts.text(), texts.text(), texts.text()
        rows = tuple(texts.rows())
        known_battery = None if battery == NO_BATTERY else battery
        ten: tuple[int, int, int, int, int, int, int, int, int, int] = tuple(numbers)
        return cls(*ten, known_battery, free_heap, cause, InfoFlag(flags), count, firmware, name, crash, rows)


class _Reader:
    def __init__(self, value: bytes, at: int = 0) -> None:
        self._value = value
        self._at = at

    def text(self) -> str:
        end = self._at + 1 + self._value[self._at] if self._at < len(self._value) else self._at + 1
        if end > len(self._value):
            raise ProtocolError("a text that is cut off")
        found = self._value[self._at + 1 : end]
        self._at = end
        return found.decode("utf-8", "replace")

    def rows(self) -> list[AttributeRow]:
        found = []
        while self._at < len(self._value):
            name, unit = self.text(), self.text()
            if self._at + ROW.size > len(self._value):
                raise ProtocolError(f"the row of {name} is cut off")
            p, q, low, high, number = ROW.unpack_from(self._value, self._at)
            if p <= 0 or q <= 0:
                raise ProtocolError(f"{name}: a scale of {p}/{q}")
            self._at += ROW.size
            found.append(AttributeRow(name, unit, p, q, low, high, None if number == NO_OBJECT else number))
        return found


def decode_rows(payload: bytes) -> list[AttributeRow]:
    """The answer to DESCRIBE."""
    return _Reader(payload).rows()


def decode_filters(payload: bytes) -> dict[int, int]:
    """The answer to LIST: the CRC of each program by filter id."""
    if len(payload) % FILTER_ROW.size:
        raise ProtocolError(f"a list of filters of {len(payload)} bytes")
    return dict(FILTER_ROW.iter_unpack(payload))


@dataclass(frozen=True, slots=True)
class Event:
    """One event of a mote: a label where `flags` say so, else a presence, or a sample that is wanted, or undecided."""

    number: int
    filter_id: int
    owner_epoch: int
    boot: int
    sequence: int
    flags: EventFlag
    time: int | None
    """Epoch seconds, or the sample's age in seconds where `flags` say so; None: not known."""
    values: Mapping[int, int]
    """Raw values by the attribute's index; a missing attribute is not there."""

    @property
    def bit(self) -> bool:
        """What the bit was set to, or is."""
        return EventFlag.BIT in self.flags

    @property
    def is_undecided(self) -> bool:
        """Whether the owner is to decide what the sample sets the filter's bit to (rule S2)."""
        return self.flags & (EventFlag.UNKNOWN | EventFlag.LABEL | EventFlag.PRESENCE) == EventFlag.UNKNOWN

    @classmethod
    def decode(cls, value: bytes) -> Event:
        """ProtocolError for what is no event."""
        if len(value) < EVENT_HEAD.size:
            raise ProtocolError(f"an event of {len(value)} bytes")
        number, filter_id, epoch, boot, sequence, flags, time, present = EVENT_HEAD.unpack_from(value)
        indexes = [index for index in range(32) if present >> index & 1]
        if len(value) != EVENT_HEAD.size + 4 * len(indexes):
            raise ProtocolError(f"an event of {len(value)} bytes with {len(indexes)} values")
        values = struct.unpack_from(f"<{len(indexes)}i", value, EVENT_HEAD.size)
        known_time = None if flags & EventFlag.AGE and time == NO_SECONDS else time
        return cls(
            number,
            filter_id,
            epoch,
            boot,
            sequence,
            EventFlag(flags),
            known_time,
            dict(zip(indexes, values, strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mote says on `control` to one write of `filters` or `control`."""

    op: int
    tag: int
    status: int
    payload: bytes

    @property
    def is_filters(self) -> bool:
        """Whether it answers a write to `filters`."""
        return bool(self.op & FILTER_ANSWER)

    @property
    def reason(self) -> str:
        """The words of a refusal."""
        words = self.payload[FILTER_REPLY.size - _ANSWER_HEAD :] if self.is_filters else self.payload
        return words.decode("utf-8", "replace") if self.status else ""

    @classmethod
    def decode(cls, value: bytes) -> Answer:
        """ProtocolError for what is no answer."""
        if len(value) < _ANSWER_HEAD or (value[0] & FILTER_ANSWER and len(value) < FILTER_REPLY.size):
            raise ProtocolError(f"an answer of {len(value)} bytes")
        return cls(value[0], value[1], value[2], bytes(value[_ANSWER_HEAD:]))


@dataclass(frozen=True, slots=True)
class FilterReply:
    """What an answer on `filters` says beside its status."""

    filter_id: int
    received: int
    """Bytes of the program that the mote has; its size where it is staged."""
    staged: int
    table_crc: int

    @classmethod
    def decode(cls, answer: Answer) -> FilterReply:
        """From an answer with `is_filters`."""
        return cls(*struct.unpack_from("<HHHI", answer.payload))


@dataclass(frozen=True, slots=True)
class MoteTime:
    """The value of `time`."""

    epoch_ms: int | None
    """None while the clock is not set."""
    drift_ppm: int

    @classmethod
    def decode(cls, value: bytes) -> MoteTime:
        """ProtocolError for another size."""
        if len(value) != TIME_VALUE.size:
            raise ProtocolError(f"a time of {len(value)} bytes")
        is_set, epoch_ms, drift_ppm = TIME_VALUE.unpack(value)
        return cls(epoch_ms if is_set else None, drift_ppm)


def filter_write(
    op: FilterOp, filter_id: int = 0, offset: int = 0, size: int = 0, crc: int = 0, chunk: bytes = b""
) -> bytes:
    """A write to `filters`."""
    return FILTER_HEAD.pack(op, filter_id, offset, size, crc) + chunk


def put_write(filter_id: int, program: bytes, offset: int) -> bytes:
    """The chunk of a program that begins at `offset`."""
    chunk = program[offset : offset + MAX_CHUNK]
    return filter_write(FilterOp.PUT, filter_id, offset, len(program), program_crc(program), chunk)


def program_crc(program: bytes, before: int = 0) -> int:
    """With its own CRC first: in the order in which it stands, CRC-32 is the same for every program."""
    return zlib.crc32(program[:-4], zlib.crc32(program[-4:], before))


def staged_crc(staged: Mapping[int, bytes | None]) -> int:
    """The sum that a commit names, over programs by filter id; None: to be dropped."""
    total = 0
    for wanted in sorted(staged):
        program = staged[wanted]
        crc = 0 if program is None else program_crc(program)
        total = zlib.crc32(struct.pack("<HBI", wanted, program is not None, crc), total)
    return total


def control_write(op: ControlOp, tag: int, payload: bytes = b"") -> bytes:
    """A write to `control`."""
    return bytes([op, tag & 0xFF]) + payload


def table_crc(programs: Sequence[bytes]) -> int:
    """What a mote says when these programs, and no others, are in its table."""
    total = 0
    for program in sorted(programs, key=lambda one: int.from_bytes(one[2:4], "little")):
        total = program_crc(program, total)
    return total
