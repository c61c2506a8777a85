"""Readings from files, gzip files and standard input, line by line, in memory that does not grow with them."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from .errors import InputError

STANDARD_INPUT = "-"

BLOCK_BYTES = 1 << 18
MAX_LINE_BYTES = 1 << 20
"""A longer line is no reading: it is refused, and skipped without being kept."""

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Stream(Protocol):
    def read1(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Batch:
    """Lines that came together, without their ends. None stands for a line that was too long."""

    first_line: int
    lines: list[bytes | None]
    bytes_read: int
    """Of the file as it is stored, up to here."""


def total_bytes(names: list[str]) -> int | None:
    """How much there is to read, None if that cannot be known."""
    paths = [Path(name) for name in names]
    if not all(name != STANDARD_INPUT and path.is_file() for name, path in zip(names, paths, strict=True)):
        return None
    return sum(path.stat().st_size for path in paths)


def batches(name: str) -> Iterator[Batch]:
    """The lines of a file, or of standard input for "-". Gzip is known by its first bytes, not by the name."""
    try:
        with closing(_open(name)) as stored:
            packed = stored.peek(2)[:2] == _GZIP_MAGIC
            stream = gzip.GzipFile(fileobj=cast(BinaryIO, stored)) if packed else stored
            yield from _split(stream, stored)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(name, f"damaged gzip data: {error}") from error
    except OSError as error:
        raise InputError(name, error.strerror or str(error)) from error


def _open(name: str) -> BufferedReader:
    if name != STANDARD_INPUT:
        return Path(name).open("rb")
    return open(os.dup(sys.stdin.fileno()), "rb")  # noqa: PTH123  # a file descriptor has no path


def _split(stream: _Stream, stored: BufferedReader) -> Iterator[Batch]:
    """Yields whenever something has come, so that a live pipe is answered at once."""
    line, rest, skipping = 1, b"", False
    seekable = stored.seekable()
    while block := stream.read1(BLOCK_BYTES):
        if line == 1 and not rest:
            block = block.removeprefix(_BYTE_ORDER_MARK)
        lines: list[bytes | None] = [*(rest + block).split(b"\n")]
        rest = lines.pop() or b""
        if skipping and lines:
            lines[0], skipping = None, False
        if len(rest) > MAX_LINE_BYTES or skipping:
            rest, skipping = b"", True
        if lines:
            yield Batch(line, lines, stored.tell() if seekable else 0)
        line += len(lines)
    if rest or skipping:
        yield Batch(line, [None if skipping else rest], stored.tell() if seekable else 0)
