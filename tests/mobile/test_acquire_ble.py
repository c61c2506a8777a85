"""Adverts through bleak from the virtual radio: several adapters, none at all, one that dies without a word."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from bleak.exc import BleakBluetoothNotAvailableError, BleakBluetoothNotAvailableReason, BleakDBusError
from hearing_kit import NOW, Kept, Scene, on_air, until

from spinney.mote.advert import BTHOME, COMPANY
from spinney_mobile.acquire import Acquirers
from spinney_mobile.acquire.ble import SETTLE_SECONDS, BleAdverts, remedy_for
from spinney_mobile.configuration import Configuration
from spinney_mobile.decode import Registry
from spinney_mobile.devices import DeviceTable
from spinney_mobile.running import Running
from spinney_mobile.samples import AcquirerError
from spinney_mobile.settings import AcquireBle, Cloud, Local, Settings, Web
from spinney_mobile.settings import Watchdog as WatchdogSettings
from spinney_mobile.watchdog import EXIT_CODE, AdapterLost, ResetFailed, Watchdog
from spinney_tools.sim import bleak_backend
from spinney_tools.sim.beacons import Beacon, Recording


def bthome_beacon(scene: Scene, address: str, response: str = "", interval_ms: float = 500) -> Beacon:
    beacon = Beacon(
        scene.air,
        Recording(
            "test", address, (bytes.fromhex("0201060716d2fc4002c409"),), interval_ms, False, bytes.fromhex(response)
        ),
    )
    beacon.start()
    return beacon


@pytest.mark.parametrize("mode", ["active", "passive"])
def test_recorded_sensors_are_heard_and_decoded(mode: str) -> None:
    async def play(scene: Scene) -> None:
        table = DeviceTable(Registry.own())
        scene.beacons()
        async with Acquirers(scene.kept) as acquirers:
            acquirers.add(scene.adverts(mode=mode))
            await scene.kept.until(lambda: len({heard.address for heard in scene.kept.heards}) == 4)
            assert acquirers.status()[0].state == "hearing"
        samples = {sample.source: sample.values for heard in scene.kept.heards if (sample := table.take(heard))}
        assert samples["a4c138000001"] == {"temperature": 25.0, "humidity": 50.55}
        assert samples["cbb8334c884f"]["pressure"] == 1000.44
        assert samples["cbb8334c8850"]["humidity"] == 20.5
        assert samples["a4c138000002"]["temperature"] in (21.5, 21.6)
        assert all(heard.time >= NOW and heard.rssi is not None for heard in scene.kept.heards)

    on_air(play)


def test_several_adapters_hear_each_for_itself_and_one_device_stays_one() -> None:
    async def play(scene: Scene) -> None:
        table = DeviceTable(Registry.own())
        await scene.add_adapter("hci1", "F0:00:00:00:00:02")
        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers:
            acquirers.add(scene.adverts("hci0"))
            acquirers.add(scene.adverts("hci1"))
            await scene.kept.until(lambda: {heard.acquirer for heard in scene.kept.heards} == {"ble:hci0", "ble:hci1"})
            await scene.kept.until(lambda: len(scene.kept.heards) > 20)
        assert len([1 for heard in scene.kept.heards if table.take(heard)]) == 2
        assert len(table.seen()) == 2

    on_air(play)


def test_an_adapter_that_is_not_there_fails_alone_and_is_used_once_it_is_plugged_in() -> None:
    async def play(scene: Scene) -> None:
        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers:
            acquirers.add(scene.adverts("hci0"))
            acquirers.add(scene.adverts("hci1"))
            await scene.kept.until(lambda: scene.kept.heards)
            by_name = {status.name: status for status in acquirers.status()}
            assert by_name["ble:hci0"].state == "hearing"
            assert by_name["ble:hci1"].state == "failed"
            assert "no virtual adapter 'hci1'" in (by_name["ble:hci1"].error or "")
            await scene.add_adapter("hci1", "F0:00:00:00:00:02")
            await scene.kept.until(lambda: any(heard.acquirer == "ble:hci1" for heard in scene.kept.heards))
            assert {status.state for status in acquirers.status()} == {"hearing"}

    on_air(play)


def test_acquirers_are_added_and_removed_while_it_runs() -> None:
    async def play(scene: Scene) -> None:
        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers:
            acquirers.add(scene.adverts())
            with pytest.raises(AcquirerError, match="two acquirers ble:hci0"):
                acquirers.add(scene.adverts())
            await scene.kept.until(lambda: scene.kept.heards)
            await acquirers.remove("ble:hci0")
            count = len(scene.kept.heards)
            await asyncio.sleep(60)
            assert len(scene.kept.heards) == count
            assert acquirers.status() == []
            assert not scene.radios["hci0"].device.scanning, "nothing scans for nobody"
            acquirers.add(scene.adverts())
            await scene.kept.until(lambda: len(scene.kept.heards) > count)

    on_air(play)


def test_a_new_devices_first_advert_waits_for_its_scan_response() -> None:
    async def play(scene: Scene) -> None:
        ble = scene.adverts()
        async with Acquirers(scene.kept) as acquirers:
            acquirers.add(ble)
            began = asyncio.get_running_loop().time()
            bthome_beacon(scene, "C0:00:00:00:00:01", interval_ms=20)
            await scene.kept.until(lambda: scene.kept.heards)
            waited = asyncio.get_running_loop().time() - began
            assert SETTLE_SECONDS <= waited <= SETTLE_SECONDS + 0.1
            heard = scene.kept.heards[0]
            assert heard.time >= NOW + waited - 0.1, "the newest of those that came"
            bthome_beacon(scene, "C0:00:00:00:00:02", response="0fffffff5100000000000003000500 00".replace(" ", ""))
            await scene.kept.until(lambda: scene.kept.heards[-1].address == "C0:00:00:00:00:02")
            assert COMPANY in scene.kept.heards[-1].manufacturers
            assert BTHOME in scene.kept.heards[-1].services

    on_air(play)


# ---- the watchdog

SILENT = 30.0


def watched(scene: Scene, acquirers: Acquirers, **more: object) -> Watchdog:
    async def power_cycle(adapter: str) -> None:
        await scene.radios[adapter].power_on()

    options = {"reset": power_cycle, **more}
    return Watchdog(WatchdogSettings(silent=SILENT), acquirers, **options)  # type: ignore[arg-type]  # its options, by name


def test_an_adapter_that_dies_silently_is_back_within_the_watchdogs_time() -> None:
    async def play(scene: Scene) -> None:
        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers, asyncio.TaskGroup() as tasks:
            dog = watched(scene, acquirers)
            watching = tasks.create_task(dog.run())
            acquirers.add(scene.adverts())
            await scene.kept.until(lambda: scene.kept.heards)
            await asyncio.sleep(10 * SILENT)
            assert not dog.counts, "it is well"
            scene.radios["hci0"].power_off()
            died, count = asyncio.get_running_loop().time(), len(scene.kept.heards)
            await until(lambda: len(scene.kept.heards) > count, 3 * SILENT)
            assert asyncio.get_running_loop().time() - died < 2.2 * SILENT + 2
            assert dog.counts == {"rescans": 1, "resets": 1}
            watching.cancel()

    on_air(play)


def test_a_scan_that_stopped_needs_no_more_than_a_new_one() -> None:
    async def play(scene: Scene) -> None:
        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers, asyncio.TaskGroup() as tasks:
            dog = watched(scene, acquirers)
            watching = tasks.create_task(dog.run())
            acquirers.add(scene.adverts())
            await scene.kept.until(lambda: scene.kept.heards)
            for times in (1, 2):
                await scene.radios["hci0"].device.stop_scanning()
                count = len(scene.kept.heards)
                await until(lambda before=count: len(scene.kept.heards) > before, 2 * SILENT)
                assert dog.counts == {"rescans": times}
            watching.cancel()

    on_air(play)


@pytest.mark.parametrize(("adapter", "name"), [(None, "hci0"), ("hci0", "hci0")])
def test_an_adapter_that_has_no_name_in_the_settings_is_reset_as_the_systems_first(
    adapter: str | None, name: str
) -> None:
    async def play(scene: Scene) -> None:
        was_reset: list[str] = []

        async def note(adapter: str) -> None:
            was_reset.append(adapter)

        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers, asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(watched(scene, acquirers, reset=note).run())
            acquirers.add(scene.adverts(adapter))
            await scene.kept.until(lambda: scene.kept.heards)
            scene.radios["hci0"].power_off()
            await until(lambda: was_reset, 3 * SILENT)
            assert was_reset == [name]
            watching.cancel()

    on_air(play)


def test_an_adapter_that_nothing_helps_ends_it_with_the_reason() -> None:
    async def play(scene: Scene) -> None:
        async def fails(adapter: str) -> None:
            raise ResetFailed(f"{adapter}: no such device")

        scene.beacons(("Ruuvi",))
        async with Acquirers(scene.kept) as acquirers:
            dog = watched(scene, acquirers, reset=fails)
            acquirers.add(scene.adverts())
            await scene.kept.until(lambda: scene.kept.heards)
            scene.radios["hci0"].power_off()
            with pytest.raises(AdapterLost, match=r"ble:hci0: silent for 1[12]\d s, after .* hci0: no such device"):
                await dog.run()
        assert dog.error == "hci0: no such device"
        assert dog.counts == {"rescans": 1, "resets": 1, "failed resets": 1}

    on_air(play)


def test_a_broker_whose_adapter_nothing_helps_ends_with_the_code_by_which_systemd_starts_it_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = Settings(
        name="pi",
        data=tmp_path / "data",
        cloud=Cloud(url=None),
        acquire=(AcquireBle(adapter="hci0"),),
        local=Local(port=None),
        web=Web(port=None),
        watchdog=WatchdogSettings(silent=0.2, reset="false"),
    )
    configuration = Configuration(settings, {})

    async def main() -> int:
        scene = Scene()
        with bleak_backend.install():
            await scene.add_adapter()
            beacon = bthome_beacon(scene, "C0:00:00:00:00:01", interval_ms=20)
            running = Running(configuration, lambda: configuration)
            task = asyncio.create_task(running.run())
            await until(lambda: running._broker and running._broker.devices.counts["heard"])
            beacon.stop()
            return await task

    assert asyncio.run(asyncio.wait_for(main(), 60)) == EXIT_CODE == 75
    assert "ble:hci0: silent for" in caplog.text
    assert "leaving, so that systemd starts anew" in caplog.text


@pytest.mark.parametrize("may_exit", [True, False])
def test_where_nothing_was_ever_heard_nothing_is_wrong_enough_to_exit(may_exit: bool) -> None:
    async def play(scene: Scene) -> None:
        if not may_exit:
            beacon = bthome_beacon(scene, "C0:00:00:00:00:01")
        async with Acquirers(scene.kept) as acquirers, asyncio.TaskGroup() as tasks:
            settings = WatchdogSettings(silent=SILENT, exit=may_exit)
            dog = Watchdog(settings, acquirers, lambda _adapter: asyncio.sleep(0))
            acquirers.add(scene.adverts())
            watching = tasks.create_task(dog.run())
            if not may_exit:
                await scene.kept.until(lambda: scene.kept.heards)
                beacon.stop()
            await asyncio.sleep(20 * SILENT)
            assert not watching.done()
            assert dog.counts["resets"] >= 4, "it goes on trying"
            watching.cancel()

    on_air(play)


# ---- what a person has to mend


def test_without_a_bus_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus")

    async def main() -> None:
        await BleAdverts("ble", AcquireBle()).run(Kept())

    with pytest.raises(AcquirerError, match="sudo apt install bluez"):
        asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (BleakDBusError("org.bluez.Error.NotReady", []), "rfkill unblock"),
        (BleakDBusError("org.bluez.Error.InProgress", []), "another program"),
        (BleakDBusError("org.freedesktop.DBus.Error.AccessDenied", []), "usermod -aG bluetooth"),
        (BleakDBusError("org.freedesktop.DBus.Error.ServiceUnknown", []), "enable --now bluetooth"),
        (
            BleakBluetoothNotAvailableError("no adapters", BleakBluetoothNotAvailableReason.NO_BLUETOOTH),
            "plug one in",
        ),
        (
            BleakBluetoothNotAvailableError("off", BleakBluetoothNotAvailableReason.POWERED_OFF),
            "bluetoothctl power on",
        ),
        (TimeoutError(), "restart bluetooth"),
        (RuntimeError("what is that"), "spinney mobile doctor"),
    ],
)
def test_each_failure_of_a_scan_has_its_remedy(error: Exception, remedy: str) -> None:
    assert remedy in remedy_for(error)
