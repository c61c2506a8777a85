"""What settings say of a device: what it is called, and whether it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from .mote_names import MoteNames
from .settings import Device, Devices

MAX_SOURCE: Final = 128
"""Characters of a source's name."""
_MAC: Final = re.compile("[0-9A-F]{2}(:[0-9A-F]{2}){5}")


class DeviceSettings:
    """Of all devices: the rules, the `[[device]]` of each that has one, and bind keys by address."""

    def __init__(self, rules: Devices, listed: Sequence[Device], keys: Mapping[str, str], names: MoteNames) -> None:
        self._rules = rules
        self._keys = {normal(address): key for address, key in keys.items()}
        self._listed = {normal(device.address): device for device in listed if device.address is not None}
        self._motes = {device.mote: device for device in listed if device.mote is not None}
        self._of_source = {device.name: device for device in listed if device.name is not None}
        for address, device in self._listed.items():
            self._of_source[device.name or source_of(address)] = device
        self._unnamed = [device for device in self._motes.values() if device.name is None]
        self._names = names
        names.configure(
            [*self._motes, *filter(is_whole, rules.patterns)], [name for name, one in self._motes.items() if one.allow]
        )

    def listed(self, address: str) -> Device | None:
        """Its `[[device]]`, if it has one; that of its address counts before that of a mote's name."""
        return self._listed.get(normal(address)) or self._mote(address)

    def _mote(self, address: str) -> Device | None:
        """That of its name, unless another mote has it."""
        name = self._names.of(address)
        return self._motes.get(name) if name is not None and self._names.address_of(name) == address else None

    def of_source(self, source: str) -> Device | None:
        """The same by what its samples are published as."""
        found = self._of_source.get(source)
        return found or next((one for one in self._unnamed if self._mote_source(one) == source), None)

    def _mote_source(self, device: Device) -> str | None:
        address = None if device.mote is None else self._names.address_of(device.mote)
        return None if address is None else source_of(address)

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
        name = self._names.of(address, name)
        by_name = None if name is None else self._motes.get(name)
        if by_name is not None and not by_name.allow:
            return False
        settings = self.listed(address)
        if settings is not None:
            return settings.allow
        if by_name is not None:
            return False  # another mote has this name
        return self._rules.allow == "known" or is_among(self._rules.patterns, address, name)


def is_whole(pattern: str) -> bool:
    """Whether it is a name or an address as it stands: neither * nor ? nor a choice in [] is in it."""
    return not any(sign in pattern for sign in "*?[")


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
