"""Where this broker is: fixed, or as gpsd, an NMEA receiver or a file tells."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from .settings import Place as Settings

FIX_SECONDS: Final = 60.0
"""For how long a fix is where this broker is; then it does not know."""
MAX_FIXES: Final = 600
"""Kept for samples that were made a while ago."""
FIRST_RETRY_SECONDS: Final = 1.0
LAST_RETRY_SECONDS: Final = 60.0
MAX_LINE_BYTES: Final = 16 * 1024
FILE_SECONDS: Final = 1.0
"""Between two looks into a file."""
_WITH_A_FIX: Final = (2, 3)
"""Modes of gpsd's: in two dimensions, and in three."""
_WATCH = b'?WATCH={"enable":true,"json":true};\n'

_log = logging.getLogger(__name__)


class Fix(NamedTuple):
    """A place at a time."""

    time: float
    lat: float
    long: float


class PlaceError(Exception):
    """Why there are no fixes, and what to do about it."""


class Whereabouts:
    """The fixes that there have been. `run` is a task that goes on for ever, whatever happens to the receiver."""

    def __init__(self, settings: Settings, *, clock: Callable[[], float] = time.time) -> None:
        self.error: str | None = None
        """Why nothing is heard of the place at the moment."""
        self.refused = 0
        """Lines that were no fix, and no other sentence of the receiver's."""
        self.on_fix: Callable[[], None] = lambda: None
        self.is_fixed = settings.kind == "fixed"
        self._settings = settings
        self._clock = clock
        self._fixes: deque[Fix] = deque(maxlen=MAX_FIXES)
        if self.is_fixed:
            if settings.lat is None or settings.long is None:
                raise PlaceError("place.kind = fixed: where is it? Set place.lat and place.long")
            self._fixes.append(Fix(0.0, settings.lat, settings.long))

    def at(self, moment: float) -> tuple[float, float] | None:
        """Latitude and longitude then; None if that is not known."""
        if self.is_fixed:
            return self._fixes[0][1:]
        for fix in reversed(self._fixes):
            if fix.time <= moment:
                return fix[1:] if moment - fix.time <= FIX_SECONDS else None
        first = self._fixes[0] if self._fixes else None
        return first[1:] if first is not None and first.time - moment <= FIX_SECONDS else None

    def put(self, fix: Fix) -> None:
        """Here we are. What comes twice, or late, is passed over; if much too late, the clock was set back."""
        if self._fixes and fix.time <= self._fixes[-1].time:
            if self._fixes[-1].time - fix.time <= FIX_SECONDS:
                return
            self._fixes.clear()
        self._fixes.append(fix)
        self.on_fix()

    async def run(self) -> None:
        """Follow the receiver until cancelled; what goes wrong is said once, shown, and tried again."""
        if self._settings.kind in ("none", "fixed"):
            return
        retry_seconds = FIRST_RETRY_SECONDS
        while True:
            try:
                async for fix in self._follow():
                    self.error = None
                    retry_seconds = FIRST_RETRY_SECONDS
                    self.put(fix)
                problem = "it says no more"
            except (OSError, PlaceError) as error:
                problem = str(error)
            if self.error is None:
                _log.warning("place from %s: %s", self._settings.kind, problem)
            self.error = problem
            await asyncio.sleep(retry_seconds)
            retry_seconds = min(2 * retry_seconds, LAST_RETRY_SECONDS)

    def _follow(self) -> AsyncIterator[Fix]:
        match self._settings.kind:
            case "gpsd":
                return self._gpsd()
            case "nmea":
                return self._nmea()
        return self._file()

    async def _gpsd(self) -> AsyncIterator[Fix]:
        host, _, port = self._settings.gpsd.rpartition(":")
        try:
            reader, writer = await asyncio.open_connection(host or "127.0.0.1", int(port), limit=MAX_LINE_BYTES)
        except OSError as error:
            raise PlaceError(f"no gpsd at {self._settings.gpsd}: {error}; is it running?") from None
        with contextlib.closing(writer):
            writer.write(_WATCH)
            async for line in _lines(reader):
                fix = self._read(of_gpsd, line)
                if fix is not None:
                    yield self._now(fix)

    async def _nmea(self) -> AsyncIterator[Fix]:
        import serial  # of an extra

        if self._settings.port is None:
            raise PlaceError("place.kind = nmea: which port? Set place.port, to /dev/ttyACM0 for instance")
        try:
            port = serial.Serial(self._settings.port, self._settings.baud, timeout=0)
        except serial.SerialException as error:
            raise PlaceError(f"{error}; is it plugged in, and is the user in the group dialout?") from None
        reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), port)
        with contextlib.closing(transport):
            async for line in _lines(reader):
                fix = self._read(of_nmea, line)
                if fix is not None:
                    yield self._now(fix)

    async def _file(self) -> AsyncIterator[Fix]:
        if self._settings.file is None:
            raise PlaceError("place.kind = file: which one? Set place.file")
        path, done = Path(self._settings.file), 0
        while True:
            done = done if path.stat().st_size >= done else 0
            for line in _new_lines(path, done):
                done += len(line)
                fix = self._read(of_file, line)
                if fix is not None:
                    yield fix
            await asyncio.sleep(FILE_SECONDS)

    def _now(self, fix: Fix) -> Fix:
        """By this machine's clock, as samples are."""
        return fix._replace(time=self._clock())

    def _read(self, read: Callable[[bytes], Fix | None], line: bytes) -> Fix | None:
        try:
            return read(line)
        except (ValueError, OverflowError, RecursionError):  # the latter two of JSON that nobody would send
            self.refused += 1
            return None


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Lines as they come; one that is too long ends it."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            raise PlaceError(f"a line longer than {MAX_LINE_BYTES} bytes; is it the right port?") from None
        if not line:
            return
        yield line


