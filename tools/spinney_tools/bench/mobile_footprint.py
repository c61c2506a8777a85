"""`spinney bench footprint`: the messaging footprint of crowd sensing, as in Figure 9 of the CUPUS paper.

The source is the paper on CUPUS for mobile crowd sensing (Antonić et al.), section 5.3. Its experiment: the readings of
SenseZGAir (volunteers with wearable sensors in Zagreb, July 2014: 16,835 samples with their places, of up to five
quantities, in six days); subscriptions drawn at random until 30 % to 90 % of the readings are covered, that is, cause a
notification; all readings are published; messages of data sources and those that control acquisition are counted,
acknowledgements are not; 1,000 iterations.

Here volunteers walk the simulator's ways in its air, in 100 seeded runs. A reading is a whole sample, in one message
whoever sends it. That is kinder to the others than the paper, where it seems to be one quantity: its lines cross at
60 %, as they must if five readings share one change of context. A subscription is a measurement with a random operator,
as in the paper's section 6.1, half of them near a place, as in its section 2.1. Beside what the paper compares, the
same questions are asked by state filters, whose subscribers are told when what they ask for begins and when it ends.

Counted are, as ratios to everything up by MQTT in the same run: messages of the uplink, both ways, without
acknowledgements; their bytes with MQTT's headers; both with PUBACKs and the cloud's answers, too; messages and bytes
over BLE between phone and mote. Only the first is the paper's, and has targets. `footprint_traffic` says what a message
is, `footprint_others` how the others are counted, `footprint_spinney` what of Spinney is the real thing, and what is
simpler.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from spinney import parse_filter
from spinney.compiled import compile_filter

from .footprint_chart import Line, chart
from .footprint_others import Others
from .footprint_setting import HOURS, INTERVAL_S, Asked, Asking, Walk, walk
from .footprint_spinney import Filters, Spent, play, source_of
from .footprint_traffic import Footprint
from .machine import describe
from .matching import WrongAnswer
from .table import Table

RUNS: Final = 100
COVERAGES: Final = (0.3, 0.45, 0.6, 0.75, 0.85, 0.9)
BELOW_MQTT_UP_TO: Final = 0.85
"""Spinney's messages are fewer than MQTT's up to this coverage."""
CHART: Final = Path("mobile_broker") / "footprint.svg"
"""In the clone."""
MQTT, COAP, CUPUS, SPINNEY, STATES = WAYS = ("MQTT", "CoAP", "CUPUS", "Spinney", "Spinney, states")


@dataclass(frozen=True, slots=True)
class Ratio:
    """To everything up by MQTT, in one run."""

    messages: float
    bytes: float
    messages_with_answers: float
    bytes_with_answers: float
    ble_messages: float
    ble_bytes: float


@dataclass(frozen=True, slots=True)
class Run:
    """One run with one coverage."""

    coverage: float
    """What was wanted."""
    covered: float
    """What there was."""
    ratios: Mapping[str, Ratio]
    control: Mapping[str, float]
    """By way, messages that are no readings, of a volunteer in an hour."""
    unneeded: float
    """Spinney's readings that nobody wanted, of all samples: those outside of what was announced."""
    ble_of_a_sample: float
    """GATT messages that a sample takes where each leaves its mote."""


