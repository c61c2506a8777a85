"""Lines of JSON or CSV, each one sample."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Sequence
from typing import Any, Literal

Format = Literal["json", "csv"]


class LineError(ValueError):
    """A line that is no sample, and why."""


class Lines:
    """Reads one line after the other. The first line of CSV names the columns, unless they are given."""

    def __init__(self, form: Format, columns: Sequence[str] = ()) -> None:
        self._form = form
        self._columns = list(columns)

    def read(self, line: str) -> dict[str, Any] | None:
        """The attributes in it; None for an empty line and for one that names the columns; LineError."""
        line = line.strip().lstrip("\ufeff")
        if not line:
            return None
        return _object(line) if self._form == "json" else self._row(line)

    def _row(self, line: str) -> dict[str, Any] | None:
        try:
            cells = next(csv.reader([line], skipinitialspace=True))
        except csv.Error as error:
            raise LineError(f"no CSV: {error}") from None
        if not self._columns:
            self._columns = _names(cells)
            return None
        if [cell.strip() for cell in cells] == self._columns:
            return None  # the device has started again
        if len(cells) != len(self._columns):
            raise LineError(f"{len(cells)} cells for {len(self._columns)} columns: {line[:80]!r}")
        return {
            name: value
            for name, value in zip(self._columns, map(cell_value, cells), strict=True)
            if name and value is not None
        }


def _names(cells: list[str]) -> list[str]:
    names = [cell.strip() for cell in cells]
    if any(isinstance(cell_value(name), float) for name in names):
        raise LineError(f"this line names no columns: {','.join(names)[:80]!r}: set columns")
    return names


def cell_value(cell: str) -> float | bool | str | None:
    """A number, true or false, else a text; None if it is empty."""
    cell = cell.strip()
    if cell.lower() in ("true", "false"):
        return cell.lower() == "true"
    try:
        number = float(cell)
    except ValueError:
        return cell or None
    return number if math.isfinite(number) else None


def _object(line: str) -> dict[str, Any]:
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LineError(f"no JSON: {error}: {line[:80]!r}") from None
    if not isinstance(item, dict):
        raise LineError(f"no object: {line[:80]!r}")
    return item
