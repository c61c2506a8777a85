"""MicroPython's `bluetooth` in the peripheral's role, on a radio of the virtual air."""

from __future__ import annotations

import asyncio
import errno
import json
import types
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from bumble import att, core
from bumble.device import AdvertisingType, Connection
from bumble.gatt import Characteristic, CharacteristicValue, Descriptor, Service
from bumble.keys import KeyStore, PairingKeys
from bumble.pairing import PairingConfig, PairingDelegate
from bumble.smp import PairingMethod

from .radio import Radio

FLAGS = {
    "FLAG_BROADCAST": 0x01,
    "FLAG_READ": 0x02,
    "FLAG_WRITE_NO_RESPONSE": 0x04,
    "FLAG_WRITE": 0x08,
    "FLAG_NOTIFY": 0x10,
    "FLAG_INDICATE": 0x20,
    "FLAG_READ_ENCRYPTED": 0x0200,
    "FLAG_READ_AUTHENTICATED": 0x0400,
    "FLAG_WRITE_ENCRYPTED": 0x1000,
    "FLAG_WRITE_AUTHENTICATED": 0x2000,
    "FLAG_WRITE_AUTHORIZED": 0x4000,
}
_READ, _WRITES, _PROPERTIES = FLAGS["FLAG_READ"], FLAGS["FLAG_WRITE"] | FLAGS["FLAG_WRITE_NO_RESPONSE"], 0x3F
(_CONNECTED, _DISCONNECTED, _WRITTEN, _TO_BE_READ, _INDICATED, _MTU, _ENCRYPTED, _GET_SECRET, _SET_SECRET, _PASSKEY) = (
    1, 2, 3, 4, 20, 21, 28, 29, 30, 31,
)  # fmt: skip
_INPUT, _DISPLAY, _COMPARE = 2, 3, 4
_PEER_SECRET = 1
_NO_INPUT_NO_OUTPUT = 3
_KEY_BYTES = 16
DEFAULT_VALUE_BYTES = 20
"""What a value holds until gatts_set_buffer(); longer writes are truncated without a word."""
MAX_ADVERT_BYTES = 31
MIN_INTERVAL_MS = 20.0
MAX_UNSENT_PACKETS = 24
"""Notifications that wait in the host; one more, and gatts_notify() raises ENOMEM as NimBLE does."""
ANSWER_S = 30.0
"""How long pairing waits for the firmware's gap_passkey()."""

_PERMISSIONS = {
    FLAGS["FLAG_READ_ENCRYPTED"]: att.Attribute.Permissions.READ_REQUIRES_ENCRYPTION,
    FLAGS["FLAG_READ_AUTHENTICATED"]: att.Attribute.Permissions.READ_REQUIRES_AUTHENTICATION,
    FLAGS["FLAG_WRITE_ENCRYPTED"]: att.Attribute.Permissions.WRITE_REQUIRES_ENCRYPTION,
    FLAGS["FLAG_WRITE_AUTHENTICATED"]: att.Attribute.Permissions.WRITE_REQUIRES_AUTHENTICATION,
    FLAGS["FLAG_WRITE_AUTHORIZED"]: att.Attribute.Permissions.WRITE_REQUIRES_AUTHORIZATION,
}


class UUID:
    def __init__(self, value: int | str | bytes) -> None:
        if isinstance(value, int):
            self._raw = value.to_bytes(2, "little")
        elif isinstance(value, str):
            self._raw = uuid.UUID(value).bytes[::-1]
        else:
            self._raw = bytes(value)

    def __bytes__(self) -> bytes:
        return self._raw

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UUID) and other._raw == self._raw

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        if len(self._raw) == 2:
            return f"UUID(0x{int.from_bytes(self._raw, 'little'):04x})"
        return f"UUID('{uuid.UUID(bytes=self._raw[::-1])}')"


