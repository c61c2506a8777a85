"""What tests of the log share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from servers import NatsServer

from spinney_cloud import names
from spinney_cloud.log_reader import Message, Reader
from spinney_cloud.log_writer import Writer
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.settings import Settings

SUBJECT = names.log_subject("publications", "default")


def run(test: Coroutine[Any, Any, None]) -> None:
    """A test that is a coroutine, with a deadline."""
    asyncio.run(asyncio.wait_for(test, 180))


@asynccontextmanager
async def opened(nats: NatsServer, **log: Any) -> AsyncIterator[NatsLog]:
    """A log with all its streams; the keywords are settings of its section `log`."""
    async with await NatsLog.connect(nats.endpoints(), name="test") as made:
        await made.ensure(Settings.model_validate({"log": log}))
        yield made


async def put_all(writer: Writer, payloads: list[bytes]) -> None:
    """Put them, and wait until they are stored."""
    for payload in payloads:
        await writer.put(SUBJECT, payload)
    await writer.drain()


async def take(reader: Reader, count: int) -> list[Message]:
    """At least so many messages."""
    messages: list[Message] = []
    while len(messages) < count:
        messages += await reader.next()
    return messages


def numbers(count: int, first: int = 0) -> list[bytes]:
    """Payloads that tell their order."""
    return [b"%d" % number for number in range(first, first + count)]
