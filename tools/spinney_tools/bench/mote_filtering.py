"""`spinney bench mote`: what leaves motes, and what subscribers learn when, as in Table 3.1 of the state-filter thesis.

Filters are compiled for the motes and run by the firmware's own machine and table; subscribers are told by the core's.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from spinney import Label, Mark, StateFilter, parse
from spinney.mote.protocol import Event
from spinney.subscription import StateSubscription

from ..sim.battery import Consumption
from . import temperature
from .machine import describe
from .mote_setting import INTERVAL_S, SAMPLES, SENSORS, THRESHOLDS, Board, Mote, Setting, Subscriber, setting
from .table import Table, number

STRETCHES = 52
"""Of thirty hours, spread evenly over the series."""
VALID_S = 1800
"""Of an interval filter's event, as in the thesis."""
DELTA_CELSIUS = 0.5
WARM_HALF_HOURS = 25
"""Of the thesis's thirty hours."""
SEED = 1

LEAST_RATIO = 0.9966
LEAST_TIMES_FEWER = 30
"""Than of interval filters."""

VISIT_S = 1.8
"""A broker connects, reads `info`, asks for the events and acknowledges them: on the virtual radio, at 30 ms."""
VISIT_BYTES = 620
EVENT_BYTES = 38
"""Both as the mote sends them."""
LEAST_AWAKE_S = 0.2
_UC_PER_MAH = 3_600_000.0

Progress = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What one way of filtering did in one stretch, or in several."""

    sent: int = 0
    """Samples that left motes, of all thirty-five..."""
    covered: int = 0
    """...and of the eleven that are asked."""
    events: int = 0
    """In which they left: one for each filter that a sample passes."""
    delivered: int = 0
    delays_s: list[float] = field(default_factory=list)
    """From each beginning and end of what was asked for until the subscriber could know of it."""
    missed: int = 0
    """Of those, over before the subscriber could know."""

    def add(self, other: Outcome) -> None:
        """Counts another stretch in."""
        self.sent += other.sent
        self.covered += other.covered
        self.events += other.events
        self.delivered += other.delivered
        self.delays_s += other.delays_s
        self.missed += other.missed

    @property
    def millicoulombs(self) -> float:
        """What sending took: each sample that leaves is a visit of a broker."""
        use = Consumption()
        visits_uc = self.sent * (VISIT_S * use.awake_ma * 1000 + VISIT_BYTES * use.byte_uc)
        return (visits_uc + self.events * EVENT_BYTES * use.byte_uc) / 1000


class Belief:
    """What a subscriber knows: whether it is warmer at any of the motes that are asked for it."""

    def __init__(self) -> None:
        self.changes: list[tuple[float, bool]] = []
        self._warm: set[str] = set()

    def learn(self, source: str, time_s: float, warm: bool) -> None:
        """Of one mote, or of one region."""
        (self._warm.add if warm else self._warm.discard)(source)
        if not self.changes or self.changes[-1][1] is not bool(self._warm):
            self.changes.append((time_s, bool(self._warm)))


class Method(Protocol):
    """One way of filtering, during one stretch. `motes` are those that ever send, by phase."""

    motes: tuple[Mote, ...]

    def __init__(self, where: Setting) -> None: ...

    def observe(self, mote: Mote, time_s: int, celsius: float) -> tuple[int, int]:
        """A mote takes a sample; in how many events it is sent, and to how many subscribers."""
        ...

    def known(self, subscriber: Subscriber) -> Belief: ...


class _Reports:
    """The mote sends what differs from what it sent last: ESPHome's `delta`; of 0, everything. Nobody has to ask."""

    least = 0.0

    def __init__(self, where: Setting) -> None:
        self.motes = where.motes
        self._where = where
        self._last: dict[str, float] = {}
        self._known = {number: Belief() for number in range(len(THRESHOLDS))}

    def observe(self, mote: Mote, time_s: int, celsius: float) -> tuple[int, int]:
        last = self._last.get(mote.name)
        if last is not None and abs(celsius - last) < self.least:
            return 0, 0
        self._last[mote.name] = celsius
        asked = self._where.asked(mote)
        for subscriber in asked:
            self._known[subscriber.number].learn(mote.name, time_s, subscriber.holds(celsius))
        return 1, len(asked)

    def known(self, subscriber: Subscriber) -> Belief:
        return self._known[subscriber.number]


