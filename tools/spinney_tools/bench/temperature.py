"""Half-hourly temperatures of a place: Cambridge's, where that file is there, else invented ones of the same character.

Neither file is part of Spinney: `--data FOLDER` names a folder that has one of them.
"""

from __future__ import annotations

import csv
import gzip
import io
import lzma
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..workloads.generate import WorkloadError

FILE = "cambridge_weather_30min_2008_2020_with_gaps.csv.gz"
"""The weather station of the University of Cambridge: columns `ts_utc` and `temperature_c`."""
SOURCE_FILE = "CamUKWeather.csv.xz"
"""The same as it can be had, in https://github.com/makeyourownmaker/CambridgeTemperatureModel (data/): columns `ds` in
UTC and `y` in tenths of a degree."""

STEP_S = 1800
_DAY_S = 86_400
_YEAR_S = 31_556_952
_MADE_DAYS = 4_000
_BEGIN_S = 1_217_548_800
"""2008-08-01, as Cambridge's."""

# Fitted to Cambridge's by least squares: mean, year, day, and how the day changes with the year.
_YEAR = (-6.40, -2.72)
_MEAN = 10.15
_DAY = (-2.34, -1.93)
_DAY_IN_THE_YEAR = (1.39, 1.01)
_HALF_DAY = (0.44, 0.20)
# What is left has a deviation of 3.52, and its autocorrelation at 0.5 to 72 h that of these two.
_WEATHER = 3.52
_SLOW_SHARE, _SLOW_HOURS, _FAST_HOURS = 0.70, 90.0, 3.0
_RESOLUTION = 0.43
"""The station's steps, which are 0.4 or 0.5 in its tenths."""


class SeriesError(WorkloadError):
    """A file without the temperatures that it should have: what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Series:
    """Readings at multiples of half an hour, by epoch seconds; gaps are not there."""

    origin: str
    celsius: dict[int, float]
    is_invented: bool = False

    def stretches(self, half_hours: int) -> Iterator[list[float]]:
        """All that begin at a midnight, whole, each with the reading before its first."""
        first, last = min(self.celsius), max(self.celsius)
        for day_s in range(math.ceil(first / _DAY_S + 1) * _DAY_S, last, _DAY_S):
            found = [self.celsius.get(day_s + STEP_S * step) for step in range(-1, half_hours)]
            whole = [reading for reading in found if reading is not None]
            if len(whole) == len(found):
                yield whole


def series(folder: Path, seed: int) -> Series:
    """Cambridge's, if a file of them is in the folder."""
    for name, columns, scale in ((FILE, ("ts_utc", "temperature_c"), 1), (SOURCE_FILE, ("ds", "y"), 10)):
        if (folder / name).exists():
            return _read(folder / name, columns, scale)
    return _made(seed)


def spread(stretches: Sequence[list[float]], count: int) -> list[list[float]]:
    """So many of them, evenly from the first to the last."""
    return [stretches[len(stretches) * place // count] for place in range(min(count, len(stretches)))]


def _read(file: Path, columns: tuple[str, str], scale: int) -> Series:
    found: dict[int, float] = {}
    when, what = columns
    for line, row in enumerate(csv.DictReader(io.StringIO(unpacked(file))), 2):
        try:
            time = datetime.fromisoformat(row[when])
            found[int(time.replace(tzinfo=time.tzinfo or UTC).timestamp())] = float(row[what]) / scale
        except (KeyError, TypeError, ValueError) as error:
            raise SeriesError(f"{file}:{line}: no time and temperature: {error}") from None
    if not found:
        raise SeriesError(f"{file}: no rows")
    return Series(f"{len(found):,} half-hourly readings of the Cambridge weather station, 2008 to 2020", found)


def unpacked(file: Path) -> str:
    """The text of a file, which may be packed; SeriesError where it cannot be read."""
    unpack = {".gz": gzip.decompress, ".xz": lzma.decompress}.get(file.suffix, bytes)
    try:
        return unpack(file.read_bytes()).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise SeriesError(f"{file}: {error}") from None


def _made(seed: int) -> Series:
    """Year and day by sines, weather by two random walks that return: a slow one, and a fast one made smooth."""
    chance = random.Random(f"temperature {seed}")  # noqa: S311  # repeatable on purpose
    slow_stays, fast_stays = (math.exp(-STEP_S / 3600 / hours) for hours in (_SLOW_HOURS, _FAST_HOURS))
    slow_step = _WEATHER * math.sqrt(_SLOW_SHARE * (1 - slow_stays**2))
    fast_step = _WEATHER * math.sqrt((1 - _SLOW_SHARE) * (1 - fast_stays**2) ** 3 / (1 + fast_stays**2))
    slow = chance.gauss(0, _WEATHER * math.sqrt(_SLOW_SHARE))
    push = fast = 0.0
    found = {}
    for time_s in range(_BEGIN_S, _BEGIN_S + _MADE_DAYS * _DAY_S, STEP_S):
        slow = slow * slow_stays + chance.gauss(0, slow_step)
        push = push * fast_stays + chance.gauss(0, fast_step)
        fast = fast * fast_stays + push
        steps = round((_climate(time_s) + slow + fast) / _RESOLUTION)
        found[time_s] = round(steps * _RESOLUTION, 1)
    return Series(
        f"{len(found):,} invented half-hourly readings, of the character of the Cambridge weather station's",
        found,
        True,
    )


def _climate(time_s: int) -> float:
    """What is expected at this time of the day and of the year."""
    year = math.tau * time_s / _YEAR_S
    day = math.tau * time_s / _DAY_S
    season = math.cos(year)
    return (
        _MEAN
        + _YEAR[0] * season
        + _YEAR[1] * math.sin(year)
        + (_DAY[0] + _DAY_IN_THE_YEAR[0] * season) * math.cos(day)
        + (_DAY[1] + _DAY_IN_THE_YEAR[1] * season) * math.sin(day)
        + _HALF_DAY[0] * math.cos(2 * day)
        + _HALF_DAY[1] * math.sin(2 * day)
    )
