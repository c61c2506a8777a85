"""What this broker tells the cloud that it evaluates, so that the cloud can say later what was never sent. Pure.

    {"session": "...", "report": {"run": "...", "epoch": 7, "pending": ["m7"], "private": true, "all": true,
     "motes": true, "fresh": true, "lost": 3, "seconds": 12.5}}

A report says: the activation of this epoch is at work here, and on all motes but those of `pending`; what was decided
before it was is with the cloud, but for `lost` readings since the report before, the first of which was taken so many
seconds ago. So it goes out only some time after what it tells of, and not before all that waited in the
outbox then has left it. Members that are not said are 0, false, or none; `pending: null` is all of them.

Only a cloud that asks for reports, in its answer to an announcement, is told.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

VERSION: Final = 1
"""What the cloud asks for."""
SETTLE_SECONDS: Final = 2.0
"""From a change until it may be reported: what was decided before it is under way then."""
PAUSE_SECONDS: Final = 600.0
"""Between two reports, at least: a broker that moves from cell to cell would else send one more message for each."""
LOOK_SECONDS: Final = 1.0
"""Between looks whether anything has changed."""
MOTE_SECONDS: Final = 24 * 3600.0
"""So old may be what a mote's ring had no room for."""
MAX_PENDING: Final = 1_000
"""Sources that are named; with more of them it is said that all are behind."""


@dataclass(frozen=True, slots=True)
class State:
    """What is to be reported."""

    epoch: int | None
    """Of the activation that is at work; None before the first."""
    pending: Collection[str] | None = ()
    """Sources that are ours, whose motes have not committed it; None: perhaps all."""
    is_private: bool = False
    sends_all: bool = False
    with_motes: Collection[str] | None = None
    """All sources, if any of them may be motes: a report follows what is new among them."""
    is_fresh: bool = False
    """Whether everything that is heard goes up for now, whatever is wanted, and has since this link is up."""
    lost: int = 0
    """Readings that were dropped or refused since the start."""
    lost_by_motes: int = 0
    """Of these, by motes whose ring was full."""


class Reports:
    """Of one uplink. `look` is asked when it is time; None says nothing."""

    def __init__(self, outbox_end: Callable[[], int], oldest: Callable[[], int | None], longest_seconds: float) -> None:
        """`outbox_end`: the place of the next record; `oldest`: of the first that waits, if any; `longest_seconds`: how
        old anything may be that waits.
        """
        self.look: Callable[[], State] | None = None
        self.due: float | None = None
        """When it is to be asked."""
        self.told: int | None = None
        """The epoch that was reported last on this link."""
        self._run = secrets.token_hex(6)
        self._end = outbox_end
        self._oldest = oldest
        self._is_wanted = False
        self._is_fresh = True
        """Whether all that was heard on this link went up until what is to be reported was at work."""
        self._seen: State | None = None
        self._changed_at: float | None = None
        self._place = 0
        """Of the outbox, before which all must have left it."""
        self._sent_at = float("-inf")
        self._told = (0, 0)
        """Losses that the cloud knows of."""
        self._longest = longest_seconds
        self._whole_since: float | None = None
        """What was taken before it is with the cloud: what is lost was taken later. None before the first report."""

    def opened(self) -> None:
        """A new link: all is said anew, once the cloud has asked for it."""
        self._is_wanted, self._seen, self.due, self.told = False, None, None, None
        self._is_fresh = True

    def replied(self, reply: Mapping[str, Any], now: float) -> None:
        """To an announcement."""
        if reply.get("ok") is True and isinstance(asked := reply.get("reports"), int) and asked >= VERSION:
            self._is_wanted = True
            self.due = now if self.due is None else self.due

    def next(self, session: str, now: float) -> bytes | None:
        """What is to be said now, if anything."""
        if self.look is None or not self._is_wanted or self.due is None or now < self.due:
            return None
        self.due = now + LOOK_SECONDS
        state = self.look()
        is_fresh, state = state.is_fresh, replace(state, is_fresh=False)
        if state != self._seen:
            self._is_fresh = self._is_fresh and is_fresh
            self._seen, self._changed_at, self._place = state, now, self._end()
        if self._changed_at is None or state.epoch is None or not self._may_go(now):
            return None
        body = self._body(state, now)
        self._whole_since, self._changed_at, self._sent_at = self._changed_at, None, now
        self.told = state.epoch
        return json.dumps({"session": session, "report": body}, separators=(",", ":")).encode()

    def _may_go(self, now: float) -> bool:
        assert self._changed_at is not None
        if now < max(self._changed_at + SETTLE_SECONDS, self._sent_at + PAUSE_SECONDS):
            return False
        oldest = self._oldest()
        return oldest is None or oldest >= self._place

    def _body(self, state: State, now: float) -> dict[str, Any]:
        body: dict[str, Any] = {"run": self._run, "epoch": state.epoch}
        if state.pending is None or len(state.pending) > MAX_PENDING:
            body["pending"] = None
        elif state.pending:
            body["pending"] = sorted(state.pending)
        body |= {"private": True} if state.is_private else {}
        body |= {"all": True} if state.sends_all else {}
        body |= {"motes": True} if state.with_motes is not None else {}
        body |= {"fresh": True} if self._is_fresh else {}
        self._is_fresh = False
        if lost := state.lost - self._told[0]:
            seconds = self._longest if self._whole_since is None else now - self._whole_since
            if state.lost_by_motes > self._told[1]:
                seconds = max(seconds, MOTE_SECONDS)
            body |= {"lost": lost, "seconds": round(seconds, 1)}
        self._told = (state.lost, state.lost_by_motes)
        return body
