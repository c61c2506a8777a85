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

Counted are, as ratios to everything up by MQTT in JSON in the same run: messages of the uplink, both ways, without
acknowledgements; their bytes with MQTT's headers; both with PUBACKs and the cloud's answers, too; messages and bytes
over BLE between phone and mote. Only the first is the paper's. `footprint_traffic` says what a message is,
`footprint_others` how the others are counted, `footprint_spinney` what of Spinney is the real thing, and what is
simpler, `footprint_found` what the targets are, `footprint_delay` how long it takes until a reading is stored: that is
measured, all else is a model.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

from spinney import parse_filter
from spinney.compiled import compile_filter

from . import footprint_delay
from .footprint_chart import Line, Panel, chart
from .footprint_delay import JSON, PACKED, Delay
from .footprint_found import (
    COAP,
    COAP_PACKED,
    CUPUS,
    CUPUS_PACKED,
    MQTT,
    MQTT_PACKED,
    SPINNEY,
    SPINNEY_JSON,
    STATES,
    WAYS,
    Found,
    Ratio,
    Run,
)
from .footprint_others import Others
from .footprint_setting import HOURS, INTERVAL_S, Asked, Asking, Walk, walk
from .footprint_spinney import Filters, Spent, play, source_of
from .footprint_traffic import Footprint
from .machine import describe
from .matching import WrongAnswer
from .table import Table

RUNS: Final = 100
COVERAGES: Final = (0.3, 0.45, 0.6, 0.75, 0.85, 0.9)
CHART: Final = Path("mobile_broker") / "footprint.svg"
"""In the clone."""


def measure(progress: Callable[[str], None], runs: int = RUNS, coverages: Sequence[float] = COVERAGES) -> Found:
    """The same for the same number of runs, but for the delays. WrongAnswer if a covered reading does not go up."""
    progress(f"walking through Zagreb {runs} times, {HOURS:g} h each")
    found = walked(runs, coverages)
    progress("readings of two mobile brokers until they are stored: packed, and in JSON")
    return Found(found.runs, footprint_delay.measure())


