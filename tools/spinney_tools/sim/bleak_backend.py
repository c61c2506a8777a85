"""A bleak backend on the virtual radio: after install(), code that uses bleak runs unchanged on it.

Adapters are named as on Linux: `hci0` unless `bluez={"adapter": "hci1"}` names another.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar

import bleak
from bleak.args import SizedBuffer
from bleak.assigned_numbers import gatt_char_props_to_strs
from bleak.backends.characteristic import BleakGATTCharacteristic
from bleak.backends.client import BaseBleakClient, NotifyCallback
from bleak.backends.descriptor import BleakGATTDescriptor
from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData, BaseBleakScanner
from bleak.backends.service import BleakGATTService, BleakGATTServiceCollection
from bleak.exc import BleakDeviceNotFoundError, BleakError, BleakGATTProtocolError
from bleak.uuids import normalize_uuid_16, normalize_uuid_32
from bumble import att, core, hci
from bumble.core import AdvertisingData
from bumble.device import Advertisement, Connection, Peer
from bumble.pairing import PairingConfig, PairingDelegate

from .radio import Radio

T = TypeVar("T")
DEFAULT_ADAPTER = "hci0"
WANTED_MTU = 517
MAX_VALUE_BYTES = 512
_WRITE_OVERHEAD_BYTES = 3
_HANG_UP_S = 0.05

_Read = tuple[int, Callable[[bytes], str]]


class Adapter:
    """A radio that scans and connects for several users at once, as an operating system's does."""

    def __init__(self, radio: Radio) -> None:
        self.radio = radio
        self.scanners: dict[BleakScannerVirtual, bool] = {}
        self.connecting = asyncio.Lock()
        self._dialling: asyncio.Task[Any] | None = None
        self.counts: Counter[str] = Counter()
        self.passkey: int | None = None
        """What its user enters when a peripheral asks; None is a central without a keyboard."""
        radio.device.pairing_config_factory = self._pairing

    def _pairing(self, _connection: Connection) -> PairingConfig:
        return PairingConfig(mitm=self.passkey is not None, delegate=_Delegate(self.passkey))

    async def scan(self, scanner: BleakScannerVirtual, active: bool) -> None:
        self.scanners[scanner] = active
        await self._rescan()

    async def leave(self, scanner: BleakScannerVirtual) -> None:
        if self.scanners.pop(scanner, None) is not None:
            await self._rescan()

    async def dial(self, address: hci.Address) -> Connection:
        """A controller has one initiator: others wait, as in BlueZ."""
        async with self.connecting:
            self._dialling = asyncio.current_task()
            return await self.radio.device.connect(address, transport=core.PhysicalTransport.LE, timeout=None)

    async def hang_up(self, dialling: asyncio.Task[Connection]) -> None:
        """Ends what was dialled and is not wanted any more, whether or not somebody has answered meanwhile."""
        if self._dialling is not dialling:
            dialling.cancel()  # it waits for its turn still
        while self._dialling is dialling and not dialling.done():
            with contextlib.suppress(core.BaseBumbleError):  # too early or too late; then again
                await self.radio.device.cancel_connection()  # type: ignore[no-untyped-call]
            await asyncio.wait([dialling], timeout=_HANG_UP_S)
        with contextlib.suppress(core.BaseBumbleError, asyncio.CancelledError):
            connection = await dialling
            await connection.disconnect()

    async def _rescan(self) -> None:
        """One scan for all: active if any of them is."""
        device = self.radio.device
        active = any(self.scanners.values())
        if device.scanning and self.scanners and device.scanning_is_passive is not active:
            return
        if device.scanning:
            await device.stop_scanning(legacy=True)
        if self.scanners:
            await device.start_scanning(legacy=True, active=active, filter_duplicates=False)


class _Delegate(PairingDelegate):
    def __init__(self, passkey: int | None) -> None:
        io = PairingDelegate.IoCapability
        super().__init__(io.NO_OUTPUT_NO_INPUT if passkey is None else io.KEYBOARD_INPUT_ONLY)
        self._passkey = passkey

    async def get_number(self) -> int | None:
        return self._passkey


_adapters: dict[str, Adapter] = {}


def add_adapter(radio: Radio, name: str = DEFAULT_ADAPTER) -> Adapter:
    """Lets bleak use a radio that is on."""
    return use_adapter(Adapter(radio), name)


def use_adapter(adapter: Adapter, name: str = DEFAULT_ADAPTER) -> Adapter:
    """Lets bleak use this adapter."""
    _adapters[name] = adapter
    return adapter


