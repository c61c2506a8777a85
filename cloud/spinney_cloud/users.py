"""Who may come in: `users.json` in the data directory, with a role, a tenant, a password's hashes and tokens.

A password is kept as two hashes, since servers differ: bcrypt for nats-server and HTTP, PBKDF2 in mosquitto's format.
Tokens are random and long, so a plain digest of one is enough.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import bcrypt

from .data_dir import write_whole
from .names import DEFAULT_TENANT, is_name

FILE = "users.json"
VERSION = 1
MAX_PASSWORD_BYTES = 72
"""bcrypt looks at no more."""
BCRYPT_ROUNDS = 10
"""As a power of two. nats-server does this at every connection of a client."""
MOSQUITTO_ITERATIONS = 20_000
TOKEN_PREFIX = "spn_"  # noqa: S105 - by which scanners for leaked secrets can know one
MAX_TOKENS = 100
"""Of one user."""


class UsersError(ValueError):
    """What cannot be done with users, and why."""


class Role(StrEnum):
    """What a user may do."""

    PUBLISHER = "publisher"
    MOBILE_BROKER = "mobile broker"
    SUBSCRIBER = "subscriber"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without itself."""

    id: str
    digest: str
    expires: float

    def holds(self, now: float) -> bool:
        """Whether it is not over yet."""
        return now < self.expires


@dataclass(frozen=True, slots=True)
class User:
    """One user; the name is also their client id on MQTT and the owner of their subscriptions."""

    name: str
    role: Role
    tenant: str
    bcrypt: str
    mosquitto: str
    created: float
    tokens: tuple[Token, ...] = ()


class Users:
    """The users of a cloud at one moment. Changes make another."""

    def __init__(self, users: Mapping[str, User] | None = None) -> None:
        self._users = dict(users or {})
        self._by_digest = {token.digest: (user, token) for user in self._users.values() for token in user.tokens}

    # ---- asking

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[User]:
        return iter(sorted(self._users.values(), key=lambda user: user.name))

    def __contains__(self, name: object) -> bool:
        return name in self._users

    def user(self, name: str) -> User:
        """The user of that name; UsersError if there is none."""
        if name not in self._users:
            raise UsersError(f"there is no user {name!r}")
        return self._users[name]

    def tenant_of(self, client: str) -> str | None:
        """Whose a client's publications are; None for a client that there is not. Without users, one tenant's."""
        if not self._users:
            return DEFAULT_TENANT
        user = self._users.get(client)
        return None if user is None else user.tenant

    def authenticate(self, name: str, password: str) -> User | None:
        """The user, if the password is theirs. As slow for a name that there is not."""
        user = self._users.get(name)
        hashed = _nobodys_hash() if user is None else user.bcrypt
        given = password.encode()
        right = len(given) <= MAX_PASSWORD_BYTES and bcrypt.checkpw(given, hashed.encode())
        return user if right else None

    def authenticate_token(self, token: str, now: float | None = None) -> User | None:
        """The user whose token it is, while it lasts."""
        user, known = self._by_digest.get(_token_digest(token), (None, None))
        return user if known is not None and known.holds(time.time() if now is None else now) else None

    # ---- changing

    def add(self, name: str, role: Role, tenant: str, password: str, *, now: float | None = None) -> Users:
        """With one more user."""
        if not is_name(name):
            raise UsersError(f"a user's name is 1 to 64 of A-Z a-z 0-9 _ -, not {name!r:.80}")
        if not is_name(tenant):
            raise UsersError(f"a tenant's name is 1 to 64 of A-Z a-z 0-9 _ -, not {tenant!r:.80}")
        if name in self._users:
            raise UsersError(f"there is a user {name!r} already; `passwd` changes the password")
        created = time.time() if now is None else now
        return self._with(User(name, role, tenant, *hashes(password), created))

    def set_password(self, name: str, password: str) -> Users:
        """With another password for a user. Their tokens stay."""
        to_bcrypt, to_mosquitto = hashes(password)
        return self._with(replace(self.user(name), bcrypt=to_bcrypt, mosquitto=to_mosquitto))

    def remove(self, name: str) -> Users:
        """Without a user."""
        self.user(name)
        return Users({other: user for other, user in self._users.items() if other != name})

    def add_token(self, name: str, lifetime_seconds: float, *, now: float | None = None) -> tuple[Users, str, Token]:
        """With a new token for a user, which is told here and never again. Those that are over go."""
        user = self.user(name)
        now = time.time() if now is None else now
        held = tuple(token for token in user.tokens if token.holds(now))
        if len(held) >= MAX_TOKENS:
            raise UsersError(f"{name!r} has {MAX_TOKENS} tokens; revoke one first")
        secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
        token = Token(secrets.token_hex(4), _token_digest(secret), now + lifetime_seconds)
        return self._with(replace(user, tokens=(*held, token))), secret, token

    def revoke(self, name: str, token_id: str | None = None) -> Users:
        """Without one token of a user, or without any."""
        user = self.user(name)
        kept = tuple(token for token in user.tokens if token_id is not None and token.id != token_id)
        if len(kept) == len(user.tokens):
            raise UsersError(f"{name!r} has no token {token_id or ''}".rstrip())
        return self._with(replace(user, tokens=kept))

    def _with(self, user: User) -> Users:
        return Users({**self._users, user.name: user})

    # ---- the file

    def to_json(self) -> dict[str, Any]:
        """As users.json holds it."""
        return {"v": VERSION, "users": [asdict(user) for user in self]}

    @classmethod
    def from_json(cls, item: Any) -> Users:
        """What gave this; UsersError for anything else."""
        try:
            if item["v"] > VERSION:
                raise UsersError(f"version {item['v']} is of a newer Spinney; this one reads up to {VERSION}")
            return cls({entry["name"]: _user(entry) for entry in item["users"]})
        except UsersError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise UsersError(f"damaged: {error!r}") from error

    @classmethod
    def load(cls, data: Path) -> Users:
        """The users of a data directory; none if there is no file."""
        path = data / FILE
        try:
            return cls.from_json(json.loads(path.read_bytes()))
        except FileNotFoundError:
            return cls()
        except ValueError as error:
            raise UsersError(f"{path}: {error}") from error

    def save(self, data: Path) -> None:
        """Replace the file of a data directory; only its owner may read it."""
        write_whole(data / FILE, json.dumps(self.to_json(), indent=1).encode())


