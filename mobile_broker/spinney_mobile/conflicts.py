"""Settings that are each fine, and cannot be so at one time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from spinney.mote.advert import name_crc

from .acquire.kinds import name_of
from .acquire.supervision import MAX_ACQUIRERS
from .device_settings import is_whole, normal
from .settings import Settings

At = Callable[..., str]
"""Where the first of these settings that was given stands."""


def conflicts(settings: Settings, sources: Mapping[str, str]) -> Iterator[str]:
    """All of them; `sources` tells where each setting was given."""

    def at(*names: str) -> str:
        return ", ".join(sources[name] for name in names if name in sources) or names[0]

    return chain(
        _pairs(settings, at),
        _place(settings, at),
        _local(settings, at),
        _acquirers(settings, at),
        _lists(settings, at),
        _names(settings, at),
    )


def _pairs(settings: Settings, at: At) -> Iterator[str]:
    """Half of what makes sense only together."""
    cloud, home, local = settings.cloud, settings.home_assistant, settings.local
    if cloud.user and settings.name and cloud.user != settings.name:
        yield f"{at('name', 'cloud.user')}: a broker's name is that of its user; give one of them"
    for section, names, pair in (
        ("cloud", ("user", "password_file"), (cloud.user, cloud.password_file)),
        ("home_assistant", ("user", "password_file"), (home.user, home.password_file)),
        ("cloud", ("certificate", "key"), (cloud.certificate, cloud.key)),
        ("local", ("certificate", "key"), (local.certificate, local.key)),
    ):
        if (pair[0] is None) != (pair[1] is None):
            where = at(*(f"{section}.{name}" for name in names))
            yield f"{where}: {names[0]} and {names[1]} go together"


def _place(settings: Settings, at: At) -> Iterator[str]:
    place = settings.place
    if (place.lat is None or place.long is None) and place.kind == "fixed":
        yield f"{at('place.kind')}: a fixed place needs lat and long"
    if (place.kind == "nmea" and place.port is None) or (place.kind == "file" and place.file is None):
        yield f"{at('place.kind')}: a place by {place.kind} needs {'port' if place.kind == 'nmea' else 'file'}"


def _local(settings: Settings, at: At) -> Iterator[str]:
    local = settings.local
    if local.port is not None and not is_loopback(local.host) and local.password_file is None:
        yield f"{at('local.host')}: beyond loopback [local] needs password_file"


def _acquirers(settings: Settings, at: At) -> Iterator[str]:
    names = [name_of(one) if one.enabled else None for one in settings.acquire]
    for index, name in _repeated(names):
        where = at(*(f"acquire[{index}].{key}" for key in ("name", "kind")))
        yield f"{where}: there are two acquirers {name}; give one of them another name"
    if len(names) > MAX_ACQUIRERS:
        yield f"{at('acquire')}: {len(names)} acquirers; the limit is {MAX_ACQUIRERS}"


def _lists(settings: Settings, at: At) -> Iterator[str]:
    for index, sid in _repeated(each.sid for each in settings.subscription):
        yield f"{at(f'subscription[{index}].sid')}: {sid} has a [[subscription]] already"
    for index, _ in _repeated(device.address and normal(device.address) for device in settings.device):
        yield f"{at(f'device[{index}].address')}: {settings.device[index].address} has a [[device]] already"
    for index, name in _repeated(device.mote for device in settings.device):
        yield f"{at(f'device[{index}].mote')}: {name} has a [[device]] already"
    for index, device in enumerate(settings.device):
        if (device.address is None) == (device.mote is None):
            yield f"{at(f'device[{index}].mote', f'device[{index}].address')}: give either address or mote"
        if (device.lat is None) != (device.long is None):
            yield f"{at(f'device[{index}].lat', f'device[{index}].long')}: lat and long go together"


def _names(settings: Settings, at: At) -> Iterator[str]:
    """Names of motes that a passive scan cannot tell apart."""
    found = {name: "devices.patterns" for name in settings.devices.patterns if is_whole(name)}
    found |= {one.mote: f"device[{index}].mote" for index, one in enumerate(settings.device) if one.mote is not None}
    by_crc: dict[int, str] = {}
    for name, where in found.items():
        other = by_crc.setdefault(name_crc(name), name)
        if other != name:
            both = f"{other} ({at(found[other])}) and {name}"
            yield f"{at(where)}: {both} have the same CRC, by which passive scans know a mote's name: rename one"


def _repeated(names: Iterable[str | None]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield index, name
        elif name is not None:
            seen.add(name)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens there."""
    return host in ("localhost", "::1") or host.startswith("127.")
