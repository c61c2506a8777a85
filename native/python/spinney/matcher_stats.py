"""What a matcher tells of itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts of a matcher's content."""

    ids: int
    entries: int
    """Distinct filters: ids whose filters are equal share one."""
    indexed: int
    """Entries that the index finds..."""
    scanned: int
    """...and those that have to be asked for every publication."""
    attributes: int
    bytes: int
    """Allocated by the C core; 0 in pure Python."""
