"""The filters that a tenant's subscriptions want, each once, found by what a broker's publications can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from spinney import feed
from spinney.bounds import bounds
from spinney.mask_index import MaskIndex, Possible, slots
from spinney.subscription import Subscription

from .density import Density, read_density
from .subscriptions import StoredSubscription

BLOCK: Final = 2048
"""Filters in one mask index: its masks are copied at each change."""


class Wanted:
    """A normal form that somebody wants."""

    __slots__ = ("block", "densities", "digest", "normal", "plain", "slot", "start")

    def __init__(self, digest: str, normal: str) -> None:
        self.digest = digest
        self.normal = normal
        self.plain = 0
        """Subscriptions that want it from everywhere..."""
        self.densities: dict[str, Density] = {}
        """...and those that want just enough sources, by their keys."""
        self.start: int | None = None
        """Of state filters: where in the log the newest of their subscriptions began (rule I4)."""
        self.block = self.slot = 0

    @property
    def is_dense(self) -> bool:
        """Whether just enough sources will do."""
        return not self.plain


class _Place(NamedTuple):
    digest: str
    density: Density | None


class WantedIndex:
    """The enabled subscriptions of one tenant, by digest."""

    def __init__(self) -> None:
        self._of: dict[str, _Place] = {}
        self._wanted: dict[str, Wanted] = {}
        self._blocks: list[tuple[MaskIndex, dict[int, str]]] = []
        self._roomy: set[int] = set()

    def __len__(self) -> int:
        return len(self._wanted)

    def __contains__(self, key: object) -> bool:
        return key in self._of

    def get(self, digest: str) -> Wanted | None:
        """What is wanted under a digest."""
        return self._wanted.get(digest)

    def dense(self) -> list[Wanted]:
        """Those for which just enough sources will do."""
        return [one for one in self._wanted.values() if one.is_dense]

    def put(self, key: str, stored: StoredSubscription | None, parsed: Subscription | None = None) -> set[str]:
        """A subscription is this now (None: it has ended); the digests for which something has changed."""
        old = self._of.get(key)
        new = None
        if stored is not None and stored.enabled:
            density = stored.options.get("density")
            new = _Place(stored.digest, None if density is None else read_density(density))
        if old == new:
            return set()
        digests = {place.digest for place in (old, new) if place is not None}
        before = {digest: self._state(digest) for digest in digests}
        if new is not None and stored is not None:
            self._of[key] = new
            self._add(key, new, stored, parsed)
        if old is not None:
            self._drop(key, old, replaced=new is not None)
        return {digest for digest in digests if self._state(digest) != before[digest]}

    def _state(self, digest: str) -> tuple[bool, frozenset[Density], int | None] | None:
        """All that activation depends on."""
        wanted = self._wanted.get(digest)
        if wanted is None:
            return None
        densities = frozenset(wanted.densities.values()) if wanted.is_dense else frozenset[Density]()
        return wanted.is_dense, densities, wanted.start

    def _add(self, key: str, place: _Place, stored: StoredSubscription, parsed: Subscription | None) -> None:
        wanted = self._wanted.get(place.digest)
        if wanted is None:
            wanted = self._wanted[place.digest] = Wanted(place.digest, stored.normal)
            self._index(wanted, stored.subscription() if parsed is None else parsed)
        if stored.kind == "state":
            wanted.start = max(stored.start, wanted.start or 0)
        if place.density is None:
            wanted.plain += 1
        else:
            wanted.densities[key] = place.density

    def _drop(self, key: str, place: _Place, *, replaced: bool) -> None:
        if not replaced:
            del self._of[key]
        wanted = self._wanted[place.digest]
        if place.density is None:
            wanted.plain -= 1
        elif not replaced or self._of[key].digest != place.digest or self._of[key].density is None:
            del wanted.densities[key]
        if not wanted.plain and not wanted.densities:
            del self._wanted[place.digest]
            index, digests = self._blocks[wanted.block]
            index.remove(wanted.slot)
            del digests[wanted.slot]
            self._roomy.add(wanted.block)

    def _index(self, wanted: Wanted, subscription: Subscription) -> None:
        if not self._roomy:
            self._blocks.append((MaskIndex(), {}))
            self._roomy.add(len(self._blocks) - 1)
        wanted.block = next(iter(self._roomy))
        index, digests = self._blocks[wanted.block]
        wanted.slot = index.add(bounds(feed(subscription)))
        digests[wanted.slot] = wanted.digest
        if len(digests) >= BLOCK:
            self._roomy.discard(wanted.block)

    def meeting(self, possible: Mapping[str, Possible]) -> Iterator[str]:
        """The digests of the filters that may match publications with these attributes and no others."""
        for index, digests in self._blocks:
            for slot in slots(index.meeting(possible)):
                yield digests[slot]