class _Delta(_Reports):
    least = DELTA_CELSIUS


class _Matches:
    """A content filter on the mote, and what matched is valid for a time, in which nothing is sent.

    That it is over is known when the next event would have come.
    """

    valid_s = 0

    def __init__(self, where: Setting) -> None:
        self._where = where
        texts = {
            one.number: f"temperature > {one.threshold} AND region = '{one.region}'" for one in _subscribers(where)
        }
        self.motes, self._boards = _boards(where, texts)
        self._last: dict[tuple[str, int], int] = {}
        self._known = {number: Belief() for number in texts}

    def observe(self, mote: Mote, time_s: int, celsius: float) -> tuple[int, int]:
        goes = bool(self._boards[mote.name].observe(time_s, celsius))
        sent = sum(
            self._examine(mote, subscriber.number, time_s, goes and subscriber.holds(celsius))
            for subscriber in self._where.asked(mote)
        )
        return min(sent, 1), sent

    def _examine(self, mote: Mote, number: int, time_s: int, matches: bool) -> bool:
        last = self._last.get((mote.name, number))
        if last is not None and time_s - last <= self.valid_s:
            return False
        if matches:
            self._last[mote.name, number] = time_s
        self._known[number].learn(mote.name, time_s, matches)
        return matches

    def known(self, subscriber: Subscriber) -> Belief:
        return self._known[subscriber.number]


class _Interval(_Matches):
    valid_s = VALID_S


class _State:
    """A state filter on the mote; the core tells the subscriber when the first mote is warm, and when the last was."""

    def __init__(self, where: Setting) -> None:
        texts = {
            one.number: f"WHEN temperature > {one.threshold} UNTIL temperature <= {one.threshold}"
            f" FOR region = '{one.region}' EACH region"
            for one in _subscribers(where)
        }
        self.motes, self._boards = _boards(where, texts)
        self._filters = {number: StateFilter(_state(text), disjoint=True) for number, text in texts.items()}
        self._known = {number: Belief() for number in texts}

    def observe(self, mote: Mote, time_s: int, celsius: float) -> tuple[int, int]:
        events = self._boards[mote.name].observe(time_s, celsius)
        publication = {"temperature": celsius, "region": mote.region, "time": float(time_s)}
        return len(events), sum(self._tell(mote, event, publication) for event in events)

    def _tell(self, mote: Mote, event: Event, publication: dict[str, Any]) -> int:
        order = (event.owner_epoch, event.boot, event.sequence)
        mark = Mark(mote.name, order, event.bit, mote.region if event.bit else None)
        told = self._filters[event.filter_id].take(Label(mark), publication, publication["time"])
        for notification in told:
            self._known[event.filter_id].learn(mote.region, publication["time"], notification.why == "enter")
        return len(told)

    def known(self, subscriber: Subscriber) -> Belief:
        return self._known[subscriber.number]


METHODS: dict[str, type[Method]] = {
    "everything": _Reports,
    "content filter": _Matches,
    "interval filter": _Interval,
    "ESPHome-style delta": _Delta,
    "state filter": _State,
}


def _boards(where: Setting, texts: Mapping[int, str]) -> tuple[tuple[Mote, ...], dict[str, Board]]:
    """The motes that are asked, and what runs on them."""
    boards = {mote.name: Board(mote, texts) for mote in where.motes}
    motes = tuple(mote for mote in where.motes if boards[mote.name].is_asked)
    return motes, boards


def _subscribers(where: Setting) -> Iterator[Subscriber]:
    for asked in where.subscribers.values():
        yield from asked


def _state(text: str) -> StateSubscription:
    found = parse(text)
    assert isinstance(found, StateSubscription)
    return found


# ---- running


