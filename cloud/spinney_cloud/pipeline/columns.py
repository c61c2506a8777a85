"""Filters as Spark Columns, with the reference's verdicts: TRUE, FALSE, and null for unknown. Never SQL text.

Of which type an attribute is depends on the row: so each is up to three columns, of which at most one has a value. What
no Column says exactly (CASEI, distance(), most powers, polygons) is evaluated by the core itself, in Spark's Python
processes: the smallest conditions that need it, and no more. `Compiled.by_core` names them.

    where(lake.frame(spark), parse_filter("NO2 > 40 AND lat > 45.8"))

`where` also says what is pushed down to the files: what the filter implies of the columns that lie in them as they are
(columns_bounds.py).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import BooleanType

from spinney import Matcher, parse_filter
from spinney.expression import (
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
    IsNull,
    Like,
    Literal,
    Location,
    Not,
    Or,
    Property,
    Spatial,
    Temporal,
    properties,
)
from spinney.like import ANY_ONE, Segment, segments
from spinney.lowering import LAT, LONG, any_equal, between, is_computed, spatial, temporal

from .columns_bounds import STORED, implied

_FIXED: Mapping[str, type] = STORED
"""Attributes that are columns; all others are in the maps."""
_MAPS: Mapping[type, str] = {float: "numbers", str: "texts", bool: "flags"}

MAX_SIZE = 400
"""Nodes of a computation's Column, where operands have to be said twice; what is larger is left to the core."""
MAX_CACHED = 256
"""Matchers of a Python process."""

_LARGEST = sys.float_info.max
_BEYOND_BMP = 0xFFFF

_COMPARE: Mapping[str, Callable[[Any, Any], Column]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}


class _NoColumnError(Exception):
    """No Column says this exactly."""


class Compiled(NamedTuple):
    """A filter for Spark."""

    column: Column
    by_core: tuple[str, ...]
    """The conditions that the core evaluates, as text."""


class _Value(NamedTuple):
    """What an expression is in rows where it is of one type; null elsewhere."""

    column: Column
    size: int = 1


def where(frame: DataFrame, condition: Filter) -> DataFrame:
    """The rows that match; what can be is left to the files to pass over."""
    pushed = implied(condition, F.col)
    found = compile_filter(condition).column
    return frame.where(found if pushed is None else pushed & found)


def compile_filter(condition: Filter) -> Compiled:
    """The verdict on each row, as a Boolean column."""
    return compile_filters([condition])[0]


def compile_filters(conditions: Iterable[Filter]) -> list[Compiled]:
    """The same for many, that read many of the same attributes."""
    compiler = _Compiler()
    found = []
    for condition in conditions:
        compiler.by_core = []
        column = compiler.condition(condition)
        found.append(Compiled(column, tuple(compiler.by_core)))
    return found


