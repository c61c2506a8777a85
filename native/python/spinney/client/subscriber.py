"""A subscriber: says what it wants to be told, and is told."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from ..errors import SyntaxError
from ..subscription import Subscription
from .address import Access, Server, is_name
from .callbacks import Caller
from .connection import Connection, end_session
from .errors import Closed, RequestRefused, TimedOut
from .handle import Handle
from .link import Arrived
from .mailbox import MAX_WAITING, Delivery, Item, Mailbox, Seen, WhenBehind
from .notification import Notification
from .notification import read as read_told
from .session import choose, fingerprint, running_program

MAX_UNCLAIMED: Final = 10_000
UNCLAIMED_SECONDS: Final = 10.0
"""For a program that takes up its session to say which of its subscriptions it has a use for."""
MAX_ENDED: Final = 1_000
"""Subscriptions that were ended here, and whose last notifications are no surprise."""
RESEND_SECONDS: Final = 5.0
"""After so long without an answer a request is made again."""
TOUCH_SECONDS: Final = 60.0
"""Between the moments that a program's session file says the link was up."""

_log = logging.getLogger("spinney.client")


@dataclass(slots=True)
class Counts:
    """What a subscriber has been told so far."""

    notifications: int = 0
    unreadable: int = 0
    unclaimed: int = 0
    """For subscriptions that this program has no use for."""
    sessions_lost: int = 0
    """How often the server had forgotten the session when the link came up again, and what had waited in it."""
    lost: int = 0
    """Notifications that waited in a session when it expired, as far as the cloud says."""


@dataclass(slots=True)
class _Request:
    sid: str
    payload: bytes
    sent_at: float | None = None
    reply: Mapping[str, Any] | None = None

    def is_answered_by(self, reply: Mapping[str, Any]) -> bool:
        """Whether this reply is for it, and not for one that was made before it."""
        if reply.get("sid") != self.sid or reply.get("request") not in ("sub", "unsub"):
            return False
        accepts = bool(reply.get("ok")) and "normal" in reply
        return not reply.get("ok") or accepts == bool(self.payload)


class _Unclaimed(NamedTuple):
    until: float
    sid: str
    item: Item


