"""Which Spinney this is: its version, and in a clone the commit. Nothing has to be installed for it."""

from __future__ import annotations

import re
import subprocess
from contextlib import suppress
from pathlib import Path

from spinney_tools import clone

GIT_SECONDS = 0.15
"""After it the commit is read from git's files, without a look at whether files differ from it."""
SHOWN_DIGITS = 10


def version() -> str:
    """`0.1.0 (commit 1a2b3c4d5e)`; the version alone where there is no repository."""
    number = _number()
    found = commit()
    return f"{number} (commit {found})" if found else number


def _number() -> str:
    """Of the clone, else of what is installed."""
    try:
        text = (clone.root() / "pyproject.toml").read_text(encoding="utf-8")
    except (clone.NotACloneError, OSError):
        from importlib import metadata

        return metadata.version("spinney")
    found = re.search(r'^version = "(.+)"$', text, re.MULTILINE)
    return found[1] if found else "unknown"


def commit() -> str | None:
    """The clone's commit, with `-dirty` behind it if files differ from it."""
    try:
        top = clone.root()
    except clone.NotACloneError:
        return None
    try:
        done = subprocess.run(
            # it looks, and writes nothing
            ["git", "--no-optional-locks", "-C", str(top), "status", "--porcelain=v2", "--branch", "-uno"],
            capture_output=True,
            text=True,
            check=True,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return read_commit(top)
    lines = done.stdout.splitlines()
    digits = next((line.split()[2] for line in lines if line.startswith("# branch.oid ")), "")
    return digits[:SHOWN_DIGITS] + ("-dirty" if any(not line.startswith("#") for line in lines) else "") or None


def read_commit(top: Path) -> str | None:
    """As git's files have it; None if there are none, or if they are of a kind that is left to git."""
    with suppress(OSError, ValueError, IndexError):
        folder = top / ".git"
        if folder.is_file():  # a work tree beside its repository
            folder = (top / folder.read_text(encoding="utf-8").partition("gitdir: ")[2].strip()).resolve()
        head = (folder / "HEAD").read_text(encoding="utf-8").strip()
        shared = folder / "commondir"
        common = (folder / shared.read_text(encoding="utf-8").strip()).resolve() if shared.exists() else folder
        return _hash(common, head.removeprefix("ref: ")) if head.startswith("ref: ") else _shown(head)
    return None


def _hash(folder: Path, ref: str) -> str | None:
    if (folder / ref).exists():
        return _shown((folder / ref).read_text(encoding="utf-8").strip())
    packed = (folder / "packed-refs").read_text(encoding="utf-8").splitlines()
    return next((_shown(line.split()[0]) for line in packed if line.endswith(f" {ref}")), None)


def _shown(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{40,64}", text):
        raise ValueError(text)
    return text[:SHOWN_DIGITS]
