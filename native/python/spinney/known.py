"""What is known of publications before they come: of each attribute its type, its domain and its presence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

from . import intervals
from .domain import ANYTHING, NULL, PRESENT, Domain, any_of, of_type
from .errors import KnownError, PublicationError
from .expression import Value
from .publication import attribute
from .ranges import Environment

Presence = OneOf["always", "maybe", "never"]

_TYPES: Mapping[str, type] = {"number": float, "string": str, "boolean": bool}
_MEMBERS = ("type", "presence", "value", "values", "min", "max")
MAX_VALUES = 10_000
"""Values that one attribute may be said to have."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one attribute can be. `domain` says which values; null among them means that it may be missing."""

    domain: Domain = ANYTHING

    @staticmethod
    def constant(value: Value, presence: Presence = "always") -> Knowledge:
        """One value."""
        return Knowledge.one_of([value], presence)

    @staticmethod
    def one_of(values: list[Value], presence: Presence = "maybe") -> Knowledge:
        """A set of values."""
        return Knowledge(_with_presence(any_of(values), presence))

    @staticmethod
    def between(low: float, high: float, presence: Presence = "maybe") -> Knowledge:
        """A closed range of numbers."""
        return Knowledge(_with_presence(Domain(numbers=intervals.from_to(low, high)), presence))

    @staticmethod
    def never() -> Knowledge:
        """An attribute that no publication has."""
        return Knowledge(NULL)

    @staticmethod
    def from_json(item: Any, name: str) -> Knowledge:
        """From an announcement's words: {"type": "number", "min": -40, "max": 85, "presence": "maybe"},
        {"value": "m1", "presence": "always"}, {"values": ["a", "b"]}. Presence is "maybe" unless said.
        """
        if not isinstance(item, Mapping) or any(member not in _MEMBERS for member in item):
            raise KnownError(f"expected an object with some of {', '.join(_MEMBERS)}", attribute=name)
        presence = item.get("presence", "maybe")
        if presence not in ("always", "maybe", "never"):
            raise KnownError('presence is "always", "maybe" or "never"', attribute=name)
        return Knowledge(_with_presence(_read_values(item, name), presence))


def _with_presence(values: Domain, presence: Presence) -> Domain:
    return NULL if presence == "never" else replace(values, null=presence == "maybe")


def _read_values(item: Mapping[str, Any], name: str) -> Domain:
    found = PRESENT
    if "value" in item or "values" in item:
        values = item["values"] if "values" in item else [item["value"]]
        if not isinstance(values, list) or not 0 < len(values) <= MAX_VALUES or ("value" in item and "values" in item):
            raise KnownError(f"expected one value, or values in an array of 1 to {MAX_VALUES}", attribute=name)
        found = any_of(_read_value(value, name) for value in values)
    if "min" in item or "max" in item:
        low, high = (_read_limit(item, member, name) for member in ("min", "max"))
        if low > high:
            raise KnownError(f"min {low:g} is above max {high:g}", attribute=name)
        found = found.meet(Domain(numbers=intervals.from_to(low, high)))
    kind = item.get("type", "any")
    if kind not in ("any", *_TYPES):
        raise KnownError('type is "number", "string", "boolean" or "any"', attribute=name)
    if kind != "any":
        found = found.meet(of_type(_TYPES[kind], intervals.everything(_TYPES[kind])))
    if found.is_empty():
        raise KnownError("no value has this type and lies within these limits", attribute=name)
    return found


def _read_value(value: Any, name: str) -> Value:
    try:
        read = attribute({name: value}, name)
    except PublicationError as error:
        raise KnownError(str(error), attribute=name) from None
    if read is None:
        raise KnownError('a value is not null; say "presence": "never"', attribute=name)
    return read


def _read_limit(item: Mapping[str, Any], member: str, name: str) -> float:
    if member not in item:
        return -intervals.LARGEST if member == "min" else intervals.LARGEST
    limit = _read_value(item[member], name)
    if not isinstance(limit, float):
        raise KnownError(f"{member} is a number", attribute=name)
    return limit


@dataclass(frozen=True, slots=True)
class Known:
    """Knowledge of attributes by name. If `closed`, no publication has any other attribute.

    An announcement names all attributes, the reserved ones too, and is closed; a mote's constants are not.
    """

    attributes: Mapping[str, Knowledge] = field(default_factory=dict)
    closed: bool = False

    @staticmethod
    def from_json(item: Any, *, closed: bool = False) -> Known:
        """From an object of Knowledge by attribute."""
        if not isinstance(item, Mapping):
            raise KnownError("expected an object of attributes")
        return Known({str(name): Knowledge.from_json(value, str(name)) for name, value in item.items()}, closed)

    @property
    def environment(self) -> Environment:
        """The same, for the proofs."""
        domains = {name: knowledge.domain for name, knowledge in self.attributes.items()}
        return Environment(domains, NULL if self.closed else ANYTHING)

    def agrees(self, publication: Mapping[str, Any]) -> bool:
        """Whether the publication is as known: only then do results hold for it."""
        if self.closed and any(publication[name] is not None and name not in self.attributes for name in publication):
            return False
        return all(
            knowledge.domain.contains(attribute(publication, name)) for name, knowledge in self.attributes.items()
        )
