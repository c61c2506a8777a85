"""`spinney bench mobile-matching`: is a reading wanted, against the number of subscriptions; CUPUS stopped at 400.

Content filters: a plain list, the list with an index that the broker uses, the forest, and all hits in the C core.
State filters: by the index that looks only at those that a reading may flip, and all fed one by one.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from spinney import (
    ContentSubscription,
    FilterList,
    Forest,
    Matcher,
    OwnerFilter,
    PublicationId,
    StateSubscription,
    feed,
    parse,
)
from spinney.errors import MatcherError
from spinney.expression import Filter
from spinney_mobile.active import ActiveFilter
from spinney_mobile.announcing import SETTLE_SECONDS, Announcer
from spinney_mobile.cells import H3
from spinney_mobile.deciding import Decider
from spinney_mobile.leases import Lease, Leases
from spinney_mobile.numbering import Numbering
from spinney_mobile.outbox import OutRecord
from spinney_mobile.rules import Rules
from spinney_mobile.samples import Sample
from spinney_mobile.taking import Taking

from .forest import PlainList, similar_filters, similar_readings
from .machine import describe
from .table import Table, number

SIZES: Final = (100, 400, 1_000, 4_000, 10_000)
READINGS: Final = 1_000
ROUNDS: Final = 5
SLOW_SECONDS: Final = 1.0
"""What is slow is measured for so long, and no longer."""
SOURCES: Final = 50
TAKING_SUBSCRIPTIONS: Final = 300
"""Half of them state filters, for what a whole sample costs..."""
TAKING_US: Final = 75.0
"""...at most, so that 2,000 a second with what hearing takes of them leave three quarters of a core."""
FACTOR: Final = 10.0
"""The indexed list's time at 10,000 subscriptions is at most so many times that at 400, which are a 25th."""

