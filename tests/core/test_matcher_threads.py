"""Matching while others add and remove, and matching in several threads at once."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from matchers import MODES, NATIVE

from spinney import Matcher, parse_filter
from spinney.dense_ids import DenseIds

both = pytest.mark.parametrize("native", MODES)


@pytest.fixture(autouse=True)
def _threads_take_turns_often() -> Iterator[None]:
    """So that a test sees in a second what would otherwise take an hour."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def while_others(churn: Callable[[], None], check: Callable[[], None], threads: int = 3) -> None:
    """Runs `check` again and again in threads until `churn` is done."""
    done = threading.Event()

    def checking() -> int:
        rounds = 0
        while not done.is_set() or not rounds:
            check()
            rounds += 1
        return rounds

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(checking) for _ in range(threads)]
        try:
            churn()
        finally:
            done.set()
        assert all(future.result() > 0 for future in running)


@both
def test_what_stays_is_matched_while_others_come_and_go(native: bool) -> None:
    matcher = Matcher(native=native)
    kept = {f"kept{i}" for i in range(50)}
    for i, id in enumerate(sorted(kept)):
        matcher.add(id, f"a > {i % 3} AND b < {10 + i}")
    comers = [parse_filter(f"a > {i % 5} AND b < {i % 20}") for i in range(40)]

    def churn() -> None:
        for turn in range(300 if native else 60):
            for i, condition in enumerate(comers):
                matcher.add(f"coming{turn}.{i}", condition)
            for i in range(len(comers)):
                matcher.remove(f"coming{turn}.{i}")

    def check() -> None:
        found = matcher.match({"a": 9.0, "b": 1.0})
        assert kept <= set(found)
        assert len(found) == len(set(found))

    while_others(churn, check)
    assert set(matcher.match({"a": 9.0, "b": 1.0})) == kept


@both
def test_an_id_is_never_found_by_what_another_id_wants(native: bool) -> None:
    """A number that a removed id had must not be read as the id that has it now."""
    matcher = Matcher(native=native)

    def churn() -> None:
        for turn in range(3000 if native else 500):
            matcher.add(f"left{turn}", "side = 'left'")
            matcher.remove(f"left{turn}")
            matcher.add(f"right{turn}", "side = 'right'")
            matcher.remove(f"right{turn}")

    def check() -> None:
        for side in ("left", "right"):
            assert all(id.startswith(side) for id in matcher.match({"side": side}))
            assert all(id.startswith(side) for id in matcher.match_json(f'{{"side": "{side}"}}'))

    while_others(churn, check)


def test_numbers_are_given_out_again_only_after_everyone_who_may_hold_them() -> None:
    ids = DenseIds()
    assert [ids.add("a"), ids.add("b")] == [0, 1]
    reading = ids.begin()
    ids.remove("a")
    assert ids.add("c") == 2
    assert ids.translate(0) == "a"
    later = ids.begin()
    ids.end(reading)
    assert ids.add("d") == 0
    ids.end(later)
    assert list(ids) == ["b", "c", "d"]


def test_numbers_stay_dense_however_many_come_and_go() -> None:
    ids = DenseIds()
    highest = 0
    for i in range(1000):
        highest = max(highest, ids.add(f"{i}"))
        if i >= 10:
            ids.remove(f"{i - 10}")
    assert highest <= 11


@both
def test_writers_in_many_threads(native: bool) -> None:
    matcher = Matcher(native=native)

    def write(name: int) -> None:
        for i in range(200):
            matcher.add(f"{name}.{i}", f"a = {i}")
        for i in range(0, 200, 2):
            matcher.remove(f"{name}.{i}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert len(matcher) == matcher.stats().ids == 400
    assert set(matcher.match({"a": 7})) == {f"{name}.7" for name in range(4)}


@both
def test_a_publication_may_match_in_turn_while_it_is_read(native: bool) -> None:
    """A mapping of someone's own can do anything when asked for its items."""
    matcher = Matcher(native=native)
    matcher.add("a", "a > 5")

    class Curious(dict[str, float]):
        def __iter__(self) -> Iterator[str]:
            assert matcher.match({"a": 6.0}) == ["a"]
            return super().__iter__()

    assert matcher.match(Curious(a=7.0)) == ["a"]


@pytest.mark.skipif(not NATIVE, reason="no C core")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
def test_two_threads_match_at_the_same_time() -> None:
    """C runs without the interpreter's lock: while one thread is in it for long, another goes on."""
    matcher = Matcher(native=True)
    for i in range(2000):
        matcher.add(f"{i}", f"a LIKE '%y{i}%'")
    reading = {"a": "x" * 10_000}
    begun, done = threading.Event(), threading.Event()

    def long_matches() -> None:
        begun.set()
        for _ in range(5):
            matcher.match(reading)
        done.set()

    sys.setswitchinterval(60)  # nobody is made to give the lock up: whoever goes on does so because it was let go
    thread = threading.Thread(target=long_matches)
    thread.start()
    begun.wait()
    turns = 0
    while not done.is_set():
        matcher.match({"b": 1.0})
        turns += 1
    thread.join()
    assert turns > 10
