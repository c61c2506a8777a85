"""Where generated workloads are kept: 110 MB that anyone can make again."""

from __future__ import annotations

from pathlib import Path

from spinney_tools import cache


def default_folder() -> Path:
    """The folder for workloads in the user's cache."""
    return cache.folder("workloads")
