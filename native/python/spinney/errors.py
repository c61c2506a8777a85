"""What can go wrong, one type each, with what a caller needs to show where."""

from __future__ import annotations


class SpinneyError(Exception):
    """Everything that Spinney raises on purpose."""


class SyntaxError(SpinneyError, ValueError):
    """A subscription or filter that cannot be read: where, what stands there, and what was expected.

    For JSON, line and column count in the JSON text when there is one; `path` names the place ("args[1].op").
    """

    def __init__(self, message: str, *, line: int, column: int, found: str = "", expected: str = "", path: str = ""):
        where = f"{line}:{column}" + (f" ({path})" if path else "")
        super().__init__(f"{where}: {message}")
        self.message = message
        self.line = line
        self.column = column
        self.found = found
        self.expected = expected
        self.path = path


class PublicationError(SpinneyError, ValueError):
    """A publication with a value that every door refuses (rule P1), and the attribute that holds it."""

    def __init__(self, message: str, *, attribute: str | None = None, position: int | None = None):
        super().__init__(message)
        self.attribute = attribute
        self.position = position


class MatcherError(SpinneyError):
    """A matcher that cannot do what was asked: an id twice, an id that is not there, no memory."""


class SnapshotError(SpinneyError, ValueError):
    """A snapshot of something else, or in a form that this version cannot read."""


class LabelError(SpinneyError, ValueError):
    """A label that is not one: it came over a link, so it can be anything."""


class KnownError(SpinneyError, ValueError):
    """Something said to be known of publications that cannot be, and the attribute that it is said of."""

    def __init__(self, message: str, *, attribute: str | None = None):
        super().__init__(f"{attribute}: {message}" if attribute else message)
        self.attribute = attribute
