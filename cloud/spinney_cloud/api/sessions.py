"""Sessions of people at the page: a signed cookie that says who logged in, and until when. Nothing is kept of them.

The signature covers the user's password hash, role and tenant: with any of these changed, all their sessions end. The
key is the data directory's, so that sessions outlive a restart.
"""

from __future__ import annotations

import hmac
from hashlib import blake2b
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from ..data_dir import Secrets
from ..users import User, Users

COOKIE = "spinney_session"

_READS = ("GET", "HEAD")


class Sessions:
    """Gives cookies, and knows whose they are."""

    def __init__(self, secrets: Secrets, lifetime_seconds: float) -> None:
        self.lifetime_seconds = lifetime_seconds
        self._key = blake2b(secrets.nats_password.encode(), person=b"spinney sessions").digest()

    def give(self, user: User, now: float) -> str:
        """A cookie for somebody who has shown the password."""
        ends = str(int(now + self.lifetime_seconds))
        return f"{user.name}.{ends}.{self._signature(user, ends)}"

    def user(self, users: Users, cookie: str, now: float) -> User | None:
        """Whose cookie it is, while it lasts."""
        name, _, rest = cookie.partition(".")
        ends, _, signature = rest.partition(".")
        if name not in users or not (ends.isascii() and ends.isdecimal()) or int(ends[:20]) <= now:
            return None
        user = users.user(name)
        return user if hmac.compare_digest(signature.encode(), self._signature(user, ends).encode()) else None

    def _signature(self, user: User, ends: str) -> str:
        said = "\n".join([user.name, ends, user.role, user.tenant, user.bcrypt])
        return blake2b(said.encode(), key=self._key, digest_size=32).hexdigest()


def is_own_page(connection: HTTPConnection, public_url: str | None) -> bool:
    """Whether what a browser sends comes from our own page: browsers say so wherever it matters."""
    origin = connection.headers.get("origin")
    if origin is None:
        return connection.scope["type"] == "http" and connection.scope["method"] in _READS
    if public_url is not None:
        return origin == public_url
    return urlsplit(origin).netloc == connection.headers.get("host", "")