Decide = Callable[[Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Found:
    """All of it."""

    sizes: list[Measurement]
    taking_us: float
    """For a sample from its acquirer to the outbox, which keeps nothing here."""

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {"sizes": [one.as_json() for one in self.sizes], "taking_us": self.taking_us, "missed": self.missed()}

    def missed(self) -> list[str]:
        """The targets that are not reached, in words."""
        at = {one.size: one for one in self.sizes}
        out = [f"{one.size:,}: the forest is twice as fast" for one in self.sizes if one.indexed_us > 2 * one.forest_us]
        if {400, 10_000} <= at.keys() and at[10_000].indexed_us > FACTOR * at[400].indexed_us:
            out.append(f"10,000: over {FACTOR:g} times the time of 400")
        if self.taking_us > TAKING_US:
            out.append(f"a sample takes {self.taking_us:.0f} us instead of {TAKING_US:.0f}")
        return out


@dataclass(frozen=True, slots=True)
class Measurement:
    """Microseconds for a reading, with so many subscriptions."""

    size: int
    list_us: float
    indexed_us: float
    forest_us: float
    core_us: float | None
    """None where there is no C core."""
    states_us: float
    all_states_us: float

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {name: getattr(self, name) for name in self.__slots__}


def measure(progress: Callable[[str], None], sizes: Sequence[int] = SIZES) -> Found:
    """All sizes, each structure in turns with the others; then whole samples."""
    found = []
    for size in sizes:
        progress(f"measuring {size:,} subscriptions")
        found.append(_measure(size))
    progress(f"measuring whole samples with {TAKING_SUBSCRIPTIONS} subscriptions")
    taking = _taking()
    return Found(found, min(_us_each(taking, _samples()) for _ in range(ROUNDS)))


class _Nowhere:
    """An outbox that keeps nothing."""

    def append(self, records: Sequence[OutRecord], state: Mapping[str, bytes | None] | None = None) -> None:
        """Gone."""


def _taking() -> Decide:
    filters = similar_filters(TAKING_SUBSCRIPTIONS)
    half = TAKING_SUBSCRIPTIONS // 2
    wanted = [ActiveFilter(f"c{n}", "content", ContentSubscription(filter=f), f) for n, f in enumerate(filters[:half])]
    wanted += [_state(f"s{n}", condition) for n, condition in enumerate(filters[half:])]
    leases = Leases("pi")
    leases.tell([{"source": f"m{n}", "owner": "pi", "epoch": 1} for n in range(SOURCES)])
    announcer, decider = Announcer(), Decider("pi")
    rules = Rules(grid=H3, resolution=9)
    taking = Taking(_Nowhere(), leases, decider, announcer=announcer, numbering=Numbering(), rules=rules)
    taking.change(wanted, [], leases.known, 0.0)
    samples = _samples()
    for sample in islice(samples, SOURCES):
        taking.take(Sample(**sample), sample["time"])
    announcer.announce()
    announcer.departed(0.0)
    announcer.due(SETTLE_SECONDS)
    return lambda sample: taking.take(Sample(**sample), sample["time"])


def _samples() -> Iterator[dict[str, Any]]:
    """As `_readings`, with eight attributes each."""
    for n, reading in enumerate(_readings()):
        values = {name: float(value) for name, value in reading.items() if name not in ("source", "street")}
        more = {"pressure": 1000.0 + n % 100, "rain": 0.5, "wind": 3.0, "lux": float(n), "door": False}
        moment = time.time() + n
        yield {
            "source": reading["source"],
            "values": {**values, "street": reading["street"], **more},
            "time": moment,
            "heard": moment,
            "acquirer": "bench",
        }


def _measure(size: int) -> Measurement:
    filters = similar_filters(size)
    structures = (PlainList(), FilterList(), Forest())
    for n, condition in enumerate(filters):
        for each in structures:
            each.add(f"s{n}", condition)
    states = [_state(f"s{n}", condition) for n, condition in enumerate(filters)]
    ways: list[Decide | None] = [each.first_match for each in structures]
    ways += [_core(filters), _indexed(states), _fed(states)]
    streams = [_readings() for _ in ways]
    best = [float("inf")] * len(ways)
    for _ in range(ROUNDS):
        for place, (way, stream) in enumerate(zip(ways, streams, strict=True)):
            if way is not None:
                best[place] = min(best[place], _us_each(way, stream))
    plain_us, indexed_us, forest_us, core_us, states_us, all_states_us = best
    core = None if ways[3] is None else core_us
    return Measurement(size, plain_us, indexed_us, forest_us, core, states_us, all_states_us)


def _readings() -> Iterator[dict[str, Any]]:
    """Sources in turn, each with one attribute that wanders by a hundredth of its range."""
    rng = random.Random(9)  # noqa: S311 - not for secrets
    sources = [{**one, "source": f"m{n}"} for n, one in enumerate(similar_readings(SOURCES))]
    while True:
        for source in sources:
            name = next(iter(source))
            source[name] += rng.uniform(-2.0, 2.0)
            yield dict(source)


def _core(filters: Sequence[Filter]) -> Decide | None:
    try:
        matcher = Matcher(native=True)
    except MatcherError:
        return None
    for n, condition in enumerate(filters):
        matcher.add(f"s{n}", condition)
    return matcher.match


def _state(digest: str, condition: Filter) -> ActiveFilter:
    """Begins with the filter, and ends when its attribute is well below."""
    name, _, rest = condition.to_text().partition(" > ")
    limit = float(rest.partition(" ")[0])
    subscription = parse(f"WHEN {condition.to_text()} UNTIL {name} <= {limit - 10:.1f}")
    return ActiveFilter(digest, "state", subscription, feed(subscription))


class _Count:
    """Readings numbered as they come."""

    def __init__(self) -> None:
        self.number = 0

    def next(self, source: str) -> PublicationId:
        self.number += 1
        return PublicationId(source, 1, self.number)


def _indexed(states: Sequence[ActiveFilter]) -> Decide:
    decider, count = Decider("pi"), _Count()
    decider.change(states, [], {f"m{n}": Lease(f"m{n}", "pi", 1) for n in range(SOURCES)})
    return lambda reading: decider.decide(count.next(reading["source"]), reading, 1, {})


def _fed(states: Sequence[ActiveFilter]) -> Decide:
    running = [OwnerFilter(one.subscription) for one in states if isinstance(one.subscription, StateSubscription)]
    count = _Count()

    def decide(reading: Mapping[str, Any]) -> object:
        id = count.next(reading["source"])
        return [one.feed(id, reading, 1) for one in running]

    return decide


def _us_each(way: Decide, stream: Iterator[dict[str, Any]]) -> float:
    """Processor time of so many readings, or of those for which there is time."""
    readings = list(islice(stream, READINGS))
    start, done = time.process_time(), 0
    for done, reading in enumerate(readings, 1):
        way(reading)
        if done % SOURCES == 0 and time.process_time() - start > SLOW_SECONDS:
            break
    return (time.process_time() - start) / done * 1e6


def table(found: Found) -> Table:
    """One row for each size."""
    header = (
        *("subscriptions", "list us", "indexed list us", "forest us"),
        *("C matcher us", "state index us", "all states fed us"),
    )
    rows = tuple(
        (
            f"{one.size:,}",
            number(one.list_us),
            number(one.indexed_us),
            number(one.forest_us),
            "-" if one.core_us is None else number(one.core_us),
            number(one.states_us),
            number(one.all_states_us),
        )
        for one in found.sizes
    )
    notes = (
        "On invented subscriptions. Is a reading wanted? The first hit in Python, in a list that asks one",
        "filter after the other, in the list with an index (the broker's), and in the forest; all hits in the C core;",
        "and what state filters say of 50 sources that change slowly, by the index of what may flip, and all fed.",
        f"A whole sample, up to the outbox: {number(found.taking_us)} us with {TAKING_SUBSCRIPTIONS} subscriptions.",
    )
    return Table("mobile-matching", describe(), header, rows, notes)
