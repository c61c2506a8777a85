"""The matching engine: what each record of the log tells whom."""

from .engine import Engine, SnapshotError

__all__ = ["Engine", "SnapshotError"]
