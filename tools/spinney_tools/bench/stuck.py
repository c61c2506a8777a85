"""The error of a benchmark that waits for servers and clients."""

from __future__ import annotations


class Stuck(Exception):
    """Something that a benchmark waited for did not come."""
