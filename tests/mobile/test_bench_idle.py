"""`spinney bench idle`: the real process, beside a real cloud; what takes more than it may misses the targets."""

from __future__ import annotations

import pytest

from spinney import native
from spinney_tools.bench import mobile_idle as bench
from spinney_tools.bench.mobile_idle import Idle, Measurement
from spinney_tools.bench.stuck import Stuck


@pytest.mark.slow
def test_each_core_has_a_row_and_hears_all_sensors() -> None:
    found = bench.measure(lambda _: None, seconds=1.0, rates=(1.0,))
    cores = ["pure"] if native.core() is None else ["C", "pure"]
    assert [one.core for one in found.idles] == cores
    assert len(bench.table(found).rows) == len(cores)
    for one in found.idles:
        assert one.samples >= bench.SENSORS // 2
        assert one.cpu >= 0
        assert 10 < one.rss_mb < 500


@pytest.mark.parametrize(
    ("one", "missed"),
    [
        (Idle("C", 1.0, 0.04, 50.0, 500), 0),
        (Idle("C", 1.0, 0.06, 50.0, 500), 1),
        (Idle("C", 10.0, 0.04, 50.0, 50), 1),
        (Idle("pure", 10.0, 0.04, 150.0, 50), 2),
    ],
)
def test_more_of_a_core_or_of_memory_misses_the_targets(one: Idle, missed: int) -> None:
    assert len(Measurement([one], 30.0).missed()) == missed


@pytest.mark.slow
def test_a_broker_that_does_not_start_is_told_of_with_its_own_words() -> None:
    with pytest.raises(Stuck, match="port"):
        bench._idle("C", 1.0, 1.0, 99_999)
