"""A subscription as it is kept: in the bucket of subscriptions, and in the record of the log that starts it.

    {"v":1,"tenant":"default","owner":"ana","sid":"air","source":"NO2 > 40 AND 1 = 1","start":17,"created":1731900000.0,
     "enabled":true,"expires":null,"labels":{},"options":{},"kind":"content","normal":"NO2 > 40",
     "digest":"9a0364b9e99bb480","program":"U0YBAA...","core":1}

Everything that follows from `source` is worked out once, when it is accepted; whoever reads it need not parse it.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import Any, Final, Literal

import orjson

from spinney import SyntaxError as SubscriptionError
from spinney import feed, normal_form, parse
from spinney.filter_bytes import FilterBytes, filter_bytes
from spinney.subscription import ContentSubscription, StateSubscription, Subscription
from spinney.subscription_json import AnySubscription

from .names import subscription_key

VERSION: Final = 1
"""Of the value. A reader refuses what is newer."""

CORE: Final = 1
"""Of the compiler from filters to programs: raised when programs that older ones wrote must be written anew."""

Kind = Literal["content", "state", "top-k"]
Cost = Literal["indexed", "scanned"]

_LONG_TEXT = 2 * 100
"""Characters. A text that is shorter can neither be too long nor nested too deeply to be read again."""


class StoredSubscriptionError(ValueError):
    """A value that cannot be read: its version is newer, or it is damaged."""


@dataclass(frozen=True, slots=True)
class Form:
    """What follows from a subscription's text alone. Equal digests mean equal subscriptions (rule R3)."""

    kind: Kind
    normal: str
    """The normal form, as `spinney.parse` reads it: text, or JSON where text cannot say an option."""
    digest: str
    program: bytes
    """The feed (rule R1), compiled for the C core."""

    @property
    def cost(self) -> Cost:
        """Whether the matcher's index finds it, or every publication is asked."""
        return cost_of(self.program)


def form_of(subscription: AnySubscription) -> Form:
    """Work it out, in about 0.1 ms."""
    return forms_of([subscription])[0]


def forms_of(subscriptions: Sequence[AnySubscription]) -> list[Form]:
    """Work out many, step by step (see subscription_reading.py)."""
    normals = [normal_form(subscription) for subscription in subscriptions]
    texts = [_readable(*pair) for pair in zip(normals, subscriptions, strict=True)]
    programs = [filter_bytes(feed(normal)).data for normal in normals]
    return [
        Form(_kind(normal), text, blake2b(text.encode(), digest_size=8).hexdigest(), program)
        for normal, text, program in zip(normals, texts, programs, strict=True)
    ]


def _kind(subscription: Subscription) -> Kind:
    if isinstance(subscription, ContentSubscription):
        return "content"
    return "state" if isinstance(subscription, StateSubscription) else "top-k"


def _readable(normal: Subscription, given: AnySubscription) -> str:
    """The normal form's text; the given one's where the normal form has become too large to be read again."""
    text = _text(normal)
    if len(text) > _LONG_TEXT:
        try:
            parse(text)
        except SubscriptionError:
            return _text(replace(given, id=None, owner=None, valid_until=None))
    return text


def _text(subscription: Subscription) -> str:
    options = _options_beside_text(subscription) if isinstance(subscription, StateSubscription) else {}
    text = subscription.to_text()
    return orjson.dumps({"text": text, **options}).decode() if options else text


def _options_beside_text(subscription: StateSubscription) -> dict[str, Any]:
    """What the text of a state subscription leaves out."""
    written = subscription.to_json()
    return {name: written[name] for name in ("debounce", "dead_band", "reorder", "lost") if name in written}


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription with all that the cloud knows of it."""

    tenant: str
    owner: str
    sid: str
    source: str | dict[str, Any]
    """As its owner gave it: text, or the JSON object with its options."""
    start: int
    """The log's sequence where it began (rule I4). 0 in that record of the log itself."""
    created: float
    kind: Kind
    normal: str
    digest: str
    program: bytes | None = None
    core: int = CORE
    enabled: bool = True
    expires: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """In the bucket of subscriptions."""
        return subscription_key(self.tenant, self.owner, self.sid)

    @property
    def cost(self) -> Cost:
        """What it costs the matcher."""
        return cost_of(self.compiled_feed().data)

    def subscription(self) -> AnySubscription:
        """The subscription in its normal form, with its id, owner and validity. Parsed at each call."""
        return replace(parse(self.normal), id=self.sid, owner=self.owner, valid_until=self.expires)

    def compiled_feed(self) -> FilterBytes:
        """The feed as the C core takes it: as it was stored, or compiled anew where that was by another compiler."""
        if self.program is None or self.core != CORE:
            return filter_bytes(feed(parse(self.normal)))
        return FilterBytes(self.program, _names(self.program)[0])

    def started(self, sequence: int) -> StoredSubscription:
        """The same, begun at this place of the log."""
        return self if sequence == self.start else replace(self, start=sequence)

    def to_json(self) -> dict[str, Any]:
        """The value of the bucket, and of `records.SubscriptionChange`."""
        item = {name: getattr(self, name) for name in _FIELDS}
        program = None if self.program is None else b64encode(self.program).decode()
        return {"v": VERSION, **item, "labels": dict(self.labels), "options": dict(self.options), "program": program}

    def encode(self) -> bytes:
        """Its bytes in the bucket."""
        return orjson.dumps(self.to_json())

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> StoredSubscription:
        """What gave this; StoredSubscriptionError for anything else."""
        try:
            if item["v"] > VERSION:
                version = f"a subscription of version {item['v']}"
                raise StoredSubscriptionError(f"{version}; this Spinney reads up to {VERSION}")
            known = {name: item[name] for name in _FIELDS}
            if known["program"] is not None:
                known["program"] = b64decode(known["program"])
            return cls(**known)
        except StoredSubscriptionError:
            raise
        except (ValueError, KeyError, TypeError) as error:
            raise StoredSubscriptionError(f"a damaged subscription: {str(item)[:80]}: {error!r}") from error

    @classmethod
    def decode(cls, data: bytes) -> StoredSubscription:
        """What gave these bytes."""
        try:
            item = orjson.loads(data)
        except ValueError as error:
            raise StoredSubscriptionError(f"a damaged subscription: {data[:80]!r}: {error}") from error
        return cls.from_json(item)


_FIELDS = tuple(one.name for one in fields(StoredSubscription))


def cost_of(program: bytes) -> Cost:
    """A filter is scanned if one of its boxes says nothing, and so all is up to its program (spinney.h, section 3)."""
    _, at = _names(program)
    (boxes,) = struct.unpack_from("<H", program, at)
    has_program = program[3] == 1
    # Boxes are sorted by their bytes, the first of which counts predicates: an empty one stands first.
    return "scanned" if has_program and boxes and program[at + 2] == 0 else "indexed"


def _names(program: bytes) -> tuple[tuple[str, ...], int]:
    """The attributes that a compiled filter names, and where its boxes begin."""
    (count,) = struct.unpack_from("<H", program, 4)
    names, at = [], 6
    for _ in range(count):
        (length,) = struct.unpack_from("<H", program, at)
        names.append(program[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return tuple(names), at
