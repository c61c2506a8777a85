"""specialise: folds what is known of publications into a filter (design: the one idea)."""

from __future__ import annotations

from .expression import Filter
from .known import Known
from .simplify import simplify


def specialise(condition: Filter, known: Known) -> Filter:
    """A filter with the same verdict on every publication that agrees with `known`, and as simple as can be proven.

    TRUE, FALSE and UNKNOWN are the Constant nodes. UNKNOWN is as good as FALSE only at the top: see overlaps().
    """
    return simplify(condition, known.environment)
