"""What becomes of each sample, and what is stored in the same step."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from deciding_kit import NOW, US, Edge, active, sample

from spinney import Mark
from spinney_mobile import announcing
from spinney_mobile import taking as module
from spinney_mobile import valid as valid_module
from spinney_mobile.cells import H3, Mgrs
from spinney_mobile.samples import Sample
from spinney_mobile.settings import Rule
from spinney_mobile.taking import HOLD_SECONDS, MAX_HELD

HOT = "WHEN temp > 25 UNTIL temp <= 22"
KNOWN = {"temp": 20.0, "room": "a"}


def advert(**values: Any) -> Sample:
    """Of a source that nobody has heard before."""
    return replace(sample("new", **values), rssi=-60)


def temps(edge: Edge) -> list[Any]:
    return [one["temp"] for one in edge.store.publications]


def bytes_of(publication: Mapping[str, Any]) -> int:
    return len(json.dumps(publication, separators=(",", ":")))


# ---- what goes up, and how


def test_what_nobody_wants_does_not_go_up() -> None:
    edge = Edge(active("f", "temp > 30"), known=KNOWN)
    for temp in (20, 31, 25):
        edge.take(temp=temp)
    assert temps(edge) == [31.0]
    assert (edge.taking.counts["sent"], edge.taking.counts["spared"]) == (1, 2)
    assert edge.taking.counts["bytes_sent"] == bytes_of(edge.store.publications[0])
    assert edge.taking.counts["bytes_spared"] == 2 * edge.taking.counts["bytes_sent"]


def test_everything_goes_up_where_that_is_set_and_what_was_not_wanted_is_counted() -> None:
    edge = Edge(active("f", "temp > 30"), known=KNOWN, send_all=True)
    for temp in (20, 31):
        edge.take(temp=temp)
    assert temps(edge) == [20.0, 31.0]
    assert edge.taking.counts["sent_unwanted"] == 1
    assert edge.taking.counts["unneeded"] == 1
    assert edge.taking.counts["bytes_unneeded"] == bytes_of(edge.store.publications[0])


def test_a_reading_that_nobody_wants_but_that_widens_what_is_announced_is_not_counted_as_needless() -> None:
    edge = Edge(known=KNOWN, send_all=True)
    edge.take(temp=20, co2=900)
    assert [one["co2"] for one in edge.store.publications] == [900.0]
    assert (edge.taking.counts["sent_unwanted"], edge.taking.counts["unneeded"]) == (1, 0)


def test_a_publication_has_its_number_source_time_and_what_is_added_to_it_p2() -> None:
    edge = Edge(
        active("f", "cell = 'c1' AND NOT (heard IS NULL)"),
        known={},
        placing=lambda _: {"lat": 1.0, "long": 2.0, "cell": "c1"},
    )
    one = replace(sample(temp=20), time=NOW - 5.0, type="air", valid_for=60.0, raw="0a", boot=3, sequence=4)
    edge.taking.take(one, NOW)
    assert edge.store.publications == [
        {
            "id": "m1:3:4", "source": "m1", "time": NOW - 5.0, "heard": NOW, "temp": 20.0, "type": "air",
            "lat": 1.0, "long": 2.0, "cell": "c1", "valid_for": 60.0, "raw": "0a",
        }
    ]  # fmt: skip
    assert edge.store.records[0].epoch == 7


def test_a_reading_outside_of_what_is_announced_goes_up_unfiltered() -> None:
    edge = Edge(known=KNOWN)
    edge.take(temp=20)
    edge.take(co2=900)
    assert [one.get("co2") for one in edge.store.publications] == [900.0]
    assert edge.taking.counts["outside"] == 1


def test_what_cannot_be_a_publication_is_refused_and_counted() -> None:
    edge = Edge(send_all=True)
    edge.taking.take(sample(temp=float("nan")), NOW)
    assert edge.store.records == []
    assert edge.taking.counts["refused"] == 1


def test_a_repeat_goes_no_further() -> None:
    edge = Edge(send_all=True)
    for _ in range(2):
        edge.taking.take(sample(temp=20), NOW)
    assert len(edge.store.records) == 1
    assert edge.taking.counts["repeated"] == 1


def test_listeners_hear_of_each_reading_whether_it_goes_up_or_not() -> None:
    edge = Edge(active("f", "temp > 30"), known=KNOWN)
    for temp in (20, 31):
        edge.take(temp=temp)
    assert [(one.publication["temp"], one.wanted) for one in edge.store.heard] == [(20.0, False), (31.0, True)]


def test_what_a_weaker_filter_let_through_is_counted() -> None:
    edge = Edge(active("f", "temp > 30"), known=KNOWN)
    edge.taking.take(replace(sample(temp=29), passed=True), NOW + 100)
    assert edge.taking.counts["weak_hits"] == 1


# ---- private rules


def test_a_rule_comes_before_all_else_even_the_name_of_the_source_p2() -> None:
    edge = Edge(rules=[Rule(name="cams", when="source LIKE 'cam%'")], send_all=True)
    edge.taking.take(sample("cam1", temp=20), NOW)
    assert edge.store.records == []
    assert edge.announcer.sources == []
    assert edge.taking.counts["suppressed"] == 1


def test_filters_see_only_what_rules_have_left_p2() -> None:
    only = Rule(name="only", share="only", attributes=("temp",))
    edge = Edge(active("f", "co2 > 1"), active("g", "co2 IS NULL AND temp > 1"), rules=[only], known=KNOWN)
    edge.take(temp=20, co2=900)
    assert [set(one) for one in edge.store.publications] == [{"id", "source", "time", "temp"}]


def test_a_budget_is_used_only_by_what_goes_up() -> None:
    edge = Edge(active("f", "temp > 30"), rules=[Rule(name="few", hourly=1)], known=KNOWN)
    edge.now -= edge.now % 3600
    for temp in (20, 31, 32):
        edge.take(temp=temp)
    assert temps(edge) == [31.0]
    assert dict(edge.taking.rules.suppressed) == {"few": 1}


# ---- whose it is


def test_of_a_source_that_is_anothers_nothing_is_published_i1() -> None:
    edge = Edge(send_all=True)
    edge.leases.tell([{"source": "m1", "owner": "other", "epoch": 9}])
    edge.take(temp=20)
    assert edge.store.records == []
    assert edge.taking.counts["others"] == 1
    assert edge.announcer.sources == ["m1"]


def test_without_the_cloud_who_hears_a_source_publishes_it_i1() -> None:
    edge = Edge(send_all=True)
    edge.taking.take(sample("new", temp=20), NOW)
    assert [one.epoch for one in edge.store.records] == [0]


@pytest.mark.parametrize(("owner", "published"), [(US, 2), ("other", 0)])
def test_what_has_no_numbers_waits_for_word_of_its_owner_so_that_nobody_hears_it_twice(
    owner: str, published: int
) -> None:
    edge = Edge(send_all=True, connected=lambda: True)
    for n in range(2):
        edge.taking.take(advert(temp=20 + n), NOW)
    assert edge.store.records == []
    edge.leases.tell([{"source": "new", "owner": owner, "epoch": 9}])
    edge.taking.change([], [], edge.leases.known, NOW)
    assert [one.epoch for one in edge.store.records] == [9] * published


def test_it_does_not_wait_for_ever_nor_without_bounds() -> None:
    edge = Edge(send_all=True, connected=lambda: True)
    for n in range(MAX_HELD + 1):
        edge.taking.take(advert(temp=n), NOW)
    assert temps(edge) == [0.0], "the oldest goes up as nobody's"
    edge.taking.tick(NOW + HOLD_SECONDS - 1)
    assert temps(edge) == [0.0]
    edge.taking.tick(NOW + HOLD_SECONDS)
    assert temps(edge) == [float(n) for n in range(MAX_HELD + 1)]


def test_only_what_came_by_radio_waits_for_all_else_may_be_acknowledged_at_once() -> None:
    edge = Edge(send_all=True, connected=lambda: True)
    for n in range(100):
        assert edge.taking.take(sample("new", temp=n), NOW) is None
        assert len(edge.store.records) == n + 1
    assert [one.epoch for one in edge.store.records] == [0] * 100


def test_of_a_source_that_is_forgotten_nothing_is_counted_any_more() -> None:
    edge = Edge(active("f", "temp > 30"), known=KNOWN)
    for temp in (20, 31):
        edge.take(temp=temp)
    assert (edge.taking.sent["m1"], edge.taking.spared["m1"]) == (1, 1)
    edge.taking.forget("m1")
    assert not edge.taking.sent + edge.taking.spared


def test_why_a_sample_is_refused_is_said() -> None:
    edge = Edge(send_all=True)
    edge.leases.tell([{"source": "m1", "owner": "other", "epoch": 9}])
    assert "m1 is another mobile broker's" in (edge.taking.take(sample(temp=20), NOW) or "")
    assert "finite" in (edge.taking.take(sample("new", temp=float("nan")), NOW) or "")
    assert edge.taking.take(sample("new", temp=20), NOW) is None


def test_of_too_many_sources_it_is_said_that_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(announcing, "MAX_SOURCES", 1)
    edge = Edge(send_all=True)
    assert edge.taking.take(sample(temp=20), NOW) is None
    assert "one source more" in (edge.taking.take(sample("new", temp=20), NOW) or "")


@pytest.mark.parametrize("grid", [H3, Mgrs])
@pytest.mark.parametrize(("place", "why"), [((95.0, 16.0), "lat 95 "), ((45.0, -180.5), "long -180.5 ")])
def test_what_was_measured_nowhere_on_earth_is_refused_p2(
    grid: type[H3 | Mgrs], place: tuple[float, float], why: str
) -> None:
    cells = grid()
    edge = Edge(send_all=True, placing=lambda one: {"cell": cells.cell(*one.place, 5)})  # type: ignore[misc]
    assert f"{why}is beyond" in (edge.taking.take(replace(sample(temp=20), place=place), NOW) or "")
    assert edge.taking.counts["refused"] == 1
    assert edge.taking.take(replace(sample(temp=20), place=(90.0, 180.0)), NOW) is None


def test_what_has_numbers_need_not_wait() -> None:
    edge = Edge(send_all=True, connected=lambda: True)
    edge.taking.take(replace(advert(temp=20), boot=1, sequence=1), NOW)
    assert len(edge.store.records) == 1


def test_what_waits_goes_up_before_the_end() -> None:
    edge = Edge(send_all=True, connected=lambda: True)
    edge.taking.take(advert(temp=20), NOW)
    edge.taking.finish(NOW)
    assert len(edge.store.records) == 1


# ---- state filters


def test_a_label_goes_up_with_its_publication_and_with_what_must_survive_it() -> None:
    edge = Edge(active("s", HOT), known=KNOWN)
    edge.take(temp=26)
    (record,) = edge.store.records
    assert record.labels["s"].mark.bit
    assert {"bit:s:m1", "number:m1"} <= edge.store.state.keys()


def test_what_is_withheld_is_stored_too_s3() -> None:
    edge = Edge(active("s", HOT + " ONCE"), known=KNOWN)
    for source, temp in (("m1", 30), ("m2", 20), ("m2", 30)):
        edge.take(source, temp=temp)
    assert len(edge.store.records) == 2
    assert json.loads(edge.store.state["bit:s:m2"])[1][0][4] == 1


def test_a_number_does_not_come_again_even_if_what_had_it_was_spared_and_the_clock_stands_still_i1() -> None:
    edge, heard = Edge(known=KNOWN), []
    for _ in range(3):
        edge = Edge(state=edge.store.state)
        edge.taking.take(sample(temp=20 + len(heard)), NOW)
        heard += [one.id for one in edge.store.heard]
    assert len(set(heard)) == 3


def test_a_broker_that_is_killed_goes_on_as_if_nothing_had_been() -> None:
    def run(kill_at: int) -> list[Any]:
        edge, told = Edge(active("s", HOT), known=KNOWN), []
        for n, temp in enumerate((26, 27, 21, 20, 30, 21)):
            if n == kill_at:
                again = Edge(active("s", HOT), state=edge.store.state)
                again.now = edge.now
                edge = again
            before = len(edge.store.records)
            edge.take(temp=temp)
            told += [(temp, one.labels["s"].mark.bit) for one in edge.store.records[before:]]
        return told

    assert [run(kill_at) for kill_at in range(7)] == [[(26, True), (21, False), (30, True), (21, False)]] * 7


def test_a_source_is_given_up_with_silent_labels_s3() -> None:
    edge = Edge(active("s", HOT + " ONCE"), known=KNOWN)
    for source, temp in (("m1", 30), ("m2", 20), ("m2", 30)):
        edge.take(source, temp=temp)
    edge.taking.release("m1")
    assert edge.store.records[-1].publication is None
    assert edge.store.records[-1].labels["s"].silent


# ---- motes


def marked(sequence: int, bit: bool) -> Any:
    one = replace(sample(temp=26), boot=1, sequence=sequence)
    return replace(one, marks={"s": Mark("m1", (0, 1, sequence), bit)})


def test_an_advert_that_came_before_its_event_takes_nothing_from_the_mark() -> None:
    edge = Edge(active("s", HOT), known=KNOWN)
    edge.taking.decider.on_mote("m1", ["s"])
    edge.taking.take(replace(marked(5, True), marks={}), NOW)
    assert edge.store.records == []
    edge.taking.take(marked(5, True), NOW)
    (record,) = edge.store.records
    assert record.publication is not None
    assert record.labels["s"].mark.bit


def test_the_mark_of_a_sample_that_has_gone_up_comes_as_a_silent_label() -> None:
    edge = Edge(active("s", HOT), active("f", "temp > 1"), known=KNOWN)
    edge.taking.decider.on_mote("m1", ["s"])
    edge.taking.take(replace(marked(5, True), marks={}), NOW)
    edge.taking.take(marked(5, True), NOW)
    assert [one.publication is None for one in edge.store.records] == [False, True]
    assert edge.store.records[1].labels["s"].silent


def test_an_event_that_comes_again_says_nothing_new_i2() -> None:
    edge = Edge(active("s", HOT), known=KNOWN)
    edge.taking.decider.on_mote("m1", ["s"])
    for _ in range(3):
        edge.taking.take(marked(5, True), NOW)
    assert len(edge.store.records) == 1


# ---- validity


def test_what_is_valid_is_kept_for_content_feeds_to_come_l1() -> None:
    edge = Edge(known={**KNOWN, "valid_for": 60.0})
    for valid_for in (30.0, 60.0, None):
        edge.taking.take(replace(sample(temp=valid_for or 1), valid_for=valid_for), NOW)
    edge.taking.change([active("s", HOT), active("f", "temp > 0")], [], edge.leases.known, NOW + 30.0)
    assert temps(edge) == [60.0]
    edge.taking.change([active("g", "temp > 1")], [], edge.leases.known, NOW + 31.0)
    assert temps(edge) == [60.0]


def test_valid_publications_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(valid_module, "MAX_KEPT", 2)
    kept = valid_module.Valid(2)
    for n in range(3):
        kept.stop({"id": str(n), "source": "m1", "valid_for": 60.0}, 0, NOW)
    assert (len(kept), kept.dropped) == (2, 1)


def test_what_went_up_is_remembered_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SENT", 2)
    edge = Edge(send_all=True)
    for n in range(5):
        edge.take(temp=n)
    assert len(edge.taking._gone_up) == 2
