"""`spinney cloud`: the cloud broker on this machine."""

from __future__ import annotations

from spinney_cloud.command import main

__all__ = ["main"]
