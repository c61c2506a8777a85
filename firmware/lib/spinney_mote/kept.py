"""What goes with the mote through deep sleep, in RTC memory, and the number of its boot, which is never given twice."""

import struct

from . import table
from .clock import STATE_BYTES
from .ring import AGE, NO_SECONDS, Ring

BOOTS_RESERVED = 16  # boot numbers taken by one write of flash
_VERSION = b"\x02"  # of the state; an update may bring another
_BOOT = "boot"
_NUMBERS = "<IIIIIIIIHH"
"""Boot, sequence, slept ms, mark of the table, first event, next event, dropped events, samples refused, bytes of
statuses, bytes of events."""
_NUMBERS_AT = 1 + STATE_BYTES
_RADIO_AT = _NUMBERS_AT + 36
RADIO_BYTES = 24  # what Life keeps of the radio
_HEAD_BYTES = _RADIO_AT + RADIO_BYTES
_STATUS_AT = 2  # in an entry of the table


class Events(Ring):
    """The ring of events, kept through sleep. With the clock set, events say when they were, not how old they are."""

    def __init__(self, capacity: int, clock):
        Ring.__init__(self, capacity)
        self._clock = clock

    def read(self, number, uptime):
        """As Ring's; a sample from before the clock was set has its time then, too."""
        event = Ring.read(self, number, uptime)
        if event is None or not event[18] & AGE:
            return event
        epoch_ms = self._clock.epoch_ms()
        age = struct.unpack_from("<I", event, 19)[0]
        if epoch_ms is not None and age != NO_SECONDS:
            seconds = epoch_ms // 1000 - age
            if 0 <= seconds < NO_SECONDS:  # else the clock was set to what cannot be
                event[18] &= ~AGE & 0xFF
                struct.pack_into("<I", event, 19, seconds)
        return event

    def restart(self, boot: int) -> None:
        """A new boot: its numbers are above all of the last one's, so that an older number fits none of them."""
        self.first = self.next = ((boot & 0x7FFF) << 16) + 1

    def contents(self, room: int) -> bytes:
        """All events, oldest first; the oldest are dropped, and counted, where there is no room for all."""
        while self._used > room:
            self._drop()
            self.dropped += 1
        start = self._head
        end = start + self._used
        if end <= len(self.memory):
            return bytes(self.memory[start:end])
        return bytes(self.memory[start:]) + bytes(self.memory[: end - len(self.memory)])

    def restore(self, contents, first: int, following: int, dropped: int) -> None:
        """Becomes what `contents` gave; the newest that fit where this ring is smaller."""
        skip = 0
        while len(contents) - skip > len(self.memory):
            skip += contents[skip] + 1
            first += 1
            dropped += 1
        self._head = 0
        self._used = len(contents) - skip
        self.memory[: self._used] = contents[skip:]
        self.first = first
        self.next = following
        self.dropped = dropped


def next_boot(store, last) -> int:
    """The number of a boot; `last` is what RTC memory says, None after a loss of power.

    Numbers go up and are never given twice. After a loss of power some are left out, so that the file is written once
    in many boots.
    """
    data = store.get(_BOOT)
    reserved = struct.unpack("<I", data)[0] if data is not None and len(data) == 4 else 1
    if last is not None and last + 1 < reserved:
        return last + 1
    boot = reserved if last is None else max(reserved, last + 1)
    store.put(_BOOT, struct.pack("<I", boot + BOOTS_RESERVED))
    return boot


def keep(store, clock, programs, events, sample, radio, slept_ms: int, room: int) -> bool:
    """Before a sleep, and at each boot; False where the board keeps nothing. `radio` is Life's, for `wake`."""
    if not store.keeps:
        return False
    statuses = _statuses(programs)
    left = room - _HEAD_BYTES - len(statuses)
    if left < 0:  # all bits are unknown after the sleep, which rule S2 allows
        left += len(statuses)
        statuses = b""
    contents = events.contents(left)
    numbers = struct.pack(
        _NUMBERS,
        sample.boot,
        sample.sequence,
        slept_ms,
        _mark(programs),
        events.first,
        events.next,
        events.dropped,
        sample.outside,
        len(statuses),
        len(contents),
    )
    return store.keep(_VERSION + clock.state() + numbers + radio + statuses + contents)


def kept_boot(state):
    """The boot that a state was kept in; None where there is no state, or one of another version."""
    if state is None or len(state) < _HEAD_BYTES or state[:1] != _VERSION:
        return None
    return struct.unpack("<I", state[_NUMBERS_AT : _NUMBERS_AT + 4])[0]


def wake(state, clock, programs, events, sample) -> bytes:
    """Goes on after a sleep, with the same boot, from what `keep` kept; `programs` are loaded already.

    What Life kept of the radio is given back.
    """
    numbers = struct.unpack(_NUMBERS, state[_NUMBERS_AT:_RADIO_AT])
    boot, sequence, slept_ms, mark, first, following, dropped, outside, statuses, contents = numbers
    clock.wake(state[1:_NUMBERS_AT], slept_ms)
    sample.boot = boot
    sample.sequence = sequence
    sample.outside = outside
    at = _HEAD_BYTES
    if mark != _mark(programs) or not _set_statuses(programs, state[at : at + statuses]):
        programs.forget()
    at += statuses
    events.restore(state[at : at + contents], first, following, dropped)
    return state[_RADIO_AT:_HEAD_BYTES]


def _mark(programs) -> int:
    """Differs after each change of the table."""
    return (programs.crc ^ programs.generation) & 0xFFFFFFFF


def _statuses(programs) -> bytes:
    found = bytearray()
    at = programs.first()
    while at:
        found.extend(programs.image[at + _STATUS_AT : at + table.ENTRY])
        at = programs.after(at)
    return bytes(found)


def _set_statuses(programs, statuses) -> bool:
    size = table.ENTRY - _STATUS_AT
    if len(statuses) != len(programs) * size:
        return False
    at = programs.first()
    done = 0
    while at:
        programs.image[at + _STATUS_AT : at + table.ENTRY] = statuses[done : done + size]
        done += size
        at = programs.after(at)
    return True
