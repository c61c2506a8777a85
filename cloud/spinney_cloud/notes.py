"""The notification log: one message for each record of the log that told somebody something.

It names the record, so that a matcher that starts again finds where it had stopped: at the last message. What is too
large for one message comes in parts, all of one record in order.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from spinney.notification import scope_key

VERSION = 1
MATCHER, PIPELINE = "matcher", "pipeline"
"""Who writes into it: each finds its own place by its own messages."""


class NotesError(ValueError):
    """A message that cannot be read: its version is newer, or it is damaged."""


class Note(NamedTuple):
    """One notification: for one subscription, of at most one publication."""

    owner: str
    sid: str
    why: str
    """match, enter, exit or top."""
    scope: Any
    row: int | None
    """Into the message's publications; None where no publication brought it about."""
    publication_id: str
    since: float | None = None
    rank: int | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Notes:
    """What one record of the log told a tenant's subscribers."""

    tenant: str
    at: int
    """The record's sequence in the log."""
    time: float
    """The log's (arrival, rule I3)."""
    part: int
    last: bool
    """Whether this is the record's last part."""
    publications: tuple[dict[str, Any], ...]
    notes: tuple[Note, ...]
    by: str = MATCHER


def encode(notes: Notes) -> bytes:
    """The bytes of a message."""
    return orjson.dumps(
        {
            "v": VERSION,
            "tenant": notes.tenant,
            "at": notes.at,
            "time": notes.time,
            "part": notes.part,
            "last": notes.last,
            "publications": notes.publications,
            "notes": notes.notes,
            **({} if notes.by == MATCHER else {"by": notes.by}),
        },
        default=tuple,  # orjson takes no named tuple as it stands
    )


def decode(data: bytes) -> Notes:
    """What gave these bytes; NotesError for anything else."""
    try:
        item = orjson.loads(data)
        if item["v"] > VERSION:
            raise NotesError(f"notifications of version {item['v']}; this Spinney reads up to {VERSION}")
        return Notes(
            item["tenant"],
            item["at"],
            item["time"],
            item["part"],
            item["last"],
            tuple(item["publications"]),
            tuple(Note(*note) for note in item["notes"]),
            item.get("by", MATCHER),
        )
    except NotesError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise NotesError(f"damaged notifications: {data[:80]!r}: {error}") from error


def notification_id(tenant: str, note: Note) -> str:
    """The same whenever the same is notified again (rule L2)."""
    text = "\n".join((tenant, note.owner, note.sid, note.publication_id, note.why, scope_key(note.scope)))
    return blake2b(text.encode(), digest_size=12).hexdigest()
