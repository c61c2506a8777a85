"""`spinney bench mote`: Table 3.1 of the state-filter thesis, over all stretches of the series that it was drawn from.

Beside it stand the thesis' own values, the stretches that are like the thesis' one, a temperature with noise, and one
that differs from mote to mote.
"""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import temperature
from ..machine import describe
from ..mote_setting import AROUND, INTERVAL_S, OFFSETS, SAMPLES, Setting, setting
from ..table import Table, number
from .figures import Summary, summarise
from .lab import lab
from .methods import (
    CONTENT,
    DELTA,
    EVERYTHING,
    HYSTERESIS_CELSIUS,
    INTERVAL,
    STATE,
    STATE_WITH_HYSTERESIS,
    filter_bytes,
    methods,
)
from .picture import PICTURE, Numbers, draw
from .playing import Outcome, Stretch, play

SEED = 1
NOISE_CELSIUS = 0.2
NOISY_STRETCHES = 52
"""Spread evenly over the series: with noise no two samples read the same, which takes longer."""
DELTAS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.5, 2.0)
"""Settings of ESPHome's filter that are tried..."""
DELTA_STRETCHES = 52
"""...on so many stretches, spread evenly."""
WARM_HALF_HOURS = 25
"""Of the thesis' thirty hours."""
CHUNK = 25
"""Stretches that a process is given at once."""
MAX_PROCESSES = 4

LEAST_RATIO = 0.9966
LEAST_TIMES_FEWER = 30
"""Events than of interval filters."""
CHOSEN = {"covered": 22, "shared": 16, "suppressed": 14, "told": 8, "told_shared": 6, "delivered": 20}
"""What the thesis counts of state filters: the target of the stretches that are chosen to be like its own."""

