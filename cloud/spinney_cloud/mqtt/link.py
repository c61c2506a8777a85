"""One connection to an MQTT server, from CONNECT to its end, with the watch over its silence."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from spinney.mqtt_codec import DISCONNECT, PINGREQ, ConnAck, Decoder, MqttError, Packet, PingResp, Will, connect

CONNECT_SECONDS = 10.0
"""For TCP, TLS and CONNACK together."""
CLOSE_SECONDS = 2.0
HIGH_WATER_BYTES = 1024**2
"""With so much unsent, `writable` is off."""

_REASONS = {
    1: "it does not speak MQTT 3.1.1",
    2: "it does not take this client id",
    3: "it is not available",
    4: "bad user or password",
    5: "not authorised: user or password",
}


class MqttRefused(MqttError):
    """The server does not let us in."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the MQTT server refuses the connection: {_REASONS.get(code, f'code {code}')}")
        self.code = code

    @property
    def for_good(self) -> bool:
        """Whether trying again is of no use until somebody changes something."""
        return self.code != 3


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect, and as whom."""

    host: str
    port: int
    client_id: str
    clean: bool = False
    user: str | None = None
    password: str | None = None
    tls: ssl.SSLContext | None = None
    will: Will | None = None
    keepalive_seconds: int = 20
    max_packet_bytes: int = 8 * 1024**2


class Link(asyncio.Protocol):
    """One connection. `on_packet` is called with each packet as its bytes come."""

    def __init__(self, target: Target, number: int, on_packet: Callable[[Packet], None]) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.lost: asyncio.Future[None] = loop.create_future()
        """Done when the connection is over."""
        self.why = ""
        """It ended."""
        self.writable = asyncio.Event()
        self.accepted: asyncio.Future[ConnAck] = loop.create_future()
        self._target = target
        self._on_packet = on_packet
        self._decoder = Decoder(max_packet_bytes=target.max_packet_bytes, connection=number)
        self._transport: asyncio.Transport | None = None
        self._out: list[bytes] = []
        self._heard = self._sent = monotonic()
        self._asked: float | None = None
        """When a PINGREQ went out that nothing has followed yet."""
        self._timer: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Connect and wait for the server's consent; OSError, TimeoutError or MqttRefused."""
        target = self._target
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                loop = asyncio.get_running_loop()
                await loop.create_connection(lambda: self, target.host, target.port, ssl=target.tls)
                answer = await self.accepted
            if answer.code:
                raise MqttRefused(answer.code)
        except BaseException:
            self.abort("given up while connecting")
            raise

    # ---- asyncio -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Introduce ourselves."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        self.writable.set()
        target = self._target
        self.send(
            connect(
                target.client_id,
                clean=target.clean,
                keepalive_seconds=target.keepalive_seconds,
                user=target.user,
                password=target.password,
                will=target.will,
            )
        )
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Take packets apart; whatever is wrong with them ends the connection."""
        self._heard = monotonic()
        self._asked = None
        try:
            for packet in self._decoder.feed(data):
                self._take(packet)
        except MqttError as error:
            self.abort(f"the server sent what we do not take: {error}")

    def _take(self, packet: Packet) -> None:
        if not self.accepted.done():
            if not isinstance(packet, ConnAck):
                raise MqttError(f"{type(packet).__name__} before CONNACK")
            self.accepted.set_result(packet)
            if not packet.code:
                self._on_packet(packet)
        elif isinstance(packet, ConnAck):
            raise MqttError("a second CONNACK")
        elif not isinstance(packet, PingResp):
            self._on_packet(packet)

    def pause_writing(self) -> None:
        """The server reads too slowly."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """It has read on."""
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """It is over."""
        self.why = self.why or (str(exc) if exc else "the server closed it")
        if self._timer is not None:
            self._timer.cancel()
        self.writable.set()
        if not self.accepted.done():
            self.accepted.set_exception(ConnectionResetError(f"closed before CONNACK: {self.why}"))
        if not self.lost.done():
            self.lost.set_result(None)

    # ---- What the client does with it --------------------------------------------------------------------------

    def send(self, data: bytes) -> None:
        """Send with whatever else is sent in this turn of the loop."""
        if not self._out:
            asyncio.get_running_loop().call_soon(self._write)
        self._out.append(data)

    def _write(self) -> None:
        out, self._out = self._out, []
        if out and self._transport is not None and not self._transport.is_closing():
            self._sent = monotonic()
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    def abort(self, why: str) -> None:
        """Drop the connection now; the server then publishes the will."""
        self.why = self.why or why
        if self._transport is not None:
            self._transport.abort()
        elif not self.lost.done():
            self.lost.set_result(None)

    async def close(self) -> None:
        """Say goodbye, and end."""
        self.send(DISCONNECT)
        self._write()
        self.why = self.why or "closed by us"
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait({self.lost}, timeout=CLOSE_SECONDS)
            self._transport.abort()
            await self.lost

    def pause_reading(self, paused: bool) -> None:
        """Take nothing from the server for a while. Keep it short: pings are not heard either."""
        if self._transport is not None and not self._transport.is_closing():
            if paused and self._transport.is_reading():
                self._transport.pause_reading()
            elif not paused and not self._transport.is_reading():
                self._transport.resume_reading()

    def _watch(self) -> None:
        """Ping after half a keepalive without traffic in one direction; give up half a keepalive after a ping."""
        now, half = monotonic(), self._target.keepalive_seconds / 2
        if self._asked is not None and now - self._asked >= half:
            self.abort(f"the server says nothing for {now - self._heard:.1f} s")
            return
        if self._asked is None and now - min(self._heard, self._sent) >= half:
            self._asked = now
            self.send(PINGREQ)
        self._timer = asyncio.get_running_loop().call_later(half / 4, self._watch)
