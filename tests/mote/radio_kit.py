"""The unchanged firmware on the virtual radio, and brokers that reach it through bleak."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from bleak import BleakClient, BleakScanner
from bleak.exc import BleakError
from bumble.pairing import PairingConfig, PairingDelegate

from spinney import parse
from spinney.known import Known
from spinney.mote import Attribute, Compiled, Delivery
from spinney.mote import compile as compile_program
from spinney.mote.link import MoteLink
from spinney_tools.sim import bleak_backend, clock
from spinney_tools.sim.air import Air
from spinney_tools.sim.mote import VirtualMote
from spinney_tools.sim.radio import Radio

T = TypeVar("T")
ADDRESS = "C0:00:00:00:00:01"
BROKER = "F0:00:00:00:00:01"
OTHER = "F0:00:00:00:00:02"
TEMPERATURE = Attribute("temperature", 1, 100, -4000, 8500)
HOT = "WHEN temperature > 25 UNTIL temperature <= 22"
ABOVE = ", ".join(str(30.5 + 1.5 * step) for step in range(10))
BELOW = ", ".join(str(20.5 - 1.5 * step) for step in range(10))
LONG = f"WHEN temperature IN ({ABOVE}) UNTIL temperature IN ({BELOW}) FOR temperature NOT IN (1, 2, 3, 4, 5, 6, 7, 8)"
"""A program of more than one chunk."""


def program(text: str, number: int, **options: Any) -> bytes:
    """The program of a subscription, for a mote that measures the temperature."""
    compiled = compile_program(parse(text), Known({}), [TEMPERATURE], Delivery(number, 1, **options))
    assert isinstance(compiled, Compiled)
    return compiled.program


class Scene:
    """A mote, the air around it, and what it measures."""

    broker: Radio

    def __init__(self, folder: Path, readings: dict[str, float], settings: dict[str, Any]) -> None:
        self.air = Air(seed=1)
        self.indications = 0
        self.readings = readings
        self.mote = VirtualMote(self.air, "mote", ADDRESS, folder, world=self.readings.get)
        self.mote.configure(
            {
                "name": "hut",
                "sample_interval_s": 1,
                "advert_interval_ms": 200,
                "watchdog_s": 0,
                "bonded_writes": False,
                "sensors": [{"driver": "virtual", "quantities": list(readings)}],
                **settings,
            }
        )

    async def add_broker(self, address: str = BROKER, adapter: str = "hci0") -> Radio:
        radio = Radio(self.air, adapter, address)
        await radio.power_on()
        bleak_backend.add_adapter(radio, adapter)
        return radio

    def cut_in_next_packet(self) -> None:
        """Of the next packet to the mote the first fragment arrives, then the connection is lost."""
        controller = self.mote.radio.controller

        def receive(source: Any, transport: Any, data: bytes) -> None:
            del controller.on_link_acl_data  # type: ignore[attr-defined]
            controller.on_link_acl_data(source, transport, data[:27])
            asyncio.get_running_loop().call_later(0.01, self.air.cut, controller)

        controller.on_link_acl_data = receive  # type: ignore[method-assign]

    @property
    def life(self) -> Any:
        """The firmware's main loop, to look at."""
        board = self.mote.board
        assert board is not None
        frame = board._fiber.gr_frame
        while frame is not None:
            found = frame.f_locals.get("life") or frame.f_locals.get("self")
            if type(found).__name__ == "Life":
                return found
            frame = frame.f_back
        raise AssertionError("the firmware does not run")


def on_air(
    folder: Path,
    play: Callable[[Scene], Awaitable[T]],
    speed: float = clock.AS_FAST_AS_POSSIBLE,
    readings: dict[str, float] | None = None,
    **settings: Any,
) -> T:
    """Plays a scene in virtual time; the mote is on, and a broker's radio is there as hci0."""

    async def main() -> T:
        scene = Scene(folder, readings or {"temperature": 20.0}, settings)
        with bleak_backend.install():
            scene.broker = await scene.add_broker()
            scene.mote.power_on()
            try:
                async with asyncio.timeout(100_000):
                    return await play(scene)
            finally:
                scene.mote.power_off()

    return clock.run(main(), speed)


@asynccontextmanager
async def connected(adapter: str = "hci0", **options: Any) -> AsyncIterator[BleakClient]:
    client = BleakClient(ADDRESS, timeout=20.0, bluez={"adapter": adapter}, **options)
    await client.connect()
    try:
        yield client
    finally:
        await client.disconnect()


@asynccontextmanager
async def linked(adapter: str = "hci0", *, scene: Scene | None = None) -> AsyncIterator[MoteLink]:
    """With a scene, indications are heard and counted."""
    async with connected(adapter) as client, MoteLink(Indicated(client, scene) if scene else client) as link:
        yield link


class Indicated:
    """A client that hears indications where it asked for notifications, as BlueZ and CoreBluetooth do."""

    def __init__(self, client: BleakClient, scene: Scene) -> None:
        self._client = client
        self._scene = scene

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def start_notify(self, where: str, callback: Callable[[Any, bytearray], None]) -> None:
        await self._client.start_notify(where, callback)
        characteristic = self._client.services.get_characteristic(where)

        def heard(value: bytes) -> None:
            self._scene.indications += 1
            callback(characteristic, bytearray(value))

        peer = characteristic.obj.client
        peer.indication_subscribers.setdefault(characteristic.handle, set()).add(heard)


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Waits, in virtual time, for what must become so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


async def next_advert(seconds: float = 2.0, *, active: bool = True, adapter: str = "hci0") -> Any:
    """The next that the mote advertises; TimeoutError if nothing comes."""
    found: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def heard(device: Any, data: Any) -> None:
        if device.address == ADDRESS and not found.done():
            found.set_result(data)

    mode = "active" if active else "passive"
    async with asyncio.timeout(seconds), BleakScanner(heard, None, mode, bluez={"adapter": adapter}):  # type: ignore
        return await found


def keyboard(radio: Radio, passkey: int) -> None:
    """The broker's user types this when a mote asks for its passkey."""

    class Typist(PairingDelegate):
        async def get_number(self) -> int | None:
            return passkey

    config = PairingConfig(mitm=True, delegate=Typist(PairingDelegate.IoCapability.KEYBOARD_INPUT_ONLY))
    radio.device.pairing_config_factory = lambda _connection: config


async def pair(client: BleakClient) -> bool:
    """Whether the mote let this broker pair."""
    try:
        await client.pair()
    except BleakError:
        return False
    return client.is_connected
