"""A connection that is kept: it connects, hears its topics, and connects again, until it is closed.

All work happens on one thread of its own. Whoever uses it is a Member, whose methods run there and must not wait.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from .address import Access
from .errors import ConnectionRefused, NotGranted, ServerUnreachable
from .handover import Handover
from .link import Acked, Arrived, Event, Granted, Link, Lost, Opened, Refused

MAX_EVENTS = 2_000
"""Messages that wait for the thread; beyond it the server does."""
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


class Connection:
    """Between one client and the server. `connect`, `publish` from the member's methods, `close`."""

    def __init__(self, access: Access, client_id: str, *, clean: bool, member: Member) -> None:
        self.access = access
        self._client_id = client_id
        self._clean = clean
        self._member = member
        self._events: Handover[Event] = Handover(MAX_EVENTS)
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._up = False
        self._refusal: ConnectionRefused | None = None
        self._reason = "no answer"
        self._link: Link | None = None
        self._heard = False  # whether the server's session has our topics
        self._pauses = Pauses(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        self.connects = 0
        """How often the link came up."""

    @property
    def started(self) -> bool:
        """Whether it is up or tries to be."""
        return self._thread is not None

    @property
    def up(self) -> bool:
        """Whether the link is up at this moment."""
        return self._up

    # ---- any thread

    def connect(self, wait_seconds: float) -> None:
        """Begin, and wait for the first success; with 0 it is tried in the background, for ever.

        ConnectionRefused or ServerUnreachable, and nothing goes on in the background, when it fails.
        """
        if self._thread is None:
            self._closing, self._refusal = False, None
            self._thread = threading.Thread(target=self._run, name=f"spinney-{self.access.name}", daemon=True)
            self._thread.start()
        if wait_seconds <= 0:
            return
        with self._state:
            self._state.wait_for(lambda: self._up or self._refusal or self._closing, wait_seconds)
            up, refusal = self._up, self._refusal
        if up:
            return
        self.close()
        raise refusal or ServerUnreachable(str(self.access.server), self._reason)

    def wake(self) -> None:
        """Have the member's `work` called soon."""
        self._events.wake()

    def close(self) -> None:
        """End it; what was published or acknowledged is written first."""
        with self._state:
            self._closing = True
            self._state.notify_all()
        self._events.wake()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    # ---- the connection's thread

    def publish(self, topic: str, payload: bytes) -> int:
        """Send at QoS 1; only while the link is up. The number of its acknowledgement."""
        assert self._link is not None
        return self._link.publish(topic, payload)

    def drop(self, reason: str) -> None:
        """End the link, because what is behind it does not do what it must; a new one is made."""
        if self._link is not None:
            self._link.abandon()
            self._lose(reason)

    def _run(self) -> None:
        while not self._closing:
            self._link = self._open()
            if self._link is not None:
                self._serve()
            self._idle_until(time.monotonic() + self._pauses.next())

    def _open(self) -> Link | None:
        try:
            link = Link(self.access, self._client_id, clean=self._clean, events=self._events)
            link.open()
        except OSError as error:
            self._reason = error.strerror or str(error)
            return None
        return link

    def _serve(self) -> None:
        """Until the link is lost or the connection is closed."""
        answer_due = time.monotonic() + ANSWER_SECONDS
        while self._link is not None and not self._closing:
            now = time.monotonic()
            if not self._up and now >= answer_due:
                self.drop("no answer")
                return
            due = self._member.work(now) if self._up else answer_due
            self._handle(self._events.take(None if due is None else max(due - now, 0.0)))
        if self._link is not None:
            self._link.close()
            self._lose("closed")

    def _idle_until(self, end: float) -> None:
        while not self._closing and (left := end - time.monotonic()) > 0:
            self._handle(self._events.take(left))

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
                event.link.abandon()
                self._lose(reason)

    def _opened(self, link: Link, session_present: bool) -> None:
        if session_present and self._heard:
            self._begin()
        else:
            self._heard = False
            link.subscribe(self._member.topics)

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
        with self._state:
            self._refusal = refusal
            self._reason = refusal.reason
            self._state.notify_all()

    def _lose(self, reason: str) -> None:
        self._link = None
        if self._refusal is None:
            self._reason = reason
        if self._up:
            _log.log(logging.DEBUG if self._closing else logging.WARNING, "%s: lost: %s", self.access.server, reason)
            self._set_up(False)
            self._member.lost(reason)

    def _set_up(self, up: bool) -> None:
        with self._state:
            self._up = up
            self._state.notify_all()
