"""Cells of the earth: H3, or MGRS squares. Readings carry the one they are in, and places are made coarse by them."""

from __future__ import annotations

import importlib
from typing import Any, Final, Literal, Protocol

from spinney.geodesy import distance

MAX_H3: Final = 15
MAX_MGRS: Final = 5
_MGRS_METERS: Final = (100_000.0, 10_000.0, 1_000.0, 100.0, 10.0, 1.0)
_OUTWARD: Final = 1.01
"""Distances are rounded so: the libraries' earths and ours are not quite the same."""


class GridError(Exception):
    """Why there are no such cells, and what to do about it."""


class Grid(Protocol):
    """Ways to cut the earth into cells. A larger resolution means smaller cells."""

    name: str

    def cell(self, lat: float, long: float, resolution: int) -> str:
        """The cell around a point."""
        ...

    def centre(self, cell: str) -> tuple[float, float]:
        """Latitude and longitude of its middle."""
        ...

    def radius_meters(self, cell: str) -> float:
        """No point of the cell is farther from its middle."""
        ...


class H3:
    """Hexagons, of about 0.1 km2 at resolution 9."""

    name = "h3"

    def __init__(self) -> None:
        self._h3 = _library("h3")

    def cell(self, lat: float, long: float, resolution: int) -> str:
        """The cell around a point."""
        return str(self._h3.latlng_to_cell(lat, long, resolution))

    def centre(self, cell: str) -> tuple[float, float]:
        """Latitude and longitude of its middle."""
        lat, long = self._h3.cell_to_latlng(cell)
        return float(lat), float(long)

    def radius_meters(self, cell: str) -> float:
        """No point of the cell is farther from its middle."""
        middle = self.centre(cell)
        return _OUTWARD * max(distance(*middle, lat, long) for lat, long in self._h3.cell_to_boundary(cell))


class Mgrs:
    """Squares of 100 km (resolution 0) to 1 m (5), as maps print them."""

    name = "mgrs"

    def __init__(self) -> None:
        self._mgrs = _library("mgrs").MGRS()

    def cell(self, lat: float, long: float, resolution: int) -> str:
        """The cell around a point."""
        return str(self._mgrs.toMGRS(lat, long, MGRSPrecision=resolution))

    def centre(self, cell: str) -> tuple[float, float]:
        """Latitude and longitude of its middle."""
        head, east, north = _parts(cell)
        middle = head + "".join((digits + "50000")[:MAX_MGRS] for digits in (east, north))
        lat, long = self._mgrs.toLatLon(middle if len(east) < MAX_MGRS else cell)
        return float(lat), float(long)

    def radius_meters(self, cell: str) -> float:
        """No point of the cell is farther from its middle."""
        return _OUTWARD * _MGRS_METERS[len(_parts(cell)[1])]


def _parts(cell: str) -> tuple[str, str, str]:
    """Zone and square, easting, northing."""
    at = max(place for place, letter in enumerate(cell) if letter.isalpha()) + 1
    half = (len(cell) - at) // 2
    return cell[:at], cell[at : at + half], cell[at + half :]


def grid(name: Literal["h3", "mgrs"], resolution: int) -> Grid:
    """The grid of this name, with cells of this resolution; GridError if there is none."""
    most = MAX_H3 if name == "h3" else MAX_MGRS
    if resolution > most:
        raise GridError(f"place.resolution: {resolution} is beyond {name}'s finest cells, which are {most}")
    return H3() if name == "h3" else Mgrs()


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise GridError(f"cells of {name} need its package: pip install {name}") from None
