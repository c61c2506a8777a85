"""From a filter to the test of where it is TRUE on a mote: exact wherever that can be, otherwise weaker, and why."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from spinney.boxes import Constraint, Present, Range, reach
from spinney.expression import (
    And,
    Between,
    Call,
    Compare,
    ComparisonOperator,
    Expression,
    Filter,
    In,
    IsNull,
    Literal,
    Location,
    Not,
    Or,
    Spatial,
    Temporal,
    properties,
)
from spinney.expression import Constant as Verdict
from spinney.lowering import LAT, LONG, OPPOSITE, any_equal, between, is_computed, oriented, spatial, temporal
from spinney.specialise import specialise
from spinney.text_writer import filter_text
from spinney.verdicts import F, T, possible

from .attributes import Attribute, Mote
from .formula import ALWAYS, NEVER, Formula, Presence, every, of_stretches, some
from .stretches import stretches
from .sums import ROUNDED, NotASumError, decided_sums, sum_formula

MAX_BOXES = 16
"""Of one condition that is replaced by boxes around it; beyond, it is taken as always true."""


class FormulaBuilder:
    """Builds the tests of one filter, and collects why they are weaker where they are.

    `surely`: sums for which doubles round one way or the other are not counted in, but collected.
    """

    def __init__(self, mote: Mote, *, surely: bool = False) -> None:
        self._mote = mote
        self._surely = surely
        self.reasons: list[str] = []
        self.doubts: list[Formula] = []
        """Where parts of the filter cannot be decided."""

    def build(self, condition: Filter, wanted: bool = True) -> Formula:
        """Where the filter has the verdict; with a reason more, at least there."""
        match condition:
            case Verdict(verdict):
                return ALWAYS if verdict is wanted else NEVER
            case Not(operand):
                return self.build(operand, not wanted)
            case And(operands) | Or(operands):
                parts = [self.build(operand, wanted) for operand in operands]
                return every(parts) if isinstance(condition, And) is wanted else some(parts)
        verdicts = possible(condition, self._mote.environment)
        if not verdicts & (T if wanted else F):
            return NEVER
        if verdicts == (T if wanted else F):
            return ALWAYS
        names = properties(condition)
        if not names <= self._mote.index.keys():
            unknown = ", ".join(sorted(names - self._mote.index.keys()))
            return self._around(condition, wanted, f"the mote does not measure {unknown}")
        if len(names) == 1:
            return self._of_one(condition, wanted, self._mote.attributes[self._mote.index[next(iter(names))]])
        return self._of_several(condition, wanted)

    def _of_one(self, condition: Filter, wanted: bool, attribute: Attribute) -> Formula:
        index = self._mote.index[attribute.name]
        found, exact = stretches(condition, wanted, attribute, self._mote.environment)
        if not exact:
            self._note(condition, f"{attribute.name} takes it in and out too often")
        there = of_stretches(index, found, attribute.low, attribute.high)
        missing = Presence(index, False) if condition.evaluate({}) is wanted else NEVER
        return ALWAYS if there == Presence(index) and missing != NEVER else some([there, missing])

    def _of_several(self, condition: Filter, wanted: bool) -> Formula:
        match condition:
            case Compare():
                return self._comparison(condition, wanted)
            case Between():
                return self.build(between(condition), wanted)
            case In():
                return self.build(any_equal(condition), wanted)
            case Temporal():
                return self.build(temporal(condition), wanted)
            case Spatial() if is_computed(condition):
                return every([self._there(condition), self.build(spatial(condition, LONG, LAT), wanted)])
            case IsNull(Location()):
                return self._there(condition) if not wanted else self._missing(condition)
        return self._around(condition, wanted, "the mote cannot compute it")

    def _comparison(self, condition: Compare, wanted: bool) -> Formula:
        left, operator, right = oriented(condition)
        if isinstance(left, Call) and left.name == "abs" and isinstance(right, Literal):
            sides = _sides(left.arguments[0], operator, right)
            if sides is not None:
                return self.build(sides, wanted)
        operator = operator if wanted else OPPOSITE[operator]
        there = self._there(condition)
        try:
            if self._surely:
                test, doubt = decided_sums(left, operator, right, self._mote)
                if doubt != NEVER:
                    self.doubts.append(every([there, doubt]))
                return every([there, test])
            test, exact = sum_formula(left, operator, right, self._mote)
        except NotASumError as error:
            return self._around(condition, wanted, str(error))
        if not exact:
            self._note(condition, ROUNDED)
        return every([there, test])

    def _there(self, condition: Filter) -> Formula:
        return every(Presence(self._mote.index[name]) for name in sorted(properties(condition)))

    def _missing(self, condition: Filter) -> Formula:
        return some(Presence(self._mote.index[name], False) for name in sorted(properties(condition)))

    # ---- weaker

    def _note(self, condition: Filter, reason: str) -> None:
        self.reasons.append(f"{filter_text(condition)}: {reason}")

    def _around(self, condition: Filter, wanted: bool, reason: str) -> Formula:
        """Boxes around where the condition has the verdict (spinney.boxes)."""
        self._note(condition, reason)
        boxes = reach(condition, wanted).boxes
        if len(boxes) > MAX_BOXES:
            return ALWAYS
        return some(every(self._constraint(name, item) for name, item in box.items()) for box in boxes)

    def _constraint(self, name: str, constraint: Constraint) -> Formula:
        index = self._mote.index.get(name)
        if index is None:
            return ALWAYS
        if isinstance(constraint, Present):
            return Presence(index)
        if not isinstance(constraint, Range):
            return NEVER
        item = self._mote.attributes[index]
        raws = range(item.low, item.high + 1)
        first = item.low + bisect_left(raws, constraint.low, key=item.decode)
        last = item.low + bisect_right(raws, constraint.high, key=item.decode) - 1
        return of_stretches(index, [(first, last)] if first <= last else [], item.low, item.high)


def _sides(inner: Expression, operator: ComparisonOperator, bound: Literal) -> Filter | None:
    """abs(inner) compared with a number, as two comparisons of inner; negation is exact."""
    if not isinstance(bound.value, float) or math.copysign(1.0, bound.value) < 0:
        return None
    above, below = Compare(operator, inner, bound), Compare(_MIRROR[operator], inner, Literal(-bound.value))
    return And((above, below)) if operator in ("<", "<=", "<>") else Or((above, below))


_MIRROR: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<=",
}  # fmt: skip


def formula_of(condition: Filter, mote: Mote) -> tuple[Formula, list[str]]:
    """Where a filter is TRUE on a mote; with reasons, if it holds elsewhere, too."""
    builder = FormulaBuilder(mote)
    return builder.build(specialise(condition, mote.known)), builder.reasons


class Verdicts(NamedTuple):
    """What a mote can say of one filter."""

    possibly: Formula
    """Wherever it may be TRUE."""
    surely: Formula
    """Where it is TRUE, if it is not in doubt."""
    doubts: tuple[Formula, ...]
    """Where parts of it are in doubt."""
    reasons: tuple[str, ...]
    """Why there is more in doubt than that."""


def verdicts_of(condition: Filter, mote: Mote) -> Verdicts:
    """Where a filter is TRUE on a mote, and where only the broker can tell."""
    possibly, weaker = formula_of(condition, mote)
    if not weaker:
        return Verdicts(possibly, possibly, (), ())
    builder = FormulaBuilder(mote, surely=True)
    surely = builder.build(specialise(condition, mote.known))
    return Verdicts(possibly, surely, tuple(builder.doubts), tuple(builder.reasons))
