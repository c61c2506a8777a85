"""What all sensors have in common: attributes in int32, a read in two steps, errors in words, and back-off.

A driver says how to set its sensor up, how to begin a measurement and how to fetch it; everything else is here.
"""

try:
    from micropython import const
except ImportError:
    const = int  # pyright: ignore[reportAssignmentType]  # CPython has no constants; an int stays what it is

FIRST_BACK_OFF_MS = const(1000)
MAX_BACK_OFF_MS = const(300000)
MAX_NOT_READY = const(3)
_ERROR_CHARS = const(80)
_LONG_AGO_MS = const(0x1FFFFFFF)

# ENODEV and EIO: nobody acknowledged. ETIMEDOUT differs between ports.
_NO_ANSWER = (19, 5)
_TIMED_OUT = (110, 116)


class SensorError(Exception):
    """A sensor that answered with something that is not a reading."""


class NotReady(SensorError):
    """A sensor that is well and has nothing yet: it is neither set up again nor left alone for a while."""


class Attribute:
    """What is measured: value = raw * p / q in `unit`, with raw within low..high. `kind` is BTHome's name of it."""

    def __init__(self, name: str, unit: str, p: int, q: int, low: int, high: int, kind: str = ""):
        self.name = name
        self.unit = unit
        self.p = p
        self.q = q
        self.low = low
        self.high = high
        self.kind = kind

    def renamed(self, name: str):
        """The same quantity under another name."""
        return Attribute(name, self.unit, self.p, self.q, self.low, self.high, self.kind)


