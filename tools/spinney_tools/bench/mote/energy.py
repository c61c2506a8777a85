"""`spinney bench energy`: what a mote's battery is used for, in each advert mode, with and without filters.

The new firmware runs on the virtual board beside a broker; what it did, and what the sniffer counted of it, is charged
by the battery's model. The baseline is the firmware of before in the same model, by what it did on the same board.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ...sim.battery import UC_PER_MAH, Consumption, Ledger
from ...sim.sniffer import ENCRYPTED, OPEN, Traffic
from ..machine import describe
from ..table import Table, number
from .scene import (
    CHANGES,
    CONNECTION_INTERVAL_S,
    HOT,
    HOURS,
    MOTES,
    SAMPLE_INTERVAL_S,
    Seen,
    Way,
    plus,
    simulate,
)

CAPACITY_MAH = 1000.0
TIMES_BASELINE, TIMES_OPEN = 3.0, 1.5
REACH_S, TOLD_S, FOUND_S = 300.0, 5.0, 120.0
FOUND_SHARE = 0.99
"""Of moments; a scanner that is busy elsewhere for a tenth of the time may miss a short look."""
WITHOUT_MODEM_SLEEP_MA = 77.0
"""Awake with the radio on where the controller's modem sleep is off (battery.py, [3])."""
_AWAKE_HOURS = 1.0

BASELINE_NAME = "d11244e: open, no filters"
BASELINE_DAY = Ledger(
    asleep_s=81_168.0,
    radio_s=4_272.7,
    starts=1_424,
    radio_starts=1_424,
    samples=1_424,
    reads=2_848,
    traffic=Traffic(
        adverts=4_272,
        advert_bytes=68_352,
        scan_responses=3_918,
        scan_response_bytes=78_360,
        kinds=Counter({OPEN: 4_272}),
        readings=Counter({OPEN: 1_424}),
    ),
)
"""The firmware of commit d11244e, deep_sleep = true, awake_ms = 3000, a sample each 60 s and what its start takes: in a
day 1,424 starts, in each the radio on from the start until 3.0 s after the sample, and 3 adverts of 16 bytes, one a
second. Nine in ten are asked for their scan response of 20 bytes, as the broker listens nine tenths of the time.

Checked against that firmware itself on the virtual board, and again by tests/mote/test_energy.py wherever git has that
commit: `git archive d11244e firmware | tar -x -C FOLDER`, then `simulate(BASELINE_WAY, FOLDER / "firmware")`."""
BASELINE_WAY = Way({"deep_sleep": True, "awake_ms": 3000})

_SLEEPY = {"deep_sleep": True}
_EVERYTHING = "temperature > -100"
_OPEN, _PRESENCE = "open, no filters", "presence, filters"
WAYS = {
    _OPEN: Way(_SLEEPY),
    "open, filters": Way({**_SLEEPY, "advert_mode": "open"}, HOT),
    "encrypted, no filters": Way({**_SLEEPY, "advert_mode": "encrypted"}, has_key=True),
    "encrypted, filters": Way({**_SLEEPY, "advert_mode": "encrypted"}, HOT, has_key=True),
    "presence, each sample fetched": Way(_SLEEPY, _EVERYTHING),
    _PRESENCE: Way(_SLEEPY, HOT, changes=CHANGES),
    "awake: open, no filters": Way({"deep_sleep": False}, hours=_AWAKE_HOURS),
    "awake: presence, filters": Way({"deep_sleep": False}, HOT, hours=_AWAKE_HOURS),
}
"""`awake` is deep_sleep = false."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Row:
    """One way, in a day of one mote."""

    name: str
    day: Ledger
    seen: Seen | None = None

    @property
    def transmitted(self) -> tuple[float, float, float, float]:
        """Samples in clear adverts, in encrypted ones, those that a broker fetched, and those that were not sent."""
        on_air = self.day.traffic.readings
        in_clear, encrypted = on_air[OPEN], on_air[ENCRYPTED]
        fetched = 0.0 if self.seen is None else self.seen.fetched / self.seen.days
        apart = 0.0 if in_clear or encrypted else fetched
        return in_clear, encrypted, fetched, max(0.0, self.day.samples - in_clear - encrypted - apart)

    def mah(self, use: Consumption) -> float:
        """A day's."""
        return sum(use.shares(self.day).values()) / UC_PER_MAH


