"""Windows as a part of a running pipeline (see running.Part)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from ..density import Density
from .lake import Lake
from .windows import WindowPlan, Windows

logger = logging.getLogger(__name__)

EVERY_SECONDS = 60.0
"""The shortest window: more often there is nothing to write."""
FIRST_SECONDS = 10.0
"""After the start: the queries begin sooner where the first step does not compete with them."""


@dataclass
class WindowsDone:
    """What was done."""

    windows: int = 0
    gaps: int = 0
    changed: int = 0
    too_late: int = 0
    steps: int = 0
    seconds: float = 0.0
    """What the last step took."""


class WindowsPart:
    """Keeps the windows up with the lake. `start`, then `wait` until `stop` is called, from anywhere."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        plan: WindowPlan | None = None,
        every_seconds: float = EVERY_SECONDS,
        wanted: Callable[[], Mapping[str | None, Density]] | None = None,
    ) -> None:
        """`wanted`: asked before each step what coverage is measured against (see windows_wanted)."""
        self.done = WindowsDone()
        self._wanted = wanted
        self._windows = Windows(spark, lake.again(), plan)
        self._every = every_seconds
        self._stopping = threading.Event()

    def start(self) -> None:
        """The steps are done by who waits."""

    def wait(self) -> None:
        """One step after the other. LakeError if one cannot be written."""
        pause = min(FIRST_SECONDS, self._every)
        while not self._stopping.wait(pause):
            self.step()
            pause = self._every

    def stop(self) -> None:
        """After the step that is under way."""
        self._stopping.set()

    def step(self) -> None:
        """One, counted."""
        began = time.monotonic()
        if self._wanted is not None:
            self._windows.plan = replace(self._windows.plan, wanted=self._wanted())
        for written in self._windows.step():
            self.done.windows += written.windows
            self.done.gaps += written.gaps
            self.done.changed += written.changed
            logger.debug("windows: %s", written)
        self.done.too_late = self._windows.too_late
        self.done.steps += 1
        self.done.seconds = time.monotonic() - began
