"""What has passed `at_most`, in a file beside delivery's journal: a header, then lines (see cell_limits).

As the journal it survives the process, not a power cut. Without it the first of the current period pass again.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import orjson

from .delivery_progress import write_all

VERSION: Final = 1
LONG_BYTES: Final = 1024 * 1024
"""From here on the file is written anew, once it has doubled since."""


class PassedFile:
    """Its lines, appended as they come. Nothing is synced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        self._size = 0
        self._begun_size = 0

    def read(self) -> list[bytes]:
        """Its lines; none if there is no file, or one of a newer version."""
        try:
            head, *lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        try:
            return lines if orjson.loads(head)["v"] <= VERSION else []
        except (ValueError, KeyError, TypeError):
            return []

    def begin(self, lines: bytes) -> None:
        """Write it anew with these."""
        part = self.path.with_suffix(".passed-part")
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._size = self._begun_size = write_all(file, orjson.dumps({"v": VERSION}) + b"\n" + lines)
        part.replace(self.path)
        self.close()
        self._file = file

    def add(self, lines: bytes) -> None:
        """Append."""
        assert self._file is not None
        self._size += write_all(self._file, lines)

    @property
    def is_long(self) -> bool:
        """Whether it should be written anew."""
        return self._size > max(LONG_BYTES, 2 * self._begun_size)

    def close(self) -> None:
        """Nothing is lost by not calling it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
