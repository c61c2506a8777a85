"""Watches Bluetooth adapters, which fall silent without a word: scans anew, resets them, then gives up for systemd."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, Protocol, runtime_checkable

from .acquire import Acquirers
from .settings import Watchdog as Settings

logger = logging.getLogger(__name__)

EXIT_CODE: Final = 75
"""EX_TEMPFAIL: systemd is to start us again."""
RESET_SECONDS: Final = 20.0
"""For one command of a reset."""
CHECKS: Final = 20
"""In the time that an adapter may be silent."""
RESET_AFTER, EXIT_AFTER = 2, 4
"""Times the silence that is allowed."""
DEFAULT_ADAPTER: Final = "hci0"
RESETS: Final = (
    (
        "busctl set-property org.bluez /org/bluez/{adapter} org.bluez.Adapter1 Powered b false",
        "busctl set-property org.bluez /org/bluez/{adapter} org.bluez.Adapter1 Powered b true",
    ),
    ("hciconfig {adapter} reset",),
    ("btmgmt --index {adapter} power off", "btmgmt --index {adapter} power on"),
)
"""Tried in this order, each if the one before it failed; the first needs no more than the group bluetooth."""


class AdapterLost(Exception):
    """An adapter that used to hear, and does not after all that can be done from here."""


class ResetFailed(Exception):
    """What a reset's command said."""


@runtime_checkable
class Adapter(Protocol):
    """What is watched: an acquirer with an adapter of its own."""

    name: str
    adapter: str | None
    last_heard: float | None
    """By the event loop's clock."""

    def rescan(self) -> None:
        """Begin another scan."""


@dataclass(slots=True)
class _Watch:
    since: float
    """When it was heard last, or when watching it began."""
    done: int = 0
    """How many steps have been taken since then."""


class Watchdog:
    """`run` ends with AdapterLost when nothing helps; the reason is its text."""

    def __init__(
        self,
        settings: Settings,
        acquirers: Acquirers,
        reset: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        """Rescans, resets, failed resets."""
        self.error: str | None = None
        """Of the last reset that failed."""
        self._settings = settings
        self._acquirers = acquirers
        self._reset_adapter = reset or (lambda adapter: reset_adapter(adapter, settings.reset))
        self._watched: dict[str, _Watch] = {}

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            adapters = [each for each in self._acquirers if isinstance(each, Adapter)]
            names = {adapter.name for adapter in adapters}
            self._watched = {name: watch for name, watch in self._watched.items() if name in names}
            for adapter in adapters:
                await self._check(adapter, loop.time())
            await asyncio.sleep(self._settings.silent / CHECKS)

    async def _check(self, adapter: Adapter, now: float) -> None:
        watch = self._watched.setdefault(adapter.name, _Watch(now))
        if adapter.last_heard is not None and adapter.last_heard > watch.since:
            watch.since, watch.done = adapter.last_heard, 0
        silences = (now - watch.since) / self._settings.silent
        if silences >= 1 and watch.done < 1:
            watch.done = 1
            self._rescan(adapter)
        elif silences >= RESET_AFTER and watch.done < RESET_AFTER:
            watch.done = RESET_AFTER
            await self._reset(adapter)
        elif silences >= EXIT_AFTER:
            if adapter.last_heard is not None and self._settings.exit:
                self._give_up(adapter, now - adapter.last_heard)
            self._watched[adapter.name] = _Watch(now)  # nothing may be there to be heard: begin again

    def _rescan(self, adapter: Adapter) -> None:
        self.counts["rescans"] += 1
        logger.warning("%s: silent for %g s: scanning anew", adapter.name, self._settings.silent)
        self._again(adapter)

    def _again(self, adapter: Adapter) -> None:
        adapter.rescan()
        self._acquirers.retry(adapter.name)

    async def _reset(self, adapter: Adapter) -> None:
        self.counts["resets"] += 1
        logger.warning("%s: still silent: resetting the adapter", adapter.name)
        try:
            await self._reset_adapter(adapter.adapter or DEFAULT_ADAPTER)
        except ResetFailed as error:
            self.counts["failed resets"] += 1
            self.error = str(error)
            logger.error("%s: the reset failed: %s", adapter.name, error)
        self._again(adapter)

    def _give_up(self, adapter: Adapter, seconds: float) -> NoReturn:
        reason = f"{adapter.name}: silent for {seconds:.0f} s, after a new scan and a reset"
        raise AdapterLost(f"{reason}; {self.error}" if self.error else reason)


async def reset_adapter(adapter: str, command: str | None = None) -> None:
    """Runs the command, else the first of RESETS that works; ResetFailed with what was said."""
    failures = []
    for commands in ((command,),) if command else RESETS:
        try:
            await _run_all([each.replace("{adapter}", adapter) for each in commands])
        except ResetFailed as error:
            failures.append(str(error))
        else:
            return
    raise ResetFailed("; ".join(failures))


async def _run_all(commands: Sequence[str]) -> None:
    for command in commands:
        words = shlex.split(command)
        try:
            process = await asyncio.create_subprocess_exec(
                *words,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise ResetFailed(f"{words[0]}: {error.strerror}") from None
        try:
            async with asyncio.timeout(RESET_SECONDS):
                said, _ = await process.communicate()
        except TimeoutError:
            raise ResetFailed(f"{words[0]}: no end after {RESET_SECONDS:g} s") from None
        finally:
            await _end(process)
        if process.returncode:
            raise ResetFailed(f"{words[0]}: {said.decode(errors='replace').strip()[:200] or process.returncode}")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
