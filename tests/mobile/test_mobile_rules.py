"""Private rules: before anything else sees a reading it has lost what it must, or is gone (rule P2)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from deciding_kit import NOW, US, Edge, active, sample

from spinney_mobile.cells import H3
from spinney_mobile.rules import RuleError, Rules
from spinney_mobile.settings import Rule

HERE = {"lat": 45.815, "long": 15.977}


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ") if before is None else os.environ.update(TZ=before)
    time.tzset()


def rules(*given: Rule, kept: dict[str, bytes] | None = None) -> Rules:
    return Rules(given, grid=H3, resolution=9, kept=kept)


def reading(source: str = "m1", at: float = NOW, **values: Any) -> dict[str, Any]:
    return {"source": source, "time": at, **values}


def left(found: Rules, publication: dict[str, Any], battery: float | None = None, now: float = NOW) -> Any:
    return found.apply(publication, battery, now).publication


def test_these_devices_are_never_shared_and_that_is_counted() -> None:
    found = rules(Rule(name="cameras", when="source LIKE 'cam%'"))
    assert left(found, reading("cam-1")) is None
    assert left(found, reading("m1")) == reading("m1")
    assert dict(found.suppressed) == {"cameras": 1}


@pytest.mark.parametrize("hours", ["00:00-24:00", "22:00-00:00", "24:00-06:00"])
def test_midnight_begins_a_day_and_ends_one(hours: str) -> None:
    found, day = rules(Rule(name="night", hours=hours)), NOW - NOW % 86400
    first, last = (int(end[:2]) % 24 for end in hours.split("-"))
    for hour in range(24):
        assert (left(found, reading(at=day + hour * 3600)) is None) == (first <= hour < (last or 24))


@pytest.mark.parametrize(("hours", "shared"), [("22:00-06:30", [6.5, 7, 21.99]), ("08:00-17:00", [0, 7.99, 17, 23])])
def test_these_hours_are_never_shared(hours: str, shared: list[float]) -> None:
    found = rules(Rule(name="night", hours=hours))
    day = NOW - NOW % 86400
    hidden = {0.0, 5.0, 6.4, 8.0, 12.0, 16.9, 22.0, 23.9} - set(shared)
    assert all(left(found, reading(at=day + hour * 3600)) is not None for hour in shared)
    stopped = [hour for hour in hidden if left(found, reading(at=day + hour * 3600)) is None]
    assert set(stopped) == {hour for hour in hidden if (hour >= 22 or hour < 6.5) == hours.startswith("22")}


def test_hours_are_those_of_the_clock_on_the_wall() -> None:
    os.environ["TZ"] = "east-2"
    time.tzset()
    found, day = rules(Rule(name="night", hours="22:00-06:30")), NOW - NOW % 86400
    assert [left(found, reading(at=day + hour * 3600)) is None for hour in (19.9, 20, 4.4, 4.5)] == [
        False, True, True, False
    ]  # fmt: skip


def test_this_area_is_never_shared_nor_is_what_may_be_in_it() -> None:
    found = rules(Rule(name="home", when="S_WITHIN(location, BBOX(15.97, 45.81, 15.98, 45.82))"))
    assert left(found, reading(**HERE)) is None
    assert left(found, reading(lat=45.9, long=15.9)) is not None
    assert left(found, reading()) is None


def test_a_place_is_told_only_as_the_middle_of_a_cell() -> None:
    found = rules(Rule(name="coarse", share="coarse", resolution=5))
    one = left(found, reading(**HERE, cell="891e1308bb7ffff"))
    other = left(found, reading(lat=45.816, long=15.978))
    assert (one["lat"], one["long"]) == (other["lat"], other["long"]) == H3().centre(one["cell"])
    assert one["cell"] == H3().cell(45.815, 15.977, 5)
    assert one["lat"] != HERE["lat"]
    assert "cell" not in other
    assert left(found, reading()) == reading()


def test_a_coarse_place_is_not_told_by_the_bytes_that_were_heard_either() -> None:
    found = rules(Rule(name="coarse", share="coarse", resolution=5))
    assert "raw" not in left(found, reading(**HERE, raw="7b226c6174223a34352e3831357d"))
    assert "raw" not in left(found, reading(raw="7b226c6174223a34352e3831357d"))


def test_a_rule_for_a_cell_is_for_readings_without_a_place_too() -> None:
    found = rules(Rule(name="home", when="cell = 'home'"))
    assert left(found, reading(cell="home")) is None
    assert left(found, reading(cell="work")) is not None
    assert left(found, reading()) is None
    assert found.place({**HERE, "cell": "work"}, NOW) is not None
    assert found.place({**HERE, "cell": "home"}, NOW) is None


def test_only_these_attributes_are_told() -> None:
    found = rules(Rule(name="only", share="only", attributes=("temp",)))
    assert left(found, reading(temp=20.0, co2=900.0, cell="x", **HERE)) == reading(temp=20.0)


def test_rules_come_one_after_the_other() -> None:
    found = rules(Rule(name="only", share="only", attributes=("temp",)), Rule(name="hot", when="co2 > 1"))
    assert left(found, reading(temp=20.0, co2=900.0)) == reading(temp=20.0)


def test_an_hour_has_a_budget_that_only_what_goes_up_uses() -> None:
    found = rules(Rule(name="few", when="source = 'm1'", hourly=2))
    hour = NOW - NOW % 3600
    for _ in range(3):
        assert found.apply(reading(), None, hour).budgets == ("few",)
    for _ in range(2):
        found.spend(("few",), hour)
    assert left(found, reading(), now=hour + 3599) is None
    assert left(found, reading("m2"), now=hour) is not None
    assert left(found, reading(), now=hour + 3600) is not None


@pytest.mark.parametrize("held", [True, False])
def test_what_had_to_wait_counts_for_the_budget_of_the_hour_in_which_it_goes_up(held: bool) -> None:
    filters = [active("all", "temp > 0")]
    known = None if held else {"temp": 20.0, "valid_for": 60.0}
    edge = Edge(rules=[Rule(name="few", hourly=1)], known=known, send_all=held, connected=lambda: held, sources=("m1",))
    edge.now += 3600 - edge.now % 3600
    for n in range(3):
        one = replace(sample("m2" if held else "m1", at=edge.now, temp=20 + n), valid_for=60.0, rssi=-60)
        edge.taking.take(one, edge.now)
    assert edge.store.records == []
    edge.leases.tell([{"source": "m2", "owner": US, "epoch": 9}])
    edge.taking.change(filters, [], edge.leases.known, edge.now)
    assert len(edge.store.records) == 1
    assert dict(edge.taking.rules.suppressed) == {"few": 2}


def test_a_budget_outlives_a_restart() -> None:
    few = Rule(name="few", hourly=1)
    kept = {key: value for key, value in rules(few).spend(("few",), NOW).items() if value is not None}
    assert left(rules(few, kept=kept), reading()) is None


def test_while_its_battery_is_low_a_source_has_less_to_tell() -> None:
    found = rules(Rule(name="low", battery=0.2, hourly=1))
    found.spend(("low",), NOW)
    assert left(found, reading(), battery=0.199) is None
    assert left(found, reading(), battery=0.2) is not None
    assert left(found, reading(), battery=None) is not None


def test_a_filter_is_not_for_a_mote_whose_readings_a_rule_may_change() -> None:
    found = rules(Rule(name="cams", when="source LIKE 'cam%' AND temp > 3"), Rule(name="b", when="room = 'bed'"))
    assert found.may_touch("cam-1", {})
    assert not found.may_touch("m1", {"room": "kitchen"})
    assert found.may_touch("m1", {})


def test_a_rule_for_an_area_is_not_for_a_mote_that_stays_elsewhere() -> None:
    found = rules(Rule(name="home", when="S_WITHIN(location, BBOX(15.97, 45.81, 15.98, 45.82))"))
    assert found.may_touch("m1", {})
    assert found.may_touch("m1", dict(HERE))
    assert not found.may_touch("m1", {"lat": 50.0, "long": 15.0})


def test_where_this_broker_is_is_announced_as_its_rules_allow() -> None:
    assert rules().place(HERE, NOW) == (45.815, 15.977)
    coarse = rules(Rule(name="coarse", share="coarse", resolution=5))
    assert coarse.place(HERE, NOW) == H3().centre(H3().cell(45.815, 15.977, 5))
    home = rules(Rule(name="home", when="lat > 45.8 AND lat < 45.9"))
    assert home.place(HERE, NOW) is None
    assert rules(Rule(name="cams", when="source LIKE 'cam%'")).place(HERE, NOW) is not None
    for share in ("never", "coarse"):
        night = rules(Rule(name="night", hours="22:00-06:30", share=share, resolution=5))
        day = NOW - NOW % 86400
        assert night.place(HERE, day + 12 * 3600) == (45.815, 15.977)
        assert night.place(HERE, day + 23 * 3600) != (45.815, 15.977)


def test_a_source_that_is_never_shared_is_hidden_whole() -> None:
    found = rules(Rule(name="cams", when="source LIKE 'cam%'"), Rule(name="hot", when="temp > 30"))
    assert found.hides(reading("cam-1"))
    assert not found.hides(reading("m1"))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (Rule(name="r", hours="22-6"), "22:00-06:30"),
        (Rule(name="r", hours="00:00-00:00"), "for the whole day leave hours out"),
        (Rule(name="r", hours="24:00-00:00"), "for the whole day leave hours out"),
        (Rule(name="r", hours="22:00-24:30"), "a day ends at 24:00"),
        (Rule(name="r", share="only"), "attributes"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_with_what_would(rule: Rule, says: str) -> None:
    with pytest.raises(RuleError, match=says):
        rules(rule)
