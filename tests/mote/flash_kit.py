"""Images, and a look at a board on a pseudo-terminal after it was flashed."""

from __future__ import annotations

import hashlib
import struct
from argparse import Namespace
from pathlib import Path

from board_on_pty import BoardOnPty

from spinney_tools.mote import cable, flash

CONFIG = """
name = "balcony"
sample_interval_s = 5

[buses.wire]
kind = "i2c"
scl = 22
sda = 21

[[sensors]]
driver = "bme280"
bus = "wire"
"""


def config(folder: Path, text: str = CONFIG) -> Path:
    file = folder / "mote.toml"
    file.write_text(text, "utf-8")
    return file


def esp_image(*, chip: int = 0, offset: int = 0x1000, version: str = "v1.27.0", project: str = "micropython") -> bytes:
    """A boot loader, and MicroPython's program where the partition table has it: as large as need be, and whole."""
    about = struct.pack("<I12x32s32s", 0xABCD5432, version.encode(), project.encode())
    program = _image(chip, [about + bytes(range(256)) * 16, b"more"])
    boot_loader = _image(chip, [b"boot loader"])
    return boot_loader.ljust(0x10000 - offset, b"\xff") + program


def _image(chip: int, segments: list[bytes]) -> bytes:
    head = struct.pack("<4BI4xH9xB", 0xE9, len(segments), 2, 0x20, 0x40080000, chip, 1)
    body = b"".join(struct.pack("<II", 0x3F400000, len(segment)) + segment for segment in segments)
    whole = head + body
    whole += bytes(15 - len(whole) % 16) + b"\xef"
    return whole + hashlib.sha256(whole).digest()


def uf2_image(*, family: int = 0xE48BFF56, blocks: int = 8) -> bytes:
    found = b""
    for number in range(blocks):
        head = struct.pack(
            "<8I", 0x0A324655, 0x9E5D5157, 0x2000, 0x10000000 + 256 * number, 256, number, blocks, family
        )
        found += head + bytes([number]) * 476 + struct.pack("<I", 0x0AB16F30)
    return found


def run(board: BoardOnPty, *arguments: str) -> int:
    """Flashes it, and takes it for heard."""
    return flash.main(["--board", "esp32", "--port", board.port, *arguments], hear)


def hear(_options: Namespace, name: str) -> str:
    return f"{name} was heard"


def names(board: BoardOnPty) -> set[str]:
    """All files on the board."""
    with cable.connect(board.port) as open_cable:
        return {name for folder in ("/lib", "/state") for name in open_cable.names(folder)} | {
            name for name in ("/boot.py", "/main.py", "/config.json") if open_cable.read(name) is not None
        }


def read(board: BoardOnPty, name: str) -> bytes | None:
    with cable.connect(board.port) as open_cable:
        return open_cable.read(name)
