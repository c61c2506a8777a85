"""`spinney bench`: one table per question, measured as ratios within one run, README rows produced by it."""

from .command import main

__all__ = ["main"]
