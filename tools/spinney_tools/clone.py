"""Where the clone is that this package runs from: tests, checks and benches need its other folders."""

from __future__ import annotations

from pathlib import Path


class NotACloneError(Exception):
    """Spinney is installed without its repository."""


def root() -> Path:
    """The top folder of the clone."""
    top = Path(__file__).resolve().parents[2]
    if not (top / "native" / "include" / "spinney.h").exists():
        raise NotACloneError("this command works in a clone of the repository, as ./spinney")
    return top
