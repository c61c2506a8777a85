"""Who owns which source (rule I1): told by the cloud; offline, whoever is connected.

A broker asks in its announcement for the sources that it wants to own. While the cloud has said nothing of a source,
or cannot be heard, it behaves as the owner of what it asked for, unless another was named last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

MAX_LEASES: Final = 10_000
"""As many as an announcement may have sources."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A source's owner as the cloud said last: a client's name, or None for nobody."""

    source: str
    owner: str | None
    epoch: int
    """Grows with each owner; 0 without one."""


@dataclass(frozen=True, slots=True)
class _Told:
    lease: Lease
    since: int
    """The epoch from which on nobody else is known to have owned it."""


class Leases:
    """Of one broker. What it has been told outlives a restart by `encode` and `restore`."""

    def __init__(self, client: str) -> None:
        self._client = client
        self._wanted: frozenset[str] = frozenset()
        self._told: dict[str, _Told] = {}

    # ---- What is asked for

    @property
    def wanted(self) -> Collection[str]:
        """The sources that the broker asks for."""
        return self._wanted

    def want(self, sources: Iterable[str]) -> bool:
        """Ask for these and for no others; whether that is a change."""
        wanted = frozenset(sources)
        changed, self._wanted = wanted != self._wanted, wanted
        return changed

    # ---- What is told

    def tell(self, items: Any) -> dict[str, Lease]:
        """Take what an activation says of leases, which is all of them; those that have changed."""
        told = {lease.source: lease for lease in map(_read, items[:MAX_LEASES])}
        over = {source: replace(old.lease, owner=None) for source, old in self._told.items() if source not in told}
        changed = {
            source: lease
            for source, lease in {**over, **told}.items()
            if source not in self._told or self._told[source].lease != lease
        }
        for source, lease in changed.items():
            self._told[source] = _Told(lease, self._since(lease))
        for source in over:
            if source not in self._wanted:
                del self._told[source]
        return changed

    def _since(self, lease: Lease) -> int:
        old = self._told.get(lease.source)
        if old is None:
            return 0
        return lease.epoch if old.lease.owner not in (None, self._client) else old.since

    @property
    def known(self) -> Mapping[str, Lease]:
        """By source, what has been told."""
        return {source: told.lease for source, told in self._told.items()}

    def owns(self, source: str) -> bool:
        """Whether this broker is to connect, publish and decide: unless somebody else is known to be the owner."""
        told = self._told.get(source)
        return told is None or told.lease.owner in (None, self._client)

    def epoch(self, source: str) -> int:
        """Of this broker's lease; 0 while it has none."""
        told = self._told.get(source)
        return told.lease.epoch if told is not None and told.lease.owner == self._client else 0

    def epoch_of_labels(self, source: str, made: int) -> int:
        """Under which epoch labels go up that were made under another one of this broker's.

        The current one, so that the cloud knows its owner's word, unless somebody else had the source in between.
        """
        told = self._told.get(source)
        if told is None or told.lease.owner != self._client or made < told.since:
            return made
        return told.lease.epoch

    # ---- On disk

    def encode(self) -> bytes:
        """All that has been told."""
        return json.dumps([{**asdict(told.lease), "since": told.since} for told in self._told.values()]).encode()

    def restore(self, data: bytes) -> None:
        """What gave these bytes; ValueError if nothing did."""
        items = json.loads(data)
        if not isinstance(items, list):
            raise ValueError("leases are an array")
        self._told = {lease.source: _Told(lease, int(item["since"])) for item in items for lease in (_read(item),)}


def _read(item: Any) -> Lease:
    match item:
        case {"source": str(source), "owner": None, **_others}:
            return Lease(source, None, 0)
        case {"source": str(source), "owner": str(owner), "epoch": int(epoch), **_others}:
            return Lease(source, owner, epoch)
    raise ValueError(f"expected source, owner and epoch, not {item!s:.80}")