@dataclass(frozen=True, slots=True)
class Found:
    """All runs."""

    runs: Sequence[Run]

    @property
    def coverages(self) -> list[float]:
        """Those that were measured."""
        return sorted({run.coverage for run in self.runs})

    def of(self, way: str, coverage: float) -> list[Ratio]:
        """Of each run."""
        return [run.ratios[way] for run in self.runs if run.coverage == coverage]

    def mean(self, way: str, coverage: float) -> Ratio:
        """Of all runs."""
        each = self.of(way, coverage)
        return Ratio(*(statistics.fmean(getattr(one, name) for one in each) for name in Ratio.__slots__))

    def control(self, way: str) -> float:
        """Messages that are no readings, of a volunteer in an hour."""
        return statistics.fmean(run.control[way] for run in self.runs)

    @property
    def ble_of_a_sample(self) -> float:
        """GATT messages, where each sample leaves its mote."""
        return statistics.fmean(run.ble_of_a_sample for run in self.runs)

    def crosses(self, way: str, interval_s: float) -> float:
        """The coverage from which on a way sends more than MQTT, were a sample taken so often."""
        return max(0.0, 1.0 - self.control(way) * interval_s / 3600.0)

    def above_cupus(self, coverage: float) -> int:
        """In how many runs Spinney sent more messages than CUPUS."""
        pairs = zip(self.of(SPINNEY, coverage), self.of(CUPUS, coverage), strict=True)
        return sum(ours.messages > theirs.messages for ours, theirs in pairs)

    def missed(self) -> list[str]:
        """The targets that are not reached, in words."""
        return list(self._missed())

    def _missed(self) -> Iterator[str]:
        for coverage in self.coverages:
            ours, where = self.mean(SPINNEY, coverage), f"coverage {coverage:.0%}"
            if above := self.above_cupus(coverage):
                yield f"{where}: in {above} runs more messages than CUPUS"
            if coverage <= BELOW_MQTT_UP_TO and ours.messages >= 1.0:
                yield f"{where}: {ours.messages:.2f} of MQTT's messages"

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        rows = [
            {
                "coverage": coverage,
                "covered": statistics.fmean(run.covered for run in self.runs if run.coverage == coverage),
                "unneeded": statistics.fmean(run.unneeded for run in self.runs if run.coverage == coverage),
                "above_cupus": self.above_cupus(coverage),
                **{way: self._figures(way, coverage) for way in WAYS},
            }
            for coverage in self.coverages
        ]
        ble = self.ble_of_a_sample
        return {
            "rows": rows,
            "ble_of_a_sample": ble,
            "control": {way: self.control(way) for way in WAYS},
            "missed": self.missed(),
        }

    def _figures(self, way: str, coverage: float) -> dict[str, float]:
        messages = [one.messages for one in self.of(way, coverage)]
        return {**asdict(self.mean(way, coverage)), "messages_least": min(messages), "messages_most": max(messages)}


def measure(progress: Callable[[str], None], runs: int = RUNS, coverages: Sequence[float] = COVERAGES) -> Found:
    """The same for the same number of runs. WrongAnswer if a covered reading does not go up."""
    progress(f"walking through Zagreb {runs} times, {HOURS:g} h each")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, runs), mp_context=spawn) as pool:
        done = pool.map(one_run, range(runs), [tuple(coverages)] * runs)
        return Found([run for found in done for run in found])


def one_run(seed: int, coverages: Sequence[float]) -> list[Run]:
    """One walk, with each coverage."""
    walked = walk(seed)
    asking, filters, others = Asking(walked), Filters(), Others(walked)
    base = others.mqtt()
    return [_run(walked, coverage, asking.covering(coverage), filters, others, base) for coverage in coverages]


def _run(walked: Walk, coverage: float, asked: Asked, filters: Filters, others: Others, base: Footprint) -> Run:
    spent = play(walked, [one.matches for one in asked.questions], filters)
    states = play(walked, [one.begins_and_ends for one in asked.questions], filters)
    _check(walked, _covered(walked, asked), spent)
    _check(walked, _flips(walked, asked), states)
    cupus, coap = others.cupus_and_coap(asked, filters)
    covered, count = asked.covered.bit_count(), len(walked.samples)
    ways = {
        MQTT: (base, count),
        COAP: (coap, covered),
        CUPUS: (cupus, covered),
        SPINNEY: (spent.footprint, spent.readings),
        STATES: (states.footprint, states.readings),
    }
    hours = walked.volunteers * HOURS
    return Run(
        coverage,
        covered / count,
        {way: _ratio(footprint, base) for way, (footprint, _) in ways.items()},
        {way: (footprint.uplink.messages - readings) / hours for way, (footprint, readings) in ways.items()},
        spent.unneeded / count,
        base.ble.messages / count,
    )


def _check(walked: Walk, wanted: Iterator[tuple[int, float]], spent: Spent) -> None:
    """What anybody is to be told goes up (promise 1)."""
    for volunteer, time_s in wanted:
        if (source_of(volunteer), time_s) not in spent.sent:
            raise WrongAnswer(f"run {walked.seed}: what volunteer {volunteer} measured at {time_s} is missing")


def _covered(walked: Walk, asked: Asked) -> Iterator[tuple[int, float]]:
    """Whose samples meet any question, and when."""
    for place, (volunteer, sample) in enumerate(walked.sampled()):
        if asked.covered >> place & 1:
            yield volunteer, sample["time"]


