"""How soon what is asked for is active: from a subscriber's or a mobile broker's message to the broker's `act`, all by
MQTT, through gateway and coordinator and back."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from typing import Any

from .stuck import Stuck

ROUNDS = 40
WAIT_SECONDS = 30.0
BROKER, SUBSCRIBER = "activated", "activating"


Messages = asyncio.Queue[dict[str, Any]]


async def activation_ms(port: int) -> dict[str, float]:
    """Medians: of a new subscription, and of an announcement from another place."""
    acts: Messages = asyncio.Queue()
    replies: Messages = asyncio.Queue()
    broker = await _connect(port, BROKER, "act", acts)
    subscriber = await _connect(port, SUBSCRIBER, "reply", replies)
    place = 0
    await _say(broker, _announcement(place, None))
    epoch = (await _next(acts))["epoch"]
    subscribed: list[float] = []
    moved: list[float] = []
    for number in range(ROUNDS):  # each asks for more than those before it, which would else cover it
        moves = number % 2
        began = time.perf_counter()
        text = f"humidity > {ROUNDS - number} AND lat BETWEEN {place + moves} AND {place + moves + 1}"
        await subscriber.publish(f"spinney/{SUBSCRIBER}/sub/here{number}", text.encode())
        if moves:  # to where that one is wanted
            await _next(replies)
            place += 1
            began = time.perf_counter()
            await _say(broker, _announcement(place, epoch))
        epoch = (await _next(acts))["epoch"]
        (moved if moves else subscribed).append(time.perf_counter() - began)
        if not moves:
            await _next(replies)
    for client in (broker, subscriber):
        await client.close()
    return {"subscribed_ms": 1e3 * statistics.median(subscribed), "moved_ms": 1e3 * statistics.median(moved)}


def _announcement(place: int, have: int | None) -> dict[str, Any]:
    """From within a degree of latitude that begins there."""
    return {
        "session": "bench",
        "sources": [{"name": "activated-1", "attributes": {"humidity": {"min": 0, "max": 100}}}],
        "place": {"lat": place + 0.5, "long": 16.0, "radius": 10.0},
        **({} if have is None else {"have": have}),
    }


async def _connect(port: int, name: str, leaf: str, into: Messages) -> Any:
    from spinney_cloud.mqtt import MqttClient, Publish

    def take(message: Publish) -> None:
        client.ack(message)
        into.put_nowait(json.loads(message.payload))

    client = MqttClient("127.0.0.1", port, f"bench-{name}-{time.time_ns()}", clean=True, on_message=take)
    await client.start()
    await client.subscribe(f"spinney/{name}/{leaf}")
    return client


async def _say(client: Any, announcement: dict[str, Any]) -> None:
    await client.publish(f"spinney/{BROKER}/ann", json.dumps(announcement).encode())


async def _next(messages: Messages) -> dict[str, Any]:
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await messages.get()
    except TimeoutError:
        raise Stuck(f"no activation or reply came within {WAIT_SECONDS:g} s") from None
