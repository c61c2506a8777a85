"""The status as Prometheus reads it (text format 0.0.4), and for whoever likes numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from .status import Status

Row = tuple[Mapping[str, str], float]


def render(status: Status) -> str:
    """All metrics."""
    return "".join(_families(status))


def _families(status: Status) -> Iterator[str]:
    now = status.now
    yield _one("spinney_mobile_up_seconds", "gauge", "Since the broker started.", now - status.started)
    yield _one("spinney_mobile_connected", "gauge", "Whether the cloud is reached.", status.uplink.connected)
    yield _one("spinney_mobile_epoch", "gauge", "Of the activation.", status.uplink.epoch or 0)
    yield _one("spinney_mobile_filters", "gauge", "Active filters.", len(status.filters))
    yield _one("spinney_mobile_outbox_records", "gauge", "That wait for stored.", status.outbox.records)
    yield _one("spinney_mobile_outbox_bytes", "gauge", "Of what waits for stored.", status.outbox.bytes)
    yield _one("spinney_mobile_outbox_dropped_total", "counter", "For lack of room, or age.", status.outbox.dropped)
    counts = [({"what": name}, float(count)) for name, count in sorted(status.counts.items())]
    yield _family("spinney_mobile_readings_total", "counter", "By what became of them.", counts)
    reasons = [({"rule": name}, float(count)) for name, count in sorted(status.suppressed.items())]
    yield _family("spinney_mobile_suppressed_total", "counter", "By private rules.", reasons)
    heard = [({"acquirer": each.name}, float(each.heard)) for each in status.acquirers]
    yield _family("spinney_mobile_heard_total", "counter", "By acquirer.", heard)
    ages = [({"acquirer": each.name}, now - each.last_heard) for each in status.acquirers if each.last_heard]
    yield _family("spinney_mobile_silent_seconds", "gauge", "Since an acquirer heard anything.", ages)
    named = [({"source": each.name}, each) for each in status.sources]
    yield _family("spinney_mobile_source_silent_seconds", "gauge", "Age.", [(n, now - s.heard) for n, s in named])
    signal = [(name, float(source.rssi)) for name, source in named if source.rssi is not None]
    yield _family("spinney_mobile_source_rssi_dbm", "gauge", "Signal.", signal)
    battery = [(name, source.battery) for name, source in named if source.battery is not None]
    yield _family("spinney_mobile_source_battery", "gauge", "From 0 to 1.", battery)


def _one(name: str, kind: str, text: str, value: float) -> str:
    return _family(name, kind, text, [({}, float(value))])


def _family(name: str, kind: str, text: str, rows: Iterable[Row]) -> str:
    lines = [f"{name}{_labels(labels)} {value:.17g}\n" for labels, value in rows]
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n{''.join(lines)}" if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    return f"{{{','.join(f'{name}={_quoted(value)}' for name, value in labels.items())}}}" if labels else ""


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
