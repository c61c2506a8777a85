"""Adapters of the virtual radio for other processes: the controller stays on the air, the host is where bleak is used.

What goes between them is HCI in H4's framing over a Unix socket, as between a computer and the adapter in it. The
air's process says `async with serve(radio, path, counts)`, the other one `with install(path, address, on_lost)`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from bleak.exc import BleakError
from bumble import hci
from bumble.device import Connection, Device
from bumble.keys import MemoryKeyStore
from bumble.transport.common import PacketParser, StreamPacketSink, StreamPacketSource

from . import bleak_backend
from .bleak_backend import DEFAULT_ADAPTER, Adapter, BleakScannerVirtual
from .radio import QuietHost, Radio, RadioController

MAX_WAITING_BYTES = 256 * 1024
"""For a host that does not read: beyond it reports of adverts are dropped; beyond four times that it is unplugged."""
OPEN_S = 5.0
_META = bytes([hci.HCI_EVENT_PACKET, hci.HCI_LE_META_EVENT])
_REPORT = hci.HCI_LE_ADVERTISING_REPORT_EVENT
_KIND = 3
"""Where a meta event says of which kind it is."""


# ---- where the air is -------------------------------------------------------------------------------------------


class ServedRadio(Radio):
    """An adapter whose host is in another process. It is on the air while a host is there."""

    def _build(self) -> None:
        self.controller = RadioController(self, self.air, self.public_address, self.fragment_bytes)

    def plug_in(self, host: Any) -> RadioController:
        """A host has come; it finds a controller that knows nothing."""
        self.controller.host = host
        self.is_on = True
        self.air.add_radio(self.controller, self)
        return self.controller


class _HostLink(asyncio.Protocol):
    """A host's connection; to the controller it is the host itself."""

    def __init__(self, radio: ServedRadio, counts: Counter[str], links: set[_HostLink]) -> None:
        self._radio = radio
        self._counts = counts
        self._links = links
        self._transport: asyncio.Transport | None = None
        self._parser: PacketParser | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._links.add(self)
        if self._radio.is_on:
            self._counts["refused hosts"] += 1
            transport.close()
            return
        self._counts["hosts"] += 1
        self._parser = PacketParser(self._radio.plug_in(self))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's
        self._links.discard(self)
        if self._parser is not None:
            self._parser = None
            self._radio.power_off()

    def data_received(self, data: bytes) -> None:
        if self._parser is not None:
            self._parser.feed_data(data)

    def close(self) -> None:
        """Unplugs the host."""
        assert self._transport is not None
        self._transport.close()

    def on_packet(self, packet: bytes) -> None:
        """From the controller."""
        assert self._transport is not None
        waiting = self._transport.get_write_buffer_size()
        if waiting > 4 * MAX_WAITING_BYTES:
            self._counts["unplugged hosts"] += 1
            self._transport.abort()
        elif (
            waiting > MAX_WAITING_BYTES and packet[:2] == _META and packet[_KIND] == hci.HCI_LE_ADVERTISING_REPORT_EVENT
        ):
            self._counts["dropped reports"] += 1
        else:
            self._transport.write(packet)


@contextlib.asynccontextmanager
async def serve(radio: ServedRadio, path: Path, counts: Counter[str]) -> AsyncIterator[None]:
    """Lets one host at a time have this adapter, until the block ends."""
    links: set[_HostLink] = set()
    make = functools.partial(_HostLink, radio, counts, links)
    async with await asyncio.get_running_loop().create_unix_server(make, path):
        try:
            yield
        finally:
            for link in tuple(links):
                link.close()


# ---- where bleak is used ----------------------------------------------------------------------------------------


class _RemoteRadio:
    """As much of a Radio as an Adapter needs. Its device is there from the start, its controller from `open` on."""

    def __init__(self, path: Path, address: str, on_lost: Callable[[], None]) -> None:
        self.device = Device(name=path.stem, address=hci.Address(address), host=QuietHost())
        self.device.keystore = MemoryKeyStore()
        self._path = path
        self._on_lost = on_lost
        self._opening = asyncio.Lock()
        self._is_open = False
        self._transport: asyncio.Transport | None = None

    async def open(self) -> None:
        """Reaches the controller; BleakError if it is not there."""
        async with self._opening:
            if self._is_open:
                return
            try:
                async with asyncio.timeout(OPEN_S):
                    await self._connect()
            except OSError as error:  # a TimeoutError is one
                raise BleakError(f"no such adapter: {self._path}: {error or 'no answer'}") from error
            self._is_open = True

    async def _connect(self) -> None:
        transport, source = await asyncio.get_running_loop().create_unix_connection(_Source, str(self._path))
        self._transport = transport
        self.device.host.set_packet_source(source)
        self.device.host.set_packet_sink(StreamPacketSink(transport))
        await self.device.power_on()
        source.on_lost = self._on_lost

    def close(self) -> None:
        """Ends it, where its event loop goes on."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and all in it with it
            if self._transport is not None:
                self._transport.abort()


class _Source(StreamPacketSource):
    def __init__(self) -> None:
        super().__init__()
        self.on_lost: Callable[[], None] | None = None

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  # asyncio's
        self.on_transport_lost()
        if self.on_lost is not None:
            self.on_lost()


class RemoteAdapter(Adapter):
    """An adapter that is opened when it is used first."""

    def __init__(self, radio: _RemoteRadio) -> None:
        super().__init__(radio)  # type: ignore[arg-type]  # it has what an Adapter uses of one
        self._remote = radio

    async def scan(self, scanner: BleakScannerVirtual, active: bool) -> None:
        await self._remote.open()
        await super().scan(scanner, active)

    async def dial(self, address: hci.Address) -> Connection:
        await self._remote.open()
        return await super().dial(address)


@contextlib.contextmanager
def install(path: Path, address: str, on_lost: Callable[[], None], name: str = DEFAULT_ADAPTER) -> Iterator[None]:
    """Makes bleak use the adapter that is served there. `on_lost` is called when it is gone, for good."""
    with bleak_backend.install():
        radio = _RemoteRadio(path, address, on_lost)
        bleak_backend.use_adapter(RemoteAdapter(radio), name)
        try:
            yield
        finally:
            radio.close()
