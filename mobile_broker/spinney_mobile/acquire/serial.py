"""Lines from a serial or USB port. When it is unplugged it fails, and is opened again when it is back."""

from __future__ import annotations

import asyncio
import errno
import glob
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ..samples import MAX_HEARD_BYTES, Acquirer, AcquirerError, Heard, Sink
from ..settings import AcquireSerial
from .lines import LineError, Lines

if TYPE_CHECKING:
    from serial import Serial

READ_BYTES: Final = 4096


class SerialLines(Acquirer):
    """One port. It is read by the event loop, without a thread."""

    def __init__(self, name: str, settings: AcquireSerial, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name)
        """Times that it was opened, lines, bad lines, and lines too long."""
        self.error: str | None = None
        """What was wrong with the last line, if anything."""
        self._settings = settings
        self._clock = clock

    async def run(self, sink: Sink) -> None:
        loop = asyncio.get_running_loop()
        device = self._open()
        ended: asyncio.Future[None] = loop.create_future()
        port = _Port(self, device, Lines(self._settings.format, self._settings.columns), sink, ended)
        loop.add_reader(device.fileno(), port.ready)
        self.counts["opened"] += 1
        try:
            await ended
        finally:
            loop.remove_reader(device.fileno())
            device.close()

    def _open(self) -> Serial:
        try:
            from serial import Serial, SerialException
        except ImportError:
            raise AcquirerError("pyserial is not installed", 'pip install "spinney[mobile]"') from None
        port = find_port(self._settings.port)
        try:
            return Serial(port, self._settings.baud, timeout=0, exclusive=True)
        except SerialException as error:
            raise AcquirerError(f"{port}: {_reason(error)}", _remedy(error.errno)) from None

    def take(self, line: bytes, lines: Lines, sink: Sink) -> None:
        """One line without its end."""
        self.counts["lines"] += 1
        try:
            values = lines.read(line.decode("utf-8", "replace"))
        except LineError as error:
            self.counts["bad lines"] += 1
            self.error = str(error)
            return
        self.error = None
        if values:
            told = values.get("source")
            source = told if isinstance(told, str) and told else self._settings.source or self.name
            sink.heard(Heard(self.name, source, self._clock(), values=values))


def find_port(port: str) -> str:
    """The port, or the first that fits a pattern such as /dev/serial/by-id/*; AcquirerError if none does."""
    if not glob.has_magic(port):
        return port
    found = sorted(glob.glob(port))  # noqa: PTH207 - a whole path with its pattern, not a folder's
    if not found:
        raise AcquirerError(f"{port}: nothing fits", "is it plugged in?")
    return found[0]


class _Port:
    """What has come of a line so far. A line too long is left out up to its end."""

    def __init__(
        self, acquirer: SerialLines, device: Serial, lines: Lines, sink: Sink, ended: asyncio.Future[None]
    ) -> None:
        self._acquirer, self._device, self._lines, self._sink, self._ended = acquirer, device, lines, sink, ended
        self._rest = b""
        self._is_too_long = False

    def ready(self) -> None:
        """There is something to read, or the end."""
        if self._ended.done():
            return
        try:
            data = self._device.read(READ_BYTES)
        except OSError as error:  # pyserial's is one
            self._ended.set_exception(AcquirerError(f"{self._device.port}: {error}", "is it plugged in?"))
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if not self._is_too_long and len(line) <= MAX_HEARD_BYTES:
                self._acquirer.take(line, self._lines, self._sink)
            elif not self._is_too_long:
                self._acquirer.counts["too long"] += 1
            self._is_too_long = False
        if len(self._rest) > MAX_HEARD_BYTES:
            self._acquirer.counts["too long"] += not self._is_too_long
            self._rest, self._is_too_long = b"", True


def _reason(error: OSError) -> str:
    """Without the port's name, which pyserial says twice."""
    return os.strerror(error.errno) if error.errno else str(error)


def _remedy(number: int | None) -> str:
    return {
        errno.EACCES: "not allowed: sudo usermod -aG dialout $USER, then log in again",
        errno.ENOENT: "is it plugged in? `ls /dev/serial/by-id/` shows those there are",
        errno.EBUSY: "another program has it open",
    }.get(number or 0, "is another program using it?")
