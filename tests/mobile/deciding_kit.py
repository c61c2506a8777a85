"""What tests of deciding share: active filters from text, samples, and an outbox in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spinney import StateSubscription, feed, parse
from spinney.subscription import Subscription
from spinney_mobile.active import ActiveFilter
from spinney_mobile.announcing import SETTLE_SECONDS, Announcer
from spinney_mobile.cells import H3
from spinney_mobile.deciding import Decider
from spinney_mobile.leases import Lease, Leases
from spinney_mobile.listening import Taken
from spinney_mobile.numbering import Numbering
from spinney_mobile.outbox import OutRecord
from spinney_mobile.rules import Rules
from spinney_mobile.samples import Ability, Sample
from spinney_mobile.settings import Rule
from spinney_mobile.taking import Taking

NOW = 1_763_460_000.0
US = "pi"


def active(digest: str, text: str, **options: Any) -> ActiveFilter:
    """A filter as an activation has it."""
    subscription: Subscription = parse(text)
    if isinstance(subscription, StateSubscription):
        subscription = replace(subscription, **options)
        return ActiveFilter(digest, "state", subscription, feed(subscription))
    return ActiveFilter(digest, "content", subscription, feed(subscription))


def ours(*sources: str, epoch: int = 7) -> dict[str, Lease]:
    """Leases that this broker holds."""
    return {source: Lease(source, US, epoch) for source in sources}


def sample(source: str = "m1", *, at: float = NOW, **values: Any) -> Sample:
    """One, heard as it was measured."""
    return Sample(source, {name: _value(value) for name, value in values.items()}, at, at, "test")


def _value(value: Any) -> Any:
    return float(value) if type(value) is int else value


class Store:
    """An outbox in memory, and a listener."""

    def __init__(self, state: Mapping[str, bytes] | None = None) -> None:
        self.records: list[OutRecord] = []
        self.state = dict(state or {})
        self.heard: list[Taken] = []

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        self.records += records
        for key, value in (state or {}).items():
            if value is None:
                self.state.pop(key, None)
            else:
                self.state[key] = value

    def taken(self, taken: Taken) -> None:
        self.heard.append(taken)

    @property
    def publications(self) -> list[Mapping[str, Any]]:
        return [one.publication for one in self.records if one.publication is not None]


class Edge:
    """Taking with all that it needs, and sources m1 and m2 that are ours, announced, and settled."""

    def __init__(
        self,
        *filters: ActiveFilter,
        state: Mapping[str, bytes] | None = None,
        rules: Sequence[Rule] = (),
        known: Mapping[str, Any] | None = None,
        abilities: Mapping[str, Ability] | None = None,
        sources: Sequence[str] = ("m1", "m2"),
        **more: Any,
    ) -> None:
        self.store = Store(state)
        self.now = NOW
        self.leases = Leases(US)
        self.leases.tell([{"source": source, "owner": US, "epoch": 7} for source in sources])
        self.announcer = Announcer(self.store.state, abilities=lambda _: abilities or {})
        self.taking = Taking(
            self.store, self.leases, Decider(US, self.store.state), announcer=self.announcer,
            numbering=Numbering(self.store.state),
            rules=Rules(rules, grid=H3, resolution=9, kept=self.store.state), listeners=[self.store], **more,
        )  # fmt: skip
        if known is not None:
            for source in sources:
                self.announcer.hear(source, self.now)
                self.announcer.sampled(source, {"source": source, "time": 0.0, **known}, self.now)
            self.settle()
        self.taking.change(list(filters), [], self.leases.known, self.now)

    def settle(self) -> None:
        """All is announced, and the cloud has acted on it."""
        self.announcer.announce()
        self.announcer.departed(self.now)
        self.now += SETTLE_SECONDS
        self.announcer.due(self.now)
        self.taking.tick(self.now)

    def take(self, source: str = "m1", **values: Any) -> None:
        """A sample, some time after the one before it."""
        self.now += 60.0
        self.taking.take(sample(source, at=self.now, **values), self.now)
