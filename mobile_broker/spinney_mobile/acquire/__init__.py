"""Ways to hear sources, each by itself, and what keeps them going."""

from .kinds import make, name_of
from .supervision import Acquirers
from .unmade import made

__all__ = ["Acquirers", "made", "make", "name_of"]
