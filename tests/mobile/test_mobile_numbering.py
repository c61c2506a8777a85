"""Numbers for sources that have none, repeats, and what comes late (rules I1 to I3)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from deciding_kit import NOW, sample

from spinney import PublicationId
from spinney_mobile import numbering as module
from spinney_mobile.numbering import CONTENT_SECONDS, RESTART_GAP, Numbering
from spinney_mobile.samples import Sample


def numbered(boot: int, sequence: int, *, at: float = NOW, **values: float) -> Sample:
    return replace(sample("m1", at=at, **values), boot=boot, sequence=sequence)


def ids(numbering: Numbering, *samples: Sample, epoch: int = 7) -> list[PublicationId | None]:
    found = (numbering.number(one, epoch) for one in samples)
    return [None if one is None else one.id for one in found]


# ---- sources without numbers


def test_samples_of_a_source_without_numbers_are_counted_under_the_epoch_of_its_lease() -> None:
    first, second = ids(Numbering(), sample(x=1), sample(x=2))
    assert first is not None
    assert first == PublicationId("m1", 7, int(NOW * 1000) + 1)
    assert second == first._replace(sequence=first.sequence + 1)


def test_the_next_owner_numbers_beyond_the_last_one() -> None:
    (ours,) = ids(Numbering(), sample(x=1), epoch=7)
    (theirs,) = ids(Numbering(), sample(x=1, at=NOW - 1e6), epoch=8)
    assert theirs is not None
    assert ours is not None
    assert theirs > ours


def test_numbers_go_on_when_a_lease_is_lost() -> None:
    numbering = Numbering()
    (first,) = ids(numbering, sample(x=1), epoch=7)
    (second,) = ids(numbering, sample(x=2), epoch=0)
    assert first is not None
    assert second == first._replace(sequence=first.sequence + 1)


@pytest.mark.parametrize("clock", [NOW - 1e6, NOW, NOW + 1e6])
def test_after_a_restart_no_number_comes_again_whatever_the_clock_says(clock: float) -> None:
    numbering = Numbering()
    before = ids(numbering, *(sample(x=n) for n in range(5)))
    kept = {key: value for key, value in numbering.stored("m1").items() if value is not None}
    (after,) = ids(Numbering(kept), sample(x=9, at=clock))
    assert after is not None
    assert before[-1] is not None
    assert after.sequence > before[-1].sequence + RESTART_GAP


def test_an_equal_sample_a_moment_later_is_the_same_one_i2() -> None:
    numbering = Numbering()
    found = ids(numbering, sample(x=1), sample(x=1, at=NOW + CONTENT_SECONDS), sample(x=1, at=NOW + 20), sample(x=2))
    assert [one is None for one in found] == [False, True, False, False]
    assert numbering.counts["repeated"] == 1


def test_values_that_come_and_go_are_not_repeats() -> None:
    found = ids(Numbering(), sample(open=True), sample(open=False), sample(open=True))
    assert None not in found


def test_true_and_1_are_two_values() -> None:
    assert None not in ids(Numbering(), sample(x=1), sample(x=True))


def test_adverts_that_take_turns_are_told_from_their_own_repeats() -> None:
    found = ids(Numbering(), sample(temp=20), sample(humidity=50), sample(temp=20), sample(humidity=50))
    assert [one is None for one in found] == [False, False, True, True]


def test_equal_samples_with_times_of_their_own_are_several() -> None:
    found = ids(Numbering(), *(replace(sample(x=1), time=NOW - age) for age in (3.0, 2.0, 1.0)))
    assert None not in found


# ---- sources with numbers


def test_a_number_that_has_been_here_is_a_repeat_i2() -> None:
    numbering = Numbering()
    assert ids(numbering, numbered(3, 5, x=1), numbered(3, 5, x=1), numbered(4, 5, x=1)) == [
        PublicationId("m1", 3, 5),
        None,
        PublicationId("m1", 4, 5),
    ]


def test_a_number_below_the_newest_is_late_i3() -> None:
    numbering = Numbering()
    found = [numbering.number(numbered(boot, n), 7) for boot, n in ((3, 5), (3, 4), (2, 9), (3, 6), (4, 0))]
    assert [one is not None and one.late for one in found] == [False, True, True, False, False]
    assert numbering.counts["late"] == 2


def test_after_a_restart_what_was_before_the_newest_number_is_late() -> None:
    numbering = Numbering()
    ids(numbering, numbered(3, 5))
    again = Numbering({key: value for key, value in numbering.stored("m1").items() if value is not None})
    found = again.number(numbered(3, 4), 7)
    assert found is not None
    assert found.late


# ---- bounds


def test_the_source_unheard_for_longest_is_forgotten_here_and_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SOURCES", 2)
    numbering = Numbering()
    for n, source in enumerate(("a", "b", "a", "c")):
        numbering.number(sample(source, x=n), 7)
    assert numbering.counts["forgotten"] == 1
    assert numbering.stored("c")["number:b"] is None
