"""The mote's clock: local time through ticks that wrap and through deep sleep, the epoch's once set, and drift."""

from __future__ import annotations

import pytest
from spinney_mote.clock import LEAST_DRIFT_SPAN_MS, Clock

WRAP = 1 << 30
EPOCH_MS = 1_790_000_000_000
DAY_MS = 86_400_000


class Ticks:
    """A board's ticks, which wrap, and its RTC, which runs through deep sleep."""

    def __init__(self, start_ms: int = 0) -> None:
        self.ms = start_ms
        self.rtc = 5_000_000

    def ticks_ms(self) -> int:
        return self.ms % WRAP

    @staticmethod
    def ticks_diff(later: int, earlier: int) -> int:
        return (later - earlier + WRAP // 2) % WRAP - WRAP // 2

    def rtc_ms(self) -> int:
        return self.rtc

    def pass_ms(self, ms: int) -> None:
        self.ms += ms
        self.rtc += ms

    def clock(self, *, rtc: bool = True) -> Clock:
        return Clock(self.ticks_ms, self.ticks_diff, self.rtc_ms if rtc else None)


def test_local_time_goes_on_where_the_ticks_wrap() -> None:
    ticks = Ticks(WRAP - 500)
    clock = ticks.clock()
    ticks.pass_ms(1200)
    assert clock.advance() == 1200
    for _ in range(5):
        ticks.pass_ms(WRAP // 2 - 1)
        clock.advance()
    assert clock.advance() == 1200 + 5 * (WRAP // 2 - 1)


def test_unset_there_is_an_age_and_no_time() -> None:
    ticks = Ticks()
    clock = ticks.clock()
    ticks.pass_ms(4000)
    assert clock.epoch_ms() is None
    assert clock.offset_ms is None
    assert clock.age_ms(1500) == 2500
    assert not clock.is_set


def test_set_once_it_runs_on() -> None:
    ticks = Ticks()
    clock = ticks.clock()
    ticks.pass_ms(10_000)
    clock.set(EPOCH_MS)
    ticks.pass_ms(2500)
    assert clock.epoch_ms() == EPOCH_MS + 2500
    assert clock.epoch_ms(4000) == EPOCH_MS - 6000
    assert clock.offset_ms == EPOCH_MS - 10_000
    assert clock.drift_ppm == 0


@pytest.mark.parametrize("ppm", [-3000, -40, 0, 40, 50_000])
def test_two_settings_tell_the_drift_and_the_time_between_them_is_right(ppm: int) -> None:
    ticks = Ticks()
    clock = ticks.clock()
    clock.set(EPOCH_MS)
    ticks.pass_ms(DAY_MS)
    true_ms = EPOCH_MS + DAY_MS + DAY_MS * ppm // 1_000_000
    clock.set(true_ms)
    assert clock.drift_ppm == ppm
    ticks.pass_ms(DAY_MS)
    assert clock.epoch_ms() == true_ms + DAY_MS + DAY_MS * ppm // 1_000_000


def test_settings_close_together_tell_no_drift() -> None:
    ticks = Ticks()
    clock = ticks.clock()
    clock.set(EPOCH_MS)
    ticks.pass_ms(LEAST_DRIFT_SPAN_MS - 1)
    clock.set(EPOCH_MS + LEAST_DRIFT_SPAN_MS + 900)
    assert clock.drift_ppm == 0
    assert clock.epoch_ms() == EPOCH_MS + LEAST_DRIFT_SPAN_MS + 900


def test_a_setting_that_no_clock_drifts_by_is_a_correction() -> None:
    ticks = Ticks()
    clock = ticks.clock()
    clock.set(EPOCH_MS)
    ticks.pass_ms(DAY_MS)
    clock.set(EPOCH_MS + 40 * DAY_MS)
    assert clock.drift_ppm == 0
    assert clock.epoch_ms() == EPOCH_MS + 40 * DAY_MS


@pytest.mark.parametrize(("rtc", "passed_ms"), [(True, 60_350), (False, 60_000)])
def test_after_deep_sleep_time_goes_on(rtc: bool, passed_ms: int) -> None:
    ticks = Ticks()
    clock = ticks.clock(rtc=rtc)
    ticks.pass_ms(1000)
    clock.set(EPOCH_MS)
    state = clock.state()
    ticks.rtc += 60_350  # the sleep, and the start after it
    ticks.ms = 350
    woken = ticks.clock(rtc=rtc)
    woken.wake(state, slept_ms=60_000)
    assert woken.advance() == 1000 + passed_ms
    assert woken.epoch_ms() == EPOCH_MS + passed_ms
    ticks.pass_ms(10)
    assert woken.advance() == 1010 + passed_ms


@pytest.mark.parametrize("step_ms", [-5_000_000, 20_000, 900_000_000])
def test_an_rtc_that_was_set_meanwhile_is_not_believed(step_ms: int) -> None:
    ticks = Ticks()
    clock = ticks.clock()
    state = clock.state()
    ticks.rtc += 60_000 + step_ms
    woken = ticks.clock()
    woken.wake(state, slept_ms=60_000)
    assert woken.advance() == 60_000
    assert woken.epoch_ms() is None


def test_drift_is_kept_through_deep_sleep() -> None:
    ticks = Ticks()
    clock = ticks.clock()
    clock.set(EPOCH_MS)
    ticks.pass_ms(DAY_MS)
    clock.set(EPOCH_MS + DAY_MS + 8640)
    woken = ticks.clock()
    woken.wake(clock.state(), 0)
    assert woken.drift_ppm == 100
    assert woken.is_set
