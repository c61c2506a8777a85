"""What each Spinney mote in reach is called.

A scan response tells its name, but passive scanners hear none. A mote that advertises its presence tells the CRC of its
name there: it is taken for the mote that settings name, if one of their names has that CRC, until it says its name
itself over a connection. What it said is kept over restarts, and stands until it advertises another name or CRC.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spinney.mote.advert import PRESENCE, name_crc

from .decode.spinney import presence, scan_data
from .samples import Heard

MAX_MOTES: Final = 4096
"""Motes whose names are remembered; beyond it the one unheard for longest goes."""
MAX_KEPT: Final = 1000
"""Names that are kept over restarts; beyond it the one that was said first goes."""
SILENT_SECONDS: Final = 600.0
"""A name that settings give to one mote goes to another address when the mote was not heard for so long."""
KEY: Final = "name:"
"""Begins the keys of what is kept."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Mote:
    name: str | None
    is_guess: bool = False
    """It is the one of settings that has the CRC."""
    heard: float = 0.0
    """When it was heard last; 0: not yet."""
    called: str | None = None
    """In its scan response."""
    data: bytes | None = None
    """Of its last advert, if that was presence."""
    crc: int | None = None
    """Of its name, in these."""
    is_refused: bool = False
    """Another mote has its name, and somebody has been told so."""


class MoteNames:
    """By address. `kept` is what `keep` was given, by key, before the last restart."""

    def __init__(
        self,
        counts: Counter[str],
        kept: Mapping[str, bytes] | None = None,
        keep: Callable[[Mapping[str, bytes | None]], None] = lambda _: None,
    ) -> None:
        self._counts = counts
        """Counted there: name conflicts."""
        self._keep = keep
        self._said = {key.removeprefix(KEY): name for key, name in (kept or {}).items() if key.startswith(KEY)}
        self._motes: OrderedDict[str, _Mote] = OrderedDict()
        self._by_crc: dict[int, str] = {}
        self._single: frozenset[str] = frozenset()
        self._addresses: dict[str, str] = {}
        """By name: the address of the mote that has it."""

    def configure(self, names: Iterable[str], single: Collection[str]) -> None:
        """The names that settings have; those in `single` are each for one mote at a time."""
        self._by_crc = {name_crc(name): name for name in names}
        self._single = frozenset(single)
        self._addresses = {name: address for name, address in self._addresses.items() if name in self._single}
        for address, mote in self._motes.items():
            if mote.name is None and mote.crc is not None:
                mote.name, mote.is_guess = self._by_crc.get(mote.crc), True
            self._claim(address, mote)

    def of(self, address: str, heard: str | None = None) -> str | None:
        """What the device at an address is called; `heard` if it is no mote, so far as is known."""
        mote = self._motes.get(address)
        return heard if mote is None else mote.name

    def address_of(self, name: str) -> str | None:
        """The address of the mote that has a single name now."""
        return self._addresses.get(name)

    def hear(self, heard: Heard) -> set[str]:
        """An advert, of whatever; the addresses at which something else is known now. Once is as good as twice."""
        mote = self._motes.get(heard.address)
        if mote is None:
            if not self._is_mote(heard):
                return set()
            mote = self._meet(heard.address)
        self._motes.move_to_end(heard.address)
        mote.heard = heard.time
        crc, data = mote.crc, heard.services.get(PRESENCE)
        if data != mote.data:
            there = presence(heard)
            mote.data, crc = data, None if there is None else there.name_crc
        called = heard.name or mote.called
        if (called, crc) == (mote.called, mote.crc):
            return self._claim(heard.address, mote)
        mote.called, mote.crc = called, crc
        return self._set(heard.address, mote, *self._name(mote))

    def said(self, address: str, name: str) -> set[str]:
        """A mote has said its name over a connection; the addresses at which something else is known now."""
        mote = self._motes.get(address) or self._meet(address)
        changed = self._set(address, mote, name, is_guess=False)
        self._keep_name(address, name)
        return changed

    def _is_mote(self, heard: Heard) -> bool:
        return PRESENCE in heard.services or heard.address in self._said or scan_data(heard) is not None

    def _meet(self, address: str) -> _Mote:
        said = self._said.get(address)
        mote = self._motes[address] = _Mote(None if said is None else said.decode())
        if len(self._motes) > MAX_MOTES:
            self._motes.popitem(last=False)
        return mote

    def _name(self, mote: _Mote) -> tuple[str | None, bool]:
        """By what it advertises now; and whether that is a guess."""
        if mote.crc is None:
            return (mote.called, False) if mote.called else (mote.name, mote.is_guess)
        if mote.called is not None and name_crc(mote.called) == mote.crc:
            return mote.called, False
        if mote.name is not None and name_crc(mote.name) == mote.crc:
            return mote.name, mote.is_guess
        return self._by_crc.get(mote.crc), True

    def _set(self, address: str, mote: _Mote, name: str | None, is_guess: bool) -> set[str]:
        before, was_guess = mote.name, mote.is_guess
        mote.name, mote.is_guess = name, is_guess
        if before is not None and name is not None and name != before and was_guess and not is_guess:
            self._counts["name conflicts"] += 1
            logger.warning("%s: it advertises the CRC of mote %s, but it is %s", address, before, name)
            self._keep_name(address, name)
        return ({address} if name != before else set()) | self._claim(address, mote)

    def _claim(self, address: str, mote: _Mote) -> set[str]:
        """The addresses that have, or have lost, a single name by this."""
        if mote.name is None or mote.name not in self._single:
            return set()
        found = self._addresses.get(mote.name)
        other = None if found is None else self._motes.get(found)
        if found == address:
            return set()
        if found is None or other is None or other.name != mote.name or _is_silent(other, mote):
            self._addresses[mote.name], mote.is_refused = address, False
            return {address} if found is None else {address, found}
        if not mote.is_refused:
            mote.is_refused = True
            self._counts["name conflicts"] += 1
            logger.warning("%s: not taken: its name is %s, as that of the mote at %s", address, mote.name, found)
        return set()

    def _keep_name(self, address: str, name: str) -> None:
        if self._said.get(address) == name.encode():
            return
        self._said[address] = name.encode()
        changes: dict[str, bytes | None] = {KEY + address: name.encode()}
        if len(self._said) > MAX_KEPT:
            oldest = next(iter(self._said))
            del self._said[oldest]
            changes[KEY + oldest] = None
        self._keep(changes)


def _is_silent(mote: _Mote, other: _Mote) -> bool:
    """Whether it was not heard for long when the other was; so it seems when the clock was set, too."""
    return other.heard > 0 and abs(other.heard - mote.heard) > SILENT_SECONDS
