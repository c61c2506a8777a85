"""Every device heard: listed before any filter, then decoded, allowed, named, and told from its own repeats."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from spinney.errors import PublicationError
from spinney.expression import Value
from spinney.identity import CONTENT_SECONDS

from .battery import battery_of
from .decode import Decoded, DecodeError, Registry
from .decode.decoder import KeyMissing, WrongKey
from .decode.registry import Entry
from .decode.spinney import Description, Spinney
from .device_settings import DeviceSettings, place_of
from .mote_names import MoteNames
from .plain import plain
from .sample_time import is_believable
from .samples import Ability, Heard, Sample, raw_of
from .settings import Device, Devices

MAX_SEEN: Final = 4096
"""Devices that are remembered; beyond it the one unheard for longest goes, unless settings list it."""
REPEAT_SECONDS: Final = CONTENT_SECONDS
"""For how long an advert with the same bytes, or the same number, is the same sample. Then it is told again."""
UNKNOWN_SECONDS: Final = 60.0
"""For how long a device is not decoded again after no decoder has known its adverts, unless they look different."""
COUNTER_WRAP: Final = 1000
"""A counter so near its end may begin anew."""
_COUNTER_END: Final = 2**32
_SMOOTH: Final = 0.1


@dataclass(slots=True)
class Seen:
    """A device as `spinney mobile seen` shows it."""

    address: str
    acquirer: str
    first: float
    last: float
    heard: int = 0
    repeats: int = 0
    samples: int = 0
    name: str | None = None
    """As it calls itself."""
    rssi: int | None = None
    interval: float | None = None
    """Seconds between what is heard, smoothed."""
    decoder: str | None = None
    source: str | None = None
    """What its samples are published as."""
    place: tuple[float, float] | None = None
    """Where settings say that it stands: (lat, long)."""
    allowed: bool = False
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of its last sample."""
    battery: float | None = None
    """Its own, 0 to 1, as it said last."""
    error: str | None = None
    """Why its last advert could not be used."""
    hints: Sequence[str] = ()
    """Services and makers of what no decoder knows."""

    def to_json(self) -> dict[str, Any]:
        """As objects that json.dumps takes."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(slots=True)
class _State:
    """What must be remembered of a device to tell its repeats, and old adverts sent again by somebody."""

    seen: Seen
    settings: Device | None = None
    key: bytes | None = None
    source: str = ""
    entry: Entry | None = None
    services: Mapping[str, bytes] = field(default_factory=dict)
    manufacturers: Mapping[int, bytes] = field(default_factory=dict)
    passed: float = 0.0
    repeat: int | None = None
    repeat_heard: float = 0.0
    counter: int | None = None
    unknown_until: float = 0.0
    shape: frozenset[str | int] = frozenset()


class DeviceTable:
    """All devices. `take` is synchronous and quick: most adverts are repeats, and those are not decoded."""

    def __init__(
        self,
        registry: Registry,
        rules: Devices | None = None,
        listed: Sequence[Device] = (),
        keys: Mapping[str, str] | None = None,
        kept: Mapping[str, bytes] | None = None,
        keep: Callable[[Mapping[str, bytes | None]], None] = lambda _: None,
    ) -> None:
        self.registry = registry
        self.counts: Counter[str] = Counter()
        """Heard, repeats, unknown, undecodable (of them: no key, wrong key), replayed, presence, refused (not allowed),
        unbelieved (times), sampled, forgotten, name conflicts."""
        self._names = MoteNames(self.counts, kept, keep)
        self._states: OrderedDict[str, _State] = OrderedDict()
        self._addresses: dict[str, str] = {}
        self.configure(rules or Devices(), listed, keys)

    def configure(self, rules: Devices, listed: Sequence[Device], keys: Mapping[str, str] | None = None) -> None:
        """Other rules, devices and bind keys (by address), from now on."""
        self.of = DeviceSettings(rules, listed, keys or {}, self._names)
        """What settings say of each."""
        self._addresses.clear()
        for address, state in self._states.items():
            self._settle(address, state)

    # ---- what is heard

    def take(self, heard: Heard, *, over_gatt: bool = False) -> Sample | None:
        """The sample that it is; None for a repeat, and for what is not known or not wanted.

        With `over_gatt` its samples come another way, and an advert that cannot be opened is presence like any other.
        """
        self.recognise(heard)
        state = self._state(heard)
        self._note(state.seen, heard)
        if heard.values is not None:
            return self._take_values(state, heard)
        if self._is_repeat(state, heard):
            return None
        decoded = self._decode(state, heard, over_gatt=over_gatt)
        if decoded is None or self._is_old(state, heard, decoded):
            return None
        state.seen.error = None
        state.seen.values = decoded.values
        state.seen.battery = battery_of(decoded.values) if "battery" in decoded.values else state.seen.battery
        if decoded.presence or not decoded.values:
            self.counts["presence"] += 1
            return None
        if not self._is_allowed(state):
            return None
        state.passed = heard.time
        return self._sample(state, heard, decoded)

    def recognise(self, heard: Heard) -> set[str]:
        """Learns what a mote is called, before anybody acts on its advert; the same advert may come twice.

        Returns the addresses of which settings say other things now.
        """
        changed = self._names.hear(heard)
        return self._settled(changed) if changed else changed

    def said(self, address: str, name: str) -> set[str]:
        """The same when a mote has said its name over a connection."""
        return self._settled(self._names.said(address, name))

    def _settled(self, addresses: set[str]) -> set[str]:
        for address in addresses & self._states.keys():
            self._settle(address, self._states[address])
        return addresses

    def _state(self, heard: Heard) -> _State:
        state = self._states.get(heard.address)
        if state is None:
            state = _State(Seen(heard.address, heard.acquirer, heard.time, heard.time))
            self._states[heard.address] = state
            self._settle(heard.address, state)
            if len(self._states) > MAX_SEEN:
                self._forget()
        else:
            self._states.move_to_end(heard.address)
        return state

    def _forget(self) -> None:
        """Whoever makes up addresses must not make us forget the counters of devices that are listed."""
        oldest = next((address for address, state in self._states.items() if state.settings is None), None)
        forgotten = self._states.pop(oldest or next(iter(self._states)))
        self._addresses.pop(forgotten.source, None)
        self.counts["forgotten"] += 1

    def _note(self, seen: Seen, heard: Heard) -> None:
        self.counts["heard"] += 1
        if seen.heard:
            gap = max(0.0, heard.time - seen.last)
            seen.interval = gap if seen.interval is None else seen.interval + _SMOOTH * (gap - seen.interval)
        seen.heard += 1
        seen.last = heard.time
        seen.rssi = heard.rssi
        seen.acquirer = heard.acquirer
        name = self._names.of(heard.address, heard.name or seen.name)
        if name != seen.name:
            seen.name = name
            self._settle(heard.address, self._states[heard.address])

    def _is_repeat(self, state: _State, heard: Heard) -> bool:
        if heard.services != state.services or heard.manufacturers != state.manufacturers:
            state.services, state.manufacturers = heard.services, heard.manufacturers
            return False
        if not _is_within(state.passed if state.repeat is None else state.repeat_heard, heard.time):
            return False
        state.repeat_heard = heard.time
        return self._count_repeat(state)

    def _count_repeat(self, state: _State) -> bool:
        state.seen.repeats += 1
        self.counts["repeats"] += 1
        return True

    # ---- adverts

    def _decode(self, state: _State, heard: Heard, *, over_gatt: bool) -> Decoded | None:
        if state.unknown_until > heard.time and state.shape == _shape(heard):
            self.counts["unknown"] += 1
            return None
        try:
            found = self.registry.decode(heard, state.key, state.entry)
        except DecodeError as error:
            self._undecodable(state, error, over_gatt=over_gatt)
            return None
        if found is None:
            self._unknown(state, heard)
            return None
        if found[0] is not state.entry:
            state.entry = found[0]
            state.seen.decoder = found[0].decoder.name
            state.unknown_until = 0.0
            self._settle(heard.address, state)
        return found[1]

    def _undecodable(self, state: _State, error: DecodeError, *, over_gatt: bool) -> None:
        if over_gatt and isinstance(error, KeyMissing):
            self.counts["presence"] += 1
            return
        self.counts["undecodable"] += 1
        self.counts["no key"] += isinstance(error, KeyMissing)
        self.counts["wrong key"] += isinstance(error, WrongKey)
        state.seen.error = str(error)

    def _unknown(self, state: _State, heard: Heard) -> None:
        self.counts["unknown"] += 1
        state.shape = _shape(heard)
        state.unknown_until = heard.time + UNKNOWN_SECONDS
        if state.entry is None:
            state.seen.hints = [*heard.services, *(f"maker {company:#06x}" for company in heard.manufacturers)]

    def _is_old(self, state: _State, heard: Heard, decoded: Decoded) -> bool:
        """Whether it is the sample that came before, or an encrypted one that somebody has recorded."""
        if decoded.counter is not None:
            if state.counter is not None and _goes_back(state.counter, decoded.counter):
                self.counts["replayed"] += 1
                state.seen.error = (
                    f"its counter went from {state.counter} back to {decoded.counter}: somebody replays old adverts, or"
                    " it was reset; then restart the mobile broker"
                )
                return True
            state.counter = decoded.counter
        same = decoded.repeat is not None and decoded.repeat == state.repeat
        same = same and _is_within(state.repeat_heard, heard.time)
        state.repeat, state.repeat_heard = decoded.repeat, heard.time
        return self._count_repeat(state) if same else False

    def _sample(self, state: _State, heard: Heard, decoded: Decoded) -> Sample:
        return self._counted(
            state,
            Sample(
                state.source,
                self._renamed(state.settings, decoded.values),
                self._measured(heard, None),
                heard.time,
                heard.acquirer,
                decoded.boot,
                decoded.sequence,
                rssi=heard.rssi,
                battery=battery_of(decoded.values),
                place=place_of(state.settings),
                type=state.settings.type if state.settings else None,
                raw=raw_of(heard) if state.settings and state.settings.raw else None,
            ),
        )

    def _measured(self, heard: Heard, told: float | None) -> float:
        """A device's clock is believed if it can be right; else the sample is as old as what was heard."""
        told = told if heard.measured is None else heard.measured
        if told is None:
            return heard.time
        if is_believable(told, heard.time):
            return told
        self.counts["unbelieved"] += 1
        return heard.time

    def _counted(self, state: _State, sample: Sample) -> Sample:
        state.seen.samples += 1
        self.counts["sampled"] += 1
        return sample

    @staticmethod
    def _renamed(settings: Device | None, values: Mapping[str, Value]) -> Mapping[str, Value]:
        if settings is None or not (settings.rename or settings.attributes):
            return values
        renamed = {settings.rename.get(name, name): value for name, value in values.items()}
        return {**renamed, **settings.attributes}

    # ---- what needs no decoder

    def _take_values(self, state: _State, heard: Heard) -> Sample | None:
        try:
            found = plain(heard.values or {})
        except PublicationError as error:
            self.counts["undecodable"] += 1
            state.seen.error = str(error)
            return None
        state.seen.error = None
        state.seen.values = found.values
        if not self._is_allowed(state):
            return None
        boot, sequence = found.number or (None, None)
        return self._counted(
            state,
            Sample(
                state.source,
                self._renamed(state.settings, found.values),
                self._measured(heard, found.time),
                heard.time,
                heard.acquirer,
                boot,
                sequence,
                battery=battery_of(found.values),
                valid_for=found.valid_for,
                place=found.place or place_of(state.settings),
                type=found.type or (state.settings.type if state.settings else None),
                raw=raw_of(heard) if state.settings and state.settings.raw else None,
            ),
        )

    # ---- who may

    def _is_allowed(self, state: _State) -> bool:
        self.counts["refused"] += not state.seen.allowed
        return state.seen.allowed

    def _settle(self, address: str, state: _State) -> None:
        """What the settings say of a device, worked out once and not for each advert."""
        settings = state.settings = self.of.listed(address)
        key = self.of.bindkey(address)
        if key != state.key:
            state.key, state.counter = key, None  # under another key it counts from the beginning
        state.source = state.seen.source = self.of.source(address)
        state.seen.place = place_of(settings)
        self._addresses[state.source] = address
        state.seen.allowed = self.of.allows(address, state.seen.name)

    def why_refused(self, address: str) -> str:
        """Why nothing became of what a device said last."""
        state = self._states.get(address)
        error = None if state is None else state.seen.error
        return error or f"{address:.100} is not allowed: settings say so in [devices], or in its [[device]]"

    # ---- for others

    def describe(self, address: str, name: str, description: Description, battery: float | None = None) -> None:
        """What a mote has said of itself, so that its adverts can be told as its samples, and people know it."""
        if (state := self._states.get(address)) is not None:
            state.seen.name = name
            state.seen.battery = state.seen.battery if battery is None else battery
        for entry in self.registry.entries:
            if isinstance(entry.decoder, Spinney):
                entry.decoder.describe(address, description)

    @property
    def sources(self) -> set[str]:
        """What the samples of all devices that are taken are published as."""
        return {state.source for state in self._states.values() if state.seen.allowed}

    def seen(self) -> list[Seen]:
        """Every device, the one heard last first."""
        return [state.seen for state in reversed(self._states.values())]

    def battery(self, source: str) -> float | None:
        """A source's own, 0 to 1, as its adverts or its mote said last."""
        state = self._states.get(self._addresses.get(source, ""))
        return None if state is None else state.seen.battery

    def abilities(self, source: str) -> Mapping[str, Ability]:
        """What each attribute of a source can be, by its decoder; empty where there is none."""
        state = self._states.get(self._addresses.get(source, ""))
        if state is None or state.entry is None:
            return {}
        known, found = state.entry.decoder.abilities, {}
        renames = state.settings.rename if state.settings else {}
        for name in state.seen.values:
            ability = known.get(name) or known.get(name.rpartition("_")[0])
            if ability is not None:
                found[renames.get(name, name)] = ability
        return found


def _is_within(since: float, now: float) -> bool:
    """Whether what is the same is a repeat still; a clock that has been set back tells nothing."""
    return 0.0 <= now - since <= REPEAT_SECONDS


def _shape(heard: Heard) -> frozenset[str | int]:
    return frozenset((*heard.services, *heard.manufacturers))


def _goes_back(before: int, now: int) -> bool:
    begins_anew = now < COUNTER_WRAP and before > _COUNTER_END - COUNTER_WRAP
    return now < before and not begins_anew
