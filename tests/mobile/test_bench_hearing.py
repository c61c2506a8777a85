"""The benchmark of hearing measures what it says: each kind of advert gives the samples that it must."""

from __future__ import annotations

from spinney_tools.bench import mobile_hearing


def test_each_kind_of_advert_gives_its_samples_and_a_row() -> None:
    found = mobile_hearing.measure(lambda _text: None, adverts=1000)
    assert len(mobile_hearing.table(found).rows) == len(found.kinds) + 1
    assert set(found.as_json()) == {"empty_us", "kinds_us", "missed"}
    assert all(us > 0 for us in found.kinds.values())


def test_a_target_missed_says_by_which_kind() -> None:
    found = mobile_hearing.Measurement(0.1, {"cheap": 1.0, "dear": 100.0})
    assert found.missed() == ["2000 adverts a second take 20% of a core: dear"]
