"""Samples from a file: JSON lines or CSV, also compressed; in the recording's time, faster, or as fast as possible."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from spinney.errors import PublicationError

from ..battery import battery_of
from ..plain import Plain, plain
from ..sample_time import read_time
from ..samples import MAX_HEARD_BYTES, Acquirer, AcquirerError, Sample, Sink
from ..settings import AcquireReplay
from .lines import LineError, Lines

PAUSE_LINES: Final = 100
"""After so many lines at full speed the others in the loop have their turn."""


class Replay(Acquirer):
    """One file. At a speed the samples are as old as if they were made now; at full speed they keep their times."""

    def __init__(self, name: str, settings: AcquireReplay, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name)
        """Lines, and bad lines."""
        self.error: str | None = None
        """What was wrong with the last bad line, and where."""
        self._settings = settings
        self._clock = clock

    async def run(self, sink: Sink) -> None:
        while True:
            before = self.counts["samples"]
            await self._once(sink)
            if not self._settings.repeat:
                return
            if self.counts["samples"] == before:
                raise AcquirerError(f"{self._settings.file}: no sample in it: {self.error or 'it is empty'}")
            await asyncio.sleep(0)

    async def _once(self, sink: Sink) -> None:
        pace = _Pace(self._settings.speed, self._clock)
        with _opened(self._settings.file) as file:
            lines = Lines(*_form(self._settings.file))
            for number, line in enumerate(_bounded(file), 1):
                found = self._read(lines, number, line)
                if found is not None:
                    await pace.wait(found.time)
                    self.counts["samples"] += 1
                    sink.sampled(self._sample(found, pace.measured(found.time)))
                if number % PAUSE_LINES == 0:
                    await asyncio.sleep(0)

    def _read(self, lines: Lines, number: int, line: str | None) -> Plain | None:
        self.counts["lines"] += 1
        if line is None:
            self._complain(number, f"longer than {MAX_HEARD_BYTES} characters")
            return None
        try:
            item = lines.read(line)
            if item is None:
                return None
            if "time" in item:
                item["time"] = read_time(item["time"])
            return plain(item)
        except (LineError, PublicationError, ValueError) as error:
            self._complain(number, error)
            return None

    def _complain(self, number: int, what: object) -> None:
        self.counts["bad lines"] += 1
        self.error = f"{self._settings.file}:{number}: {what}"

    def _sample(self, found: Plain, measured: float) -> Sample:
        """Its number is left out when the file is played again and again: it would be the same sample."""
        boot, sequence = (not self._settings.repeat and found.number) or (None, None)
        return Sample(
            found.source or self._settings.source or self._settings.file.name.partition(".")[0],
            found.values,
            measured,
            self._clock(),
            self.name,
            boot,
            sequence,
            battery=battery_of(found.values),
            valid_for=found.valid_for,
            place=found.place,
            type=found.type,
        )


class _Pace:
    def __init__(self, speed: float, clock: Callable[[], float]) -> None:
        self._speed = speed
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._now = clock()
        self._first: float | None = None

    async def wait(self, recorded: float | None) -> None:
        """Until a sample of this time is due."""
        if recorded is None or not self._speed:
            return
        if self._first is None:
            self._first = recorded
        due = self._began + (recorded - self._first) / self._speed
        if due > self._loop.time():
            await asyncio.sleep(due - self._loop.time())

    def measured(self, recorded: float | None) -> float:
        """The time that the sample is told with."""
        if recorded is None:
            return self._clock()
        if not self._speed or self._first is None:
            return recorded
        return self._now + (recorded - self._first) / self._speed


def _form(file: Path) -> tuple[Any]:
    return ("csv" if ".csv" in file.suffixes else "json",)


@contextmanager
def _opened(file: Path) -> Iterator[IO[str]]:
    try:
        with _text(file) as text:
            yield text
    except (OSError, EOFError) as error:
        raise AcquirerError(f"{file}: {getattr(error, 'strerror', None) or error}", "check file") from None


def _text(file: Path) -> IO[str]:
    if file.suffix == ".gz":
        return gzip.open(file, "rt", encoding="utf-8", errors="replace")
    return file.open(encoding="utf-8", errors="replace")


def _bounded(file: IO[str]) -> Iterator[str | None]:
    """The lines; None for one that is longer than a sample may be."""
    while line := file.readline(MAX_HEARD_BYTES + 1):
        is_whole = line.endswith("\n") or len(line) <= MAX_HEARD_BYTES
        yield line if is_whole else None
        while not line.endswith("\n") and line:
            line = file.readline(MAX_HEARD_BYTES)
