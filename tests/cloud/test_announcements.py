"""Announcements: read with clear errors, kept with their session, and found by place and attribute."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney.geodesy import distance
from spinney_cloud.announcement_table import Announcements
from spinney_cloud.announcements import (
    Announcement,
    AnnouncementError,
    AnnouncementVersionError,
    Away,
    Counted,
    Over,
    Place,
    decode,
    read_announcement,
)
from spinney_cloud.cells import cell_at, corners
from spinney_cloud.expiry import Expiry

NO2 = {"name": "m7", "attributes": {"NO2": {"min": 0, "max": 400, "unit": "ug/m3", "presence": "always"}}}
FULL = {
    "session": "s1",
    "validity": 600,
    "sources": [NO2, {"name": "m8", "constants": {"room": "kit", "lat": 45.9, "long": 16.1}}],
    "place": {"lat": 45.81, "long": 15.97, "radius": 200},
    "battery": 0.8,
    "radio_load": 0.1,
    "lease": ["m7"],
    "have": 5,
}


def read(**change: Any) -> Announcement:
    found = read_announcement(json.loads(json.dumps(FULL | change)), "default", "b1", 100.0)
    assert isinstance(found, Announcement)
    return found


def test_all_that_is_said_is_read() -> None:
    one = read()
    assert (one.session, one.validity, one.battery, one.lease, one.have) == ("s1", 600.0, 0.8, ("m7",), 5)
    known = one.sources["m7"].known
    assert known.closed
    assert known.agrees({"NO2": 12, "id": "m7:1:1", "lat": 45.81, "long": 15.97, "time": 5})
    assert not known.agrees({"NO2": 401, "id": "m7:1:1"})
    assert not known.agrees({"NO2": 12, "id": "m7:1:1", "CO": 1})
    assert not known.agrees({"NO2": 12, "id": "m7:1:1", "lat": 45.9, "long": 15.97})
    assert one.sources["m8"].known.agrees({"room": "kit", "id": "m8:1:1", "lat": 45.9, "long": 16.1})
    assert one.ends(120.0) == 700.0


def test_a_tally_is_read() -> None:
    said = read_announcement({"session": "s1", "counts": {"sent": 3, "motes_spared": 40}}, "default", "b1", 1.0)
    assert said == Counted("s1", {"sent": 3, "motes_spared": 40})


def test_a_tally_that_comes_along_is_no_part_of_what_is_kept() -> None:
    said = read_announcement({"session": "s1", "sources": [], "counts": {"sent": 3}}, "default", "b1", 1.0)
    assert isinstance(said, Announcement)
    assert said.counts == {"sent": 3}
    assert "counts" not in said.to_json()
    assert said == replace(said, counts=None)


@pytest.mark.parametrize(
    "item",
    [
        {"counts": []},
        {"counts": {"sold": 1}},
        {"counts": {"sent": -1}},
        {"counts": {"sent": 1.5}},
        {"counts": {"sent": True}},
        {"counts": {"sold": 1}, "sources": []},
    ],
)
def test_a_tally_that_cannot_be_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(AnnouncementError, match="counts"):
        read_announcement({"session": "s1", **item}, "default", "b1", 1.0)


def test_what_is_kept_is_read_back() -> None:
    one = replace(read(), have=None)
    assert decode(one.encode()) == one
    away = replace(one, away=130.0)
    assert decode(away.encode()) == away
    assert away.ends(120.0) == 250.0
    cell = replace(read(place={"cell": cell_at(45.8, 15.9, 8)}), have=None)
    assert decode(cell.encode()) == cell


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"session": None}, "session"),
        ({"session": ""}, "session"),
        ({"sources": {}}, "sources"),
        ({"sources": [NO2, NO2]}, "sources[1].name"),
        ({"sources": [{"name": ""}]}, "sources[0].name"),
        ({"sources": [{"name": "a:b"}]}, "sources[0].name"),
        ({"sources": [{"name": "a", "sort": 1}]}, "sources[0]"),
        ({"sources": [{"name": "a", "attributes": []}]}, "sources[0].attributes"),
        ({"sources": [{"name": "a", "attributes": {"x": {"min": 3, "max": 1}}}], "lease": []}, "sources[0].attributes"),
        ({"sources": [{"name": "a", "attributes": {"x": 1}}], "lease": []}, "sources[0].attributes"),
        ({"sources": [{"name": "a", "constants": {"x": None}}], "lease": []}, "sources[0].attributes"),
        ({"sources": [{"name": "a", "constants": {"x": 1}, "attributes": {"x": {}}}]}, "sources[0].constants.x"),
        ({"validity": 0}, "validity"),
        ({"validity": "long"}, "validity"),
        ({"battery": 2}, "battery"),
        ({"place": {"lat": 91, "long": 0}}, "place.lat"),
        ({"place": {"lat": 1}}, "place"),
        ({"place": {"lat": None, "long": None}}, "place"),
        ({"place": {"cell": "nowhere"}}, "place.cell"),
        ({"lease": ["m9"]}, "lease"),
        ({"lease": "m7"}, "lease"),
        ({"have": -1}, "have"),
        ({"wish": 1}, "wish"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(change: dict[str, Any], path: str) -> None:
    with pytest.raises(AnnouncementError) as found:
        read(**change)
    assert found.value.path == path
    assert found.value.message


NAMES = [*FULL, "name", "constants", "attributes", "lat", "long", "cell", "min"]
atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
nonsense = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@given(nonsense, st.booleans())
def test_nonsense_is_refused_and_nothing_worse(item: Any, named: bool) -> None:
    if named and isinstance(item, dict):
        item = {"session": "s", "sources": [], **item}
    with suppress(AnnouncementError):
        read_announcement(item, "default", "b", 0.0)


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"v":1}', b'{"v":2}'])
def test_a_damaged_or_newer_value_is_told(data: bytes) -> None:
    with pytest.raises(AnnouncementVersionError):
        decode(data)


# ---- Sessions


def test_a_current_will_means_away_and_an_older_one_is_ignored() -> None:
    table = Announcements()
    table.put("default", "b1", read(session="new"))
    assert not table.decide("default", "b1", Away("old"), 110.0).is_change
    change = table.decide("default", "b1", Away("new"), 110.0)
    assert change.after is not None
    assert change.after.away == 110.0
    table.put("default", "b1", change.after)
    assert not table.decide("default", "b1", Away("new"), 115.0).is_change
    back = table.decide("default", "b1", read(session="new"), 120.0)
    assert back.after is not None
    assert (back.after.away, back.new_session) == (None, False)
    assert table.decide("default", "b1", read(session="newer"), 120.0).new_session


def test_only_the_current_session_can_end() -> None:
    table = Announcements()
    table.put("default", "b1", read())
    assert not table.decide("default", "b1", Over("old"), 110.0).is_change
    assert table.decide("default", "b1", Over("s1"), 110.0).after is None
    assert not table.decide("other", "b1", Over("s1"), 110.0).is_change


def test_a_source_is_gone_when_nobody_announces_it() -> None:
    table = Announcements()
    assert table.put("default", "b1", read()) == (["m7", "m8"], [])
    assert table.put("default", "b2", replace(read(sources=[NO2]), client="b2")) == ([], [])
    assert table.put("default", "b1", None) == ([], ["m8"])
    assert table.announcers("default", "m7") == ["b2"]
    assert table.put("default", "b2", None) == ([], ["m7"])
    assert (len(table), table.of("default")) == (0, [])


# ---- Places


@given(st.integers(0, 10**9))
def test_the_place_bounds_every_point_within_its_radius(seed: int) -> None:
    random = Random(seed)
    lat, long = random.uniform(-90, 90), random.uniform(-180, 180)
    radius = 10 ** random.uniform(0, 7)
    known = read(place={"lat": lat, "long": long, "radius": radius}).sources["m7"].known
    for _ in range(20):
        to = (lat + random.gauss(0, radius / 1e5), long + random.gauss(0, radius / 1e5))
        if abs(to[0]) <= 90 and abs(to[1]) <= 180 and distance(lat, long, *to) <= radius:
            assert known.agrees({"NO2": 1, "id": "m7:1:1", "lat": to[0], "long": to[1]})


@given(st.floats(-90, 90), st.floats(-180, 180), st.integers(0, 15))
def test_a_cell_contains_its_corners(lat: float, long: float, resolution: int) -> None:
    cell = cell_at(lat, long, resolution)
    known = read(place={"cell": cell}).sources["m7"].known
    for corner in corners(cell):
        assert known.agrees({"NO2": 1, "id": "m7:1:1", "lat": corner[0], "long": corner[1]})


def test_a_source_with_a_fixed_place_is_in_its_own_cell() -> None:
    one = read()
    assert one.cell_of("m8", 8) == cell_at(45.9, 16.1, 8)
    assert one.cell_of("m7", 8) == Place(45.81, 15.97, 0.0).cell_at(8)
    assert read(place=None).cell_of("m7", 8) is None


def test_sources_are_found_near_a_point_and_by_attribute() -> None:
    table = Announcements()
    table.put("default", "b1", read())
    far = replace(read(sources=[{**NO2, "name": "far"}], lease=[], place={"lat": 50, "long": 16}), client="b2")
    table.put("default", "b2", far)
    table.put("other", "b3", replace(read(), tenant="other", client="b3"))

    def found(**question: Any) -> list[str]:
        return [one["name"] for one in table.sources("default", **question)]

    assert found() == ["far", "m7", "m8"]
    assert found(near=(45.81, 15.97)) == ["m7", "m8", "far"]
    assert found(near=(45.81, 15.97), within_meters=2000) == ["m7"]
    assert found(near=(45.81, 15.974), within_meters=150) == ["m7"]  # within its radius
    assert found(attribute="NO2") == ["far", "m7"]
    assert found(attribute="room") == ["m8"]
    assert found(attribute="CO") == []


# ---- What is due when


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 20))), max_size=200), st.integers(0, 20)
)
def test_what_is_due_is_what_was_set_last(steps: list[tuple[int, int | None]], now: int) -> None:
    expiry: Expiry[int] = Expiry()
    model: dict[int, int] = {}
    for key, time in steps:
        expiry.set(key, time)
        model.pop(key, None)
        if time is not None:
            model[key] = time
    assert len(expiry) == len(model)
    assert expiry.next() == min(model.values(), default=None)
    due = expiry.due(now)
    assert [model[key] for key in due] == sorted(time for time in model.values() if time <= now)
    assert len(expiry) == len(model) - len(due)
