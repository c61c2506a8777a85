"""Colours of why a notification came, on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Final

COLOURS: Final[Mapping[str, str]] = {"match": "36", "enter": "31", "exit": "32", "top": "33"}
"""As terminals number them."""


def coloured(text: str, colour: str) -> str:
    """The text in this colour; as it is where no terminal is."""
    return f"\x1b[{colour}m{text}\x1b[0m" if sys.stdout.isatty() else text