class _Compiler:
    """One filter."""

    def __init__(self) -> None:
        self.by_core: list[str] = []
        self._attributes: dict[tuple[str, type], Column] = {}

    # ---- conditions

    def condition(self, condition: Filter) -> Column:
        """The verdict; by the core where nothing else says it."""
        match condition:
            case And(operands):
                return _joined(operator.and_, [self.condition(operand) for operand in operands])
            case Or(operands):
                return _joined(operator.or_, [self.condition(operand) for operand in operands])
            case Not(operand):
                return ~self.condition(operand)
        try:
            return self._single(condition)
        except _NoColumnError:
            self.by_core.append(condition.to_text())
            return _by_core(condition)

    def _single(self, condition: Filter) -> Column:
        match condition:
            case Constant(verdict):
                return _unknown() if verdict is None else F.lit(verdict)
            case Compare():
                return self._compare(condition)
            case Between():
                return self._all(between(condition))
            case In():
                return self._one_of(condition)
            case Like():
                return self._like(condition)
            case IsNull(Location()):
                return ~self._located()
            case IsNull(operand):
                return _joined(operator.and_, [self.value(operand, kind).isNull() for kind in _kinds(operand)])
            case Spatial() if is_computed(condition):
                return F.when(self._located(), self._all(spatial(condition, LONG, LAT)))
            case Temporal():
                return self._all(temporal(condition))
        raise _NoColumnError

    def _all(self, condition: Filter) -> Column:
        """As `condition`, where it is either sayable as a whole or not at all."""
        match condition:
            case And(operands):
                return _joined(operator.and_, [self._all(operand) for operand in operands])
            case Or(operands):
                return _joined(operator.or_, [self._all(operand) for operand in operands])
        return self._single(condition)

    def _compare(self, condition: Compare) -> Column:
        """By the one type that both sides are of; null where there is none."""
        left, right = condition.left, condition.right
        sign = _COMPARE[condition.operator]
        found = [
            sign(self.value(left, kind), self.value(right, kind)) for kind in _kinds(left) if kind in _kinds(right)
        ]
        return _unknown() if not found else found[0] if len(found) == 1 else F.coalesce(*found)

    def _located(self) -> Column:
        return self.value(LAT, float).isNotNull() & self.value(LONG, float).isNotNull()

    def _one_of(self, condition: In) -> Column:
        constants = [item.value for item in condition.values if isinstance(item, Literal)]
        kinds = {type(constant) for constant in constants}
        if len(constants) < len(condition.values) or kinds not in ({str}, {float}):
            return self._all(any_equal(condition))
        (kind,) = kinds
        if kind not in _kinds(condition.operand):
            return _unknown()
        return self.value(condition.operand, kind).isin(constants)

    def _like(self, condition: Like) -> Column:
        if condition.fold_pattern:
            raise _NoColumnError
        if str not in _kinds(condition.operand):
            return _unknown()
        return _like(self.value(condition.operand, str), segments(condition.pattern))

    # ---- values

    def value(self, expression: Expression, kind: type) -> Column:
        """As a comparison sees it: a result that is not finite is null."""
        found = self._value(expression, kind)
        if not isinstance(expression, Arithmetic | Call):
            return found.column
        return _limited(_Value(_finite(found.column), 2 * found.size)).column

    def _value(self, expression: Expression, kind: type) -> _Value:
        """Numbers that a computation gives may not be finite."""
        match expression:
            case Literal(bool() | str() as constant):
                return _Value(F.lit(constant))
            case Literal(constant):
                return _Value(F.lit(float(constant)))
            case Instant(seconds):
                return _Value(F.lit(seconds))
            case Property(name):
                return _Value(self._attribute(name, kind), 2)
            case Arithmetic(sign, left, right):
                return _limited(self._arithmetic(sign, left, right))
            case Call("abs", (operand,)):
                inner = self._number(operand)
                return _Value(F.abs(inner.column), 1 + inner.size)
        raise _NoColumnError

    def _attribute(self, name: str, kind: type) -> Column:
        found = self._attributes.get((name, kind))
        if found is None:
            found = F.col(name) if name in _FIXED else F.col(_MAPS[kind]).getItem(name)
            found = self._attributes[name, kind] = _finite(found) if kind is float else found
        return found

    def _number(self, expression: Expression) -> _Value:
        return self._value(expression, float) if float in _kinds(expression) else _Value(F.lit(None).cast("double"))

    def _arithmetic(self, sign: str, left: Expression, right: Expression) -> _Value:
        """What is not finite stays so through + - *, and as dividend: so divisors alone must be looked at."""
        if sign == "^":
            return self._power(left, right)
        first, second = self._number(left), self._number(right)
        if sign not in "+-*":
            second = _Value(_finite(second.column), 2 * second.size)
        size = 1 + first.size + second.size
        if sign == "div":
            quotient = F.try_divide(first.column, second.column)
            return _Value(quotient - F.try_mod(quotient, F.lit(1.0)), 2 * size)
        return _Value(_ARITHMETIC[sign](first.column, second.column), size)

    def _power(self, base: Expression, exponent: Expression) -> _Value:
        one, size = self._number(base)
        match exponent:
            case Literal(0.5):
                return _Value(F.sqrt(one), 1 + size)
            case Literal(2.0):
                return _Value(one * one, 2 * size)
            case Literal(3.0):
                return _Value(one * (one * one), 3 * size)
        raise _NoColumnError


