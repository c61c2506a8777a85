"""Which of a mote's service data is on the air: BlueZ goes on to tell what a device advertised before.

A mote advertises readings or presence, never both, and readings under a new number each time. Where a system tells
both, readings are believed for a while after they have changed; else presence is: what was advertised before must never
be taken for a sample.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from spinney.mote.advert import BTHOME
from spinney.mote.protocol import SERVICE

FRESH_SECONDS: Final = 60.0
MAX_DEVICES: Final = 4096
"""Devices of which both were told; beyond it the one heard least recently is forgotten, and its presence believed."""

Services = Mapping[str, bytes]


class ServiceData:
    """Of one adapter. Pure: time is handed in."""

    def __init__(self) -> None:
        self._told: OrderedDict[str, tuple[bytes, float | None]] = OrderedDict()
        """By address the readings, and when they changed, if they have."""

    def current(self, address: str, services: Services, now: float) -> Services:
        """Without what is not advertised any more."""
        readings = services.get(BTHOME)
        if readings is None or SERVICE not in services:
            return services
        before, changed_at = self._told.pop(address, (readings, None))
        if before != readings:
            changed_at = now
        self._told[address] = readings, changed_at
        if len(self._told) > MAX_DEVICES:
            self._told.popitem(last=False)
        is_fresh = changed_at is not None and 0.0 <= now - changed_at <= FRESH_SECONDS
        gone = SERVICE if is_fresh else BTHOME
        return {uuid: data for uuid, data in services.items() if uuid != gone}
