"""The mote's time: milliseconds since its boot, the epoch's once somebody set it, and how fast it runs away."""

import struct

LEAST_DRIFT_SPAN_MS = 3_600_000  # two settings closer than this tell more about the radio than about the clock
MOST_DRIFT_PPM = 60_000  # an RC clock in deep sleep; what is beyond was a wrong setting
_STATE = "<qqqiBq"
_OVERHEAD_MS = 10_000  # longest start that the RTC's word is believed for
_MILLION = 1_000_000


class Clock:
    """Local time starts at 0 with each boot and goes on through deep sleep.

    `ticks_ms` and `ticks_diff` are those of MicroPython's `time`; `rtc_ms` is a clock that runs through deep sleep,
    None where there is none. `advance` must be called at least once in 6 days, before the ticks wrap.
    """

    def __init__(self, ticks_ms, ticks_diff, rtc_ms=None):
        self._ticks_ms = ticks_ms
        self._ticks_diff = ticks_diff
        self._rtc_ms = rtc_ms
        self._last_ticks = ticks_ms()
        self._local_ms = 0
        self._set_local_ms = 0  # when the time was last set, by this clock
        self._set_epoch_ms = 0  # and what it was then
        self._drift_ppm = 0
        self._is_set = False

    def advance(self) -> int:
        """Local milliseconds now."""
        now = self._ticks_ms()
        self._local_ms += self._ticks_diff(now, self._last_ticks)
        self._last_ticks = now
        return self._local_ms

    @property
    def is_set(self) -> bool:
        return self._is_set

    @property
    def drift_ppm(self) -> int:
        """How many millionths this clock is slow, 0 until two settings have told."""
        return self._drift_ppm

    @property
    def offset_ms(self):
        """Epoch minus local time, None while unset."""
        epoch_ms = self.epoch_ms()
        return None if epoch_ms is None else epoch_ms - self._local_ms

    def set(self, epoch_ms: int) -> None:
        """Takes the epoch's time from outside, and learns from the last setting how this clock drifts."""
        local_ms = self.advance()
        span_ms = local_ms - self._set_local_ms
        if self._is_set and span_ms >= LEAST_DRIFT_SPAN_MS:
            ahead_ms = epoch_ms - self._set_epoch_ms - span_ms
            drift_ppm = (2 * ahead_ms * _MILLION + span_ms) // (2 * span_ms)
            if -MOST_DRIFT_PPM <= drift_ppm <= MOST_DRIFT_PPM:
                self._drift_ppm = drift_ppm
        self._set_local_ms = local_ms
        self._set_epoch_ms = epoch_ms
        self._is_set = True

    def epoch_ms(self, local_ms=None):
        """The epoch's time at a local time, now unless told; None while unset."""
        now = self.advance()
        if not self._is_set:
            return None
        span_ms = (now if local_ms is None else local_ms) - self._set_local_ms
        return self._set_epoch_ms + span_ms + span_ms * self._drift_ppm // _MILLION

    def age_ms(self, local_ms: int) -> int:
        """How long ago a local time was."""
        return max(0, self.advance() - local_ms)

    def state(self) -> bytes:
        """What `wake` needs after deep sleep."""
        return struct.pack(
            _STATE,
            self.advance(),
            self._set_local_ms,
            self._set_epoch_ms,
            self._drift_ppm,
            self._is_set,
            -1 if self._rtc_ms is None else self._rtc_ms(),
        )

    def wake(self, state, slept_ms: int) -> None:
        """Goes on from a state after a sleep that was meant to last `slept_ms`.

        The RTC knows how long it was, with the start that followed; what it cannot have been, since somebody set the
        RTC, is not believed.
        """
        local_ms, self._set_local_ms, self._set_epoch_ms, self._drift_ppm, is_set, rtc_ms = struct.unpack(_STATE, state)
        self._is_set = bool(is_set)
        passed_ms = slept_ms
        if rtc_ms >= 0 and self._rtc_ms is not None:
            by_rtc_ms = self._rtc_ms() - rtc_ms
            if slept_ms * 9 // 10 <= by_rtc_ms <= slept_ms * 11 // 10 + _OVERHEAD_MS:
                passed_ms = by_rtc_ms
        self._local_ms = local_ms + passed_ms
        self._last_ticks = self._ticks_ms()


STATE_BYTES = struct.calcsize(_STATE)
