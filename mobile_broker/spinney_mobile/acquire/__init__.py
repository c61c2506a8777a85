"""Ways to hear sources, each by itself, and what keeps them going."""

from .kinds import make, name_of
from .supervision import Acquirers

__all__ = ["Acquirers", "make", "name_of"]
