"""What the mobile broker calls a mote, and what a mote says of itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spinney.expression import Value
from spinney.mote import Attribute
from spinney.mote.attributes import MAX_ATTRIBUTES
from spinney.mote.protocol import AttributeRow, Info
from spinney.publication import RESERVED

from ..samples import HEARD, Ability

MAX_NAME: Final = 64
"""Characters of an attribute's name."""


class UnusableMoteError(ValueError):
    """A mote whose attributes cannot be used, and why."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What settings say of the device at an address. Motes that are not allowed have none."""

    source: str
    rename: Mapping[str, str] = field(default_factory=dict)
    """Attributes under other names."""
    attributes: Mapping[str, Value] = field(default_factory=dict)
    """More attributes, for each of its samples."""
    place: tuple[float, float] | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True)
class MoteInfo:
    """What an announcement and pages need to know of a mote."""

    source: str
    address: str
    name: str
    """As it calls itself."""
    abilities: Mapping[str, Ability]
    rows: Sequence[AttributeRow]
    """Its attributes by its own names."""
    boot: int
    sequence: int
    battery: float | None
    """0 to 1."""
    firmware: str


def described(info: Info, address: str, identity: Identity) -> MoteInfo:
    """From what a mote said of itself; UnusableMoteError."""
    names = attribute_names(info.attributes, identity)
    abilities = {
        name: Ability(row.low * row.p / row.q, row.high * row.p / row.q, row.unit or None)
        for name, row in zip(names, info.attributes, strict=True)
    }
    abilities[HEARD] = Ability()  # it is told of a sample some time after that was taken
    battery = None if info.battery is None else min(info.battery, 100) / 100
    return MoteInfo(
        identity.source,
        address,
        info.name,
        abilities,
        info.attributes,
        info.boot,
        info.sequence,
        battery,
        info.firmware,
    )


def attribute_names(rows: Sequence[AttributeRow], identity: Identity) -> list[str]:
    """What its attributes are called here, in its order; UnusableMoteError."""
    if len(rows) > MAX_ATTRIBUTES:
        raise UnusableMoteError(f"the mote has {len(rows)} attributes, more than {MAX_ATTRIBUTES}")
    names = [identity.rename.get(row.name, row.name) for row in rows]
    for name in names:
        if name in RESERVED or name in identity.attributes:
            raise UnusableMoteError(
                f"the mote's attribute {name} has a name that is taken: rename it in its [[device]]"
            )
        if not 0 < len(name) <= MAX_NAME:
            raise UnusableMoteError(f"an attribute's name has 1 to {MAX_NAME} characters, not {len(name)}")
        if names.count(name) > 1:
            raise UnusableMoteError(f"the mote has two attributes called {name}: rename one in its [[device]]")
    return names


def attributes_of(rows: Sequence[AttributeRow], identity: Identity) -> list[Attribute]:
    """As the compiler of filters wants them; UnusableMoteError."""
    names = attribute_names(rows, identity)
    try:
        return [Attribute(name, row.p, row.q, row.low, row.high) for name, row in zip(names, rows, strict=True)]
    except ValueError as error:
        raise UnusableMoteError(str(error)) from None
