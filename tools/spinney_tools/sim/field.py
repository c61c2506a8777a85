"""The air of a simulated city: what each quantity is at a place and a time, from sources and wind, or replayed."""

from __future__ import annotations

import bisect
import csv
import gzip
import io
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from spinney.errors import SpinneyError

from .propagation import Place

_DAY_S = 86400.0
_HOUR_S = 3600.0
_GUST_PERIODS_S = (210.0, 790.0, 2900.0)
_PLUME_WIDTH = 0.25
"""How wide a plume is, for each metre from its source."""
_NEAR_M = 30.0


class SeriesError(SpinneyError, ValueError):
    """A file of series that cannot be replayed: where, and why."""


class Field(Protocol):
    def value(self, quantity: str, place: Place, time_s: float) -> float | None:
        """At a time in epoch seconds; None for what this field does not know."""


@dataclass(frozen=True)
class Source:
    """What pollutes: `strength` is in ug/m3 of NO2 near it, at its busiest hour."""

    place: Place
    strength: float


@dataclass(frozen=True)
class Scenario:
    """The hour it begins, how much the traffic makes of it, the wind and the weather."""

    hour: float
    traffic: float
    wind_m_s: float
    mean_celsius: float


SCENARIOS: Mapping[str, Scenario] = {
    "rush-hour": Scenario(7.0, 1.0, 1.5, 12.0),
    "night": Scenario(1.0, 0.25, 1.0, 7.0),
    "windy": Scenario(12.0, 0.7, 8.0, 10.0),
    "heat": Scenario(13.0, 0.8, 0.7, 31.0),
}


@dataclass
class Pollution:
    """Plumes of sources in a wind that turns, over a background, with two peaks of traffic a day."""

    scenario: Scenario
    sources: Sequence[Source]
    seed: int
    _phases: list[float] = field(init=False)
    _direction: float = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(f"wind {self.seed}")  # noqa: S311 - repeatable on purpose
        self._phases = [chance.uniform(0.0, math.tau) for _ in _GUST_PERIODS_S]
        self._direction = chance.uniform(0.0, math.tau)

    def value(self, quantity: str, place: Place, time_s: float) -> float | None:
        if quantity == "temperature":
            return self._celsius(place, time_s)
        if quantity == "humidity":
            return min(99.0, max(10.0, 95.0 - 2.2 * self._celsius(place, time_s)))
        if quantity == "NO2":
            return 8.0 + self._plumes(place, time_s)
        if quantity == "pm25":
            return 5.0 + 0.35 * self._plumes(place, time_s)
        if quantity == "pm10":
            return 9.0 + 0.55 * self._plumes(place, time_s)
        if quantity == "co2":
            return 425.0 + 0.8 * self._plumes(place, time_s)
        if quantity == "pressure":
            return 1013.0 + 4.0 * math.sin(math.tau * time_s / (3 * _DAY_S))
        return None

    def wind(self, time_s: float) -> tuple[float, float]:
        """Metres in a second to the east and to the north."""
        turn = sum(
            0.25 * math.sin(math.tau * time_s / period + phase)
            for period, phase in zip(_GUST_PERIODS_S, self._phases, strict=True)
        )
        angle = self._direction + turn
        return self.scenario.wind_m_s * math.cos(angle), self.scenario.wind_m_s * math.sin(angle)

    def _celsius(self, place: Place, time_s: float) -> float:
        of_day = (time_s % _DAY_S) / _HOUR_S
        daily = 5.0 * math.cos(math.tau * (of_day - 15.0) / 24.0)
        local = 0.6 * math.sin(place[0] / 310.0) * math.cos(place[1] / 270.0)
        return self.scenario.mean_celsius + daily + local

    def _plumes(self, place: Place, time_s: float) -> float:
        east, north = self.wind(time_s)
        speed = max(0.3, math.hypot(east, north))
        ahead = (east / speed, north / speed)
        total = 0.0
        for source in self.sources:
            x, y = place[0] - source.place[0], place[1] - source.place[1]
            along = x * ahead[0] + y * ahead[1]
            across = x * ahead[1] - y * ahead[0]
            if along < -_NEAR_M:
                continue
            reach = max(along, 0.0) + _NEAR_M
            width = _PLUME_WIDTH * reach + 10.0
            total += source.strength * (_NEAR_M / reach) * math.exp(-0.5 * (across / width) ** 2)
        return total * self.scenario.traffic * _traffic(time_s) / max(0.5, speed) * 1.5


