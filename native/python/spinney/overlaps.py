"""overlaps: whether a filter may match anything of what is known to come, such as an announcement's ranges."""

from __future__ import annotations

from .cases import satisfiable
from .covers import Prepared, prepared
from .expression import FALSE, UNKNOWN, Filter
from .known import Known
from .ranges import Environment
from .specialise import specialise


def overlaps(condition: Filter | Prepared, known: Known | Environment) -> bool:
    """Whether a publication that agrees with `known` may match. False only when proven that none does.

    Whoever asks for many filters makes the environment once: `known.environment`.
    """
    environment = known.environment if isinstance(known, Known) else known
    return any(satisfiable(case, environment) for case in prepared(condition).cases)


def activation(condition: Filter, known: Known) -> Filter | None:
    """What is left of a feed for those who publish what is known; None if they need not hear of it.

    This is the top, where UNKNOWN is as good as FALSE.
    """
    if not overlaps(condition, known):
        return None
    left = specialise(condition, known)
    return None if left in (FALSE, UNKNOWN) else left
