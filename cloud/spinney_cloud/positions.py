"""How far each reader of a stream has come: kept in the bucket of readers, looked at by the keeper."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson


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
        return orjson.dumps({"v": 1, **asdict(self)})

    @classmethod
    def decode(cls, data: bytes) -> Position:
        """What gave this value."""
        item = orjson.loads(data)
        return cls(item["stream"], item["floor"], item["sequence"], item["time"])
