"""Spinney motes: who to connect to, what filters to put onto them, and the samples that they let through."""

from .adverts import AdvertPolicy
from .identity import Identity, MoteInfo
from .motes import Motes

__all__ = ["AdvertPolicy", "Identity", "MoteInfo", "Motes"]
