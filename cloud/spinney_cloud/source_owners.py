"""Who owns which source, as the gateway knows it: the leases in the bucket of activations (rule I1)."""

from __future__ import annotations

from typing import NamedTuple

import orjson


class Owner(NamedTuple):
    """A mobile broker that holds a source, and since which epoch."""

    client: str
    epoch: int


class NotTheOwner(ValueError):
    """Somebody publishes a source that is another's, or under a lease that is over."""


class SourceOwners:
    """The leases of all tenants. `update` is fed by a watch."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, str], Owner] = {}
        self._held: dict[str, dict[str, int]] = {}
        """By key of the bucket, what that broker holds."""

    def __len__(self) -> int:
        return len(self._owners)

    def update(self, key: str, value: bytes | None) -> None:
        """A broker's activation is this now. Of two who say that they own a source, the later epoch holds."""
        tenant, _, client = key.partition(".")
        held = {} if value is None else _leases(value)
        before = self._held.pop(key, {})
        if held:
            self._held[key] = held
        for source in before.keys() - held.keys():
            if self._owners.get((tenant, source)) == (client, before[source]):
                del self._owners[tenant, source]
        for source, epoch in held.items():
            known = self._owners.get((tenant, source))
            if known is None or known.client == client or known.epoch <= epoch:
                self._owners[tenant, source] = Owner(client, epoch)

    def check(self, tenant: str, client: str, source: str, epoch: int | None) -> int | None:
        """The epoch under which the client may publish the source now, None if nobody owns it; else NotTheOwner."""
        owner = self._owners.get((tenant, source))
        if owner is None:
            return epoch
        if owner.client != client:
            raise NotTheOwner(f"lease: {source[:60]} is published by its owner alone, and that is {owner.client}")
        if epoch is not None and epoch != owner.epoch:
            raise NotTheOwner(f"lease: {source[:60]} is held under epoch {owner.epoch}, not {epoch}")
        return owner.epoch


def _leases(value: bytes) -> dict[str, int]:
    item = orjson.loads(value)
    leases = item.get("leases") if isinstance(item, dict) else None
    return dict(leases) if isinstance(leases, dict) else {}
