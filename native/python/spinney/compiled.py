"""Filters as Python functions: the meaning of evaluate.py at a tenth of its time.

A filter becomes the source of a function in which names and constants are parameters. Filters of one shape share one
source, so that a hundred thousand subscriptions of a few shapes are compiled a few times.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from .casefold import fold
from .evaluate import arithmetic, call, compare, evaluate
from .expression import (
    And,
    Arithmetic,
    Between,
    Call,
    CaseFold,
    Compare,
    ComparisonOperator,
    Constant,
    Expression,
    Filter,
    In,
    Instant,
    IsNull,
    Like,
    Literal,
    Location,
    Not,
    Or,
    Property,
    Spatial,
    Temporal,
    Value,
)
from .geometry import Place
from .like import like, literal_prefix, segments
from .lowering import LAT, LONG, OPPOSITE, any_equal, between, is_computed, is_number, oriented, spatial, temporal
from .publication import attribute

Test = Callable[[Mapping[str, Any]], bool]

_MAX_SOURCE = 20_000
_MAX_NESTING = 150
"""Of parentheses. Beyond these, Python's compiler would be slow or refuse; the filter is then interpreted."""

_CACHED_SHAPES = 512


def compile_filter(condition: Filter, *, clean: bool = False) -> Test:
    """A function that tells whether the filter is TRUE of a publication.

    `clean` is for publications as `publication.read` returns them: nothing is checked or converted, and attributes are
    looked at only as far as they decide. Otherwise it refuses what evaluate refuses.
    """
    code = _Code()
    parts = [
        Part(code.test(part, True), len(code.names))
        for part in (condition.operands if isinstance(condition, And) else (condition,))
    ]
    make = _factory(code.source(parts, clean=clean))
    if make is None:
        return lambda publication: evaluate(condition, publication) is True
    return make(*code.names, *code.constants)


def _folded(text: Value | None) -> str | None:
    return fold(text) if isinstance(text, str) else None


def _absolute(number: Value | None) -> float | None:
    return call("abs", [number])


def _distance(*numbers: Value | None) -> float | None:
    return call("distance", list(numbers))


_GLOBALS = {
    "absolute": _absolute,
    "arithmetic": arithmetic,
    "attribute": attribute,
    "compare": compare,
    "distance": _distance,
    "folded": _folded,
    "INSIDE": Place.INSIDE,
    "like": like,
    "MAX": sys.float_info.max,
    "OUTSIDE": Place.OUTSIDE,
}


@lru_cache(_CACHED_SHAPES)
def _factory(source: str) -> Callable[..., Test] | None:
    nesting = accumulate((character == "(") - (character == ")") for character in source)
    if len(source) > _MAX_SOURCE or max(nesting) > _MAX_NESTING:
        return None
    namespace: dict[str, Any] = dict(_GLOBALS)
    exec(source, namespace)  # noqa: S102  # made below of our own words; what comes from outside is a parameter
    make: Callable[..., Test] = namespace["make"]
    return make


class Part(NamedTuple):
    """An expression, and how many of the attributes it can mention."""

    test: str
    attributes: int


