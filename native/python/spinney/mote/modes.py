"""What a mote advertises of itself, by mode, and how its owner sets that (on the mote: modes.py)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from .protocol import InfoFlag, ProtocolError

ADVERTS_WRITE = struct.Struct("<BII")
ADVERTS_STATE = struct.Struct("<BBBBII")
AS_CONFIGURED = 0xFFFFFFFF
"""In place of a time: as mote.toml says."""
NEVER_RENEWED = 0xFFFFFFFF
KEY_BYTES = 16
_FIXED, _HAS_KEY, _FALLEN_BACK, _COUNTER_LOST = 1, 2, 4, 8


class AdvertMode(IntEnum):
    """What a mote advertises. An unknown mode counts as `OPEN`."""

    OPEN = 0
    """Its readings, as BTHome."""
    ENCRYPTED = 1
    """Its readings, as encrypted BTHome."""
    PRESENCE = 2
    """That it is there, and no reading."""

    @classmethod
    def of(cls, number: int) -> AdvertMode:
        """Also of a number that a later version may have given."""
        return next((mode for mode in cls if mode == number), cls.OPEN)

    @classmethod
    def in_force(cls, flags: InfoFlag) -> AdvertMode:
        """As `info` tells it; a mote of the version before is open."""
        told = flags & (InfoFlag.ENCRYPTED | InfoFlag.PRESENCE)
        if told == InfoFlag.PRESENCE:
            return cls.PRESENCE
        return cls.ENCRYPTED if told == InfoFlag.ENCRYPTED else cls.OPEN


@dataclass(frozen=True, slots=True)
class AdvertState:
    """The answer to ADVERTS."""

    mode: AdvertMode
    """In force."""
    wanted: AdvertMode
    """As it was set."""
    is_fixed: bool
    """By mote.toml: a broker cannot set it."""
    has_key: bool
    has_fallen_back: bool
    """Its owner has not renewed the mode in time."""
    counter_lost: bool
    """It cannot encrypt until there is a new key."""
    open_after_s: int
    """Without a renewal for so long it falls back; 0: never."""
    renewed_s: int | None
    """Seconds since the last renewal; None: there was none."""

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """ProtocolError for what is cut off; what a later version adds is left out."""
        if len(payload) < ADVERTS_STATE.size:
            raise ProtocolError(f"a state of adverts of {len(payload)} bytes")
        mode, wanted, bits, _, open_after_s, renewed_s = ADVERTS_STATE.unpack_from(payload)
        return cls(
            AdvertMode.of(mode),
            AdvertMode.of(wanted),
            bool(bits & _FIXED),
            bool(bits & _HAS_KEY),
            bool(bits & _FALLEN_BACK),
            bool(bits & _COUNTER_LOST),
            open_after_s,
            None if renewed_s == NEVER_RENEWED else renewed_s,
        )


def adverts_write(mode: AdvertMode, table_crc: int, open_after_s: int | None = None) -> bytes:
    """The payload of ADVERTS that sets a mode, or renews it; without a time the mote's own file says which."""
    return ADVERTS_WRITE.pack(mode, AS_CONFIGURED if open_after_s is None else open_after_s, table_crc)
