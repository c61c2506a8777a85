"""The texts of filters that this computer has sent, by the CRC of their programs: a mote knows programs only."""

from __future__ import annotations

import json
import os
from pathlib import Path

from spinney_tools import cache

MAX_NOTES = 2_000
"""The oldest go first."""


def file() -> Path:
    """Where they are kept."""
    return cache.folder("mote") / "filters.json"


def read() -> dict[int, str]:
    """What there is; nothing where the file is missing or damaged."""
    try:
        found = json.loads(file().read_text("utf-8"))
        return {int(crc, 16): str(text) for crc, text in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def write(crc: int, text: str) -> None:
    """Adds one; the file is replaced at once, so that it is never half written."""
    notes = read()
    notes.pop(crc, None)
    notes[crc] = text
    kept = list(notes.items())[-MAX_NOTES:]
    target = file()
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_suffix(f".{os.getpid()}")
    aside.write_text(json.dumps({f"{one:08x}": words for one, words in kept}, ensure_ascii=False), "utf-8")
    aside.replace(target)
