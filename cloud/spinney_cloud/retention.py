"""What the keeper may purge, as plain functions: by age and bytes, never past what a required reader still needs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from .names import LOG, NOTES
from .positions import Position

MATCHER, DELIVERY, PIPELINE = "matcher", "delivery", "pipeline"


class Limit(NamedTuple):
    """How long and how much of a stream is kept."""

    max_age: float
    max_bytes: int


class Hold(NamedTuple):
    """A reader for whom a stream keeps more than its limits say."""

    stream: str
    reader: str
    messages: int
    """That would be purged if it were not for this reader."""


class Plan(NamedTuple):
    """What to do with a stream."""

    purge_to: int
    """Everything up to this sequence goes; below the first one: nothing."""
    hold: Hold | None


def required_readers(stream: str, *, pipeline: bool) -> tuple[str, ...]:
    """Who must have read a message before it may go."""
    if stream == NOTES:
        return (DELIVERY,)
    return (MATCHER, PIPELINE) if stream == LOG and pipeline else (MATCHER,) if stream == LOG else ()


def lowest_floor(
    stream: str, readers: Iterable[str], positions: Mapping[str, Position], released: Mapping[str, int]
) -> tuple[float, str | None]:
    """The lowest floor of a stream's readers, and whose it is; infinite if nobody must read it.

    Who has no position yet needs all. Who was released at its floor is not waited for until it has come further.
    """
    lowest, whose = math.inf, None
    for name in readers:
        position = positions.get(name)
        floor = position.floor if position is not None and position.stream == stream else 0
        if name in released and floor <= released[name]:
            continue
        if floor < lowest:
            lowest, whose = floor, name
    return lowest, whose


def plan(stream: str, first: int, wish: int, floor: float, reader: str | None) -> Plan:
    """Purge up to `wish`, or as far as the readers allow."""
    if wish < first:
        return Plan(first - 1, None)
    if wish <= floor or reader is None:
        return Plan(wish, None)
    purge_to = max(first - 1, int(floor))
    return Plan(purge_to, Hold(stream, reader, wish - purge_to))


def beyond_bytes(first: int, messages: int, size: int, max_bytes: int) -> int:
    """The sequence up to which messages must go so that the rest is about `max_bytes`, taken that all are alike."""
    if size <= max_bytes or not messages:
        return first - 1
    return first - 1 + min(messages, math.ceil((size - max_bytes) * messages / size))
