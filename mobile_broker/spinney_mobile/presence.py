"""What this broker says of itself to the cloud: its announcement, its will and its end. No I/O; the clock is handed in.

Each link has a session of its own, so that the will of a link that the server has not yet missed is not taken for the
current one's. The newest announcement wins; it goes out at each link, again before it is over, and, with the epoch that
this broker has, when an activation was missed.
"""

from __future__ import annotations

import json
import secrets
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from spinney.client.dialogue import Pauses

from .health_report import HealthReport

ANNOUNCE_SECONDS: Final = 2.0
"""Between two announcements, at least."""
VALIDITY_SECONDS: Final = 3600.0
"""Of an announcement that says nothing else."""
FULL_SET_SECONDS: Final = 15.0
"""For the cloud to send all that is active, then it is asked again."""
ANSWER_SECONDS: Final = 15.0
LONGEST_ANSWER_SECONDS: Final = 300.0
"""For the cloud to say that it has an announcement, then it is sent again; longer and longer."""
MAX_UNANSWERED: Final = 16
"""Announcements on the way; of more than that the answers to the oldest are not believed."""


class Presence:
    """Of one broker."""

    def __init__(
        self,
        have: Callable[[], int | None],
        is_lost: Callable[[], bool],
        lease: Callable[[], Collection[str]],
        along: Callable[[float], Mapping[str, Any]] = lambda _: {},
        health: HealthReport | None = None,
    ) -> None:
        """`have`: the epoch of the activation that is at work; `is_lost`: whether one was missed; `lease`: the sources
        that are asked for; `along`: what else each announcement says at its time; `health`: what goes with or after it.
        """
        self.session = ""
        self.error: str | None = None
        """Why the cloud has refused the announcement."""
        self.sent = 0
        self._have = have
        self._is_lost = is_lost
        self._lease = lease
        self._along = along
        self._health = health or HealthReport()
        self._start = secrets.token_hex(6)
        self._links = 0
        self._body: Mapping[str, Any] | None = None
        self._unanswered: deque[Mapping[str, Any]] = deque(maxlen=MAX_UNANSWERED)
        self._new_due: float | None = None  # when what is new may go out
        self._again_due: float | None = None  # when it must be said again
        self._sent_at: float | None = None
        self._answers = Pauses(ANSWER_SECONDS, LONGEST_ANSWER_SECONDS)

    # ---- what is to be said

    def announce(self, body: Mapping[str, Any], now: float) -> None:
        """Say this from now on, without session, have and lease."""
        self._body = body
        self.error = None
        self._answers.reset()
        self._soon(now)

    def opened(self, now: float) -> None:
        """A new link."""
        self._sent_at = None
        self._unanswered.clear()
        self._answers.reset()
        self._health.opened()
        self._soon(now)

    def lost_count(self, now: float) -> None:
        """An activation was missed: the cloud must see the epoch that this broker has."""
        self._soon(now)

    def lease_changed(self, now: float) -> None:
        """Other sources are asked for."""
        self._soon(now)

    def _soon(self, now: float) -> None:
        if self._body is not None:
            self._new_due = now if self._sent_at is None else max(now, self._sent_at + ANNOUNCE_SECONDS)

    # ---- saying it

    @property
    def due(self) -> float | None:
        """When `next` will have something."""
        dues = (self._new_due, self._again_due, self._health.due)
        return min((due for due in dues if due is not None), default=None)

    @property
    def is_answered(self) -> bool:
        """Whether the cloud has answered all that it was told."""
        return not self._unanswered

    def next(self, now: float) -> bytes | None:
        """The announcement, or what has changed of its sources' health, if it must go out now."""
        if self._body is None:
            return None
        names = [source["name"] for source in self._body.get("sources", ())]
        is_heartbeat = self._new_due is None
        due = self._again_due if is_heartbeat else self._new_due
        if due is None or now < due:
            return self._health.message(self.session, names, now, is_announced=not self._unanswered)
        if is_heartbeat:
            self._unanswered.clear()  # what was not answered by now will not be
        self._unanswered.append(self._body)
        self.sent += 1
        self._sent_at, self._new_due = now, None
        self._again_due = now + min(self._answers.next(), self._refresh_seconds())
        said = {"session": self.session, "have": self._have() or 0, "lease": sorted({*names} & {*self._lease()})}
        item = {**self._body, **said, **self._along(now)}
        return self._health.along(_json(item), names, is_heartbeat=is_heartbeat)

    def _refresh_seconds(self) -> float:
        assert self._body is not None
        if self._is_lost():
            return FULL_SET_SECONDS
        return float(self._body.get("validity") or VALIDITY_SECONDS) / 2

    def replied(self, reply: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """What `announce` was given and the cloud has now; None if it refuses that: `error` says why."""
        if self._sent_at is None or reply.get("session", self.session) != self.session:
            return None
        body = self._unanswered.popleft() if self._unanswered else None
        self._health.answered(reply, self._sent_at)
        if not self._unanswered:
            self._again_due = self._sent_at + self._refresh_seconds()
        if reply.get("ok"):
            self.error = None
            return body
        error = reply.get("error")
        message = error.get("message") if isinstance(error, dict) else error
        self.error = f"the cloud refuses the announcement: {message}"
        return None

    def will(self) -> bytes:
        """For the next link, which begins a session."""
        self._links += 1
        self.session = f"{self._start}-{self._links}"
        return _json({"session": self.session, "away": True})

    def over(self) -> bytes:
        """The end."""
        return _json({"session": self.session, "over": True})


def _json(item: Any) -> bytes:
    return json.dumps(item, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
