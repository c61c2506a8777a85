"""A connection to an MQTT server that is kept, run by the event loop.

paho's thread hands over in one place, `LoopHandover`. What may wait for a name server, a handshake or the end of
paho's thread is done in a thread of the loop's.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Collection

from spinney.client.address import Access
from spinney.client.dialogue import ANSWER_SECONDS, MAX_EVENTS, Dialogue, Member
from spinney.client.errors import ConnectionRefused, NotGranted
from spinney.client.link import Event, Link, Will

from .loop_handover import LoopHandover

AT_ONCE = 200
"""Events that are handled before others in the loop have their turn."""

_log = logging.getLogger(__name__)


class LoopConnection(Dialogue):
    """`run` it in a task; the member's methods are called there."""

    def __init__(
        self,
        access: Access,
        client_id: str,
        member: Member,
        *,
        will: Callable[[], Will],
        at_most_once: Collection[str],
        on_state: Callable[[str | None], object],
    ) -> None:
        """The session is kept by the server. `will` is asked for at each link. `on_state` hears why there is no link,
        None when there is one.
        """
        super().__init__(access, member, at_most_once=at_most_once)
        self._client_id = client_id
        self._will = will
        self._on_state = on_state
        self._events: LoopHandover[Event] = LoopHandover(MAX_EVENTS)
        self._ending: set[asyncio.Future[None]] = set()
        self._said: str | None = None

    def wake(self) -> None:
        """Have the member's `work` called soon."""
        self._events.wake()

    async def run(self) -> None:
        """Until `close`, or until cancelled: then the link ends without a good-bye, and the will is said."""
        try:
            while not self._closing:
                self._link = await self._open()
                if self._link is not None:
                    await self._serve()
                await self._idle(self._pauses.next())
            if self._link is not None:
                await asyncio.to_thread(self._link.close)
                self._lose("closed")
        finally:
            self.drop("cancelled")
            while self._ending:
                await asyncio.wait(self._ending)

    def close(self) -> None:
        """Have `run` say good-bye, after what was published has been written, and end."""
        self._closing = True
        self._events.wake()

    async def _open(self) -> Link | None:
        try:
            link = Link(self.access, self._client_id, clean=False, events=self._events, will=self._will())
        except OSError as error:
            self._down(f"{self.access.server}: {_reason(error)}; it is tried again for ever")
            return None
        opening = asyncio.get_running_loop().run_in_executor(None, link.open)
        try:
            await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(lambda _: self._abandon(link))
            self._until_done(opening)
            raise
        except OSError as error:
            self._down(f"{self.access.server}: {_reason(error)}; it is tried again for ever")
            return None
        return link

    async def _serve(self) -> None:
        """Until the link is lost or the connection is closed."""
        answer_due = time.monotonic() + ANSWER_SECONDS
        while self._link is not None and not self._closing:
            now = time.monotonic()
            if not self._up and now >= answer_due:
                self.drop("no answer")
                return
            due = self._member.work(now) if self._up else answer_due
            if self._take_events():
                await asyncio.sleep(0)  # what is due may be another now
            else:
                await self._events.soon(None if due is None else max(due - now, 0.0))

    async def _idle(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._closing and (left := end - time.monotonic()) > 0:
            await self._events.soon(left)
            self._take_events()

    def _take_events(self) -> bool:
        """Handle what is there; whether there was anything."""
        for number in range(AT_ONCE):
            event = self._events.take(0)
            if event is None:
                return number > 0
            self._handle(event)
        return True

    def _abandon(self, link: Link) -> None:
        self._until_done(asyncio.get_running_loop().run_in_executor(None, link.abandon))

    def _until_done(self, future: asyncio.Future[None]) -> None:
        self._ending.add(future)
        future.add_done_callback(self._ending.discard)

    # ---- What is said of it

    def _refuse(self, refusal: ConnectionRefused) -> None:
        self._refusal, self._reason = refusal, refusal.reason
        self._down(f"{refusal}; {_remedy(refusal)}")

    def _lose(self, reason: str) -> None:
        was_up = self._up
        super()._lose(reason)
        if was_up:
            self._on_state(f"{self.access.server}: lost: {reason}")

    def _set_up(self, up: bool) -> None:
        super()._set_up(up)
        if up:
            _log.info("%s: connected as %s", self.access.server, self.access.name)
            self._said = None
            self._on_state(None)

    def _down(self, why: str) -> None:
        """Said once, however often it is tried again."""
        if why != self._said:
            _log.warning("%s", why)
        self._said = why
        self._on_state(why)


def _reason(error: OSError) -> str:
    """Of a certificate that is not believed, what to do about it; its verification's own words say why."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}; set cloud.ca to what signed it, check the clock"
        )
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {error.reason or error}; is it mqtts that is spoken there?"
    return error.strerror or str(error)


def _remedy(refusal: ConnectionRefused) -> str:
    if isinstance(refusal, NotGranted):
        return "the broker's name must be the name of its user (cloud.user)"
    if refusal.user is None:
        return "set cloud.user and cloud.password_file"
    return "check cloud.user, and what is in cloud.password_file"
