"""The tree that every filter is: values that are computed from a publication, and conditions on them.

The text and JSON forms (text.py, json_form.py) make and print this tree, evaluate.py gives it its meaning, and
specialise.py, covers.py and normal_form.py rewrite it. Nodes are immutable and compare by value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from typing import Literal as OneOf

if TYPE_CHECKING:
    from .explain import Explanation
    from .geometry import Geometry

Value = float | str | bool
"""What an attribute can hold. Whole numbers are doubles too: every door converts them (rule P1)."""

ArithmeticOperator = OneOf["+", "-", "*", "/", "%", "div", "^"]
ComparisonOperator = OneOf["=", "<>", "<", ">", "<=", ">="]


class Node:
    """Anything in the tree."""

    __slots__ = ()

    def children(self) -> Iterator[Node]:
        """The nodes directly below this one, in the order they are written."""
        for field in fields(self):  # type: ignore[arg-type]  # every concrete node is a dataclass
            value = getattr(self, field.name)
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Node):
                    yield item


class Expression(Node):
    """Something with a value: a number, a string, a boolean, or null where it cannot be computed."""

    __slots__ = ()


class Filter(Node):
    """A condition on one publication: true, false or unknown. Only true matches (rule P1)."""

    __slots__ = ()

    def evaluate(self, publication: Mapping[str, Any]) -> bool | None:
        """True, False or None (unknown), by the reference meaning in evaluate.py."""
        from .evaluate import evaluate

        return evaluate(self, publication)

    def explain(self, publication: Mapping[str, Any]) -> Explanation:
        """Which parts made it match or not."""
        from .explain import explain

        return explain(self, publication)

    def to_text(self) -> str:
        """CQL2 Text. Parsing it gives a filter that prints the same again."""
        from .text_writer import filter_text

        return filter_text(self)

    def to_json(self) -> Any:
        """CQL2 JSON, as the objects that json.dumps takes."""
        from .json_form import filter_to_json

        return filter_to_json(self)


# ---- expressions


@dataclass(frozen=True, slots=True)
class Property(Expression):
    """The value of an attribute; null when the publication lacks it."""

    name: str


@dataclass(frozen=True, slots=True)
class Literal(Expression):
    """A constant. Numbers are always float. TRUE is not 1, though Python says so."""

    value: Value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        return self.value.__class__ is other.value.__class__ and self.value == other.value

    def __hash__(self) -> int:
        return hash((self.value.__class__, self.value))


@dataclass(frozen=True, slots=True)
class Instant(Expression):
    """DATE('...') or TIMESTAMP('...'): a number, the seconds since 1970 UTC. A date is its first moment."""

    seconds: float
    is_date: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic(Expression):
    """A computation in IEEE doubles; null if an operand is not a number or the result is not finite."""

    operator: ArithmeticOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """abs(x), or distance(lat, long, lat, long) in metres."""

    name: OneOf["abs", "distance"]
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class CaseFold(Expression):
    """CASEI(x): the string with case folded away; null for anything but a string."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Location(Expression):
    """The point (long, lat) of the publication; null unless both are numbers. Only in spatial tests and IS NULL."""


# ---- conditions


@dataclass(frozen=True, slots=True)
class Constant(Filter):
    """TRUE, FALSE, or UNKNOWN (None), which is written as a comparison that is never known: 0/0 = 0."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Compare(Filter):
    """left operator right; unknown if either is null or their types differ."""

    operator: ComparisonOperator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Between(Filter):
    """operand >= low AND operand <= high."""

    operand: Expression
    low: Expression
    high: Expression


@dataclass(frozen=True, slots=True)
class In(Filter):
    """operand = values[0] OR operand = values[1] OR ..."""

    operand: Expression
    values: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Like(Filter):
    r"""operand LIKE pattern, as written: % any run, _ one character, \ before %, _ or \ takes it literally."""

    operand: Expression
    pattern: str
    fold_pattern: bool = False


@dataclass(frozen=True, slots=True)
class IsNull(Filter):
    """operand IS NULL: true or false, never unknown."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Spatial(Filter):
    """S_INTERSECTS or S_WITHIN between the publication's location and a literal geometry.

    `location_first` is False for S_WITHIN(geometry, location) and S_INTERSECTS(geometry, location).
    """

    operator: OneOf["intersects", "within"]
    geometry: Geometry
    location_first: bool = True


@dataclass(frozen=True, slots=True)
class Interval(Node):
    """INTERVAL('start', 'end') with None for '..', the open end."""

    start: Instant | None
    end: Instant | None


@dataclass(frozen=True, slots=True)
class Temporal(Filter):
    """T_BEFORE, T_AFTER or T_DURING between instants (numbers) and intervals; ends are excluded, as in CQL2."""

    operator: OneOf["before", "after", "during"]
    left: Expression | Interval
    right: Expression | Interval


@dataclass(frozen=True, slots=True)
class Not(Filter):
    """True for false, false for true, unknown for unknown."""

    operand: Filter


@dataclass(frozen=True, slots=True)
class And(Filter):
    """False if any part is false, else unknown if any is unknown, else true. Two parts or more."""

    operands: tuple[Filter, ...]


@dataclass(frozen=True, slots=True)
class Or(Filter):
    """True if any part is true, else unknown if any is unknown, else false. Two parts or more."""

    operands: tuple[Filter, ...]


TRUE = Constant(True)
FALSE = Constant(False)
UNKNOWN = Constant(None)


def conjunction(*filters: Filter) -> Filter:
    """All of these: flattened, and no And around fewer than two."""
    parts: list[Filter] = []
    for item in filters:
        parts.extend(item.operands if isinstance(item, And) else (item,))
    return And(tuple(parts)) if len(parts) > 1 else parts[0] if parts else TRUE


def disjunction(*filters: Filter) -> Filter:
    """Any of these: flattened, and no Or around fewer than two."""
    parts: list[Filter] = []
    for item in filters:
        parts.extend(item.operands if isinstance(item, Or) else (item,))
    return Or(tuple(parts)) if len(parts) > 1 else parts[0] if parts else FALSE


def properties(node: Node) -> frozenset[str]:
    """The names of all attributes that the node reads; a location reads lat and long."""
    names: set[str] = set()
    waiting = [node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Property):
            names.add(item.name)
        elif isinstance(item, Location | Spatial):
            names.update(("lat", "long"))
        waiting.extend(item.children())
    return frozenset(names)
