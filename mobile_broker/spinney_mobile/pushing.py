"""Which filters are wanted on which motes: of sources that are ours, and whose readings no private rule touches."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from spinney import TRUE, ContentSubscription, Knowledge, Known
from spinney.expression import Value
from spinney.mote.adverts import Mode
from spinney.publication import RESERVED

from .acquire import name_of
from .active import ActiveFilter
from .device_settings import place_of
from .devices import DeviceTable
from .motes import AdvertPolicy, Identity, MoteInfo, Motes
from .samples import CELL, HEARD, Acquirer, Digest, Heard
from .settings import AcquireBle, AcquireMotes, AnyAcquire, Settings

EVERYTHING: Final = ActiveFilter("everything", "content", ContentSubscription(filter=TRUE), TRUE)
"""In place of all filters, where only this broker may decide: the mote sends every sample."""
EVERY_SAMPLE: Final = ActiveFilter.local("every sample", TRUE)
"""In place of content filters, where every sample is wanted here, whatever the cloud wants."""
PRIVATE: Final = "a private rule may stop or change its readings"
SENDS_ALL: Final = "the mote sends every sample"
_TYPES: Final = {float: "number", str: "string", bool: "boolean"}
_NOT_THE_MOTES: Final = ("lat", "long", CELL, HEARD, "raw")
"""Attributes that are added here, unless constants say which; the mote must not take them for missing."""


class Host(Protocol):
    """What the broker is to motes."""

    devices: DeviceTable
    settings: Settings

    def constants(self, source: str) -> Mapping[str, Value]:
        """Attributes that all publications of a source have."""
        ...

    def may_use(self, source: str) -> bool:
        """Whether the source is ours."""
        ...

    def is_private(self, source: str) -> bool:
        """Whether a private rule may stop or change its readings."""
        ...

    def epoch(self, source: str) -> int:
        """Of its lease."""
        ...

    def wanted(self) -> Mapping[Digest, ActiveFilter]:
        """All that is active."""
        ...

    def on_mote(self, source: str, digests: Collection[Digest]) -> None:
        """The filters that a mote evaluates from now on."""

    def bit(self, digest: Digest, source: str, value: Value | None) -> bool | None:
        """The owner's bit of a source, which is 1 in no EACH value but this; None while it is not known."""
        ...

    def described(self, info: MoteInfo) -> None:
        """What a mote says of itself."""

    def forgotten(self, source: str) -> None:
        """A mote is no longer this source."""