@dataclass(frozen=True, slots=True)
class Found:
    """All of them; the first is the baseline."""

    rows: tuple[Row, ...]
    use: Consumption = field(default_factory=Consumption)

    def row(self, name: str) -> Row:
        """By its name."""
        return next(row for row in self.rows if row.name == name)

    def times(self, than: str, use: Consumption | None = None) -> float:
        """How many times longer a battery lasts in presence with filters."""
        use = use or self.use
        return self.row(than).mah(use) / self.row(_PRESENCE).mah(use)

    def sensitivity(self, than: str) -> tuple[tuple[float, str], tuple[float, str]]:
        """The least and the most of these times with one constant of the model halved or doubled, and which."""
        changed = [
            (
                self.times(than, replace(self.use, **{one.name: getattr(self.use, one.name) * factor})),
                f"{word} {one.name}",
            )
            for one in fields(self.use)
            for factor, word in ((0.5, "half"), (2.0, "twice"))
        ]
        return min(changed), max(changed)

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        return list(self._missed())

    def _missed(self) -> Iterator[str]:
        for than, wanted in ((BASELINE_NAME, TIMES_BASELINE), (_OPEN, TIMES_OPEN)):
            if self.times(than) < wanted:
                yield f"{_PRESENCE}: {self.times(than):.2f} times the life of {than}, not {wanted}"
        seen = self.row(_PRESENCE).seen
        assert seen is not None
        for what, values, share, wanted in (
            ("a change of its table", seen.changed_s, 0.95, REACH_S),
            ("an event is told", seen.told_s, 1.0, TOLD_S),
            ("a mote is found", seen.found_s(), FOUND_SHARE, FOUND_S),
        ):
            if not values or quantile(values, share) > wanted:
                yield f"{_PRESENCE}: {what} after {quantile(values, share):.1f} s instead of {wanted:g} s"

    def as_json(self) -> dict[str, Any]:
        """Everything that was found; counts are of one mote in a day."""
        rows = [
            {
                "way": row.name,
                "mah": row.mah(self.use),
                "mah_by_use": {name: charge / UC_PER_MAH for name, charge in self.use.shares(row.day).items()},
                "radio_s": row.day.radio_s,
                "samples": row.day.samples,
                "on_air": row.day.traffic.counts(),
                "transmitted": dict(zip(("clear", "encrypted", "fetched", "not"), row.transmitted, strict=True)),
            }
            for row in self.rows
        ]
        seen = self.row(_PRESENCE).seen
        assert seen is not None
        delays = {"changed_s": seen.changed_s, "told_s": seen.told_s, "found_s": seen.found_s()}
        return {
            "rows": rows,
            "times_baseline": self.times(BASELINE_NAME),
            "times_open": self.times(_OPEN),
            **{name: {"p50": quantile(some, 0.5), "p95": quantile(some, 0.95)} for name, some in delays.items()},
            "missed": self.missed(),
        }


def quantile(values: Sequence[float], share: float) -> float:
    """Infinite where there are none."""
    return sorted(values)[round(share * (len(values) - 1))] if values else float("inf")


def measure(progress: Progress) -> Found:
    """Some minutes."""
    rows = [Row(BASELINE_NAME, BASELINE_DAY)]
    for name, way in WAYS.items():
        progress(f"{name}: {MOTES} motes for {way.hours:g} hours")
        rows.append(simulated(name, way))
    return Found(tuple(rows))


def simulated(name: str, way: Way, **options: Any) -> Row:
    """Runs it; options are simulate()'s."""
    seen = simulate(way, **options)
    return Row(name, plus(Ledger(), seen.used, 1 / seen.days), seen)


