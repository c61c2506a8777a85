"""A stand-in for the boot loader in an ESP32's ROM, and for the stub that esptool loads into it.

It speaks esptool's serial protocol (docs.espressif.com, "Serial Protocol"): SLIP frames, checksums, an erased flash of
0xFF, blocks that must come in order, MD5 over what was written.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import Counter
from collections.abc import Callable

FLASH_BYTES = 4 * 1024 * 1024
_END, _ESCAPE = 0xC0, 0xDB
_CHIP_REGISTER = 0x40001000
_SPI_COMMAND, _SPI_W0 = 0x3FF42000, 0x3FF42080
_FLASH_ID = 0x1640EF
"""Winbond, 4 MB."""
ESP32_MAGIC, ESP32_S2_MAGIC = 0x00F01D83, 0x000007C6
_REGISTERS = {
    _SPI_W0: _FLASH_ID,
    0x3FF5A004: 0x12345678,
    0x3FF5A008: 0x0000AABB,
    0x3FF5A00C: 0x00008000,
    0x3FF40014: 347,
}
_FLASH_BEGIN, _FLASH_DATA, _FLASH_END, _MEM_BEGIN, _MEM_END, _MEM_DATA, _SYNC, _WRITE_REG, _READ_REG = range(2, 11)
_SPI_SET, _SPI_ATTACH, _BAUD, _DEFLATED_BEGIN, _DEFLATED_DATA, _DEFLATED_END, _MD5 = (
    0x0B,
    0x0D,
    0x0F,
    0x10,
    0x11,
    0x12,
    0x13,
)
_ERASE = 0xD0
_ROM = 0x20120707
"""With which a ROM answers to a sync; the stub says 0."""
_BAD_COMMAND, _BAD_SUM, _BAD_ORDER = 5, 7, 6


class EspLoader:
    """`lies` makes it say a wrong MD5, as flash does that keeps other bytes than it was sent; `mute` says nothing.

    `on_block` is called behind each block of the image.
    """

    def __init__(self, magic: int = ESP32_MAGIC, *, lies: bool = False, mute: bool = False) -> None:
        self.on_block: Callable[[], object] = lambda: None
        self._mute = mute
        self.flash = bytearray(b"\xff" * FLASH_BYTES)
        self.counts: Counter[str] = Counter()
        self._magic = magic
        self._lies = lies
        self._frame: bytearray | None = None
        self._escaped = False
        self._is_stub = False
        self._at = self._block = 0
        self._inflate = zlib.decompressobj()

    @property
    def is_done(self) -> bool:
        """Whether there is an image on the flash."""
        return bool(self.counts["verified"])

    def feed(self, data: bytes) -> bytes:
        out = bytearray()
        for byte in data:
            if byte == _END:
                if self._frame:
                    out += self._answer(bytes(self._frame))
                self._frame = bytearray()
            elif self._frame is not None:
                self._take(byte)
        return b"" if self._mute else bytes(out)

    def _take(self, byte: int) -> None:
        assert self._frame is not None
        if byte == _ESCAPE:
            self._escaped = True
        else:
            self._frame.append({0xDC: _END, 0xDD: _ESCAPE}.get(byte, byte) if self._escaped else byte)
            self._escaped = False

    def _answer(self, frame: bytes) -> bytes:
        direction, op, size, check = struct.unpack_from("<BBHI", frame)
        data = frame[8:]
        if direction != 0 or size != len(data):
            return b""
        self.counts[f"op {op:#x}"] += 1
        value, body, error = self._do(op, data, check)
        status = bytes((1, error)) if error else b"\0\0"
        answer = struct.pack("<BBHI", 1, op, len(body) + len(status), value) + body + status
        out = _slip(answer) * (8 if op == _SYNC else 1)
        if op == _MEM_END:
            self._is_stub = True
            out += _slip(b"OHAI")
        return out

    def _do(self, op: int, data: bytes, check: int) -> tuple[int, bytes, int]:
        """Value, body and error of the answer."""
        if op == _READ_REG:
            return self._read(struct.unpack("<I", data)[0]), b"", 0
        if op in (_MEM_DATA, _FLASH_DATA, _DEFLATED_DATA):
            return 0, b"", self._data(op, data, check)
        if op in (_FLASH_BEGIN, _DEFLATED_BEGIN):
            *_, self._at = struct.unpack_from("<4I", data)
            self._block = 0
            self._inflate = zlib.decompressobj()
        elif op == _MD5:
            return 0, self._md5(*struct.unpack_from("<II", data)), 0
        elif op == _ERASE:
            self.flash[:] = b"\xff" * FLASH_BYTES
            self.counts["erased"] += 1
        elif op not in (
            _SYNC,
            _WRITE_REG,
            _MEM_BEGIN,
            _MEM_END,
            _SPI_SET,
            _SPI_ATTACH,
            _BAUD,
            _FLASH_END,
            _DEFLATED_END,
        ):
            return 0, b"", _BAD_COMMAND
        return (_ROM if op == _SYNC and not self._is_stub else 0), b"", 0

    def _read(self, register: int) -> int:
        if register == _CHIP_REGISTER:
            return self._magic
        return 0 if register == _SPI_COMMAND else _REGISTERS.get(register, 0)

    def _data(self, op: int, data: bytes, check: int) -> int:
        size, number = struct.unpack_from("<II", data)
        content = data[16:]
        summed = 0xEF
        for byte in content:
            summed ^= byte
        if size != len(content) or summed != check & 0xFF:
            return _BAD_SUM
        if op == _MEM_DATA:
            return 0
        if number != self._block:
            return _BAD_ORDER
        self._block += 1
        content = self._inflate.decompress(content) if op == _DEFLATED_DATA else content
        self.flash[self._at : self._at + len(content)] = content
        self._at += len(content)
        self.counts["blocks"] += 1
        self.on_block()
        return 0

    def _md5(self, address: int, size: int) -> bytes:
        digest = hashlib.md5(self.flash[address : address + size]).digest()
        self.counts["verified"] += not self._lies
        return bytes(16) if self._lies else digest


def _slip(frame: bytes) -> bytes:
    return b"\xc0" + frame.replace(b"\xdb", b"\xdb\xdd").replace(b"\xc0", b"\xdb\xdc") + b"\xc0"
