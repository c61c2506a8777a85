"""What commands show: tables for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from spinney_tools.ls import cell


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Left-aligned columns under their names."""
    lines = [[name.upper() for name in columns], *([cell(value) for value in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(
        "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def pairs(found: dict[str, Any]) -> str:
    """A name and its value on each line."""
    width = max(map(len, found), default=0)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in found.items())


def readings(values: dict[str, Any]) -> str:
    """Attributes in one line."""
    return "  ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in values.items()
    )


def as_json(found: dict[str, Any]) -> str:
    """One line."""
    return json.dumps(found, ensure_ascii=False)