def _new_lines(path: Path, done: int) -> list[bytes]:
    """Whole lines that have come since."""
    with path.open("rb") as file:
        file.seek(done)
        return [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]


# ---- What a line says. None: nothing of a place; ValueError: it is damaged


def of_gpsd(line: bytes) -> Fix | None:
    """A report of gpsd's."""
    item = json.loads(line)
    if not isinstance(item, dict) or item.get("class") != "TPV" or item.get("mode") not in _WITH_A_FIX:
        return None
    return _fix(0.0, item.get("lat"), item.get("lon"))


def of_file(line: bytes) -> Fix | None:
    """An object with time, lat and long."""
    item = json.loads(line)
    if not isinstance(item, dict):
        raise ValueError("expected an object")
    return _fix(item.get("time"), item.get("lat"), item.get("long"))


def of_nmea(line: bytes) -> Fix | None:
    """An RMC or GGA sentence, in degrees and minutes."""
    text = line.decode("ascii").strip()
    body, _, said = text.removeprefix("$").partition("*")
    if not text.startswith("$") or int(said, 16) != _checksum(body):
        raise ValueError("a wrong checksum")
    fields = body.split(",")
    match fields[0][-3:], fields:
        case "RMC", [_, _, "A", lat, north, long, east, *_]:
            pass
        case "GGA", [_, _, lat, north, long, east, quality, *_] if quality not in ("", "0"):
            pass
        case _:
            return None
    return _fix(0.0, _degrees(lat, 2, north, "S"), _degrees(long, 3, east, "W"))


def _checksum(body: str) -> int:
    found = 0
    for letter in body.encode():
        found ^= letter
    return found


def _degrees(text: str, digits: int, side: str, negative: str) -> float:
    """Degrees and minutes as 4548.90 and 01558.62 have them."""
    degrees = int(text[:digits]) + float(text[digits:]) / 60
    return -degrees if side == negative else degrees


def _fix(moment: Any, lat: Any, long: Any) -> Fix:
    if isinstance(moment, str):
        from spinney.instants import parse_timestamp

        moment = parse_timestamp(moment)
    numbers = [float(one) for one in (moment, lat, long) if isinstance(one, int | float) and math.isfinite(one)]
    if len(numbers) != 3 or abs(numbers[1]) > 90 or abs(numbers[2]) > 180:
        raise ValueError("expected a time, a latitude and a longitude")
    return Fix(*numbers)
