"""What the cloud asks for of the readings that are kept here since nobody wanted them (rule L1), and the answers. Pure.

    {"fetch": {"id": "5f0c", "filter": "NO2 > 40", "since": 3600, "until": 0, "slack": 5, "readings": 1000,
     "bytes": 1048576}}

comes on `reply`: what was taken so many seconds ago, or up to `slack` seconds earlier: the question has been under way,
and whoever asks leaves out what was taken before. The answer goes up on `ann`, in parts; it is no announcement:

    {"session": "...", "fetched": {"id": "5f0c", "part": 0, "more": true, "readings": [[12.5, 3, {"id": ...}]]}}
    {"session": "...", "fetched": {"id": "5f0c", "part": 1, "more": false, "readings": [], "whole": {"m7": 3600.5}}}

A reading comes with the seconds since it was taken and the epoch of its lease (0 without one). `whole` names sources of
which all that was stopped here since so many seconds ago, was taken within what was asked for and matches, is in the
answer; without `cut`, which says that not all that matches found room. `error` says why there is none.

Only a cloud whose answer to an announcement names the member `fetch` is told that this broker can be asked.
"""

from __future__ import annotations

import json
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from spinney import SyntaxError as FilterError
from spinney import parse_filter
from spinney.compiled import compile_filter

from .valid import Kept

MEMBER: Final = "fetch"
REPORT_SECONDS: Final = 30.0
"""From the cloud's first answer on a link: until then a report has gone, if it wants any."""
MAX_PARTS: Final = 64
"""Of answers on their way; a question that finds so many is not answered."""
MAX_READINGS: Final = 10_000
MAX_BYTES: Final = 4 * 1024**2
"""Of one answer, however much is asked for."""
MAX_TEXT: Final = 64 * 1024
"""Characters of a filter."""
MAX_ID: Final = 64
PART_BYTES: Final = 128 * 1024
"""Of one message, about; less where the cloud takes less."""
ROOM_BYTES: Final = 1_024
"""Of a message, for all but its readings."""


class QuestionError(ValueError):
    """A question that cannot be one, and why."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for."""

    id: str
    test: Callable[[Mapping[str, Any]], bool]
    since: float
    """Taken at most so many seconds ago..."""
    until: float
    """...and at least so many."""
    slack: float
    """What was taken by so many seconds earlier is told, too."""
    readings: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """What this broker has of it, at a moment of its clock."""

    now: float
    kept: Iterable[Kept]
    tell: Callable[[Kept], bool]
    """Whether private rules let a reading go up now; they count that it does."""
    whole: Callable[[], Mapping[str, float]]
    """Since when all that was stopped of a source is kept; to be asked once `kept` is read."""
    stored: Callable[[float], float | None]
    """By when what was taken at a moment had come, had it gone up."""


class Fetches:
    """Of one uplink: `along` or `offer` says that it can be `asked`; then `next` until it is None."""

    def __init__(self, max_payload: Callable[[], int]) -> None:
        self.look: Callable[[Question], Stopped] | None = None
        """Told what is asked for."""
        self.counts: Counter[str] = Counter()
        """Questions, those refused, and readings that were told."""
        self._max_payload = max_payload
        self._is_known = False
        """Whether the cloud asks such questions."""
        self._is_told = False
        """Whether it knows that it may."""
        self.due: float | None = None
        """When it is told so by a message of its own, if no report has gone before."""
        self._parts: deque[bytes] = deque()
        """Answers, but for the session's name."""

    def opened(self) -> None:
        """A new link: what was asked on the one before is asked no more; it may be another cloud."""
        self._is_known = self._is_told = False
        self.due = None
        self._parts.clear()

    def answered(self, reply: Mapping[str, Any], now: float) -> None:
        """The cloud has answered an announcement."""
        members = reply.get("members")
        self._is_known = reply.get("ok") is True and isinstance(members, list) and MEMBER in members
        if self._is_known and not self._is_told and self.due is None:
            self.due = now + REPORT_SECONDS

    def along(self, report: bytes) -> bytes:
        """A report, which also says that this broker can be asked: once on a link, and without one more message."""
        if self._is_told or not self._is_known:
            return report
        self._is_told, self.due = True, None
        return report[:-1] + b',"%b":true}' % MEMBER.encode()

    def offer(self, session: str, now: float) -> bytes | None:
        """The same, where no report has gone for long."""
        if self._is_told or not self._is_known or self.due is None or now < self.due:
            return None
        self._is_told, self.due = True, None
        return _json({"session": session, MEMBER: True})

    def asked(self, item: Any) -> None:
        """A question of the cloud's. What makes no sense is answered so, if it has an id."""
        self.counts["fetches"] += 1
        if self.look is None or not _is_id(item) or len(self._parts) >= MAX_PARTS:
            self.counts["fetches_refused"] += 1
            return
        try:
            question = read_question(item)
            answer = Answer(question, min(PART_BYTES, self._max_payload()) - ROOM_BYTES)
            answer.fill(self.look(question))
        except QuestionError as error:
            self.counts["fetches_refused"] += 1
            self._parts.append(_json({"id": item["id"], "part": 0, "more": False, "readings": [], "error": str(error)}))
        else:
            self.counts["fetched"] += answer.count
            self._parts += answer.parts()

    def next(self, session: str) -> bytes | None:
        """The next part of an answer, if there is one."""
        if not self._parts:
            return None
        return b'{"session":%b,"fetched":%b}' % (_json(session), self._parts.popleft())


