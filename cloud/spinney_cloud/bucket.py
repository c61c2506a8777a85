"""Buckets: the newest value of each key, kept by the server (JetStream's key-value store, history 1)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import NamedTuple

from .log_errors import Truncated
from .log_reader import Message, Reader, until_now
from .log_writer import Stored, Writer
from .nats_connection import Connection

log = logging.getLogger(__name__)

_KEY = re.compile(r"[-/_=A-Za-z0-9]+(?:\.[-/_=A-Za-z0-9]+)*")
GONE_SECONDS = 24 * 3600
"""The mark that a key is deleted is kept so long; a watch that begins before it must load anew."""
_MARKS = (b"KV-Operation: DEL", b"KV-Operation: PURGE", b"Nats-Marker-Reason: ")


class Entry(NamedTuple):
    """What a bucket has for a key."""

    value: bytes
    revision: int
    """A sequence of the whole bucket: it grows with every change of any key."""


class Change(NamedTuple):
    """A key was put, or (value None) deleted."""

    key: str
    value: bytes | None
    revision: int


def stream_of(bucket: str) -> str:
    """The stream that is a bucket."""
    return f"KV_{bucket}"


class Bucket:
    """One bucket. Puts are pipelined and kept in order."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.name = name
        self._connection = connection
        self._stream = stream_of(name)
        self._prefix = f"$KV.{name}."
        self._writer: Writer | None = None

    @property
    def writer(self) -> Writer:
        """The pen of this bucket: its `blocked` and `pending` tell how it fares."""
        if self._writer is None:
            self._writer = Writer(self._connection, self._stream)
        return self._writer

    async def load(self, prefix: str = "") -> dict[str, Entry]:
        """All keys that begin with the prefix."""
        entries = await self._load(self._filter(prefix))
        return {key: entry for key, entry in entries.items() if key.startswith(prefix)} if prefix else entries

    async def _load(self, filter_subject: str) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        async with aclosing(self._until_now(filter_subject)) as changes:
            async for key, value, revision in changes:
                if value is None:
                    entries.pop(key, None)
                else:
                    entries[key] = Entry(value, revision)
        return entries

    async def _until_now(self, filter_subject: str) -> AsyncGenerator[Change, None]:
        reader = _KeyReader(self._connection, self._stream, after=0, filter_subject=filter_subject)
        try:
            async for messages in until_now(reader):
                for message in messages:
                    yield self._change(message)
        finally:
            await reader.close()

    def each(self) -> AsyncGenerator[Change, None]:
        """As `load`, one after the other, so that a large bucket is never in memory. Close it (`aclosing`).

        A key that changes meanwhile comes again, and one that was deleted lately comes without value.
        """
        return self._until_now(self._filter(""))

    async def get(self, key: str) -> Entry | None:
        """The value of one key."""
        return (await self._load(self._prefix + _checked(key))).get(key)

    async def put_soon(self, key: str, value: bytes) -> asyncio.Future[int]:
        """Put a value without waiting until it is stored; the future gives the revision."""
        return await self._send(key, value, b"")

    async def put(self, key: str, value: bytes) -> int:
        """Put a value; its revision."""
        return await (await self.put_soon(key, value))

    async def delete(self, key: str) -> None:
        """Remove a key."""
        await (await self.delete_soon(key))

    async def delete_soon(self, key: str) -> asyncio.Future[int]:
        """Remove a key without waiting until that is stored."""
        return await self._send(key, b"", b"KV-Operation: DEL\r\nNats-TTL: %ds\r\n" % GONE_SECONDS)

    async def _send(self, key: str, value: bytes, headers: bytes) -> asyncio.Future[int]:
        stored = await self.writer.put_raw(self._prefix + _checked(key), value, headers=headers)
        revision: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        stored.add_done_callback(lambda done: _pass_on(done, revision))
        return revision

    async def watch(self, *, after_revision: int = 0, prefix: str = "") -> AsyncIterator[Change]:
        """Each change from then on, for ever; what changed several times meanwhile comes once, as it is now.

        After a bucket that lost its newest changes (a power cut) all keys come again.
        """
        after = after_revision
        while True:
            reader = _KeyReader(self._connection, self._stream, after=after, filter_subject=self._filter(prefix))
            try:
                while True:
                    for message in await reader.next():
                        change = self._change(message)
                        if change.key.startswith(prefix):
                            yield change
            except Truncated as error:
                log.error("%s; reading all of it", error)
                after = 0
            finally:
                await reader.close()

    async def close(self) -> None:
        """End the pen, if there is one."""
        if self._writer is not None:
            await self._writer.close()

    def _filter(self, prefix: str) -> str:
        """What the server can sort out by itself: the prefix's whole tokens."""
        whole = prefix.rpartition(".")[0]
        return f"{self._prefix}{_checked(whole)}.>" if whole else f"{self._prefix}>"

    def _change(self, message: Message) -> Change:
        value = None if isinstance(message, _Gone) else message.data
        return Change(message.subject[len(self._prefix) :], value, message.sequence)


class _Gone(Message):
    """The end of a key."""

    __slots__ = ()


class _KeyReader(Reader):
    """Tells values from the marks that a key is deleted."""

    def _message(self, sequence: int, time: float, subject: bytes, data: bytes, headers: bytes | None) -> Message:
        gone = not data and headers is not None and any(mark in headers for mark in _MARKS)
        return (_Gone if gone else Message)(sequence, time, subject.decode(), data)


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"not a key: {key!r}")
    return key


def _pass_on(stored: asyncio.Future[Stored], revision: asyncio.Future[int]) -> None:
    if revision.done():
        return
    if stored.cancelled():
        revision.cancel()
    elif (error := stored.exception()) is not None:
        revision.set_exception(error)
    else:
        revision.set_result(stored.result().sequence)
