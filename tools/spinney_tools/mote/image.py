"""MicroPython's image: is it whole, and is it for this board? Looked at before anything is erased."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from .boards import Board
from .errors import FlashError

APP_ADDRESS = 0x10000
"""Where the partition table of MicroPython has the program, behind boot loader and table."""
_IMAGE_MAGIC = 0xE9
_HEAD = struct.Struct("<4BI4xH9xB")
"""Magic, segments, mode, size and speed, entry; chip id; whether a SHA-256 is appended."""
_SEGMENT = struct.Struct("<II")
_ABOUT = struct.Struct("<I12x32s32s")
"""Magic, version, project."""
_ABOUT_MAGIC = 0xABCD5432
_DIGEST_BYTES = 32
_CHIPS = {0: "ESP32", 2: "ESP32-S2", 5: "ESP32-C3", 9: "ESP32-S3", 13: "ESP32-C6", 16: "ESP32-H2"}

_UF2 = struct.Struct("<8I")
_UF2_BLOCK = 512
_UF2_MAGIC = (0x0A324655, 0x9E5D5157)
_UF2_END = struct.pack("<I", 0x0AB16F30)
_UF2_FAMILY = 0x2000
_FAMILIES = {0xE48BFF56: "RP2040", 0xE48BFF59: "RP2350", 0xE48BFF57: "absolute addresses"}
MAX_BYTES = 16 * 1024 * 1024


def check(file: Path, board: Board) -> str:
    """What it is, in words; FlashError where it is not whole, or for another board."""
    try:
        size = file.stat().st_size
        if size > MAX_BYTES:
            raise _bad(file, board, f"{size} bytes are too many")
        data = file.read_bytes()
    except OSError as error:
        raise FlashError(f"{file}: {error.strerror}", _from(board)) from None
    return _check_uf2(file, data, board) if board.method == "uf2" else _check_esp(file, data, board)


def _check_esp(file: Path, data: bytes, board: Board) -> str:
    _chip(file, data, 0, board)
    at = APP_ADDRESS - board.offset
    if len(data) <= at + _HEAD.size:
        raise _bad(file, board, "it ends before MicroPython begins: only a part was downloaded, or it is an .app-bin")
    _chip(file, data, at, board)
    _verify(file, data, at, board)
    magic, version, project = _ABOUT.unpack_from(data, at + _HEAD.size + _SEGMENT.size)
    if magic != _ABOUT_MAGIC or not project.startswith(b"micropython"):
        raise _bad(file, board, "it is not MicroPython")
    named = version.rstrip(b"\0").decode("ascii", "replace")
    _new_enough(file, named, board)
    return f"MicroPython {named} for {board.title}, {len(data)} bytes"


def _chip(file: Path, data: bytes, at: int, board: Board) -> None:
    if len(data) < at + _HEAD.size or data[at] != _IMAGE_MAGIC:
        raise _bad(file, board, "it is no image for an ESP32")
    chip = _HEAD.unpack_from(data, at)[5]
    if chip != board.chip_id:
        raise _bad(file, board, f"it is for {_CHIPS.get(chip, f'chip {chip}')}, not for {board.title}")


def _verify(file: Path, data: bytes, begin: int, board: Board) -> None:
    """Its SHA-256, which stands behind the last segment and a sum."""
    _, segments, *_, has_digest = _HEAD.unpack_from(data, begin)
    at = begin + _HEAD.size
    for _ in range(segments):
        if at + _SEGMENT.size > len(data):
            raise _bad(file, board, "it ends in the middle")
        at += _SEGMENT.size + _SEGMENT.unpack_from(data, at)[1]
    at = begin + (at - begin + 16) // 16 * 16
    if at + _DIGEST_BYTES * has_digest > len(data):
        raise _bad(file, board, "it ends in the middle")
    if has_digest and hashlib.sha256(data[begin:at]).digest() != data[at : at + _DIGEST_BYTES]:
        raise _bad(file, board, "it is damaged: its SHA-256 is another")


def _new_enough(file: Path, named: str, board: Board) -> None:
    try:
        major, minor = (int(part) for part in named.removeprefix("v").split("-")[0].split(".")[:2])
    except ValueError:
        return  # a build of the user's own; the board is asked later
    if (major, minor) < board.micropython:
        raise _bad(
            file,
            board,
            f"it is MicroPython {named}; {board.micropython[0]}.{board.micropython[1]} is the oldest that will do",
        )


def _check_uf2(file: Path, data: bytes, board: Board) -> str:
    count = len(data) // _UF2_BLOCK
    if not count or len(data) % _UF2_BLOCK:
        raise _bad(file, board, "it is no UF2 file, or only a part of one")
    for index in range(count):
        block = data[index * _UF2_BLOCK : (index + 1) * _UF2_BLOCK]
        first, second, flags, _, _, number, blocks, family = _UF2.unpack_from(block)
        if (first, second) != _UF2_MAGIC or block[-4:] != _UF2_END:
            raise _bad(file, board, f"block {index} is no UF2")
        if not flags & _UF2_FAMILY or family != board.family:
            raise _bad(file, board, f"it is for {_FAMILIES.get(family, f'family {family:#x}')}, not for {board.title}")
        if number != index or blocks != count:
            raise _bad(file, board, f"it is not whole: {count} of {blocks} blocks")
    return f"{count} blocks for {board.title}, {len(data)} bytes"


def _bad(file: Path, board: Board, why: str) -> FlashError:
    return FlashError(f"{file}: {why}", f"Nothing was changed. {_from(board)}")


def _from(board: Board) -> str:
    kind = "uf2" if board.method == "uf2" else "bin"
    return f"Download the .{kind} of {board.image} from {board.download}"
