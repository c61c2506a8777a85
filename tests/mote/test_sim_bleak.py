"""Code that uses bleak, unchanged, on the virtual radio, against MicroPython's bluetooth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import bleak
import pytest
from bleak import BleakClient, BleakScanner
from bleak.exc import BleakDeviceNotFoundError, BleakError, BleakGATTProtocolError
from virtual_ble import CENTRAL, INDICATE, NOTIFY, PERIPHERAL, READ, SECURE, SERVICE, SHORT, WRITE, Peripheral

from spinney_tools.sim import bleak_backend, clock
from spinney_tools.sim.air import Air
from spinney_tools.sim.mp_bluetooth import DEFAULT_VALUE_BYTES
from spinney_tools.sim.radio import Radio

Talk = Callable[[BleakClient, Peripheral], Awaitable[None]]


def _connected(talk: Talk, passkey: int | None = None) -> Peripheral:
    async def run() -> Peripheral:
        air = Air(interval_s=0.01)
        peripheral = await Peripheral(Radio(air, "p1", PERIPHERAL), passkey).start()
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            async with BleakClient(PERIPHERAL) as client:
                await talk(client, peripheral)
        return peripheral

    return clock.run(run())


def test_services_properties_and_mtu_are_what_the_firmware_registered() -> None:
    async def talk(client: BleakClient, _peripheral: Peripheral) -> None:
        service = client.services.get_service(SERVICE)
        assert service is not None
        found = {each.uuid: set(each.properties) for each in service.characteristics}
        assert found[WRITE] == {"write", "write-without-response"}
        assert found[NOTIFY] == {"read", "notify"}
        assert found[INDICATE] == {"indicate"}
        assert client.mtu_size == 247

    peripheral = _connected(talk)
    assert (21, 247) in [(event, data[1]) for event, data in peripheral.events if event == 21]


def test_values_longer_than_a_packet_are_read_and_written_whole() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        assert await client.read_gatt_char(READ) == b"a long value " * 20
        sizes: list[int] = []
        sniffer = bleak_backend.adapter().radio.air.sniffer
        sniffer.data = lambda _sender, _receiver, size: sizes.append(size)  # type: ignore[method-assign]
        await client.write_gatt_char(WRITE, b"x" * 500, response=True)
        assert peripheral.written == [b"x" * 500]
        assert max(sizes) <= client.mtu_size + 4, "L2CAP's head, and no more than the MTU"
        with pytest.raises(BleakError):
            await client.write_gatt_char(WRITE, b"x" * 513, response=True)

    _connected(talk)


def test_notifications_come_in_order_and_stop() -> None:
    async def talk(client: BleakClient, _peripheral: Peripheral) -> None:
        found: list[int] = []
        await client.start_notify(NOTIFY, lambda _sender, data: found.append(data[0]))
        for number in range(100):
            await client.write_gatt_char(WRITE, bytes([number]), response=number % 10 == 0)
        await client.write_gatt_char(WRITE, b"\xff", response=True)
        assert found == [*range(100), 255]
        await client.stop_notify(NOTIFY)
        await client.write_gatt_char(WRITE, b"\x01", response=True)
        assert len(found) == 101

    _connected(talk)


def test_an_indication_is_confirmed_to_the_firmware() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        came = asyncio.Event()
        await client.start_notify(INDICATE, lambda _sender, _data: came.set())
        connection = next(data[0] for event, data in peripheral.events if event == 1)
        peripheral.ble.gatts_indicate(connection, peripheral.handles[4], b"hello")
        await came.wait()
        await client.read_gatt_char(READ)
        assert (20, (connection, peripheral.handles[4], 0)) in peripheral.events

    _connected(talk)


def test_a_value_without_a_buffer_of_its_own_is_truncated_as_on_a_board() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        await client.write_gatt_char(SHORT, b"y" * 100, response=True)
        assert len(peripheral.ble.gatts_read(peripheral.handles[5])) == DEFAULT_VALUE_BYTES

    _connected(talk)


def test_a_notification_beyond_the_hosts_buffers_raises_enomem() -> None:
    async def talk(_client: BleakClient, peripheral: Peripheral) -> None:
        connection = next(data[0] for event, data in peripheral.events if event == 1)
        send = partial(peripheral.ble.gatts_notify, connection, peripheral.handles[1], b"z" * 200)
        with pytest.raises(OSError, match="12"):
            [send() for _ in range(500)]

    _connected(talk)


def test_a_write_to_what_is_read_only_is_refused() -> None:
    async def talk(client: BleakClient, _peripheral: Peripheral) -> None:
        with pytest.raises(BleakGATTProtocolError, match="Write Not Permitted"):
            await client.write_gatt_char(READ, b"no", response=True)

    _connected(talk)


def test_what_needs_encryption_is_refused_before_pairing_and_taken_after_it() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        with pytest.raises(BleakGATTProtocolError, match="Insufficient Encryption"):
            await client.write_gatt_char(SECURE, b"secret", response=True)
        await client.pair()
        await client.write_gatt_char(SECURE, b"secret", response=True)
        assert peripheral.ble.gatts_read(peripheral.handles[3]) == b"secret"

    peripheral = _connected(talk)
    encrypted = [data for event, data in peripheral.events if event == 28]
    assert encrypted[-1][1] is True
    assert encrypted[-1][2] is False, "nobody compared anything: it is not authenticated"


def test_a_bond_is_kept_by_the_firmware_and_used_when_connecting_again() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        await client.pair()
        await client.write_gatt_char(SECURE, b"first", response=True)
        await client.disconnect()
        assert len(peripheral.secrets) == 1
        kept = dict(peripheral.secrets)
        await client.connect()
        await client.pair()
        await client.write_gatt_char(SECURE, b"again", response=True)
        assert peripheral.secrets == kept, "no second pairing"

    _connected(talk)


def test_a_bond_that_the_mote_has_lost_does_not_encrypt() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        await client.pair()
        await client.write_gatt_char(SECURE, b"first", response=True)
        await client.disconnect()
        peripheral.secrets.clear()
        await client.connect()
        with pytest.raises(BleakError):
            await client.pair()

    _connected(talk)


@pytest.mark.parametrize("passkey", [None, 123456])
def test_only_a_passkey_that_was_entered_authenticates(passkey: int | None) -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        bleak_backend.adapter().passkey = passkey
        await client.pair()
        await client.write_gatt_char(SECURE, b"now", response=True)
        assert [data for event, data in peripheral.events if event == 28][-1][2] is (passkey is not None)

    _connected(talk, passkey=123456)


def test_a_wrong_passkey_is_refused() -> None:
    async def talk(client: BleakClient, peripheral: Peripheral) -> None:
        bleak_backend.adapter().passkey = 654321
        with pytest.raises(BleakError):
            await client.pair()
        assert not peripheral.secrets

    _connected(talk, passkey=123456)


def test_several_centrals_are_connected_at_once_each_by_its_own_adapter() -> None:
    async def run() -> None:
        air = Air()
        peripheral = await Peripheral(Radio(air, "p1", PERIPHERAL)).start()
        peripheral.on_irq = lambda event: peripheral.advertise() if event == 1 else None
        with bleak_backend.install():
            clients = []
            for number in range(3):
                radio = Radio(air, f"hci{number}", f"F0:00:00:00:00:0{number + 1}")
                await radio.power_on()
                bleak_backend.add_adapter(radio, f"hci{number}")
                clients.append(BleakClient(PERIPHERAL, bluez={"adapter": f"hci{number}"}))
            for client in clients:
                await client.connect()
            await asyncio.gather(*(client.write_gatt_char(WRITE, b"w", response=True) for client in clients))
            assert len({data[0] for event, data in peripheral.events if event == 3}) == 3
            for client in clients:
                await client.disconnect()

    clock.run(run())


def test_errors_name_what_is_not_there() -> None:
    async def run() -> None:
        air = Air()
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            with pytest.raises(BleakError, match="no virtual adapter 'hci7'; there are: hci0"):
                BleakScanner(bluez={"adapter": "hci7"})
            with pytest.raises(BleakDeviceNotFoundError, match="C0:00:00:00:00:09"):
                await BleakClient("C0:00:00:00:00:09", timeout=2).connect()

    clock.run(run())


def test_after_install_bleak_is_as_before() -> None:
    before = bleak.get_platform_scanner_backend_type  # type: ignore[attr-defined]
    with bleak_backend.install():
        assert bleak.get_platform_scanner_backend_type is not before  # type: ignore[attr-defined]
    assert bleak.get_platform_scanner_backend_type is before  # type: ignore[attr-defined]
