"""What a payload holds: rows that may become publications, and what was refused of it already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from typing import Literal as OneOf

Kind = OneOf["payload", "row", "id", "lease", "label", "rate", "size", "disk", "topic", "retained", "broken"]
"""Why something is refused, as metrics count it."""


class PayloadError(ValueError):
    """A payload of which nothing can be used."""


class Refusal(NamedTuple):
    """An item of a payload that does not become a publication; without a row the whole payload."""

    row: int | None
    """Where it stands in the payload, from 0; for SenML the record, for a label the label."""
    id: str | None
    reason: str
    kind: Kind


@dataclass(slots=True)
class Batch:
    """The rows of one payload. None has been read as a publication yet."""

    rows: list[Any]
    places: Sequence[int]
    """Where each row stands in the payload."""
    from_door: bool = False
    """Whether the rows are flat objects of finite numbers, proper strings and booleans, as the JSON door makes sure."""
    refusals: list[Refusal] = field(default_factory=list)
    batch: str | int | None = None
    """The sender's name for all this."""
    epochs: dict[str, int] = field(default_factory=dict)
    """The lease under which the sender owns a source."""
    labels: list[Any] = field(default_factory=list)
    """[row or null, digest of a filter, label]."""
    is_packed: bool = False
    """Whether its sender speaks the packed format."""
    kept: bytes | None = None
    """What the sender asks to keep, so that later payloads may refer to it."""
