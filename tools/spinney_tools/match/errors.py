"""What `spinney match` can find wrong: where it stands, and what it is."""

from __future__ import annotations


class InputError(Exception):
    """A reading, a subscription or a file that cannot be used. Its text begins with the place."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place}: {message}")
