"""How far each reader of a stream has come: kept in the bucket of readers, looked at by the keeper."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

VERSION = 1


@dataclass(frozen=True, slots=True)
class Position:
    """A required reader's place in one stream."""

    stream: str
    floor: int
    """Everything up to this sequence may be purged: the reader will never ask for it again."""
    sequence: int
    """Read and dealt with up to here."""
    time: float
    """Of the log, at `sequence`."""

    def encode(self) -> bytes:
        """The value in the bucket."""
        return orjson.dumps({"v": VERSION, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Position:
        """What gave this value; ValueError for one of a newer version."""
        item = orjson.loads(data)
        if item["v"] > VERSION:
            raise ValueError(f"a reader's position of version {item['v']}; this Spinney reads up to {VERSION}")
        return cls(item["stream"], item["floor"], item["sequence"], item["time"])
