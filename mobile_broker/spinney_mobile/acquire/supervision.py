"""Keeps acquirers going: each is a task of its own, tried again when it fails, and none takes another with it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from ..samples import Acquirer, AcquirerError, Heard, Sample, Sink
from ..status import AcquirerStatus

logger = logging.getLogger(__name__)

MAX_ACQUIRERS: Final = 100
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
SILENT_SECONDS: Final = 120.0
"""Without anything heard for so long an acquirer is shown as silent, unless set."""


@dataclass(slots=True, eq=False)
class _Kept(Sink):
    """An acquirer with what is known of it; it counts what goes through to the broker's sink."""

    acquirer: Acquirer
    sink: Sink
    clock: Callable[[], float]
    started: float
    count: int = 0
    last: float | None = None
    error: str | None = None
    said: str | None = None
    """The error that has been logged; None once it hears again."""
    over: bool = False
    """It has heard all that there was: a file that was replayed."""
    task: asyncio.Task[None] | None = None
    retry: asyncio.Event = field(default_factory=asyncio.Event)

    def heard(self, heard: Heard) -> str | None:
        self._note()
        return self.sink.heard(heard)

    def sampled(self, sample: Sample) -> str | None:
        self._note()
        return self.sink.sampled(sample)

    def _note(self) -> None:
        self.count += 1
        self.last = self.clock()
        if self.error is not None:
            logger.info("%s: hears again", self.acquirer.name)
            self.error = self.said = None

    def status(self, silent_seconds: float) -> AcquirerStatus:
        newest = self.started if self.last is None else self.last
        if self.over or self.task is None:
            state = "stopped"
        elif self.error is not None:
            state = "failed"
        else:
            is_silent = self.clock() - newest > silent_seconds and not self.acquirer.may_be_silent
            state = "silent" if is_silent else "hearing"
        return AcquirerStatus(
            self.acquirer.name,
            state,
            self.last,
            self.count,
            self.error or _complaint(self.acquirer),
            dict(self.acquirer.counts),
        )


class Acquirers:
    """All of them; they may be added and removed while it runs. Use it in an `async with`."""

    def __init__(
        self, sink: Sink, *, silent_seconds: float = SILENT_SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._sink = sink
        self._silent_seconds = silent_seconds
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._running = False

    async def __aenter__(self) -> Acquirers:
        self._running = True
        for kept in self._kept.values():
            self._start(kept)
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._running = False
        await asyncio.gather(*(self._stop(kept) for kept in self._kept.values()))

    def __iter__(self) -> Iterator[Acquirer]:
        return iter([kept.acquirer for kept in self._kept.values()])

    def add(self, acquirer: Acquirer) -> None:
        """From now on it is heard. AcquirerError if there is one of its name, or there are too many."""
        if acquirer.name in self._kept:
            raise AcquirerError(f"there are two acquirers {acquirer.name}", "give one of them another name")
        if len(self._kept) >= MAX_ACQUIRERS:
            raise AcquirerError(f"more than {MAX_ACQUIRERS} acquirers", "remove some")
        kept = self._kept[acquirer.name] = _Kept(acquirer, self._sink, self._clock, self._clock())
        if self._running:
            self._start(kept)

    async def remove(self, name: str) -> None:
        """Once it returns, nothing more is heard of it. KeyError if there is none of this name."""
        await self._stop(self._kept.pop(name))

    def retry(self, name: str) -> None:
        """If it has failed, try it again now; nothing if there is none of this name."""
        if name in self._kept:
            self._kept[name].retry.set()

    def status(self) -> list[AcquirerStatus]:
        """Of each, as pages show it."""
        return [kept.status(self._silent_seconds) for kept in self._kept.values()]

    def _start(self, kept: _Kept) -> None:
        kept.task = asyncio.create_task(self._tend(kept), name=f"acquirer {kept.acquirer.name}")

    async def _stop(self, kept: _Kept) -> None:
        if kept.task is not None:
            kept.task.cancel()
            await asyncio.wait([kept.task])

    async def _tend(self, kept: _Kept) -> None:
        retry_seconds = FIRST_RETRY_SECONDS
        while True:
            before = kept.count
            error = await _outcome(kept)
            if error is None:
                kept.over = True
                return
            self._say(kept, error)
            kept.error = _words(error)
            retry_seconds = FIRST_RETRY_SECONDS if kept.count > before else retry_seconds
            kept.retry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(kept.retry.wait(), retry_seconds)
            retry_seconds = min(2 * retry_seconds, LAST_RETRY_SECONDS)

    @staticmethod
    def _say(kept: _Kept, error: BaseException) -> None:
        """Once, however often it fails in the same way."""
        words = _words(error)
        level = logging.WARNING if isinstance(error, AcquirerError) else logging.ERROR
        level = logging.DEBUG if words == kept.said else level
        logger.log(level, "%s: %s", kept.acquirer.name, words, exc_info=_unexpected(error))
        kept.said = words


def _complaint(acquirer: Acquirer) -> str | None:
    """Of one that hears, and cannot make anything of it."""
    return None if acquirer.error is None else f"what came last cannot be read: {acquirer.error}"


async def _outcome(kept: _Kept) -> BaseException | None:
    """What its run ended with; None if it came to its end."""
    run = asyncio.create_task(kept.acquirer.run(kept))
    try:
        await asyncio.wait([run])
    finally:
        if not run.done():
            run.cancel()
            await asyncio.wait([run])
        elif not run.cancelled():
            run.exception()  # we may have been cancelled meanwhile: then nobody else asks for it
    return asyncio.CancelledError("cancelled from within") if run.cancelled() else run.exception()


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, AcquirerError) else f"{type(error).__name__}: {error}"


def _unexpected(error: BaseException) -> BaseException | None:
    """With its traceback, as it is ours to mend and not a person's."""
    return None if isinstance(error, AcquirerError) else error
