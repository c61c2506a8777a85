"""What can go wrong between us and the log's server."""

from __future__ import annotations

from typing import Final


class LogError(Exception):
    """Any trouble with the log's server."""


class Unavailable(LogError):
    """Not connected, or no answer in time. It may be better soon."""


NO_MESSAGE_FOUND: Final = 10037
"""JetStream's error code."""


class Refused(LogError):
    """The server answers with an error; the codes are JetStream's."""

    def __init__(self, code: int, error_code: int, text: str) -> None:
        super().__init__(f"{text} (JetStream error {error_code or code})")
        self.code = code
        self.error_code = error_code
        self.text = text


class StreamMissing(LogError):
    """The server has no such stream or bucket: `NatsLog.ensure` was not called, or its store is gone."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"the server has no stream {stream}")
        self.stream = stream


class Truncated(LogError):
    """A stream ends before the place that a reader has come to: its server lost the tail, or is another one."""

    def __init__(self, stream: str, after: int, last: int) -> None:
        super().__init__(f"{stream} ends at {last}, but was read up to {after} already")
        self.stream = stream
        self.after = after
        self.last = last


class TooLarge(LogError):
    """A message that this server will never take."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(f"a message of {size} bytes with its headers; the server's max_payload is {limit}")
        self.size = size
        self.limit = limit


class NobodyThere(LogError):
    """No process answers questions on this subject now."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"nobody answers on {subject}")
        self.subject = subject


class AskError(LogError):
    """The process that was asked says that it failed, or says nothing in time."""