class _Value:
    def __init__(self, attribute: att.Attribute[Any], can_write: bool) -> None:
        self.attribute = attribute
        self.can_write = can_write
        self.data = b""
        self.limit = DEFAULT_VALUE_BYTES
        self.append = False

    def put(self, data: bytes) -> None:
        self.data = ((self.data if self.append else b"") + data)[: self.limit]


class BLE:
    """What `bluetooth.BLE()` gives: one for each boot of a mote.

    `wait` blocks the firmware until something asynchronous is done; without one the radio must be on already.
    `report` is told of exceptions in the firmware's handlers, which on a board are printed and go no further.
    """

    def __init__(
        self,
        radio: Radio,
        report: Callable[[BaseException], None],
        wait: Callable[[Coroutine[Any, Any, None]], None] | None = None,
    ) -> None:
        self._radio = radio
        self._report = report
        self._wait = wait
        self._is_active = False
        self._handler: Callable[[int, tuple[Any, ...]], Any] | None = None
        self._values: dict[int, _Value] = {}
        self._connections: dict[int, Connection] = {}
        self._connected_s: dict[int, float] = {}
        """Since when."""
        self._settings: dict[str, Any] = {
            "gap_name": "MPY", "mtu": 256, "rxbuf": 256, "addr_mode": 0,
            "bond": False, "mitm": False, "io": _NO_INPUT_NO_OUTPUT, "le_secure": False,
        }  # fmt: skip
        self._wanted: tuple[float | None, bool] = (None, True)
        self._advertising: asyncio.Task[None] | None = None
        self._passkeys: dict[tuple[int, int], asyncio.Future[int]] = {}
        self._tasks: set[asyncio.Future[Any]] = set()

    # ---- life

    def active(self, on: bool | None = None, /) -> bool:
        if on is not None and bool(on) != self._is_active:
            if on:
                self._start()
            else:
                self.stop()
        return self._is_active

    def _start(self) -> None:
        if not self._radio.is_on:
            if self._wait is None:
                raise OSError(errno.ENODEV)
            self._wait(self._radio.power_on())
        device = self._radio.device
        device.on("connection", self._on_connection)
        device.pairing_config_factory = self._pairing
        device.keystore = _Secrets(self) if self._settings["bond"] else device.keystore
        self._is_active = True

    def stop(self) -> None:
        """Switches the radio off, as active(False), a reset and deep sleep do."""
        self._is_active = False
        for task in list(self._tasks):
            task.cancel()
        for handle in list(self._connected_s):
            self._count_connected(handle)
        self._connections.clear()
        self._values.clear()
        self._radio.power_off()

    def irq(self, handler: Callable[[int, tuple[Any, ...]], Any]) -> None:
        self._handler = handler

    def config(self, name: str | None = None, /, **settings: Any) -> Any:
        device = self._radio.device
        if name == "mac":
            return 1, bytes(device.random_address)[::-1]
        if name is not None:
            if name not in self._settings:
                raise ValueError("unknown config param")
            return self._settings[name]
        unknown = settings.keys() - self._settings.keys()
        if unknown:
            raise ValueError("unknown config param")
        self._settings.update(settings)
        if "mtu" in settings:
            device.gatt_server.max_mtu = settings["mtu"]
        if settings.get("bond"):
            device.keystore = _Secrets(self)
        return None

    def fire(self, event: int, *data: Any) -> Any:
        """Calls the firmware's handler; what it raises is reported and swallowed, as on a board."""
        if self._handler is None or not self._is_active:
            return None
        try:
            return self._handler(event, data)
        except Exception as error:  # noqa: BLE001 - any error of the firmware's; it is reported
            self._report(error)
            return None

    def _spawn(self, work: Awaitable[Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, core.BaseBumbleError):
            self._report(error)

    # ---- advertising

    def gap_advertise(
        self,
        interval_us: int | None,
        adv_data: bytes | None = None,
        *,
        resp_data: bytes | None = None,
        connectable: bool = True,
    ) -> None:
        if not self._is_active:
            raise OSError(errno.ENODEV)
        device = self._radio.device
        for data in (adv_data, resp_data):
            if data is not None and len(data) > MAX_ADVERT_BYTES:
                raise OSError(errno.EINVAL)
        if adv_data is not None:
            device.advertising_data = bytes(adv_data)
        if resp_data is not None:
            device.scan_response_data = bytes(resp_data)
        interval_ms = None if interval_us is None else max(MIN_INTERVAL_MS, interval_us / 1000)
        self._wanted = (interval_ms, connectable)
        if self._advertising is None or self._advertising.done():
            self._advertising = asyncio.ensure_future(self._advertise())
            self._tasks.add(self._advertising)
            self._advertising.add_done_callback(self._ended)

    async def _advertise(self) -> None:
        """Brings the radio to what was wanted last."""
        device, done = self._radio.device, None
        while done is not self._wanted:
            done = self._wanted
            interval_ms, connectable = done
            if device.is_advertising:
                await device.stop_advertising()
            if interval_ms is not None:
                kind = AdvertisingType.UNDIRECTED_CONNECTABLE_SCANNABLE if connectable else _scannable(device)
                await device.start_advertising(
                    kind, advertising_interval_min=interval_ms, advertising_interval_max=interval_ms
                )

    # ---- connections

    def _on_connection(self, connection: Connection) -> None:
        handle = connection.handle
        peer = bytes(connection.peer_address)[::-1]
        kind = int(connection.peer_address.address_type)
        self._connections[handle] = connection
        self._connected_s[handle] = asyncio.get_running_loop().time()

        def gone(_reason: int) -> None:
            self._count_connected(handle)
            if self._connections.pop(handle, None) is not None:
                self.fire(_DISCONNECTED, handle, kind, memoryview(peer))

        connection.on("disconnection", gone)
        connection.on("connection_att_mtu_update", lambda: self.fire(_MTU, handle, connection.att_mtu))
        connection.on("connection_encryption_change", lambda: self._spawn(self._encrypted(connection)))
        self.fire(_CONNECTED, handle, kind, memoryview(peer))

    def _count_connected(self, handle: int) -> None:
        since_s = self._connected_s.pop(handle, None)
        if since_s is not None:
            self._radio.traffic.connected_s += asyncio.get_running_loop().time() - since_s

    async def _encrypted(self, connection: Connection) -> None:
        """bumble takes all that is encrypted for authenticated; that is only where somebody compared or entered."""
        device = self._radio.device
        keys = await device.keystore.get(str(connection.peer_address)) if device.keystore else None
        session = device.smp_manager.sessions.get(connection.handle)
        if session is not None:
            connection.authenticated = session.pairing_method != PairingMethod.JUST_WORKS
        elif keys is not None and keys.ltk is not None:
            connection.authenticated = keys.ltk.authenticated
        is_encrypted, authenticated = bool(connection.encryption), bool(connection.authenticated)
        self.fire(_ENCRYPTED, connection.handle, is_encrypted, authenticated, keys is not None, _KEY_BYTES)

    def gap_disconnect(self, conn_handle: int, /) -> bool:
        connection = self._connections.get(conn_handle)
        if connection is not None:
            self._spawn(connection.disconnect())
        return connection is not None

    def _connection(self, handle: int) -> Connection:
        try:
            return self._connections[handle]
        except KeyError:
            raise OSError(errno.ENOTCONN) from None

    # ---- values

    def gatts_register_services(self, services: Any, /) -> tuple[tuple[int, ...], ...]:
        """Once after active(True): bumble cannot take services away again."""
        if self._values:
            raise OSError(errno.EALREADY)
        return tuple(self._register(name, characteristics) for name, characteristics in services)

    def _register(self, name: UUID, characteristics: Any) -> tuple[int, ...]:
        values = []
        for known_as, flags, *rest in characteristics:
            descriptors = [self._descriptor(*descriptor) for descriptor in (rest[0] if rest else ())]
            properties = Characteristic.Properties(flags & _PROPERTIES)
            attributes = [value.attribute for value in descriptors]
            main = Characteristic(_uuid(known_as), properties, _permissions(flags), None, attributes)  # type: ignore
            value = _Value(main, bool(flags & _WRITES))
            main.value = self._door(value)
            values += [value, *descriptors]
        parts = [value.attribute for value in values if isinstance(value.attribute, Characteristic)]
        self._radio.device.add_service(Service(_uuid(name), parts))
        self._values.update((value.attribute.handle, value) for value in values)
        return tuple(value.attribute.handle for value in values)

    def _descriptor(self, known_as: UUID, flags: int) -> _Value:
        descriptor = Descriptor(_uuid(known_as), _permissions(flags), b"")
        value = _Value(descriptor, bool(flags & _WRITES))
        descriptor.value = self._door(value)
        return value

    def _door(self, value: _Value) -> CharacteristicValue[bytes]:
        def read(connection: Connection) -> bytes:
            refused = self.fire(_TO_BE_READ, connection.handle, value.attribute.handle)
            if refused:
                raise att.ATT_Error(refused, value.attribute.handle)
            return value.data

        def write(connection: Connection, data: bytes) -> None:
            if not value.can_write:  # bumble does not refuse it
                raise att.ATT_Error(att.ATT_WRITE_NOT_PERMITTED_ERROR, value.attribute.handle)
            value.put(data)
            self.fire(_WRITTEN, connection.handle, value.attribute.handle)

        return CharacteristicValue(read=read, write=write)

    def gatts_read(self, value_handle: int, /) -> bytes:
        value = self._value(value_handle)
        data = value.data
        if value.append:
            value.data = b""
        return data

    def gatts_write(self, value_handle: int, data: bytes, send_update: bool = False, /) -> None:
        value = self._value(value_handle)
        value.limit = max(value.limit, len(data))
        value.data = bytes(data)
        if send_update:
            for connection in list(self._connections.values()):
                update = self._radio.device.gatt_server.notify_subscriber(connection, value.attribute, value.data)
                self._spawn(update)

    def gatts_set_buffer(self, value_handle: int, length: int, append: bool = False, /) -> None:
        value = self._value(value_handle)
        value.limit, value.append = length, append

    def gatts_notify(self, conn_handle: int, value_handle: int, data: bytes | None = None, /) -> None:
        connection = self._connection(conn_handle)
        value = self._value(value_handle).data if data is None else bytes(data)
        queue = self._radio.device.host.le_acl_packet_queue
        if queue is not None and queue.pending > MAX_UNSENT_PACKETS:
            raise OSError(errno.ENOMEM)
        packet = att.ATT_Handle_Value_Notification(
            attribute_handle=value_handle, attribute_value=value[: connection.att_mtu - 3]
        )
        self._radio.device.gatt_server.send_gatt_pdu(connection, bytes(packet))

    def gatts_indicate(self, conn_handle: int, value_handle: int, data: bytes | None = None, /) -> None:
        connection = self._connection(conn_handle)
        value = self._value(value_handle)
        self._spawn(self._indicate(connection, value, value.data if data is None else bytes(data)))

    async def _indicate(self, connection: Connection, value: _Value, data: bytes) -> None:
        server = self._radio.device.gatt_server
        status = 0
        try:
            sent = server.indicate_subscriber(connection, value.attribute, data, force=True)
            await connection.cancel_on_disconnection(sent)
        except (core.BaseBumbleError, TimeoutError, asyncio.CancelledError):
            status = errno.ETIMEDOUT
        self.fire(_INDICATED, connection.handle, value.attribute.handle, status)

    def _value(self, handle: int) -> _Value:
        try:
            return self._values[handle]
        except KeyError:
            raise OSError(errno.EINVAL) from None

    # ---- pairing

    def gap_pair(self, conn_handle: int, /) -> None:
        self._connection(conn_handle).request_pairing()

    def gap_passkey(self, conn_handle: int, action: int, passkey: int, /) -> None:
        answer = self._passkeys.pop((conn_handle, action), None)
        if answer is None:
            raise OSError(errno.EINVAL)
        if not answer.done():
            answer.set_result(passkey)

    def _pairing(self, connection: Connection) -> PairingConfig:
        settings = self._settings
        return PairingConfig(
            sc=settings["le_secure"],
            mitm=settings["mitm"],
            bonding=settings["bond"],
            delegate=_Delegate(self, connection.handle, PairingDelegate.IoCapability(settings["io"])),
        )

    async def ask(self, conn_handle: int, action: int, number: int) -> int:
        """Lets the firmware's handler show, compare or enter a passkey."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._passkeys[conn_handle, action] = answer
        self.fire(_PASSKEY, conn_handle, action, number)
        return await asyncio.wait_for(answer, ANSWER_S)


class _Delegate(PairingDelegate):
    def __init__(self, ble: BLE, handle: int, io: PairingDelegate.IoCapability) -> None:
        super().__init__(io_capability=io)
        self._ble = ble
        self._handle = handle

    async def generate_passkey(self) -> int:
        return await self._ble.ask(self._handle, _DISPLAY, 0)

    async def compare_numbers(self, number: int, digits: int) -> bool:  # noqa: ARG002 - it is always six
        return bool(await self._ble.ask(self._handle, _COMPARE, number))

    async def get_number(self) -> int | None:
        return await self._ble.ask(self._handle, _INPUT, 0)


class _Secrets(KeyStore):
    """Bonds are the firmware's to keep: it is asked by IRQ, as on a board."""

    def __init__(self, ble: BLE) -> None:
        self._ble = ble

    async def update(self, name: str, keys: PairingKeys) -> None:
        self._set(name, json.dumps({"name": name, **keys.to_dict()}).encode())

    async def delete(self, name: str) -> None:
        self._set(name, None)

    async def get(self, name: str) -> PairingKeys | None:
        return _keys(self._ble.fire(_GET_SECRET, _PEER_SECRET, 0, memoryview(name.encode())))

    async def get_all(self) -> list[tuple[str, PairingKeys]]:
        found: list[tuple[str, PairingKeys]] = []
        while True:
            value = self._ble.fire(_GET_SECRET, _PEER_SECRET, len(found), None)
            keys = _keys(value)
            if keys is None:
                return found
            found.append((json.loads(bytes(value))["name"], keys))

    def _set(self, name: str, value: bytes | None) -> None:
        key = memoryview(name.encode())
        self._ble.fire(_SET_SECRET, _PEER_SECRET, key, None if value is None else memoryview(value))


def _keys(value: Any) -> PairingKeys | None:
    return PairingKeys.from_dict(json.loads(bytes(value))) if value else None


def _uuid(given: UUID | int | str) -> core.UUID:
    return core.UUID.from_bytes(bytes(given if isinstance(given, UUID) else UUID(given)))


def _permissions(flags: int) -> att.Attribute.Permissions:
    allowed = att.Attribute.Permissions(0)
    if flags & _READ:
        allowed |= att.Attribute.Permissions.READABLE
    if flags & _WRITES:
        allowed |= att.Attribute.Permissions.WRITEABLE
    for flag, permission in _PERMISSIONS.items():
        if flags & flag:
            allowed |= permission
    return allowed


def _scannable(device: Any) -> AdvertisingType:
    return AdvertisingType.UNDIRECTED_SCANNABLE if device.scan_response_data else AdvertisingType.UNDIRECTED


def module(ble: BLE) -> types.ModuleType:
    """The `bluetooth` that a firmware imports; `BLE()` always gives this one."""
    made = types.ModuleType("bluetooth")
    made.__dict__.update(FLAGS, UUID=UUID, BLE=lambda: ble)
    return made
