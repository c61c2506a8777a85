"""Numbers for publications that come without one: a boot that grows with each start, and a counter for each source."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from .data_dir import write_whole

MAX_SOURCES = 100_000
"""Sources whose counters are kept; one that comes back after it was forgotten goes on beyond all forgotten ones."""

BOOT_FILE = "gateway.boot"


class Numbers:
    """Counters under one boot. No number of a source is given twice."""

    def __init__(self, boot: int, limit: int = MAX_SOURCES) -> None:
        self.boot = boot
        self.forgotten = 0
        self._limit = limit
        self._next: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._beyond_forgotten = 0

    def take(self, tenant: str, source: str) -> int:
        """The source's next number."""
        key = (tenant, source)
        number = self._next.get(key)
        if number is None:
            number = self._beyond_forgotten
            self._make_room()
        else:
            self._next.move_to_end(key)
        self._next[key] = number + 1
        return number

    def _make_room(self) -> None:
        if len(self._next) >= self._limit:
            _, number = self._next.popitem(last=False)
            self._beyond_forgotten = max(self._beyond_forgotten, number)
            self.forgotten += 1


def next_boot(data: Path, now: float) -> int:
    """A boot that no earlier start of a gateway on this data directory had: the time in ms, or one more than the last.

    It is on disk before it is used.
    """
    path = data / BOOT_FILE
    boot = int(now * 1000)
    try:
        boot = max(boot, int(path.read_text()) + 1)
    except FileNotFoundError:
        data.mkdir(parents=True, exist_ok=True)
    except ValueError:
        boot += 1  # a damaged file: the clock must do
    write_whole(path, f"{boot}\n".encode())
    return boot