_ARITHMETIC: Mapping[str, Callable[[Column, Column], Column]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": F.try_divide,
    "%": F.try_mod,
}


def _kinds(expression: Expression) -> tuple[type, ...]:
    """The types that its value can be of."""
    match expression:
        case Literal(value):
            return (type(value),)
        case Property(name):
            return (_FIXED[name],) if name in _FIXED else (float, str, bool)
        case CaseFold():
            return (str,)
    return (float,)


def _finite(number: Column) -> Column:
    """Spark takes NaN for the greatest number; for us it is none (rule P1)."""
    return F.when(F.abs(number) <= F.lit(_LARGEST), number)


def _limited(value: _Value) -> _Value:
    if value.size > MAX_SIZE:
        raise _NoColumnError
    return value


def _unknown() -> Column:
    return F.lit(None).cast("boolean")


def _joined(join: Callable[[Any, Any], Column], parts: Sequence[Column]) -> Column:
    """A balanced tree: Spark goes through it by recursion."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return join(_joined(join, parts[:half]), _joined(join, parts[half:]))


def _like(text: Column, parts: tuple[Segment, ...]) -> Column:
    if any(ANY_ONE in part for part in parts):
        return text.like(_spark_pattern(parts))
    first, *rest = ("".join(letter for letter in part if letter is not None) for part in parts)
    match rest:
        case []:
            return text == F.lit(first)
        case [""]:
            return text.startswith(F.lit(first))
        case [last] if not first:
            return text.endswith(F.lit(last))
        case [middle, ""] if not first:
            return text.contains(F.lit(middle))
    return text.like(_spark_pattern(parts))


def _spark_pattern(parts: tuple[Segment, ...]) -> str:
    """Spark escapes a pattern by halves of what is beyond the BMP."""
    if any(letter is not None and ord(letter) > _BEYOND_BMP for part in parts for letter in part):
        raise _NoColumnError
    return "%".join("".join(map(_spark_letter, part)) for part in parts)


def _spark_letter(letter: str | None) -> str:
    if letter is None:
        return "_"
    return f"\\{letter}" if letter in "%_\\" else letter


# ---- by the core


def _by_core(condition: Filter) -> Column:
    text = condition.to_text()
    names = properties(condition)
    columns = sorted(names & _FIXED.keys()) + [*_MAPS.values()] * bool(names - _FIXED.keys())

    def core(rows: pa.Array) -> pa.Array:
        return verdicts(text, rows)

    evaluated = arrow_udf(core, returnType=BooleanType())  # type: ignore[call-overload]  # it reads the hints, as it says
    found: Column = evaluated(F.struct(*map(F.col, columns)) if columns else F.struct(F.lit(True).alias("nothing")))
    return found


def verdicts(text: str, rows: Any) -> Any:
    """The core's verdicts on rows, an Arrow array of structs: true, false, or null for unknown."""
    answer = _matcher(text).match_batch(pa.RecordBatch.from_struct_array(rows))
    at, said = answer["row"].to_numpy(), np.asarray(answer["id"].cast(pa.string()).to_numpy(zero_copy_only=False))
    found, known = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    known[at] = True
    found[at] = said == "true"
    return pa.array(found, mask=~known)


@lru_cache(MAX_CACHED)
def _matcher(text: str) -> Matcher:
    condition = parse_filter(text)
    matcher = Matcher()
    matcher.add("true", condition)
    matcher.add("false", Not(condition))
    return matcher
