"""Connections by bleak."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol

from spinney.mote.link import Client
from spinney.mote.protocol import LinkError

from ..samples import AcquirerError
from .mote import Mote

CONNECT_SECONDS: Final = 15.0
SLEEPER_CONNECT_SECONDS: Final = 5.0
"""To a mote that sleeps between samples: it is awake for a moment, and while it is dialled no other can be."""
HANG_UP_SECONDS: Final = 5.0
"""A dead adapter may never answer."""


class Caller(Client, Protocol):
    """What is used of bleak.BleakClient, beside what MoteLink does."""

    async def connect(self) -> None: ...
    async def disconnect(self) -> None: ...
    async def pair(self) -> None: ...


class FellAsleep(LinkError):
    """A mote that sleeps between samples, while others were dialled: it is dialled when it is heard again."""


logger = logging.getLogger(__name__)

Dial = Callable[[str, str | None], Caller]
"""A client for an address, by an adapter; it is not connected yet."""


def dial(address: str, adapter: str | None) -> Caller:
    """Bleak's; AcquirerError if it is not installed."""
    try:
        from bleak import BleakClient
    except ImportError:
        raise AcquirerError("bleak is not installed", 'pip install "spinney[mobile]"') from None
    options: Any = {} if adapter is None else {"bluez": {"adapter": adapter}}
    return BleakClient(address, timeout=CONNECT_SECONDS, **options)


def radio_errors() -> tuple[type[BaseException], ...]:
    """What goes wrong on the air, or below bleak, and may go well another time."""
    from bleak.exc import BleakError

    return (LinkError, BleakError, OSError, EOFError)  # a TimeoutError is an OSError


async def hang_up(client: Caller) -> None:
    """Within a bound, whatever becomes of it."""
    try:
        async with asyncio.timeout(HANG_UP_SECONDS):
            await client.disconnect()
    except radio_errors() as error:
        logger.info("hanging up: %s", error)


class Dialler:
    """Connections to motes. An adapter dials one at a time."""

    def __init__(self, dial: Dial) -> None:
        self._dial = dial
        self._locks: dict[str | None, asyncio.Lock] = {}

    @asynccontextmanager
    async def connection(self, mote: Mote, steady: Callable[[], float]) -> AsyncIterator[Caller]:
        """One that is hung up at the end; FellAsleep, or what radio_errors() says."""
        client = self._dial(mote.address, mote.adapter)
        try:
            async with self._locks.setdefault(mote.adapter, asyncio.Lock()):
                if not mote.is_in_reach(steady()):
                    raise FellAsleep("asleep by now", address=mote.address)
                async with asyncio.timeout(SLEEPER_CONNECT_SECONDS if mote.sleeps else None):
                    await client.connect()
            yield client
        finally:
            await hang_up(client)
