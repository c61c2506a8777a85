# mypy: ignore-errors
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
# It runs with the mote's modules, which these cannot see.
"""A mote's sensor that reads the simulated world. It runs on the virtual mote, like the other drivers."""

import spinney_sim

from ..sensor import Attribute, Sensor

# quantity: unit, p, q, least and greatest raw value, BTHome's name of it
_QUANTITIES = {
    "temperature": ("°C", 1, 100, -4000, 8500, "temperature"),
    "humidity": ("%", 1, 100, 0, 10000, "humidity"),
    "pressure": ("hPa", 1, 100, 30000, 110000, "pressure"),
    "co2": ("ppm", 1, 1, 0, 40000, "co2"),
    "pm25": ("µg/m³", 1, 1, 0, 1000, "pm25"),
    "pm10": ("µg/m³", 1, 1, 0, 1000, "pm10"),
    "NO2": ("µg/m³", 1, 10, 0, 20000, ""),
    "battery": ("%", 1, 1, 0, 100, "battery"),
}


class Virtual(Sensor):
    """One value for each of `quantities`; where the world has none, it is missing."""

    driver = "virtual"

    def __init__(self, bus, clock, names=None, quantities=("temperature",)):
        self.measures = tuple(Attribute(quantity, *_QUANTITIES[quantity]) for quantity in quantities)
        Sensor.__init__(self, bus, clock, names)
        self._quantities = quantities

    def _fetch(self, values) -> None:
        for i, attribute in enumerate(self.measures):
            value = spinney_sim.read(self._quantities[i])
            if value is not None:
                raw = round(value * attribute.q / attribute.p)
                values[i] = min(max(raw, attribute.low), attribute.high)
