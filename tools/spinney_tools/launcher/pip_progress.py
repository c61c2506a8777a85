"""How far a download by pip is: from the lines that it prints, and the files that it makes."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_DOWNLOADING: Final = re.compile(r"\s*Downloading (\S+) \(([\d.]+) (bytes|kB|MB|GB)\)")
_BUILDING: Final = re.compile(r"\s*Building wheels for collected packages: (.+)")
_UNITS: Final = {"bytes": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
_MB: Final = 1_000_000


@dataclass
class Progress:
    """Of one pip among several that fill a folder. `expected`: bytes of all of them together, about."""

    step: int
    of: int
    name: str
    folder: Path
    """Where its wheels come to be."""
    scratch: Path
    """Where it puts what is not whole yet."""
    expected: int
    _file: str = ""
    _size: int = 0
    _building: str = ""

    def said(self, line: str) -> None:
        """A line of pip's."""
        if found := _DOWNLOADING.match(line):
            self._file = found[1].rpartition("/")[2]
            self._size = round(float(found[2]) * _UNITS[found[3]])
            self._building = ""
        elif found := _BUILDING.match(line):
            self._building = found[1].strip()

    def look(self) -> dict[str, Any]:
        """Where it is now, for programs; `text` is for people."""
        done = min(self._bytes_so_far(), self._size)
        left = max(0, self.expected - _bytes_in(self.folder) - done)
        return {
            "step": self.step,
            "of": self.of,
            "name": self.name,
            "file": self._file,
            "done": done,
            "size": self._size,
            "left": left,
            "text": self._text(done, left),
        }

    def _text(self, done: int, left: int) -> str:
        rest = f"; about {left / _MB:.0f} MB are left" if left > _MB else ""
        if self._building:
            return f"unpacking {self._building} ({self.step} of {self.of}){rest}"
        if self._size < _MB:  # as most are
            return f"looking for {self.name} ({self.step} of {self.of}){rest}"
        return (
            f"downloading {self._file}, {done / _MB:.0f} of {self._size / _MB:.0f} MB ({self.step} of {self.of}){rest}"
        )

    def _bytes_so_far(self) -> int:
        """Of the file under way; pip has it in a folder of its own."""
        if not self._file:
            return 0
        sizes = [0]
        for found in self.scratch.glob(f"*/{self._file}"):
            with suppress(OSError):  # it is moved once it is whole
                sizes.append(found.stat().st_size)
        return max(sizes)


def _bytes_in(folder: Path) -> int:
    total = 0
    for file in folder.glob("*.whl"):
        with suppress(OSError):
            total += file.stat().st_size
    return total