class Answer:
    """To one question, as far as its bounds allow."""

    def __init__(self, question: Question, part_bytes: int) -> None:
        self.count = 0
        self._question = question
        self._part_bytes = part_bytes
        self._bytes = 0
        self._parts: list[list[bytes]] = [[]]
        self._size = 0
        """Of the last part."""
        self._is_cut = False
        self._whole: dict[str, float] = {}

    def fill(self, stopped: Stopped) -> None:
        """Take what there is."""
        question, before = self._question, dict[str, float]()
        for kept in stopped.kept:
            age = max(0.0, stopped.now - kept.taken)
            if age > question.since:  # it may have come later, within what is asked for
                source, stored = kept.publication["source"], stopped.stored(kept.taken)
                before[source] = max(before.get(source, -math.inf), math.inf if stored is None else stored)
            if not question.until <= age <= question.since + question.slack:
                continue
            reading = _json([round(age, 3), kept.epoch, kept.publication])
            if not self._has_room(reading):
                self._is_cut = True
                break
            if stopped.tell(kept):
                self._put(reading)
        for source, since in ({} if self._is_cut else stopped.whole()).items():
            seconds = stopped.now - max(since, before.get(source, since))
            if seconds > 0:
                self._whole[source] = math.floor(seconds * 1000) / 1000

    def _has_room(self, reading: bytes) -> bool:
        question = self._question
        has_room = self.count < question.readings and self._bytes + len(reading) <= question.bytes
        return has_room and len(reading) <= self._part_bytes

    def _put(self, reading: bytes) -> None:
        if self._size + len(reading) > self._part_bytes:
            self._parts.append([])
            self._size = 0
        self._parts[-1].append(reading)
        self._size += len(reading) + 1
        self._bytes += len(reading)
        self.count += 1

    def parts(self) -> list[bytes]:
        """Its messages, but for the session."""
        wholes = list(_in_parts(self._whole, self._part_bytes))
        bodies = [(b",".join(part), dict[str, float]()) for part in self._parts]
        if self._size + len(_json(wholes[0])) <= self._part_bytes:
            bodies[-1] = (bodies[-1][0], wholes.pop(0))
        bodies += [(b"", whole) for whole in wholes]
        last = len(bodies) - 1
        found = []
        for at, (readings, whole) in enumerate(bodies):
            item: dict[str, Any] = {"id": self._question.id, "part": at, "more": at < last}
            item |= {"whole": whole} if whole else {}
            item |= {"cut": True} if self._is_cut and at == last else {}
            found.append(_json(item)[:-1] + b',"readings":[' + readings + b"]}")
        return found


def _in_parts(whole: Mapping[str, float], part_bytes: int) -> Iterable[dict[str, float]]:
    """One at least."""
    part: dict[str, float] = {}
    size = 0
    for source, seconds in whole.items():
        length = len(_json(source)) + 16
        if part and size + length > part_bytes:
            yield part
            part, size = {}, 0
        part[source] = seconds
        size += length
    yield part


def _is_id(item: Any) -> bool:
    id = item.get("id") if isinstance(item, dict) else None
    return isinstance(id, str) and 1 <= len(id) <= MAX_ID


def read_question(item: Mapping[str, Any]) -> Question:
    """From the objects that JSON gives; QuestionError. Members that are not known are a newer cloud's."""
    text = item.get("filter")
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        raise QuestionError(f"filter: expected a text of at most {MAX_TEXT} characters")
    try:
        test = compile_filter(parse_filter(text), clean=True)
    except (FilterError, RecursionError) as error:
        raise QuestionError(f"filter: {error}"[:500]) from None
    since, until, slack = (_number(item, name, math.inf) for name in ("since", "until", "slack"))
    readings, size = _number(item, "readings", MAX_READINGS), _number(item, "bytes", MAX_BYTES)
    return Question(item["id"], test, since, until, slack, int(readings), int(size))


def _number(item: Mapping[str, Any], name: str, most: float) -> float:
    """Of more than the most, the most."""
    value = item.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise QuestionError(f"{name}: expected a number from 0 on")
    return float(min(value, most))


def _json(item: Any) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
