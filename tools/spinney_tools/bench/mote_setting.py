"""Who measures and who asks in Table 3.1 of the state-filter thesis, and motes that run the firmware's own filters."""

from __future__ import annotations

import functools
import importlib
import random
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spinney import Knowledge, Known, parse
from spinney.mote import Attribute, Compiled, Delivery
from spinney.mote import compile as compile_program
from spinney.mote.protocol import Event

from .. import clone
from .matching import WrongAnswer

SENSORS = (3, 3, 3, 2, *(2,) * 12)
"""In each of sixteen regions: thirty-five."""
ASKED = (0, 1, 1, 1, 2, 2, 2, 3, 3, 3)
"""The region of each of ten subscribers: eleven motes are asked, there are twenty-seven filters, and eight motes have
more than one subscriber. Only an allocation with one such region gives all counts of Table 3.1."""
AROUND = 10.0
OFFSETS = (-0.09, -0.07, -0.05, -0.03, -0.01, 0.01, 0.03, 0.05, 0.07, 0.09)
"""Of the subscribers' thresholds from what they are around."""
INTERVAL_S = 180
SAMPLES = 600
"""Thirty hours."""
TEMPERATURE = Attribute("temperature", 1, 100, -4_000, 8_500)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Wants to know when it is warmer than a threshold in a region."""

    number: int
    region: str
    threshold: float

    def holds(self, celsius: float) -> bool:
        """What the subscriber asks."""
        return celsius > self.threshold

    def lasts(self, celsius: float, hysteresis: float) -> bool:
        """What the subscriber asks while it holds: with hysteresis it ends lower than it begins."""
        return celsius > self.threshold - hysteresis


@dataclass(frozen=True, slots=True)
class Mote:
    """Takes a sample every three minutes, at a phase of its own."""

    name: str
    region: str
    phase_s: int
    number: int
    """Of all motes, by region: which sensor of a place it is, where they differ."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The motes, by phase, and the subscribers of each region."""

    motes: tuple[Mote, ...]
    subscribers: Mapping[str, tuple[Subscriber, ...]]

    def asked(self, mote: Mote) -> tuple[Subscriber, ...]:
        """Who wants to hear of a mote."""
        return self.subscribers.get(mote.region, ())

    def every(self) -> Iterator[Subscriber]:
        """The subscribers of all regions."""
        for asked in self.subscribers.values():
            yield from asked


def setting(seed: int, around: float = AROUND) -> Setting:
    """Who asks for which threshold, and the motes' phases, are drawn."""
    chance = random.Random(f"setting {seed}")  # noqa: S311  # repeatable on purpose
    names = [f"r{place}" for place in range(len(SENSORS))]
    regions = [(region, place) for region, count in zip(names, SENSORS, strict=True) for place in range(count)]
    motes = [
        Mote(f"{region}-{place}", region, chance.randrange(INTERVAL_S), number)
        for number, (region, place) in enumerate(regions)
    ]
    thresholds = [round(around + offset, 2) for offset in chance.sample(OFFSETS, len(OFFSETS))]
    asked: dict[str, tuple[Subscriber, ...]] = {}
    for number, (place, threshold) in enumerate(zip(ASKED, thresholds, strict=True)):
        asked[names[place]] = (*asked.get(names[place], ()), Subscriber(number, names[place], threshold))
    return Setting(tuple(sorted(motes, key=lambda mote: (mote.phase_s, mote.name))), asked)


class Board:
    """A mote's table, machine, labels and ring as they are flashed (firmware/lib/spinney_mote), on CPython.

    `texts` are all subscriptions by number; those of other regions make no program for this mote.
    """

    def __init__(self, mote: Mote, texts: Mapping[int, str]) -> None:
        library = firmware()
        programs = [program(number, text, mote.region) for number, text in texts.items()]
        self._table = library.Table(1, library.layout([_ROW]))
        self._table.change([one for one in programs if one is not None])
        self._ring = library.Ring()
        self._labels = library.Labels(self._table, self._ring, library.run, [(TEMPERATURE.p, TEMPERATURE.q)])
        self._sample = library.Sample([(TEMPERATURE.low, TEMPERATURE.high)], 1)
        self.is_asked = len(self._table) > 0

    def observe(self, time_s: int, celsius: float) -> list[Event]:
        """Takes a sample, and sends the events that it makes."""
        self._sample.begin(time_s, False)
        self._sample.put(0, round(celsius * TEMPERATURE.q / TEMPERATURE.p))
        if not self._labels.observe(self._sample):
            return []
        ring = self._ring
        events = [Event.decode(bytes(ring.read(number, 0))) for number in range(ring.first, ring.next)]
        ring.ack(ring.next - 1)
        return events


_ROW = (TEMPERATURE.name, TEMPERATURE.p, TEMPERATURE.q, TEMPERATURE.low, TEMPERATURE.high)


@functools.cache
def program(number: int, text: str, region: str) -> bytes | None:
    """A subscription as it goes onto the motes of a region; None where they are not asked.

    WrongAnswer for one that is not exact.
    """
    found = compile_program(parse(text), Known({"region": Knowledge.constant(region)}), [TEMPERATURE], Delivery(number))
    if isinstance(found, Compiled):
        if found.reasons:
            raise WrongAnswer(f"{text}: {'; '.join(found.reasons)}")
        return found.program
    if not found.never:
        raise WrongAnswer(f"{text}: {found.why}")
    return None


@dataclass(frozen=True, slots=True)
class _Library:
    Table: Any
    Ring: Any
    Labels: Any
    Sample: Any
    layout: Any
    run: Any


@functools.cache
def firmware() -> _Library:
    """The firmware's modules, of which no other package knows."""
    folder = str(clone.root() / "firmware" / "lib")
    if folder not in sys.path:
        sys.path.append(folder)
    table, ring, labels, samples, programs, vm = (
        importlib.import_module(f"spinney_mote.{name}")
        for name in ("table", "ring", "labels", "samples", "programs", "vm")
    )
    return _Library(table.Table, ring.Ring, labels.Labels, samples.Sample, programs.layout, vm.run)