def play(method: Method, where: Setting, celsius: Sequence[float]) -> Outcome:
    """One stretch. The sample before it, which tells every bit (rule S2), is not counted."""
    outcome = Outcome()
    for step in range(SAMPLES + 1):
        for mote in method.motes:
            time_s = step * INTERVAL_S + mote.phase_s
            events, delivered = method.observe(mote, time_s, celsius[_reading(time_s)])
            if step:
                outcome.sent += events > 0
                outcome.covered += events > 0 and bool(where.asked(mote))
                outcome.events += events
                outcome.delivered += delivered
    for subscriber in _subscribers(where):
        _capture(subscriber, celsius, method.known(subscriber), outcome)
    return outcome


def _reading(time_s: float) -> int:
    """The newest of the station at this time: the first one is from before the stretch."""
    return int((time_s - INTERVAL_S) // temperature.STEP_S) + 1


def _capture(subscriber: Subscriber, celsius: Sequence[float], known: Belief, outcome: Outcome) -> None:
    """When the subscriber could know of each change. The last one may be cut off by the end of the stretch."""
    warm = [subscriber.holds(reading) for reading in celsius]
    steps = [place for place in range(1, len(warm)) if warm[place] != warm[place - 1]]
    for step, following in itertools.pairwise([*steps, len(warm)]):
        since_s, until_s = (INTERVAL_S + (place - 1) * temperature.STEP_S for place in (step, following))
        learnt_s = _when(known, warm[step], since_s)
        if learnt_s is not None and learnt_s < until_s:
            outcome.delays_s.append(learnt_s - since_s)
        elif following < len(warm):
            outcome.missed += 1


def _when(known: Belief, warm: bool, since_s: float) -> float | None:
    """When, from a time on, the subscriber knew this; None if never."""
    before = None
    for time_s, knew in known.changes:
        if time_s > since_s and before is warm:
            return since_s
        if time_s >= since_s and knew is warm:
            return time_s
        before = knew
    return since_s if before is warm else None


# ---- results


@dataclass(frozen=True, slots=True)
class Measurement:
    """What each way of filtering did in thirty hours: on average over the series, and in such as the thesis's."""

    origin: str
    stretches: int
    covered: int
    """Samples of the motes that are asked, in thirty hours."""
    average: dict[str, Outcome]
    like_the_thesis: dict[str, Outcome]

    def periods(self) -> Iterator[tuple[str, dict[str, Outcome], int]]:
        """Their names, outcomes, and how many times thirty hours they are."""
        yield f"average of {self.stretches}", self.average, self.stretches
        if self.like_the_thesis:
            yield "as in Table 3.1", self.like_the_thesis, 1

    def ratio(self, outcome: Outcome, times: int) -> float:
        """The share of samples that the filters on the asked motes hold back."""
        return 1 - outcome.covered / (self.covered * times)

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        return [f"{name}: {text}" for name, outcomes, times in self.periods() for text in self._missed(outcomes, times)]

    def _missed(self, outcomes: dict[str, Outcome], times: int) -> Iterator[str]:
        state, interval = outcomes["state filter"], outcomes["interval filter"]
        ratio = self.ratio(state, times)
        if ratio < LEAST_RATIO:
            yield f"state filters hold back {ratio:.4f} instead of {LEAST_RATIO}"
        if state.delivered * LEAST_TIMES_FEWER > interval.delivered or not state.delivered:
            yield f"{state.delivered} events delivered, {interval.delivered} by interval filters"
        late = max(state.delays_s, default=0.0)
        if state.missed or late > INTERVAL_S:
            yield f"state filters missed {state.missed} changes and were {late:.0f} s late"

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured; counts are of thirty hours."""
        rows = [
            {"period": name, "filter": label, **self._figures(outcome, times)}
            for name, outcomes, times in self.periods()
            for label, outcome in outcomes.items()
        ]
        return {"series": self.origin, "rows": rows, "missed": self.missed()}

    def _figures(self, outcome: Outcome, times: int) -> dict[str, float]:
        return {
            "sent": outcome.sent / times,
            "ratio": self.ratio(outcome, times),
            "events": outcome.events / times,
            "delivered": outcome.delivered / times,
            "mean_delay_s": statistics.fmean(outcome.delays_s) if outcome.delays_s else 0.0,
            "longest_delay_s": max(outcome.delays_s, default=0.0),
            "missed": outcome.missed / times,
            "mah": outcome.millicoulombs * 1000 / _UC_PER_MAH / times,
        }


def measure(folder: Path, progress: Progress, *, seed: int = SEED, stretches: int = STRETCHES) -> Measurement:
    """Cambridge's temperatures, if their file is in the folder, else such as theirs; the same for the same seed."""
    where = setting(seed)
    source = temperature.series(folder, seed)
    progress(f"filtering {source.origin}")
    every = list(source.stretches(SAMPLES * INTERVAL_S // temperature.STEP_S))
    chosen = temperature.spread(every, stretches)
    average = {name: Outcome() for name in METHODS}
    for celsius in chosen:
        for name, method in METHODS.items():
            average[name].add(play(method(where), where, celsius))
    like = [celsius for celsius in every if _is_like_the_thesis(celsius)]
    thesis = {name: play(method(where), where, celsius) for celsius in like[:1] for name, method in METHODS.items()}
    covered = SAMPLES * sum(bool(where.asked(mote)) for mote in where.motes)
    return Measurement(source.origin, len(chosen), covered, average, thesis)


def _is_like_the_thesis(celsius: Sequence[float]) -> bool:
    """It gets warm once for all at once, and cold again, as its 22 samples of 11 motes and 20 events tell.

    Its 620 events of interval filters, 23 for each of 27, which are 33 minutes apart, tell for how long.
    """
    warm = {tuple(reading > threshold for reading in celsius) for threshold in THRESHOLDS}
    first = warm.pop()
    changes = sum(one != other for one, other in itertools.pairwise(first))
    return not warm and not first[0] and changes == 2 and sum(first) == WARM_HALF_HOURS


_HEADER = (
    "filter",
    "thirty hours",
    "samples sent",
    "filter ratio",
    "events delivered",
    "mean delay",
    "longest",
    "changes missed",
    "mAh",
)


def table(found: Measurement) -> Table:
    """One row for each way of filtering and period."""
    use = Consumption()
    asleep_s = SAMPLES * INTERVAL_S
    idle_uc = SAMPLES * (use.wake_uc + LEAST_AWAKE_S * use.awake_ma * 1000) + asleep_s * use.deep_sleep_ma * 1000
    notes = (
        f"{found.origin}.",
        "Table 3.1 of the state-filter thesis: 35 motes in 16 regions, a sample every 3 minutes for 30 hours; 10",
        "subscribers around 10 degrees, who ask 11 of them. The ratio is of those 11; samples sent are of all 35.",
        "A delay is from a change of what was asked for until the subscriber could know. mAh are for sending, for all",
        f"motes: a sample that leaves is a visit of a broker, {VISIT_S} s awake and {VISIT_BYTES} bytes, and",
        f"{EVENT_BYTES} for each event (virtual radio), at {use.awake_ma:g} mA and {use.byte_uc} uC for a byte (an",
        f"ESP32-C3's, rounded). {sum(SENSORS) * idle_uc / _UC_PER_MAH:.0f} mAh for waking and sampling come on top.",
    )
    rows = [
        _row(label, name, found._figures(outcome, times))
        for name, outcomes, times in found.periods()
        for label, outcome in outcomes.items()
    ]
    return Table("mote", describe(), _HEADER, tuple(rows), notes)


def _row(label: str, period: str, figures: dict[str, float]) -> tuple[str, ...]:
    return (
        label,
        period,
        number(figures["sent"]),
        f"{figures['ratio']:.4f}",
        number(figures["delivered"]),
        f"{figures['mean_delay_s'] / 60:.1f} min",
        f"{figures['longest_delay_s'] / 60:.1f} min",
        number(figures["missed"]),
        number(figures["mah"]),
    )
