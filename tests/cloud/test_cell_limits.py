"""`at_most`: the first of each cell and period pass, by the log's time, and the same ones after any death."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinney_cloud.cell_limits import QUIET_SECONDS, CellLimits, Key, cell_of, position_of
from spinney_cloud.cells import cell_at
from spinney_cloud.delivery_options import DEFAULT, OptionError, read_options
from spinney_cloud.density import AtMost, Density, DensityError, read_at_most, read_density
from spinney_cloud.passed_file import PassedFile

ANA: Key = ("default", "ana", "air")
BOB: Key = ("default", "bob", "air")
HERE, THERE = (45.8, 15.97), (47.0, 16.0)
LIMITS = {ANA: AtMost(8, 1, 300.0), BOB: AtMost(8, 2, 60.0)}


class Note(NamedTuple):
    sequence: int
    key: Key
    position: tuple[float, float] | None
    time: float

    @property
    def id(self) -> str:
        return f"n{self.sequence}"


def limits(**more: Any) -> CellLimits:
    made = CellLimits(**more)
    for key, at_most in LIMITS.items():
        made.set_limit(key, at_most)
    return made


def judge(made: CellLimits, note: Note) -> bool:
    return made.passes(note.key, note.position, note.time, note.id, note.sequence)


def expected(notes: list[Note]) -> set[int]:
    """The first of each subscription, cell and period: counted plainly."""
    counts: Counter[tuple[Key, str, int]] = Counter()
    found = set()
    for note in notes:
        at_most = LIMITS[note.key]
        group = (note.key, cell_of(note.position, at_most.cell), int(note.time // at_most.seconds))
        counts[group] += 1
        if counts[group] <= at_most.count:
            found.add(note.sequence)
    return found


def random_notes(random: Random, count: int) -> list[Note]:
    time, notes = 1_000_000.0, []
    for sequence in range(1, count + 1):
        time += random.choice([0.0, 1.0, 20.0, 150.0])
        notes.append(Note(sequence, random.choice([ANA, BOB]), random.choice([HERE, THERE, None]), time))
    return notes


@pytest.mark.parametrize("seed", range(8))
def test_the_first_of_each_cell_and_period_pass(seed: int) -> None:
    notes, made = random_notes(Random(seed), 200), limits()
    passed = set()
    for note in notes:
        if judge(made, note):
            passed.add(note.sequence)
        if note.sequence % 20 == 0:
            made.prune(note.sequence)
    assert passed == expected(notes)
    assert 0 < len(passed) < len(notes)


@settings(max_examples=80, deadline=None)
@given(st.randoms(use_true_random=False))
def test_who_starts_again_anywhere_decides_as_before(random: Random) -> None:
    """What is written goes before what is done, and any part of the end of both is lost."""
    notes = random_notes(random, 60)
    wanted = expected(notes)
    file: list[bytes] = []
    at, delivered, done = 0, set[int](), set[int]()
    for _ in range(4):
        made = limits()
        made.restore(b"".join(file).split(b"\n"))
        file = [made.lines()]
        end = random.randint(at, len(notes))
        again = [note for note in notes[:at] if note.sequence not in done]
        for note in [*again, *notes[at:end]]:
            if judge(made, note):
                if random.random() < 0.7:  # acknowledged: what passed is written by then
                    file.append(made.take_lines())
                    delivered.add(note.sequence)
                    done.add(note.sequence)
            else:
                assert note.sequence not in wanted
                if random.random() < 0.7:
                    file.append(made.take_lines())
                    done.add(note.sequence)
        at = max(at, *done, 0) if done else at
    made = limits()
    made.restore(b"".join(file).split(b"\n"))
    for note in notes:
        if note.sequence not in done and judge(made, note):
            delivered.add(note.sequence)
    assert delivered == wanted


def test_another_limit_begins_anew_and_so_does_a_new_subscription_of_the_same_name() -> None:
    made = limits()
    assert [judge(made, Note(number, ANA, HERE, 10.0)) for number in (1, 2)] == [True, False]
    made.set_limit(ANA, AtMost(8, 1, 600.0))
    assert judge(made, Note(3, ANA, HERE, 10.0))
    made.forget(ANA)
    assert judge(made, Note(4, ANA, HERE, 10.0))  # nothing is limited that nobody knows
    made.set_limit(ANA, LIMITS[ANA])
    kept = made.take_lines()
    again = limits()
    again.restore(kept.split(b"\n"))
    assert judge(again, Note(5, ANA, HERE, 10.0))
    assert (again.remembered, made.remembered) == (1, 0)


def test_log_time_does_not_go_back() -> None:
    made = limits()
    assert judge(made, Note(1, ANA, HERE, 900.0))
    assert not judge(made, Note(2, ANA, HERE, 899.0))


def test_what_is_over_and_done_is_forgotten() -> None:
    made = limits()
    judge(made, Note(1, ANA, HERE, 10.0))
    judge(made, Note(2, ANA, HERE, 310.0))
    assert made.remembered == 2
    made.prune(0)
    assert made.remembered == 2  # the first may be read again
    made.prune(1)
    assert made.remembered == 1
    made.prune(2)
    assert made.remembered == 1  # its period is not over
    judge(made, Note(3, BOB, HERE, 600.0 + QUIET_SECONDS))
    made.prune(2)
    assert made.remembered == 1  # bob's


def test_beyond_the_bound_all_pass_and_are_counted() -> None:
    made = limits(max_passed=1)
    assert [judge(made, Note(number, ANA, place, 10.0)) for number, place in enumerate((HERE, THERE, THERE))] == [
        True
    ] * 3
    assert (made.remembered, made.uncounted) == (1, 2)


def test_a_publication_says_where_it_was_made() -> None:
    fine = cell_at(*HERE, 10)
    assert cell_of(position_of({"lat": 45.8, "long": 15.97}), 8) == cell_at(*HERE, 8)
    assert cell_of(position_of({"cell": fine}), 8) == cell_at(*HERE, 8)
    assert cell_of(position_of({"cell": cell_at(*HERE, 5)}), 8) == cell_at(*HERE, 5)  # coarse as it is, one cell
    for nowhere in ({}, {"lat": 45.8}, {"cell": "kitchen"}, {"cell": 8.0}, {"lat": "north", "long": 1.0}):
        assert cell_of(position_of(nowhere), 8) == ""


def test_the_option_is_read() -> None:
    both = {"per_cell": 3, "cell": 8, "every": "5m", "at_most": "2/10m"}
    assert read_density(both) == Density(3, 8, 300.0)
    assert read_at_most(both) == AtMost(8, 2, 600.0)
    assert read_density({"cell": 8, "at_most": "1/5m"}) is None
    assert read_options({"density": both}).at_most == AtMost(8, 2, 600.0)
    assert read_options({"density": {"per_cell": 3, "cell": 8, "every": "5m"}}) == DEFAULT


@pytest.mark.parametrize(
    "item",
    [
        {"at_most": "1/5m"},
        {"cell": 8},
        {"cell": 16, "at_most": "1/5m"},
        {"cell": 8, "at_most": "1/5m", "every": "5m"},
        {"cell": 8, "at_most": 1},
        {"cell": 8, "at_most": "0/5m"},
        {"cell": 8, "at_most": "1/100ms"},
        {"cell": 8, "at_most": "1/2d"},
        {"per_cell": 3, "cell": 8, "every": "5m", "at_most": None},
    ],
)
def test_a_limit_that_cannot_be_obeyed_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(DensityError):
        read_density(item)


def test_a_stored_limit_that_cannot_be_read_is_named() -> None:
    with pytest.raises(OptionError, match=r"^density: at_most: expected a rate.*; found "):
        read_options({"density": {"cell": 8, "at_most": "often"}})


def test_the_file_keeps_whole_lines_and_is_not_read_by_an_older_spinney(tmp_path: Path) -> None:
    file = PassedFile(tmp_path / "delivery.passed")
    assert file.read() == []
    file.begin(b'["a"]\n')
    file.add(b'["b"]\n["c')
    file.close()
    made = limits()
    made.restore(file.read())  # a torn line and those of nobody are left out
    assert file.read()[:2] == [b'["a"]', b'["b"]']
    file.path.write_bytes(b'{"v":2}\n["a"]\n')
    assert file.read() == []
    file.path.write_bytes(b"\xff\n")
    assert file.read() == []
