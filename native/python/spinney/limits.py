"""What a filter may be, whichever form it comes in. Each check raises ValueError with what is wrong."""

from __future__ import annotations

import re

from .expression import CaseFold, Expression, Literal, Node
from .geometry import BBox, Position

MAX_DEPTH = 100
"""Levels of nesting in one filter: far beyond what people write, far below Python's stack."""

_SURROGATE = re.compile("[\ud800-\udfff]")


def check_depth(node: Node) -> None:
    """The tree must not be so deep that walking it could exhaust the stack."""
    level, depth = [node], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
        level = [child for item in level for child in item.children()]


def check_string(text: str) -> None:
    """Python's strings can hold half of a character, which UTF-8 cannot say."""
    if not text.isascii() and (half := _SURROGATE.search(text)):
        raise ValueError(f"{half[0]!r} is half of a surrogate pair, not a character")


def can_be_number(expression: Expression) -> bool:
    """False for what is a string or a boolean whatever the publication."""
    if isinstance(expression, Literal):
        return isinstance(expression.value, float)
    return not isinstance(expression, CaseFold)


def check_position(position: Position) -> None:
    """x is a longitude, y a latitude."""
    x, y = position
    if not -180 <= x <= 180:
        raise ValueError(f"{x:g} is not a longitude (-180 to 180); a position is written: long lat")
    if not -90 <= y <= 90:
        raise ValueError(f"{y:g} is not a latitude (-90 to 90); a position is written: long lat")


def check_ring(ring: tuple[Position, ...]) -> None:
    """A closed line around something."""
    if len(ring) < 4:
        raise ValueError(f"a ring of a polygon has 4 positions or more, the last equal to the first; found {len(ring)}")
    if ring[0] != ring[-1]:
        raise ValueError("a ring of a polygon must end where it begins")


def check_bbox(box: BBox) -> None:
    """South below north; west may be beyond east (the box then crosses the antimeridian)."""
    check_position((box.west, box.south))
    check_position((box.east, box.north))
    if box.south > box.north:
        raise ValueError("BBOX takes west, south, east, north: south must not be above north")