class Sensor:
    """One sensor: `start()` says how many ms it needs, `finish()` gives a raw value or None for each attribute.

    Neither raises for a sensor that fails: its attributes are missing and `error` says why. A measurement that
    takes long may be finished at a later sample: until then the sensor is missing, too. `read()` does both at once
    and takes at most `limit_ms`, given a bus that gives up after its own time-out. `clock` is MicroPython's `time`,
    or anything with its `ticks_ms`, `ticks_diff` and `sleep_ms`.
    """

    driver = "sensor"
    bus_kind = ""
    """What is handed in as `bus`: i2c, uart, onewire, adc or pin."""
    limit_ms = 100
    measures = ()

    def __init__(self, bus, clock, names=None):
        self.bus = bus
        self.clock = clock
        self.attributes = _named(self.measures, names)
        self.values = [None] * len(self.attributes)
        self.error = None
        self.failures = 0
        self._failed_in_a_row = 0
        self._not_ready = 0
        self._failed_ms = 0
        self._is_set_up = False
        self._begun_ms = 0
        self._wait_ms = -1  # no measurement has begun

    @property
    def back_off_ms(self) -> int:
        """For how long a sensor is left alone after its last failure."""
        if not self._failed_in_a_row:
            return 0
        return min(FIRST_BACK_OFF_MS << min(self._failed_in_a_row - 1, 20), MAX_BACK_OFF_MS)

    def start(self) -> int:
        """Begins a measurement unless one is under way; gives the ms until `finish()` will find it."""
        if self._wait_ms < 0 and not self._is_resting():
            try:
                if not self._is_set_up:
                    self._set_up()
                    self._is_set_up = True
                wait_ms = self._begin()
                self._begun_ms = self.clock.ticks_ms()
                self._wait_ms = wait_ms
            except (OSError, SensorError) as error:
                self._fail(error)
        return self._remaining_ms()

    def finish(self):
        """The values of the measurement that was begun, one for each attribute, None where there is none."""
        values = self.values
        for i in range(len(values)):
            values[i] = None
        if self._wait_ms < 0:
            return values  # it failed or rests: the error is there already
        remaining_ms = self._remaining_ms()
        if remaining_ms > 0:
            self.error = f"{self.driver}: ready in {remaining_ms} ms"
            return values
        self._wait_ms = -1
        self._collect(values)
        return values

    def read(self):
        """Starts, waits and finishes."""
        wait_ms = self.start()
        if wait_ms > 0:
            self.clock.sleep_ms(wait_ms)
        return self.finish()

    def _collect(self, values) -> None:
        self.error = None
        try:
            self._fetch(values)
            self._check(values)
        except NotReady as error:
            self._not_ready += 1
            if self._not_ready > MAX_NOT_READY:
                self._fail(error)
            else:
                self._miss(error)
        except (OSError, SensorError) as error:
            self._fail(error)
        else:
            self._failed_in_a_row = self._not_ready = 0

    def _check(self, values) -> None:
        """Drops what no working sensor says; a sensor of which nothing is left has failed."""
        left = 0
        for i, attribute in enumerate(self.attributes):
            raw = values[i]
            if raw is None:
                self.error = self.error or f"{self.driver}: no {attribute.name}"
            elif attribute.low <= raw <= attribute.high:
                left += 1
            else:
                values[i] = None
                limits = f"{attribute.low}..{attribute.high}"
                self.error = f"{self.driver}: {attribute.name} {raw} is outside {limits}"
        if self.error:
            if not left:
                raise SensorError(self.error)
            self.failures += 1

    def _remaining_ms(self) -> int:
        if self._wait_ms < 0:
            return 0
        return max(0, self._wait_ms - self._elapsed_ms(self._begun_ms))

    def _elapsed_ms(self, since_ms: int) -> int:
        """Milliseconds since then, which must not be in the future; ticks cannot tell more than six days."""
        elapsed_ms = self.clock.ticks_diff(self.clock.ticks_ms(), since_ms)
        return elapsed_ms if elapsed_ms >= 0 else _LONG_AGO_MS

    def _is_resting(self) -> bool:
        if not self._failed_in_a_row:
            return False
        return self._elapsed_ms(self._failed_ms) < self.back_off_ms

    def _fail(self, error) -> None:
        """Counts a failure; after the rest the sensor is set up again."""
        self._miss(error)
        self._failed_in_a_row += 1
        self._failed_ms = self.clock.ticks_ms()
        self._not_ready = 0
        self._is_set_up = False

    def _miss(self, error) -> None:
        self.failures += 1
        for i in range(len(self.values)):
            self.values[i] = None
        text = _words(error)
        if not text.startswith(self.driver):
            text = self.driver + ": " + text
        self.error = text[:_ERROR_CHARS]

    def _set_up(self) -> None:
        """Makes the sensor ready from any state; runs before the first measurement and after a failure."""

    def _begin(self) -> int:
        """Begins a measurement; gives the ms until it is there."""
        return 0

    def _fetch(self, values) -> None:
        """Fills `values` with the raw values of the measurement; None where the sensor says that there is none."""
        raise NotImplementedError


def _named(measures, names):
    if names is None:
        return tuple(measures)
    if len(names) != len(measures):
        raise ValueError(f"{len(names)} names for {len(measures)} attributes")
    return tuple([measures[i].renamed(names[i]) for i in range(len(names))])


def _words(error) -> str:
    if not isinstance(error, OSError):
        return str(error)
    number = error.args[0] if error.args else 0
    if number in _NO_ANSWER:
        return "no answer"
    if number in _TIMED_OUT:
        return "bus timed out"
    return f"bus error {number}"


def divide(numerator: int, denominator: int) -> int:
    """The integer nearest the quotient, for a denominator above 0; halves go up."""
    return (2 * numerator + denominator) // (2 * denominator)


def between_points(points, x: int, clamp: bool = False) -> int:
    """y at x on the line through (x, y) points with x ascending; beyond the ends SensorError, or the end's y."""
    first, last = points[0], points[-1]
    if not first[0] <= x <= last[0]:
        if not clamp:
            raise SensorError(f"{x} is outside the calibrated {first[0]}..{last[0]}")
        return first[1] if x < first[0] else last[1]
    i = 1
    while points[i][0] < x:
        i += 1
    (x0, y0), (x1, y1) = points[i - 1], points[i]
    return y0 + divide((y1 - y0) * (x - x0), x1 - x0)
