"""Filters for motes: `compile` makes the program that a mote's own small machine runs (firmware/lib/spinney_mote)."""

from .attributes import Attribute, layout
from .compiler import Compiled, Delivery, Refusal, addressed, compile  # noqa: A004  # spinney.mote.compile says what it does

__all__ = ["Attribute", "Compiled", "Delivery", "Refusal", "addressed", "compile", "layout"]
