"""What the cloud has refused for good: kept on disk within a bound, for a person to look at.

<folder>/refused.jsonl, refused.1.jsonl       an object a line: time, reason, publication or labels
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

MAX_FILE_BYTES: Final = 1 << 20
"""Of a file; there are two."""
MAX_SHOWN: Final = 50
"""The newest, for pages."""
MAX_REASONS: Final = 100
"""Kinds of reasons that are counted apart; what is beyond is counted as `other`."""

_log = logging.getLogger(__name__)


class DeadLetters:
    """Of one broker."""

    def __init__(self, folder: Path) -> None:
        self.newest: deque[Mapping[str, Any]] = deque(maxlen=MAX_SHOWN)
        self.counts: Counter[str] = Counter()
        """By the beginning of the reason."""
        self._file = folder / "refused.jsonl"
        self._older = folder / "refused.1.jsonl"

    @property
    def total(self) -> int:
        """Since the start."""
        return self.counts.total()

    def put(self, letter: Mapping[str, Any], reason: str) -> None:
        """Keep one; a disk that takes nothing is only told of."""
        kind = reason.partition(":")[0][:40]
        self.counts[kind if kind in self.counts or len(self.counts) < MAX_REASONS else "other"] += 1
        told = {"time": time.time(), "reason": reason, **letter}
        self.newest.append(told)
        try:
            if self._file.exists() and self._file.stat().st_size >= MAX_FILE_BYTES:
                self._file.replace(self._older)
            with self._file.open("a") as file:
                file.write(json.dumps(told, ensure_ascii=False) + "\n")
        except OSError as error:
            _log.error("%s: what the cloud refused is not kept: %s", self._file, error.strerror)
