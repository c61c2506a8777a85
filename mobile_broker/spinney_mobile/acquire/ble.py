"""Adverts of Bluetooth Low Energy sensors, by bleak: BlueZ, CoreBluetooth, or a virtual radio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from spinney.mote.advert import BTHOME, COMPANY
from spinney.mote.protocol import SERVICE

from ..decode.atc import SERVICE as ATC
from ..decode.ruuvi import COMPANY as RUUVI
from ..samples import Acquirer, AcquirerError, Heard, Sink
from ..settings import AcquireBle
from .service_data import ServiceData

if TYPE_CHECKING:
    from bleak import BleakScanner
    from bleak.backends.device import BLEDevice
    from bleak.backends.scanner import AdvertisementData

logger = logging.getLogger(__name__)

START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 5.0
"""A dead adapter may never answer."""
SETTLE_SECONDS: Final = 2.0
"""In an active scan a new device's first advert waits so long for its scan response: a mote's says that it is one."""
MAX_SETTLED: Final = 4096
"""Devices whose first advert has been passed on; beyond it the oldest waits again."""
MAX_SETTLING: Final = 256
"""Devices whose first advert waits; beyond it they do not wait."""
_FLAGS, _SERVICE_DATA, _SERVICE_DATA_128, _MANUFACTURER = 0x01, 0x16, 0x21, 0xFF


class BleAdverts(Acquirer):
    """One adapter's adverts."""

    def __init__(self, name: str, settings: AcquireBle, clock: Callable[[], float] = time.time) -> None:
        super().__init__(name)
        self.adapter = settings.adapter
        self.last_heard: float | None = None
        """By the event loop's clock."""
        """Adverts, scans, stops that failed."""
        self._settings = settings
        self._clock = clock
        self._services = ServiceData()
        self._anew = asyncio.Event()
        self._sink: Sink | None = None
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._settling: dict[str, tuple[asyncio.TimerHandle, Heard]] = {}

    def rescan(self) -> None:
        """Give the scan up and begin another."""
        self._anew.set()

    async def run(self, sink: Sink) -> None:
        self._sink = sink
        try:
            while True:
                self._anew.clear()
                await self._scan()
        finally:
            for timer, _ in self._settling.values():
                timer.cancel()
            self._settling.clear()

    async def _scan(self) -> None:
        scanner = self._scanner()
        await self._begin(scanner)
        self.counts["scans"] += 1
        try:
            await self._anew.wait()
        finally:
            await self._end(scanner)

    def _scanner(self) -> BleakScanner:
        try:
            from bleak import BleakScanner
            from bleak.exc import BleakError
        except ImportError:
            raise AcquirerError("bleak is not installed", 'pip install "spinney[mobile]"') from None
        bluez: Any = {"or_patterns": _patterns()} if self._settings.mode == "passive" else {}
        if self._settings.duplicates:
            bluez["filters"] = {"DuplicateData": True}
        if self.adapter is not None:
            bluez["adapter"] = self.adapter
        try:
            return BleakScanner(self._detected, None, self._settings.mode, bluez=bluez)
        except BleakError as error:
            raise self._explained(error) from error

    async def _begin(self, scanner: BleakScanner) -> None:
        from bleak.exc import BleakError

        try:
            async with asyncio.timeout(START_SECONDS):
                await scanner.start()
        except (BleakError, OSError) as error:  # a TimeoutError is an OSError
            raise self._explained(error) from error

    async def _end(self, scanner: BleakScanner) -> None:
        from bleak.exc import BleakError

        try:
            async with asyncio.timeout(STOP_SECONDS):
                await scanner.stop()
        except (BleakError, OSError) as error:
            self.counts["failed stops"] += 1
            logger.info("%s: the scan did not end: %s", self.name, error or type(error).__name__)

    def _explained(self, error: Exception) -> AcquirerError:
        what = self.adapter or "Bluetooth"
        return AcquirerError(f"{what}: {str(error) or type(error).__name__}", remedy_for(error))

    # ---- bleak's callback

    def _detected(self, device: BLEDevice, data: AdvertisementData) -> None:
        self.counts["adverts"] += 1
        self.last_heard = asyncio.get_running_loop().time()
        address = device.address.upper()
        services = self._services.current(address, data.service_data, self.last_heard)
        heard = Heard(self.name, address, self._clock(), data.local_name, data.rssi, services, data.manufacturer_data)
        if heard.address in self._settled or not self._must_settle(heard):
            self._pass(heard)
        else:
            self._settle(heard)

    def _must_settle(self, heard: Heard) -> bool:
        is_open = BTHOME in heard.services and COMPANY not in heard.manufacturers
        return is_open and self._settings.mode == "active" and len(self._settling) < MAX_SETTLING

    def _settle(self, heard: Heard) -> None:
        """The newest advert waits until the first has waited long enough."""
        waiting = self._settling.get(heard.address)
        loop = asyncio.get_running_loop()
        timer = waiting[0] if waiting else loop.call_later(SETTLE_SECONDS, self._is_settled, heard.address)
        self._settling[heard.address] = timer, heard

    def _is_settled(self, address: str) -> None:
        self._pass(self._settling[address][1])

    def _pass(self, heard: Heard) -> None:
        waiting = self._settling.pop(heard.address, None)
        if waiting is not None:
            waiting[0].cancel()
        self._settled[heard.address] = None
        if len(self._settled) > MAX_SETTLED:
            self._settled.popitem(last=False)
        assert self._sink is not None
        self._sink.heard(heard)


