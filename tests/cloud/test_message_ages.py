"""Ages of a stream's messages: by the time that has passed, whatever the clock does that stamps them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.message_ages import STEPS, MessageAges

YEAR = 366 * 24 * 3600.0
LONGEST = 86_400.0


class Turn(NamedTuple):
    """Some time goes by, the server's clock is stepped, messages come, and then the stream is looked at."""

    seconds: float
    step: float
    messages: int


turns = st.lists(
    st.builds(Turn, st.floats(0, LONGEST / 3), st.sampled_from([0.0, 0.0, YEAR, -YEAR, 3600.0]), st.integers(0, 5)),
    min_size=1,
    max_size=40,
)


@given(st.integers(0, 5), turns)
def test_no_step_of_the_clock_makes_a_message_older_than_it_is_nor_lets_it_stay(before: int, later: list[Turn]) -> None:
    now, server = 1000.0, 1.7e9
    came = [now - 100.0 * (before - number) for number in range(before)]
    stamps = [server + moment - now for moment in came]
    ages = MessageAges()
    ages.saw(len(came), server, now, LONGEST)
    for turn in later:
        now += turn.seconds
        server += turn.seconds + turn.step
        came += [now] * turn.messages
        stamps += [server] * turn.messages
        ages.saw(len(came), server, now, LONGEST)
        for sequence, (moment, stamp) in enumerate(zip(came, stamps, strict=True), 1):
            age = now - moment
            found = ages.age(sequence, stamp, now)
            assert found <= age + 1e-6
            assert found >= min(age, LONGEST) - LONGEST / STEPS - LONGEST / 3 - 1e-6
        gone = ages.older_than(LONGEST, now)
        assert all(now - moment > LONGEST for moment in came[:gone])
        kept = came[max(gone, ages.last_before) :]
        assert all(now - moment <= LONGEST + LONGEST / STEPS + LONGEST / 3 for moment in kept)


def test_what_was_there_before_has_the_age_that_its_timestamp_says() -> None:
    ages = MessageAges()
    ages.saw(7, 5000.0, 100.0, 60.0)
    assert ages.age(7, 4990.0, 100.0) == 10.0
    assert ages.age(7, 4990.0, 130.0) == 40.0
    assert ages.age(7, 5010.0, 100.0) == 0.0
    assert ages.timestamp(60.0, 130.0) == 4970.0
    assert ages.age(8, 1.0, 130.0) == 0.0


def test_a_stream_that_begins_anew_is_known_anew() -> None:
    ages = MessageAges()
    ages.saw(7, 5000.0, 100.0, 60.0)
    ages.saw(2, 5001.0, 101.0, 60.0)
    assert ages.last_before == 2
    assert ages.older_than(60.0, 150.0) == 0


def test_what_is_remembered_is_bounded() -> None:
    ages = MessageAges()
    for second in range(20_000):
        ages.saw(second + 1, float(second), float(second), 1000.0)
    assert len(ages._seen) <= STEPS + 2
    assert 18_990 <= ages.older_than(1000.0, 20_000.0) <= 19_000
