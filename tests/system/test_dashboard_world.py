"""What the page is told, without a page: the last hour of a tenant, in bounds, and channels that skip what is old."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.cells import cell_at
from spinney_cloud.dashboard import world as world_module
from spinney_cloud.dashboard.channels import MAX_PARTS, Flow, Newest
from spinney_cloud.dashboard.operations import counted
from spinney_cloud.dashboard.world import RESOLUTION, SLOT_SECONDS, SLOTS, World

NOW = 1_800_000_000.0
HERE = {"lat": 45.81, "long": 15.97}


def items(joined: bytes) -> list[list[Any]]:
    found: list[list[Any]] = orjson.loads(b"[" + joined + b"]")
    return found


def names(joined: bytes) -> set[str]:
    return {item[0] for item in items(joined)}


def take(world: World, source: str, at: float, **values: Any) -> None:
    world.count(1, at)
    world.take({"source": source, **values}, at)


def test_of_each_source_the_newest_reading_is_shown() -> None:
    world = World()
    take(world, "a", NOW, NO2=1, id="a:1:1", time=5, **HERE)
    take(world, "a", NOW + 1, NO2=2, room="kit", ok=True, **HERE)
    take(world, "b", NOW + 2, NO2=3)
    assert sorted(items(world.points())) == [
        ["a", 45.81, 15.97, NOW + 1, {"NO2": 2, "room": "kit", "ok": True}],
        ["b", None, None, NOW + 2, {"NO2": 3}],
    ]
    assert sorted(items(world.changed())) == sorted(items(world.points()))
    assert world.changed() == b""
    take(world, "b", NOW + 3, NO2=4)
    assert names(world.changed()) == {"b"}


def test_a_place_that_cannot_be_is_none_and_an_announced_one_fills_in() -> None:
    world = World()
    take(world, "a", NOW, lat=91, long=0)
    take(world, "b", NOW, lat="x", long=0)
    world.places = {"c": (1.0, 2.0)}
    take(world, "c", NOW)
    assert {item[0]: item[1:3] for item in items(world.points())} == {
        "a": [None, None],
        "b": [None, None],
        "c": [1.0, 2.0],
    }


def test_the_past_is_as_it_was() -> None:
    world = World()
    take(world, "a", NOW, n=1)
    take(world, "b", NOW, n=1)
    take(world, "a", NOW + SLOT_SECONDS, n=2)
    take(world, "a", NOW + 2 * SLOT_SECONDS, n=3)
    past = {item[0]: item[4]["n"] for item in items(world.past(NOW + SLOT_SECONDS))}
    assert past == {"a": 2, "b": 1}
    assert items(world.past(NOW - SLOT_SECONDS)) == []
    silent = NOW + world_module.PAST_SLOTS * SLOT_SECONDS
    assert names(world.past(silent)) == {"a"}  # b has been silent for too long
    assert [point[1]["n"] for point in world.series(["a"])["a"]] == [1, 2, 3]
    assert world.series(["nobody"]) == {"nobody": []}


def test_the_hour_is_an_hour() -> None:
    world = World()
    for slot in range(SLOTS + 5):
        take(world, "a", NOW + slot * SLOT_SECONDS, n=slot)
    last = NOW + (SLOTS + 4) * SLOT_SECONDS
    assert [point[1]["n"] for point in world.series(["a"])["a"]] == list(range(5, SLOTS + 5))
    assert world.activity(last) == [1] * SLOTS
    assert world.activity(last + 10 * SLOT_SECONDS) == [1] * (SLOTS - 10) + [0] * 10


def test_cells_hold_the_readings_of_ten_minutes_as_coarse_as_asked() -> None:
    world = World()
    for at, lat in ((0.0, 45.81), (1.0, 45.81), (2.0, 45.85)):
        take(world, f"s{lat}", NOW + at, lat=lat, long=15.97)
    fine = {cell: readings for cell, readings, _ in world.cells(RESOLUTION, NOW + 2)[0]}
    assert fine == {cell_at(45.81, 15.97, RESOLUTION): 2, cell_at(45.85, 15.97, RESOLUTION): 1}
    [[cell, readings, corners]], more = world.cells(3, NOW + 2)
    assert (cell, readings, len(corners), more) == (cell_at(45.81, 15.97, 3), 3, 6, 0)
    assert world.cells(RESOLUTION, NOW + world_module.DENSITY_SLOTS * SLOT_SECONDS + 60) == ([], 0)


def test_everything_is_bounded_and_what_goes_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "MAX_SOURCES", 3)
    monkeypatch.setattr(world_module, "MAX_KEPT", 5)
    monkeypatch.setattr(world_module, "MAX_CELLS", 2)
    world = World()
    for i in range(6):
        take(world, f"s{i}", NOW + i, lat=i, long=i)
    assert names(world.points()) == {"s3", "s4", "s5"} == names(world.changed())
    assert world.dropped["sources"] == 3
    cells, more = world.cells(RESOLUTION, NOW + 6)
    assert (len(cells), more) == (2, 4)
    for i in range(4):
        take(world, f"s{i}", NOW + SLOT_SECONDS, n=1)
    take(world, "s1", NOW + 3 * SLOT_SECONDS, n=1)
    assert world.dropped["slots"] >= 1
    take(world, "long", NOW, **{f"a{i}": "x" * 999 for i in range(50)})
    [(values, more)] = [item[4:] for item in items(world.points()) if item[0] == "long"]
    assert (len(values), more) == (world_module.MAX_VALUES, 50 - world_module.MAX_VALUES)
    assert set(values.values()) == {"x" * (world_module.MAX_TEXT - 1) + "…"}


def test_the_last_minute_is_counted_by_the_second() -> None:
    world = World()
    for second in range(100):
        world.count(2, NOW + second)
    assert world.in_last_minute(NOW + 99.5) == 120
    assert world.in_last_minute(NOW + 129.5) == 60
    assert world.in_last_minute(NOW + 500) == 0


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), max_size=3 * MAX_PARTS))
def test_whoever_listens_knows_all_however_slowly(steps: list[int | None]) -> None:
    """None: the browser is told; a number: a part, of which the last counts."""
    whole: dict[int, int] = {}
    flow = Flow("points", lambda: b",".join(b"[%d,%d]" % pair for pair in whole.items()))
    known: dict[int, int] = {}
    version = 0
    for number, step in enumerate([*steps, None]):
        if step is not None:
            whole[step] = number
            flow.put(b"[%d,%d]" % (step, number))
        elif (news := flow.since(version)) is not None:
            version = news.version
            told = orjson.loads(news.data)
            known = {} if told["whole"] else known
            known |= dict(told["items"])
    assert known == whole
    assert flow.since(version) is None


def test_a_slow_browser_is_told_the_whole_once_and_not_all_the_parts() -> None:
    flow = Flow("points", lambda: b"[1]")
    first = flow.since(0)
    assert first is not None
    for _ in range(MAX_PARTS):
        flow.put(b"[2]")
    some = flow.since(first.version)
    assert some is not None
    assert not orjson.loads(some.data)["whole"]
    flow.put(b"[2]")
    all_of_it = flow.since(first.version)
    assert all_of_it is not None
    assert orjson.loads(all_of_it.data) == {"kind": "points", "whole": True, "items": [[1]]}


def test_only_the_newest_is_told_and_nothing_twice() -> None:
    newest = Newest()
    assert newest.since(0) is None
    assert newest.put(b"a")
    assert newest.put(b"b")
    assert not newest.put(b"b")
    news = newest.since(0)
    assert news is not None
    assert news.data == b"b"
    assert newest.since(news.version) is None


def test_metrics_are_summed_over_their_labels() -> None:
    text = (
        '# TYPE spinney_delivery_dropped counter\nspinney_delivery_dropped_total{reason="a"} 2\n'
        'spinney_delivery_dropped_total{reason="b"} 3\n# TYPE other gauge\nother 7\n'
    )
    assert counted([text, "# TYPE spinney_matcher_behind gauge\nspinney_matcher_behind 4\n"]) == {
        "delivery_dropped": 5.0,
        "matcher_behind": 4.0,
    }
