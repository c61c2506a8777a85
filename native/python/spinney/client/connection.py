"""A connection that is kept: it connects, hears its topics, and connects again, until it is closed.

All work happens on one thread of its own, which is where the member's methods run.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from .address import Access
from .dialogue import ANSWER_SECONDS, MAX_EVENTS, Dialogue, Member
from .errors import ConnectionRefused, ServerUnreachable
from .handover import Handover
from .link import Event, Link, Lost, Opened, Refused

END_SECONDS = 2.0
"""For the server to end a session."""


def end_session(access: Access, client_id: str) -> bool:
    """Have the server forget a session, by opening it once more as a clean one; whether it has."""
    events: Handover[Event] = Handover(MAX_EVENTS)
    link = Link(access, client_id, clean=True, events=events)
    try:
        link.open()
    except OSError:
        return False
    end = time.monotonic() + END_SECONDS
    try:
        while (left := end - time.monotonic()) > 0:
            event = events.take(left)
            if isinstance(event, Opened | Refused | Lost):
                return isinstance(event, Opened)
        return False
    finally:
        link.close()


class Connection(Dialogue):
    """Between one client and the server. `connect`, `publish` from the member's methods, `close`."""

    def __init__(
        self, access: Access, client_id: str, *, clean: bool, member: Member, at_most_once: Collection[str] = ()
    ) -> None:
        super().__init__(access, member, at_most_once=at_most_once)
        self._client_id = client_id
        self._clean = clean
        self._events: Handover[Event] = Handover(MAX_EVENTS)
        self._state = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        """Whether it is up or tries to be."""
        return self._thread is not None

    # ---- any thread

    def connect(self, wait_seconds: float) -> None:
        """Begin, and wait for the first success; with 0 it is tried in the background, for ever.

        ConnectionRefused or ServerUnreachable, and nothing goes on in the background, when it fails.
        """
        with self._state:
            if self._thread is None:
                self._closing, self._refusal = False, None
                self._thread = threading.Thread(target=self._run, name=f"spinney-{self.access.name}", daemon=True)
                self._thread.start()  # before another thread may close it
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
            thread, self._thread = self._thread, None
            self._state.notify_all()
        self._events.wake()
        if thread is not None:
            thread.join()

    # ---- the connection's thread

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

    def _refuse(self, refusal: ConnectionRefused) -> None:
        with self._state:
            super()._refuse(refusal)
            self._state.notify_all()

    def _set_up(self, up: bool) -> None:
        with self._state:
            super()._set_up(up)
            self._state.notify_all()
