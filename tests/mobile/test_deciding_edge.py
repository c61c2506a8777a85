"""Edge = centre with the mobile broker's own classes, and the cloud's engine and activations (design 6.1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from placed_world import World

from spinney import parse
from spinney.subscription import DeadBand, Subscription

# What every world is made from: text, options, and whether enter and exit are disjoint.
PLAIN: list[tuple[str, dict[str, Any], bool]] = [
    ("WHEN x > 3 UNTIL x < 2", {}, True),
    ("WHEN x > 3 UNTIL x < 2 EACH room", {}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {}, True),
    ("WHEN x > 4.5 UNTIL x <= 4 ONCE", {}, True),
    ("WHEN x > 2 UNTIL x <= 2 ONCE", {}, True),
    ("WHEN x >= 2 UNTIL x < 2 FOR y > 0 EACH room", {}, True),
    ("WHEN x > 3 UNTIL x < 2 FOR source = 'mote-0' OR source = 'sensor-1'", {}, True),
    ("WHEN x > 3 UNTIL x < 2 ONCE", {"lost": 5.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"lost": 3.0}, True),
    ("WHEN x > 1 UNTIL y > 0 EACH room", {}, False),
    ("WHEN x > 1 UNTIL x < 4", {}, False),
    ("WHEN x >= 2 UNTIL x <= 3 FOR y > 0 ONCE", {}, False),
    ("WHEN x > 1 UNTIL x < 4 EACH room", {"lost": 3.0}, False),
    ("WHEN x > 2 UNTIL x > 2", {}, False),
    ("x > 3 AND y > 0", {}, True),
    ("x > 4.5", {}, True),
    ("TOP 2 OVER 5s BY x DESC WHERE y > 0 EACH room", {}, True),
    ("TOP 2 OVER LAST 4 BY x", {}, True),
]
# A cloud that has evaluated something until the owner does cannot hand over runs, dead bands or what it holds back.
OF_OWNERS: list[tuple[str, dict[str, Any], bool]] = [
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"reorder": 2.0}, True),
    ("WHEN x > 2 UNTIL x <= 2", {"debounce": 2.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"debounce": 1.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 ONCE", {"dead_band": DeadBand(attribute="x", by=2.0)}, True),
    ("WHEN x > 1 UNTIL x < 4", {"debounce": 2.0}, False),
    ("WHEN x > 1 UNTIL x < 4 EACH room", {"reorder": 2.0}, False),
]


def subscription(n: int, text: str, options: dict[str, Any]) -> Subscription:
    parsed = parse(text)
    assert isinstance(parsed, Subscription)
    return replace(parsed, id=f"{n}: {text} {options or ''}", **options)


@st.composite
def worlds(draw: st.DrawFn, limits: bool) -> World:
    pool = PLAIN if limits else PLAIN + OF_OWNERS
    chosen = draw(st.lists(st.sampled_from(pool), min_size=2, max_size=4))
    shared = [one for one in chosen if not one[1].keys() & {"debounce", "dead_band"}]
    chosen = list({repr(one): one for one in chosen}.values())
    chosen += draw(st.lists(st.sampled_from(shared), max_size=2)) if shared else []  # and begin later (rule R3)
    return World([(subscription(n, *one[:2]), one[2]) for n, one in enumerate(chosen)], limits=limits)


_READINGS = [
    {"x": x, "room": room, **others}
    for x, room, others in product((0.0, 2.0, 3.0, 5.0), ("a", "b"), ({}, {"y": 1.0}, {"y": 2.0}, {"y": 0.0}))
]
_ODD_ONES = [{"y": 1.0}, {"x": 4.0, "room": 1.0}, {"x": 4.0, "room": True}, {"x": "4", "room": "a"}, {"x": 4.0}]
SAMPLES = st.sampled_from(
    [("sample", *one) for one in product(range(4), _READINGS, (False,))]
    + [("sample", *one) for one in product(range(4), _READINGS[::3] + _ODD_ONES, (True, False))]
)
CHANGES = st.one_of(
    st.sampled_from([("flush", *one) for one in product((0, 1), (1, 3, 9), (0, 1, 3))]),
    st.sampled_from([("start", n) for n in range(6)]),
    st.sampled_from([("move", *one) for one in product(range(4), (0, 1))] + [("leave", n) for n in range(4)]),
    st.sampled_from([("table", *one) for one in product((0, 1), (0, 1, 3, 7))]),
    st.sampled_from(
        [("crash", 0), ("crash", 1), ("crash", 0), ("crash", 1), ("crash", 2), ("reboot", 0), ("reboot", 1)]
    ),
    st.sampled_from([("announce", 0), ("announce", 1), ("settle",), ("settle",)]),
    st.sampled_from([("doubt", 0), ("doubt", 1), ("write_bits", 0), ("write_bits", 1), ("write_bits", 0)]),
    st.sampled_from([("tick", seconds) for seconds in (0.5, 1.0, 3.0, 6.0)]),
)
HISTORIES = st.lists(st.one_of(SAMPLES, SAMPLES, SAMPLES, CHANGES), min_size=40, max_size=100)


def check(world: World, history: list[tuple[Any, ...]]) -> None:
    for index in range(len(world.subscriptions) // 2):
        world.start(index)
    for name, *arguments in history:
        getattr(world, name)(*arguments)
    world.finish()
    edge, centre = world.answers()
    assert edge == centre


def told(text: str, history: list[tuple[Any, ...]], *, limits: bool) -> list[tuple[str, Any]]:
    """(why, scope) at both places, for one subscription that has started."""
    world = World([(subscription(0, text, {}), True)], limits=limits)
    world.start(0)
    check(world, history)
    return [(why, scope) for _, _, why, scope in world.told]


def test_what_a_source_outside_of_its_announcement_does_next_is_not_missed() -> None:
    # The cloud sets the bit: it was promised that nothing here could.
    history: list[tuple[Any, ...]] = [("sample", 0, {"x": 1.0}, False), ("announce", 0), ("settle",)]
    history += [("sample", 0, {"x": 5.0}, False), ("sample", 0, {"x": 3.0}, False)]
    assert told("WHEN x > 4.5 UNTIL x <= 4", history, limits=True) == [("enter", "mote-0"), ("exit", "mote-0")]


def test_a_scope_holds_on_by_what_was_withheld_when_the_source_it_was_told_of_moves() -> None:
    on, off = {"x": 3.0}, {"x": 0.0}
    history = [("sample", 0, on, False), ("sample", 2, off, False), ("sample", 2, on, False)]
    history += [("move", 0, 1), ("sample", 0, off, False)]
    assert told("WHEN x > 2 UNTIL x <= 2 ONCE", history, limits=False) == [("enter", None)]


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(worlds(limits=False), HISTORIES)
def test_where_everything_is_announced_the_edge_tells_what_one_place_tells(
    world: World, history: list[tuple[Any, ...]]
) -> None:
    check(world, history)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(worlds(limits=True), HISTORIES)
def test_readings_outside_of_their_announcement_change_nothing_of_what_is_told(
    world: World, history: list[tuple[Any, ...]]
) -> None:
    check(world, history)


@pytest.mark.soak
@settings(max_examples=8_000, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.one_of(worlds(limits=False), worlds(limits=True)), HISTORIES)
def test_the_edge_tells_what_one_place_tells_many_times_over(world: World, history: list[tuple[Any, ...]]) -> None:
    check(world, history)
