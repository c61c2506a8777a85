"""Reads CQL2 Text filters and the three forms of subscriptions (design: the language and its meaning).

A precedence climber: one loop and a table of powers, so that recursion follows parentheses only and has a limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from . import instants
from .errors import SyntaxError
from .expression import (
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
    Property,
    Spatial,
    Temporal,
    conjunction,
    disjunction,
)
from .geometry import BBox, Geometry, MultiPolygon, Point, Polygon, Position
from .limits import MAX_DEPTH, can_be_number, check_bbox, check_depth, check_position, check_ring
from .tokens import Token, Words, show

T = TypeVar("T")

RESERVED = frozenset(("AND", "OR", "NOT", "LIKE", "IN", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"))
CLAUSES = frozenset(("WHEN", "UNTIL", "FOR", "EACH", "ONCE", "TOP", "OVER", "LAST", "BY", "DESC", "WHERE"))
"""Words that begin a part of a subscription; names elsewhere."""

_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _POWER, _SIGN = range(1, 9)
_INFIX = {
    "OR": (_OR, "_or"),
    "AND": (_AND, "_and"),
    **dict.fromkeys(("=", "<>", "<", ">", "<=", ">="), (_COMPARISON, "_comparison")),
    **dict.fromkeys(("LIKE", "IN", "BETWEEN", "IS", "NOT"), (_COMPARISON, "_comparison")),
    **dict.fromkeys(("+", "-"), (_SUM, "_arithmetic")),
    **dict.fromkeys(("*", "/", "%", "DIV"), (_PRODUCT, "_arithmetic")),
    "^": (_POWER, "_arithmetic"),
}
"""How tightly a word between two operands binds, and what reads on from there."""
_SPATIAL = {"S_INTERSECTS": "intersects", "S_WITHIN": "within"}
_TEMPORAL = {"T_BEFORE": "before", "T_AFTER": "after", "T_DURING": "during"}
_GEOMETRIES = ("POINT", "POLYGON", "MULTIPOLYGON", "BBOX")
FUNCTIONS = {"ABS": 1, "DISTANCE": 4}
"""Functions and how many arguments each takes."""

_MAX_STEPS = 2 * MAX_DEPTH + 2
"""Enough for the text of any tree within the limit, and few enough for Python's stack."""


def read_filter(text: str) -> Filter:
    """A filter in CQL2 Text."""
    reader = Reader(text)
    condition = reader.condition()
    reader.finish("AND, OR or the end")
    return condition


