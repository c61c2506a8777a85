"""Thirty hours of motes that measure, of one way to filter, and of what subscribers could know of the weather."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .. import temperature
from ..mote_setting import INTERVAL_S, SAMPLES, TEMPERATURE, Mote, Setting, Subscriber

_DIGITS = 2
"""Of a reading, as TEMPERATURE has them."""
assert TEMPERATURE.q == 10**_DIGITS


@dataclass(frozen=True, slots=True)
class Stretch:
    """Half-hourly temperatures of thirty hours, each list with the one before its first, held until the next.

    One list for all motes, or one for each. With noise, each sample of each mote is off by a Gaussian error of its own.
    """

    sensors: tuple[Sequence[float], ...]
    noise_celsius: float = 0.0
    seed: int = 0

    def of(self, mote: Mote) -> Sequence[float]:
        """The true temperature where a mote is."""
        return self.sensors[mote.number % len(self.sensors)]


@dataclass(slots=True)
class Outcome:
    """What one way of filtering did in one stretch. Samples and events are those that left motes."""

    sent: int = 0
    """Samples of all thirty-five motes..."""
    covered: int = 0
    """...and of the eleven that are asked."""
    events: int = 0
    """One for each filter that a sample passes."""
    shared: int = 0
    """Samples that more than one subscriber's filter passed, before region scopes..."""
    told: int = 0
    """...samples of which any subscriber is told, after them..."""
    told_shared: int = 0
    """...and those of which more than one is told."""
    delivered: int = 0
    """One for each subscriber who is told of a sample."""
    delays_s: list[float] = field(default_factory=list)
    """From each beginning and end of what was asked for until the subscriber could know of it."""
    missed: int = 0
    """Of those, over before the subscriber could know."""

    def count(self, asked: bool, sent: int, events: int, told: int, times: int = 1) -> None:
        """As many equal samples: how many of them left the mote, by how many filters, told to how many subscribers."""
        self.sent += sent
        self.covered += sent if asked else 0
        self.events += events * times
        self.shared += times if events > 1 else 0
        self.told += times if told else 0
        self.told_shared += times if told > 1 else 0
        self.delivered += told * times

    @property
    def suppressed(self) -> int:
        """Samples that left asked motes and of which region scopes told nobody."""
        return self.covered - self.told


class Belief:
    """What a subscriber knows: whether it is warmer at any of the motes, or in the region, that are asked for it."""

    def __init__(self) -> None:
        self._learnt: list[tuple[float, str, bool]] = []

    def learn(self, source: str, time_s: float, warm: bool) -> None:
        """Of one mote, or of one region."""
        self._learnt.append((time_s, source, warm))

    def changes(self) -> list[tuple[float, bool]]:
        """When what is known began to be so."""
        found: list[tuple[float, bool]] = []
        warm_at: set[str] = set()
        for time_s, source, warm in sorted(self._learnt):
            (warm_at.add if warm else warm_at.discard)(source)
            if not found or found[-1][1] is not bool(warm_at):
                found.append((time_s, bool(warm_at)))
        return found


class Method(Protocol):
    """One way of filtering, during one stretch. `motes` are those that ever send, by phase."""

    motes: tuple[Mote, ...]
    hysteresis: float
    """In degrees, between where what was asked for begins and where it ends."""

    def observe(self, mote: Mote, times: Sequence[int], celsius: float, outcome: Outcome) -> None:
        """A mote takes consecutive samples that read the same; what becomes of them is counted."""
        ...

    def known(self, subscriber: Subscriber) -> Belief: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """Consecutive samples of one mote within one reading of the station; `place` is that reading's."""

    mote: Mote
    times: tuple[int, ...]
    place: int


def play(method: Method, where: Setting, stretch: Stretch, *, in_runs: bool = True) -> Outcome:
    """One stretch. The sample before it, which tells every bit (rule S2), is not counted.

    `in_runs` hands samples that read the same over together, which is quicker and counts the same.
    """
    outcome, before = Outcome(), Outcome()
    senders = {mote.name for mote in method.motes}
    chance = random.Random(f"noise {stretch.seed}")  # noqa: S311  # repeatable on purpose
    for turn in _turns(where.motes, in_runs and not stretch.noise_celsius):
        celsius = stretch.of(turn.mote)[turn.place]
        if stretch.noise_celsius:
            celsius = round(celsius + chance.gauss(0.0, stretch.noise_celsius), _DIGITS)
        if turn.mote.name in senders:
            method.observe(turn.mote, turn.times, celsius, outcome if turn.times[0] >= INTERVAL_S else before)
    for subscriber in where.every():
        _capture(subscriber, where, stretch, method, outcome)
    return outcome


@functools.cache
def _turns(motes: tuple[Mote, ...], in_runs: bool) -> tuple[Turn, ...]:
    """In the order of time. The sample before the stretch is one of its own."""
    found = []
    for mote in motes:
        times = [step * INTERVAL_S + mote.phase_s for step in range(SAMPLES + 1)]
        found.append(Turn(mote, (times[0],), _reading(times[0])))
        for place, same in itertools.groupby(times[1:], _reading):
            group = tuple(same)
            found += [Turn(mote, group, place)] if in_runs else [Turn(mote, (time_s,), place) for time_s in group]
    return tuple(sorted(found, key=lambda turn: (turn.times[0], turn.mote.name)))


def _reading(time_s: float) -> int:
    """The newest of the station at this time: the first one is from before the stretch."""
    return int((time_s - INTERVAL_S) // temperature.STEP_S) + 1


def _capture(subscriber: Subscriber, where: Setting, stretch: Stretch, method: Method, outcome: Outcome) -> None:
    """When the subscriber could know of each change. The last one may be cut off by the end of the stretch."""
    warm = _truth(subscriber, where, stretch, method.hysteresis)
    known = method.known(subscriber).changes()
    steps = [place for place in range(1, len(warm)) if warm[place] != warm[place - 1]]
    for step, following in itertools.pairwise([*steps, len(warm)]):
        since_s, until_s = (INTERVAL_S + (place - 1) * temperature.STEP_S for place in (step, following))
        learnt_s = _when(known, warm[step], since_s)
        if learnt_s is not None and learnt_s < until_s:
            outcome.delays_s.append(learnt_s - since_s)
        elif following < len(warm):
            outcome.missed += 1


def _truth(subscriber: Subscriber, where: Setting, stretch: Stretch, hysteresis: float) -> list[bool]:
    """For each reading of the station, whether it is so at any mote of the subscriber's region, noise left out."""
    each = {
        id(series): series for mote in where.motes if mote.region == subscriber.region for series in [stretch.of(mote)]
    }
    return [any(bits) for bits in zip(*(_holds(subscriber, one, hysteresis) for one in each.values()), strict=True)]


def _holds(subscriber: Subscriber, series: Sequence[float], hysteresis: float) -> Iterator[bool]:
    warm = False
    for celsius in series:
        warm = subscriber.lasts(celsius, hysteresis) if warm else subscriber.holds(celsius)
        yield warm


def _when(known: Sequence[tuple[float, bool]], warm: bool, since_s: float) -> float | None:
    """When, from a time on, the subscriber knew this; None if never."""
    before = None
    for time_s, knew in known:
        if time_s > since_s and before is warm:
            return since_s
        if time_s >= since_s and knew is warm:
            return time_s
        before = knew
    return since_s if before is warm else None
