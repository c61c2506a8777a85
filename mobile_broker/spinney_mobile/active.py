"""Active filters: what an activation has this broker evaluate, each parsed once.

    {"filter": "9a0364b9e99bb480", "kind": "content", "subscription": {"text": "NO2 > 40"}}
    {"filter": "b1c2...", "kind": "state", "subscription": {"text": "WHEN temp > 25 UNTIL temp <= 22"}, "start": 17}
    {"filter": "c3d4...", "kind": "content", "subscription": {"text": "temp > 20"},
     "state": {"text": "WHEN temp > 20 UNTIL temp > 30"}, "start": 18}

The last one is a state filter whose enter and exit overlap; a broker that does not know such filters sends its feed.
`start`: where in the log the newest of its subscriptions began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal

from spinney import ContentSubscription, StateSubscription, Subscription, SyntaxError, feed, parse
from spinney.expression import Filter

from .samples import Digest

Kind = Literal["content", "state", "top-k"]

LOCAL: Final = "local:"
"""Begins the digests of filters that local subscriptions need, and the cloud knows nothing of."""
MAX_FILTERS: Final = 100_000
"""Of one broker; of more than that none is taken."""


class ActivationError(ValueError):
    """An activation that cannot be one, and where it is wrong."""


@dataclass(frozen=True)
class ActiveFilter:
    """One filter as it was activated. Of top-k the subscription is its feed, as for content."""

    digest: Digest
    kind: Kind
    subscription: Subscription
    feed: Filter
    """What it needs (rule R1)."""
    start: int = 0
    """Of a state filter: when it grows one more subscription has begun, for which no bit is known (rule R3)."""

    @classmethod
    def from_json(cls, item: Any) -> ActiveFilter:
        """As `add` of an activation has it; ActivationError for anything else.

        With `state` it is that state filter; older brokers see its feed.
        """
        match item:
            case {"filter": str(digest), "kind": "content", "state": dict(source)}:
                kind: Kind = "state"
            case {"filter": str(digest), "kind": "content" | "state" | "top-k" as kind, "subscription": dict(source)}:
                pass
            case _:
                raise ActivationError(f"expected filter, kind and subscription, not {item!s:.80}")
        try:
            subscription = parse(source)
        except SyntaxError as error:
            raise ActivationError(f"{digest}: {error}") from None
        expected = StateSubscription if kind == "state" else ContentSubscription
        if not isinstance(subscription, expected):
            raise ActivationError(f"{digest}: a filter of kind {kind} with another kind of subscription")
        start = item.get("start")
        return cls(digest, kind, subscription, feed(subscription), start if type(start) is int else 0)

    @classmethod
    def local(cls, key: str, wanted: Filter) -> ActiveFilter:
        """The feed of a local subscription."""
        return cls(LOCAL + key, "content", ContentSubscription(filter=wanted), wanted)

    def begins_again(self, before: ActiveFilter) -> bool:
        """Whether a subscription more has begun with it, so that no bit is known any longer."""
        return self.start > before.start

    @cached_property
    def text(self) -> str:
        """As people read it."""
        return self.subscription.to_text()


@dataclass(frozen=True, slots=True)
class ActiveChange:
    """What an activation changes. What is added takes the place of what had its digest; it comes before drops."""

    added: list[ActiveFilter] = field(default_factory=list)
    dropped: list[Digest] = field(default_factory=list)


class ActiveSet:
    """The filters that are active now, and the epoch of the activation that said so last."""

    def __init__(self) -> None:
        self.epoch: int | None = None
        self.filters: dict[Digest, ActiveFilter] = {}
        self._items: dict[Digest, Mapping[str, Any]] = {}

    def holds(self, item: Any) -> bool:
        """Whether a filter of an activation is here already, and the same."""
        return bool(item == self._items.get(digest_of(item)))

    def apply(
        self,
        epoch: int,
        add: Iterable[Any],
        drop: Iterable[Digest],
        *,
        full: bool,
        parsed: Mapping[Digest, ActiveFilter] = MappingProxyType({}),
    ) -> ActiveChange:
        """Become what the activation says; `parsed` has what of it has been parsed before.

        ActivationError if it cannot be one, and then nothing has changed.
        """
        items = {**({} if full else self._items), **{digest_of(item): item for item in add}}
        gone = set(drop) if not full else set()
        items = {digest: item for digest, item in items.items() if digest not in gone}
        if len(items) > MAX_FILTERS:
            raise ActivationError(f"{len(items)} filters; the limit is {MAX_FILTERS}")
        new = {
            digest: parsed.get(digest) or ActiveFilter.from_json(item)
            for digest, item in items.items()
            if item != self._items.get(digest)
        }
        dropped = [digest for digest in self.filters if digest not in items]
        self.filters = {digest: new.get(digest) or self.filters[digest] for digest in items}
        self._items = items
        self.epoch = epoch
        return ActiveChange(list(new.values()), dropped)


def digest_of(item: Any) -> Digest:
    """Of a filter of an activation; ActivationError."""
    digest = item.get("filter") if isinstance(item, dict) else None
    if not isinstance(digest, str):
        raise ActivationError(f"expected an object with the digest of a filter, not {item!s:.80}")
    return digest
