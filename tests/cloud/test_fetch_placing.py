"""Where fetched readings stand among the log's: each once, by time, but in the order of their source's numbers."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from spinney import PublicationId
from spinney_cloud.fetch.placing import Given, Placing, joined
from spinney_cloud.fetch.result import Fetched, FetchedReading
from spinney_cloud.records import Publications, Run


def fetched(*readings: tuple[float, str, int]) -> Fetched:
    """Of arrival, source and number."""
    found = [
        FetchedReading(PublicationId(source, 1, number), at, None, "pi", {"id": f"{source}:1:{number}"})
        for at, source, number in readings
    ]
    return Fetched(1_000.0, found)


def record(sequence: int, at: float, *runs: tuple[str, int, int], numbered: int = 1) -> Given:
    """Of source, first number and length."""
    found = tuple(Run(source, 1, first, length, "pi", None, numbered) for source, first, length in runs)
    return Given(sequence, at, Publications("default", 0.0, found, b"[]"))


def order(log: list[Given], what: Fetched) -> list[Any]:
    """Records by their sequence, and readings by their ids."""
    placing = Placing(what, "default")
    for one in log:
        assert isinstance(one.record, Publications)
        placing.look(one.sequence, one.arrival, one.record.runs)
    placing.looked()
    found: list[Any] = []
    for one in joined(log, placing):
        assert isinstance(one.record, Publications)
        rows = json.loads(one.record.rows)
        found.append(rows[0]["id"] if rows else one.sequence)
    return found


def test_readings_come_by_their_time() -> None:
    log = [record(1, 10.0, ("a", 1, 1)), record(2, 20.0, ("a", 2, 1))]
    what = fetched((5.0, "b", 1), (15.0, "b", 2), (25.0, "b", 3))
    assert order(log, what) == ["b:1:1", 1, "b:1:2", 2, "b:1:3"]


def test_what_the_log_has_too_comes_once() -> None:
    log = [record(1, 10.0, ("a", 1, 3)), record(2, 20.0, ("a", 5, 1))]
    what = fetched((9.0, "a", 2), (9.5, "a", 4), (9.6, "a", 5))
    assert order(log, what) == [1, "a:1:4", 2]
    assert (what.repeated, what.count) == (2, 1)


def test_within_a_source_numbers_go_before_times_i3() -> None:
    log = [record(1, 10.0, ("a", 1, 1)), record(2, 100.0, ("a", 2, 1)), record(3, 110.0, ("a", 4, 1))]
    what = fetched((11.0, "a", 3), (120.0, "a", 0))
    assert order(log, what) == ["a:1:0", 1, 2, "a:1:3", 3], "2 waited in an outbox; 0 is of before"


def test_what_the_gateway_numbered_is_no_repeat() -> None:
    log = [record(1, 10.0, ("a", 1, 1), numbered=0)]
    what = fetched((5.0, "a", 1))
    assert len(order(log, what)) == 2
    assert what.repeated == 0


def test_what_could_not_be_looked_at_is_in_no_answer_and_counted() -> None:
    what = fetched((5.0, "a", 1), (6.0, "a", 2))
    placing = Placing(what, "default")
    placing.give_up()
    assert list(joined([record(1, 10.0, ("b", 1, 1))], placing)) == [record(1, 10.0, ("b", 1, 1))]
    assert (what.unused, what.count) == (2, 0)
    placing.give_up()
    assert what.unused == 2, "an answer may be cut short for more than one reason"


def test_an_answer_that_ends_early_says_how_many_it_lacks() -> None:
    what = fetched((5.0, "a", 1), (6.0, "a", 2), (7.0, "a", 3))
    placing = Placing(what, "default")
    placing.looked()
    assert len(list(placing.before(1, 5.5))) == 1
    placing.give_up()
    assert (what.unused, what.count) == (2, 1)


@pytest.mark.parametrize("seed", range(200))
def test_any_log_keeps_its_order_and_each_source_that_of_its_numbers(seed: int) -> None:
    """Times step back, runs come again and late; what is fetched is of the same sources."""
    random = Random(seed)
    log, at = [], 100.0
    for sequence in range(1, random.randint(2, 30)):
        at += random.choice([-2.0, 0.0, 0.0, 1.0, 5.0])
        runs = [
            (random.choice("abc"), random.randint(0, 40), random.randint(1, 3)) for _ in range(random.randint(0, 3))
        ]
        log.append(record(sequence, at, *runs))
    numbers = random.sample(range(45), random.randint(0, 20))
    what = fetched(*((random.uniform(90.0, at + 10), random.choice("abc"), number) for number in numbers))
    found = order(log, what)
    assert [one for one in found if isinstance(one, int)] == [one.sequence for one in log]
    told = [one for one in found if isinstance(one, str)]
    in_log = {
        f"{run.source}:1:{number}"
        for one in log
        if isinstance(one.record, Publications)
        for run in one.record.runs
        for number in range(run.first, run.first + run.length)
    }
    assert sorted(told) == sorted({str(one.id) for one in what.readings} - in_log)
    assert what.count == len(told)
    for source in "abc":
        own = [int(one.split(":")[2]) for one in told if one.startswith(source)]
        assert own == sorted(own)
        ascending = _ascending_part(log, source)
        for id in (one for one in told if one.startswith(source)):
            place, number = found.index(id), int(id.split(":")[2])
            before = [sequence for sequence, first, _ in ascending if first > number]
            after = [sequence for sequence, _, last in ascending if last < number]
            assert all(found.index(sequence) > place for sequence in before), "newer ones come later"
            assert all(found.index(sequence) < place for sequence in after), "older ones have come"


def _ascending_part(log: list[Given], source: str) -> list[tuple[int, int, int]]:
    """Sequence, first and last of a source's runs; none if they are not in order: there is no right place then."""
    found: list[tuple[int, int, int]] = []
    for one in log:
        assert isinstance(one.record, Publications)
        for run in one.record.runs:
            if run.source == source:
                if found and (run.first <= found[-1][2] or one.sequence == found[-1][0]):
                    return []
                found.append((one.sequence, run.first, run.first + run.length - 1))
    return found
