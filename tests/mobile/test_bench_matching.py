"""The bench of the mobile broker's matching measures what it says, and prints a row for each size."""

from __future__ import annotations

import pytest

from spinney_tools.bench import mobile_matching


@pytest.mark.slow
def test_every_size_has_a_row_and_a_whole_sample_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mobile_matching, "ROUNDS", 1)
    monkeypatch.setattr(mobile_matching, "READINGS", 50)
    found = mobile_matching.measure(lambda _: None, sizes=(10, 50))
    text = mobile_matching.table(found).markdown()
    assert [row.split("|")[1].strip() for row in text.splitlines()[-2:]] == ["10", "50"]
    assert found.taking_us > 0
    assert all(one.list_us > 0 and one.indexed_us > 0 and one.all_states_us > one.states_us for one in found.sizes)
