"""What the broker says of itself: its status, and why active filters want a publication or not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from .active import ActiveFilter
from .devices import Seen
from .reports import State
from .samples import Digest
from .settings import AcquireMotes
from .status import FilterStatus, SourceStatus, Status, UplinkStatus

if TYPE_CHECKING:
    from .broker import Broker

MAX_REASONS: Final = 20
"""Of one mote, shown."""
_SHOWN_OF_MOTES: Final = ("connected", "waiting", "filters", "sampling", "adverts", "adverts_note")
_ALWAYS_COUNTED: Final = (
    *("sampled", "repeated", "late", "sent", "spared", "bytes_sent", "bytes_spared"),
    *("unneeded", "bytes_unneeded"),
    *("outside", "weak_hits", "suppressed", "others", "refused"),
)


def status_of(broker: Broker, now: float) -> Status:
    """All of it, at this moment."""
    uplink = UplinkStatus(False, None, "no cloud is set", None) if broker.uplink is None else broker.uplink.status()
    on_motes = Counter(digest for name in broker.pushing.sources for digest in broker.decider.elsewhere(name))
    return Status(
        name=broker.settings.client,
        started=broker.started,
        now=now,
        version=version("spinney"),
        place=broker.locating.here(now) or None,
        acquirers=[replace(one, last_heard=broker.wall(one.last_heard)) for one in broker.acquirers.status()],
        sources=_sources(broker),
        filters=[_filter(broker, one, on_motes[one.digest]) for one in broker.decider.filters.values()],
        uplink=uplink,
        outbox=broker.outbox.status(),
        counts=_counts(broker),
        suppressed=dict(broker.rules.suppressed),
        notifications=broker.notifications(),
        decoders=broker.devices.registry.status(),
        problems=list(_problems(broker)),
        send=broker.settings.send,
    )


def _problems(broker: Broker) -> Iterator[str]:
    if broker.whereabouts.error is not None:
        yield f"place: {broker.whereabouts.error}"
    if broker.outbox.error is not None:
        yield f"outbox: {broker.outbox.error}; readings are kept in memory until it can be written"
    if broker.watchdog.error is not None:
        yield f"watchdog: {broker.watchdog.error}"
    for one in broker.devices.registry.status():
        if one["error"] is not None:
            yield f"decoder {one['name']}: {one['error']}" + (" (switched off)" if one["state"] == "off" else "")


def _sources(broker: Broker) -> list[SourceStatus]:
    seen = {one.source: one for one in broker.devices.seen() if one.source is not None}
    wanted = broker.wanted()
    found = []
    for name in broker.announcer.sources:
        status = _source(broker, name, seen.get(name))
        status.mote = _mote(broker.pushing.health(name), wanted)
        found.append(status)
    return found


def _mote(health: Mapping[str, Any] | None, wanted: Mapping[Digest, ActiveFilter]) -> dict[str, Any] | None:
    if health is None:
        return None
    reasons: dict[str, list[ActiveFilter]] = {}
    for digest, why in health["here"].items():
        if digest in wanted:
            reasons.setdefault(why, []).append(wanted[digest])
    here = [{"why": why, "count": len(those), "text": those[0].text} for why, those in reasons.items()]
    shown = {name: health[name] for name in _SHOWN_OF_MOTES}
    return {**shown, "here": here[:MAX_REASONS]}


def _source(broker: Broker, name: str, seen: Seen | None) -> SourceStatus:
    status = SourceStatus(name, name, "", broker.wall(broker.announcer.heard(name)) or 0.0)
    if seen is not None:
        status.address, status.acquirer, status.rssi, status.error = seen.address, seen.acquirer, seen.rssi, seen.error
        status.called = seen.name
    sample = broker.latest(name)
    if sample is not None:
        status.acquirer, status.battery, status.values = sample.acquirer, sample.battery, sample.values
        status.rssi = status.rssi if sample.rssi is None else sample.rssi
    status.battery = broker.devices.battery(name) if status.battery is None else status.battery
    status.place = broker.locating.own(name, sample) or None
    status.error = broker.pushing.trouble(name) or status.error
    status.units = broker.announcer.units(name)
    status.owned = broker.leases.owns(name)
    status.on_mote = len(broker.decider.elsewhere(name))
    status.sent, status.spared = broker.taking.sent[name], broker.taking.spared[name]
    return status


def _filter(broker: Broker, one: ActiveFilter, on_motes: int) -> FilterStatus:
    return FilterStatus(
        digest=one.digest,
        kind=one.kind,
        text=one.text,
        matched=broker.decider.matched[one.digest],
        on_motes=on_motes,
    )


def _counts(broker: Broker) -> dict[str, int]:
    uplink = {} if broker.uplink is None else asdict(broker.uplink.counts)
    devices = {f"devices_{name}".replace(" ", "_"): count for name, count in broker.devices.counts.items()}
    return {
        "heard": broker.devices.counts["heard"],
        **dict.fromkeys(_ALWAYS_COUNTED, 0),
        **devices,
        **{f"uplink_{name}": count for name, count in uplink.items()},
        **{f"motes_{name}": count for name, count in broker.pushing.counts().items()},
        **broker.taking.counts,
        **({} if broker.uplink is None else broker.uplink.fetches.counts),
        "health_bytes": 0 if broker.uplink is None else broker.uplink.health.bytes,
        "announced": broker.announcer.counts["announced"],
        "sources_refused": broker.announcer.counts["refused"],
        "valid_dropped": broker.taking.valid.dropped,
        "strays": broker.decider.strays,
        "activation_gaps": broker.activations.gaps,
        "activation_repeats": broker.activations.repeated,
        "activation_unreadable": broker.activations.unreadable,
        **{f"watchdog_{name.replace(' ', '_')}": count for name, count in broker.watchdog.counts.items()},
        "place_refused": broker.whereabouts.refused,
    }


def has_motes(broker: Broker) -> bool:
    """Whether any of its sources may be a mote, which holds readings back itself."""
    is_set = any(isinstance(one, AcquireMotes) and one.enabled for one in broker.settings.acquire)
    return is_set or bool(broker.pushing.sources)


def evaluated_by(broker: Broker) -> State:
    """What it evaluates, and what it could not send, as the cloud is told."""
    outbox, motes = broker.outbox.counts, broker.pushing.counts().get("events_lost", 0)
    refused = 0 if broker.uplink is None else broker.uplink.counts.refused
    with_motes = has_motes(broker)
    behind = [name for name in broker.pushing.behind() if broker.leases.owns(name)]
    return State(
        epoch=broker.activations.at_work,
        pending=None if broker.activations.unreadable else tuple(sorted(behind)),
        is_private=bool(broker.settings.rule),
        with_motes=tuple(broker.announcer.sources) if with_motes else None,
        is_fresh=broker.announcer.is_forgotten and not with_motes,
        sends_all=broker.settings.send == "all" and not with_motes,
        lost=outbox.dropped_full + outbox.dropped_old + refused + motes + (not broker.outbox.intact),
        lost_by_motes=motes,
    )


def tally_of(broker: Broker) -> dict[str, int]:
    """What it and its motes have sent and spared, as the cloud is told."""
    counts, motes = broker.taking.counts, broker.pushing.counts()
    found = {name: counts[name] for name in ("sent", "spared", "bytes_sent", "bytes_spared")}
    sent = motes.get("samples", 0) + motes.get("broadcast", 0)
    return {**found, "motes_sent": sent, "motes_spared": motes.get("kept_back", 0)}


def explain(broker: Broker, publication: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each active filter, whether it wants this publication, and which parts of it made it so.

    Of a mote's also why it is evaluated here, if it is.
    """
    health = broker.pushing.health(str(publication.get("source")))
    here = {} if health is None else health["here"]
    return [
        {
            "filter": one.digest,
            "kind": one.kind,
            "text": one.text,
            "matches": (explanation := one.feed.explain(publication)).matches,
            "why": str(explanation),
            "parts": explanation.to_json(),
            "here": here.get(one.digest),
        }
        for one in broker.decider.filters.values()
    ]
