"""The streams and buckets of the cloud, with their limits."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from .bucket import stream_of
from .log_errors import StreamMissing
from .names import BUCKETS, DEAD, LOG, NOTES, REQUESTS, STREAM_SUBJECTS
from .nats_connection import Connection
from .settings import Settings

log = logging.getLogger(__name__)

HARD_CAP = 1.5
"""The keeper purges at the settings' bytes; at so many times of that a stream refuses what is new."""
REQUESTS_BYTES = 1024**3
DEAD_BYTES = 256 * 1024**2
DEAD_SECONDS = 30 * 24 * 3600
DUPLICATE_WINDOW_SECONDS = 120
_NANOSECONDS = 1_000_000_000


async def ensure(connection: Connection, settings: Settings, first: Mapping[str, int] | None = None) -> None:
    """Make each stream and bucket that is missing, and set our limits where they are others.

    `first`: the first sequence of a stream, if it is missing and is to go on from an older one.
    """
    wanted = {name: _stream(name, settings) for name in STREAM_SUBJECTS}
    wanted |= {stream_of(name): _bucket(name) for name in BUCKETS}
    for name, config in wanted.items():
        config["num_replicas"] = settings.nats.replicas
        await _ensure(connection, name, config, (first or {}).get(name, 0))


async def _ensure(connection: Connection, name: str, wanted: dict[str, Any], first: int) -> None:
    try:
        info = await connection.api(f"STREAM.INFO.{name}")
    except StreamMissing:
        await connection.api(f"STREAM.CREATE.{name}", {**wanted, "first_seq": first})
        log.info("made stream %s", name)
        return
    changed = sorted(key for key, value in wanted.items() if info["config"].get(key, 0) != value)
    if changed:
        await connection.api(f"STREAM.UPDATE.{name}", {**info["config"], **wanted})
        log.info("changed stream %s: %s", name, ", ".join(changed))


def _stream(name: str, settings: Settings) -> dict[str, Any]:
    """A log refuses what is new when it is full; dead letters make room for newer ones."""
    limits: dict[str, Any] = {
        LOG: {"max_bytes": int(settings.log.max_bytes * HARD_CAP)},
        NOTES: {"max_bytes": int(settings.log.notes_max_bytes * HARD_CAP)},
        REQUESTS: {"max_bytes": REQUESTS_BYTES, "retention": "workqueue"},
        DEAD: {"max_bytes": DEAD_BYTES, "discard": "old", "max_age": DEAD_SECONDS * _NANOSECONDS},
    }
    return {
        "name": name,
        "subjects": [STREAM_SUBJECTS[name]],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_age": 0,
        "allow_direct": True,
        "duplicate_window": DUPLICATE_WINDOW_SECONDS * _NANOSECONDS,
        **limits[name],
    }


def _bucket(name: str) -> dict[str, Any]:
    return {
        "name": stream_of(name),
        "subjects": [f"$KV.{name}.>"],
        "storage": "file",
        "retention": "limits",
        "discard": "new",
        "max_msgs_per_subject": 1,
        "allow_direct": True,
        "allow_rollup_hdrs": True,
        "allow_msg_ttl": True,
        "deny_delete": True,
        "duplicate_window": DUPLICATE_WINDOW_SECONDS * _NANOSECONDS,
    }
