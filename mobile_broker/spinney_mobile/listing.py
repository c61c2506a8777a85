"""What a broker has heard and does, as lines of text; and a scan where none runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from .acquire import Acquirers, made, make, name_of
from .credentials import bind_keys
from .decode import Registry
from .devices import DeviceTable
from .pages import ago, named, place, shown, since, size
from .samples import Heard, Sample
from .settings import AcquireMotes, Settings

_LONGEST_VALUES: Final = 60
_ADVERTS: Final = {
    "open": "advertises its readings",
    "encrypted": "advertises its readings encrypted",
    "presence": "advertises no readings",
}


class _Scan:
    """A Sink that only looks."""

    def __init__(self, devices: DeviceTable) -> None:
        self._devices = devices

    def heard(self, heard: Heard) -> None:
        """Note it."""
        self._devices.take(heard)

    def sampled(self, sample: Sample) -> None:
        """Nothing: it is no device that settings could allow."""


async def scan(settings: Settings, seconds: float) -> tuple[list[dict[str, Any]], list[str]]:
    """All devices that the settings' acquirers hear in this time; and which acquirers fail, and why."""
    keys = bind_keys(settings.devices.bindkeys)
    devices = DeviceTable(Registry.installed(), settings.devices, settings.device, keys)
    acquirers = Acquirers(_Scan(devices))
    for each in settings.acquire:
        if each.enabled and not isinstance(each, AcquireMotes):
            acquirers.add(made(name_of(each), partial(make, each)))
    async with acquirers:
        await asyncio.sleep(seconds)
        failed = [f"{one.name}: {one.error}" for one in acquirers.status() if one.error]
    return [one.to_json() for one in devices.seen()], failed


def devices(found: Sequence[Mapping[str, Any]]) -> str:
    """As a table."""
    if not found:
        return "Nothing has been heard. spinney mobile doctor says whether something stands in the way."
    rows: list[tuple[str, ...]] = [("address", "name", "signal", "every", "decoder", "taken as", "values")]
    rows += [_device(one) for one in sorted(found, key=lambda one: -(one["rssi"] or -999))]
    return table(rows)


def _device(one: Mapping[str, Any]) -> tuple[str, ...]:
    values = ", ".join(f"{name} {shown(value)}" for name, value in one["values"].items())
    said = one["error"] or values or ", ".join(one["hints"])
    taken = one["source"] or "" if one["allowed"] else "-"
    taken += f" at {one['place'][0]:g}, {one['place'][1]:g}" if one["place"] else ""
    every = "" if one["interval"] is None else f"{one['interval']:.1f} s"
    signal = "" if one["rssi"] is None else f"{one['rssi']} dBm"
    return one["address"], one["name"] or "", signal, every, one["decoder"] or "", taken, said[:_LONGEST_VALUES]


def summary(status: Mapping[str, Any]) -> str:
    """A few lines."""
    return "\n".join(_summary(status))


def _summary(status: Mapping[str, Any]) -> Iterator[str]:
    uplink, outbox, counts, now = status["uplink"], status["outbox"], status["counts"], status["now"]
    yield f"{status['name']}, version {status['version']}, running for {ago(now - status['started'])}"
    yield f"cloud      {_cloud(uplink)}"
    waiting = f"{outbox['records']:,} readings wait, {size(outbox['bytes'])}"
    if status["place"]:
        yield f"place      {place(status['place'])}"
    yield f"outbox     {waiting}" + (f", {outbox['dropped']:,} were dropped" if outbox["dropped"] else "")
    yield f"readings   {counts.get('sampled', 0):,} heard, {saved(status)}"
    for problem in status["problems"]:
        yield f"problem    {problem}"
    if status["suppressed"]:
        yield "private    " + ", ".join(f"{count:,} by {name}" for name, count in status["suppressed"].items())
    yield f"wanted     {len(status['filters']):,} active filters"
    for each in status["acquirers"]:
        last = f", last {since(now - each['last_heard'])}" if each["last_heard"] else ""
        problem = f": {each['error']}" if each["error"] else ""
        yield f"{each['name']:<10} {each['state']}, {each['heard']:,} heard{last}{problem}"
    rows = [
        (named(one), ago(now - one["heard"]), ", ".join(f"{k} {shown(v)}" for k, v in one["values"].items()))
        for one in status["sources"]
    ]
    if rows:
        yield f"\n{table([('source', 'heard', 'values'), *rows])}"
    for one in status["sources"]:
        yield from mote(one)


def mote(source: Mapping[str, Any]) -> Iterator[str]:
    """Of a source that is a mote: what is on it, and which filters are evaluated here instead, and why."""
    of = source["mote"]
    if of is not None:
        state = "connected" if of["connected"] else "waits to be connected" if of["waiting"] else "not connected"
        asleep = "" if of["sampling"] else ", not sampling"
        yield f"{named(source)}: {state}, {of['filters']:,} filters on it{asleep}, {adverts(of)}"
        for each in of["here"]:
            more = f" and {each['count'] - 1:,} more" if each["count"] > 1 else ""
            yield f"  here: {each['text']}{more}: {each['why']}"


def adverts(of: Mapping[str, Any]) -> str:
    """What a mote advertises, and why that is not what is set here, if so."""
    note = f" ({of['adverts_note']})" if of.get("adverts_note") else ""
    return f"{_ADVERTS[of.get('adverts', 'open')]}{note}"


def _cloud(uplink: Mapping[str, Any]) -> str:
    if uplink["cloud"] is None:
        return "none is set: everything stays here"
    return f"connected to {uplink['cloud']}" if uplink["connected"] else f"not connected: {uplink['error']}"


def saved(status: Mapping[str, Any]) -> str:
    """What was sent, and what demand-driven sending spares or would spare."""
    counts = status["counts"]
    if status["uplink"]["cloud"] is None:
        return "none sent"
    sent, spared = counts.get("sent", 0), counts.get("spared", 0)
    if status["send"] != "all":
        return f"{sent:,} sent, {spared:,} spared ({size(counts.get('bytes_spared', 0))})"
    unneeded, saved_bytes = counts.get("unneeded", 0), counts.get("bytes_unneeded", 0)
    share = f" ({unneeded / sent:.0%})" if sent else ""
    return (
        f"all {sent:,} sent; nobody wanted {unneeded:,}{share} of them, {size(saved_bytes)}: --send wanted saves that"
    )


def explanation(answer: Mapping[str, Any]) -> str:
    """Each active filter, those that match first."""
    filters = answer["filters"]
    lines = [", ".join(f"{name} {shown(value)}" for name, value in answer["publication"].items())]
    matching = sum(each["matches"] for each in filters)
    lines.append(f"{matching} of {len(filters)} active filters want it." if filters else "There is no active filter.")
    for each in sorted(filters, key=lambda each: not each["matches"]):
        lines.append(f"\n{each['kind']}  {each['text']}")
        lines += [f"  {line}" for line in each["why"].splitlines()]
        lines += [f"  evaluated here, not on the mote: {each['here']}"] if each["here"] else []
    return "\n".join(lines)


def table(rows: Iterable[Sequence[str]]) -> str:
    """Columns that line up."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
