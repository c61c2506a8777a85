"""What settings say of a device: what it is called, and whether it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from .settings import Device, Devices

MAX_SOURCE: Final = 128
"""Characters of a source's name."""
_MAC: Final = re.compile("[0-9A-F]{2}(:[0-9A-F]{2}){5}")


class DeviceSettings:
    """Of all devices: the rules, the `[[device]]` of each that has one, and bind keys by address."""

    def __init__(self, rules: Devices, listed: Sequence[Device], keys: Mapping[str, str]) -> None:
        self._rules = rules
        self._keys = {normal(address): key for address, key in keys.items()}
        self._listed = {normal(device.address): device for device in listed}
        self._of_source = {self.source(device.address): device for device in listed}

    def listed(self, address: str) -> Device | None:
        """Its `[[device]]`, if it has one."""
        return self._listed.get(normal(address))

    def of_source(self, source: str) -> Device | None:
        """The same by what its samples are published as."""
        return self._of_source.get(source)

    def bindkey(self, address: str) -> bytes | None:
        """By which its adverts are encrypted; that of its `[[device]]` counts before that of the file of keys."""
        settings = self.listed(address)
        key = (settings.bindkey if settings else None) or self._keys.get(normal(address))
        return None if key is None else bytes.fromhex(key)

    def source(self, address: str) -> str:
        """What a device's samples are published as: the name that settings give, else the address.

        Two mobile brokers that hear one sensor must call it the same, so a name of its own making will not do.
        """
        settings = self.listed(address)
        return settings.name if settings and settings.name else source_of(address)

    def allows(self, address: str, name: str | None) -> bool:
        """Whether a device that calls itself so is taken."""
        settings = self.listed(address)
        if settings is not None:
            return settings.allow
        return self._rules.allow == "known" or is_among(self._rules.patterns, address, name)


def is_among(patterns: Iterable[str], address: str, *names: str | None) -> bool:
    """Whether a device's address or one of its names is among these, which may have * and ? in them."""
    return any(
        fnmatchcase(normal(address), normal(pattern)) or any(name and fnmatchcase(name, pattern) for name in names)
        for pattern in patterns
    )


def place_of(settings: Device | None) -> tuple[float, float] | None:
    """Where a device stands, if its settings say so."""
    return None if settings is None or settings.lat is None or settings.long is None else (settings.lat, settings.long)


def normal(address: str) -> str:
    """An address as it is compared: however somebody wrote it."""
    return address.strip().upper().replace("-", ":")


def source_of(address: str) -> str:
    """The name of a source that nobody has named: a Bluetooth address as bare digits, all else as it is."""
    upper = address.upper()
    return upper.replace(":", "").lower() if _MAC.fullmatch(upper) else address[:MAX_SOURCE]