HALF_HOURS = SAMPLES * INTERVAL_S // temperature.STEP_S
_ALL = (EVERYTHING, CONTENT, INTERVAL, DELTA, STATE, STATE_WITH_HYSTERESIS)
_FEW = (INTERVAL, DELTA, STATE, STATE_WITH_HYSTERESIS)
_AS_CHOSEN = (INTERVAL, DELTA, STATE)

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """A temperature: in which setting, in which stretches, and by which ways it is filtered."""

    name: str
    where: Setting
    stretches: Sequence[Stretch]
    filters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """One row."""

    case: str
    filter: str
    stretches: int
    summary: Summary
    delta: float | None = None
    """The setting of ESPHome's filter, and of the others nothing."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What each way of filtering did in thirty hours."""

    origin: str
    is_invented: bool
    lab_origin: str | None
    stretches: int
    """That were taken..."""
    every: int
    """...of so many..."""
    like_the_thesis: int
    """...and so many of these are like the thesis' one."""
    results: tuple[Result, ...]

    def of(self, case: str, filter: str) -> Summary | None:  # noqa: A002 - it is one
        """The row, if there is one."""
        return next((one.summary for one in self.results if (one.case, one.filter) == (case, filter)), None)

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        return list(itertools.chain(self._missed_on_average(), self._missed_where_chosen()))

    def _missed_on_average(self) -> Iterator[str]:
        state, interval = self.of(ALL, STATE), self.of(ALL, INTERVAL)
        assert state is not None
        assert interval is not None
        if state.ratio.mean < LEAST_RATIO:
            yield f"{ALL}: state filters hold back {state.ratio.mean:.4f} instead of {LEAST_RATIO}"
        if not 0 < state.delivered.mean * LEAST_TIMES_FEWER <= interval.delivered.mean:
            yield f"{ALL}: {state.delivered.mean:.1f} events told, {interval.delivered.mean:.1f} by interval filters"
        if state.missed or state.longest_s > INTERVAL_S:
            yield f"{ALL}: state filters missed {state.missed:.3f} changes and were {state.longest_s:.0f} s late"

    def _missed_where_chosen(self) -> Iterator[str]:
        state = self.of(CHOSEN_CASE, STATE)
        if state is None:
            yield f"{CHOSEN_CASE}: no stretch is like the thesis'"
            return
        for name, wanted in CHOSEN.items():
            if getattr(state, name).mean != wanted:
                yield f"{CHOSEN_CASE}: {name} is {getattr(state, name).mean:g} instead of {wanted}"

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured; counts are of thirty hours."""
        rows = [
            {
                "temperature": one.case,
                "filter": one.filter,
                "stretches": one.stretches,
                "delta": one.delta,
                **one.summary.as_json(),
            }
            for one in self.results
        ]
        return {"series": self.origin, "lab": self.lab_origin, "rows": rows, "missed": self.missed()}


ALL, CHOSEN_CASE, NOISE, LAB = "the station's, all", "the station's, chosen", "with noise", "the lab's"


def measure(
    folder: Path, progress: Progress, *, seed: int = SEED, stretches: int | None = None, processes: int | None = None
) -> Measurement:
    """The same for the same seed. `stretches` takes fewer, spread evenly over the series, and no more of the chosen."""
    source = temperature.series(folder, seed)
    every = list(source.stretches(HALF_HOURS))
    like = [celsius for celsius in every if is_like_the_thesis(celsius)]
    taken = every if stretches is None else temperature.spread(every, stretches)
    where = setting(seed)
    cases = [
        Case(ALL, where, [Stretch((celsius,)) for celsius in taken], _ALL),
        Case(CHOSEN_CASE, where, [Stretch((celsius,)) for celsius in like[:stretches]], _AS_CHOSEN),
        Case(NOISE, where, _noisy(temperature.spread(taken, min(NOISY_STRETCHES, len(taken))), seed), _FEW),
    ]
    building = lab(folder)
    if building is not None:
        found = [Stretch(sensors) for sensors in building.stretches(HALF_HOURS)]
        cases.append(Case(LAB, setting(seed, building.median), found[:stretches], _FEW))
    results = []
    for case in cases:
        progress(f"{case.name}: {len(case.stretches):,} stretches of {source.origin if case.name != LAB else LAB}")
        results += list(_results(case, processes))
    lab_origin = None if building is None else f"{building.origin}; asked around {building.median} degrees"
    return Measurement(source.origin, source.is_invented, lab_origin, len(taken), len(every), len(like), tuple(results))


def _noisy(stretches: Sequence[Sequence[float]], seed: int) -> list[Stretch]:
    return [Stretch((celsius,), NOISE_CELSIUS, seed * 10_000 + place) for place, celsius in enumerate(stretches)]


def is_like_the_thesis(celsius: Sequence[float]) -> bool:
    """It gets warm once for all at once, and cold again, as its 22 samples of 11 motes and 20 events tell.

    Its 620 events of interval filters, 23 for each of 27, which are 33 minutes apart, tell for how long.
    """
    warm = {tuple(reading > AROUND + offset for reading in celsius) for offset in OFFSETS}
    first = warm.pop()
    changes = sum(one != other for one, other in itertools.pairwise(first))
    return not warm and not first[0] and changes == 2 and sum(first) == WARM_HALF_HOURS


# ---- playing


def _results(case: Case, processes: int | None) -> Iterator[Result]:
    if not case.stretches:
        return
    delta = best_delta(case)
    chunks = [case.stretches[first : first + CHUNK] for first in range(0, len(case.stretches), CHUNK)]
    found: dict[str, list[Outcome]] = {name: [] for name in case.filters}
    for part in _map(case, delta, chunks, processes):
        for name, outcomes in part.items():
            found[name] += outcomes
    for name, outcomes in found.items():
        summary = summarise(outcomes, sum(bool(case.where.asked(mote)) for mote in case.where.motes))
        yield Result(case.name, name, len(outcomes), summary, delta if name == DELTA else None)


def _map(
    case: Case, delta: float, chunks: Sequence[Sequence[Stretch]], processes: int | None
) -> Iterator[Mapping[str, list[Outcome]]]:
    workers = min(processes or os.cpu_count() or 1, MAX_PROCESSES, len(chunks))
    if workers < 2:
        yield from (_play_all(case.where, case.filters, delta, chunk) for chunk in chunks)
        return
    with ProcessPoolExecutor(workers) as pool:
        works = [pool.submit(_play_all, case.where, case.filters, delta, chunk) for chunk in chunks]
        yield from (work.result() for work in works)


def _play_all(
    where: Setting, filters: Sequence[str], delta: float, stretches: Sequence[Stretch]
) -> dict[str, list[Outcome]]:
    ways = methods(delta)
    return {name: [play(ways[name](where), where, stretch) for stretch in stretches] for name in filters}


def best_delta(case: Case) -> float:
    """Of ESPHome's filter: what misses fewest changes, or tells them later than a sample, and of those sends least."""
    step = max(1, len(case.stretches) // DELTA_STRETCHES)
    tried = case.stretches[::step]

    def cost(delta: float) -> tuple[int, int, float]:
        outcomes = [play(methods(delta)[DELTA](case.where), case.where, stretch) for stretch in tried]
        late = sum(delay_s > INTERVAL_S for one in outcomes for delay_s in one.delays_s)
        return late + sum(one.missed for one in outcomes), sum(one.sent for one in outcomes), -delta

    return min(DELTAS, key=cost)


# ---- the table

_HEADER = (
    "filter",
    "temperature",
    "samples sent by 35 motes",
    "by the 11 asked",
    "filter ratio",
    "shared",
    "suppressed by region",
    "left",
    "shared, left",
    "told",
    "mean delay",
    "longest",
    "changes missed",
)
_THESIS = (
    ("state filter", "the thesis' own", "", "22", "0.9966", "16", "14", "8", "6", "20", "", "3 min", ""),
    ("interval filter", "the thesis' own", "", "216", "0.9672", "192", "0", "216", "192", "620", "", "18 min", ""),
)


def table(found: Measurement) -> Table:
    """All stretches first, then the thesis' own values, then the rest."""
    rows = {case: [_row(one) for one in found.results if one.case == case] for case in (ALL, CHOSEN_CASE, NOISE, LAB)}
    ordered = [*rows[ALL], *_THESIS, *rows[CHOSEN_CASE], *rows[NOISE], *rows[LAB]]
    return Table("mote", describe(), _HEADER, tuple(ordered), tuple(textwrap.wrap(" ".join(_notes(found)), 118)), False)


def _notes(found: Measurement) -> Iterator[str]:
    yield f"*Simulated* from {found.origin}: {found.stretches:,} stretches of thirty hours,"
    yield "one from each midnight after which none is missing. The station's readings are held for half an hour and are"
    yield "the same at all motes. Table 3.1 of the state-filter thesis: 35 motes in 16 regions, a sample every"
    yield "3 minutes; 10 subscribers around 10 degrees, who ask 11 of the motes. Means, with 5 % and 95 % of the"
    yield "stretches in brackets; the ratio is of the 6,600 samples of those 11. Of the samples that passed on the"
    yield "motes, *shared* passed more than one subscriber's filter; region scopes (`EACH region`) suppress those"
    yield "that tell nobody anything. A delay is from a change of what was asked for until the subscriber could know."
    yield f"With hysteresis what is asked for ends {HYSTERESIS_CELSIUS} degrees lower than it begins."
    yield "*The thesis' own*: its one stretch, as printed there (1 - 22/6600 is 0.9967)."
    yield f"*Chosen*: the {found.like_the_thesis} of {found.every:,} stretches in which it gets warm once, at all"
    yield f"thresholds at once, and cold again, and is warm for {WARM_HALF_HOURS} half hours, as the thesis' 22 samples"
    yield "and 620 events tell of its own. There its counts must come out: they are no result, but show that the same"
    yield "is counted."
    yield f"*With noise*: each sample is off by a Gaussian error of {NOISE_CELSIUS} degrees, which is invented;"
    yield f"{min(NOISY_STRETCHES, found.stretches)} of the stretches."
    if found.lab_origin is not None:
        yield f"*The lab's*: each mote is one of {found.lab_origin}."
    tried = ", ".join(f"{delta:g}" for delta in DELTAS)
    yield f"ESPHome's delta is the best of {tried}: it misses fewest changes (or tells them late), and of those that"
    yield "do so it sends least."


def picture(found: Measurement) -> tuple[Path, str]:
    """README's, and where it is kept."""
    state = found.of(ALL, STATE)
    assert state is not None
    origin = "invented weather" if found.is_invented else "Cambridge's weather"
    return PICTURE, draw(
        Numbers(found.stretches, origin, state.sent.mean, state.delivered.mean, state.missed, filter_bytes())
    )


def _row(one: Result) -> tuple[str, ...]:
    found = one.summary
    name = one.filter if one.delta is None else f"{one.filter} {one.delta:g}"
    return (
        name,
        one.case,
        found.sent.text(),
        found.covered.text(),
        f"{found.ratio.mean:.4f} ({found.ratio.low:.4f} to {found.ratio.high:.4f})",
        *(number(getattr(found, name).mean) for name in ("shared", "suppressed", "told", "told_shared")),
        found.delivered.text(),
        f"{found.mean_delay_s / 60:.1f} min",
        f"{found.longest_s / 60:.1f} min",
        f"{found.missed:.3g}",
    )
