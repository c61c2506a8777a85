"""What the tests of hearing share: adverts as acquirers hand them on, a sink that keeps all, a scene on the air."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from spinney.mote.advert import BTHOME
from spinney_mobile.acquire.ble import BleAdverts
from spinney_mobile.samples import Heard, Sample
from spinney_mobile.settings import AcquireBle
from spinney_tools.sim import bleak_backend, clock
from spinney_tools.sim.air import Air
from spinney_tools.sim.beacons import RECORDED, Beacon, Recording, read
from spinney_tools.sim.radio import Radio

T = TypeVar("T")
DEADLINE_SECONDS = 60.0
ADDRESS = "A4:C1:38:00:00:01"
HCI0 = "F0:00:00:00:00:01"
NOW = 1_770_000_000.0


def advert(
    services: dict[str, str] | None = None,
    makers: dict[int, str] | None = None,
    *,
    address: str = ADDRESS,
    time: float = NOW,
    **more: Any,
) -> Heard:
    """An advert by the hexadecimal of its data; services by their 16 bits."""
    by_uuid = {
        f"0000{short}-0000-1000-8000-00805f9b34fb": bytes.fromhex(data) for short, data in (services or {}).items()
    }
    by_company = {company: bytes.fromhex(data) for company, data in (makers or {}).items()}
    return Heard("ble:hci0", address, time, services=by_uuid, manufacturers=by_company, **more)


def bthome(data: str, **more: Any) -> Heard:
    """An advert of BTHome's service data."""
    assert BTHOME[4:8] == "fcd2"
    return advert({"fcd2": data}, **more)


class Kept:
    """A sink that keeps what comes, and in which somebody can wait for it."""

    def __init__(self) -> None:
        self.heards: list[Heard] = []
        self.samples: list[Sample] = []
        self._came = asyncio.Event()

    def heard(self, heard: Heard) -> None:
        self.heards.append(heard)
        self._came.set()

    def sampled(self, sample: Sample) -> None:
        self.samples.append(sample)
        self._came.set()

    async def until(self, condition: Callable[[], Any]) -> None:
        """Until what has come makes it so."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not condition():
                self._came.clear()
                await self._came.wait()


async def until(condition: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> None:
    """Waits for what must become so."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


class Scene:
    """Beacons on the air, and adapters that hear them through bleak."""

    def __init__(self) -> None:
        self.air = Air(seed=1)
        self.kept = Kept()
        self.radios: dict[str, Radio] = {}

    async def add_adapter(self, name: str = "hci0", address: str = HCI0) -> Radio:
        radio = self.radios[name] = Radio(self.air, name, address)
        await radio.power_on()
        bleak_backend.add_adapter(radio, name)
        return radio

    def beacons(self, makers: tuple[str, ...] = ("BTHome", "Ruuvi", "ATC")) -> list[Beacon]:
        found = [Beacon(self.air, recording) for recording in recordings() if recording.maker in makers]
        for beacon in found:
            beacon.start()
        return found

    def adverts(self, adapter: str | None = "hci0", **settings: Any) -> BleAdverts:
        """An acquirer on the scene's own clock."""
        options = AcquireBle(adapter=adapter, **settings)
        return BleAdverts(f"ble:{adapter}", options, lambda: NOW + asyncio.get_running_loop().time())


def recordings() -> list[Recording]:
    """Adverts as their makers publish them."""
    return read(RECORDED)


def on_air(play: Callable[[Scene], Awaitable[T]]) -> T:
    """Plays a scene in virtual time."""

    async def main() -> T:
        scene = Scene()
        with bleak_backend.install():
            await scene.add_adapter()
            async with asyncio.timeout(1_000_000):
                return await play(scene)

    return clock.run(main())