class _Code:
    """Writes Python expressions. v0... are the values of attributes, c0... constants, w0... what is computed."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.constants: list[Any] = []
        self._computed = 0

    def source(self, parts: Sequence[Part], *, clean: bool) -> str:
        """The function that makes the test from names and constants; all parts must be true."""
        names = [f"k{i}" for i in range(len(self.names))]
        constants = [f"c{i}" for i in range(len(self.constants))]
        lines = [f"def make({', '.join(names + constants)}):", " def test(p):", "  get = p.get"]
        lines += _lazy(parts) if clean else _eager(parts)
        return "\n".join([*lines, " return test"])

    def test(self, condition: Filter, wanted: bool) -> str:
        """Whether the condition has the verdict that is wanted."""
        return _CONDITIONS[type(condition)](self, condition, wanted)

    def value(self, expression: Expression) -> str:
        """The value of an expression, None for null."""
        match expression:
            case Literal(constant):
                return self._constant(constant)
            case Instant(seconds):
                return self._constant(seconds)
            case Property(name):
                return self._attribute(name)
            case Arithmetic(operator, left, right):
                return f"arithmetic('{operator}', {self.value(left)}, {self.value(right)})"
            case Call(name, arguments):
                function = "absolute" if name == "abs" else "distance"
                return f"{function}({', '.join(map(self.value, arguments))})"
            case CaseFold(operand):
                return f"folded({self.value(operand)})"
        raise TypeError(f"not a value: {expression!r}")

    def _constant(self, constant: Any) -> str:
        self.constants.append(constant)
        return f"c{len(self.constants) - 1}"

    def _attribute(self, name: str) -> str:
        if name not in self.names:
            self.names.append(name)
        return f"v{self.names.index(name)}"

    def _once(self, expression: Expression) -> tuple[str, str]:
        """How to compute a value the first time, and what to call it then."""
        if isinstance(expression, Property):
            name = self._attribute(expression.name)
            return name, name
        self._computed += 1
        name = f"w{self._computed - 1}"
        return f"({name} := {self.value(expression)})", name

    # ---- conditions

    def constant(self, condition: Constant, wanted: bool) -> str:
        return str(condition.value is wanted)

    def all_of(self, condition: And, wanted: bool) -> str:
        return self._several(condition.operands, wanted, "and" if wanted else "or")

    def any_of(self, condition: Or, wanted: bool) -> str:
        return self._several(condition.operands, wanted, "or" if wanted else "and")

    def _several(self, operands: tuple[Filter, ...], wanted: bool, word: str) -> str:
        return f"({f' {word} '.join(self.test(operand, wanted) for operand in operands)})"

    def negation(self, condition: Not, wanted: bool) -> str:
        return self.test(condition.operand, not wanted)

    def compare(self, condition: Compare, wanted: bool) -> str:
        left, operator, right = oriented(condition)
        operator = operator if wanted else OPPOSITE[operator]
        constant = _constant_of(right)
        if isinstance(constant, bool):
            return self._compare_boolean(left, operator, constant)
        if constant is not None and (isinstance(left, Property) or is_number(left) is isinstance(constant, float)):
            return self._compare_constant(left, operator, constant)
        return f"(compare('{operator}', {self.value(left)}, {self.value(right)}) is True)"

    def _compare_constant(self, left: Expression, operator: ComparisonOperator, constant: float | str) -> str:
        first, name = self._once(left)
        sign = {"=": "==", "<>": "!="}.get(operator, operator)
        return f"({first}.__class__ is {type(constant).__name__} and {name} {sign} {self._constant(constant)})"

    def _compare_boolean(self, left: Expression, operator: ComparisonOperator, constant: bool) -> str:
        flags = tuple(flag for flag in (False, True) if compare(operator, flag, constant))
        first, name = self._once(left)
        return f"({first}.__class__ is bool and {name} in {flags})"

    def between(self, condition: Between, wanted: bool) -> str:
        low, high = _constant_of(condition.low), _constant_of(condition.high)
        if not isinstance(condition.operand, Property) or not isinstance(low, float) or not isinstance(high, float):
            return self.test(between(condition), wanted)
        name = self._attribute(condition.operand.name)
        inside = f"{self._constant(low)} <= {name} <= {self._constant(high)}"
        return f"({name}.__class__ is float and {_wanted(inside, wanted)})"

    def one_of(self, condition: In, wanted: bool) -> str:
        constants = frozenset(map(_constant_of, condition.values))
        kinds = {type(constant) for constant in constants}
        if kinds not in ({str}, {float}):
            return self.test(any_equal(condition), wanted)
        first, name = self._once(condition.operand)
        word = "in" if wanted else "not in"
        return f"({first}.__class__ is {kinds.pop().__name__} and {name} {word} {self._constant(constants)})"

    def like(self, condition: Like, wanted: bool) -> str:
        pattern = fold(condition.pattern) if condition.fold_pattern else condition.pattern
        first, name = self._once(condition.operand)
        head, *rest = segments(pattern)
        prefix = literal_prefix(pattern)
        if rest == [()] and len(prefix) == len(head):
            fits = f"{name}.startswith({self._constant(prefix)})"
        else:
            fits = f"like({name}, {self._constant(pattern)})"
        return f"({first}.__class__ is str and {_wanted(fits, wanted)})"

    def is_null(self, condition: IsNull, wanted: bool) -> str:
        if isinstance(condition.operand, Location):
            return _wanted(self._located(), not wanted)
        return f"({self.value(condition.operand)} is {'' if wanted else 'not '}None)"

    def spatial(self, condition: Spatial, wanted: bool) -> str:
        located = self._located()
        if is_computed(condition):
            within = self.test(spatial(condition, LONG, LAT), True)
        else:
            place = self._constant(condition.geometry.place)
            found = "is INSIDE" if condition.operator == "within" else "is not OUTSIDE"
            within = f"{place}({self.value(LONG)}, {self.value(LAT)}) {found}"
        return f"({located} and {_wanted(within, wanted)})"

    def _located(self) -> str:
        return f"({self.value(LONG)}.__class__ is float and {self.value(LAT)}.__class__ is float)"

    def temporal(self, condition: Temporal, wanted: bool) -> str:
        return self.test(temporal(condition), wanted)


_CONDITIONS: Mapping[type[Filter], Callable[[_Code, Any, bool], str]] = {
    Constant: _Code.constant,
    And: _Code.all_of,
    Or: _Code.any_of,
    Not: _Code.negation,
    Compare: _Code.compare,
    Between: _Code.between,
    In: _Code.one_of,
    Like: _Code.like,
    IsNull: _Code.is_null,
    Spatial: _Code.spatial,
    Temporal: _Code.temporal,
}


def _wanted(test: str, wanted: bool) -> str:
    return test if wanted else f"not {test}"


def _constant_of(expression: Expression) -> Value | None:
    if isinstance(expression, Literal):
        return expression.value
    return expression.seconds if isinstance(expression, Instant) else None


def _eager(parts: Sequence[Part]) -> list[str]:
    """All attributes first, as publication.attribute gives them; what it would return unchanged is passed by."""
    lines: list[str] = []
    for i in range(parts[-1].attributes):
        lines += [
            f"  v{i} = get(k{i})",
            f"  if (v{i}.__class__ is not float or not -MAX <= v{i} <= MAX)"
            f" and v{i} is not None and (v{i}.__class__ is not str or not v{i}.isascii()): v{i} = attribute(p, k{i})",
        ]
    return [*lines, f"  return {' and '.join(part.test for part in parts)}"]


def _lazy(parts: Sequence[Part]) -> list[str]:
    """Each part after the attributes that it is the first to need."""
    lines: list[str] = []
    known = 0
    for part in parts:
        lines += [f"  v{i} = get(k{i})" for i in range(known, part.attributes)]
        lines.append(f"  if not {part.test}: return False")
        known = part.attributes
    return [*lines, "  return True"]
