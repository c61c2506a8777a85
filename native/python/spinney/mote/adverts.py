"""What a mote advertises, asked and set over a link: its mode, and the key of encrypted adverts.

Only motes whose `info` has InfoFlag.ADVERT_MODES know these; others are open for good.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Self

from .link import MoteLink
from .protocol import ControlOp, Info, InfoFlag, ProtocolError

STATE = struct.Struct("<BBBBII")
WRITE = struct.Struct("<BII")
AS_CONFIGURED = 0xFFFFFFFF
"""For open_after: as mote.toml says."""
NEVER = 0xFFFFFFFF
KEY_BYTES = 16
KEY_READ, KEY_NEW, KEY_FORGET = b"\x00", b"\x01", b"\x02"


class Mode(IntEnum):
    """What adverts tell: all readings, the same encrypted, or only that the mote is there."""

    OPEN = 0
    ENCRYPTED = 1
    PRESENCE = 2

    @classmethod
    def of(cls, number: int) -> Mode:
        """One that is not known counts as open."""
        return cls(number) if number in cls.__members__.values() else cls.OPEN


class Bits(IntFlag):
    """What else is so."""

    FIXED = 1
    """Set in mote.toml: nobody else can."""
    HAS_KEY = 2
    FALLEN = 4
    """Its owner has been away for open_after."""
    KEY_SPENT = 8
    """Its key can be used no more: it needs a new one."""


@dataclass(frozen=True, slots=True)
class AdvertState:
    """What a mote advertises, and for how long."""

    mode: Mode
    """In force."""
    set: Mode
    """What its owner set last."""
    bits: Bits
    open_after: int
    """Seconds without a renewal until it falls back; 0: never."""
    since_renewed: int | None
    """Seconds, by its own clock; None: nobody ever set anything."""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """From the answer to ADVERTS; ProtocolError for what is none."""
        if len(payload) < STATE.size:
            raise ProtocolError(f"a state of adverts of {len(payload)} bytes")
        mode, wanted, bits, _, after, since = STATE.unpack_from(payload)
        return cls(Mode.of(mode), Mode.of(wanted), Bits(bits), after, None if since == NEVER else since)


async def state(link: MoteLink) -> AdvertState:
    """What it is now."""
    return AdvertState.decode(await link.control(ControlOp.ADVERTS))


async def set_mode(link: MoteLink, mode: Mode, table_crc: int, open_after: int | None = None) -> AdvertState:
    """Sets the mode, or renews it: for the mote's owner, once its table is committed, whose CRC is `table_crc`.

    `open_after` in seconds, 0: never; None: as mote.toml says. MoteRefused where mote.toml sets the mode, or the table
    is another one.
    """
    after = AS_CONFIGURED if open_after is None else open_after
    return AdvertState.decode(await link.control(ControlOp.ADVERTS, WRITE.pack(mode, after, table_crc)))


async def bind_key(link: MoteLink) -> bytes | None:
    """The key of encrypted adverts, None where there is none; PairingNeeded unless paired by the mote's passkey."""
    return await _key(link, KEY_READ)


async def new_bind_key(link: MoteLink) -> bytes:
    """Makes another key, by which adverts are encrypted from now on; PairingNeeded as above."""
    key = await _key(link, KEY_NEW)
    if key is None:
        raise ProtocolError("the mote made no key", address=link.address)
    return key


async def forget_bind_key(link: MoteLink) -> None:
    """The mote has no key any longer; PairingNeeded as above."""
    await _key(link, KEY_FORGET)


async def _key(link: MoteLink, what: bytes) -> bytes | None:
    key = await link.control(ControlOp.BIND_KEY, what)
    if len(key) not in (0, KEY_BYTES):
        raise ProtocolError(f"a key of {len(key)} bytes", address=link.address)
    return key or None


def in_force(info: Info) -> Mode | None:
    """The mode that `info` says; None for a mote that knows no modes, which is open."""
    if InfoFlag.ADVERT_MODES not in info.flags:
        return None
    bits = info.flags & (InfoFlag.ENCRYPTED | InfoFlag.PRESENCE)
    return {InfoFlag.ENCRYPTED: Mode.ENCRYPTED, InfoFlag.PRESENCE: Mode.PRESENCE}.get(bits, Mode.OPEN)
