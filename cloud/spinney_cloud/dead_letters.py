"""Dead letters: what was refused, kept for people to look at, with who, why and how much of it."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import orjson

from .log_errors import LogError
from .log_writer import Writer
from .names import dead_subject
from .payloads import Refusal
from .pump import Pump

VERSION = 1
MAX_WAITING = 1_000
"""Letters not yet stored; beyond them the new ones are dropped and counted. No intake waits for a dead letter."""
MAX_PAYLOAD = 16 * 1024
"""Bytes of a refused payload that are kept; its size and digest tell of the rest."""
MAX_REFUSALS = 100
"""Refusals that one letter lists; it says how many there were."""


def letter(
    *, client: str, tenant: str, topic: str, payload: bytes, refusals: Sequence[Refusal], received: float
) -> bytes:
    """One refused payload, or the refused part of one."""
    item: dict[str, Any] = {
        "v": VERSION,
        "client": client,
        "tenant": tenant,
        "topic": topic,
        "received": received,
        "refused": len(refusals),
        "reasons": [{"row": row, "id": id, "reason": reason} for row, id, reason, _ in refusals[:MAX_REFUSALS]],
        "size": len(payload),
        "digest": blake2b(payload, digest_size=16).hexdigest(),
    }
    kept = payload[:MAX_PAYLOAD]
    try:
        item["payload"] = kept.decode()
    except UnicodeDecodeError:
        item["payload_hex"] = kept[: MAX_PAYLOAD // 2].hex()
    return orjson.dumps(item)


class DeadLetters:
    """Stores letters one after the other, as far as there is room. `run` does the work."""

    def __init__(self, writer: Writer) -> None:
        self.stored = 0
        self.dropped = 0
        self._pump = Pump(writer)
        self.run = self._pump.run

    def put(self, stage: str, client: str, data: bytes) -> None:
        """Keep a letter, if there is room."""
        if self._pump.pending >= MAX_WAITING:
            self.dropped += 1
        else:
            self._pump.put(dead_subject(stage, client), data, self._count)

    def _count(self, error: LogError | None) -> None:
        self.stored += error is None
        self.dropped += error is not None
