"""What time it is in the log, by its records."""

from __future__ import annotations

from spinney_cloud.log_clock import LogClock


def asked(time: float, now: float) -> LogClock:
    clock = LogClock()
    clock.ask()
    clock.read(time, now, own=True)
    return clock


def test_it_must_be_asked_first() -> None:
    clock = LogClock()
    assert clock.seconds_until(1e9, 5.0) == 0
    clock.read(1000.0, 5.0, own=False)
    clock.read(1000.0, 5.0, own=True)  # of a life before
    assert clock.seconds_until(1e9, 5.0) == 0


def test_time_goes_on_from_our_own_tick() -> None:
    clock = asked(1000.0, 5.0)
    assert clock.seconds_until(1010.0, 5.0) == 10
    assert clock.seconds_until(1010.0, 12.0) == 3


def test_an_old_record_says_nothing_and_a_later_one_that_the_clock_was_set_forward() -> None:
    clock = asked(1000.0, 5.0)
    clock.read(900.0, 5.0, own=False)
    assert clock.seconds_until(1010.0, 5.0) == 10
    clock.read(1004.0, 5.0, own=False)
    assert clock.seconds_until(1010.0, 5.0) == 6


def test_a_tick_of_ours_says_that_the_clock_was_set_back() -> None:
    clock = asked(1000.0, 5.0)
    clock.ask()
    clock.read(400.0, 6.0, own=True)
    assert clock.seconds_until(410.0, 6.0) == 10