def _traffic(time_s: float) -> float:
    """Of the busiest hour: peaks at eight and at five."""
    hour = (time_s % _DAY_S) / _HOUR_S
    peaks = math.exp(-0.5 * ((hour - 8.0) / 1.2) ** 2) + 0.9 * math.exp(-0.5 * ((hour - 17.0) / 1.6) ** 2)
    return 0.12 + 0.88 * min(1.0, peaks)


@dataclass(frozen=True)
class Replay:
    """A recorded series, the same everywhere; what it does not have comes from `rest`. After its end it begins anew."""

    times_s: Sequence[float]
    columns: Mapping[str, Sequence[float | None]]
    rest: Field
    start_s: float

    def value(self, quantity: str, place: Place, time_s: float) -> float | None:
        column = self.columns.get(quantity)
        if column is None:
            return self.rest.value(quantity, place, time_s)
        span_s = self.times_s[-1] - self.times_s[0]
        into_s = (time_s - self.start_s) % span_s if span_s else 0.0
        return column[bisect.bisect_right(self.times_s, self.times_s[0] + into_s) - 1]


def replay(file: Path, rest: Field, start_s: float, renamed: Mapping[str, str] | None = None) -> Replay:
    """Reads a CSV file, .gz or not: a column `time` (epoch seconds or ISO 8601), and one named for each quantity.

    `renamed` has the file's names of columns by ours, where they differ.
    """
    whole = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    with io.StringIO(whole.decode("utf-8-sig"), newline="") as lines:
        rows = csv.DictReader(lines)
        names = _names(file, list(rows.fieldnames or ()), renamed or {})
        rows.fieldnames = names
        if "time" not in names:
            raise SeriesError(
                f"{file}:1: no column `time`; the columns are: {', '.join(names)}; --columns time=... says which it is"
            )
        times: list[float] = []
        columns: dict[str, list[float | None]] = {name: [] for name in names if name != "time"}
        for row in rows:
            where = f"{file}:{rows.line_num}"
            times.append(_time(row["time"], where))
            if len(times) > 1 and times[-1] < times[-2]:
                raise SeriesError(f"{where}: the time goes back")
            for name, column in columns.items():
                column.append(_number(row[name], where, name))
    if not times:
        raise SeriesError(f"{file}: no rows")
    return Replay(times, columns, rest, start_s)


def _names(file: Path, names: list[str], renamed: Mapping[str, str]) -> list[str]:
    """Our names of the file's columns; one that is taken by another column leaves that one out."""
    for name, column in renamed.items():
        if column not in names:
            raise SeriesError(f"{file}:1: no column {column!r} for {name}; the columns are: {', '.join(names)}")
    ours = {column: name for name, column in renamed.items()}
    return [ours.get(column) or (f"{column} (of the file)" if column in renamed else column) for column in names]


def _time(text: str | None, where: str) -> float:
    try:
        return float(text or "")
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        raise SeriesError(f"{where}: {text!r} is no time") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _number(text: str | None, where: str, name: str) -> float | None:
    """None where there is nothing, as in a series with gaps."""
    if not text or text.lower() in ("nan", "na", "null"):
        return None
    try:
        value = float(text)
    except ValueError:
        raise SeriesError(f"{where}: {name}: {text!r} is no number") from None
    if not math.isfinite(value):
        raise SeriesError(f"{where}: {name}: {text!r} is no finite number")
    return value