def remove_adapter(name: str = DEFAULT_ADAPTER) -> None:
    _adapters.pop(name, None)


@contextlib.contextmanager
def install() -> Iterator[None]:
    """Makes bleak choose this backend until the block ends; the adapters are then gone, too."""
    names: Any = bleak
    before = names.get_platform_scanner_backend_type, names.get_platform_client_backend_type
    names.get_platform_scanner_backend_type = lambda: (BleakScannerVirtual, "virtual")
    names.get_platform_client_backend_type = lambda: (BleakClientVirtual, "virtual")
    try:
        yield
    finally:
        names.get_platform_scanner_backend_type, names.get_platform_client_backend_type = before
        _adapters.clear()


def _adapter(options: dict[str, Any]) -> Adapter:
    return adapter(options.get("adapter") or (options.get("bluez") or {}).get("adapter") or DEFAULT_ADAPTER)


def adapter(name: str = DEFAULT_ADAPTER) -> Adapter:
    """The adapter of a name; BleakError if there is none."""
    try:
        return _adapters[name]
    except KeyError:
        known = ", ".join(sorted(_adapters)) or "none"
        raise BleakError(f"no virtual adapter {name!r}; there are: {known}") from None


# ---- scanning


class BleakScannerVirtual(BaseBleakScanner):
    def __init__(
        self,
        detection_callback: Callable[[BLEDevice, AdvertisementData], Any] | None,
        service_uuids: list[str] | None,
        scanning_mode: str,
        **options: Any,
    ) -> None:
        super().__init__(detection_callback, service_uuids)
        self._adapter = _adapter(options)
        self._active = scanning_mode == "active"

    async def start(self) -> None:
        self.seen_devices = {}
        self._adapter.radio.device.on("advertisement", self._on_advertisement)
        try:
            await self._adapter.scan(self, self._active)
        except core.BaseBumbleError as error:
            raise BleakError(f"the adapter does not scan: {error or type(error).__name__}") from error

    async def stop(self) -> None:
        with contextlib.suppress(KeyError):  # the radio was off in between: its listeners went with it
            self._adapter.radio.device.remove_listener("advertisement", self._on_advertisement)
        try:
            await self._adapter.leave(self)
        except core.BaseBumbleError as error:
            raise BleakError(f"the scan does not end: {error or type(error).__name__}") from error

    def _on_advertisement(self, advertisement: Advertisement) -> None:
        data = parse(advertisement)
        self._adapter.counts["advertisements"] += 1
        if not self.is_allowed_uuid(data.service_uuids):
            return
        address = advertisement.address.to_string(with_type_qualifier=False)
        name = data.local_name or address.replace(":", "-")
        device = self.create_or_update_device(address, address, name, advertisement.address, data)
        self.call_detection_callbacks(device, data)


def _uuid_16(raw: bytes) -> str:
    return normalize_uuid_16(int.from_bytes(raw, "little"))


def _uuid_32(raw: bytes) -> str:
    return normalize_uuid_32(int.from_bytes(raw, "little"))


def _uuid_128(raw: bytes) -> str:
    return str(uuid.UUID(bytes=bytes(raw)[::-1]))


_LISTS: dict[int, _Read] = {
    AdvertisingData.INCOMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS: (2, _uuid_16),
    AdvertisingData.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS: (2, _uuid_16),
    AdvertisingData.INCOMPLETE_LIST_OF_32_BIT_SERVICE_CLASS_UUIDS: (4, _uuid_32),
    AdvertisingData.COMPLETE_LIST_OF_32_BIT_SERVICE_CLASS_UUIDS: (4, _uuid_32),
    AdvertisingData.INCOMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS: (16, _uuid_128),
    AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS: (16, _uuid_128),
}
_SERVICE_DATA: dict[int, _Read] = {
    AdvertisingData.SERVICE_DATA_16_BIT_UUID: (2, _uuid_16),
    AdvertisingData.SERVICE_DATA_32_BIT_UUID: (4, _uuid_32),
    AdvertisingData.SERVICE_DATA_128_BIT_UUID: (16, _uuid_128),
}
_NAMES = (AdvertisingData.COMPLETE_LOCAL_NAME, AdvertisingData.SHORTENED_LOCAL_NAME)


