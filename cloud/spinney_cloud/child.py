"""A child process that is kept running until it is told to stop, and that never outlives us."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

logger = logging.getLogger(__name__)

BACK_OFF_FIRST_SECONDS = 0.1
BACK_OFF_MOST_SECONDS = 10.0
STEADY_SECONDS = 30.0
"""A child that has run so long starts again without delay."""
LAST_WORDS_SECONDS = 1.0
MOST_LINE_BYTES = 64 * 1024
"""A longer line of output is dropped."""
PR_SET_PDEATHSIG = 1
FAILED = "ended with code"


class ChildError(Exception):
    """A child that ended before it ever was ready."""


class Child:
    """One child process. `command` is asked at each start; `on_line` gets what it prints, and says whether it means
    that the child is ready. With `must_start` a first start that fails is final: `wait_ready` raises ChildError.
    """

    def __init__(
        self,
        name: str,
        command: Callable[[], Sequence[str]],
        on_line: Callable[[str], bool],
        *,
        must_start: bool = False,
        own_stderr: bool = True,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.ready = asyncio.Event()
        self.on_ready: Callable[[], None] | None = None
        self.pid: int | None = None
        self._has_been_ready = False
        self._command = command
        self._on_line = on_line
        self._must_start = must_start
        self._stderr = None if own_stderr else asyncio.subprocess.STDOUT
        self._stopping = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    def start(self) -> None:
        """Run it from now on."""
        self._task = asyncio.create_task(self._keep())

    async def wait_ready(self) -> None:
        """Until it does its work."""
        assert self._task is not None
        waiting = asyncio.create_task(self.ready.wait())
        try:
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if self._task.done():
                self._task.result()
        finally:
            waiting.cancel()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it runs."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def stop(self, seconds: float) -> None:
        """Ask it to end, kill it if it has not within `seconds`."""
        self._stopping.set()
        if self._task is None:
            return
        self.signal(signal.SIGTERM)
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        if not done:
            logger.warning("%s has not ended within %g s; killed", self.name, seconds)
            self.kill()
            await asyncio.wait({self._task})

    def kill(self) -> None:
        """As kill -9 does, and no start after it."""
        self._stopping.set()
        self.signal(signal.SIGKILL)

    async def _keep(self) -> None:
        back_off = BACK_OFF_FIRST_SECONDS
        while not self._stopping.is_set():
            began = time.monotonic()
            how = await self._run_once()
            if self._stopping.is_set():
                if how.startswith(FAILED):
                    logger.error("%s %s when told to stop", self.name, how)
                return
            if self._must_start and not self._has_been_ready:
                raise ChildError(f"{self.name} {how} before it was ready")
            self.restarts += 1
            if time.monotonic() - began > STEADY_SECONDS:
                back_off = BACK_OFF_FIRST_SECONDS
            logger.error("%s %s; starts again in %g s", self.name, how, back_off, extra={"restarts": self.restarts})
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), back_off)
            back_off = min(back_off * 2, BACK_OFF_MOST_SECONDS)

    async def _run_once(self) -> str:
        """Start it, and say how it ended."""
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdin=asyncio.subprocess.PIPE,  # which ends when we do, however that comes about
                stdout=asyncio.subprocess.PIPE,
                stderr=self._stderr,
                limit=MOST_LINE_BYTES,
                start_new_session=True,  # a Ctrl-C is for us, who stop the children in order
                preexec_fn=before_exec(os.getpid()),
            )
        except OSError as error:
            return f"cannot be started ({error})"
        self.pid = process.pid
        logger.debug("%s started", self.name, extra={"pid": process.pid})
        if self._stopping.is_set():
            self.signal(signal.SIGTERM)
        reading = asyncio.create_task(self._read(process))
        code = await process.wait()
        await asyncio.wait({reading}, timeout=LAST_WORDS_SECONDS)
        reading.cancel()
        self.ready.clear()
        self.pid = None
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"{FAILED} {code}" if code else "ended"

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while True:
            try:
                line = await process.stdout.readline()
            except ValueError:
                continue
            if not line:
                return
            if self._on_line(line.decode(errors="replace").rstrip("\n")) and not self.ready.is_set():
                self._has_been_ready = True
                self.ready.set()
                if self.on_ready:
                    self.on_ready()


def before_exec(parent: int) -> Callable[[], None]:
    """What a child does before it becomes its program: it asks the kernel to be killed when we die, where it can."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:  # we died before it had asked
                os._exit(1)

    return prepare