def walked(runs: int, coverages: Sequence[float]) -> Found:
    """Without the delays."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(os.cpu_count() or 1, runs), mp_context=spawn) as pool:
        done = pool.map(one_run, range(runs), [tuple(coverages)] * runs)
        return Found([run for found in done for run in found])


class _Walked:
    """One walk, and what does not depend on what is asked for."""

    def __init__(self, seed: int) -> None:
        self.walk = walk(seed)
        self.asking, self.filters = Asking(self.walk), Filters()
        self.others, self.packed = Others(self.walk), Others(self.walk, packs=True)
        self.base, self.base_packed = self.others.mqtt(), self.packed.mqtt()

    def run(self, coverage: float) -> Run:
        """With questions that cover so much."""
        asked, count = self.asking.covering(coverage), len(self.walk.samples)
        spent, states, in_json = self._play(asked)
        cupus, coap = self.others.cupus_and_coap(asked, self.filters)
        cupus_packed, coap_packed = self.packed.cupus_and_coap(asked, self.filters)
        covered = asked.covered.bit_count()
        ways: dict[str, tuple[Footprint, int]] = {
            MQTT: (self.base, count),
            COAP: (coap, covered),
            CUPUS: (cupus, covered),
            SPINNEY: (spent.footprint, spent.readings),
            STATES: (states.footprint, states.readings),
            MQTT_PACKED: (self.base_packed, count),
            COAP_PACKED: (coap_packed, covered),
            CUPUS_PACKED: (cupus_packed, covered),
            SPINNEY_JSON: (in_json.footprint, in_json.readings),
        }
        hours = self.walk.volunteers * HOURS
        return Run(
            coverage,
            covered / count,
            {way: Ratio.of(footprint, self.base) for way, (footprint, _) in ways.items()},
            {way: (footprint.uplink.messages - readings) / hours for way, (footprint, readings) in ways.items()},
            spent.unneeded / count,
            self.base.ble.messages / count,
        )

    def _play(self, asked: Asked) -> tuple[Spent, Spent, Spent]:
        """Spinney packed, by state filters, and in JSON."""
        matches = [one.matches for one in asked.questions]
        spent = play(self.walk, matches, self.filters)
        in_json = play(self.walk, matches, self.filters, packs=False)
        states = play(self.walk, [one.begins_and_ends for one in asked.questions], self.filters)
        _check(self.walk, _covered(self.walk, asked), spent)
        _check(self.walk, _flips(self.walk, asked), states)
        return spent, states, in_json


def one_run(seed: int, coverages: Sequence[float]) -> list[Run]:
    """One walk, with each coverage."""
    made = _Walked(seed)
    return [made.run(coverage) for coverage in coverages]


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


_BOTH: Final = (
    ("messages", "messages", (COAP, CUPUS, SPINNEY, STATES)),
    ("messages, acknowledged", "messages_with_answers", (CUPUS, SPINNEY, STATES, SPINNEY_JSON)),
    ("bytes", "bytes", (COAP, CUPUS, SPINNEY, STATES, MQTT_PACKED, COAP_PACKED, CUPUS_PACKED, SPINNEY_JSON)),
    (
        "bytes, acknowledged",
        "bytes_with_answers",
        (CUPUS, SPINNEY, STATES, MQTT_PACKED, CUPUS_PACKED, SPINNEY_JSON),
    ),
    ("BLE messages", "ble_messages", (SPINNEY, STATES)),
    ("BLE bytes", "ble_bytes", (SPINNEY, STATES)),
)
"""What is counted, as it is called and as it is kept, and whose."""


def table(found: Found) -> Table:
    """One column for each coverage."""
    header = ("ratio to MQTT in JSON, at a coverage of", *(f"{coverage:.0%}" for coverage in found.coverages))
    rows = [
        (f"{name}: {way}", *(f"{getattr(found.mean(way, one), kept):.2f}" for one in found.coverages))
        for name, kept, ways in _BOTH
        for way in ways
    ]
    for name, kept in (("messages", "messages"), ("acknowledged bytes", "bytes_with_answers")):
        each = (f"{found.above_cupus(coverage, kept)}" for coverage in found.coverages)
        rows.append((f"runs in which Spinney takes more {name} than CUPUS", *each))
    return Table("footprint", describe(), header, tuple(rows), _notes(found), measured=False)


def _notes(found: Found) -> tuple[str, ...]:
    crossing = "; ".join(
        f"each {seconds} s, at {found.crosses(CUPUS, seconds):.0%} and {found.crosses(SPINNEY, seconds):.0%}"
        for seconds in (INTERVAL_S, 30, 60)
    )
    runs, control = len(found.of(MQTT, found.coverages[0])), [f"{found.control(way):.0f}" for way in WAYS[1:]]
    return (
        f"*Modelled*, after Figure 9 of the CUPUS paper: {runs} *simulated* volunteers, each for {HOURS:g} h on foot",
        f"or by bicycle, with a phone and a mote that takes a sample each {INTERVAL_S} s. Spinney's own code decides",
        "and writes each payload; the network takes no time and loses nothing. Only the delays are *measured*.",
        "Ratios to everything up by MQTT at QoS 1 in JSON: messages of the uplink, both ways, without",
        "acknowledgements, as the paper counts, and their bytes; *acknowledged*: with PUBACKs and the cloud's",
        "answers, too. A lone reading of Spinney's goes at QoS 0, and the cloud's `stored` acknowledges it; the others",
        "have only the MQTT server's PUBACK, CoAP's notifications nothing. *Packed*: the others with our codec. Nobody",
        "has batches here: none waits as long as the next reading takes. *Spinney, JSON*: a cloud of before, QoS 1.",
        *_delays(found),
        "GATT messages between phone and mote, where the others send every sample: each has a visit there, of",
        f"{found.ble_of_a_sample:.0f} messages; of a mote that stays connected it would be one notification.",
        "States: the same questions as state filters, whose subscribers are told when it begins and when it ends.",
        f"What controls acquisition takes {control[0]} messages an hour with CoAP, {control[1]} with CUPUS,",
        f"{control[2]} with Spinney, which announces another cell only well beyond the border of the last one, where",
        "CUPUS does at each border. CUPUS' and Spinney's lines cross MQTT's, if a sample is taken",
        f"{crossing}.",
    )


def _delays(found: Found) -> tuple[str, ...]:
    if found.delays is None:
        return ()
    seldom, often = found.delays.seldom, found.delays.often
    return (
        "From the mobile broker's having a sample to the cloud's `stored`, p50 and p99, *measured* on this machine:",
        f"{_delay(seldom[PACKED])} packed, {_delay(seldom[JSON])} in JSON, where each reading is alone;",
        f"{_delay(often[PACKED])} and {_delay(often[JSON])} at {1 / footprint_delay.OFTEN_S:.0f} readings/s.",
    )


def _delay(delay: Delay) -> str:
    return f"{delay.p50:.1f} and {delay.p99:.0f} ms"


_ACKNOWLEDGED: Final = (MQTT, CUPUS, SPINNEY, STATES)
"""CoAP's notifications are not: nobody confirms them."""
_PANELS: Final = (
    ("Messages, as the paper counts", "messages", WAYS),
    ("Messages with acknowledgements and answers", "messages_with_answers", _ACKNOWLEDGED),
    ("Bytes, without acknowledgements", "bytes", (*WAYS, MQTT_PACKED, CUPUS_PACKED)),
    ("Bytes with acknowledgements and answers", "bytes_with_answers", (*_ACKNOWLEDGED, MQTT_PACKED, CUPUS_PACKED)),
)


def picture(found: Found) -> tuple[Path, str]:
    """The chart, and where it is kept for README.md."""
    panels = [Panel(title, [_line(found, way, kept) for way in ways]) for title, kept, ways in _PANELS]
    runs = len(found.of(MQTT, found.coverages[0]))
    title = "Modelled: the uplink of simulated walkers, everything up by MQTT in JSON = 1"
    note = f"Share of the readings that somebody wants. Means of {runs} runs; behind them all of the runs."
    return CHART, chart(title, note, found.coverages, panels)


def _line(found: Found, way: str, kept: str) -> Line:
    each = [[getattr(one, kept) for one in found.of(way, coverage)] for coverage in found.coverages]
    return Line(way, [statistics.fmean(one) for one in each], [min(one) for one in each], [max(one) for one in each])
