"""Which part made a publication match or not (promise 7): one evaluator, so always the same verdict."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from strategies import filters, publications

from spinney import Filter, parse_filter
from spinney.explain import Explanation
from spinney.expression import And, Not, Or

FILTER = parse_filter("(a > 1 OR s LIKE 'air%') AND NOT b BETWEEN 0 AND 5")


def tree_of(condition: Filter) -> tuple[Filter, ...]:
    if isinstance(condition, And | Or):
        return condition.operands
    return (condition.operand,) if isinstance(condition, Not) else ()


def check(explanation: Explanation, condition: Filter, publication: dict[str, Any]) -> None:
    assert explanation.text == condition.to_text()
    assert explanation.verdict is condition.evaluate(publication)
    parts = tree_of(condition)
    assert len(explanation.parts) == len(parts)
    for part, below in zip(explanation.parts, parts, strict=True):
        check(part, below, publication)


@given(filters(), publications())
def test_every_part_has_the_verdict_that_evaluate_gives(condition: Filter, publication: dict[str, Any]) -> None:
    explanation = condition.explain(publication)
    check(explanation, condition, publication)
    assert explanation.matches is (condition.evaluate(publication) is True)


@given(filters(), publications())
def test_the_reasons_alone_decide(condition: Filter, publication: dict[str, Any]) -> None:
    """Whatever the verdicts of the other parts: the whole keeps its own, if it is known."""
    explanation = condition.explain(publication)
    reasons = {id(reason) for reason in explanation.reasons()}
    assert reasons
    if explanation.verdict is not None:
        for other in (True, False, None):
            assert replayed(explanation, condition, reasons, other) is explanation.verdict


def replayed(explanation: Explanation, condition: Filter, reasons: set[int], other: bool | None) -> bool | None:
    if not explanation.parts:
        return explanation.verdict if id(explanation) in reasons else other
    parts = zip(explanation.parts, tree_of(condition), strict=True)
    verdicts = [replayed(part, below, reasons, other) for part, below in parts]
    if isinstance(condition, Not):
        return None if verdicts[0] is None else not verdicts[0]
    decisive = isinstance(condition, Or)
    return decisive if decisive in verdicts else None if None in verdicts else not decisive


@given(filters(), publications())
def test_json_can_be_dumped_and_holds_everything(condition: Filter, publication: dict[str, Any]) -> None:
    explanation = condition.explain(publication)
    item = json.loads(json.dumps(explanation.to_json()))
    assert item["verdict"] is explanation.verdict
    assert item["text"] == explanation.text
    assert item["values"] == dict(explanation.values)
    assert len(item.get("parts", ())) == len(explanation.parts)


def test_in_words() -> None:
    assert str(FILTER.explain({"a": 1, "s": "air/no2"})) == (
        "unknown: (a > 1 OR s LIKE 'air%') AND b NOT BETWEEN 0 AND 5\n"
        "  true: a > 1 OR s LIKE 'air%'\n"
        "    false: a > 1   (a is 1)\n"
        "    true: s LIKE 'air%'   (s is 'air/no2')\n"
        "  unknown: b NOT BETWEEN 0 AND 5\n"
        "    unknown: b BETWEEN 0 AND 5   (b is missing)"
    )
    assert str(parse_filter("TRUE").explain({})) == "true: TRUE"
    assert str(parse_filter("a = b").explain({"b": True})) == "unknown: a = b   (b is TRUE; a is missing)"


def test_as_json() -> None:
    assert parse_filter("NOT a > 1").explain({"a": 2, "b": 3}).to_json() == {
        "text": "NOT a > 1",
        "verdict": False,
        "values": {"a": 2.0},
        "parts": [{"text": "a > 1", "verdict": True, "values": {"a": 2.0}}],
    }


def test_a_location_reads_lat_and_long() -> None:
    explanation = parse_filter("S_WITHIN(location, BBOX(0, 0, 1, 1))").explain({"lat": 5})
    assert explanation.values == {"lat": 5.0, "long": None}


def test_reasons_are_the_smallest_deciding_parts() -> None:
    def reasons(publication: dict[str, Any]) -> list[str]:
        return [part.text for part in FILTER.explain(publication).reasons()]

    assert reasons({"a": 2, "s": "x", "b": 7}) == ["a > 1", "b BETWEEN 0 AND 5"]
    assert reasons({"a": 0, "s": "x", "b": 7}) == ["a > 1", "s LIKE 'air%'"]
    assert reasons({"a": 2, "s": "air", "b": 3}) == ["b BETWEEN 0 AND 5"]
    assert reasons({"a": 2, "s": "air"}) == ["b BETWEEN 0 AND 5"]
    assert reasons({"a": 0, "b": 9}) == ["s LIKE 'air%'"]
