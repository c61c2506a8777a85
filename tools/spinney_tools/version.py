"""Which Spinney this is: its version, and in a clone the commit."""

from __future__ import annotations

import subprocess
from importlib import metadata

from spinney_tools import clone


def version() -> str:
    """`0.1.0 (commit 1a2b3c4d5e)`; the version alone where there is no repository."""
    number = metadata.version("spinney")
    found = commit()
    return f"{number} (commit {found})" if found else number


def commit() -> str | None:
    """The clone's commit, with `-dirty` behind it if files differ from it."""
    try:
        top = clone.root()
        done = subprocess.run(
            ["git", "-C", str(top), "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (clone.NotACloneError, OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
