"""`spinney mobile`: the mobile broker on this machine."""

from __future__ import annotations

from spinney_mobile.command import main

__all__ = ["main"]