class Reader(Words):
    """Reads conditions and values from the words of a text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self.clauses: frozenset[str] = frozenset()
        """Words that end an expression here, because a clause begins with them."""

    # ---- conditions and values

    def condition(self) -> Filter:
        """A whole condition, as far as it goes."""
        start = self.token
        condition = self._as_condition(self._expression(_OR), start)
        if len(self._tokens) > MAX_DEPTH:
            self._check(check_depth, condition, start)
        return condition

    def number(self) -> Expression:
        """A whole value that can be a number, as far as it goes."""
        start = self.token
        found = self._as_number(self._expression(_SUM), start)
        self._check(check_depth, found, start)
        return found

    def _expression(self, power: int) -> Node:
        start = self.token
        self._depth += 1
        if self._depth > _MAX_STEPS:
            raise self.error("", message=f"nested deeper than {MAX_DEPTH} levels")
        left = self._prefix()
        while True:
            step = self._infix(power)
            if step is None:
                break
            left = step(left, start)
        self._depth -= 1
        return left

    def _prefix(self) -> Node:
        token = self.take()
        match token.kind:
            case "number":
                return Literal(self._number(token))
            case "string":
                return Literal(token.text)
            case "quoted name":
                return Property(token.text)
            case "name":
                return self._name(token)
            case "duration":
                raise self.error("a value", token, message=f"the duration {token.text} can only stand after OVER")
            case "operator" if token.text == "(":
                inner = self._expression(_OR)
                self.sign(")")
                return inner
            case "operator" if token.text in "+-":
                return self._signed(token)
        raise self.error("a value", token)

    def _signed(self, sign: Token) -> Expression:
        if self.token.kind == "number":
            number = self._number(self.take())
            return Literal(-number if sign.text == "-" else number)
        start = self.token
        operand = self._as_number(self._expression(_SIGN), start)
        return operand if sign.text == "+" else Arithmetic("*", Literal(-1.0), operand)

    def _number(self, token: Token) -> float:
        number = float(token.text)
        if not math.isfinite(number):
            raise self.error("a number that a double can hold", token)
        return number

    def _name(self, token: Token) -> Node:
        word = token.text.upper()
        if word in ("TRUE", "FALSE"):
            return Literal(word == "TRUE")
        if word == "NOT":
            start = self.token
            return Not(self._as_condition(self._expression(_NOT), start))
        if word == "NULL":
            raise self.error("a value", token, message="NULL is not a value; write IS NULL or IS NOT NULL")
        if word in RESERVED or word in self.clauses:
            raise self.error("a value", token)
        if self.token.is_operator("("):
            return self._call(word, token)
        return Property(token.text)

    def _infix(self, power: int) -> Callable[[Node, Token], Node] | None:
        """What to do with the next word if it binds at least as tightly as asked."""
        token = self.token
        if token.kind != "operator" and token.kind != "name":
            return None
        found = _INFIX.get(token.text.upper())
        if found is None or found[0] < power:
            return None
        step: Callable[[Node, Token], Node] = getattr(self, found[1])
        return step

    def _and(self, left: Node, start: Token) -> Filter:
        parts = [self._as_condition(left, start)]
        while self.accept_word("AND"):
            start = self.token
            parts.append(self._as_condition(self._expression(_NOT), start))
        return conjunction(*parts)

    def _or(self, left: Node, start: Token) -> Filter:
        parts = [self._as_condition(left, start)]
        while self.accept_word("OR"):
            start = self.token
            parts.append(self._as_condition(self._expression(_AND), start))
        return disjunction(*parts)

    def _arithmetic(self, left: Node, start: Token) -> Expression:
        sign = self.take()
        operator = sign.text.lower()
        power = {"+": _PRODUCT, "-": _PRODUCT, "^": _POWER}.get(operator, _POWER)
        right_start = self.token
        right = self._as_number(self._expression(power), right_start)
        return Arithmetic(operator, self._as_number(left, start), right)  # type: ignore[arg-type]  # one of the signs

    def _comparison(self, left: Node, start: Token) -> Filter:
        operand = self._as_value(left, start)
        sign = self.take()
        if sign.kind == "operator":
            condition: Filter = Compare(sign.text, operand, self._operand())  # type: ignore[arg-type]  # a comparison
        elif sign.is_word("IS"):
            negated = self.accept_word("NOT")
            self.word("NULL")
            is_point = start.is_word("LOCATION") and operand == Property("location")
            condition = _negated(IsNull(Location() if is_point else operand), negated)
        else:
            negated = sign.is_word("NOT")
            condition = _negated(self._predicate(operand, self.take() if negated else sign), negated)
        if self._infix(_COMPARISON):
            raise self.error("AND, OR or the end")
        return condition

    def _predicate(self, operand: Expression, word: Token) -> Filter:
        if word.is_word("BETWEEN"):
            low = self._number_operand()
            self.word("AND")
            return Between(operand, low, self._number_operand())
        if word.is_word("IN"):
            return In(operand, tuple(self._list(self._operand)))
        if word.is_word("LIKE"):
            return Like(operand, *self._pattern())
        raise self.error("LIKE, IN or BETWEEN", word)

    def _operand(self) -> Expression:
        start = self.token
        self._depth += 1  # what is read through here takes more of the stack
        operand = self._as_value(self._expression(_SUM), start)
        self._depth -= 1
        return operand

    def _number_operand(self) -> Expression:
        start = self.token
        return self._as_number(self._operand(), start)

    def _pattern(self) -> tuple[str, bool]:
        folds = 0
        while self.token.is_word("CASEI"):
            self.take()
            self.sign("(")
            folds += 1
        if self.token.kind != "string":
            raise self.error("a pattern in single quotes")
        pattern = self.take().text
        for _ in range(folds):
            self.sign(")")
        return pattern, folds > 0

    def _list(self, item: Callable[[], T]) -> list[T]:
        self.sign("(")
        items = [item()]
        while self.accept_sign(","):
            items.append(item())
        self.sign(")")
        return items

    # ---- functions

    def _call(self, word: str, token: Token) -> Node:
        if word in _SPATIAL:
            return self._spatial(_SPATIAL[word])
        if word in _TEMPORAL:
            return self._temporal(_TEMPORAL[word])
        if word in ("DATE", "TIMESTAMP"):
            return self._instant(word)
        if word == "CASEI":
            self.take()
            start = self.token
            operand = self._operand()
            if isinstance(operand, Literal) and not isinstance(operand.value, str):
                raise self.error("a string", start)
            self.sign(")")
            return operand if isinstance(operand, CaseFold) else CaseFold(operand)
        if word in FUNCTIONS:
            arguments = self._list(self._number_operand)
            if len(arguments) != FUNCTIONS[word]:
                expected = plural(FUNCTIONS[word], "argument")
                message = f"{word.lower()}() takes {expected}, not {len(arguments)}"
                raise self.error(expected, token, message=message)
            return Call(word.lower(), tuple(arguments))  # type: ignore[arg-type]  # a key of FUNCTIONS
        raise self._unknown(word, token)

    def _unknown(self, word: str, token: Token) -> SyntaxError:
        if word in (*_GEOMETRIES, "INTERVAL"):
            where = "T_BEFORE, T_AFTER and T_DURING" if word == "INTERVAL" else "S_INTERSECTS and S_WITHIN"
            return self.error("a value", token, message=f"{word} can only stand in {where}")
        known = ", ".join(sorted([*_SPATIAL, *_TEMPORAL, "DATE", "TIMESTAMP", "CASEI", "abs", "distance"]))
        message = f"there is no function {token.text[:40]}(); there are {known}"
        return self.error(f"one of {known}", token, message=message)

    def _instant(self, word: str) -> Instant:
        self.sign("(")
        token = self.token
        if token.kind != "string":
            raise self.error("a string")
        instant = self._moment(self.take(), date=word == "DATE")
        self.sign(")")
        return instant

    def _moment(self, token: Token, *, date: bool) -> Instant:
        try:
            return Instant((instants.parse_date if date else instants.parse_timestamp)(token.text), date)
        except ValueError as error:
            raise self.error("a date" if date else "a timestamp", token, message=str(error)) from None

    def _temporal(self, operator: str) -> Temporal:
        self.sign("(")
        left = self._temporal_side()
        self.sign(",")
        right_start = self.token
        right = self._temporal_side()
        self.sign(")")
        if operator == "during" and not isinstance(right, Interval):
            raise self.error("INTERVAL('...', '...')", right_start)
        return Temporal(operator, left, right)  # type: ignore[arg-type]  # a value of _TEMPORAL

    def _temporal_side(self) -> Expression | Interval:
        if not (self.token.is_word("INTERVAL") and self.ahead().is_operator("(")):
            first = self.token
            moment = self._operand()
            if not can_be_number(moment):
                raise self.error("DATE('...'), TIMESTAMP('...'), INTERVAL('...', '...') or an attribute", first)
            return moment
        token = self.take()
        ends = self._list(self._interval_end)
        if len(ends) != 2:
            raise self.error("two ends", token, message="an INTERVAL has two ends")
        start, end = ends
        if start and end and start.seconds > end.seconds:
            raise self.error("", token, message="an INTERVAL that ends before it starts")
        return Interval(start, end)

    def _interval_end(self) -> Instant | None:
        if self.token.kind != "string":
            raise self.error("a date, a timestamp or '..' in single quotes")
        token = self.take()
        return None if token.text == ".." else self._moment(token, date="T" not in token.text)

    # ---- geometries

    def _spatial(self, operator: str) -> Spatial:
        self.sign("(")
        first = self._geometry()
        self.sign(",")
        second_start = self.token
        second = self._geometry()
        if (first is None) == (second is None):
            expected = "a geometry" if first is None else "location"
            message = f"one side must be location and the other a geometry; expected {expected}"
            raise self.error(expected, second_start, message=message)
        self.sign(")")
        geometry = second if first is None else first
        assert geometry is not None
        return Spatial(operator, geometry, first is None)  # type: ignore[arg-type]  # a value of _SPATIAL

    def _geometry(self) -> Geometry | None:
        """A geometry, or None for the word location."""
        token = self.token
        if token.kind in ("name", "quoted name") and token.text == "location":
            self.take()
            return None
        word = token.text.upper() if token.kind == "name" else ""
        if word not in _GEOMETRIES:
            raise self.error(f"location or a geometry ({', '.join(_GEOMETRIES)})")
        self.take()
        match word:
            case "BBOX":
                return self._bbox(token)
            case "POINT":
                self.sign("(")
                point = Point(self._position())
                self.sign(")")
                return point
            case "POLYGON":
                return self._polygon()
        return MultiPolygon(tuple(self._list(self._polygon)))

    def _bbox(self, token: Token) -> BBox:
        numbers = self._list(self._coordinate)
        if len(numbers) != 4:
            message = f"BBOX takes west, south, east, north: 4 numbers, not {len(numbers)}"
            raise self.error("4 numbers", token, message=message)
        return self._check(check_bbox, BBox(*numbers), token)

    def _polygon(self) -> Polygon:
        return Polygon(tuple(self._list(self._ring)))

    def _ring(self) -> tuple[Position, ...]:
        start = self.token
        return self._check(check_ring, tuple(self._list(self._position)), start)

    def _position(self) -> Position:
        start = self.token
        return self._check(check_position, (self._coordinate(), self._coordinate()), start)

    def _coordinate(self) -> float:
        negative = self.accept_sign("-")
        if not negative:
            self.accept_sign("+")
        if self.token.kind != "number":
            raise self.error("a number")
        number = self._number(self.take())
        return -number if negative else number

    # ---- what kind of thing it is

    def _as_condition(self, node: Node, start: Token) -> Filter:
        if isinstance(node, Filter):
            return node
        if isinstance(node, Literal) and isinstance(node.value, bool):
            return Constant(node.value)
        following = self.token
        stops = following.is_operator(")", ",") or following.is_word("AND", "OR", *self.clauses)
        if isinstance(node, Property) and (stops or following.kind == "end"):
            name = self.text[start.start : start.end] if start.kind in ("name", "quoted name") else node.name
            message = f"{show(name)} alone is not a condition; for a boolean write {name[:40]} = TRUE"
            raise self.error("a condition", start, message=message)
        raise self.error("a comparison such as = or >")

    def _as_value(self, node: Node, start: Token) -> Expression:
        if isinstance(node, Expression):
            return node
        raise self.error("a value", start, message="a condition stands where a value is expected")

    def _as_number(self, node: Node, start: Token) -> Expression:
        number = self._as_value(node, start)
        if not can_be_number(number):
            raise self.error("a number", start)
        return number

    def _check(self, check: Callable[[T], None], item: T, token: Token) -> T:
        try:
            check(item)
        except ValueError as error:
            raise self.error("", token, message=str(error)) from None
        return item


def plural(count: int, noun: str) -> str:
    """1 argument, 2 arguments."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _negated(condition: Filter, negated: bool) -> Filter:
    return Not(condition) if negated else condition
