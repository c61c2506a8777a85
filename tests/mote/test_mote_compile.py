"""Programs mean what their filters mean: the verdicts of the mote's machines against the reference's."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine_kit import ATTRIBUTES, CONSTANTS, KNOWN, Raws, checked, content, decoded, publication, run, samples
from strategies import filters, seeds

from spinney import Knowledge, Known, mote, parse, parse_filter
from spinney.expression import (
    Arithmetic,
    Between,
    Call,
    Compare,
    Expression,
    Filter,
    In,
    IsNull,
    Literal,
    Not,
    Property,
    conjunction,
    disjunction,
)
from spinney.mote import Attribute, Compiled, Delivery, Refusal
from spinney.subscription import DeadBand, StateSubscription

TEMPERATURE = Attribute("temp", 1, 100, -4_000, 8_500)


# ---- random filters


def check(condition: Filter, random: Random, known: Known = KNOWN) -> None:
    for wanted, asked in ((True, condition), (False, Not(condition))):
        compiled = mote.compile(content(asked), known, ATTRIBUTES)
        for raws in samples(random, condition):
            holds = condition.evaluate(publication(raws)) is wanted
            if isinstance(compiled, Refusal):
                assert not (compiled.never and holds), f"{raws} is wanted"
            elif compiled.weaker:
                assert run(checked(compiled), raws) or not holds, f"weaker, yet misses {raws}"
            else:
                assert run(checked(compiled), raws) is holds, f"{raws}"


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(filters(2), seeds())
def test_programs_of_the_whole_language_agree_or_are_weaker(condition: Filter, random: Random) -> None:
    check(condition, random)


_NAMES = st.sampled_from([item.name for item in ATTRIBUTES]).map(Property)
_CONSTANTS = st.sampled_from((0.0, 0.01, 0.1, 0.25, 0.3, 0.5, 1.0, 2.0, 2.5, 3.0, -1.0, -2.5, 10.0, 0.07, 1e-7, 100.0))
_OPERATORS = st.sampled_from(("=", "<>", "<", ">", "<=", ">="))


def _computed(depth: int) -> st.SearchStrategy[Expression]:
    if depth == 0:
        return st.one_of(_NAMES, _NAMES, _CONSTANTS.map(Literal))
    inner = _computed(depth - 1)
    signs = st.sampled_from(("+", "-", "*", "+", "-"))
    return st.one_of(
        inner,
        st.builds(Arithmetic, signs, inner, inner),
        st.builds(Arithmetic, st.sampled_from(("*", "/", "^")), inner, _CONSTANTS.map(Literal)),
        st.builds(lambda operand: Call("abs", (operand,)), inner),
    )


_COMPARISONS = st.one_of(
    st.builds(Compare, _OPERATORS, _computed(2), _computed(1)),
    st.builds(Compare, _OPERATORS, _NAMES, _CONSTANTS.map(Literal)),
    st.builds(Between, _computed(1), _CONSTANTS.map(Literal), _computed(0)),
    st.builds(In, _computed(1), st.lists(_CONSTANTS.map(Literal), min_size=1, max_size=4).map(tuple)),
    st.builds(IsNull, _computed(1)),
)
_JOINED = st.lists(_COMPARISONS, min_size=2, max_size=3)
COMPUTED = st.one_of(
    _COMPARISONS, _JOINED.map(lambda items: conjunction(*items)), _JOINED.map(lambda items: disjunction(*items))
)


@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow])
@given(COMPUTED, seeds())
def test_programs_of_computations_agree_or_are_weaker(condition: Filter, random: Random) -> None:
    check(condition, random)


@pytest.mark.soak
@settings(max_examples=20_000, suppress_health_check=[HealthCheck.too_slow])
@given(st.one_of(COMPUTED, filters(3)), seeds())
def test_programs_agree_or_are_weaker_many_times_over(condition: Filter, random: Random) -> None:
    check(condition, random)


# ---- exact, weaker, refused


@pytest.mark.parametrize(
    "text",
    [
        "a > 0.07",
        "a * 9 / 5 + 32 > 77",
        "abs(a) >= 0.3 AND NOT (b < 0.1 OR c = 2.5)",
        "a > b",
        "a * 1000 >= 70 AND a ^ 2 <> 0.09",
        "c + d > 3.3 OR d * 2 - c = 1 OR b IS NULL",
        "lat >= long",
        "abs(c - d) < 2.5",
        "a div 90 = 1",
        "c * d > 4",
        "S_INTERSECTS(location, BBOX(15.9, 45.7, 16.1, 45.9))",
        "NOT S_WITHIN(location, BBOX(15.9, 45.7, 16.1, 45.9))",
        "s LIKE 'air/%' AND a BETWEEN 0.1 AND 0.3",
        "t = 'x' OR a IN (0.1, 0.2, 0.3)",
    ],
)
def test_what_the_mote_can_say_exactly_is_exact(text: str) -> None:
    condition = parse_filter(text)
    compiled = mote.compile(content(condition), KNOWN, ATTRIBUTES)
    assert isinstance(compiled, Compiled)
    assert not compiled.weaker
    assert compiled.reasons == ()
    check(condition, Random(text))


@pytest.mark.parametrize("text", ["c + lat > c + 3", "c * b > 10", "abs(c * c - a) > 2"])
def test_other_sums_are_exact_or_say_why_not(text: str) -> None:
    compiled = mote.compile(content(parse_filter(text)), KNOWN, ATTRIBUTES)
    assert isinstance(compiled, Compiled)
    assert compiled.weaker == bool(compiled.reasons)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a - b > 2.5", "a - b > 2.5: doubles round it"),
        ("distance(lat, long, 45.815, 16) < 500", "more than sums and products"),
        ("S_WITHIN(location, POLYGON((15 45, 16 45, 15.5 46, 15 45)))", "the mote cannot compute it"),
        ("lat * lat > long", "overflow int32"),
        ("a > 3 AND place = 'Zagreb'", "does not measure place"),
        ("a > 3 AND time > TIMESTAMP('2026-01-01T00:00:00Z')", "does not measure time"),
        ("a * b * c > 1", "more than sums and products"),
    ],
)
def test_what_is_not_exact_is_weaker_and_says_why(text: str, reason: str) -> None:
    condition = parse_filter(text)
    compiled = mote.compile(content(condition), KNOWN, ATTRIBUTES)
    if isinstance(compiled, Refusal):
        assert reason in compiled.why
    else:
        assert compiled.weaker
        assert any(reason in one for one in compiled.reasons)
    check(condition, Random(text))


def test_a_circle_becomes_a_box_that_still_keeps_most_away() -> None:
    condition = parse_filter("distance(lat, long, 45.815, 16) < 500")
    compiled = mote.compile(content(condition), KNOWN, ATTRIBUTES)
    assert isinstance(compiled, Compiled)
    program = checked(compiled)
    assert run(program, (None, None, None, 45_815, 159, None)) is False
    assert run(program, (None, None, None, 45_900, 160, None)) is False
    assert run(program, (None, None, None, 45_815, 160, None)) is True


def test_what_would_filter_nothing_is_refused_with_the_reason() -> None:
    answer = mote.compile(content(parse_filter("place = 'Zagreb'")), KNOWN, ATTRIBUTES)
    assert isinstance(answer, Refusal)
    assert not answer.never
    assert "place" in answer.why


@pytest.mark.parametrize("text", ["a > 200", "s = 'other'", "WHEN t = 'x' UNTIL t = 'y'", "TOP 3 OVER 1h BY t"])
def test_what_no_sample_can_match_is_never(text: str) -> None:
    answer = mote.compile(parse(text), KNOWN, ATTRIBUTES)
    assert isinstance(answer, Refusal)
    assert answer.never


def test_a_source_that_sets_valid_for_is_not_filtered_on_the_mote() -> None:
    known = Known({"valid_for": Knowledge.constant(60.0)})
    answer = mote.compile(content(parse_filter("a > 1")), known, ATTRIBUTES)
    assert isinstance(answer, Refusal)
    assert "L1" in answer.why


@pytest.mark.parametrize(
    ("p", "q", "text", "raw"),
    [
        (1, 100, "temp > 0.07", 7),
        (1, 100, "temp >= 0.07", 7),
        (1, 1000, "temp < 1.005", 1005),
        (1, 10, "temp = 0.3", 3),
        (3, 10, "temp > 0.9", 3),  # 3 * 0.3 is 0.8999999999999999 where constants are scaled
        (1, 3, "temp >= 0.3333333333333333", 1),
        (7, 100, "temp < 0.21", 3),
    ],
)
def test_thresholds_are_those_of_the_decoding(p: int, q: int, text: str, raw: int) -> None:
    attribute = Attribute("temp", p, q, -4_000, 8_500)
    condition = parse_filter(text)
    compiled = mote.compile(content(condition), Known(), [attribute])
    assert isinstance(compiled, Compiled)
    assert not compiled.weaker
    for near in range(raw - 2, raw + 3):
        wanted = condition.evaluate(decoded((near,), [attribute]))
        assert run(checked(compiled, (attribute,)), (near,)) is wanted, near


def test_sums_up_to_the_ends_of_int32_are_right_and_beyond_are_not_compiled() -> None:
    for high, fits in ((2**30 - 1, True), (2**30 + 1, False)):
        pair = (Attribute("x", 1, 1, -high, high), Attribute("y", 1, 1, -high, high))
        condition = parse_filter("x + y > 5")
        compiled = mote.compile(content(condition), Known(), pair)
        if fits:
            assert isinstance(compiled, Compiled)
            assert not compiled.weaker
            for raws in ((high, high), (-high, -high), (3, 2), (3, 3), (high, 5 - high), (high, 6 - high)):
                assert run(checked(compiled, pair), raws) is condition.evaluate(decoded(raws, pair))
        else:
            why = compiled.why if isinstance(compiled, Refusal) else " ".join(compiled.reasons)
            assert "overflow" in why


# ---- subscriptions


def state(text: str, **options: object) -> StateSubscription:
    parsed = parse(text)
    assert isinstance(parsed, StateSubscription)
    for name, option in options.items():
        object.__setattr__(parsed, name, option)
    return parsed


@pytest.mark.parametrize(
    ("subscription", "reason"),
    [
        (state("WHEN a > 1 UNTIL b > 1"), "S2"),
        (state("WHEN a > 1 UNTIL a < 0 EACH b"), "EACH b"),
        (state("WHEN a > 1 UNTIL a < 0 EACH room"), "EACH room"),
        (state("WHEN a - b > 1 UNTIL a - b < 0"), "doubles round it"),
        (state("WHEN a > 1 UNTIL a < 0", dead_band=DeadBand(attribute="place", by=1.0)), "the dead band's place"),
    ],
)
def test_a_bit_that_cannot_be_kept_exactly_is_left_to_the_broker(subscription: StateSubscription, reason: str) -> None:
    compiled = mote.compile(subscription, KNOWN, ATTRIBUTES)
    assert isinstance(compiled, Compiled)
    assert not compiled.keeps_bit
    assert any(reason in one for one in compiled.reasons)


@pytest.mark.parametrize("text", ["WHEN a > 1 UNTIL a < 0", "WHEN a > 1 UNTIL a < 0 FOR b > 0 EACH s"])
def test_a_bit_that_can_be_kept_is_kept(text: str) -> None:
    compiled = mote.compile(parse(text), KNOWN, ATTRIBUTES)
    assert isinstance(compiled, Compiled)
    assert compiled.keeps_bit
    assert compiled.reasons == ()


def test_a_program_under_another_number_is_as_if_it_had_been_made_so() -> None:
    subscription, options = parse("WHEN a > 2.5 UNTIL a <= 2.2 FOR b > 1"), {"heartbeat": 60.0, "critical": True}
    one, other = (mote.compile(subscription, KNOWN, ATTRIBUTES, Delivery(*to, **options)) for to in ((1, 2), (700, 8)))
    assert isinstance(one, Compiled)
    assert isinstance(other, Compiled)
    assert mote.addressed(one.program, 700, 8) == other.program != one.program
    named = [replace(item, name=item.name.upper()) for item in ATTRIBUTES]
    theirs = mote.addressed(one.program, 700, 8, mote.layout(named))
    assert mote.addressed(theirs, 700, 8, mote.layout(ATTRIBUTES)) == other.program != theirs


def test_three_comparisons_with_their_status_take_less_than_150_bytes() -> None:
    text = "WHEN a > 25 AND b < 40 AND lat > 2000 UNTIL a < 22 OR b > 45 OR lat < 1"
    compiled = mote.compile(parse(text.replace("2000", "50.5")), KNOWN, ATTRIBUTES, Delivery(7, heartbeat=60))
    assert isinstance(compiled, Compiled)
    assert len(checked(compiled)) + 15 <= 150


def test_a_mote_has_at_most_29_attributes() -> None:
    many = [Attribute(f"x{index}", 1, 1, 0, 9) for index in range(30)]
    with pytest.raises(ValueError, match="at most 29"):
        mote.compile(content(parse_filter("x1 > 3")), Known(), many)


@pytest.mark.parametrize(("p", "q", "low", "high"), [(0, 1, 0, 1), (1, 0, 0, 1), (1, 1, 2, 1), (1, 1, 0, 2**31)])
def test_an_attribute_that_cannot_be_is_refused(p: int, q: int, low: int, high: int) -> None:
    with pytest.raises(ValueError, match="x"):
        Attribute("x", p, q, low, high)


def test_samples_of_this_test_hit_ties_and_gaps() -> None:
    """Otherwise nothing above would be shown."""
    condition = parse_filter("a > 2.5")
    found: list[Raws] = samples(Random(1), condition, count=200)
    assert {249, 250, 251, None} <= {raws[0] for raws in found}
    assert CONSTANTS.keys() <= publication(found[0]).keys()
