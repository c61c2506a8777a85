"""The reasons of a judge, one by one: when something may be missing, of whom, and when it is proven that nothing is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pytest
from test_activation import announcement, source

from spinney import feed, parse
from spinney_cloud.completeness import Answer, Judge, Reason, answer, entries, judge
from spinney_cloud.completeness.answer import merged
from spinney_cloud.completeness.reading import judge_of
from spinney_cloud.fetch.result import Claim
from spinney_cloud.records import Run
from spinney_cloud.subscriptions import form_of

CO2 = {"min": 0, "max": 2000}
Said = tuple[float, dict[str, Any]]


def here(at: float, client: str = "pi", session: str = "s1", *names: str) -> Said:
    sources = [source(name, co2=CO2) for name in names or ("m1",)]
    return at, entries.announced(announcement(client, sources, session=session))


def told(
    at: float, epoch: int, *texts: str, client: str = "pi", full: bool = True, chosen: bool = False, **more: Any
) -> Said:
    add = []
    for text in texts:
        form = form_of(parse(text))
        add.append({"filter": form.digest, "kind": form.kind, "subscription": {"text": text}})
    message = {"epoch": epoch, "full": full, "add": add, "drop": more.get("drop", []), "more": more.get("part", False)}
    return at, entries.activated(client, message, frozenset(one["filter"] for one in add) if chosen else frozenset())


def reports(at: float, epoch: int, client: str = "pi", **more: Any) -> Said:
    return at, entries.reported(client, {"run": "r1", "epoch": epoch, **more})


KEPT: Said = (0.0, entries.kept(3600))
START = [KEPT, here(1), told(2, 1, "co2 > 100"), reports(3, 1)]


def judged(
    said: Iterable[Said],
    text: str = "co2 > 200",
    since: float = 10.0,
    until: float = 100.0,
    runs: Iterable[Any] = (),
    claims: Iterable[Claim] = (),
) -> Answer:
    found = judge_of(form_of(parse(text)), since, until)
    for claim in claims:
        found.fetched(*claim)
    for at, value in said:
        found.entry(at, entries.read_entry(orjson.loads(orjson.dumps(value)), "default", at))
    for at, run in runs:
        found.heard(at, [run])
    return found.answer()


def reasons(one: Answer) -> list[tuple[str, str | None, float, float]]:
    return [(each.why, each.source, each.since, each.until) for each in one.reasons]


def test_what_was_asked_for_all_the_time_is_complete() -> None:
    assert judged(START).verdict == "complete"
    assert judged(START, "co2 > 50").verdict == "at least"
    assert judged(START, "co2 > 5000").verdict == "complete", "nobody announces so much"
    assert judged(START, "co2 > 50 AND source = 'm2'").verdict == "complete", "that is nobody's name"


def test_until_it_reports_either_of_two_sets_may_be_at_work() -> None:
    said = [*START, told(20, 2, "co2 > 150"), told(30, 3, "co2 > 300"), reports(40, 2), reports(50, 3)]
    assert reasons(judged(said)) == [("filters", "m1", 30, 100)]
    back = [*START, told(20, 2, "co2 > 300"), told(30, 3, "co2 > 150"), reports(40, 2), reports(50, 3)]
    assert reasons(judged(back)) == [("filters", "m1", 20, 30), ("changing", "m1", 30, 50)]


def test_an_activation_in_parts_counts_when_it_is_whole() -> None:
    parts = [told(20, 2, "co2 > 300", part=True), told(20, 3, "co2 > 150", full=False)]
    assert judged([*START, *parts, reports(30, 3)]).verdict == "complete"
    gone = told(20, 2, full=False, drop=[form_of(parse("co2 > 100")).digest])
    assert reasons(judged([*START, gone, reports(30, 2)])) == [("filters", "m1", 20, 100)]


def test_a_mote_holds_back_what_it_did_until_it_has_committed() -> None:
    said = [
        KEPT,
        here(1),
        told(2, 1, "co2 > 900"),
        reports(3, 1),
        told(5, 2, "co2 > 100"),
        reports(20, 2, pending=["m1"]),
    ]
    assert reasons(judged(said)) == [("changing", "m1", 10, 100)]
    assert reasons(judged([*said, reports(60, 2)])) == [("changing", "m1", 10, 60)]
    assert reasons(judged([*said, reports(60, 2, pending=None)])) == [("changing", "m1", 10, 100)]


def test_a_source_that_is_new_may_be_a_mote_with_filters_of_somebody_else() -> None:
    with_motes = [*START[:3], reports(3, 1, motes=True), here(20, "pi", "s1", "m1", "m2")]
    assert reasons(judged(with_motes)) == [("changing", "m2", 20, 100)]
    assert reasons(judged([*with_motes, reports(30, 1, motes=True)])) == [("changing", "m2", 20, 30)]
    assert judged([*START, here(20, "pi", "s1", "m1", "m2")]).verdict == "complete", "it has no motes"


def test_a_broker_that_was_away_is_believed_when_it_says_that_all_has_come() -> None:
    away = [*START, (20.0, entries.away("pi"))]
    assert reasons(judged(away)) == [("away", "m1", 20, 100)]
    back = [*away, (50.0, entries.present("pi", "s2"))]
    assert reasons(judged(back)) == [("away", "m1", 20, 100)]
    assert judged([*back, reports(60, 1)]).verdict == "complete"
    another = reports(60, 1, run="r2")
    assert reasons(judged([*back, another])) == [("away", "m1", 20, 60)], "it was started anew meanwhile"
    assert reasons(judged([*back, reports(60, 1)], until=40)) == [("away", "m1", 20, 40)], "nobody knew it then"


def test_what_was_held_back_while_it_was_away_stays_held_back() -> None:
    said = [*START, (20.0, entries.away("pi")), (50.0, entries.present("pi", "s2")), reports(60, 1)]
    assert reasons(judged(said, "co2 > 50")) == [("filters", "m1", 10, 100)]


def test_a_source_that_is_announced_no_longer_is_unowned() -> None:
    over = [*START, (20.0, entries.over("pi"))]
    assert reasons(judged(over)) == [("unowned", "m1", 20, 100)]
    assert judged(over, since=30).sources == 0, "it was not there in that time"
    back = [*over, here(50, "pi", "s2"), reports(60, 1)]
    assert judged(back).verdict == "complete", "it was cut off for long, and all has come"


def test_a_new_owner_does_not_publish_before_it_is_told() -> None:
    leased = (1.5, entries.leased("pi", None, {"m1": 1}))
    both = [*START, leased, here(4, "b2"), told(5, 1, "co2 > 100", client="b2"), reports(6, 1, "b2", run="r9")]
    assert judged(both).verdict == "complete"
    gone = [*both, (20.0, entries.over("pi")), (21.0, entries.leased("pi", {"m1": 1}, {}))]
    taken = [*gone, (22.0, entries.leased("b2", {}, {"m1": 2}))]
    assert reasons(judged(taken)) == [("unowned", "m1", 20, 21), ("changing", "m1", 22, 100)]
    at, value = told(23, 2, full=False, client="b2")
    knows = [*taken, (at, {**value, "leases": True}), reports(30, 2, "b2", run="r9")]
    assert ("changing", "m1", 22, 30) in reasons(judged(knows))


def test_what_was_lost_counts_for_as_long_as_it_may_have_waited() -> None:
    said = [*START, reports(60, 1, lost=3, seconds=15.0), reports(90, 1, thinned=2, seconds=1.0)]
    assert reasons(judged(said)) == [("lost", None, 40, 60), ("lost", None, 84, 90)], (
        "older brokers had another word, too"
    )
    assert reasons(judged(said, until=50)) == [("lost", None, 40, 50)], "it was said later"
    assert judged(said, until=30).verdict == "complete"


def test_private_rules_may_hold_back_whatever_is_announced() -> None:
    said = [*START[:3], reports(3, 1, private=True)]
    one = judged(said, "temp > 5")
    assert reasons(one) == [("private", None, 10, 100)]
    assert one.text == "At least so many: pi may hold back readings."
    assert judged([*said, (5.0, entries.over("pi"))], since=20).verdict == "complete"


def test_who_sends_everything_holds_nothing_back() -> None:
    assert judged([*START[:3], reports(3, 1, all=True)], "co2 > 5").verdict == "complete"


def test_a_density_chose_others() -> None:
    said = [
        KEPT,
        here(1, "pi", "s1", "m1", "m2"),
        told(2, 1, "source = 'm1' AND co2 > 100", chosen=True),
        reports(3, 1),
    ]
    assert reasons(judged(said)) == [("density", "m2", 10, 100)]
    many = [KEPT, here(1, "pi", "s1", "m1", "m2"), told(2, 1, "source IN ('m1', 'm2') AND co2 > 100"), reports(3, 1)]
    assert judged(many).verdict == "complete"


def test_labels_of_a_state_leave_out_what_changes_nothing() -> None:
    state = "WHEN co2 > 500 UNTIL co2 < 400"
    said = [KEPT, here(1), told(2, 1, state), reports(3, 1)]
    one = judged(said, state)
    assert (one.verdict, reasons(one)) == ("unknown", [("labels", "m1", 10, 100)])
    assert judged([KEPT, here(1), told(2, 1, state, "co2 >= 0"), reports(3, 1)], state).verdict == "complete"


def test_a_debounced_state_of_an_owned_source_waits_for_labels() -> None:
    form = form_of(parse({"text": "WHEN co2 > 500 UNTIL co2 < 400", "debounce": 5}))
    found = judge_of(form, 10.0, 100.0)
    for at, value in [*START[:2], (1.5, entries.leased("pi", None, {"m1": 1})), told(2, 1, "TRUE"), reports(3, 1)]:
        found.entry(at, entries.read_entry(orjson.loads(orjson.dumps(value)), "default", at))
    assert {one.why for one in found.answer().reasons} == {"labels"}


def test_a_broker_that_does_not_report_is_unknown() -> None:
    one = judged(START[:3])
    assert (one.verdict, reasons(one)) == ("unknown", [("silent", "m1", 10, 100)])
    assert "is it older than the cloud?" in one.text
    fresh = [KEPT, here(20), told(21, 1, "co2 > 100")]
    assert reasons(judged([*fresh, reports(30, 1)])) == [("silent", "m1", 20, 30)]
    assert judged([*fresh, reports(30, 1, fresh=True)]).verdict == "complete", "all went up until then"


def test_a_hole_in_the_history_is_unknown_until_all_is_told_again() -> None:
    said = [*START, (20.0, entries.broken("pi")), told(30, 5, "co2 > 100"), reports(40, 5)]
    one = judged(said)
    assert (one.verdict, one.reasons[0].since, one.reasons[-1].until) == ("unknown", 20, 40)


def test_before_history_was_kept_nobody_knows() -> None:
    one = judged([(50.0, entries.kept(3600))])
    assert (one.verdict, reasons(one)) == ("unknown", [("before", None, 10, 50)])
    assert reasons(judged([])) == [("before", None, 10, 100)]
    stopped = [(0.0, entries.kept(5)), (60.0, entries.kept(5))]
    assert reasons(judged(stopped, until=65)) == [("before", None, 10, 60)]


def test_a_log_that_begins_has_nothing_before_it() -> None:
    found = Judge("content", feed(parse("co2 > 5")), None, 10.0, 100.0, waits_for_labels=False)
    found.nothing_before(50.0)
    found.entry(52.0, entries.Kept(3600))
    assert found.answer().verdict == "complete"


def test_an_entry_of_a_newer_version_is_the_end_of_what_is_known() -> None:
    found = Judge("content", feed(parse("co2 > 5")), None, 10.0, 100.0, waits_for_labels=False)
    found.entry(0.0, entries.Kept(3600))
    found.unreadable(40.0)
    assert reasons(found.answer()) == [("broken", None, 40, 100)]


# ---- publishers without a broker


def numbered(first: int, length: int = 1, *, boot: int = 1, client: str = "ana", numbered: int = 1) -> Run:
    return Run("plain", boot, first, length, client, None, numbered)


def test_of_who_sends_all_it_has_only_missing_numbers_count() -> None:
    whole = [(20.0, numbered(5, 3)), (30.0, numbered(8)), (40.0, numbered(0, boot=2))]
    assert judged([KEPT], runs=whole).verdict == "complete"
    holes = [(20.0, numbered(5)), (30.0, numbered(9)), (40.0, numbered(10))]
    assert reasons(judged([KEPT], runs=holes)) == [("gap", "plain", 20, 30)]
    assert judged([KEPT], runs=[*holes, (50.0, numbered(6, 3))]).verdict == "complete", "they came late"
    assert reasons(judged([KEPT], runs=[*holes, (50.0, numbered(6))])) == [("gap", "plain", 20, 30)]
    assert judged([KEPT], runs=[(20.0, numbered(5, numbered=0)), (30.0, numbered(9, numbered=0))]).verdict == "complete"


def test_gaps_in_what_a_mobile_broker_sends_are_no_losses() -> None:
    runs = [(20.0, numbered(5, client="pi")), (30.0, numbered(9, client="pi"))]
    assert judged(START, runs=runs).verdict == "complete"


# ---- bounds


def test_reasons_are_bounded_and_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_REASONS", 7)
    one = judged([KEPT, here(1, "pi", "s1", *(f"m{at}" for at in range(9))), told(2, 1), reports(3, 1)])
    assert (one.count, len(one.reasons), one.verdict) == (9, 7, "at least")
    first, second = one.to_json(0, 4), one.to_json(4, 4)
    assert (len(first["reasons"]), first["next"], len(second["reasons"]), second["next"]) == (4, 4, 3, None)
    assert one.lines(2)[-1] == "  and 7 more reasons"


def test_what_takes_too_long_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "MAX_SECONDS", -1.0)
    one = judged(START)
    assert (one.verdict, {each.why for each in one.reasons}) == ("unknown", {"effort"})


def test_reasons_that_follow_on_one_another_are_one() -> None:
    some = [Reason("gap", "a", None, 5, 6), Reason("gap", "a", None, 1, 3), Reason("gap", "a", None, 3, 4)]
    assert [(one.since, one.until) for one in merged(some)] == [(1, 4), (5, 6)]


# ---- what was fetched


OWNED = [KEPT, here(1), (1.5, entries.leased("pi", {}, {"m1": 1})), told(2, 1, "co2 > 100"), reports(3, 1)]


def test_what_its_owner_held_back_is_complete_once_all_of_it_is_fetched() -> None:
    assert judged(OWNED, "co2 > 50").verdict == "at least"
    assert judged(OWNED, "co2 > 50", claims=[Claim("pi", "m1", 5.0, 100.0)]).verdict == "complete"
    part = judged(OWNED, "co2 > 50", claims=[Claim("pi", "m1", 40.0, 90.0)])
    assert reasons(part) == [("filters", "m1", 10.0, 40.0), ("filters", "m1", 90.0, 100.0)]


@pytest.mark.parametrize(
    "claim", [Claim("other", "m1", 0.0, 100.0), Claim("pi", "m2", 0.0, 100.0), Claim("pi", "m1", 100.0, 100.0)]
)
def test_a_claim_of_somebody_else_or_of_another_source_or_of_no_time_proves_nothing(claim: Claim) -> None:
    assert reasons(judged(OWNED, "co2 > 50", claims=[claim])) == [("filters", "m1", 10.0, 100.0)]


def test_while_nobody_owns_a_source_another_broker_may_have_stopped_its_readings() -> None:
    found = judged(START, "co2 > 50", claims=[Claim("pi", "m1", 0.0, 100.0)])
    assert reasons(found) == [("filters", "m1", 10.0, 100.0)]
    said = [*START, (40.0, entries.leased("pi", {}, {"m1": 1}))]
    found = judged(said, "co2 > 50", claims=[Claim("pi", "m1", 0.0, 100.0)])
    assert reasons(found) == [("filters", "m1", 10.0, 40.0)]


def test_of_a_state_nothing_is_proven_by_what_was_fetched() -> None:
    found = judged(OWNED, "WHEN co2 > 50 UNTIL co2 < 40", claims=[Claim("pi", "m1", 0.0, 100.0)])
    assert found.verdict == "unknown"


def test_what_is_missing_otherwise_stays_missing_whatever_is_fetched() -> None:
    claims = [Claim("pi", "m1", 0.0, 100.0)]
    private = [*OWNED[:-1], reports(3, 1, private=True)]
    assert reasons(judged(private, "co2 > 50", claims=claims)) == [("private", None, 10.0, 100.0)]
    gone = [*OWNED, (50.0, entries.away("pi"))]
    assert reasons(judged(gone, "co2 > 50", claims=claims)) == [("away", "m1", 50.0, 100.0)]
