"""How to get into MQTT servers that are not Spinney's."""

from __future__ import annotations

from pathlib import Path

from spinney.client.address import Access


class ForeignAccess(Access):
    """To a server whose users may be called anything."""

    def __post_init__(self) -> None:
        """Nothing is wrong with any name."""


def password_in(file: Path) -> str:
    """The first line; OSError if it cannot be read."""
    return file.read_text(encoding="utf-8").partition("\n")[0].strip()
