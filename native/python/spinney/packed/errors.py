"""What can be wrong with a packed message."""

from __future__ import annotations


class PackedError(ValueError):
    """Bytes that are no packed message, or one beyond the bounds: it says why."""


class UnknownDictionary(PackedError):
    """A message that refers to an earlier one that is not kept here: send it again without."""

    def __init__(self) -> None:
        super().__init__("dictionary: it refers to an earlier message that is not kept; send it without")


class Unpackable(ValueError):
    """What can only be sent as JSON."""
