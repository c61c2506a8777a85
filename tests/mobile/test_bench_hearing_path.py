"""`spinney bench adverts`: one number from bleak's callback to the outbox, with the C core and without."""

from __future__ import annotations

from typing import Any

import pytest

from spinney import native
from spinney_mobile.taking import Taking
from spinney_tools.bench import mobile_hearing_path as bench
from spinney_tools.bench.matching import WrongAnswer
from spinney_tools.bench.mobile_hearing_path import Costs, Measurement


@pytest.mark.slow
def test_each_core_has_a_row_for_each_kind() -> None:
    found = bench.measure(lambda _: None, samples=300, rounds=1)
    cores = [one.core for one in found.costs]
    assert cores == (["pure"] if native.core() is None else ["C", "pure"])
    rows = bench.table(found).markdown().splitlines()
    assert sum(kind in row for row in rows for kind in bench.KINDS) >= len(cores) * len(bench.KINDS)
    for one in found.costs:
        assert 0.05 < one.wanted < 0.5
        assert one.us.keys() == set(bench.KINDS)


@pytest.mark.parametrize(
    ("core", "us", "missed"), [("C", 124.0, 0), ("C", 125.0, 1), ("pure", 999.0, 0), ("pure", 1001.0, 1)]
)
def test_an_advert_that_costs_more_misses_the_target(core: str, us: float, missed: int) -> None:
    assert len(Measurement([Costs(core, dict.fromkeys(bench.KINDS, us), 0.2)]).missed()) == missed


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 1])
def test_a_broker_that_loses_a_sample_is_a_wrong_answer(lost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    take, count = Taking.take, 0

    def taken(self: Taking, *arguments: Any) -> None:
        nonlocal count
        count += 1
        if lost and count == bench.DEVICES + 50:
            return
        take(self, *arguments)

    monkeypatch.setattr(Taking, "take", taken)
    if not lost:
        assert bench.measured(300, 1).us
        return
    with pytest.raises(WrongAnswer, match="299"):
        bench.measured(300, 1)


@pytest.mark.slow
def test_a_broker_that_sends_everything_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Taking, "_spare", lambda self, *_: self.counts.update(sent=1))
    with pytest.raises(WrongAnswer, match="were sent"):
        bench.measured(300, 1)
