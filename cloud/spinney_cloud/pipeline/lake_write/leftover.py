"""Deletes files that tasks wrote and that no transaction will ever name (see the package's description)."""

from __future__ import annotations

import re
from contextlib import suppress

from deltalake.exceptions import DeltaError

from ..lake import OBSERVATIONS, TABLES, Lake, LakeError
from .place import Place, filesystem

_WRITTEN = re.compile(r"(?:.*/)?log-(\d+)-\d+-[0-9a-f]{32}\.parquet")


def delete_leftovers(lake: Lake, name: str) -> int:
    """Of a table; how many there were."""
    if name not in TABLES:
        return 0
    mark = lake.sequence(OBSERVATIONS)  # before the table is read, which then names all that was written up to there
    try:
        found = leftovers(lake, name, mark)
        files = filesystem(Place.of(lake), name)
        for path in found:
            with suppress(FileNotFoundError):  # another who keeps the lake was first
                files.delete_file(path)
    except (DeltaError, OSError) as error:
        raise LakeError(f"the lake's table {lake.path(name)}: leftovers of batches stay: {error}") from error
    return len(found)


def leftovers(lake: Lake, name: str, mark: int) -> list[str]:
    """Paths below the table's folder. `mark`: up to where the observations had the log before.

    What a compaction has replaced is none: readers of an older version may still need it, and vacuum counts its hours.
    """
    table = lake.table(name)
    replaced = set(table.vacuum(0, dry_run=True, enforce_retention_duration=False))
    unnamed = table.vacuum(0, dry_run=True, enforce_retention_duration=False, full=True)
    return [path for path in unnamed if path not in replaced and _is_past(path, mark)]


def _is_past(path: str, mark: int) -> bool:
    found = _WRITTEN.fullmatch(path)
    return found is not None and int(found[1]) <= mark
