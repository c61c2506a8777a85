"""Edge = centre: where a subscription is evaluated makes no difference to what its subscriber is told (design 6.1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from three_tiers import Place, Wanted, World

from spinney import parse
from spinney.subscription import DeadBand, Subscription

# What every world is made from: text, options, and whether enter and exit are disjoint.
POOL: list[tuple[str, dict[str, Any], bool]] = [
    ("WHEN x > 3 UNTIL x < 2", {}, True),
    ("WHEN x > 3 UNTIL x < 2 EACH room", {}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {}, True),
    ("WHEN x > 2 UNTIL x <= 2 ONCE", {}, True),
    ("WHEN x >= 2 UNTIL x < 2 FOR y > 0 EACH room", {}, True),
    ("WHEN x > 3 UNTIL x < 2 ONCE", {"lost": 5.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"lost": 3.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"reorder": 2.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 ONCE", {"reorder": 4.0, "lost": 3.0}, True),
    ("WHEN x > 2 UNTIL x <= 2", {"debounce": 2.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"debounce": 1.0}, True),
    ("WHEN x > 2 UNTIL x <= 2 ONCE", {"dead_band": DeadBand(attribute="x", by=2.0)}, True),
    ("WHEN x > 2 UNTIL x <= 2 EACH room", {"dead_band": DeadBand(attribute="y", by=1.0), "debounce": 1.0}, True),
    ("WHEN x > 1 UNTIL y > 0 EACH room", {}, False),
    ("WHEN x > 1 UNTIL x < 4", {}, False),
    ("WHEN x > 1 UNTIL x < 4 FOR y > 0 ONCE", {"lost": 4.0}, False),
    ("WHEN x >= 2 UNTIL x <= 3 EACH room", {}, False),
    ("WHEN x > 1 UNTIL x < 4", {"debounce": 1.0}, False),
    ("WHEN x > 1 UNTIL x < 4 EACH room", {"reorder": 2.0}, False),
    ("WHEN x > 2 UNTIL x > 2", {}, False),
    ("x > 3 AND y > 0", {}, True),
    ("TOP 2 OVER 5s BY x DESC WHERE y > 0 EACH room", {}, True),
    ("TOP 2 OVER LAST 4 BY x", {}, True),
]


def subscription(n: int, text: str, options: dict[str, Any]) -> Subscription:
    parsed = parse(text)
    assert isinstance(parsed, Subscription)
    return replace(parsed, id=f"{n}: {text} {options or ''}", **options)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Some subscriptions, each with a table of where it is evaluated for which source under which owner."""
    chosen = draw(st.lists(st.sampled_from(POOL), min_size=2, max_size=4))
    wanted = []
    for n, (text, options, disjoint) in enumerate(chosen):
        table = draw(st.lists(st.sampled_from(("mote", "owner", "cloud")), min_size=1, max_size=7))
        wanted.append(Wanted(subscription(n, text, options), disjoint, placing(table)))
    return World(wanted, owned=draw(st.integers(2, 4)), plain=draw(st.integers(0, 1)))


def placing(table: list[Place]) -> Any:
    return lambda source, epoch: table[(sum(source.encode()) + 3 * epoch) % len(table)]


# One draw for each event, from lists of all that can happen: histories are long, and most of what happens is readings.
_ROOMS = [
    {"x": x, "room": room, **others}
    for x, room, others in product(
        (0, 2, 3, 5), ("a", "b"), ({}, {"y": 1}, {"y": 2, "time": 2}, {"time": 5}, {"y": 0, "time": 9})
    )
]
_ODD_ONES = [{"time": 1}, {"x": 4, "room": 1}, {"x": 4, "room": True, "time": 3}, {"x": "4", "room": "a"}, {"x": 4}]
SAMPLES = st.sampled_from(
    [("tick", 0.0)]
    + [("sample", *event) for event in product(range(5), _ROOMS, (False,))]
    + [("sample", *event) for event in product(range(5), _ROOMS[::3] + _ODD_ONES, (True, False))]
)
CHANGES = st.sampled_from(
    [("flush", *event) for event in product((0, 1), (1, 3, 9), (0, 1, 3))]
    + [("start", *event) for event in product((0, 1, 2, 3), (0, 1))]
    + [("move", *event) for event in product((0, 1, 2, 3), (0, 1))]
    + [
        ("leave", 0),
        ("leave", 1),
        ("reboot", 0),
        ("reboot", 1),
        ("reboot", 4),
        ("doubt", 0),
        ("doubt", 1),
        ("write_bits", 0),
        ("write_bits", 0),
        ("write_bits", 1),
        ("crash", 0),
        ("crash", 1),
        ("crash", 2),
    ]
    + [("tick", seconds) for seconds in (0.5, 1.0, 3.0, 6.0)]
)
HISTORIES = st.lists(st.one_of(SAMPLES, SAMPLES, SAMPLES, CHANGES), min_size=60, max_size=120)


def run(world: World, history: list[tuple[Any, ...]]) -> None:
    for index in range(len(world.world) - 1):
        world.start(index, 0)
        world.start(index, 1)
    for name, *arguments in history:
        getattr(world, name)(*arguments)
    world.finish()


def check(world: World, history: list[tuple[Any, ...]]) -> None:
    run(world, history)
    centre = [(told.id, told.time, told.since) for told in world.centre.told]
    tiers = [(told.id, told.time, told.since) for told in world.cloud.told]
    assert sorted(tiers, key=str) == sorted(centre, key=str)
    assert not any(told.reason == "repaired" for told in world.cloud.told)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), HISTORIES)
def test_three_tiers_tell_what_one_place_tells(world: World, history: list[tuple[Any, ...]]) -> None:
    check(world, history)


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), HISTORIES)
def test_three_tiers_tell_what_one_place_tells_many_times_over(world: World, history: list[tuple[Any, ...]]) -> None:
    check(world, history)
