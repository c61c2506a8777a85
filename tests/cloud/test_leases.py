"""Leases: one owner at a time, under an epoch that grows with every change of owner (rule I1)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.leases import Lease, Leases

CLIENTS = ["a", "b", "c"]
SOURCES = ["m1", "m2"]


def test_the_first_to_ask_owns_it_until_it_gives_it_up() -> None:
    leases = Leases()
    assert leases.ask("a", ["m1"]) == {"m1": None}
    assert leases.ask("b", ["m1"]) == {}
    assert leases.owner("m1") == Lease("a", 1)
    assert leases.ask("a", []) == {"m1": "a"}
    assert leases.owner("m1") == Lease("b", 2)
    assert leases.end("b") == {"m1": "b"}
    assert leases.owner("m1") is None
    leases.ask("b", ["m1"])
    assert leases.owner("m1") == Lease("b", 3)


def test_asking_again_changes_nothing() -> None:
    leases = Leases()
    leases.ask("a", ["m1", "m2"])
    assert leases.ask("a", ["m2", "m1"]) == {}
    assert leases.held_by("a") == {"m1": 1, "m2": 2}
    assert leases.held_by("b") == {}


def test_who_has_asked_for_longest_is_next() -> None:
    leases = Leases()
    for client in ("c", "b", "a"):
        leases.ask(client, ["m1"])
    leases.end("c")
    assert leases.owner("m1") == Lease("b", 2)


def test_after_a_start_owners_are_the_same_and_epochs_go_on() -> None:
    leases = Leases()
    leases.restore("a", {"m1": 7})
    leases.restore("b", {"m1": 5, "m2": 6})
    leases.epoch = max(leases.epoch, 9)
    leases.want("b", ["m1", "m2"])
    leases.want("a", ["m1"])
    assert leases.settle() == {}
    assert (leases.owner("m1"), leases.owner("m2")) == (Lease("a", 7), Lease("b", 6))
    leases.end("a")
    assert leases.owner("m1") == Lease("b", 10)


def test_what_nobody_asks_for_after_a_start_is_taken_back() -> None:
    leases = Leases()
    leases.restore("a", {"m1": 7})
    assert leases.settle() == {"m1": "a"}
    assert leases.owner("m1") is None


@given(st.lists(st.tuples(st.sampled_from(CLIENTS), st.sets(st.sampled_from(SOURCES))), max_size=30))
def test_an_owner_asks_for_what_it_owns_and_epochs_only_grow(steps: list[tuple[str, set[str]]]) -> None:
    leases = Leases()
    wanted: dict[str, set[str]] = {}
    before: dict[str, Lease | None] = dict.fromkeys(SOURCES)
    epochs: set[int] = set()
    for client, sources in steps:
        changed = leases.ask(client, sources)
        wanted[client] = sources
        for source in SOURCES:
            lease, last = leases.owner(source), before[source]
            asking = {one for one, what in wanted.items() if source in what}
            assert (lease is None) == (not asking)
            assert lease is None or lease.client in asking
            assert (lease != last) == (source in changed)
            if lease is not None and lease != last:
                assert last is None or lease.client != last.client
                assert lease.epoch > max(epochs, default=0)
                epochs.add(lease.epoch)
            if last is not None and last.client in asking:
                assert lease == last
            before[source] = lease
