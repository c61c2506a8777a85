"""Temperatures of many sensors in one building, which differ: the Intel Berkeley lab's, where their file is there.

Neither file is part of Spinney: `--data FOLDER` names a folder that has one of them.
"""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..temperature import SeriesError, unpacked

FILE = "intel_lab_50sensors_30min_5days.csv.gz"
"""Columns `step_30min`, `sensor_row` and `temperature_c`."""
SOURCE_FILES = ("intelTemperatureTrain.csv", "intelTemperatureTest.csv")
"""The same as they can be had, in https://github.com/littlepretty/SensorPGM: a line for each sensor, a column for each
half hour; the second goes on where the first ends."""
_HALF_HOURS_APART = 4


@dataclass(frozen=True, slots=True)
class Lab:
    """Half-hourly readings of each sensor."""

    sensors: tuple[tuple[float, ...], ...]

    @property
    def origin(self) -> str:
        """In words."""
        half_hours = len(self.sensors[0])
        return f"{len(self.sensors)} sensors of the Intel Berkeley lab, {half_hours} half hours of 2004"

    @property
    def median(self) -> float:
        """Of all readings, to half a degree: what subscribers ask around."""
        return round(2 * statistics.median(reading for one in self.sensors for reading in one)) / 2

    def stretches(self, half_hours: int) -> Iterator[tuple[Sequence[float], ...]]:
        """Of all sensors, one every two hours, each with the reading before its first."""
        for first in range(0, len(self.sensors[0]) - half_hours, _HALF_HOURS_APART):
            yield tuple(one[first : first + half_hours + 1] for one in self.sensors)


def lab(folder: Path) -> Lab | None:
    """None where its files are not in the folder."""
    if (folder / FILE).exists():
        return _whole(folder / FILE, _long(folder / FILE))
    files = [folder / name for name in SOURCE_FILES]
    if all(file.exists() for file in files):
        parts = [_wide(file) for file in files]
        if len({len(part) for part in parts}) > 1:
            raise SeriesError(f"{files[1]}: not as many sensors as {files[0].name}")
        return _whole(files[0], [[*first, *second] for first, second in zip(*parts, strict=True)])
    return None


def _long(file: Path) -> list[list[float]]:
    found: dict[int, list[float]] = {}
    for line, row in enumerate(csv.DictReader(io.StringIO(unpacked(file))), 2):
        try:
            readings = found.setdefault(int(row["sensor_row"]), [])
            if int(row["step_30min"]) != len(readings):
                raise ValueError("not the next half hour")
            readings.append(float(row["temperature_c"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SeriesError(f"{file}:{line}: no half hour, sensor and temperature: {error}") from None
    return list(found.values())


def _wide(file: Path) -> list[list[float]]:
    try:
        return [[float(reading) for reading in row] for row in csv.reader(io.StringIO(unpacked(file))) if row]
    except ValueError as error:
        raise SeriesError(f"{file}: {error}") from None


def _whole(file: Path, sensors: Sequence[Sequence[float]]) -> Lab:
    if not sensors or len({len(one) for one in sensors}) > 1:
        raise SeriesError(f"{file}: not as many half hours of each sensor")
    return Lab(tuple(tuple(one) for one in sensors))