class Subscriber:
    """
    >>> with Subscriber("ana") as ana:                                             # doctest: +SKIP
    ...     for notification in ana.subscribe("NO2 > 40"):
    ...         print(notification.publication)

    What comes while the program is away or its link is down waits at the server, in a session that is kept for this
    program: its random name is in the user's state folder, by user, server and the path of the script. A second copy
    that runs beside it gets a session which ends with it. The cloud ends a session that nobody has used for a day
    (its setting `delivery.session_expiry`).
    """

    def __init__(
        self,
        name: str,
        *,
        server: str | None = None,
        password: str | None = None,
        ca: Path | None = None,
        certificate: tuple[Path, Path] | None = None,
        session: str | bool | None = None,
        keep_session: bool = True,
        program: str | None = None,
        state: Path | None = None,
        max_waiting: int = MAX_WAITING,
        when_behind: WhenBehind = "wait",
        on_notification: Callable[[Notification], object] | None = None,
        on_connection: Callable[[bool, str], object] | None = None,
    ) -> None:
        """The client's name is its user's. `ca` is trusted instead of the system's certificates, `certificate` is the
        client's own with its key. `on_notification` gets what no handle of this program is for.

        `session` names another session than the program's own: choose a name that others do not guess, it is the key
        to what waits. With False there is none, and what comes while the link is down is lost. With `keep_session`
        False the session ends with `close`. `program` is what a session is kept for instead of the script's path;
        `state` is the folder for what programs keep (default: SPINNEY_STATE, else ~/.local/state/spinney).

        `max_waiting` notifications wait for each handle; beyond them the server does (and with it all handles of
        this subscriber), or the oldest are dropped and counted, as `when_behind` says.
        """
        self._access = Access(name, Server.parse(server), password, ca, certificate)
        self._max_waiting = max_waiting
        self._when_behind: WhenBehind = when_behind
        self._on_notification = on_notification
        self._on_connection = on_connection
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._handles: dict[str, Handle] = {}
        self._mailboxes: dict[str, Mailbox] = {}
        self._requests: dict[str, _Request] = {}
        self._unclaimed: deque[_Unclaimed] = deque()
        self._claimable = False  # a handle is new
        self._ended: OrderedDict[str, None] = OrderedDict()
        self._seen = Seen()
        self._calls = Mailbox(max_waiting, when_behind)
        self._caller: Caller | None = None
        self.counts = Counts()
        self.topics: Sequence[str] = (self._access.topic("reply"), self._access.topic("note", "+"))
        self._session = choose(
            self._access, session, keep=keep_session, program=program or running_program(), state=state
        )
        # nats-server 2.15 may hold back, for its ack_wait, what comes at once on two QoS 1 filters of one session; a
        # reply that is lost is asked for again
        replies = (self.topics[0],)
        self._connection = Connection(
            self._access, self._session.client_id, clean=self._session.clean, member=self, at_most_once=replies
        )
        self._touch_due = 0.0

    # ---- the link

    def connect(self, wait_seconds: float = 10.0) -> Self:
        """ConnectionRefused or ServerUnreachable if it does not succeed in time; 0 tries in the background, for ever.

        Once connected, a lost link is made again without end.
        """
        self._check_open()
        self._connection.connect(wait_seconds)
        return self

    @property
    def connected(self) -> bool:
        """Whether the link is up at this moment."""
        return self._connection.up

    @property
    def session(self) -> str:
        """What the server keeps while the link is down, in words."""
        return str(self._session)

    @property
    def repeated(self) -> int:
        """Notifications that came more than once, and were given out once."""
        return self._seen.repeated

    @property
    def dropped(self) -> int:
        """Notifications that were dropped here, because nobody read them in time."""
        return self._calls.dropped + sum(mailbox.dropped for mailbox in self._mailboxes.values())

    def disconnect(self) -> None:
        """End the link; the subscriptions stay, and unless there is no session so does what comes meanwhile."""
        self._connection.close()

    def close(self) -> None:
        """End it, without unsubscribing. What nobody has read comes again when the session is taken up again."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
        self._calls.close(discard=True)
        if self._caller is not None:
            self._caller.join()
        for mailbox in self._mailboxes.values():
            mailbox.close(discard=True)
        self._connection.close()
        self._end_session()

    def _end_session(self) -> None:
        if self._session.ends and self._connection.connects and not end_session(self._access, self._session.client_id):
            _log.warning("the server could not be told that this session is over; it ends when it expires")
        self._session.release()

    def __enter__(self) -> Self:
        try:
            return self.connect()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"subscriber {self._access.name!r}")

    # ---- subscribing

    def subscribe(
        self,
        subscription: str | Mapping[str, Any] | Subscription,
        *,
        sid: str | None = None,
        callback: Callable[[Notification], object] | None = None,
        timeout_seconds: float = 10.0,
    ) -> Handle:
        """Text, JSON objects with options, or a parsed subscription. Waits until the cloud has accepted it.

        `sid` names it: the same one again replaces it. Without one it follows from the text, so that the same text
        is the same subscription. spinney.SyntaxError with line and column, RequestRefused, or TimedOut: it may then
        yet be accepted.
        """
        payload = _payload(subscription)
        sid = _checked_sid(sid or blake2b(payload, digest_size=8).hexdigest())
        with self._changed:
            self._check_open()
            known = sid in self._handles
            handle = self._handle(sid, callback)
        try:
            reply = self._ask(sid, payload, timeout_seconds)
        except (SyntaxError, RequestRefused):
            if not known:
                self._forget(sid)
            raise
        handle.normal, handle.cost, handle.start = reply.get("normal"), reply.get("cost"), reply.get("start")
        return handle

    def resume(self, sid: str, *, callback: Callable[[Notification], object] | None = None) -> Handle:
        """The handle of a subscription that was made before, by this client, and goes on: nothing is asked.

        Best called before `connect`: what has waited in the session comes at once.
        """
        with self._changed:
            self._check_open()
            return self._handle(_checked_sid(sid), callback)

    def unsubscribe(self, sid: str, *, timeout_seconds: float = 10.0) -> None:
        """End a subscription, and wait for the cloud's word. Its handle gives what has come, and ends."""
        self._check_open()
        self._ask(_checked_sid(sid), b"", timeout_seconds)
        self._forget(sid)

    def _handle(self, sid: str, callback: Callable[[Notification], object] | None) -> Handle:
        handle = self._handles.get(sid)
        if handle is None:
            mailbox = self._mailboxes[sid] = Mailbox(self._max_waiting, self._when_behind)
            handle = self._handles[sid] = Handle(self, sid, mailbox, callback)
            self._ended.pop(sid, None)
            self._claimable = True
            self._connection.wake()
        elif callback is not None:
            handle.callback = callback
        return handle

    def _forget(self, sid: str) -> None:
        with self._changed:
            self._handles.pop(sid, None)
            mailbox = self._mailboxes.pop(sid, None)
            self._ended[sid] = None
            if len(self._ended) > MAX_ENDED:
                self._ended.popitem(last=False)
        if mailbox is not None:
            mailbox.close()

    def _ask(self, sid: str, payload: bytes, timeout_seconds: float) -> Mapping[str, Any]:
        """Make a request, again and again if need be, until it is answered."""
        end = time.monotonic() + timeout_seconds
        what = f"subscription {sid!r}: no answer from the cloud"
        with self._changed:
            # One at a time for each sid, so that an answer is for the one that is waited for.
            if not self._changed.wait_for(lambda: self._closed or sid not in self._requests, timeout_seconds):
                raise TimedOut(what, timeout_seconds)
            self._check_open()
            request = self._requests[sid] = _Request(sid, payload)
            self._connection.wake()
            try:
                self._changed.wait_for(lambda: self._closed or request.reply is not None, end - time.monotonic())
            finally:
                del self._requests[sid]
                self._changed.notify_all()
            if request.reply is None:
                self._check_open()
                raise TimedOut(what, timeout_seconds)
        if not request.reply.get("ok"):
            raise _refusal(request.reply)
        return request.reply

    # ---- the connection's thread (a Member)

    def opened(self) -> None:
        """The link is up: what was asked and not answered is asked again."""
        with self._changed:
            for request in self._requests.values():
                request.sent_at = None
        self._touch_due = time.monotonic() + TOUCH_SECONDS
        since = self._session.opened(self._connection.session_present)
        if since is None:
            self._tell_connection(True, "")
            return
        self.counts.sessions_lost += 1
        when = datetime.fromtimestamp(since, UTC).isoformat(timespec="seconds")
        reason = f"the server has ended the session: what came since {when} and was not taken is lost"
        _log.warning("%s: %s", self._access.server, reason)
        self._tell_connection(True, reason)

    def lost(self, reason: str) -> None:
        """The link is down."""
        self._session.touch()
        self._tell_connection(False, reason)

    def acked(self, mid: int) -> None:
        """The server has a request; that is not yet an answer."""

    def work(self, now: float) -> float | None:
        """Send requests, and look after what nobody claims."""
        due = []
        with self._changed:
            for request in self._requests.values():
                if request.sent_at is None or request.sent_at + RESEND_SECONDS <= now:
                    self._connection.publish(self._access.topic("sub", request.sid), request.payload)
                    request.sent_at = now
                due.append(request.sent_at + RESEND_SECONDS)
        if now >= self._touch_due:
            self._session.touch()
            self._touch_due = now + TOUCH_SECONDS
        due.append(self._touch_due)
        self._claim(now)
        if self._unclaimed:
            due.append(self._unclaimed[0].until)
        return min(due, default=None)

    def arrived(self, message: Arrived) -> None:
        """A reply or a notification."""
        levels = message.topic.split("/")
        try:
            if levels[2:3] == ["note"]:
                told = read_told(message.payload)
                self._deliver(levels[-1], told.notifications, told.dropped, message)
            else:
                message.ack()
                self._answer(json.loads(message.payload))
        except ValueError as error:
            message.ack()
            self.counts.unreadable += 1
            _log.warning("%s: unreadable: %s: %.80r", message.topic, error, message.payload)

    def _answer(self, reply: Any) -> None:
        if not isinstance(reply, dict):
            raise ValueError("not an object")
        expired = reply.get("session_expired")
        if isinstance(expired, dict) and expired.get("session") == fingerprint(self._session.client_id):
            self.counts.lost += int(expired.get("lost", 0))
            _log.warning("%d notifications were lost when the session expired", expired.get("lost", 0))
            return
        with self._changed:
            request = self._requests.get(str(reply.get("sid")))
            if request is not None and request.is_answered_by(reply):
                request.reply = reply
                self._changed.notify_all()

    def _deliver(self, sid: str, notifications: tuple[Notification, ...], dropped: int, message: Arrived) -> None:
        delivery = Delivery(message, max(len(notifications), 1))
        self._claim(time.monotonic())  # what came before comes first
        handle = self._handles.get(sid)
        if handle is not None:
            handle.left_out += dropped
        if not notifications:
            delivery.done()
        for notification in notifications:
            self.counts.notifications += 1
            item = self._seen.item(notification, delivery)
            if item is not None and not self._hand_over(sid, item):
                self._hold(sid, item)

    def _hand_over(self, sid: str, item: Item) -> bool:
        """Into the mailbox of whom it is for; False if that is nobody."""
        assert item.notification is not None
        handle, mailbox = self._handles.get(sid), self._mailboxes.get(sid)
        callback = handle.callback if handle is not None else self._on_notification
        if callback is not None:
            item.call = partial(callback, item.notification)
            mailbox = self._calls
            self._start_caller()
        if mailbox is None:
            return False
        mailbox.put(item, lambda: self._closed)
        return True

    def _hold(self, sid: str, item: Item) -> None:
        """Until somebody claims it, for a while."""
        if sid in self._ended or len(self._unclaimed) >= MAX_UNCLAIMED:
            self.counts.unclaimed += 1
            item.done()
        else:
            self._unclaimed.append(_Unclaimed(time.monotonic() + UNCLAIMED_SECONDS, sid, item))

    def _claim(self, now: float) -> None:
        """Give what is held to new handles, and give up what has been held for too long."""
        if not self._unclaimed or not (self._claimable or self._unclaimed[0].until <= now):
            return
        self._claimable = False
        for _ in range(len(self._unclaimed)):
            unclaimed = self._unclaimed.popleft()
            if self._hand_over(unclaimed.sid, unclaimed.item):
                continue
            if unclaimed.until <= now:
                self.counts.unclaimed += 1
                unclaimed.item.done()
                _log.warning("a notification for %r, which this program has not subscribed to", unclaimed.sid)
            else:
                self._unclaimed.append(unclaimed)

    # ---- the callbacks' thread

    def _tell_connection(self, up: bool, reason: str) -> None:
        if self._on_connection is not None:
            item = Item(None, None)
            item.call = partial(self._on_connection, up, reason)
            self._start_caller()
            self._calls.put(item, lambda: self._closed)

    def _start_caller(self) -> None:
        if self._caller is None:
            self._caller = Caller(f"spinney-{self._access.name}-callbacks", self._next_calls())
            self._caller.start()

    def _next_calls(self) -> Iterator[Callable[[], object]]:
        while (item := self._calls.get(None)) is not None:
            assert item.call is not None
            yield item.call


def _payload(subscription: str | Mapping[str, Any] | Subscription) -> bytes:
    if isinstance(subscription, Subscription):
        subscription = subscription.to_json()
    text = subscription if isinstance(subscription, str) else json.dumps(dict(subscription), ensure_ascii=False)
    if not text.strip():
        raise SyntaxError("expected a subscription", line=1, column=1, expected="a subscription")
    return text.encode()


def _checked_sid(sid: str) -> str:
    if not is_name(sid):
        raise ValueError(f"{sid!r:.80}: a subscription's id is 1 to 64 of A-Z a-z 0-9 _ -")
    return sid


def _refusal(reply: Mapping[str, Any]) -> SyntaxError | RequestRefused:
    error = reply.get("error")
    if not isinstance(error, dict):
        return RequestRefused(str(reply.get("request")), reply.get("sid"), str(error))
    line, column = error.get("line"), error.get("column")
    if not isinstance(line, int) or not isinstance(column, int):
        return RequestRefused(str(reply.get("request")), reply.get("sid"), str(error.get("message")))
    more = {name: str(error[name]) for name in ("found", "expected", "path") if error.get(name)}
    return SyntaxError(str(error.get("message")), line=line, column=column, **more)
