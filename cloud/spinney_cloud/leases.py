"""Who owns which source (rule I1): one broker at a time, under an epoch that grows whenever the owner changes.

A broker asks in its announcement. The first to ask is the owner until it gives the source up or its announcement is
over; then whoever asks, and has asked for longest, is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Lease(NamedTuple):
    """A source's owner."""

    client: str
    epoch: int


class Leases:
    """The leases of one tenant. Calls return the sources whose owner they have changed, and who that was before."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        """The last one given out. It must be stored before a lease under it is told."""
        self._leases: dict[str, Lease] = {}
        self._asking: dict[str, dict[str, None]] = {}
        """For each source who asks, in the order in which they began to."""
        self._wanted: dict[str, frozenset[str]] = {}

    def restore(self, client: str, held: Mapping[str, int]) -> None:
        """What a broker held when all this was stored."""
        for source, epoch in held.items():
            if source not in self._leases or self._leases[source].epoch < epoch:
                self._leases[source] = Lease(client, epoch)
            self.epoch = max(self.epoch, epoch)

    def owner(self, source: str) -> Lease | None:
        """Who owns it now."""
        return self._leases.get(source)

    def held_by(self, client: str) -> dict[str, int]:
        """A broker's leases, with their epochs."""
        wanted = sorted(self._wanted.get(client, ()))
        return {source: lease.epoch for source in wanted if (lease := self._leases.get(source)) and lease[0] == client}

    def wanted_by(self, client: str) -> frozenset[str]:
        """The sources that a broker asks for."""
        return self._wanted.get(client, frozenset())

    def asking(self, source: str) -> list[str]:
        """Who asks for it, in the order in which they began to."""
        return list(self._asking.get(source, ()))

    def ask(self, client: str, sources: Iterable[str]) -> dict[str, str | None]:
        """A broker asks for these, and for no others any more."""
        return self._settle(self.want(client, sources))

    def end(self, client: str) -> dict[str, str | None]:
        """A broker is gone, and asks for nothing."""
        return self.ask(client, ())

    def want(self, client: str, sources: Iterable[str]) -> frozenset[str]:
        """As `ask`, and nothing is given out yet: until `settle`, after a start, all are to have asked again."""
        wanted = frozenset(sources)
        before = self._wanted.pop(client, frozenset())
        if wanted:
            self._wanted[client] = wanted
        for source in wanted - before:
            self._asking.setdefault(source, {})[client] = None
        for source in before - wanted:
            self._asking[source].pop(client, None)
            if not self._asking[source]:
                del self._asking[source]
        return before | wanted

    def settle(self) -> dict[str, str | None]:
        """Give out what is asked for, and take back what nobody asks for any more."""
        return self._settle({*self._leases, *self._asking})

    def _settle(self, sources: Iterable[str]) -> dict[str, str | None]:
        changed: dict[str, str | None] = {}
        for source in sorted(sources):
            asking = self._asking.get(source, {})
            lease = self._leases.get(source)
            if lease is not None and lease.client in asking:
                continue
            if asking:
                self.epoch += 1
                self._leases[source] = Lease(next(iter(asking)), self.epoch)
            elif lease is not None:
                del self._leases[source]
            else:
                continue
            changed[source] = None if lease is None else lease.client
        return changed
