"""From events to samples: what several filters say of one sample is joined under its number first (rule P2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spinney import Mark
from spinney.expression import Value
from spinney.mote.protocol import AttributeRow, Event, EventFlag

from ..active import LOCAL
from ..battery import battery_of
from ..samples import Digest, Sample
from .identity import Identity
from .programs import EVERYTHING, Wanted
from .table import Entry

MAX_JOINED: Final = 256
"""Events of one sample; a mote has fewer filters."""


class Joiner:
    """Takes events in their order and gives back whole samples."""

    def __init__(self) -> None:
        self._waiting: list[Event] = []

    def add(self, event: Event) -> list[Event] | None:
        """All events of a sample, once its last one is here."""
        if self._waiting and (event.boot, event.sequence) != (self._waiting[0].boot, self._waiting[0].sequence):
            self._waiting = []  # what was to come of it was lost, which the numbers tell
        self._waiting.append(event)
        if EventFlag.LAST not in event.flags and len(self._waiting) < MAX_JOINED:
            return None
        whole, self._waiting = self._waiting, []
        return whole


@dataclass(frozen=True, slots=True)
class Joined:
    """What the events of one sample say."""

    boot: int
    sequence: int
    values: Mapping[str, Value]
    time: float
    marks: Mapping[Digest, Mark]
    passed: bool
    """A filter that the cloud wants let it through, exact or weaker."""
    strays: int
    """Labels of filters that are not wanted any more, or not known."""
    undecided: frozenset[Digest] = frozenset()
    """The filters whose bit the mote leaves to the broker to decide."""

    def sample(self, identity: Identity, acquirer: str, heard: float, rssi: int | None) -> Sample:
        """As the broker takes it, with what settings add."""
        return Sample(
            identity.source,
            {**self.values, **identity.attributes},
            self.time,
            heard,
            acquirer,
            self.boot,
            self.sequence,
            marks=self.marks,
            passed=self.passed,
            undecided=self.undecided,
            rssi=rssi,
            battery=battery_of(self.values),
            place=identity.place,
            type=identity.type,
        )


def join(
    events: Sequence[Event],
    entries: Mapping[int, Entry],
    wanted: Wanted,
    source: str,
    rows: Sequence[AttributeRow],
    names: Sequence[str],
    now: float,
) -> Joined | None:
    """One sample from all its events; None if they are mere signs of life."""
    first = events[0]
    if all(EventFlag.PRESENCE in event.flags for event in events):
        return None
    marks: dict[Digest, Mark] = {}
    undecided: set[Digest] = set()
    passed, strays = False, 0
    for event in events:
        entry = entries.get(event.filter_id)
        if entry is None or entry.epoch & 0xFFFFFFFF != event.owner_epoch or entry.digest not in wanted.filters:
            strays += EventFlag.LABEL in event.flags
        elif EventFlag.LABEL in event.flags:
            value = entry.value if event.bit else None
            marks[entry.digest] = Mark(source, (0, event.boot, event.sequence), event.bit, value)
        else:
            is_for_cloud = entry.digest != EVERYTHING and not entry.digest.startswith(LOCAL)
            passed = passed or (is_for_cloud and EventFlag.PRESENCE not in event.flags)
            if event.is_undecided:
                undecided.add(entry.digest)
    values = {names[index]: raw * rows[index].p / rows[index].q for index, raw in first.values.items()}
    left_open = frozenset(undecided - marks.keys())
    return Joined(first.boot, first.sequence, values, _time(first, now), marks, passed, strays, left_open)


def _time(event: Event, now: float) -> float:
    """By the broker's clock; no sample is from the future."""
    if event.time is None:
        return now
    return now - event.time if EventFlag.AGE in event.flags else min(float(event.time), now)