_HEADER = (
    "firmware, adverts",
    "mAh a day",
    "days of 1,000 mAh",
    "times the baseline",
    "without modem sleep",
    "radio on",
    "adverts",
    "scan responses",
    "connections",
    "bytes on the air",
    "readings in clear",
    "encrypted",
    "fetched",
    "not transmitted",
)


def table(found: Found) -> Table:
    """One row for each way."""
    without = replace(found.use, radio_ma=WITHOUT_MODEM_SLEEP_MA)
    first = found.rows[0]
    rows = []
    for row in found.rows:
        mah, on_air = row.mah(found.use), row.day.traffic
        sent = on_air.advert_bytes + on_air.scan_response_bytes + on_air.sent_bytes + on_air.received_bytes
        rows.append(
            (
                row.name,
                number(mah),
                number(CAPACITY_MAH / mah),
                f"{first.mah(found.use) / mah:.2f}",
                f"{first.mah(without) / row.mah(without):.2f}",
                f"{row.day.radio_s / 864:.1f}%",
                *(number(count) for count in (on_air.adverts, on_air.scan_responses, on_air.connections, sent)),
                *(number(count) for count in row.transmitted),
            )
        )
    return Table("energy", describe(), _HEADER, tuple(rows), tuple(textwrap.wrap(" ".join(_notes(found)), 118)), False)


def _notes(found: Found) -> Iterator[str]:
    yield "*Modelled*: an ESP32-C3's battery by the constants of `tools/spinney_tools/sim/battery.py`, each with its"
    yield f"source or marked as chosen, from what was *simulated*: {MOTES} motes with the firmware itself on the"
    yield f"virtual board for {HOURS:g} hours, beside a broker that listens actively, a sample each"
    yield f"{SAMPLE_INTERVAL_S} s and what a start takes, one event an hour, connections at"
    yield f"{CONNECTION_INTERVAL_S * 1000:g} ms. No board was measured. Counts are a mote's in a day, by a scanner"
    yield "that hears all; bytes are those of adverts, scan responses and connections. *d11244e* is the firmware of"
    yield "before with `deep_sleep = true` and `awake_ms = 3000`: what it did there, in the same model. The other rows"
    yield "have the defaults and `deep_sleep = true`; but *awake* is `deep_sleep = false`: there the radio's current"
    yield "is nearly all, and filters save next to nothing. *Without modem sleep* the radio takes"
    yield f"{WITHOUT_MODEM_SLEEP_MA:g} mA instead of {found.use.radio_ma:g}; the column is times the baseline then."
    yield from _results(found)


def _results(found: Found) -> Iterator[str]:
    seen = found.row(_PRESENCE).seen
    assert seen is not None
    ranges = [_range(*found.sensitivity(than)) for than in (BASELINE_NAME, _OPEN)]
    yield f"In presence with filters a battery lasts {found.times(BASELINE_NAME):.2f} times the baseline's (target"
    yield f"{TIMES_BASELINE:g}) and {found.times(_OPEN):.2f} times that of the same firmware open and without filters"
    yield f"(target {TIMES_OPEN:g}). With one constant of the model halved or doubled these are {' and '.join(ranges)}."
    yield f"There a change of a quiet mote's table took {_times(seen.changed_s)} (target: 95 of 100 within"
    yield f"{REACH_S:g} s), from an event's sample until the broker had it {_times(seen.told_s)}"
    yield f"(target {TOLD_S:g} s), and from any moment until a mote was heard {_times(seen.found_s())}"
    yield f"(target: 99 of 100 within {FOUND_S:g} s): p50, p95, p99 and the longest."


def _range(least: tuple[float, str], most: tuple[float, str]) -> str:
    return f"{least[0]:.2f} ({least[1]}) to {most[0]:.2f} ({most[1]})"


def _times(values: Sequence[float]) -> str:
    return ", ".join(number(quantile(values, share)) for share in (0.5, 0.95, 0.99, 1.0)) + " s"
