"""Around what is packed: which form it has, which dictionary, how long it is unpacked; then raw deflate (RFC 1951).

    0xF1 | dictionary | unpacked bytes | deflate      a batch: see `rows`
    0xF2 | dictionary | unpacked bytes | deflate      a JSON text: an announcement, an activation

Dictionary: 0x01 is the format's own; 0x02 and four bytes is the same, followed by what an earlier message unpacked to,
which has this CRC-32; plus 0x80 asks the receiver to keep what this message unpacks to. Unpacked bytes: a varint
(LEB128). No JSON, SenML or Arrow begins like this.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final, NamedTuple

from . import dictionary
from .errors import PackedError, UnknownDictionary, Unpackable

BATCH: Final = 0xF1
TEXT: Final = 0xF2
MAX_UNPACKED: Final = 4 * 1024 * 1024
"""Bytes of what a message unpacks to. A message that says more is refused unread, one that lies is as soon as it
exceeds what it said."""
MAX_KEPT: Final = 8 * 1024
"""Bytes, unpacked, of a message that may be kept as a dictionary: windows of deflate are 32 KiB."""
_OWN, _EARLIER, _KEEP = 1, 2, 0x80
_OWN_DICTIONARIES: Final = {BATCH: dictionary.BATCHES, TEXT: dictionary.TEXTS}
_RAW: Final = -15
_SMALL_WINDOW: Final = -13
_SMALL: Final = 4 * 1024
_LEVEL: Final = 7
_MAX_VARINT: Final = 5


class Unpacked(NamedTuple):
    """What a message says."""

    form: int
    data: bytes
    keep: bool
    """Whether it is to be kept as a dictionary."""


def is_packed(payload: bytes) -> bool:
    """Whether a payload begins like a packed message."""
    return len(payload) > 0 and payload[0] in _OWN_DICTIONARIES


def pack(form: int, data: bytes, *, earlier: bytes | None = None, keep: bool = False) -> bytes:
    """The message. `earlier`: what the receiver keeps. Unpackable if it is too large."""
    if len(data) > MAX_UNPACKED or (keep and len(data) > MAX_KEPT):
        raise Unpackable(f"{len(data)} bytes")
    head = bytearray((form, (_OWN if earlier is None else _EARLIER) | (_KEEP if keep else 0)))
    if earlier is not None:
        head += digest(earlier).to_bytes(4, "big")
    head += _varint(len(data))
    known = _dictionary(form, earlier)
    window = _SMALL_WINDOW if len(data) + len(known) <= _SMALL else _RAW
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, window, 8, zlib.Z_DEFAULT_STRATEGY, known)
    return bytes(head) + packer.compress(data) + packer.flush()


def unpack(payload: bytes, earlier: Callable[[int], bytes | None] = lambda _: None) -> Unpacked:
    """What gave this message; PackedError says why nothing can have. `earlier` finds what was kept, by its digest."""
    try:
        return _unpack(payload, earlier)
    except IndexError:
        raise PackedError("the message is cut") from None


def _unpack(payload: bytes, earlier: Callable[[int], bytes | None]) -> Unpacked:
    form, kind = payload[0], payload[1] & ~_KEEP
    at = 2
    if form not in _OWN_DICTIONARIES or kind not in (_OWN, _EARLIER):
        raise PackedError(f"there is no form {form:#x} with dictionary {kind}")
    wanted = None
    if kind == _EARLIER:
        wanted, at = int.from_bytes(payload[at : at + 4], "big"), at + 4
    size, at = _read_varint(payload, at)
    if size > MAX_UNPACKED:
        raise PackedError(f"it says that it unpacks to {size} bytes; {MAX_UNPACKED} are the most")
    kept = None if wanted is None else earlier(wanted)
    if wanted is not None and kept is None:
        raise UnknownDictionary
    data = _inflate(payload[at:], size, _dictionary(form, kept))
    return Unpacked(form, data, bool(payload[1] & _KEEP) and size <= MAX_KEPT)


def digest(data: bytes) -> int:
    """Under which an unpacked message is kept."""
    return zlib.crc32(data)


def _inflate(packed: bytes, size: int, known: bytes) -> bytes:
    unpacker = zlib.decompressobj(_RAW, known)
    try:
        data = unpacker.decompress(packed, size + 1)
    except zlib.error as error:
        raise PackedError(f"it cannot be unpacked: {error}") from None
    if len(data) != size or not unpacker.eof or unpacker.unused_data:
        raise PackedError(f"it does not unpack to the {size} bytes that it says")
    return data


def _dictionary(form: int, earlier: bytes | None) -> bytes:
    return _OWN_DICTIONARIES[form] + (earlier or b"")


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for place in range(_MAX_VARINT):
        number |= (data[at + place] & 0x7F) << 7 * place
        if data[at + place] < 0x80:
            return number, at + place + 1
    raise PackedError("a length of more than five bytes")
