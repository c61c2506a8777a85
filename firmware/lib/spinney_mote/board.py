"""The board below the library: what resets it, what it keeps, how it sleeps. `machine` is handed in."""

import gc

_RTC_BYTES = 2048  # of RTC memory, on all ESP32
_WATCHDOG_FALLBACK_MS = 8000  # what every board can
CAUSE_UNKNOWN = 255


class Board:
    """One board. Works with what its port of MicroPython has and says what it has not."""

    def __init__(self, machine, time, watchdog=None):
        self._machine = machine
        self._time = time
        self._watchdog = watchdog  # one that runs already
        self.rtc_bytes = _RTC_BYTES

    @property
    def cause(self) -> int:
        """The number that `machine` gives to the cause of this start."""
        cause = self._machine.reset_cause()
        return cause if 0 <= cause < CAUSE_UNKNOWN else CAUSE_UNKNOWN

    @property
    def woke(self) -> bool:
        """Whether this start is the end of a deep sleep."""
        return self._machine.reset_cause() == getattr(self._machine, "DEEPSLEEP_RESET", -1)

    def rtc_memory(self):
        """Memory that survives deep sleep, for Store; None where there is none."""
        if not hasattr(self._machine, "RTC"):
            return None
        return getattr(self._machine.RTC(), "memory", None)

    def rtc_ms(self) -> int:
        """A clock that runs through deep sleep, where there is RTC memory."""
        return self._time.time_ns() // 1_000_000

    def watch(self, timeout_s: int) -> None:
        """Starts the watchdog, or gives it another time-out; 0 starts none."""
        if timeout_s:
            try:
                self._watchdog = self._machine.WDT(timeout=timeout_s * 1000)
            except ValueError:  # too long for this board
                self._watchdog = self._machine.WDT(timeout=_WATCHDOG_FALLBACK_MS)

    def feed(self) -> None:
        """Only the main loop calls this: whatever stops it resets the board."""
        if self._watchdog is not None:
            self._watchdog.feed()

    def free_heap(self) -> int:
        """Bytes; 0 where nobody knows."""
        return gc.mem_free() if hasattr(gc, "mem_free") else 0

    def reset(self) -> None:
        self._machine.reset()

    def deep_sleep(self, ms: int) -> None:
        """Ends in a start whose `woke` is true."""
        self._machine.deepsleep(ms)
