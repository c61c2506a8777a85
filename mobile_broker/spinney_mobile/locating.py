"""What is added to samples before anything is evaluated (rule P2): constants of a source, and where it was measured."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from spinney.expression import Value

from .cells import Grid, GridError, grid
from .device_settings import DeviceSettings, place_of
from .place import Whereabouts
from .samples import CELL, Ability, Sample
from .settings import Place, Settings

_log = logging.getLogger(__name__)


class Locating:
    """`devices` gives the settings of now."""

    def __init__(self, settings: Settings, whereabouts: Whereabouts, devices: Callable[[], DeviceSettings]) -> None:
        self.grid = _grid_of(settings)
        """The cells that readings and announcements have; None where no place is known."""
        self._settings: Place = settings.place
        self._whereabouts = whereabouts
        self._devices = devices

    @property
    def abilities(self) -> dict[str, Ability]:
        """What is added to the samples of a source whose place may change, as announcements have it."""
        return {} if self.grid is None else {CELL: Ability(kind="string")}

    def any_grid(self) -> Grid:
        """The cells that there are, whether readings have them or not; GridError."""
        return self.grid or grid(self._settings.grid, self._settings.resolution)

    def constants(self, source: str, is_private: Callable[[str, Mapping[str, Value]], bool]) -> dict[str, Value]:
        """Attributes that all publications of a source have, as settings say; and its place, if it stays there.

        The place is left out where a private rule may touch its readings.
        """
        device = self._devices().of_source(source)
        found: dict[str, Value] = {} if device is None else dict(device.attributes)
        if device is not None and device.type is not None:
            found["type"] = device.type
        place = place_of(device)
        if place is None and self._whereabouts.is_fixed:
            place = self._whereabouts.at(0.0)
        if place is not None and not is_private(source, found):
            found |= self._at(*place)
        return found

    def of(self, sample: Sample) -> dict[str, Value]:
        """Where a sample was measured."""
        return self._at(*sample.place) if sample.place is not None else self.here(sample.time)

    def own(self, source: str, sample: Sample | None) -> dict[str, Value]:
        """Where a source is by its own account, or by settings; empty if it is just where this broker is."""
        place = sample.place if sample is not None else place_of(self._devices().of_source(source))
        return {} if place is None else self._at(*place)

    def here(self, moment: float) -> dict[str, Value]:
        """Where this broker is; empty if that is not known."""
        place = self._whereabouts.at(moment)
        return {} if place is None else self._at(*place)

    def _at(self, lat: float, long: float) -> dict[str, Value]:
        place: dict[str, Value] = {"lat": lat, "long": long}
        if self.grid is not None:
            place[CELL] = self.grid.cell(lat, long, self._settings.resolution)
        return place


def _grid_of(settings: Settings) -> Grid | None:
    place = settings.place
    if place.kind == "none" and all(device.lat is None for device in settings.device):
        return None
    try:
        return grid(place.grid, place.resolution)
    except GridError as error:
        _log.warning("readings have no cell: %s", error)
        return None
