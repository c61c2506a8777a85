"""What the mobile broker says of itself: to the terminal page, the web page, the doctor, metrics and local MQTT.

A plain picture of one moment, made new each time it is asked for; as JSON it is what `/status` gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class SourceStatus:
    """A source as it was heard last."""

    name: str
    address: str
    acquirer: str
    heard: float
    rssi: int | None = None
    battery: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    owned: bool = True
    """Whether its lease is ours."""
    on_mote: int = 0
    """Filters that it evaluates itself."""
    sent: int = 0
    spared: int = 0
    """Samples that went up, and that nobody wanted."""
    error: str | None = None
    called: str | None = None
    """As it calls itself."""
    place: Mapping[str, Any] | None = None
    """Its own, if it is not just where this broker is."""
    mote: Mapping[str, Any] | None = None
    """Of a mote: connected, waiting (to be), filters (on it), sampling; adverts (open, encrypted, presence) and, where
    they are not as set here, adverts_note with the reason; and in here why other filters stay here: why, count, and the
    text of the first."""


@dataclass(slots=True)
class AcquirerStatus:
    """An acquirer, and why it hears nothing if so."""

    name: str
    state: str
    """`hearing`, `silent`, `failed` or `stopped`."""
    last_heard: float | None
    heard: int
    error: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    """Adverts, lines, bad lines and the like, as its kind has them."""


@dataclass(slots=True)
class FilterStatus:
    """An active filter."""

    digest: str
    kind: str
    text: str
    matched: int
    on_motes: int


@dataclass(slots=True)
class UplinkStatus:
    """The way to the cloud."""

    connected: bool
    epoch: int | None
    """Of the activation."""
    error: str | None
    since: float | None
    """When it was connected, or lost."""
    cloud: str | None = None
    """Where it leads; None: there is no cloud, and all stays here."""


@dataclass(slots=True)
class OutboxStatus:
    """What waits for `stored`."""

    records: int
    bytes: int
    oldest: float | None
    dropped: int
    max_bytes: int


@dataclass(slots=True)
class Status:
    """All of it."""

    name: str
    """The client name."""
    started: float
    now: float
    version: str
    place: Mapping[str, Any] | None
    acquirers: list[AcquirerStatus]
    sources: list[SourceStatus]
    filters: list[FilterStatus]
    uplink: UplinkStatus
    outbox: OutboxStatus
    counts: Mapping[str, int]
    """Heard, sampled, repeated, sent, spared, bytes_sent, bytes_spared, outside, weak_hits, suppressed..."""
    suppressed: Mapping[str, int]
    """By the reason of a private rule."""
    notifications: list[Mapping[str, Any]] = field(default_factory=list)
    """The newest of the user's own subscriptions."""
    decoders: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """Each with its state, counts, and the last error."""
    problems: list[str] = field(default_factory=list)
    """What stands in the way, beside what acquirers, sources and the uplink say of themselves."""
    send: str = "wanted"
    """`all`: everything goes up, and what is counted as spared would have been."""

    def to_json(self) -> dict[str, Any]:
        """As objects that json.dumps takes; asdict would copy all that is in them."""
        parts = {name: [_plain(one) for one in getattr(self, name)] for name in ("acquirers", "sources", "filters")}
        return _plain(self) | parts | {"uplink": _plain(self.uplink), "outbox": _plain(self.outbox)}


def _plain(one: Any) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__slots__}
