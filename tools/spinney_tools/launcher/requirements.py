"""What pyproject.toml asks for, in groups to be downloaded one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_OWN: Final = re.compile(r"spinney\[([\w,-]+)\]$")


def groups(pyproject: Path, extra: str) -> list[list[str]]:
    """One for each requirement that an extra names itself, and a last one for all else that an installation needs."""
    import tomllib  # Pythons that have it not do not come so far

    told = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    project: Mapping[str, Any] = told.get("project", {})
    extras: Mapping[str, Sequence[str]] = project.get("optional-dependencies", {})
    own = [one for one in extras.get(extra, ()) if not _OWN.match(one)]
    others = [*told.get("build-system", {}).get("requires", ()), *project.get("dependencies", ())]
    others += [one for one in _expanded(extras, extra) if one not in own]
    rest = [*dict.fromkeys(others)]
    return [*([one] for one in own), *([rest] if rest else [])]


def _expanded(extras: Mapping[str, Sequence[str]], extra: str) -> Iterator[str]:
    """All requirements of an extra, with those of the extras that it names."""
    for one in extras.get(extra, ()):
        if found := _OWN.match(one):
            for below in found[1].split(","):
                yield from _expanded(extras, below)
        else:
            yield one
