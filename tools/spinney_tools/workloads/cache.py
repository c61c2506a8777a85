"""Where generated workloads are kept: 110 MB that anyone can make again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def default_folder() -> Path:
    """The folder for workloads in the user's cache, as the platform has it."""
    home = Path.home()
    if sys.platform == "darwin":
        cache = home / "Library" / "Caches"
    elif sys.platform == "win32":
        cache = Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local")
    else:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache")
    return cache / "spinney" / "workloads"
