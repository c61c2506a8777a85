"""Which density of sources subscriptions ask for, by type: what coverage is measured against."""

from __future__ import annotations

from collections.abc import Iterable

from spinney import feed
from spinney.cases import cases_of
from spinney.expression import Filter

from ..density import Density, read_density
from ..subscriptions import StoredSubscription

MAX_TYPES = 100
"""That one filter names."""


def wanted_densities(subscriptions: Iterable[StoredSubscription]) -> dict[str | None, Density]:
    """The highest that anybody asks for; under None what is asked for whatever the type."""
    found: dict[str | None, Density] = {}
    for one in subscriptions:
        if one.enabled and one.options.get("density") is not None:
            density = read_density(one.options["density"])
            for kind in types_of(feed(one.subscription())):
                if kind not in found or _readings(density) > _readings(found[kind]):
                    found[kind] = density
    return found


def types_of(condition: Filter) -> list[str | None]:
    """The types that a filter names; None if others may match, too."""
    found: set[str] = set()
    for case in cases_of(condition):
        domain = case.follows.get("type")
        names = None if domain is None or domain.null else domain.members(MAX_TYPES)
        if names is None:
            return [None]
        found.update(name for name in names if isinstance(name, str))
    return [*sorted(found)]


def _readings(density: Density) -> float:
    """In a second, on a place as large as H3's largest cell."""
    return density.per_cell * 7.0**density.cell / density.every_seconds