def change(data: Path, how: Callable[[Users], Users]) -> None:
    """Change the users of a data directory; two changes at once follow each other."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory = os.open(data, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        how(Users.load(data)).save(data)
    finally:
        os.close(directory)


class UsersFile:
    """The users of a data directory as they stand now: read again when the file has changed."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._stamp: tuple[int, int, int] | None = None
        self._users = Users()

    def current(self) -> Users:
        """The users; the same object as before unless the file changed. UsersError if it is damaged."""
        stamp = self.stamp()
        if stamp != self._stamp:
            self._users = Users.load(self._data)
            self._stamp = stamp
        return self._users

    def stamp(self) -> tuple[int, int, int] | None:
        """Changes whenever the file does; None if there is none."""
        try:
            found = (self._data / FILE).stat()
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def hashes(password: str) -> tuple[str, str]:
    """A password's hashes: for nats-server and HTTP, and for mosquitto."""
    given = password.encode()
    if not given:
        raise UsersError("an empty password lets everybody in")
    if len(given) > MAX_PASSWORD_BYTES or b"\0" in given:
        raise UsersError(f"a password is at most {MAX_PASSWORD_BYTES} bytes, without NUL")
    salt = secrets.token_bytes(12)
    derived = hashlib.pbkdf2_hmac("sha512", given, salt, MOSQUITTO_ITERATIONS)
    to_mosquitto = f"$7${MOSQUITTO_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(derived).decode()}"
    # nats-server knows a hash by 2a, and no other letter
    return bcrypt.hashpw(given, bcrypt.gensalt(BCRYPT_ROUNDS, prefix=b"2a")).decode(), to_mosquitto


def new_password() -> str:
    """A password that nobody guesses."""
    return secrets.token_urlsafe(18)


def _user(entry: dict[str, Any]) -> User:
    tokens = tuple(Token(**token) for token in entry["tokens"])
    user = User(**{**entry, "role": Role(entry["role"]), "tokens": tokens})
    if not (is_name(user.name) and is_name(user.tenant)):
        raise UsersError(f"a user with the name {user.name!r:.80} and the tenant {user.tenant!r:.80}")
    return user


def _token_digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@cache
def _nobodys_hash() -> str:
    return hashes(new_password())[0]
