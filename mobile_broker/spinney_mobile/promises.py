"""What is promised of a source's attributes, and of where this broker is: in an announcement, and on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from spinney.expression import Value
from spinney.geodesy import distance

from .samples import Ability

_TYPES: Final = {float: "number", str: "string", bool: "boolean"}


class Promise(NamedTuple):
    """What has been said of one attribute. Without limits any value of its types is within."""

    types: frozenset[str]
    low: float | None = None
    high: float | None = None
    unit: str | None = None
    constant: Value | None = None

    def holds(self, value: Value) -> bool:
        """Whether the value is within."""
        if self.constant is not None:
            return value == self.constant and value.__class__ is self.constant.__class__
        if not isinstance(value, float):
            return _TYPES[value.__class__] in self.types
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            return False
        return "number" in self.types

    def widened(self, value: Value) -> Promise:
        """With the value in it. A constant that changes is none."""
        types = self.types | {_TYPES[value.__class__]}
        if self.constant is not None:
            return Promise(types, unit=self.unit)
        low, high = self.low, self.high
        if isinstance(value, float):
            low = None if low is None else min(low, value)
            high = None if high is None else max(high, value)
        return self._replace(types=types, low=low, high=high)

    def to_json(self) -> dict[str, Any]:
        """As an announcement has it."""
        item: dict[str, Any] = {}
        if self.constant is not None:
            item = {"value": self.constant}
        elif len(self.types) == 1:
            item = {"type": min(self.types)}
            item |= {} if self.low is None or "number" not in self.types else {"min": self.low}
            item |= {} if self.high is None or "number" not in self.types else {"max": self.high}
        return item if self.unit is None else {**item, "unit": self.unit}


Promises = Mapping[str, Promise]


@dataclass(frozen=True, slots=True)
class Area:
    """Where this broker says that it is."""

    lat: float
    long: float
    radius_meters: float

    def holds(self, lat: float, long: float, share: float = 1.0) -> bool:
        """Whether a place is within, or within that share of the radius."""
        return distance(self.lat, self.long, lat, long) <= self.radius_meters * share

    def to_json(self) -> dict[str, Any]:
        """As an announcement has it."""
        return {"lat": self.lat, "long": self.long, "radius": self.radius_meters}


def any_like(value: Value) -> Promise:
    """Of an attribute of which nothing is known but this value: any of its type."""
    return Promise(frozenset({_TYPES[value.__class__]}))


def constant(value: Value) -> Promise:
    """Of an attribute that never changes."""
    return any_like(value)._replace(constant=value)


def able(ability: Ability) -> Promise:
    """Of an attribute of which something is known before it is heard."""
    return Promise(frozenset({ability.kind}), ability.minimum, ability.maximum, ability.unit)


Pair = tuple[Promises | None, Promises | None]
"""What was announced last of a source, and what is in force; None where it was, or is, not announced."""


def encode(pair: Pair) -> bytes:
    """As it is kept."""
    return json.dumps([_words(one) for one in pair]).encode()


def decode(data: bytes) -> Pair:
    """What gave these bytes."""
    last, force = (None if words is None else _promises_of(words) for words in json.loads(data))
    return (last, last) if last == force else (last, force)


def _words(promises: Promises | None) -> dict[str, Any] | None:
    if promises is None:
        return None
    return {name: [sorted(one.types), *one[1:]] for name, one in promises.items()}


def _promises_of(words: Mapping[str, Any]) -> Promises:
    return {name: Promise(frozenset(types), *others) for name, (types, *others) in words.items()}
