"""A connection to a mote: change its filters, follow its events, set its clock. `client` is bleak's, or like it.

It never connects by itself: the caller does, and when LinkLost is raised connects again, and everything can be asked
again: what was staged goes on where it was cut off, and events are replayed until they are acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import struct
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from time import time as wall_clock
from types import TracebackType
from typing import Any, Protocol, TypeVar

from .protocol import (
    CONTROL,
    EVENTS,
    FILTERS,
    INFO,
    MAX_CHUNK,
    MAX_PROGRAM,
    SERVICE,
    SET_BIT_WRITE,
    TIME,
    TIME_WRITE,
    Answer,
    AnswerTimedOut,
    AttributeRow,
    ControlOp,
    Event,
    FilterOp,
    FilterReply,
    Info,
    LinkError,
    LinkLost,
    MoteRefused,
    MoteTime,
    NotAMote,
    PairingNeeded,
    ProtocolError,
    Status,
    control_write,
    decode_filters,
    decode_rows,
    filter_write,
    program_crc,
    put_write,
    staged_crc,
)

ANSWER_SECONDS = 5.0
MAX_STAGED = 64
MAX_STAGED_BYTES = 4096
"""What a mote takes between two commits; a larger change is made in several."""
MAX_EVENTS = 1000
"""Events that wait for the caller; beyond it the newest are dropped, counted, and asked for again."""
MAX_FILTER_ID = 0xFFFF
MAX_TURNS = 8
"""Attempts at one program, or at one reading of `info`."""
_SECURITY_ERRORS = (0x05, 0x08, 0x0C, 0x0F)
"""ATT: insufficient authentication, authorization, key size, encryption."""

T = TypeVar("T")


class Client(Protocol):
    """What is used of bleak.BleakClient."""

    @property
    def address(self) -> str: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def services(self) -> Any: ...

    async def read_gatt_char(self, char_specifier: str) -> bytearray: ...
    async def write_gatt_char(self, char_specifier: str, data: bytes, response: bool) -> None: ...
    async def start_notify(self, char_specifier: str, callback: Callable[[Any, bytearray], None]) -> None: ...
    async def stop_notify(self, char_specifier: str) -> None: ...


class MoteLink:
    """Talks to one mote over a client that is connected. Use it as an async context, one for each connection."""

    def __init__(self, client: Client, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._client = client
        self._answer_seconds = answer_seconds
        self._tags = itertools.count(1)
        self._waiting: dict[tuple[int, int], asyncio.Future[Answer]] = {}
        self._lock = asyncio.Lock()
        self._events: asyncio.Queue[Event] | None = None
        self._overflowed = False
        self._is_subscribed = False
        self.events_dropped = 0
        """Events that came while the caller's queue was full; they are asked for again."""
        self.events_lost = 0
        """Events that the mote itself had to drop, as gaps in their numbers show."""
        self.unexpected = 0
        """Answers nobody waited for, and notifications that could not be read."""

    @property
    def address(self) -> str:
        """The mote's."""
        return self._client.address

    async def __aenter__(self) -> MoteLink:
        """NotAMote if the device lacks the service."""
        services = self._client.services
        if services is None or services.get_service(SERVICE) is None:
            raise NotAMote("not a Spinney mote: it lacks the service", address=self.address)
        await self._do("subscribe", self._client.start_notify(CONTROL, self._on_control))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(LinkError):
            self._events = None
            if self._is_subscribed:
                await self._do("unsubscribe", self._client.stop_notify(EVENTS))
            await self._do("unsubscribe", self._client.stop_notify(CONTROL))

    # ---- what can be read

    async def info(self) -> Info:
        """What the mote says of itself, with all its attributes."""
        info = await self._read_info()
        rows = list(info.attributes)
        while len(rows) < info.attribute_count:
            more = decode_rows(await self.control(ControlOp.DESCRIBE, bytes([len(rows)])))
            if not more:
                raise ProtocolError(
                    f"{info.attribute_count} attributes, of which {len(rows)} are described", address=self.address
                )
            rows += more
        return _with_rows(info, rows)

    async def _read_info(self) -> Info:
        """It may change between two parts of a long read; its CRC tells."""
        for turn in range(MAX_TURNS):
            value = bytes(await self._do("read info", self._client.read_gatt_char(INFO)))
            try:
                return Info.decode(value)
            except ProtocolError:
                if turn == MAX_TURNS - 1:
                    raise
        raise AssertionError("unreachable")

    async def last_crash(self) -> str:
        """The whole text; `info` has its beginning."""
        text = b""
        while part := await self.control(ControlOp.CRASH, struct.pack("<H", len(text))):
            text += part
        return text.decode("utf-8", "replace")

    async def clock(self) -> MoteTime:
        """The mote's clock."""
        return MoteTime.decode(bytes(await self._do("read time", self._client.read_gatt_char(TIME))))

    async def set_time(self, now: Callable[[], float] = wall_clock) -> None:
        """Sets it to epoch seconds, taken at the last moment; the mote has done so on return."""
        value = TIME_WRITE.pack(round(now() * 1000))
        await self._do("set the time", self._client.write_gatt_char(TIME, value, response=True))
        await self.control(ControlOp.PING)

    # ---- filters

    async def filters(self) -> dict[int, int]:
        """The table as it is: program_crc() of each program by filter id, ascending."""
        found: dict[int, int] = {}
        first = 0
        while part := decode_filters(await self.control(ControlOp.LIST, struct.pack("<H", first))):
            found |= part
            first = max(part) + 1
            if first > MAX_FILTER_ID:
                break
        return found

    async def change_filters(self, add: Mapping[int, bytes] | None = None, drop: Iterable[int] = ()) -> int:
        """Adds or replaces programs by filter id, and drops others; the CRC of the table afterwards.

        All at once where it fits into one commit (64 changes, 4096 bytes); else in several, which add before they drop.
        MoteRefused leaves the table as it was before that commit.
        """
        add = add or {}
        for wanted, program in add.items():
            if not 0 <= wanted <= MAX_FILTER_ID or not 0 < len(program) <= MAX_PROGRAM:
                raise ValueError(f"filter {wanted}: a program has 1 to {MAX_PROGRAM} bytes and an id up to 65535")
        dropped: dict[int, bytes | None] = {wanted: None for wanted in drop if wanted not in add}
        crc = 0
        for part in _parts({**add, **dropped}) or [{}]:
            crc = await self._commit(part)
        return crc

    async def _commit(self, changes: Mapping[int, bytes | None]) -> int:
        for turn in range(MAX_TURNS):
            if await self._stage(changes):
                break
            await self._filters(FilterOp.DISCARD)  # somebody else's changes are staged beside ours
            if turn == MAX_TURNS - 1:
                raise MoteRefused("change filters", Status.BUSY, address=self.address)
        return (await self._filters(FilterOp.COMMIT, 0, 0, len(changes), staged_crc(changes))).table_crc

    async def _stage(self, changes: Mapping[int, bytes | None]) -> bool:
        """Whether these changes are staged now, and no others."""
        staged = 0
        for wanted, program in changes.items():
            if program is None:
                reply = await self._filters(FilterOp.DROP, wanted)
            else:
                reply = await self._put(wanted, program)
            staged = reply.staged
        return staged == len(changes) or not changes

    async def _put(self, wanted: int, program: bytes) -> FilterReply:
        """All chunks, from the one on that the mote lacks."""
        size, crc = len(program), program_crc(program)
        reply = await self._filters(FilterOp.STATUS, wanted, 0, size, crc)
        for _ in range(MAX_TURNS * (1 + size // MAX_CHUNK)):
            if reply.received >= size:
                return reply
            try:
                reply = await self._write_filters(FilterOp.PUT, put_write(wanted, program, reply.received))
            except MoteRefused as error:
                if error.status not in (Status.OUT_OF_ORDER, Status.DAMAGED):
                    raise
                reply = await self._filters(FilterOp.STATUS, wanted, 0, size, crc)
        raise MoteRefused(f"filter {wanted}", Status.DAMAGED, address=self.address)

    async def _filters(
        self, op: FilterOp, wanted: int = 0, offset: int = 0, size: int = 0, crc: int = 0
    ) -> FilterReply:
        return await self._write_filters(op, filter_write(op, wanted, offset, size, crc))

    async def _write_filters(self, op: FilterOp, data: bytes) -> FilterReply:
        answer = await self._ask(f"filters {op.name}", FILTERS, data, (0x80 | op, 0))
        return FilterReply.decode(answer)

    # ---- events

    async def events(self, first: int = 0) -> AsyncGenerator[Event, None]:
        """All events from this number on, and those to come, until the connection is lost, which raises LinkLost.

        A second call ends the first. Numbers go up by one; `events_lost` counts those that the mote has dropped.
        Acknowledge what is kept.
        """
        queue = self._events = asyncio.Queue(MAX_EVENTS)
        if not self._is_subscribed:
            await self._do("subscribe", self._client.start_notify(EVENTS, self._on_event))
            self._is_subscribed = True
        expected = await self._replay(first)
        while self._events is queue:
            event = await self._next(queue)
            if self._overflowed and (event is None or event.number > expected):
                expected = await self._replay(expected)
            elif event is not None and event.number >= expected:
                self.events_lost += _lost(expected, event.number)
                expected = event.number + 1
                yield event

    async def _replay(self, number: int) -> int:
        """Asks for all events from a number on; the number of the next one that will come.

        The answer comes before the first of them, and what the queue holds by then comes again.
        """
        self._overflowed = False
        answer = await self.control(ControlOp.REPLAY, struct.pack("<I", number))
        oldest = int.from_bytes(answer[:4], "little")
        self.events_lost += _lost(number, oldest)
        return oldest

    async def _next(self, queue: asyncio.Queue[Event]) -> Event | None:
        """None if nothing came for a while, but the link is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                return await queue.get()
        if not self._client.is_connected:
            raise LinkLost("disconnected", address=self.address)
        return None

    def _on_event(self, _: Any, data: bytearray) -> None:
        try:
            event = Event.decode(bytes(data))
        except ProtocolError:
            self.unexpected += 1
            return
        if self._events is None:
            return
        if self._events.full():
            self.events_dropped += 1
            self._overflowed = True
        else:
            self._events.put_nowait(event)

    async def ack(self, number: int) -> None:
        """The mote may forget all events up to this one."""
        await self.control(ControlOp.ACK, struct.pack("<I", number))

    # ---- control

    async def control(self, op: ControlOp, payload: bytes = b"") -> bytes:
        """Any op: what its answer says."""
        tag = next(self._tags) & 0xFF
        answer = await self._ask(op.name, CONTROL, control_write(op, tag, payload), (op, tag))
        return answer.payload

    async def set_bit(self, wanted: int, epoch: int, newest: int, bit: bool) -> None:
        """Writes down the bit of a filter as it is after event `newest`; MoteRefused if the mote knows better."""
        await self.control(ControlOp.SET_BIT, SET_BIT_WRITE.pack(wanted, epoch, newest, bit))

    async def set_sampling(self, on: bool) -> None:
        """Switches sampling on or off."""
        await self.control(ControlOp.SAMPLING, bytes([on]))

    async def reboot(self) -> None:
        """Restarts the mote; the connection is lost soon after."""
        await self.control(ControlOp.REBOOT)

    async def open_pairing(self, seconds: int) -> None:
        """Lets other centrals pair for a while; 0 ends it."""
        await self.control(ControlOp.PAIRING, struct.pack("<H", seconds))

    async def forget_bonds(self) -> None:
        """Whoever wants to write must pair again."""
        await self.control(ControlOp.FORGET)

    # ---- one write and its answer

    async def _ask(self, op: str, characteristic: str, data: bytes, key: tuple[int, int]) -> Answer:
        async with self._lock:
            waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._waiting[key] = waiting
            try:
                await self._do(op, self._client.write_gatt_char(characteristic, data, response=True))
                answer = await self._awaited(op, waiting)
            finally:
                del self._waiting[key]
        if answer.status != Status.OK:
            kind = PairingNeeded if answer.status == Status.NOT_ALLOWED else MoteRefused
            raise kind(op, answer.status, answer.reason, address=self.address)
        return answer

    async def _awaited(self, op: str, waiting: asyncio.Future[Answer]) -> Answer:
        try:
            async with asyncio.timeout(self._answer_seconds):
                return await waiting
        except TimeoutError:
            if not self._client.is_connected:
                raise LinkLost(f"disconnected during {op}", address=self.address) from None
            raise AnswerTimedOut(op, self._answer_seconds, address=self.address) from None

    def _on_control(self, _: Any, data: bytearray) -> None:
        try:
            answer = Answer.decode(bytes(data))
        except ProtocolError:
            self.unexpected += 1
            return
        waiting = self._waiting.get((answer.op, answer.tag))
        if waiting is None and answer.status == Status.NOT_ALLOWED:
            waiting = next(iter(self._waiting.values()), None)
        if waiting is None or waiting.done():
            self.unexpected += 1
        else:
            waiting.set_result(answer)
            if answer.op == ControlOp.REPLAY and self._events is not None:
                while not self._events.empty():
                    self._events.get_nowait()

    async def _do(self, op: str, work: Any) -> Any:
        """Bleak's errors become ours."""
        from bleak.exc import BleakError, BleakGATTProtocolError  # an extra, which only links need

        try:
            async with asyncio.timeout(self._answer_seconds):
                return await work
        except BleakGATTProtocolError as error:
            if error.args and error.args[0] in _SECURITY_ERRORS:
                raise PairingNeeded(op, Status.NOT_ALLOWED, "pair first", address=self.address) from error
            raise LinkError(f"{op}: {error}", address=self.address) from error
        except TimeoutError:
            raise AnswerTimedOut(op, self._answer_seconds, address=self.address) from None
        except (BleakError, OSError, EOFError) as error:
            if not self._client.is_connected:
                raise LinkLost(f"disconnected during {op}", address=self.address) from error
            raise LinkError(f"{op}: {error}", address=self.address) from error


def _parts(changes: Mapping[int, bytes | None]) -> list[dict[int, bytes | None]]:
    """As few commits as fit, in order."""
    parts: list[dict[int, bytes | None]] = []
    room = 0
    for wanted, program in changes.items():
        size = len(program or b"")
        if not parts or size > room or len(parts[-1]) >= MAX_STAGED:
            parts.append({})
            room = MAX_STAGED_BYTES
        parts[-1][wanted] = program
        room -= size
    return parts


def _lost(expected: int, number: int) -> int:
    """Events between the one expected and the one that came; a boot's numbers begin above a multiple of 65536."""
    if not expected or number < expected:
        return 0
    return number - expected if number >> 16 == expected >> 16 else (number & 0xFFFF) - 1


def _with_rows(info: Info, rows: list[AttributeRow]) -> Info:
    from dataclasses import replace

    return replace(info, attributes=tuple(rows))
