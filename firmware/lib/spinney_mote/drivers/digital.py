"""A digital input: its level once the bouncing is over, and how often it became active."""

from ..sensor import Attribute, Sensor, SensorError, const

_DEBOUNCE_MS = const(20)
_MAX_COUNT = const(0x3FFFFFFF)  # a small int on every board: the interrupt allocates nothing


class Digital(Sensor):
    """A pin is handed in, set up as an input. `active` is the level that is 1; with `counts` its pulses are counted.

    While the input bounces, its level is the last one that held still for `debounce_ms`. A pulse counts at its first
    edge after as long a rest, by the pin's interrupt, so that short ones between two samples are seen.
    """

    driver = "digital"
    bus_kind = "pin"

    def __init__(self, bus, clock, names=None, active=1, counts=False, debounce_ms=_DEBOUNCE_MS, kind="boolean"):
        level = Attribute("state", "", 1, 1, 0, 1, kind)
        count = Attribute("count", "", 1, 1, 0, _MAX_COUNT, "count")
        self.measures = (level, count) if counts else (level,)
        self.limit_ms = debounce_ms + 10
        Sensor.__init__(self, bus, clock, names)
        self.active = active
        self.debounce_ms = debounce_ms
        self.count = 0
        self._level = None
        self._seen = None
        self._edge_ms = clock.ticks_ms()
        self._edges = 0
        self._edges_before = 0
        if counts:
            bus.irq(handler=self._edge, trigger=bus.IRQ_RISING | bus.IRQ_FALLING)

    def _edge(self, pin) -> None:
        """Runs as an interrupt: every edge starts the rest anew, and only one that follows a rest counts."""
        rested = self._elapsed_ms(self._edge_ms) >= self.debounce_ms
        if rested and pin.value() == self.active:
            self.count = (self.count + 1) & _MAX_COUNT
        self._edge_ms = self.clock.ticks_ms()
        self._edges = (self._edges + 1) & _MAX_COUNT

    def _begin(self) -> int:
        self._seen = self.bus.value()
        self._edges_before = self._edges
        return self.debounce_ms

    def _fetch(self, values) -> None:
        level = self.bus.value()
        if level == self._seen and self._edges == self._edges_before:
            self._level = 1 if level == self.active else 0
        if self._level is None:
            raise SensorError("it bounces")
        values[0] = self._level
        if len(values) > 1:
            values[1] = self.count
