"""Who asks, and what their role lets them do."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from prometheus_client import CollectorRegistry, Counter
from starlette.requests import HTTPConnection

from ..names import DEFAULT_TENANT
from ..users import User, Users
from .errors import Problem, unavailable
from .sessions import COOKIE, Sessions, is_own_page

_log = logging.getLogger(__name__)

ANONYMOUS = "anonymous"

PASSWORD_SECONDS = 60.0
"""A password that was right is not hashed again for so long, unless the users change."""
MAX_PASSWORDS = 10_000
"""So many are remembered, as keyed digests."""
MAX_HASHING = 2
"""Passwords are made to be slow: so many are hashed at once, in threads..."""
MAX_WAITING = 64
"""...and so many wait."""


class Right(StrEnum):
    """What one may be allowed to do."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    LOOK = "look"
    OPERATE = "operate"


_PAGE_SCHEMES = {"ws": "http", "wss": "https"}
"""Of the page that opens a socket."""

RIGHTS = {
    "publisher": {Right.PUBLISH, Right.LOOK},
    "mobile broker": {Right.PUBLISH, Right.LOOK},
    "subscriber": {Right.SUBSCRIBE, Right.LOOK},
    "operator": set(Right),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    name: str
    role: str
    tenant: str

    def may(self, right: Right) -> bool:
        """Whether the role lets them."""
        return right in RIGHTS.get(self.role, ())


NOBODY_ELSE = Caller(ANONYMOUS, "operator", DEFAULT_TENANT)
"""Where there are no users, all that come over loopback are this one."""


class Door:
    """Lets callers in, by token, by password, by the page's session, or over loopback where there are no users."""

    def __init__(
        self,
        users: Callable[[], Users | None],
        anonymous: str,
        registry: CollectorRegistry,
        sessions: Sessions | None = None,
        public_url: str | None = None,
    ) -> None:
        self.sessions = sessions
        self._public_url = public_url
        self._users = users
        self._anonymous = anonymous
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, tuple[float, Users, Caller]] = OrderedDict()
        self._hashing = asyncio.Semaphore(MAX_HASHING)
        self._waiting = 0
        self._refused = Counter(
            "spinney_http_auth_refused", "Callers not let in, by reason.", ["reason"], registry=registry
        )

    async def caller(self, connection: HTTPConnection) -> Caller:
        """Who asks; a Problem for whom is not let in."""
        users = self._read_users()
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        if users is None or not len(users):
            return self._nobody_else(connection)
        caller: Caller | None
        match scheme.lower():
            case "bearer":
                found = users.authenticate_token(given.strip())
                caller = None if found is None else Caller(found.name, found.role, found.tenant)
            case "basic":
                caller = await self._by_password(users, given.strip())
            case _:
                return self._by_session(connection, users)
        if caller is None:
            raise self._stranger("wrong", "no such user, or another password or token")
        if scheme.lower() == "basic" and "origin" in connection.headers and not self.is_own_page(connection):
            raise self._foreign()  # a browser that was asked for a password sends it along wherever it is led
        return caller

    def _by_session(self, connection: HTTPConnection, users: Users) -> Caller:
        cookie = connection.cookies.get(COOKIE)
        if cookie is None or self.sessions is None:
            raise self._stranger("none", "say who you are: a bearer token, or name and password", connection)
        if not self.is_own_page(connection):
            raise self._foreign()
        user = self.sessions.user(users, cookie, time.time())
        if user is None:
            raise self._stranger("session", "the session is over: log in again", connection)
        return Caller(user.name, user.role, user.tenant)

    def is_own_page(self, connection: HTTPConnection) -> bool:
        """Whether what a browser sends comes from our own page."""
        return is_own_page(connection, self._public_url)

    @property
    def has_users(self) -> bool:
        """Whether callers must say who they are."""
        users = self._read_users()
        return users is not None and len(users) > 0

    async def log_in(self, name: str, password: str) -> str | None:
        """The cookie of a session, if the password is theirs."""
        users = self._read_users()
        user = None if users is None or self.sessions is None else await self._hash(users, name, password)
        if user is None or self.sessions is None:
            self._refused.labels("wrong").inc()
            return None
        return self.sessions.give(user, time.time())

    def watch(self, connection: HTTPConnection, caller: Caller) -> Callable[[], Coroutine[Any, Any, bool]]:
        """Asks anew whether a caller who was let in still would be; passwords only when the users have changed."""
        seen = self._read_users()
        by_password = connection.headers.get("authorization", "").lower().startswith("basic ")

        async def still() -> bool:
            nonlocal seen
            try:
                users = self._read_users()
                if users is seen and by_password:
                    return True
                allowed = await self.caller(connection) == caller
            except Problem as problem:
                return problem.status_code == 503  # it cannot be known now
            seen = users
            return allowed

        return still

    def tenant_of(self, client: str) -> str | None:
        """Whose a client's things are; None for a client that there is not."""
        users = self._read_users()
        return DEFAULT_TENANT if users is None else users.tenant_of(client)

    def _read_users(self) -> Users | None:
        try:
            return self._users()
        except ValueError as error:
            _log.error("nobody is let in: %s", error)
            raise unavailable("the users cannot be read; the log says why") from None

    def _stranger(self, reason: str, detail: str, connection: HTTPConnection | None = None) -> Problem:
        self._refused.labels(reason).inc()
        ways = 'Basic realm="spinney", Bearer realm="spinney"'
        if connection is not None and connection.headers.get("sec-fetch-mode", "navigate") != "navigate":
            ways = 'Bearer realm="spinney"'  # our page asks for the password itself; a browser would, too
        return Problem(401, detail, headers={"WWW-Authenticate": ways})

    def _foreign(self) -> Problem:
        self._refused.labels("page").inc()
        return Problem(403, "a page of another site is not let in")

    def _nobody_else(self, connection: HTTPConnection) -> Caller:
        """Only from this machine, and from no page that another machine's site has put into a browser here."""
        host = connection.client.host if connection.client else ""
        if self._anonymous == "never" or not is_loopback(host):
            raise self._stranger("anonymous", "there are no users yet: only this machine's own programs are let in")
        if self._public_url is not None or any(map(_is_of_a_proxy, connection.headers)):
            raise self._stranger("anonymous", "there are no users yet: nobody is let in through a proxy")
        name = connection.headers.get("host", "")
        origin = connection.headers.get("origin")
        scheme = connection.scope.get("scheme", "http")
        own = f"{_PAGE_SCHEMES.get(scheme, scheme)}://{name}"
        if not is_loopback(_host_of(name)) or origin not in (None, own):
            raise self._foreign()
        return NOBODY_ELSE

    async def _by_password(self, users: Users, given: str) -> Caller | None:
        try:
            name, colon, password = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return None
        if not colon:
            return None
        digest = blake2b(f"{name}:{password}".encode(), key=self._key, digest_size=16).digest()
        known = self._known.get(digest)
        if known and known[0] > time.monotonic() and known[1] is users:
            return known[2]
        found = await self._hash(users, name, password)
        if found is None:
            return None
        caller = Caller(found.name, found.role, found.tenant)
        self._known[digest] = (time.monotonic() + PASSWORD_SECONDS, users, caller)
        while len(self._known) > MAX_PASSWORDS:
            self._known.popitem(last=False)
        return caller

    async def _hash(self, users: Users, name: str, password: str) -> User | None:
        if self._waiting >= MAX_WAITING:
            self._refused.labels("busy").inc()
            raise unavailable("too many passwords are being checked")
        self._waiting += 1
        try:
            async with self._hashing:
                return await asyncio.to_thread(users.authenticate, name, password)
        finally:
            self._waiting -= 1


def is_loopback(host: str) -> bool:
    """Whether this names or addresses the machine itself."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return address.is_loopback or (mapped is not None and mapped.is_loopback)


def _is_of_a_proxy(header: str) -> bool:
    """Behind a proxy on this machine everybody comes over loopback."""
    return header in ("forwarded", "via", "x-real-ip") or header.startswith("x-forwarded-")


def _host_of(name: str) -> str:
    """A Host header without its port."""
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.rpartition(":")[0] if name.count(":") == 1 else name


def needs(right: Right) -> Callable[[HTTPConnection], Coroutine[Any, Any, Caller]]:
    """A dependency: the caller, who must have the right."""

    async def caller(connection: HTTPConnection) -> Caller:
        door: Door = connection.app.state.api.door
        who = await door.caller(connection)
        if not who.may(right):
            raise Problem(403, f"the role {who.role} may not {right}")
        return who

    return caller
