"""What is said on a connection that is kept: who is let in, what is heard, and that all is sent again on the next link.

No thread and no clock of its own: `Connection` runs it on a thread, the mobile broker in an event loop. Whoever uses it
is a Member, whose methods are called there and must not wait.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Collection, Sequence
from typing import Protocol

from .address import Access
from .errors import ConnectionRefused, NotGranted
from .link import Acked, Arrived, Event, Granted, Link, Lost, Opened, Refused

MAX_EVENTS = 2_000
"""Messages that wait for the member; beyond it the server does."""
ANSWER_SECONDS = 10.0
"""For a server to answer CONNECT or SUBSCRIBE; one that does not is taken for dead."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 30.0

_log = logging.getLogger("spinney.client")


class Member(Protocol):
    """What a connection works for."""

    topics: Sequence[str]
    """What it hears."""

    def opened(self) -> None:
        """The link is up and the topics are heard: everything that is under way must be sent again."""

    def lost(self, reason: str) -> None:
        """The link is down; nothing that it had taken can be relied on."""

    def arrived(self, message: Arrived) -> None:
        """A message on one of the topics."""

    def acked(self, mid: int) -> None:
        """The server has taken what `Connection.publish` gave this number."""

    def work(self, now: float) -> float | None:
        """Do what is due at this monotonic time; when it must be called again, if nothing happens before."""


class Pauses:
    """Between attempts: longer and longer up to a limit, never all clients at once."""

    def __init__(self, first_seconds: float, longest_seconds: float) -> None:
        self._first = self._next = first_seconds
        self._longest = longest_seconds

    def reset(self) -> None:
        """After a success."""
        self._next = self._first

    def next(self) -> float:
        """Seconds to wait now."""
        seconds, self._next = self._next, min(self._next * 2, self._longest)
        return seconds * random.uniform(0.5, 1.0)  # noqa: S311  # spreads clients, keeps no secret


class Dialogue:
    """With one server; `publish` and `drop` are for the member."""

    def __init__(self, access: Access, member: Member, *, at_most_once: Collection[str] = ()) -> None:
        """`at_most_once`: topics of the member's that are heard at QoS 0."""
        self.access = access
        self.connects = 0
        """How often the link came up."""
        self.session_present = False
        """Whether the server knew our session when the link came up last."""
        self._member = member
        self._at_most_once = at_most_once
        self._closing = False
        self._up = False
        self._refusal: ConnectionRefused | None = None
        self._reason = "no answer"
        self._link: Link | None = None
        self._heard = False  # whether the server's session has our topics
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    @property
    def up(self) -> bool:
        """Whether the link is up at this moment."""
        return self._up

    def publish(self, topic: str, payload: bytes, *, at_most_once: bool = False) -> int:
        """Send at QoS 1, or at QoS 0; only while the link is up. The number that `acked` is told."""
        assert self._link is not None
        return self._link.publish(topic, payload, at_most_once=at_most_once)

    def drop(self, reason: str) -> None:
        """End the link, because what is behind it does not do what it must; a new one is made."""
        if self._link is not None:
            self._abandon(self._link)
            self._lose(reason)

    def _abandon(self, link: Link) -> None:
        link.abandon()

    def _handle(self, event: Event | None) -> None:
        if event is None or event.link is not self._link:
            return  # a wake-up, or the last words of a link that is over
        match event:
            case Arrived():
                self._member.arrived(event)
            case Acked(mid=mid):
                self._member.acked(mid)
            case Opened(session_present=present):
                self._opened(event.link, present)
            case Granted(granted=granted):
                self._granted(granted)
            case Refused(reason=reason):
                self._refuse(ConnectionRefused(str(self.access.server), self.access.user, reason))
            case Lost(reason=reason):
                self._abandon(event.link)
                self._lose(reason)

    def _opened(self, link: Link, session_present: bool) -> None:
        self.session_present = session_present
        if session_present and self._heard:
            self._begin()
        else:
            self._heard = False
            link.subscribe(self._member.topics, self._at_most_once)

    def _granted(self, granted: Sequence[bool]) -> None:
        topics = self._member.topics
        if len(granted) != len(topics):
            self.drop("an answer to SUBSCRIBE that is for something else")
            return
        refused = [topic for topic, may in zip(topics, granted, strict=True) if not may]
        if refused:
            self._refuse(NotGranted(str(self.access.server), self.access.user, refused))
            self.drop(str(self._refusal))
            return
        self._heard = True
        self._begin()

    def _begin(self) -> None:
        self._pauses.reset()
        self.connects += 1
        self._refusal = None
        self._set_up(True)
        _log.debug("%s: connected", self.access.server)
        self._member.opened()

    def _refuse(self, refusal: ConnectionRefused) -> None:
        _log.warning("%s", refusal)
        self._refusal = refusal
        self._reason = refusal.reason

    def _lose(self, reason: str) -> None:
        self._link = None
        if self._refusal is None:
            self._reason = reason
        if self._up:
            _log.log(logging.DEBUG if self._closing else logging.WARNING, "%s: lost: %s", self.access.server, reason)
            self._set_up(False)
            self._member.lost(reason)

    def _set_up(self, up: bool) -> None:
        self._up = up
