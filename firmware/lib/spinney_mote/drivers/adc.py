"""Any analogue input with a calibration in integers: points, or a polynomial."""

from ..sensor import Attribute, Sensor, SensorError, between_points, const, divide

_FULL_SCALE = const(65535)
_READS = const(16)


class Adc(Sensor):
    """An object with `read_u16()` is handed in; the mean of 16 reads is calibrated.

    `points` are (u16, raw) pairs with u16 ascending, joined by lines; what lies beyond them is missing. Or
    `coefficients` c0, c1, ... with `shift`: raw = c0 + (c1 * u + c2 * u * u + ...) / 2 ** shift, rounded; then 0 and
    65535, which a broken wire gives, are missing. The attribute is raw * p / q in `unit`, within low..high.
    """

    driver = "adc"
    bus_kind = "adc"

    def __init__(
        self,
        bus,
        clock,
        names=None,
        points=None,
        coefficients=None,
        shift=0,
        unit="V",
        p=1,
        q=1000,
        low=0,
        high=65535,
        kind="voltage",
    ):
        self.measures = (Attribute(kind or "value", unit, p, q, low, high, kind),)
        Sensor.__init__(self, bus, clock, names)
        if (points is None) == (coefficients is None):
            raise ValueError("an adc needs either points or coefficients")
        self.points = None if points is None else check_points(points)
        self.coefficients = coefficients
        self.shift = shift

    def _fetch(self, values) -> None:
        u = mean_u16(self.bus)
        if self.points is not None:
            values[0] = between_points(self.points, u)
        elif 0 < u < _FULL_SCALE:
            values[0] = polynomial(self.coefficients, self.shift, u)
        else:
            raise SensorError(f"input at its limit, {u}")


def mean_u16(adc) -> int:
    """The mean of 16 reads; a read that is no 16-bit number is no reading."""
    total = 0
    for _ in range(_READS):
        u = adc.read_u16()
        if not 0 <= u <= _FULL_SCALE:
            raise SensorError(f"read {u}, which is not 16 bits")
        total += u
    return divide(total, _READS)


def check_points(points):
    """The points as pairs; ValueError unless there are two or more, with u16 ascending."""
    pairs = tuple([(point[0], point[1]) for point in points])
    ascending = all(pairs[i - 1][0] < pairs[i][0] for i in range(1, len(pairs)))
    if len(pairs) < 2 or not ascending:
        raise ValueError("points are two or more pairs, the first numbers ascending")
    return pairs


def polynomial(coefficients, shift: int, u: int) -> int:
    """c0 + (c1 * u + c2 * u**2 + ...) / 2**shift, rounded to the nearest integer."""
    total = 0
    for i in range(len(coefficients) - 1, 0, -1):
        total = (total + coefficients[i]) * u
    return coefficients[0] + divide(total, 1 << shift)
