"""What the messaging footprint's runs found, as ratios, and which targets that misses."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from .footprint_delay import Delays
from .footprint_traffic import Footprint

MQTT, COAP, CUPUS, SPINNEY, STATES = WAYS = ("MQTT", "CoAP", "CUPUS", "Spinney", "Spinney, states")
MQTT_PACKED, COAP_PACKED, CUPUS_PACKED = PACKED = ("MQTT, packed", "CoAP, packed", "CUPUS, packed")
"""The others with our codec."""
SPINNEY_JSON: Final = "Spinney, JSON"
"""Spinney with a cloud that names no formats, such as one of before."""
ALL_WAYS: Final = (*WAYS, *PACKED, SPINNEY_JSON)
BELOW_MQTT_UP_TO: Final = 0.85
"""Spinney's messages are fewer than MQTT's up to this coverage, as the paper counts."""
BELOW_ALL_UP_TO: Final = 0.75
"""With acknowledgements and answers Spinney takes fewer messages and bytes than CUPUS and MQTT up to this coverage."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """To everything up by MQTT, in JSON, in one run."""

    messages: float
    bytes: float
    messages_with_answers: float
    bytes_with_answers: float
    ble_messages: float
    ble_bytes: float

    @classmethod
    def of(cls, footprint: Footprint, base: Footprint) -> Ratio:
        """Of one way to the base."""
        acknowledged, of_base = footprint.acknowledged, base.acknowledged
        return cls(
            footprint.uplink.messages / base.uplink.messages,
            footprint.uplink.bytes / base.uplink.bytes,
            acknowledged.messages / of_base.messages,
            acknowledged.bytes / of_base.bytes,
            footprint.ble.messages / base.ble.messages,
            footprint.ble.bytes / base.ble.bytes,
        )


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
    """All runs, and what was measured of delays."""

    runs: Sequence[Run]
    delays: Delays | None = None

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

    def above_cupus(self, coverage: float, what: str = "messages") -> int:
        """In how many runs Spinney took more than CUPUS."""
        pairs = zip(self.of(SPINNEY, coverage), self.of(CUPUS, coverage), strict=True)
        return sum(getattr(ours, what) > getattr(theirs, what) for ours, theirs in pairs)

    def missed(self) -> list[str]:
        """The targets that are not reached, in words."""
        return [text for coverage in self.coverages for text in self._missed(coverage)]

    def _missed(self, coverage: float) -> Iterator[str]:
        ours, cupus, where = self.mean(SPINNEY, coverage), self.mean(CUPUS, coverage), f"coverage {coverage:.0%}"
        if above := self.above_cupus(coverage):
            yield f"{where}: in {above} runs more messages than CUPUS"
        if coverage <= BELOW_MQTT_UP_TO and ours.messages >= 1.0:
            yield f"{where}: {ours.messages:.2f} of MQTT's messages"
        if coverage > BELOW_ALL_UP_TO:
            return
        for what in ("messages", "bytes"):
            ratio, theirs = (getattr(one, f"{what}_with_answers") for one in (ours, cupus))
            if ratio >= min(theirs, 1.0):
                yield f"{where}: {ratio:.2f} of MQTT's {what} with answers, CUPUS takes {theirs:.2f}"

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        rows = [
            {
                "coverage": coverage,
                "covered": statistics.fmean(run.covered for run in self.runs if run.coverage == coverage),
                "unneeded": statistics.fmean(run.unneeded for run in self.runs if run.coverage == coverage),
                "above_cupus": self.above_cupus(coverage),
                "above_cupus_in_bytes_with_answers": self.above_cupus(coverage, "bytes_with_answers"),
                **{way: self._figures(way, coverage) for way in self.runs[0].ratios},
            }
            for coverage in self.coverages
        ]
        return {
            "rows": rows,
            "ble_of_a_sample": self.ble_of_a_sample,
            "control": {way: self.control(way) for way in self.runs[0].control},
            "delays": None if self.delays is None else asdict(self.delays),
            "missed": self.missed(),
        }

    def _figures(self, way: str, coverage: float) -> dict[str, float]:
        messages = [one.messages for one in self.of(way, coverage)]
        return {**asdict(self.mean(way, coverage)), "messages_least": min(messages), "messages_most": max(messages)}
