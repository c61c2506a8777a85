"""CQL2 JSON: filters from the objects that JSON gives, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from . import instants
from .errors import SyntaxError
from .expression import (
    And,
    Arithmetic,
    Between,
    Call,
    CaseFold,
    Compare,
    Constant,
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
    Or,
    Property,
    Spatial,
    Temporal,
    conjunction,
    disjunction,
)
from .geometry import BBox, Geometry, MultiPolygon, Point, Polygon, Position, Ring
from .json_source import BadJson, Path, RepeatedKey
from .limits import MAX_DEPTH, can_be_number, check_bbox, check_depth, check_position, check_ring, check_string
from .text import FUNCTIONS, plural, read_filter

T = TypeVar("T")

_COMPARISONS = ("=", "<>", "<", ">", "<=", ">=")
_ARITHMETIC = ("+", "-", "*", "/", "%", "div", "^")
_SPATIAL = {"s_intersects": "intersects", "s_within": "within"}
_TEMPORAL = {"t_before": "before", "t_after": "after", "t_during": "during"}
_LOCATION = {"property": "location"}


def filter_from_json(item: Any, source: str | None = None) -> Filter:
    """A filter from CQL2 JSON objects. With their source text, errors name line and column in it."""
    try:
        return read_condition(item, ())
    except BadJson as error:
        raise error.located(source) from None


def read_condition(item: Any, path: Path) -> Filter:
    """A whole condition at a path: CQL2 JSON, TRUE or FALSE, or CQL2 Text in a string."""
    if isinstance(item, str):
        return read_embedded(item, path, read_filter)
    return _checked(check_depth, _condition(item, path), path)


def read_number(item: Any, path: Path) -> Expression:
    """A whole value at a path that can be a number."""
    return _checked(check_depth, _number_value(item, path), path)


def _condition(item: Any, path: Path) -> Filter:
    if isinstance(item, bool):
        return Constant(item)
    if not isinstance(item, dict):
        raise BadJson(path, f"expected a condition, found {_kind(item)}", expected="a condition")
    name, arguments = _operation(item, path)
    make = _CONDITIONS.get(name)
    if make is None:
        kind = "a value" if name in (*_ARITHMETIC, "abs", "distance", "casei") else "unknown"
        known = ", ".join(_CONDITIONS).replace("isnull", "isNull")
        message = f"'{name[:40]}' is {kind}; expected a condition, one of {known}"
        raise BadJson((*path, "op"), message, found=name, expected="a condition")
    return make(name, arguments, (*path, "args"))


def read_embedded(text: str, path: Path, read: Callable[[str], T]) -> T:
    """Text inside JSON; its errors name the place in the text, and the path to it."""
    try:
        return read(text)
    except SyntaxError as error:
        message = f"{error.line}:{error.column} of this text: {error.message}"
        raise BadJson(path, message, found=error.found, expected=error.expected) from None


def _operation(item: Any, path: Path) -> tuple[str, list[Any]]:
    if path.count("args") > MAX_DEPTH:
        raise BadJson(path, f"nested deeper than {MAX_DEPTH} levels")
    members(item, path, ("op", "args"))
    if "op" not in item or not isinstance(item["op"], str):
        raise BadJson(path, 'expected an object with "op" and "args"', expected='"op"')
    arguments = item.get("args")
    if not isinstance(arguments, list):
        raise BadJson((*path, "args"), 'expected "args", an array', expected="an array")
    return item["op"].lower(), arguments


def members(item: Any, path: Path, known: tuple[str, ...]) -> None:
    """Fails unless the item is an object that has none but these members, each once."""
    if not isinstance(item, dict):
        raise BadJson(path, f"expected an object, found {_kind(item)}", expected="an object")
    if isinstance(item, RepeatedKey):
        raise BadJson((*path, item.key), f'"{item.key}" stands twice', found=item.key)
    for name in item:
        if name not in known:
            message = f'unknown member "{str(name)[:40]}"; expected {", ".join(known)}'
            raise BadJson((*path, name), message, found=str(name), expected=", ".join(known))


def _kind(item: Any) -> str:
    if item in ("", []):
        return "an empty array" if isinstance(item, list) else "an empty string"
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(item), "a number")


def _exactly(count: int, arguments: list[Any], path: Path) -> list[Any]:
    if len(arguments) != count:
        expected = plural(count, "argument")
        raise BadJson(path, f"expected {expected}, found {len(arguments)}", expected=expected)
    return arguments


def _joined(name: str, arguments: list[Any], path: Path) -> Filter:
    if len(arguments) < 2:
        raise BadJson(path, f"'{name}' takes 2 conditions or more", expected="2 conditions")
    parts = [_condition(item, (*path, i)) for i, item in enumerate(arguments)]
    return conjunction(*parts) if name == "and" else disjunction(*parts)


def _not(_name: str, arguments: list[Any], path: Path) -> Filter:
    return Not(_condition(_exactly(1, arguments, path)[0], (*path, 0)))


def _compare(name: str, arguments: list[Any], path: Path) -> Filter:
    left, right = _exactly(2, arguments, path)
    return Compare(name, _value(left, (*path, 0)), _value(right, (*path, 1)))  # type: ignore[arg-type]  # a key


def _between(_name: str, arguments: list[Any], path: Path) -> Filter:
    operand, low, high = _exactly(3, arguments, path)
    bounds = _number_value(low, (*path, 1)), _number_value(high, (*path, 2))
    return Between(_value(operand, (*path, 0)), *bounds)


def _in(_name: str, arguments: list[Any], path: Path) -> Filter:
    operand, values = _exactly(2, arguments, path)
    if not isinstance(values, list) or not values:
        raise BadJson((*path, 1), "expected an array of values that is not empty", expected="an array")
    return In(_value(operand, (*path, 0)), tuple(_value(item, (*path, 1, i)) for i, item in enumerate(values)))


def _like(_name: str, arguments: list[Any], path: Path) -> Filter:
    operand, pattern = _exactly(2, arguments, path)
    place: Path = (*path, 1)
    folds = _is_casei(pattern)
    while _is_casei(pattern):
        _, arguments = _operation(pattern, place)
        pattern, place = _exactly(1, arguments, (*place, "args"))[0], (*place, "args", 0)
    if not isinstance(pattern, str):
        raise BadJson(place, f"expected a pattern, a string, found {_kind(pattern)}", expected="a string")
    return Like(_value(operand, (*path, 0)), _checked(check_string, pattern, place), folds)


def _is_casei(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("op"), str) and item["op"].lower() == "casei"


def _is_null(_name: str, arguments: list[Any], path: Path) -> Filter:
    operand = _exactly(1, arguments, path)[0]
    if isinstance(operand, dict) and operand == {"op": "location", "args": []}:
        return IsNull(Location())
    return IsNull(_value(operand, (*path, 0)))


_CONDITIONS: dict[str, Callable[[str, list[Any], Path], Filter]] = {
    "and": _joined,
    "or": _joined,
    "not": _not,
    **dict.fromkeys(_COMPARISONS, _compare),
    "between": _between,
    "in": _in,
    "like": _like,
    "isnull": _is_null,
    **dict.fromkeys(_SPATIAL, lambda name, arguments, path: _spatial(name, arguments, path)),
    **dict.fromkeys(_TEMPORAL, lambda name, arguments, path: _temporal(name, arguments, path)),
}


# ---- values


def _number_value(item: Any, path: Path) -> Expression:
    number = _value(item, path)
    if not can_be_number(number):
        raise BadJson(path, f"expected a number, found {_kind(item)}", expected="a number")
    return number


def _value(item: Any, path: Path) -> Expression:
    if isinstance(item, bool):
        return Literal(item)
    if isinstance(item, str):
        return Literal(_checked(check_string, item, path))
    if isinstance(item, int | float):
        return Literal(_number(item, path))
    if not isinstance(item, dict):
        hint = "; a test for a missing attribute is isNull" if item is None else ""
        raise BadJson(path, f"expected a value, found {_kind(item)}{hint}", expected="a value")
    if "op" not in item:
        return _named_value(item, path)
    name, arguments = _operation(item, path)
    inner: Path = (*path, "args")
    if name in _ARITHMETIC:
        left, right = _exactly(2, arguments, inner)
        operands = _number_value(left, (*inner, 0)), _number_value(right, (*inner, 1))
        return Arithmetic(name, *operands)  # type: ignore[arg-type]  # one of _ARITHMETIC
    if name == "casei":
        operand = _value(_exactly(1, arguments, inner)[0], (*inner, 0))
        if isinstance(operand, Literal) and not isinstance(operand.value, str):
            raise BadJson((*inner, 0), "expected a string", expected="a string")
        return operand if isinstance(operand, CaseFold) else CaseFold(operand)
    if name.upper() in FUNCTIONS:
        items = _exactly(FUNCTIONS[name.upper()], arguments, inner)
        values = tuple(_number_value(item, (*inner, i)) for i, item in enumerate(items))
        return Call(name, values)  # type: ignore[arg-type]  # a key of FUNCTIONS
    kind = "a condition" if name in _CONDITIONS else "unknown"
    known = ", ".join((*_ARITHMETIC, "casei", "abs", "distance"))
    raise BadJson((*path, "op"), f"'{name[:40]}' is {kind}; expected a value, one of {known}", expected="a value")


def _named_value(item: dict[str, Any], path: Path) -> Expression:
    members(item, path, ("property", "date", "timestamp"))
    if len(item) != 1:
        raise BadJson(path, 'expected one of "op", "property", "date" and "timestamp"', expected="a value")
    ((kind, value),) = item.items()
    if not isinstance(value, str) or not value:
        raise BadJson((*path, kind), f"expected a string that is not empty, found {_kind(value)}", expected="a string")
    _checked(check_string, value, (*path, kind))
    return Property(value) if kind == "property" else _moment(value, (*path, kind), date=kind == "date")


def _number(item: Any, path: Path) -> float:
    try:
        number = float(item) if isinstance(item, int | float) and not isinstance(item, bool) else None
    except OverflowError:
        number = math.inf
    if number is None or not math.isfinite(number):
        found = _kind(item) if number is None else "one that no double can hold"
        raise BadJson(path, f"expected a number, found {found}", expected="a number")
    return number


def _moment(text: str, path: Path, *, date: bool) -> Instant:
    try:
        return Instant((instants.parse_date if date else instants.parse_timestamp)(text), date)
    except ValueError as error:
        raise BadJson(path, str(error), found=text, expected="a date" if date else "a timestamp") from None


# ---- time


def _temporal(name: str, arguments: list[Any], path: Path) -> Filter:
    left, right = (_temporal_side(item, (*path, i)) for i, item in enumerate(_exactly(2, arguments, path)))
    if name == "t_during" and not isinstance(right, Interval):
        raise BadJson((*path, 1), "expected an interval", expected="an interval")
    return Temporal(_TEMPORAL[name], left, right)  # type: ignore[arg-type]  # a value of _TEMPORAL


def _temporal_side(item: Any, path: Path) -> Expression | Interval:
    if not (isinstance(item, dict) and "interval" in item):
        return _number_value(item, path)
    members(item, path, ("interval",))
    path = (*path, "interval")
    if not isinstance(item["interval"], list) or len(item["interval"]) != 2:
        raise BadJson(path, "an interval has two ends", expected="two ends")
    start, end = (_interval_end(value, (*path, i)) for i, value in enumerate(item["interval"]))
    if start and end and start.seconds > end.seconds:
        raise BadJson(path, "an interval that ends before it starts")
    return Interval(start, end)


def _interval_end(item: Any, path: Path) -> Instant | None:
    if isinstance(item, dict):
        value = _named_value(item, path)
        if isinstance(value, Instant):
            return value
    if not isinstance(item, str):
        raise BadJson(path, "expected a date, a timestamp or '..'", expected="a date")
    return None if item == ".." else _moment(item, path, date="T" not in item)


# ---- place


def _spatial(name: str, arguments: list[Any], path: Path) -> Filter:
    first, second = _exactly(2, arguments, path)
    if (first == _LOCATION) == (second == _LOCATION):
        raise BadJson(path, 'one side must be {"property": "location"}, the other a geometry', expected="location")
    location_first = first == _LOCATION
    place: Path = (*path, 1 if location_first else 0)
    geometry = _geometry(second if location_first else first, place)
    return Spatial(_SPATIAL[name], geometry, location_first)  # type: ignore[arg-type]  # a value of _SPATIAL


def _geometry(item: Any, path: Path) -> Geometry:
    members(item, path, ("type", "coordinates", "bbox"))
    if "bbox" in item and "type" not in item:
        numbers = _array(item["bbox"], (*path, "bbox"), _number)
        if len(numbers) != 4:
            raise BadJson((*path, "bbox"), f"a bbox has 4 numbers, not {len(numbers)}", expected="4 numbers")
        return _checked(check_bbox, BBox(*numbers), (*path, "bbox"))
    inner: Path = (*path, "coordinates")
    match item.get("type"):
        case "Point":
            return Point(_position(item.get("coordinates"), inner))
        case "Polygon":
            return _polygon(item.get("coordinates"), inner)
        case "MultiPolygon":
            return MultiPolygon(tuple(_array(item.get("coordinates"), inner, _polygon)))
    message = "expected a geometry: Point, Polygon, MultiPolygon or bbox"
    raise BadJson((*path, "type"), message, expected="a geometry")


def _array(item: Any, path: Path, read: Callable[[Any, Path], T]) -> list[T]:
    if not isinstance(item, list) or not item:
        raise BadJson(path, f"expected an array that is not empty, found {_kind(item)}", expected="an array")
    return [read(value, (*path, i)) for i, value in enumerate(item)]


def _polygon(item: Any, path: Path) -> Polygon:
    return Polygon(tuple(_array(item, path, _ring)))


def _ring(item: Any, path: Path) -> Ring:
    return _checked(check_ring, tuple(_array(item, path, _position)), path)


def _position(item: Any, path: Path) -> Position:
    numbers = _array(item, path, _number)
    if len(numbers) != 2:
        raise BadJson(path, f"a position has 2 numbers, not {len(numbers)}", expected="2 numbers")
    return _checked(check_position, (numbers[0], numbers[1]), path)


def _checked(check: Callable[[T], None], item: T, path: Path) -> T:
    try:
        check(item)
    except ValueError as error:
        raise BadJson(path, str(error)) from None
    return item


# ---- back to JSON


def filter_to_json(condition: Filter) -> Any:
    """CQL2 JSON of a filter."""
    match condition:
        case Constant(value):
            return _op("=", _op("/", 0, 0), 0) if value is None else value
        case Compare(operator, left, right):
            return _op(operator, value_to_json(left), value_to_json(right))
        case And(operands):
            return _op("and", *map(filter_to_json, operands))
        case Or(operands):
            return _op("or", *map(filter_to_json, operands))
        case Not(operand):
            return _op("not", filter_to_json(operand))
        case Between(operand, low, high):
            return _op("between", *map(value_to_json, (operand, low, high)))
        case In(operand, values):
            return _op("in", value_to_json(operand), [value_to_json(item) for item in values])
        case Like(operand, pattern, fold_pattern):
            return _op("like", value_to_json(operand), _op("casei", pattern) if fold_pattern else pattern)
        case IsNull(operand):
            return _op("isNull", value_to_json(operand))
        case Temporal(operator, left, right):
            return _op(f"t_{operator}", _side_to_json(left), _side_to_json(right))
        case Spatial(operator, geometry, location_first):
            sides = [dict(_LOCATION), geometry_to_json(geometry)]
            return _op(f"s_{operator}", *(sides if location_first else reversed(sides)))
    raise TypeError(f"not a condition: {condition!r}")


def _op(name: str, *arguments: Any) -> dict[str, Any]:
    return {"op": name, "args": list(arguments)}


def value_to_json(expression: Expression) -> Any:
    """CQL2 JSON of a value."""
    match expression:
        case Literal(value):
            return _plain(value)
        case Property(name):
            return {"property": name}
        case Instant():
            return {"date" if expression.is_date else "timestamp": _moment_text(expression)}
        case Arithmetic(operator, left, right):
            return _op(operator, value_to_json(left), value_to_json(right))
        case Call(name, arguments):
            return _op(name, *map(value_to_json, arguments))
        case CaseFold(operand):
            return _op("casei", value_to_json(operand))
        case Location():
            return _op("location")
    raise TypeError(f"not a value: {expression!r}")


def _plain(value: float | str | bool) -> float | str | bool | int:
    """Whole numbers without a point, as people write them."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


def _moment_text(instant: Instant) -> str:
    return (instants.format_date if instant.is_date else instants.format_timestamp)(instant.seconds)


def _side_to_json(side: Node) -> Any:
    if isinstance(side, Interval):
        return {"interval": [_moment_text(end) if end else ".." for end in (side.start, side.end)]}
    assert isinstance(side, Expression)
    return value_to_json(side)


def geometry_to_json(geometry: Geometry) -> dict[str, Any]:
    """GeoJSON, or a bbox."""
    match geometry:
        case BBox(west, south, east, north):
            return {"bbox": [_plain(number) for number in (west, south, east, north)]}
        case Point(position):
            return {"type": "Point", "coordinates": [_plain(number) for number in position]}
        case Polygon(rings):
            return {"type": "Polygon", "coordinates": _rings_to_json(rings)}
    polygons = [_rings_to_json(polygon.rings) for polygon in geometry.polygons]
    return {"type": "MultiPolygon", "coordinates": polygons}


def _rings_to_json(rings: tuple[Ring, ...]) -> list[Any]:
    return [[[_plain(number) for number in position] for position in ring] for ring in rings]
