"""Random filters over the whole language, subscriptions, and publications, from pools small enough to collide.

Every filter here can be written as text and as JSON. Attributes mostly hold what their filters expect of them, but may
be missing or of another type, so that all three verdicts come up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from hypothesis import strategies as st

from spinney.expression import (
    FALSE,
    TRUE,
    UNKNOWN,
    Arithmetic,
    Between,
    Call,
    CaseFold,
    Compare,
    Expression,
    Filter,
    In,
    Instant,
    Interval,
    IsNull,
    Like,
    Literal,
    Location,
    Node,
    Not,
    Property,
    Spatial,
    Temporal,
    conjunction,
    disjunction,
)
from spinney.geometry import BBox, Geometry, MultiPolygon, Point, Polygon
from spinney.intervals import ranges
from spinney.known import Knowledge, Known
from spinney.subscription import ContentSubscription, DeadBand, StateSubscription, Subscription, TopKSubscription

NUMBER_ATTRIBUTES = ("a", "b", "c", "time", "lat", "long")
STRING_ATTRIBUTES = ("s", "t")
BOOLEAN_ATTRIBUTES = ("flag",)
ATTRIBUTES = NUMBER_ATTRIBUTES + STRING_ATTRIBUTES + BOOLEAN_ATTRIBUTES

MOMENTS = (0.0, 86_400.0, 1_000_000.5, 1_763_424_000.0, 1_763_467_200.25)
DAYS = (0.0, 86_400.0, 1_763_424_000.0)
NUMBERS = (-180.0, -10.0, -2.0, -1.0, -0.5, 0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 10.0, 180.0)
EXTREME_NUMBERS = (5e-324, 0.30000000000000004, 1.0000000000000002, 2.0**53, 1.7976931348623157e308, -1e300)
STRINGS = (
    *("", "a", "air", "air/", "air/no2", "air/o3", "AIR/NO2", "Straße", "STRASSE"),
    *("100%", "a_b", "\\", "\uffff", "😀"),
)
PATTERNS = (
    *("", "%", "_", "air", "air/%", "air%", "air/no%", "air/no_", "AIR/%", "%no2", "%/%", "a%/%2", "_ir%"),
    *("100\\%", "a\\_b", "\\\\", "stra__e", "STRASSE%", "%😀"),
)
COORDINATES = (-180.0, -170.0, -10.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 10.0, 170.0, 180.0)
LATITUDES = tuple(number for number in COORDINATES if abs(number) <= 90)

SQUARE = ((0.0, 0.0), (4.0, 0.0), (4.0, 4.0), (0.0, 4.0), (0.0, 0.0))
HOLE = ((1.0, 1.0), (3.0, 1.0), (3.0, 3.0), (1.0, 3.0), (1.0, 1.0))
TRIANGLE = ((0.0, 0.0), (3.0, 0.1), (1.0, 2.0), (0.0, 0.0))
ARROW = ((-10.0, -10.0), (0.5, 0.0), (10.0, -10.0), (0.5, 10.0), (-10.0, -10.0))
GEOMETRIES: tuple[Geometry, ...] = (
    Point((1.0, 1.0)),
    Point((0.5, 0.0)),
    Polygon((SQUARE,)),
    Polygon((SQUARE[::-1], HOLE)),
    Polygon((HOLE,)),
    Polygon((TRIANGLE,)),
    Polygon((ARROW,)),
    MultiPolygon((Polygon((HOLE,)), Polygon((ARROW,)))),
    MultiPolygon((Polygon((TRIANGLE,)),)),
)


def numbers() -> st.SearchStrategy[float]:
    """Mostly small ones that collide, sometimes at the edge of what doubles can do."""
    return st.sampled_from((*NUMBERS, *NUMBERS, *EXTREME_NUMBERS))


def values() -> st.SearchStrategy[float | str | bool]:
    """Anything that an attribute can hold."""
    return st.one_of(numbers(), st.sampled_from(STRINGS), st.booleans())


def _usual_values(name: str) -> st.SearchStrategy[Any]:
    if name == "time":
        return st.sampled_from((*MOMENTS, 0.5, 1e9))
    if name in ("lat", "long"):
        return st.sampled_from(LATITUDES if name == "lat" else COORDINATES)
    if name in STRING_ATTRIBUTES:
        return st.sampled_from(STRINGS)
    return st.booleans() if name in BOOLEAN_ATTRIBUTES else numbers()


@st.composite
def publications(draw: st.DrawFn) -> dict[str, float | str | bool]:
    """Each attribute is there as expected, of any type, or missing."""
    publication: dict[str, float | str | bool] = {}
    for name in ATTRIBUTES:
        kind = draw(st.integers(0, 9))
        if kind < 7:
            publication[name] = draw(_usual_values(name))
        elif kind == 7:
            publication[name] = draw(values())
    return publication


# ---- values in filters

_LITERAL_NUMBERS = numbers().map(Literal)
_INSTANTS = st.one_of(
    st.sampled_from(MOMENTS).map(Instant), st.sampled_from(DAYS).map(lambda seconds: Instant(seconds, is_date=True))
)
_NUMBER_PROPERTIES = st.sampled_from(NUMBER_ATTRIBUTES).map(Property)
_PROPERTIES = st.sampled_from(ATTRIBUTES).map(Property)
_OPERATORS = st.sampled_from(("=", "<>", "<", ">", "<=", ">="))
_ARITHMETIC = st.sampled_from(("+", "-", "*", "/", "%", "div", "^"))


def numeric_expressions(depth: int = 2) -> st.SearchStrategy[Expression]:
    """Numbers, attributes and computations with them."""
    leaves = st.one_of(_NUMBER_PROPERTIES, _LITERAL_NUMBERS, _NUMBER_PROPERTIES, _INSTANTS)
    if depth == 0:
        return leaves
    inner = numeric_expressions(depth - 1)
    arithmetic = st.builds(Arithmetic, _ARITHMETIC, inner, inner)
    absolute = inner.map(lambda item: Call("abs", (item,)))
    place = st.one_of(_LITERAL_NUMBERS, _NUMBER_PROPERTIES)
    distance = st.tuples(st.just(Property("lat")), st.just(Property("long")), place, place).map(
        lambda items: Call("distance", items)
    )
    return st.one_of(leaves, leaves, arithmetic, arithmetic, absolute, distance)


def string_expressions() -> st.SearchStrategy[Expression]:
    """Strings and attributes, folded or not."""
    plain = st.one_of(
        st.sampled_from(STRING_ATTRIBUTES).map(Property), st.sampled_from(STRINGS).map(Literal), _PROPERTIES
    )
    return st.one_of(plain, plain, plain.map(CaseFold).filter(lambda item: not _is_number(item.operand)))


def _is_number(item: Expression) -> bool:
    return isinstance(item, Literal) and not isinstance(item.value, str)


def expressions(depth: int = 2) -> st.SearchStrategy[Expression]:
    """Any value."""
    return st.one_of(numeric_expressions(depth), string_expressions(), st.booleans().map(Literal), _PROPERTIES)


# ---- conditions


def _range_conditions() -> st.SearchStrategy[Filter]:
    """What people write most: one attribute against a constant."""
    number = st.one_of(_LITERAL_NUMBERS, _LITERAL_NUMBERS, _INSTANTS)
    return st.one_of(
        st.builds(Compare, _OPERATORS, _NUMBER_PROPERTIES, number),
        st.builds(Compare, _OPERATORS, number, _NUMBER_PROPERTIES),
        st.builds(Between, _NUMBER_PROPERTIES, number, number),
        st.builds(In, _NUMBER_PROPERTIES, st.lists(number, min_size=1, max_size=4).map(tuple)),
    )


def _string_conditions() -> st.SearchStrategy[Filter]:
    strings = st.sampled_from(STRINGS).map(Literal)
    named = st.sampled_from(STRING_ATTRIBUTES).map(Property)
    return st.one_of(
        st.builds(Compare, _OPERATORS, named, strings),
        st.builds(In, string_expressions(), st.lists(string_expressions(), min_size=1, max_size=4).map(tuple)),
        st.builds(Like, named, st.sampled_from(PATTERNS)),
        st.builds(Like, string_expressions(), st.sampled_from(PATTERNS), st.booleans()),
    )


def _mixed_conditions() -> st.SearchStrategy[Filter]:
    """Comparisons of anything with anything."""
    bound = st.one_of(numeric_expressions(1), _PROPERTIES)
    anything = expressions(1)
    return st.one_of(
        st.builds(Compare, _OPERATORS, numeric_expressions(), numeric_expressions()),
        st.builds(Compare, _OPERATORS, anything, anything),
        st.builds(Compare, st.sampled_from(("=", "<>")), st.just(Property("flag")), st.booleans().map(Literal)),
        st.builds(Between, anything, bound, bound),
        st.builds(In, anything, st.lists(anything, min_size=1, max_size=3).map(tuple)),
        st.one_of(anything, _PROPERTIES, st.just(Location())).map(IsNull),
    )


@st.composite
def geometries(draw: st.DrawFn) -> Geometry:
    """Boxes, some across the antimeridian, points and polygons."""
    if draw(st.booleans()):
        return draw(st.sampled_from(GEOMETRIES))
    south, north = sorted((draw(st.sampled_from(LATITUDES)), draw(st.sampled_from(LATITUDES))))
    return BBox(draw(st.sampled_from(COORDINATES)), south, draw(st.sampled_from(COORDINATES)), north)


@st.composite
def _intervals(draw: st.DrawFn) -> Interval:
    start, end = draw(_INSTANTS), draw(_INSTANTS)
    if start.seconds > end.seconds:
        start, end = end, start
    shape = draw(st.integers(0, 3))
    return Interval(None if shape == 1 else start, None if shape == 2 else end)


def _special_conditions() -> st.SearchStrategy[Filter]:
    moment = st.one_of(st.just(Property("time")), st.just(Property("time")), _INSTANTS, numeric_expressions(1))
    side = st.one_of(moment, _intervals())
    return st.one_of(
        st.builds(
            Spatial, st.sampled_from(("intersects", "within")), geometries(), st.sampled_from((True, True, False))
        ),
        st.builds(Temporal, st.sampled_from(("before", "after")), side, side),
        st.builds(Temporal, st.just("during"), side, _intervals()),
    )


def conditions() -> st.SearchStrategy[Filter]:
    """One condition without AND, OR and NOT."""
    return st.one_of(
        _range_conditions(),
        _range_conditions(),
        _string_conditions(),
        _mixed_conditions(),
        _special_conditions(),
        st.sampled_from((TRUE, FALSE, UNKNOWN)),
    )


def filters(depth: int = 3) -> st.SearchStrategy[Filter]:
    """Any filter, with AND, OR and NOT nested at most so deep."""
    if depth == 0:
        return conditions()
    inner = filters(depth - 1)
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        conditions(),
        several.map(lambda items: conjunction(*items)),
        several.map(lambda items: disjunction(*items)),
        inner.map(Not),
    )


# ---- subscriptions

_names = st.sampled_from(ATTRIBUTES)
_maybe_filters = st.one_of(st.none(), filters(1))


def subscriptions() -> st.SearchStrategy[Subscription]:
    """All three kinds."""
    return st.one_of(content_subscriptions(), state_subscriptions(), top_k_subscriptions())


def content_subscriptions() -> st.SearchStrategy[ContentSubscription]:
    """Any filter."""
    return st.builds(ContentSubscription, filter=filters(2))


@st.composite
def state_subscriptions(draw: st.DrawFn) -> StateSubscription:
    """Now and then with the options that only JSON can say."""
    each = draw(st.one_of(st.none(), _names))
    options: dict[str, Any] = {}
    if draw(st.integers(0, 3)) == 0:
        options["debounce"] = draw(st.sampled_from((0.0, 1.0, 2.5)))
        options["reorder"] = draw(st.sampled_from((0.0, 5.0)))
        options["lost"] = draw(st.sampled_from((3600.0, 60.0)))
        options["dead_band"] = draw(st.one_of(st.none(), st.builds(DeadBand, attribute=_names, by=st.just(0.5))))
    return StateSubscription(
        enter=draw(filters(1)),
        exit=draw(filters(1)),
        only=draw(_maybe_filters),
        each=each,
        once=each is None and draw(st.booleans()),
        **options,
    )


@st.composite
def top_k_subscriptions(draw: st.DrawFn) -> TopKSubscription:
    """By time or by number."""
    last = draw(st.one_of(st.none(), st.sampled_from((1, 5, 1000))))
    return TopKSubscription(
        k=draw(st.sampled_from((1, 3, 10))),
        last=last,
        seconds=draw(st.sampled_from((0.5, 60.0, 86_400.0))) if last is None else None,
        score=draw(numeric_expressions(1)),
        descending=draw(st.booleans()),
        where=draw(_maybe_filters),
        each=draw(st.one_of(st.none(), _names)),
    )


# ---- publications made for given filters


def probes(random: Random, *conditions: Filter, count: int = 20, known: Known | None = None) -> list[dict[str, Any]]:
    """Publications whose values lie on and beside the constants of the filters, and that agree with what is known."""
    constants = [value for condition in conditions for value in _constants(condition)]
    return [_probe(random, constants, known or Known()) for _ in range(count)]


def _constants(node: Node) -> Iterator[float | str | bool]:
    if isinstance(node, Literal):
        yield node.value
    elif isinstance(node, Instant):
        yield node.seconds
    elif isinstance(node, Like):
        yield node.pattern.replace("%", "").replace("_", "x").replace("\\", "")
    elif isinstance(node, Spatial):
        yield from _coordinates(node.geometry)
    for child in node.children():
        yield from _constants(child)


def _coordinates(geometry: Geometry) -> Iterator[float]:
    match geometry:
        case Point(position):
            yield from position
        case BBox(west, south, east, north):
            yield from (west, south, east, north)
        case Polygon(rings):
            yield from (number for ring in rings for position in ring for number in position)
        case MultiPolygon(polygons):
            yield from (number for polygon in polygons for number in _coordinates(polygon))


def _probe(random: Random, constants: Sequence[float | str | bool], known: Known) -> dict[str, Any]:
    publication: dict[str, Any] = {}
    for name in ATTRIBUTES:
        allowed = known.environment.attribute(name)
        candidates = [value for value in _candidates(random, name, constants) if allowed.contains(value)]
        if not candidates and not allowed.null:
            candidates = [first for kind in (float, str, bool) for first, _ in ranges(allowed.of(kind))]
        if candidates and not (allowed.null and random.random() < 0.15):
            publication[name] = random.choice(candidates)
    return publication


def _candidates(random: Random, name: str, constants: Sequence[float | str | bool]) -> list[float | str | bool]:
    """Some values near the constants that the attribute would hold, and a few others."""
    usual = str if name in STRING_ATTRIBUTES else bool if name in BOOLEAN_ATTRIBUTES else float
    near = [value for value in constants if type(value) is usual] or list(constants)
    found: list[float | str | bool] = [random.choice(NUMBERS), random.choice(STRINGS), random.random() < 0.5]
    found = [value for value in found if type(value) is usual] * 2 + found
    for value in random.choices(near, k=4) if near else ():
        found.append(value)
        if isinstance(value, str):
            found += [value + "\0", value + "x", value[:-1], value.upper()]
        elif isinstance(value, float):
            found += [math.nextafter(value, -math.inf), math.nextafter(value, math.inf), value / 2]
    return [value for value in found if not isinstance(value, float) or math.isfinite(value)]


@st.composite
def knowns(draw: st.DrawFn) -> Known:
    """Some attributes in ranges, sets, of one type, always or never there; closed or not."""
    attributes: dict[str, Knowledge] = {}
    for name in ATTRIBUTES:
        kind = draw(st.integers(0, 7))
        presence = draw(st.sampled_from(("always", "maybe")))
        if kind == 0:
            attributes[name] = Knowledge.never()
        elif kind == 1:
            attributes[name] = Knowledge.constant(draw(_usual_values(name)), presence)
        elif kind in (2, 3) and name in NUMBER_ATTRIBUTES:
            low, high = sorted((draw(_usual_values(name)), draw(_usual_values(name))))
            attributes[name] = Knowledge.between(low, high, presence)
        elif kind == 4:
            some = draw(st.lists(st.one_of(_usual_values(name), values()), min_size=1, max_size=4))
            attributes[name] = Knowledge.one_of(some, presence)
        elif kind == 5:
            word = draw(st.sampled_from(("number", "string", "boolean", "any")))
            attributes[name] = Knowledge.from_json({"type": word, "presence": presence}, name)
    return Known(attributes, closed=draw(st.integers(0, 3)) == 0)


def seeds() -> st.SearchStrategy[Random]:
    """A source of chance for probes()."""
    return st.integers(0, 2**32 - 1).map(Random)


def simple_filters() -> st.SearchStrategy[Filter]:
    """Conjunctions of comparisons with constants on two attributes, so that pairs are often related."""
    number = st.sampled_from((0.0, 1.0, 2.0, 3.0)).map(Literal)
    named = st.sampled_from(("a", "b")).map(Property)
    one = st.one_of(
        st.builds(Compare, _OPERATORS, named, number),
        st.builds(Between, named, number, number),
        st.builds(In, named, st.lists(number, min_size=1, max_size=3).map(tuple)),
        st.builds(Like, st.just(Property("s")), st.sampled_from(PATTERNS)),
        st.builds(Spatial, st.sampled_from(("intersects", "within")), geometries()),
        st.builds(Compare, _OPERATORS, st.just(Property("a")), st.just(Property("b"))),
    )
    pair = st.lists(one, min_size=1, max_size=2)
    return st.one_of(one, pair.map(lambda items: conjunction(*items)), pair.map(lambda items: disjunction(*items)))
