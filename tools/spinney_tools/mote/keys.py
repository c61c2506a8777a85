"""Bind keys of motes in a file that only its owner reads, as the mobile broker takes it; and the key on a board."""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
import tomllib
import zlib
from dataclasses import dataclass
from pathlib import Path

from spinney.errors import SpinneyError
from spinney.mote.adverts import KEY_BYTES

from .cable import Cable
from .errors import FlashError

DEFAULT = Path("bindkeys.toml")
MAX_DEVICES = 10_000
ON_BOARD = "/state/bindkey"
_HEAD = "# Bind keys of motes, by `spinney mote`. Whoever has them reads along: keep this file to yourself.\n"
_MAGIC = b"SK1"
_FRAME = struct.Struct("<3sII")
_KEY = struct.Struct("<16sI")

_ADDRESS = """
import bluetooth
_ble = bluetooth.BLE()
_was = _ble.active()
_ble.active(True)
print(_ble.config("mac")[1].hex())
_ble.active(_was)
"""


class KeyFileError(SpinneyError):
    """A file of keys that cannot be read or written."""


@dataclass(frozen=True, slots=True)
class Key:
    """The key of one mote."""

    address: str
    """Of its radio, such as C0:49:EF:12:34:56."""
    name: str
    """As the mote calls itself."""
    key: bytes


def read(file: Path) -> dict[str, Key]:
    """By address; nothing where there is no file. KeyFileError for one that is damaged."""
    try:
        found = tomllib.loads(file.read_text("utf-8")).get("device", [])
        keys = [
            Key(str(one["address"]).upper(), str(one.get("name", "")), bytes.fromhex(one["bindkey"])) for one in found
        ]
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise KeyFileError(f"{file}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KeyFileError(
            f"{file}: no file of bind keys ({error}); it has [[device]] with address and bindkey"
        ) from None
    return {one.address: one for one in keys}


def put(file: Path, key: Key) -> None:
    """Adds or replaces one."""
    keys = read(file)
    if key.address not in keys and len(keys) >= MAX_DEVICES:
        raise KeyFileError(f"{file}: it has {MAX_DEVICES} keys already")
    _write(file, {**keys, key.address: key})


def drop(file: Path, address: str) -> None:
    """Removes one, if it is there."""
    keys = read(file)
    if keys.pop(address.upper(), None) is not None:
        _write(file, keys)


def _write(file: Path, keys: dict[str, Key]) -> None:
    """Aside first: it is never half written, and never for others to read."""
    parts = [_HEAD]
    for one in sorted(keys.values(), key=lambda one: one.address):
        name = "".join(letter for letter in one.name if letter.isprintable() and letter not in '"\\')
        parts.append(f'\n[[device]]\naddress = "{one.address}"\nname = "{name}"\nbindkey = "{one.key.hex()}"\n')
    aside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            out.write("".join(parts))
        aside.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise KeyFileError(f"{file}: {error.strerror}") from None


# ---- on a board, over a cable


def on_board(board: Cable) -> bytes | None:
    """The key that the mote has; None where there is none, or it is damaged."""
    frame = board.read(ON_BOARD) or b""
    if len(frame) != _FRAME.size + _KEY.size:
        return None
    magic, size, crc = _FRAME.unpack_from(frame)
    data = frame[_FRAME.size :]
    if (magic, size, crc) != (_MAGIC, _KEY.size, zlib.crc32(data)):
        return None
    return bytes(_KEY.unpack(data)[0])


def make_on_board(board: Cable) -> bytes:
    """Another one, at random, whose counter starts at 0: a key that a mote had must never be written to it again."""
    key = secrets.token_bytes(KEY_BYTES)
    data = _KEY.pack(key, 0)
    board.make_folders([ON_BOARD.rpartition("/")[0]])
    board.remove([ON_BOARD + ".new"])
    board.write(ON_BOARD, _FRAME.pack(_MAGIC, len(data), zlib.crc32(data)) + data)
    if on_board(board) != key:
        raise FlashError("the key on the board is not what was written", "Run it again.")
    return key


def forget_on_board(board: Cable) -> None:
    """The mote has no key any longer."""
    board.remove([ON_BOARD, ON_BOARD + ".new"])


def address_of(board: Cable) -> str | None:
    """The address of its radio; None where the board does not say."""
    try:
        printed = board.execute("ask for its address", _ADDRESS).decode("ascii", "replace").strip()
    except FlashError:
        return None
    digits = printed.splitlines()[-1] if printed else ""
    if len(digits) != 12 or any(digit not in "0123456789abcdef" for digit in digits):
        return None
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2)).upper()