def parse(advertisement: Advertisement) -> AdvertisementData:
    """The advert, and in an active scan its scan response, as bleak tells it."""
    name: str | None = None
    power_dbm: int | None = None
    makers: dict[int, bytes] = {}
    services: dict[str, bytes] = {}
    uuids: list[str] = []
    for kind, data in advertisement.data.ad_structures:
        if kind in _NAMES:
            name = data.decode("utf-8", "replace")
        elif kind == AdvertisingData.MANUFACTURER_SPECIFIC_DATA and len(data) >= 2:
            makers[int.from_bytes(data[:2], "little")] = bytes(data[2:])
        elif kind == AdvertisingData.TX_POWER_LEVEL and data:
            power_dbm = int.from_bytes(data[:1], "little", signed=True)
        elif kind in _SERVICE_DATA and len(data) >= _SERVICE_DATA[kind][0]:
            size, read = _SERVICE_DATA[kind]
            services[read(data[:size])] = bytes(data[size:])
        elif kind in _LISTS:
            size, read = _LISTS[kind]
            uuids += [read(data[at : at + size]) for at in range(0, len(data) - size + 1, size)]
    return AdvertisementData(name, makers, services, uuids, power_dbm, advertisement.rssi, (advertisement,))


# ---- connecting


class BleakClientVirtual(BaseBleakClient):
    def __init__(self, address_or_ble_device: BLEDevice | str, **options: Any) -> None:
        super().__init__(address_or_ble_device, **options)
        self._adapter = _adapter(options)
        is_device = isinstance(address_or_ble_device, BLEDevice)
        self._peer_address: hci.Address | None = address_or_ble_device.details if is_device else None  # type: ignore
        self._name: str | None = address_or_ble_device.name if is_device else None  # type: ignore
        self._only: set[str] | None = options.get("services")
        self._connection: Connection | None = None
        self._peer: Peer | None = None
        self._callbacks: dict[int, Callable[[bytes], None]] = {}

    @property
    def name(self) -> str:
        return self._name or self.address.replace(":", "-")

    @property
    def mtu_size(self) -> int:
        return self._connection.att_mtu if self._connection else 23

    @property
    def is_connected(self) -> bool:
        return self._connection is not None

    async def connect(self, pair: bool, **options: Any) -> None:
        if self._connection is not None:
            raise BleakError("already connected")
        timeout_s = options.get("timeout", self._timeout)
        try:
            async with asyncio.timeout(timeout_s):
                await self._open(pair, timeout_s)
        except (core.BaseBumbleError, asyncio.CancelledError, TimeoutError, BleakError) as error:
            self._forget()
            if isinstance(error, core.BaseBumbleError):
                raise BleakError(f"failed to connect to {self.address}: {error}") from error
            raise

    async def _open(self, pair: bool, timeout_s: float) -> None:
        if self._peer_address is None:
            await self._find(timeout_s)
        assert self._peer_address is not None
        dialling = asyncio.create_task(self._adapter.dial(self._peer_address))
        try:
            connection = await asyncio.shield(dialling)
        except asyncio.CancelledError:
            _background(self._adapter.hang_up(dialling))
            raise
        self._connection, self._peer = connection, Peer(connection)
        connection.on("disconnection", self._on_disconnection)
        self._adapter.counts["connections"] += 1
        if pair:
            await self.pair()
        await self._done(self._peer.request_mtu(WANTED_MTU))
        await self._done(self._discover(connection, self._peer))

    async def _find(self, timeout_s: float) -> None:
        found: asyncio.Future[hci.Address] = asyncio.get_running_loop().create_future()

        def on_device(device: BLEDevice, _data: AdvertisementData) -> None:
            if device.address.upper() == self.address.upper() and not found.done():
                self._name = device.name
                found.set_result(device.details)

        scanner = BleakScannerVirtual(on_device, None, "active", adapter=self._name_of_adapter())
        await scanner.start()
        try:
            self._peer_address = await asyncio.wait_for(found, timeout_s / 2)
        except TimeoutError:
            raise BleakDeviceNotFoundError(self.address, f"not advertising: {self.address}") from None
        finally:
            await scanner.stop()

    def _name_of_adapter(self) -> str:
        return next(name for name, adapter in _adapters.items() if adapter is self._adapter)

    async def _discover(self, connection: Connection, peer: Peer) -> None:
        known = BleakGATTServiceCollection()
        for found in await peer.discover_services():
            if self._only and _full(found.uuid) not in self._only:
                continue
            service = BleakGATTService(found, found.handle, _full(found.uuid))
            known.add_service(service)
            for value in await found.discover_characteristics():
                uses = list(gatt_char_props_to_strs(int(value.properties)))
                characteristic = BleakGATTCharacteristic(
                    value, value.handle, _full(value.uuid), uses, lambda: connection.att_mtu - 3, service
                )
                known.add_characteristic(characteristic)
                for extra in await value.discover_descriptors():
                    known.add_descriptor(BleakGATTDescriptor(extra, extra.handle, _full(extra.type), characteristic))
        self.services = known

    def _on_disconnection(self, _reason: int) -> None:
        self._connection = self._peer = None
        self._callbacks.clear()
        if self._disconnected_callback:
            self._disconnected_callback()

    def _forget(self) -> None:
        """Ends a half-made connection without a word to the user's callback."""
        if self._connection is not None:
            connection, self._connection, self._peer = self._connection, None, None
            connection.remove_listener("disconnection", self._on_disconnection)
            _background(connection.disconnect())

    async def disconnect(self) -> None:
        if self._connection is not None:
            connection = self._connection
            with contextlib.suppress(core.BaseBumbleError):  # it is gone already
                await connection.disconnect()

    async def pair(self, *_args: Any, **_options: Any) -> None:
        """Uses the stored bond where there is one."""
        connection = self._needed()
        keys = self._adapter.radio.device.keystore
        bond = await keys.get(str(connection.peer_address)) if keys else None
        await self._done(connection.encrypt() if bond else connection.pair())

    async def unpair(self) -> None:
        keys = self._adapter.radio.device.keystore
        if keys is not None and self._peer_address is not None:
            with contextlib.suppress(KeyError):  # there was no bond
                await keys.delete(str(self._peer_address))
        await self.disconnect()

    def _needed(self) -> Connection:
        if self._connection is None:
            raise BleakError("Not connected")
        return self._connection

    async def _done(self, operation: Awaitable[T]) -> T:
        """ATT's errors, and a connection lost midway, become bleak's own."""
        connection = self._needed()
        try:
            return await connection.cancel_on_disconnection(operation)
        except att.ATT_Error as error:
            raise BleakGATTProtocolError(error.error_code) from error
        except core.BaseBumbleError as error:
            raise BleakError(f"failed on {self.address}: {error}") from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise BleakError(f"disconnected from {self.address}") from error

    # ---- values

    async def read_gatt_char(self, characteristic: BleakGATTCharacteristic, **_options: Any) -> bytearray:
        self._needed()
        return bytearray(await self._done(characteristic.obj.client.read_value(characteristic.handle)))

    async def read_gatt_descriptor(self, descriptor: BleakGATTDescriptor, **_options: Any) -> bytearray:
        self._needed()
        return bytearray(await self._done(descriptor.obj.client.read_value(descriptor.handle)))

    async def write_gatt_char(self, characteristic: BleakGATTCharacteristic, data: SizedBuffer, response: bool) -> None:
        self._needed()
        limit = MAX_VALUE_BYTES if response else self.mtu_size - _WRITE_OVERHEAD_BYTES
        if len(data) > limit:
            raise BleakError(f"{len(data)} bytes are more than fit: {limit}")
        await self._done(characteristic.obj.client.write_value(characteristic.handle, bytes(data), response))

    async def write_gatt_descriptor(self, descriptor: BleakGATTDescriptor, data: SizedBuffer) -> None:
        self._needed()
        await self._done(descriptor.obj.client.write_value(descriptor.handle, bytes(data), True))

    # ---- notifications

    async def start_notify(
        self, characteristic: BleakGATTCharacteristic, callback: NotifyCallback, **_options: Any
    ) -> None:
        self._needed()
        if characteristic.handle in self._callbacks:
            raise BleakError("notifications are already started")

        def receive(value: bytes) -> None:
            callback(bytearray(value))

        self._callbacks[characteristic.handle] = receive
        try:
            await self._done(characteristic.obj.subscribe(receive, prefer_notify=True))
        except BleakError:
            self._callbacks.pop(characteristic.handle, None)
            raise

    async def stop_notify(self, characteristic: BleakGATTCharacteristic) -> None:
        receive = self._callbacks.pop(characteristic.handle, None)
        if receive is not None and self._connection is not None:
            await self._done(characteristic.obj.unsubscribe(receive))


_tasks: set[asyncio.Future[Any]] = set()


def _background(work: Awaitable[Any]) -> None:
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_ended)


def _ended(task: asyncio.Future[Any]) -> None:
    _tasks.discard(task)
    if not task.cancelled():
        task.exception()  # a connection that cannot even be ended is gone


def _full(short: core.UUID) -> str:
    return _uuid_128(short.to_bytes(force_128=True))
