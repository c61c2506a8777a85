"""What can go wrong between a client and the cloud, one type each, with what a caller needs to act on it.

A subscription that the cloud cannot read raises `spinney.SyntaxError`, a publication that no door takes
`spinney.PublicationError`, as they do without a cloud.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import SpinneyError


class ClientError(SpinneyError):
    """Everything that publishers and subscribers raise on purpose, besides what the core does."""


class ServerUnreachable(ClientError):
    """Nobody answers at the server's address, or not as an MQTT server does."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"{server}: {reason}")
        self.server = server
        self.reason = reason


class ConnectionRefused(ClientError):
    """The server is there and does not let this client in: its user, password or rights are wrong."""

    def __init__(self, server: str, user: str | None, reason: str) -> None:
        who = f"user {user!r}" if user else "a client without a user"
        super().__init__(f"{server} refused {who}: {reason}")
        self.server = server
        self.user = user
        self.reason = reason


class NotGranted(ConnectionRefused):
    """The server does not let this client hear topics of its own: the client's name is not its user, most likely."""

    def __init__(self, server: str, user: str | None, topics: Sequence[str]) -> None:
        super().__init__(server, user, f"it may not subscribe to {', '.join(topics)}; is its name that of its user?")
        self.topics = tuple(topics)


class Closed(ClientError):
    """A publisher or subscriber was used after its `close`, or was closed while somebody waited."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} is closed")


class TimedOut(ClientError, TimeoutError):
    """What was waited for did not happen in time. It may yet happen."""

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(f"{what}: not within {seconds:g} s")
        self.what = what
        self.seconds = seconds


class NotStored(TimedOut):
    """Publications that are not known to be stored, and that nothing keeps any longer."""

    def __init__(self, count: int, seconds: float) -> None:
        super().__init__(f"{count} publications are not known to be stored", seconds)
        self.count = count


class PublicationRefused(ClientError):
    """The cloud has read a publication and will not store it."""

    def __init__(self, id: str, reason: str) -> None:
        super().__init__(f"{id} was refused: {reason}")
        self.id = id
        self.reason = reason


class PublicationTooLarge(ClientError, ValueError):
    """One publication that no message can hold."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a publication of {size:,} bytes; at most {limit:,} fit into a message")
        self.size = size
        self.limit = limit


class PublicationDropped(ClientError):
    """An older publication that made room for newer ones in a full outbox."""

    def __init__(self, id: str) -> None:
        super().__init__(f"{id} was dropped: the outbox was full")
        self.id = id


class RequestRefused(ClientError):
    """The cloud refused a subscription, or to end one, for another reason than how it is written."""

    def __init__(self, request: str, sid: str | None, reason: str) -> None:
        super().__init__(f"{request} {sid}: {reason}" if sid else f"{request}: {reason}")
        self.request = request
        self.sid = sid
        self.reason = reason


class OutboxFull(ClientError):
    """No room in the outbox: the cloud has been away for long, or is slower than this publisher."""

    def __init__(self, count: int, size: int) -> None:
        super().__init__(f"the outbox is full: {count:,} publications, {size:,} bytes")
        self.count = count
        self.size = size


class OutboxInUse(ClientError):
    """Another publisher, of this process or another, has this outbox open."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"{folder}: another publisher has this outbox open")
        self.folder = folder


class OutboxFailed(ClientError):
    """The outbox's files cannot be read or written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
