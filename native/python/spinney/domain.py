"""What a value can be: numbers, strings, booleans and null, each a set of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from . import intervals
from .expression import Value
from .intervals import Points


@dataclass(frozen=True, slots=True)
class Domain:
    """A set of possible values; `null` says whether the value may be missing."""

    numbers: Points = ()
    strings: Points = ()
    booleans: Points = ()
    null: bool = False

    def contains(self, value: Value | None) -> bool:
        """Whether the value is possible."""
        if value is None:
            return self.null
        return intervals.contains(self.of(type(value)), value)

    def of(self, kind: type) -> Points:
        """The possible values of one type."""
        return self.strings if kind is str else self.booleans if kind is bool else self.numbers

    def is_empty(self) -> bool:
        """Whether nothing is possible."""
        return not (self.numbers or self.strings or self.booleans or self.null)

    def is_within(self, other: Domain) -> bool:
        """Whether the other allows all of this."""
        return (
            (other.null or not self.null)
            and (not self.numbers or intervals.subset(self.numbers, other.numbers))
            and (not self.strings or intervals.subset(self.strings, other.strings))
            and (not self.booleans or intervals.subset(self.booleans, other.booleans))
        )

    def meet(self, other: Domain) -> Domain:
        """What both allow."""
        return Domain(
            intervals.intersection(self.numbers, other.numbers),
            intervals.intersection(self.strings, other.strings),
            intervals.intersection(self.booleans, other.booleans),
            self.null and other.null,
        )

    def join(self, other: Domain) -> Domain:
        """What either allows."""
        return Domain(
            intervals.union(self.numbers, other.numbers),
            intervals.union(self.strings, other.strings),
            intervals.union(self.booleans, other.booleans),
            self.null or other.null,
        )

    def constant(self) -> Value | None:
        """The value if only one is possible."""
        found = None if self.null else self.members(1)
        return found[0] if found else None

    def members(self, limit: int) -> list[Value] | None:
        """All values but null, if they are at most so many, else None."""
        if len(self.numbers) + len(self.strings) + len(self.booleans) > 2 * limit:
            return None
        found: list[Value] = []
        for points in (self.numbers, self.strings, self.booleans):
            if points:
                some = intervals.members(points, limit)
                if some is None:
                    return None
                found += some
        return found if len(found) <= limit else None


ANY_NUMBER = intervals.everything(float)
ANY_STRING = intervals.everything(str)
ANY_BOOLEAN = intervals.everything(bool)

NOTHING = Domain()
NULL = Domain(null=True)
ANYTHING = Domain(ANY_NUMBER, ANY_STRING, ANY_BOOLEAN, null=True)
PRESENT = Domain(ANY_NUMBER, ANY_STRING, ANY_BOOLEAN)
A_NUMBER = Domain(numbers=ANY_NUMBER)
A_STRING = Domain(strings=ANY_STRING)
NO_NUMBER = Domain((), ANY_STRING, ANY_BOOLEAN, null=True)


def of_type(kind: type, points: Points, null: bool = False) -> Domain:
    """Values of one type."""
    if kind is str:
        return Domain(strings=points, null=null)
    return Domain(booleans=points, null=null) if kind is bool else Domain(numbers=points, null=null)


def exactly(value: Value) -> Domain:
    """This value and no other."""
    return of_type(type(value), intervals.single(value))


def any_of(values: Iterable[Value]) -> Domain:
    """These values and no others."""
    found: dict[type, set[Value]] = {float: set(), str: set(), bool: set()}
    for value in values:
        found[type(value)].add(value)
    numbers, strings, booleans = (intervals.of_values(found[kind]) for kind in (float, str, bool))
    return Domain(numbers, strings, booleans)
