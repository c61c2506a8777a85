"""Who walks where, what the air is like there, and who asks for what: the setting of the messaging footprint.

Trajectories, air and city are the simulator's. Each volunteer carries a phone, which is a mobile broker, and a mote.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spinney import parse_filter
from spinney.compiled import compile_filter
from spinney.mote.protocol import AttributeRow
from spinney_mobile.cells import H3
from spinney_mobile.samples import CELL, HEARD, Ability

from ..sim.city import AREAS
from ..sim.field import SCENARIOS, Pollution, Source
from ..sim.movement import Walker
from .matching import WrongAnswer

HOURS: Final = 3.0
"""That a volunteer is on the way."""
INTERVAL_S: Final = 12
"""Between two samples of a mote: by bicycle a hundred metres, on foot fifteen."""
STEP_S: Final = 4
"""Between two looks at where a volunteer is."""
FETCHED_S: Final = (0.4, 0.9)
"""From a sample until the phone has it, at least and at most; a mote tells times in whole seconds."""
_GOLDEN: Final = (5**0.5 - 1) / 2
FIRST_S: Final = 60
"""Until the first sample: phones are switched on, announce what they have, and are told what is active."""
RESOLUTION: Final = 9
"""Of the cells, as mobile brokers have it unless told otherwise: hexagons of 0.1 km2."""
START_S: Final = 1_700_006_400.0 + 7 * 3600.0
"""A Wednesday, 7:00 UTC: the rush hour begins."""
SPEEDS_M_S: Final = (1.2, 1.4, 4.0, 8.0)
"""On foot and by bicycle, as in the simulated city."""
POLLUTERS: Final = 12
MAX_SUBSCRIPTIONS: Final = 20
MAX_TRIES: Final = 400
"""Subscriptions that are drawn for one coverage."""
CLOSE: Final = 0.01
"""A coverage is met within so much."""
LEAST_SHARE: Final = 0.02
"""Of the samples: what a subscription adds until the coverage is met."""
LOCAL_SHARE: Final = 0.5
"""Of the subscriptions are for a place; the others for all of the city."""
REACH_DEGREES: Final = (0.001, 0.004)
"""From the middle of a place to its sides: 110 to 450 m to the north, 80 to 310 m to the east."""
ROWS: Final = (
    AttributeRow("temperature", "°C", 1, 100, -4000, 8500, 0x02),
    AttributeRow("humidity", "%", 1, 100, 0, 10000, 0x03),
    AttributeRow("pm25", "µg/m³", 1, 1, 0, 1000, 0x0D),
    AttributeRow("NO2", "µg/m³", 1, 10, 0, 20000),
)
"""What a mote measures, as the virtual mote declares it."""

ABILITIES: Final = {
    row.name: Ability(row.low * row.p / row.q, row.high * row.p / row.q, row.unit or None) for row in ROWS
} | {HEARD: Ability(), CELL: Ability(kind="string")}
"""The same, as its broker announces it."""

_AREA: Final = AREAS["zagreb"]
_SCENARIO: Final = SCENARIOS["rush-hour"]


@dataclass(frozen=True, slots=True)
class Step:
    """Where a volunteer is at a time, and what the mote there measures, if a sample is due."""

    time_s: float
    volunteer: int
    place: tuple[float, float]
    cell: str
    raws: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Walk:
    """One run's, whatever is asked for."""

    seed: int
    volunteers: int
    steps: tuple[Step, ...]
    samples: tuple[Mapping[str, Any], ...]
    """As they would be published, but for what names and numbers them; in the order of the steps."""
    contexts: tuple[str, ...]
    """The cells that volunteers came into, the first of each included."""

    def sampled(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Each sample, and whose it is."""
        volunteers = (step.volunteer for step in self.steps if step.raws is not None)
        return zip(volunteers, self.samples, strict=True)


def walk(seed: int, hours: float = HOURS, volunteers: int = 1) -> Walk:
    """The same for the same seed."""
    chance = random.Random(f"footprint {seed}")  # noqa: S311  # repeatable on purpose
    polluters = [Source(_anywhere(chance), chance.uniform(20.0, 120.0)) for _ in range(POLLUTERS)]
    air = Pollution(_SCENARIO, polluters, seed)
    walkers = [_walker(chance) for _ in range(volunteers)]
    phases = [chance.randrange(0, INTERVAL_S, STEP_S) for _ in walkers]
    steps = tuple(_steps(air, walkers, phases, round(hours * 3600)))
    samples = tuple(_published(step) for step in steps if step.raws is not None)
    return Walk(seed, volunteers, steps, samples, tuple(_contexts(steps)))


def _contexts(steps: Iterable[Step]) -> Iterator[str]:
    cells: dict[int, str] = {}
    for step in steps:
        if cells.get(step.volunteer) != step.cell:
            cells[step.volunteer] = step.cell
            yield step.cell


def _steps(air: Pollution, walkers: list[Walker], phases: list[int], seconds: int) -> Iterator[Step]:
    grid = H3()
    for after_s in range(0, seconds, STEP_S):
        for number, walker in enumerate(walkers):
            metres = walker.step(STEP_S)
            lat, long = _AREA.lat_long(metres)
            time_s = START_S + after_s
            is_due = after_s >= FIRST_S and (after_s - phases[number]) % INTERVAL_S == 0
            raws = _measured(air, metres, time_s) if is_due else None
            yield Step(time_s, number, (lat, long), grid.cell(lat, long, RESOLUTION), raws)


def _measured(air: Pollution, metres: tuple[float, float], time_s: float) -> tuple[int, ...]:
    values = (air.value(row.name, metres, time_s) or 0.0 for row in ROWS)
    return tuple(min(max(round(v * row.q / row.p), row.low), row.high) for v, row in zip(values, ROWS, strict=True))


def heard_at(time_s: float) -> float:
    """When a phone has a sample of that time. It has as many digits as the time of a clock: they cost bytes."""
    least, most = FETCHED_S
    return time_s + least + (most - least) * (time_s * _GOLDEN % 1.0)


def values(raws: tuple[int, ...]) -> dict[str, float]:
    """What raw numbers stand for."""
    return {row.name: raw * row.p / row.q for raw, row in zip(raws, ROWS, strict=True)}


def _published(step: Step) -> dict[str, Any]:
    assert step.raws is not None
    lat, long = step.place
    heard = heard_at(step.time_s)
    return {**values(step.raws), "time": step.time_s, "lat": lat, "long": long, "cell": step.cell, "heard": heard}


def _anywhere(chance: random.Random) -> tuple[float, float]:
    return chance.uniform(0, _AREA.width_m), chance.uniform(0, _AREA.height_m)


def _walker(chance: random.Random) -> Walker:
    of_its_own = random.Random(chance.random())  # noqa: S311  # repeatable on purpose
    return Walker(_anywhere(chance), chance.choice(SPEEDS_M_S), _AREA.width_m, _AREA.height_m, of_its_own)


# ---- who asks for what


@dataclass(frozen=True, slots=True)
class Question:
    """What somebody wants to know of, in two ways to be told."""

    condition: str
    opposite: str
    around: str
    """Where; empty for all of the city."""

    @property
    def matches(self) -> str:
        """Each reading that meets it: a content filter, as in the paper."""
        return f"{self.condition} AND {self.around}" if self.around else self.condition

    @property
    def begins_and_ends(self) -> str:
        """When it begins, and when it ends: a state filter."""
        return f"WHEN {self.condition} UNTIL {self.opposite}" + (f" FOR {self.around}" if self.around else "")


@dataclass(frozen=True, slots=True)
class Asked:
    """Questions, and a bit for each sample that meets any of them."""

    questions: tuple[Question, ...]
    covered: int


class Asking:
    """Questions of one run, drawn at random, and which samples meet each of them."""

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._chance = random.Random(f"asking {walk.seed}")  # noqa: S311  # repeatable on purpose
        self._drawn: list[tuple[Question, int]] = []

    def covering(self, coverage: float) -> Asked:
        """Questions that so large a share of the samples meets; WrongAnswer if none are found."""
        count = len(self._walk.samples)
        least, most = (count * (coverage + off) for off in (-CLOSE, CLOSE))
        found: list[Question] = []
        covered = 0
        for number in range(MAX_TRIES):
            question, matches = self._draw(number)
            now = (covered | matches).bit_count()
            is_met = covered.bit_count() >= least
            brings_on = now >= min(covered.bit_count() + LEAST_SHARE * count, least)
            if matches and now <= most and (is_met or brings_on) and question not in found:
                covered |= matches
                found.append(question)
            if len(found) >= MAX_SUBSCRIPTIONS and is_met:
                break
        if covered.bit_count() < least:
            raise WrongAnswer(f"run {self._walk.seed}: no subscriptions cover {coverage:.0%} of the samples")
        return Asked(tuple(found), covered)

    def _draw(self, number: int) -> tuple[Question, int]:
        """The question with this number, and a bit for each sample that meets it."""
        while number >= len(self._drawn):
            question = self._question()
            matches = compile_filter(parse_filter(question.matches), clean=True)
            bits = sum(1 << place for place, sample in enumerate(self._walk.samples) if matches(sample))
            self._drawn.append((question, bits))
        return self._drawn[number]

    def _question(self) -> Question:
        """A measurement of one sample with a random operator; half of them near where that was."""
        chance = self._chance
        sample = chance.choice(self._walk.samples)
        row, operator = chance.choice(ROWS), chance.choice(tuple(_OPPOSITE))
        value = f"{sample[row.name]:.10g}"
        around = _around(sample, chance.uniform(*REACH_DEGREES)) if chance.random() < LOCAL_SHARE else ""
        return Question(f"{row.name} {operator} {value}", f"{row.name} {_OPPOSITE[operator]} {value}", around)


def _around(sample: Mapping[str, Any], reach: float) -> str:
    south, north = sample["lat"] - reach, sample["lat"] + reach
    west, east = sample["long"] - reach, sample["long"] + reach
    return f"lat BETWEEN {south:.4f} AND {north:.4f} AND long BETWEEN {west:.4f} AND {east:.4f}"


_OPPOSITE: Final = {"<": ">=", "<=": ">", "=": "<>", ">=": "<", ">": "<="}
