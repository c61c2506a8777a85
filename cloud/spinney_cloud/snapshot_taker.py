"""Taking a snapshot while matching goes on: a copy of the process writes it.

The fork is what the matcher waits for; the copy shares its memory, writes the file and ends. The file is published only
when all notifications of the records in it are stored, since nobody would make them again.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .failpoints import failpoint
from .snapshots import Moment, Snapshots
from .subscription_journal import Journal

log = logging.getLogger(__name__)

NICENESS = 10
"""The copy is in no hurry."""


class SnapshotTaker:
    """One snapshot at a time."""

    def __init__(self, snapshots: Snapshots, journal: Journal) -> None:
        self.published: Moment | None = None
        self.pause_seconds = 0.0
        """For which the last one stopped the matching."""
        self.failed = 0
        self.floor = 0
        """The sequence of the oldest snapshot that is kept."""
        self._snapshots = snapshots
        self._journal = journal
        self._child: int | None = None
        self._written = False
        self._moment: Moment | None = None

    @property
    def busy(self) -> bool:
        """Whether one is being taken."""
        return self._moment is not None

    def take(self, moment: Moment, state: Callable[[], dict[str, Any]]) -> None:
        """Begin one of this instant; `state` is called in the copy."""
        began = time.perf_counter()
        place = self._journal.place()
        moment = replace(moment, journal=place["file"])
        self._moment, self._written = moment, False
        self._child = os.fork()
        if self._child == 0:
            self._in_the_copy(moment, lambda: state() | {"journal": place})
        failpoint("snapshot.begun")
        self.pause_seconds = time.perf_counter() - began

    def _in_the_copy(self, moment: Moment, state: Callable[[], dict[str, Any]]) -> None:
        """Whatever happens, the copy ends here and touches nothing that the two share."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            gc.disable()
            os.nice(NICENESS)
            self._journal.sync()
            self._snapshots.write(moment, state())
            failpoint("snapshot.written")
            code = 0
        except BaseException:  # a copy of the matcher must not go on as one
            log.exception("a snapshot could not be written")
        finally:
            os._exit(code)

    def proceed(self, stored: int, *, wait: bool = False) -> None:
        """Publish what is written, once the notifications of all records up to its own are `stored`."""
        if self._moment is None:
            return
        if self._child is not None:
            pid, status = os.waitpid(self._child, 0 if wait else os.WNOHANG)
            if pid == 0:
                return
            self._child = None
            self._written = status == 0
            if not self._written:
                self._fail(status)
                return
        if stored >= self._moment.sequence:
            self._publish(self._moment)

    def _publish(self, moment: Moment) -> None:
        failpoint("snapshot.publish")
        self._snapshots.publish(self._snapshots.part_of(moment.sequence))
        self.published, self._moment = moment, None
        self.look()

    def look(self) -> None:
        """See which snapshots there are; journals that none of them needs go."""
        moments = self._snapshots.moments()
        self.floor = min((moment.sequence for moment in moments), default=0)
        self._journal.remove_others({moment.journal for moment in moments})

    def _fail(self, status: int) -> None:
        assert self._moment is not None
        self.failed += 1
        log.error("no snapshot at record %d: the copy ended with status %d", self._moment.sequence, status)
        self._snapshots.part_of(self._moment.sequence).unlink(missing_ok=True)
        self._moment = None

    def give_up(self) -> None:
        """Let a copy that is at work end; its file is not published."""
        if self._child is not None:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
        self._child = self._moment = None