def _flips(walked: Walk, asked: Asked) -> Iterator[tuple[int, float]]:
    """Whose samples begin or end anything that is asked for (rule S1), and when."""
    for question in asked.questions:
        begins, ends, only = (
            compile_filter(parse_filter(text or "TRUE"), clean=True)
            for text in (question.condition, question.opposite, question.around)
        )
        bits: dict[int, bool] = {}
        for volunteer, sample in walked.sampled():
            if only(sample) and (ends if bits.get(volunteer) else begins)(sample):
                bits[volunteer] = not bits.get(volunteer)
                yield volunteer, sample["time"]


def _ratio(footprint: Footprint, base: Footprint) -> Ratio:
    return Ratio(
        footprint.uplink.messages / base.uplink.messages,
        footprint.uplink.bytes / base.uplink.bytes,
        (footprint.uplink.messages + footprint.answers.messages) / (base.uplink.messages + base.answers.messages),
        (footprint.uplink.bytes + footprint.answers.bytes) / (base.uplink.bytes + base.answers.bytes),
        footprint.ble.messages / base.ble.messages,
        footprint.ble.bytes / base.ble.bytes,
    )


def table(found: Found) -> Table:
    """One row for each coverage."""
    header = (
        "coverage",
        *(f"messages: {way}" for way in WAYS[1:]),
        "runs above CUPUS",
        *(f"bytes: {way}" for way in WAYS[1:]),
        "acknowledged: CUPUS",
        *WAYS[3:],
        *(f"BLE: {way}" for way in WAYS[3:]),
        *(f"its bytes: {way}" for way in WAYS[3:]),
    )
    rows = tuple(_row(found, coverage) for coverage in found.coverages)
    crossing = "; ".join(
        f"each {seconds} s, at {found.crosses(CUPUS, seconds):.0%} and {found.crosses(SPINNEY, seconds):.0%}"
        for seconds in (INTERVAL_S, 30, 60)
    )
    runs, control = len(found.of(MQTT, found.coverages[0])), [f"{found.control(way):.0f}" for way in WAYS[1:]]
    notes = (
        f"Figure 9 of the CUPUS paper: {runs} volunteers, each for {HOURS:g} h on foot or by bicycle, with a phone",
        f"and a mote that takes a sample each {INTERVAL_S} s. All are ratios to everything up by MQTT: messages of the",
        "uplink without acknowledgements, as the paper counts, and their bytes; bytes with PUBACKs and the cloud's",
        f"answers, which only Spinney has ({_with_answers(found)});",
        "GATT messages between phone and mote, where the others send every sample. Each sample has a visit there, of",
        f"{found.ble_of_a_sample:.0f} messages; of a mote that stays connected it would be one notification.",
        "States: the same questions as state filters, whose subscribers are told when it begins and when it ends.",
        f"What controls acquisition takes {control[0]} messages an hour with CoAP, {control[1]} with CUPUS,",
        f"{control[2]} with Spinney, which announces another cell only well beyond the border of the last one, where",
        "CUPUS does at each border. CUPUS' and Spinney's lines cross MQTT's, if a sample is taken",
        f"{crossing}.",
    )
    return Table("footprint", describe(), header, rows, notes)


def _with_answers(found: Found) -> str:
    each = (f"{found.mean(SPINNEY, one).messages_with_answers:.2f} at {one:.0%}" for one in found.coverages)
    return f"counted in messages, Spinney's are then {', '.join(each)}"


def _row(found: Found, coverage: float) -> tuple[str, ...]:
    each = {way: found.mean(way, coverage) for way in WAYS[1:]}
    return (
        f"{coverage:.0%}",
        *(f"{one.messages:.2f}" for one in each.values()),
        f"{found.above_cupus(coverage)}",
        *(f"{one.bytes:.2f}" for one in each.values()),
        f"{each[CUPUS].bytes_with_answers:.2f}",
        *(f"{each[way].bytes_with_answers:.2f}" for way in WAYS[3:]),
        *(f"{each[way].ble_messages:.2f}" for way in WAYS[3:]),
        *(f"{each[way].ble_bytes:.2f}" for way in WAYS[3:]),
    )


def picture(found: Found) -> tuple[Path, str]:
    """The chart, and where it is kept for README.md."""
    lines = []
    for way in WAYS:
        each = [[one.messages for one in found.of(way, coverage)] for coverage in found.coverages]
        lines.append(
            Line(way, [statistics.fmean(one) for one in each], [min(one) for one in each], [max(one) for one in each])
        )
    runs = len(found.of(MQTT, found.coverages[0]))
    title = "Messages of the uplink, everything up by MQTT = 1"
    note = f"Share of the readings that somebody wants. Means of {runs} runs; behind them all of the runs."
    return CHART, chart(title, note, found.coverages, lines)