class Pushing:
    """All acquirers of motes."""

    def __init__(
        self,
        host: Host,
        kept: Mapping[str, bytes],
        keep: Callable[[Mapping[str, bytes | None]], None],
        clock: Callable[[], float],
    ) -> None:
        self._host = host
        self._kept = kept
        self._keep = keep
        self._clock = clock
        self._motes: list[Motes] = []
        self._known: dict[str, Motes] = {}
        """By source."""

    def make(self, settings: AcquireMotes) -> Acquirer:
        """The acquirer that these settings describe."""
        adverts = (one for one in self._host.settings.acquire if isinstance(one, AcquireBle))
        motes = Motes(
            self._identity,
            name=name_of(settings),
            adapter=settings.adapter,
            addresses=settings.addresses,
            connections=settings.connections,
            policy=_policy(self._host.settings),
            adapters={name_of(one): one.adapter for one in adverts},
            kept=self._kept,
            keep=self._keep,
            clock=self._clock,
        )
        self.add(motes)
        return motes

    def hearing(self, settings: AnyAcquire) -> AnyAcquire:
        """Settings of an acquirer, as motes need them: the adverts of a quiet mote are all equal, and must be told."""
        if isinstance(settings, AcquireBle) and settings.duplicates is None:
            return replace(settings, duplicates=_has_motes(self._host.settings))
        return settings

    @property
    def sources(self) -> Collection[str]:
        """The motes that have been heard."""
        return self._known.keys()

    def counts(self) -> Mapping[str, int]:
        """Connections, failures, events and the like, of all motes."""
        total: Counter[str] = Counter()
        for motes in self._motes:
            total.update({name.replace(" ", "_"): count for name, count in motes.counts.items()})
        return total

    def behind(self) -> list[str]:
        """The motes that may still hold back what others wanted before."""
        return [source for source, motes in self._known.items() if not motes.has_committed(source)]

    def trouble(self, source: str) -> str | None:
        """What is wrong with a source that is a mote."""
        motes = self._known.get(source)
        return None if motes is None else motes.trouble(source)

    def health(self, source: str) -> Mapping[str, Any] | None:
        """Of a source that is a mote: what is on it, and what stays here and why."""
        motes = self._known.get(source)
        health = None if motes is None else motes.health(source)
        if health is None or not self._host.may_use(source):
            return health
        wanted = self._host.wanted()
        if self._host.is_private(source):
            return {**health, "here": dict.fromkeys(wanted, PRIVATE)}
        if not wants_every_sample(self._host.settings):
            return health
        contents = [digest for digest, one in wanted.items() if one.kind != "state"]
        return {**health, "here": {**health["here"], **dict.fromkeys(contents, SENDS_ALL)}}

    @property
    def closed(self) -> Collection[str]:
        """Sources whose motes give us nothing, since they let others write only."""
        return {source for motes in self._motes for source in motes.closed}

    def add(self, motes: Motes) -> None:
        """Motes that somebody else has made."""
        motes.on_table = self._host.on_mote
        motes.bit = self._host.bit
        motes.on_info = self._host.described
        motes.on_name = self._said
        motes.on_forgotten = self._forgotten
        self._motes.append(motes)

    def _identity(self, address: str, name: str | None) -> Identity | None:
        devices = self._host.devices.of
        if not devices.allows(address, name):
            return None
        source, device = devices.source(address), devices.listed(address)
        if device is None:
            return Identity(source)
        return Identity(source, device.rename, device.attributes, place_of(device), device.type)

    def heard(self, heard: Heard) -> bool:
        """Whether the advert is mere presence, because the samples of its mote come over GATT."""
        self._identify(self._host.devices.recognise(heard))
        hearing = [motes for motes in self._motes if self._hears(motes, heard)]
        return bool(hearing)

    def _hears(self, motes: Motes, heard: Heard) -> bool:
        if not motes.heard(heard):
            return False
        source = self._host.devices.of.source(heard.address)
        if source not in self._known and motes.has(source):
            self._known[source] = motes
            self._tell(source, motes)
        return True

    def refresh(self) -> None:
        """Something else is active, or other sources are ours."""
        for source, motes in list(self._known.items()):
            if motes.has(source):
                self._tell(source, motes)
            else:
                del self._known[source]

    async def identify_again(self) -> None:
        """Settings of devices have changed."""
        for motes in self._motes:
            await motes.identify_again()
        self.refresh()

    def _said(self, address: str, name: str) -> None:
        self._identify(self._host.devices.said(address, name))

    def _identify(self, addresses: Collection[str]) -> None:
        """Settings may say something else of the motes at these addresses."""
        for motes in self._motes if addresses else ():
            for address in addresses:
                motes.identify(address)

    def _forgotten(self, source: str) -> None:
        self._known.pop(source, None)
        self._host.forgotten(source)

    def release(self, source: str) -> None:
        """A source is given up."""
        motes = self._known.get(source)
        if motes is not None:
            motes.release(source)

    def _tell(self, source: str, motes: Motes) -> None:
        host = self._host
        if not host.may_use(source):
            motes.release(source)
            return
        motes.want(source, self._filters(source), known(source, host.constants(source)), host.epoch(source))

    def _filters(self, source: str) -> Mapping[Digest, ActiveFilter]:
        wanted, wants_all = self._host.wanted(), wants_every_sample(self._host.settings)
        if (wanted or wants_all) and self._host.is_private(source):
            return {EVERYTHING.digest: EVERYTHING}
        if not wants_all:
            return wanted
        states = {digest: one for digest, one in wanted.items() if one.kind == "state"}
        return {**states, EVERY_SAMPLE.digest: EVERY_SAMPLE}


def _has_motes(settings: Settings) -> bool:
    return any(isinstance(one, AcquireMotes) and one.enabled for one in settings.acquire)


def _policy(settings: Settings) -> AdvertPolicy:
    wanted, after = settings.motes.adverts, settings.motes.open_after
    mode = None if wanted == "leave" else Mode[wanted.upper()]
    return AdvertPolicy(mode, None if after is None else math.ceil(after))


def wants_every_sample(settings: Settings) -> bool:
    """Whether this broker passes on all that is measured: then motes hold nothing back from it."""
    return settings.send == "all" or settings.home_assistant.url is not None


def known(source: str, constants: Mapping[str, Value]) -> Known:
    """What the publications of a mote hold beside what it measures; they hold nothing else."""
    knowledge = {name: Knowledge() for name in _NOT_THE_MOTES}
    for name, kind in RESERVED.items():
        knowledge.setdefault(name, Knowledge.from_json({"type": _TYPES[kind]}, name))
    for name in ("valid_for", "type"):
        knowledge[name] = Knowledge.never()
    for name in ("id", "time"):
        knowledge[name] = Knowledge.from_json({"type": _TYPES[RESERVED[name]], "presence": "always"}, name)
    fixed = {name: Knowledge.constant(value) for name, value in {**constants, "source": source}.items()}
    return Known({**knowledge, **fixed}, closed=True)
