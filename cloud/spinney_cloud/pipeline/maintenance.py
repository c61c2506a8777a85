"""Keeping a lake, while others write and read it: days beyond the retention go, small files are joined, the disk freed.

What is joined or removed stays on the disk for a while, for those who still read an older version; then vacuum deletes
it. On a disk that is nearly full nothing is joined, for that needs room, and what no version has is still deleted.
"""

from __future__ import annotations

import datetime as dt
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .lake import KEPT_HOURS, OBSERVATIONS, Lake, LakeError, LakeFull
from .lake_write.leftover import delete_leftovers
from .windows import WINDOWS, needed_from

logger = logging.getLogger(__name__)

EVERY_SECONDS = 900.0
FIRST_SECONDS = 60.0
"""After the start: by then most of what waited in the log is in the lake."""
_HOUR = 3600.0


@dataclass(frozen=True)
class Policy:
    """What is kept, and for how long."""

    every_seconds: float = EVERY_SECONDS
    retain_days: int | None = None
    """Older days are removed; None: nothing is."""
    retain_windows_days: int | None = None
    """The same for windows."""
    vacuum_seconds: float = KEPT_HOURS * _HOUR
    """Files that no version has go after this."""
    lengths: Sequence[int] = ()
    """Of the windows that somebody keeps up: days that these have not summed up yet are not removed."""

    @property
    def vacuum_hours(self) -> int:
        """Delta counts in whole hours."""
        return math.ceil(self.vacuum_seconds / _HOUR)


@dataclass
class Done:
    """What the rounds did, all together."""

    rounds: int = 0
    failed: int = 0
    joined: int = 0
    """Files that are no more, for others hold what was in them."""
    ordered_days: int = 0
    removed_rows: int = 0
    deleted_files: int = 0


class Maintenance:
    """Rounds through a lake's tables. `start`, then `wait` until `stop` is called, from anywhere."""

    def __init__(self, lake: Lake, policy: Policy) -> None:
        self.done = Done()
        self._lake = lake.again()
        self._policy = policy
        self._stopping = threading.Event()

    def start(self) -> None:
        """The rounds are done by who waits."""

    def wait(self) -> None:
        """One round after the other."""
        pause = min(FIRST_SECONDS, self._policy.every_seconds)
        while not self._stopping.wait(pause):
            self.round()
            pause = self._policy.every_seconds

    def stop(self) -> None:
        """After the table that is being dealt with."""
        self._stopping.set()

    def round(self) -> None:
        """Once through all tables; what fails is said, and tried again in the next round."""
        began = time.monotonic()
        before = Done(**vars(self.done))
        for name in self._tables():
            try:
                self._keep(name)
            except LakeError as error:
                self.done.failed += 1
                logger.warning("%s", error)
        self.done.rounds += 1
        if text := said(before, self.done):
            logger.info("the lake is kept: %s (%.1f s)", text, time.monotonic() - began)

    def _tables(self) -> Iterator[str]:
        for name in self._lake.names():
            if self._stopping.is_set():
                return
            yield name

    def _keep(self, name: str) -> None:
        lake, done, policy = self._lake, self.done, self._policy
        days = policy.retain_windows_days if name == WINDOWS else policy.retain_days
        if days is not None:
            spared = needed_from(lake, policy.lengths) if name == OBSERVATIONS and policy.lengths else dt.date.max
            done.removed_rows += lake.retain(days, name, dt.datetime.now(dt.UTC).date(), spared)
        try:
            compacted = lake.compact(name)
        except LakeFull as error:
            logger.warning("%s", error)
        else:
            done.joined += compacted.removed
            done.ordered_days += compacted.ordered_days
        done.deleted_files += lake.vacuum(name, policy.vacuum_hours) + delete_leftovers(lake, name)


def said(before: Done, after: Done) -> str:
    """What has been done between the two, in words; empty if nothing was."""
    parts = (
        (after.joined - before.joined, "files joined"),
        (after.ordered_days - before.ordered_days, "days ordered by place"),
        (after.removed_rows - before.removed_rows, "rows beyond the retention removed"),
        (after.deleted_files - before.deleted_files, "files deleted"),
    )
    return ", ".join(f"{count:,} {what}" for count, what in parts if count)
