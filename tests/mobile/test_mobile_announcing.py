"""Announcements: promises that readings are held against, widened by those outside, told not too often (design 2)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from deciding_kit import NOW

from spinney_cloud.announcements import Announcement, read_announcement
from spinney_mobile import announcing as module
from spinney_mobile.announcing import (
    BURST,
    FREE_METERS,
    GATHER_SECONDS,
    GONE_SECONDS,
    MARGIN,
    REFILL_SECONDS,
    SETTLE_SECONDS,
    STRAY,
    Announcer,
)
from spinney_mobile.cells import H3
from spinney_mobile.samples import Ability

TEMP = {"temp": Ability(-40.0, 85.0, "Cel")}
ZAGREB = (45.815, 15.977)


def announcer(kept: dict[str, bytes] | None = None, **more: Any) -> Announcer:
    return Announcer(kept, grid=H3(), abilities=lambda _: TEMP, **more)


def settle(found: Announcer, now: float) -> None:
    found.announce()
    found.departed(now)
    found.due(now + SETTLE_SECONDS)


def reading(**values: Any) -> dict[str, Any]:
    return {"id": "m1:1:1", "source": "m1", "time": NOW, **values}


def promised(**values: Any) -> Announcer:
    """One that has announced what this reading has."""
    found = announcer()
    found.hear("m1", NOW)
    found.sampled("m1", reading(**values), NOW)
    settle(found, NOW)
    return found


def read(found: Announcer) -> Announcement:
    """What the cloud makes of it."""
    said = read_announcement(json.loads(json.dumps({**found.body(), "session": "s"})), "default", "pi", NOW)
    assert isinstance(said, Announcement)
    return said


def agrees(found: Announcer, publication: dict[str, Any]) -> bool:
    """Whether the cloud would expect it."""
    return read(found).sources["m1"].known.agrees({k: v for k, v in publication.items() if k != "source"})


# ---- what is said


def test_sources_are_announced_with_attributes_units_and_limits() -> None:
    found = promised(temp=20.0, door=True, room="kitchen")
    assert found.body()["sources"] == [
        {
            "name": "m1",
            "attributes": {
                "temp": {"type": "number", "min": -40.0, "max": 85.0, "unit": "Cel"},
                "door": {"type": "boolean"},
                "room": {"type": "string"},
            },
        }
    ]
    assert found.units("m1") == {"temp": "Cel"}


def test_the_cloud_understands_it_and_readings_agree_with_what_it_knows_then() -> None:
    found = announcer()
    found.hear("m1", NOW, {"room": "kitchen", "lat": 45.8, "long": 15.9})
    found.move(ZAGREB, NOW)
    found.sampled("m1", reading(temp=20.0, flag=True), NOW)
    said = read(found)
    assert said.sources["m1"].known.agrees({"id": "x", "temp": 20.0, "flag": True, "room": "kitchen", "lat": 45.8})
    assert not said.sources["m1"].known.agrees({"id": "x", "temp": 90.0})
    assert said.place is not None


def test_what_decoders_know_is_announced_before_anything_is_measured() -> None:
    found = announcer()
    found.hear("m1", NOW)
    found.describe("m1", TEMP, NOW)
    settle(found, NOW)
    assert not found.sampled("m1", reading(temp=20.0), NOW)


# ---- what is outside


def test_a_reading_within_is_not_outside() -> None:
    assert not promised(temp=20.0, room="a").sampled("m1", reading(temp=85.0, room="b"), NOW)


@pytest.mark.parametrize("values", [{"temp": 85.1}, {"temp": "hot"}, {"co2": 400.0}, {"temp": True}])
def test_a_reading_outside_is_counted_and_widens_the_promise(values: dict[str, Any]) -> None:
    found = promised(temp=20.0)
    before = found.counts["outside"]
    assert found.sampled("m1", reading(**values), NOW)
    assert found.counts["outside"] == before + 1
    settle(found, NOW)
    assert not found.sampled("m1", reading(**values), NOW)
    assert not found.sampled("m1", reading(temp=-40.0), NOW)
    assert agrees(found, reading(**values))


def test_until_the_cloud_has_acted_on_an_announcement_the_one_before_it_holds() -> None:
    found = promised(temp=20.0)
    found.sampled("m1", reading(temp=90.0), NOW)
    found.announce()
    assert found.sampled("m1", reading(temp=90.0), NOW)
    found.departed(NOW)
    found.due(NOW + SETTLE_SECONDS - 1)
    assert found.sampled("m1", reading(temp=90.0), NOW)
    assert not found.sampled("m1", reading(temp=20.0), NOW)
    found.due(NOW + SETTLE_SECONDS)
    assert not found.sampled("m1", reading(temp=90.0), NOW)


def test_an_announcement_that_cannot_depart_settles_nothing() -> None:
    found = promised(temp=20.0)
    found.sampled("m1", reading(temp=90.0), NOW)
    for n in range(3):
        found.announce()
        found.due(NOW + 1e6 * n)
    assert found.sampled("m1", reading(temp=90.0), NOW)


def test_a_constant_that_changes_is_none_any_more() -> None:
    found = announcer()
    found.hear("m1", NOW, {"room": "kitchen"})
    assert found.body()["sources"][0]["attributes"] == {"room": {"value": "kitchen"}}
    settle(found, NOW)
    assert not found.sampled("m1", reading(room="kitchen"), NOW)
    assert found.sampled("m1", reading(room="hall"), NOW)
    assert found.body()["sources"][0]["attributes"] == {"room": {"type": "string"}}


def test_a_source_with_too_many_attributes_is_outside_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ATTRIBUTES", 2)
    found = promised(temp=20.0)
    for _ in range(2):
        assert found.sampled("m1", reading(a=1.0, b=1.0, c=1.0), NOW)
        settle(found, NOW)
    assert len(found.body()["sources"][0]["attributes"]) == 1


# ---- where


def test_the_place_is_announced_anew_only_well_beyond_the_border_of_its_cell() -> None:
    found = announcer(resolution=9)
    inside = H3().centre(H3().cell(*ZAGREB, 9))
    steps = ((inside[0] + 0.0001 * n, inside[1]) for n in range(100))
    beyond = next(place for place in steps if H3().cell(*place, 9) != H3().cell(*inside, 9))
    found.move(inside, NOW)
    area = found.body()["place"]
    for _ in range(10):
        found.move(beyond, NOW)
        assert found.body()["place"] == area
        found.move(inside, NOW)
    found.move((ZAGREB[0] + 0.01, ZAGREB[1]), NOW)
    assert found.body()["place"] != area


def test_without_cells_the_place_is_announced_anew_after_some_hundred_metres() -> None:
    found = Announcer()
    found.move(ZAGREB, NOW)
    area = found.body()["place"]
    assert (area["lat"], area["long"], area["radius"]) == (*ZAGREB, FREE_METERS * MARGIN)
    for metres, is_new in ((FREE_METERS, False), (FREE_METERS * STRAY * 1.1, True)):
        found.move((ZAGREB[0] + metres / 111_195, ZAGREB[1]), NOW)
        assert (found.body()["place"] != area) == is_new


def test_an_area_that_has_been_announced_does_not_stay_where_only_a_coarse_place_may_be_told() -> None:
    found = Announcer()
    found.move(ZAGREB, NOW)
    coarse = (ZAGREB[0] + 0.0001, ZAGREB[1])
    found.move(coarse, NOW)
    assert found.body()["place"]["lat"] == ZAGREB[0]
    found.move(coarse, NOW, is_coarse=True)
    assert found.body()["place"]["lat"] == coarse[0]


def test_a_broker_that_moves_sends_everything_until_the_cloud_knows_where_it_is() -> None:
    found = announcer()
    found.move(ZAGREB, NOW)
    found.hear("m1", NOW)
    there = {"lat": ZAGREB[0] + 0.01, "long": ZAGREB[1]}
    found.sampled("m1", reading(lat=ZAGREB[0], long=ZAGREB[1]), NOW)
    settle(found, NOW)
    assert not found.sampled("m1", reading(lat=ZAGREB[0], long=ZAGREB[1]), NOW)
    found.move((there["lat"], there["long"]), NOW)
    assert found.sampled("m1", reading(**there), NOW)
    settle(found, NOW)
    assert not found.sampled("m1", reading(**there), NOW)


def test_by_bicycle_the_next_cell_is_in_force_before_what_was_announced_is_left() -> None:
    found, metres_a_second = announcer(resolution=9), 8.0
    found.hear("m1", NOW)
    areas, outside = set(), 0
    for second in range(3 * 3600 // 8):
        now = NOW + second
        here = (ZAGREB[0], ZAGREB[1] + second * metres_a_second / 77_700)
        found.move(here, now)
        if found.due(now):
            areas.add(found.announce()["place"]["long"])
            found.departed(now)
        is_outside = found.sampled("m1", reading(lat=here[0], long=here[1]), now)
        outside += is_outside and second > SETTLE_SECONDS
    assert len(areas) > 20
    assert outside == 0


def test_a_source_that_is_elsewhere_is_promised_to_be_anywhere() -> None:
    found = announcer()
    found.move(ZAGREB, NOW)
    found.hear("m1", NOW)
    settle(found, NOW)
    assert found.sampled("m1", reading(lat=10.0, long=10.0), NOW)
    settle(found, NOW)
    assert not found.sampled("m1", reading(lat=11.0, long=10.0), NOW)
    assert agrees(found, reading(lat=11.0, long=10.0))


# ---- when


def test_changes_are_gathered_and_told_at_a_bounded_rate() -> None:
    found = announcer()
    told = []
    for n in range(200):
        now = NOW + 0.5 * n
        found.hear(f"m{n}", now)
        if found.due(now + GATHER_SECONDS):
            told.append(now)
            found.announce()
    assert told[0] == NOW
    assert len(told) <= BURST + 100 / REFILL_SECONDS + 1


def test_a_change_waits_a_moment_for_others() -> None:
    found = announcer()
    found.announce()
    found.hear("m1", NOW)
    found.hear("m2", NOW + GATHER_SECONDS / 2)
    assert not found.due(NOW + GATHER_SECONDS * 0.9)
    assert found.due(NOW + GATHER_SECONDS)


def test_nothing_new_is_not_announced_but_for_the_start() -> None:
    found = announcer()
    assert found.due(NOW)
    found.announce()
    found.hear("m1", NOW)
    assert found.due(NOW + 1)
    found.announce()
    found.hear("m1", NOW + 1)
    assert not found.due(NOW + 1e6)


def test_a_source_that_is_heard_again_is_not_silent() -> None:
    found = promised(temp=20.0)
    found.hear("m1", NOW + GONE_SECONDS)
    assert found.silent(NOW + 2 * GONE_SECONDS) == []
    assert found.silent(NOW + 2 * GONE_SECONDS + 1) == ["m1"]


def test_a_source_that_has_been_silent_for_long_is_gone_but_not_right_after_a_restart() -> None:
    found = promised(temp=20.0)
    assert found.silent(NOW + GONE_SECONDS) == []
    assert found.silent(NOW + GONE_SECONDS + 1) == ["m1"]
    kept = {key: value for key, value in found.changes().items() if value is not None}
    again = announcer(kept)
    assert again.silent(NOW + 1e6) == []
    assert again.silent(NOW + 1e6 + GONE_SECONDS + 1) == ["m1"]


def test_there_is_room_for_a_bounded_number_of_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SOURCES", 1)
    found = announcer()
    assert found.hear("a", NOW)
    assert not found.hear("b", NOW)
    assert found.counts["refused"] == 1


# ---- restarts


def test_after_a_restart_what_the_cloud_has_acted_on_holds_on() -> None:
    found = promised(temp=20.0)
    found.move(ZAGREB, NOW)
    settle(found, NOW)
    kept = {key: value for key, value in found.changes().items() if value is not None}
    again = announcer(kept)
    again.move(ZAGREB, NOW)
    assert again.body() == found.body()
    again.hear("m1", NOW)
    assert not again.sampled("m1", reading(temp=21.0, lat=ZAGREB[0], long=ZAGREB[1]), NOW)


def test_after_a_restart_what_was_announced_is_announced_again_and_what_it_had_not_acted_on_is_outside() -> None:
    found = promised(temp=20.0)
    found.sampled("m1", reading(temp=90.0), NOW)
    found.announce()
    kept = {key: value for key, value in found.changes().items() if value is not None}
    again = announcer(kept)
    assert again.body() == found.body()
    assert again.due(NOW)
    assert again.sampled("m1", reading(temp=90.0), NOW)
    assert not again.sampled("m1", reading(temp=20.0), NOW)
    settle(again, NOW)
    assert not again.sampled("m1", reading(temp=90.0), NOW)


def test_what_is_gone_is_forgotten_on_disk() -> None:
    found = promised(temp=20.0)
    found.changes()
    found.forget("m1", NOW)
    found.announce()
    kept = found.changes()["known:m1"]
    assert kept is not None
    assert announcer({"known:m1": kept}).sources == []
    found.departed(NOW)
    found.due(NOW + SETTLE_SECONDS)
    assert found.changes() == {"known:m1": None}


def test_what_the_cloud_may_have_forgotten_is_outside_until_it_has_acted_on_it_anew() -> None:
    found = promised(temp=20.0)
    settle(found, NOW)
    assert not found.sampled("m1", reading(temp=20.0), NOW)
    found.forgotten(NOW)
    assert found.sampled("m1", reading(temp=20.0), NOW)
    settle(found, NOW)
    assert not found.sampled("m1", reading(temp=20.0), NOW)