def remedy_for(error: Exception) -> str:
    """What to do when a scan cannot begin, by what the system said of it."""
    said = f"{type(error).__name__} {error} {getattr(error, 'reason', '')}".lower()
    return next((remedy for word, remedy in _REMEDIES if word in said), _LAST_REMEDY)


_REMEDIES: Final = (
    ("filenotfounderror", "BlueZ is not there: sudo apt install bluez && sudo systemctl enable --now bluetooth"),
    ("connectionrefused", "D-Bus does not answer: sudo systemctl restart dbus bluetooth"),
    ("serviceunknown", "BlueZ does not run: sudo systemctl enable --now bluetooth"),
    ("accessdenied", "not allowed: sudo usermod -aG bluetooth $USER, then log in again"),
    ("denied", "not allowed: let this program use Bluetooth in the system's settings"),
    ("powered_off", "the adapter is off: rfkill unblock bluetooth && bluetoothctl power on"),
    ("notready", "the adapter is off: rfkill unblock bluetooth && bluetoothctl power on"),
    ("inprogress", "another program scans in another way: stop it, or restart bluetooth"),
    ("passive", 'BlueZ needs --experimental for it: set it, or mode = "active"'),
    ("advertisementmonitor", 'BlueZ needs --experimental for passive scans: set it, or mode = "active"'),
    ("no_bluetooth", "no adapter: plug one in; it is used once it is there"),
    ("no such adapter", "no adapter of this name: `bluetoothctl list` shows those there are"),
    ("timeout", "the adapter does not answer: sudo systemctl restart bluetooth"),
)
"""In the order in which they are looked for."""
_LAST_REMEDY: Final = "`spinney mobile doctor` looks into it"


def _patterns() -> list[tuple[int, int, bytes]]:
    """What BlueZ lets through in a passive scan: the usual flags, and what our decoders know."""
    services = [bytes.fromhex(uuid[4:8])[::-1] for uuid in (BTHOME, ATC)]
    makers = [company.to_bytes(2, "little") for company in (COMPANY, RUUVI)]
    return [
        *((0, _FLAGS, bytes([flags])) for flags in (0x02, 0x04, 0x05, 0x06, 0x1A)),
        *((0, _SERVICE_DATA, start) for start in services),
        (0, _SERVICE_DATA_128, UUID(SERVICE).bytes[::-1]),
        *((0, _MANUFACTURER, start) for start in makers),
    ]
