"""A stream of nats-server in a file and back, with its sequences, times and limits, as JetStream itself copies them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import IO, Any

import orjson

from .log_errors import Refused, Unavailable
from .nats_log import NatsLog

CHUNK_BYTES = 128 * 1024
CHUNK_SECONDS = 30.0
"""The server gives up a copy on which nothing happens for long; so do we."""
MAX_CHUNKS_WAITING = 64

Progress = Callable[[int], None]
"""Told how many bytes have been copied."""


class CopyError(Exception):
    """A stream that cannot be copied, and why."""


async def save_stream(log: NatsLog, stream: str, out: IO[bytes], progress: Progress) -> dict[str, Any]:
    """Write a stream as it is at one moment; its configuration and state, which `restore_stream` wants to know."""
    chunks: asyncio.Queue[tuple[bytes, bytes]] = asyncio.Queue(MAX_CHUNKS_WAITING)
    inbox = f"{log.connection.inbox}.copy"

    def take(_subject: bytes, reply: bytes, data: bytes, _headers: bytes | None) -> None:
        chunks.put_nowait((data, reply))

    listening = await log.connection.listen(inbox, take)
    try:
        request = {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES, "no_consumers": True}
        info: dict[str, Any] = await log.connection.api(f"STREAM.SNAPSHOT.{stream}", request)
        copied = 0
        while True:
            async with asyncio.timeout(CHUNK_SECONDS):
                data, reply = await chunks.get()
            if not data:
                return {"config": info["config"], "state": info["state"]}
            out.write(data)
            copied += len(data)
            progress(copied)
            if reply:  # the server sends the next when these have been taken
                log.connection.send(reply, b"")
    except (TimeoutError, Unavailable) as error:
        raise CopyError(f"the copy of {stream} broke off: {error}") from error
    finally:
        await log.connection.unlisten(listening)


async def restore_stream(log: NatsLog, stream: str, info: dict[str, Any], source: IO[bytes]) -> None:
    """Make a stream that is not there as `save_stream` found it."""
    try:
        begun = await log.connection.api(f"STREAM.RESTORE.{stream}", info)
        for chunk in _chunks(source):
            await log.connection.ask_subject(begun["deliver_subject"], chunk, CHUNK_SECONDS)
        answer = await log.connection.ask_subject(begun["deliver_subject"], b"", CHUNK_SECONDS)
    except (Refused, Unavailable) as error:
        raise CopyError(f"{stream} cannot be restored: {error}") from error
    if problem := orjson.loads(answer.data).get("error"):
        raise CopyError(f"{stream} cannot be restored: {problem.get('description')}")


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    while chunk := source.read(CHUNK_BYTES):
        yield chunk
