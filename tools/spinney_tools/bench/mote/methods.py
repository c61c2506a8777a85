"""Ways of filtering. Filters are compiled for the motes and run by the firmware's own machine and table; subscribers of
state filters are told by the core's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from spinney import Label, Mark, StateFilter, parse
from spinney.mote.protocol import Event
from spinney.subscription import StateSubscription

from ..mote_setting import Board, Mote, Setting, Subscriber, program
from .playing import Belief, Method, Outcome

VALID_S = 1800
"""Of an interval filter's event, as in the thesis."""
HYSTERESIS_CELSIUS = 0.5
"""Of the state filters that have one."""


class Delta:
    """The mote sends what differs enough from what it sent last: ESPHome's `delta`; of 0, everything. Nobody asks."""

    hysteresis = 0.0

    def __init__(self, where: Setting, least: float = 0.0) -> None:
        self.motes = where.motes
        self._least = least
        self._where = where
        self._last: dict[str, float] = {}
        self._known = {one.number: Belief() for one in where.every()}

    def observe(self, mote: Mote, times: Sequence[int], celsius: float, outcome: Outcome) -> None:
        last = self._last.get(mote.name)
        if last is not None and round(abs(celsius - last), 6) < self._least:  # 10.4 - 10.0 is 0.4
            return
        self._last[mote.name] = celsius
        asked = self._where.asked(mote)
        count = 1 if self._least else len(times)
        outcome.count(bool(asked), count, len(asked), len(asked), count)
        for subscriber in asked:
            self._known[subscriber.number].learn(mote.name, times[0], subscriber.holds(celsius))

    def known(self, subscriber: Subscriber) -> Belief:
        return self._known[subscriber.number]


class Matches:
    """A content filter on the mote, and what matched is valid for a time, in which nothing is sent.

    That it is over is known when the next event would have come.
    """

    hysteresis = 0.0

    def __init__(self, where: Setting, valid_s: int = 0) -> None:
        self._where = where
        self._valid_s = valid_s
        texts = {one.number: f"temperature > {one.threshold} AND region = '{one.region}'" for one in where.every()}
        self.motes, self._boards = _boards(where, texts)
        self._last: dict[tuple[str, int], int] = {}
        self._known = {one.number: Belief() for one in where.every()}

    def observe(self, mote: Mote, times: Sequence[int], celsius: float, outcome: Outcome) -> None:
        goes = bool(self._boards[mote.name].observe(times[0], celsius))
        asked = self._where.asked(mote)
        if not self._valid_s:
            self._all_alike(mote, times, [goes and one.holds(celsius) for one in asked], outcome)
            return
        for time_s in times:
            sent = sum(self._examine(mote, one.number, time_s, goes and one.holds(celsius)) for one in asked)
            outcome.count(True, min(sent, 1), sent, sent, 1)

    def _all_alike(self, mote: Mote, times: Sequence[int], matches: Sequence[bool], outcome: Outcome) -> None:
        for subscriber, match in zip(self._where.asked(mote), matches, strict=True):
            self._known[subscriber.number].learn(mote.name, times[0], match)
        outcome.count(True, len(times) if any(matches) else 0, sum(matches), sum(matches), len(times))

    def _examine(self, mote: Mote, number: int, time_s: int, matches: bool) -> bool:
        last = self._last.get((mote.name, number))
        if last is not None and time_s - last <= self._valid_s:
            return False
        if matches:
            self._last[mote.name, number] = time_s
        self._known[number].learn(mote.name, time_s, matches)
        return matches

    def known(self, subscriber: Subscriber) -> Belief:
        return self._known[subscriber.number]


class State:
    """A state filter on the mote; the core tells the subscriber when the region's first mote is warm, and its last was.

    Of samples that read the same only the first can change a bit.
    """

    def __init__(self, where: Setting, hysteresis: float = 0.0) -> None:
        self.hysteresis = hysteresis
        texts = {one.number: _text(one.region, one.threshold, hysteresis) for one in where.every()}
        self.motes, self._boards = _boards(where, texts)
        self._filters = {number: StateFilter(_state(text), disjoint=True) for number, text in texts.items()}
        self._known = {number: Belief() for number in texts}

    def observe(self, mote: Mote, times: Sequence[int], celsius: float, outcome: Outcome) -> None:
        events = self._boards[mote.name].observe(times[0], celsius)
        publication = {"temperature": celsius, "region": mote.region, "time": float(times[0])}
        told = sum(self._tell(mote, event, publication) for event in events)
        outcome.count(True, bool(events), len(events), told)

    def _tell(self, mote: Mote, event: Event, publication: dict[str, Any]) -> int:
        order = (event.owner_epoch, event.boot, event.sequence)
        mark = Mark(mote.name, order, event.bit, mote.region if event.bit else None)
        told = self._filters[event.filter_id].take(Label(mark), publication, publication["time"])
        for notification in told:
            self._known[event.filter_id].learn(mote.region, publication["time"], notification.why == "enter")
        return len(told)

    def known(self, subscriber: Subscriber) -> Belief:
        return self._known[subscriber.number]


EVERYTHING, CONTENT, INTERVAL, DELTA = "everything", "content filter", "interval filter", "ESPHome-style delta"
STATE, STATE_WITH_HYSTERESIS = "state filter", "state filter, hysteresis"

Factory = Callable[[Setting], Method]


def methods(delta: float) -> dict[str, Factory]:
    """All of them, by name; `delta` is the setting of ESPHome's filter."""
    return {
        EVERYTHING: Delta,
        CONTENT: Matches,
        INTERVAL: lambda where: Matches(where, VALID_S),
        DELTA: lambda where: Delta(where, delta),
        STATE: State,
        STATE_WITH_HYSTERESIS: lambda where: State(where, HYSTERESIS_CELSIUS),
    }


def _boards(where: Setting, texts: Mapping[int, str]) -> tuple[tuple[Mote, ...], dict[str, Board]]:
    """The motes that are asked, and what runs on them."""
    boards = {mote.name: Board(mote, texts) for mote in where.motes}
    motes = tuple(mote for mote in where.motes if boards[mote.name].is_asked)
    return motes, boards


def _text(region: str, threshold: float, hysteresis: float) -> str:
    ends = round(threshold - hysteresis, 2)
    return f"WHEN temperature > {threshold} UNTIL temperature <= {ends} FOR region = '{region}' EACH region"


def filter_bytes() -> int:
    """How many bytes a state filter has on a mote."""
    found = program(0, _text("r0", 10.0, 0.0), "r0")
    assert found is not None
    return len(found)


def _state(text: str) -> StateSubscription:
    found = parse(text)
    assert isinstance(found, StateSubscription)
    return found
