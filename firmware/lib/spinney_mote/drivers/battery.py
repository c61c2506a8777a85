"""The battery: its voltage through a divider at an analogue input, and what is left of it by a curve."""

from ..sensor import Attribute, Sensor, between_points, const, divide
from .adc import check_points, mean_u16

_FULL_SCALE = const(65535)

LITHIUM_ION = ((3300, 0), (3500, 8), (3600, 18), (3700, 40), (3800, 60), (3900, 75), (4000, 86), (4200, 100))
"""Millivolts of one cell under a light load, and percent left."""
ALKALINE_2 = ((1800, 0), (2100, 15), (2300, 35), (2500, 60), (2700, 80), (3000, 100))
"""The same of two alkaline cells in series."""


class Battery(Sensor):
    """`above` and `below` are the divider's resistors, to the battery and to ground, in one unit; 0 above is none.

    `full_scale_mv` is what the input reads as 65535; `curve` are (millivolts, percent) pairs. A voltage outside
    low_mv..high_mv means that there is no battery, and both attributes are missing.
    """

    driver = "battery"
    bus_kind = "adc"
    measures = (
        Attribute("battery", "%", 1, 1, 0, 100, "battery"),
        Attribute("voltage", "V", 1, 1000, 0, 65535, "voltage"),
    )

    def __init__(
        self,
        bus,
        clock,
        names=None,
        above=100,
        below=100,
        full_scale_mv=3300,
        curve=LITHIUM_ION,
        low_mv=1000,
        high_mv=6000,
    ):
        Sensor.__init__(self, bus, clock, names)
        voltage = self.attributes[1]
        voltage = Attribute(voltage.name, voltage.unit, voltage.p, voltage.q, low_mv, high_mv, voltage.kind)
        self.attributes = (self.attributes[0], voltage)
        self.above = above
        self.below = below
        self.full_scale_mv = full_scale_mv
        self.curve = check_points(curve)

    def _fetch(self, values) -> None:
        pin_mv_full = mean_u16(self.bus) * self.full_scale_mv
        mv = divide(pin_mv_full * (self.above + self.below), _FULL_SCALE * self.below)
        values[1] = mv
        voltage = self.attributes[1]
        if voltage.low <= mv <= voltage.high:
            values[0] = between_points(self.curve, mv, clamp=True)
