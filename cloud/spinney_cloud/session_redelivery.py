"""Has nats-server send again at once what a gateway that is gone had not acknowledged.

nats-server sends such messages again only when `ack_wait` is over, and newer ones before them: half a minute late, and
out of order. Its sessions are JetStream consumers, though, and one whose `ack_wait` is made very short for a moment
puts what is unacknowledged before all that is new. mosquitto needs no such help.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from .log_errors import LogError
from .nats_connection import Connection

logger = logging.getLogger(__name__)

STREAM = "$MQTT_msgs"
"""Where nats-server keeps QoS 1 messages."""
LOOKS_SECONDS = 0.3
"""A consumer looks for what is overdue 0.1 s after it was changed."""
MAX_PAGES = 1_000
_MILLISECOND = 1_000_000


async def hurry(connection: Connection, filters: Collection[str]) -> int:
    """Before a session with these MQTT filters is taken up again; how many messages will come at once."""
    subjects = {f"$MQTT.msgs.{name.replace('/', '.').replace('+', '*')}" for name in filters}
    try:
        waiting = [
            each
            for each in await consumers(connection)
            if each["num_ack_pending"] and each["config"].get("filter_subject") in subjects
        ]
        for each in waiting:
            await _update(connection, {**each["config"], "ack_wait": _MILLISECOND})
        if waiting:
            await asyncio.sleep(LOOKS_SECONDS)
        for each in waiting:
            await _update(connection, each["config"])
    except LogError as error:
        logger.warning("what was not acknowledged may come late, and after newer messages: %s", error)
        return 0
    return sum(each["num_ack_pending"] for each in waiting)


async def consumers(connection: Connection) -> list[dict[str, Any]]:
    """Those of nats-server's MQTT sessions: one for each filter at QoS 1."""
    found: list[dict[str, Any]] = []
    for _ in range(MAX_PAGES):
        page = await connection.api(f"CONSUMER.LIST.{STREAM}", {"offset": len(found)})
        found += page["consumers"] or []
        if not page["consumers"] or len(found) >= page["total"]:
            break
    return found


async def _update(connection: Connection, config: dict[str, Any]) -> None:
    name = config["durable_name"]
    request = {"stream_name": STREAM, "config": config, "action": "update"}
    await connection.api(f"CONSUMER.DURABLE.CREATE.{STREAM}.{name}", request)
