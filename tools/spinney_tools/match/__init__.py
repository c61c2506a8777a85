"""`spinney match`: which readings match which subscriptions, from files or a pipe, as JSON lines."""

from .command import main

__all__ = ["main"]
