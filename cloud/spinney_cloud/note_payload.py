"""A notification as its subscriber gets it, over MQTT and HTTP alike: one JSON object, made of parts encoded once.

    {"id":"5f0c...","sid":"air","why":"enter","scope":"m7","time":1731900000.25,"publication":{...},"since":...,
     "rank":...,"reason":...,"also":["roads"]}

What is null is left out. `also` names the owner's other subscriptions that the same publication had something to say
to; beyond MAX_ALSO of them `also_more` counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import orjson

from .notes import Note, Notes, notification_id

MAX_ALSO: Final = 64
"""Names in `also`: a thousand subscriptions of one owner must not make a thousand lists of a thousand."""


class Told(NamedTuple):
    """One notification, encoded, and where it stands in the notification log."""

    owner: str
    sid: str
    id: str
    number: int
    """Among the notes of its message: with the message's sequence the place to resume from."""
    payload: bytes


def encode_notes(notes: Notes, wanted: Iterable[int] | None = None) -> Iterator[Told]:
    """Each notification of a message, in order; only those at the wanted indexes if given.

    The publication is encoded once for all who are told of it.
    """
    rows: dict[int, bytes] = {}
    scopes: dict[object, bytes] = {}
    others = _Others(notes)
    time = orjson.dumps(notes.time)
    for index in range(len(notes.notes)) if wanted is None else wanted:
        note = notes.notes[index]
        name = notification_id(notes.tenant, note)
        parts = [b'{"id":"%b","sid":"%b","why":"%b"' % (name.encode(), note.sid.encode(), note.why.encode())]
        if note.scope is not None:
            key = (type(note.scope), note.scope)
            if (scope := scopes.get(key)) is None:
                scope = scopes[key] = orjson.dumps(note.scope)
            parts.append(b',"scope":' + scope)
        parts.append(b',"time":' + time)
        if note.row is not None:
            if (row := rows.get(note.row)) is None:
                row = rows[note.row] = orjson.dumps(notes.publications[note.row])
            parts.append(b',"publication":' + row)
        if note.since is not None:
            parts.append(b',"since":' + orjson.dumps(note.since))
        if note.rank is not None:
            parts.append(b',"rank":%d' % note.rank)
        if note.reason is not None:
            parts.append(b',"reason":' + orjson.dumps(note.reason))
        parts.append(others.also(note))
        parts.append(b"}")
        yield Told(note.owner, note.sid, name, index, b"".join(parts))


class _Others:
    """Which subscriptions of one owner are told of one publication."""

    def __init__(self, notes: Notes) -> None:
        self._sids: dict[tuple[str, int], list[str]] = {}
        for note in notes.notes:
            if note.row is not None:
                sids = self._sids.setdefault((note.owner, note.row), [])
                if note.sid not in sids[-MAX_ALSO - 1 :]:
                    sids.append(note.sid)

    def also(self, note: Note) -> bytes:
        """The part of the payload that says so; empty if there are no others."""
        if note.row is None:
            return b""
        sids = self._sids[note.owner, note.row]
        if len(sids) == 1:
            return b""
        named = [sid for sid in sids[: MAX_ALSO + 1] if sid != note.sid][:MAX_ALSO]
        part = b',"also":' + orjson.dumps(named)
        more = len(sids) - 1 - len(named)
        return part + b',"also_more":%d' % more if more else part


def encode_digest(sid: str, payloads: Iterable[bytes], dropped: int) -> bytes:
    """Several notifications as one message: `{"sid","digest":[...],"dropped":n}`."""
    left_out = b',"dropped":%d' % dropped if dropped else b""
    return b'{"sid":"%b","digest":[%b]%b}' % (sid.encode(), b",".join(payloads), left_out)
