"""The virtual radio: physics, advertising, and connections that come and go; all in virtual time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter

import pytest
from bleak import BleakClient, BleakScanner
from bleak.exc import BleakError
from virtual_ble import CENTRAL, PERIPHERAL, PLAIN, READ, WRITE, Peripheral, beacon

from spinney_tools.sim import bleak_backend, clock
from spinney_tools.sim.air import Air
from spinney_tools.sim.propagation import Interference, Place, Propagation
from spinney_tools.sim.radio import Radio


async def _heard(
    air: Air, seconds: float, place: Place = (0.0, 0.0), mode: str = "active"
) -> list[tuple[str, int, str | None]]:
    """What a scanner hears: address, RSSI, name."""
    radio = Radio(air, "hci0", CENTRAL, place)
    await radio.power_on()
    found: list[tuple[str, int, str | None]] = []
    with bleak_backend.install():
        bleak_backend.add_adapter(radio)
        scanner = BleakScanner(
            lambda device, data: found.append((device.address, data.rssi, data.local_name)),
            scanning_mode=mode,  # type: ignore[arg-type]
        )
        async with scanner:
            await asyncio.sleep(seconds)
    radio.power_off()
    return found


def test_virtual_time_jumps_over_idle_hours_and_ends_exactly_when_due() -> None:
    async def day() -> float:
        await asyncio.sleep(86_400)
        return asyncio.get_running_loop().time()

    began = time.monotonic()
    assert clock.run(day()) == 86_400
    assert time.monotonic() - began < 5


def test_virtual_time_with_a_speed_is_paced_by_real_time() -> None:
    began = time.monotonic()
    clock.run(asyncio.sleep(20), speed=100)
    assert 0.19 <= time.monotonic() - began < 5


def test_the_pace_of_virtual_time_can_be_changed_and_time_goes_on_from_where_it_was() -> None:
    async def run() -> list[float]:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, clock.VirtualLoop)
        times = []
        for speed in (clock.AS_FAST_AS_POSSIBLE, 200.0, 1000.0, clock.AS_FAST_AS_POSSIBLE):
            loop.pace(speed)
            began = time.monotonic()
            await asyncio.sleep(20)
            assert time.monotonic() - began >= 0.99 * 20 / speed
            times.append(loop.time())
        with pytest.raises(ValueError, match="above 0"):
            loop.pace(0)
        return times

    assert clock.run(run()) == pytest.approx([20, 40, 60, 80], abs=1e-6)


@pytest.mark.parametrize("metres", [1.0, 10.0, 100.0])
def test_rssi_falls_with_the_distance_by_the_published_formula(metres: float) -> None:
    async def scan() -> set[int]:
        air = Air(propagation=PLAIN)
        beacon(air).start()
        return {rssi for _, rssi, _ in await _heard(air, 3, (metres, 0.0))}

    assert clock.run(scan()) == {round(PLAIN.mean_dbm("a", (0, 0), "b", (metres, 0), 0.0))}


def test_nobody_is_heard_beyond_the_range_and_few_at_its_edge() -> None:
    async def scan(metres: float) -> int:
        air = Air(propagation=PLAIN)
        beacon(air).start()
        return len(await _heard(air, 30, (metres, 0.0)))

    edge_m = PLAIN.range_m()
    near, at_edge, beyond = (clock.run(scan(metres)) for metres in (edge_m / 2, edge_m * 0.97, edge_m * 1.01))
    assert near > 250
    assert 0 < at_edge < near * 0.8
    assert beyond == 0
    assert PLAIN.loss(PLAIN.sensitivity_dbm - 0.1) == 1.0
    assert PLAIN.loss(PLAIN.sensitivity_dbm + 20.0) < 1e-6


def test_adverts_come_at_their_interval_with_the_random_delay_of_the_standard() -> None:
    async def scan() -> list[float]:
        air = Air()
        await Peripheral(Radio(air, "p1", PERIPHERAL)).start()
        radio = Radio(air, "hci0", CENTRAL)
        await radio.power_on()
        times: list[float] = []
        radio.device.on("advertisement", lambda _advertisement: times.append(asyncio.get_running_loop().time()))
        await radio.device.start_scanning(legacy=True, active=False)
        await asyncio.sleep(60)
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    gaps = clock.run(scan())
    assert min(gaps) >= 0.1
    assert max(gaps) <= 0.1101
    assert max(gaps) - min(gaps) > 0.005


def test_scan_responses_come_to_active_scanners_only() -> None:
    async def names(mode: str) -> set[str | None]:
        air = Air()
        await Peripheral(Radio(air, "p1", PERIPHERAL)).start()
        return {name for _, _, name in await _heard(air, 2, mode=mode)}

    assert "p1" in clock.run(names("active"))
    assert clock.run(names("passive")) == {None}


def test_a_non_connectable_advert_is_heard_and_takes_no_connection() -> None:
    async def attempt() -> None:
        air = Air()
        await Peripheral(Radio(air, "p1", PERIPHERAL)).start(connectable=False)
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            device = await BleakScanner.find_device_by_address(PERIPHERAL, timeout=2)
            assert device is not None
            with pytest.raises((TimeoutError, BleakError)):
                await BleakClient(device, timeout=3).connect()

    clock.run(attempt())


def test_adverts_that_overlap_spoil_each_other_unless_one_is_much_stronger() -> None:
    async def scan(places: list[Place]) -> tuple[Counter[str], Air]:
        air = Air(propagation=PLAIN, collisions=True)
        for number, place in enumerate(places):
            beacon(air, number, place, interval_ms=20).start()
        return Counter(address for address, _, _ in await _heard(air, 5)), air

    alike, air = clock.run(scan([(0.0, 10.0)] * 30))
    assert air.counts["lost: collision"] > 1000
    assert alike
    strong, _ = clock.run(scan([(0.0, 1.0), *[(0.0, 60.0)] * 29]))
    sent = 5 / 0.025
    assert strong["C1:00:00:00:00:00"] > sent * 0.95


def test_interference_spoils_its_share_within_its_radius() -> None:
    async def scan(place: Place) -> int:
        air = Air(propagation=PLAIN)
        air.interference = [Interference((0.0, 0.0), 5.0, 0.5)]
        beacon(air, place=(1.0, 0.0)).start()
        return len(await _heard(air, 60, place))

    inside, outside = clock.run(scan((0.0, 0.0))), clock.run(scan((9.0, 0.0)))
    assert outside > 550
    assert 0.4 < inside / outside < 0.6


def test_the_same_seed_gives_the_same_receptions_and_another_seed_others() -> None:
    async def scan(seed: int) -> list[tuple[str, int, str | None]]:
        air = Air(seed, Propagation(seed=seed), collisions=True)
        for number in range(20):
            beacon(air, number, (number * 8.0, 0.0)).start()
        return await _heard(air, 5)

    assert clock.run(scan(1)) == clock.run(scan(1))
    assert clock.run(scan(1)) != clock.run(scan(2))


def test_data_reach_the_host_in_fragments_that_its_buffers_hold() -> None:
    async def talk() -> tuple[bytes, int]:
        air = Air()
        peripheral = Peripheral(Radio(air, "p1", PERIPHERAL, fragment_bytes=27))
        await peripheral.start()
        sizes: list[int] = []
        controller = peripheral.radio.controller
        send = controller.send_hci_packet
        controller.send_hci_packet = lambda packet: (sizes.append(len(bytes(packet))), send(packet))[1]  # type: ignore
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            async with BleakClient(PERIPHERAL) as client:
                await client.write_gatt_char(WRITE, bytes(range(200)), response=True)
        return peripheral.written[0], max(sizes)

    written, largest = clock.run(talk())
    assert written == bytes(range(200))
    assert largest <= 27 + 5


def test_a_connection_out_of_range_is_lost_after_the_supervision_time_on_both_sides() -> None:
    async def leave() -> tuple[float, list[int]]:
        air = Air(supervision_s=4.0, propagation=PLAIN)
        peripheral = await Peripheral(Radio(air, "p1", PERIPHERAL)).start()
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        lost = asyncio.Event()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            client = BleakClient(PERIPHERAL, disconnected_callback=lambda _client: lost.set())
            await client.connect()
            began = asyncio.get_running_loop().time()
            peripheral.radio.move((10_000.0, 0.0))
            with pytest.raises(BleakError):
                await client.read_gatt_char(READ)
            await lost.wait()
            assert not client.is_connected
            return asyncio.get_running_loop().time() - began, [event for event, _ in peripheral.events]

    after, events = clock.run(leave())
    assert after == pytest.approx(4.0, abs=0.01)
    assert 2 in events


def test_back_in_range_in_time_what_was_held_arrives_in_order() -> None:
    async def wander() -> list[bytes]:
        air = Air(supervision_s=4.0, propagation=PLAIN)
        peripheral = await Peripheral(Radio(air, "p1", PERIPHERAL)).start()
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            async with BleakClient(PERIPHERAL) as client:
                peripheral.radio.move((10_000.0, 0.0))
                for number in range(5):
                    await client.write_gatt_char(WRITE, bytes([number]), response=False)
                await asyncio.sleep(3)
                assert peripheral.written == []
                peripheral.radio.move((1.0, 0.0))
                await client.write_gatt_char(WRITE, b"last", response=True)
        written: list[bytes] = peripheral.written
        return written

    assert clock.run(wander()) == [b"\x00", b"\x01", b"\x02", b"\x03", b"\x04", b"last"]


def test_after_an_attempt_that_was_given_up_the_adapter_connects_to_others() -> None:
    async def attempts() -> bytes:
        air = Air()
        near = await Peripheral(Radio(air, "p1", PERIPHERAL)).start()
        gone = await Peripheral(Radio(air, "p2", "C0:00:00:00:00:02")).start("p2")
        hci0 = Radio(air, "hci0", CENTRAL)
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            device = await BleakScanner.find_device_by_name("p2", timeout=2)
            assert device is not None
            gone.ble.stop()
            with pytest.raises(TimeoutError):
                await BleakClient(device, timeout=2).connect()
            attempt = asyncio.create_task(BleakClient(device).connect())
            await asyncio.sleep(0.5)
            attempt.cancel()
            await asyncio.wait([attempt])
            async with BleakClient(PERIPHERAL) as client:
                value = await client.read_gatt_char(READ)
        assert not near.errors
        return bytes(value)

    assert clock.run(attempts()) == b"a long value " * 20
