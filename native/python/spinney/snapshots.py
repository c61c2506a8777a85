"""Snapshots: what an object remembers, as JSON, so that a crash costs nothing but the log since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import SnapshotError


def check_snapshot(snapshot: Mapping[str, Any], kind: str, version: int) -> None:
    """Refuse a snapshot of something else, or in a form that this version cannot read."""
    found = (snapshot.get("format"), snapshot.get("version"))
    if found != (kind, version):
        raise SnapshotError(f"expected a snapshot of {kind}, version {version}, not of {found[0]}, version {found[1]}")
