"""Virtual motes: the unchanged firmware on a board with a clock, a flash and a battery of its own."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bleak import BleakClient, BleakScanner

import spinney
from spinney.known import Known
from spinney.mote import Attribute, Compiled, Delivery
from spinney.mote import compile as compile_filter
from spinney.mote.advert import BTHOME, Advert
from spinney.mote.link import MoteLink
from spinney.mote.protocol import Event, Info
from spinney_tools import clone
from spinney_tools.sim import bleak_backend, clock
from spinney_tools.sim.air import Air
from spinney_tools.sim.battery import Battery, Consumption, Ledger
from spinney_tools.sim.mote import FIRMWARE, VirtualMote
from spinney_tools.sim.radio import Radio
from spinney_tools.sim.sniffer import Traffic

CONFIG = {
    "name": "m1",
    "sample_interval_s": 10,
    "bonded_writes": False,
    "sensors": [{"driver": "virtual", "quantities": ["temperature", "battery"]}],
}


def _on_air(work: Callable[[Air], Awaitable[None]]) -> None:
    """Runs something in virtual time, with an adapter hci0."""

    async def run() -> None:
        air = Air()
        hci0 = Radio(air, "hci0", "F0:00:00:00:00:01")
        await hci0.power_on()
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            await work(air)

    clock.run(run())


def _mote(air: Air, folder: Path, config: dict[str, Any] | None = None, **options: Any) -> VirtualMote:
    mote = VirtualMote(air, "m1", "C0:00:00:00:00:01", folder / "m1", **options)
    mote.configure({**CONFIG, **(config or {})})
    return mote


def _script(air: Air, folder: Path, text: str, **options: Any) -> VirtualMote:
    """A mote whose main.py is this text."""
    firmware = folder / "firmware"
    firmware.mkdir()
    (firmware / "main.py").write_text(text, "utf-8")
    return VirtualMote(air, "m1", "C0:00:00:00:00:01", folder / "m1", firmware=firmware, **options)


async def _advert(mote: VirtualMote, seconds: float = 30.0) -> Advert | None:
    device = await BleakScanner.find_device_by_filter(
        lambda each, data: each.address == mote.radio.address and BTHOME in data.service_data, timeout=seconds
    )
    if device is None:
        return None
    found: list[Advert] = []
    async with BleakScanner(lambda _device, data: found.append(Advert.decode(data.service_data[BTHOME]))):
        await asyncio.sleep(1.5)
    return found[-1]


async def _info(mote: VirtualMote) -> Info:
    async with BleakClient(mote.radio.address) as client, MoteLink(client) as link:
        return await link.info()


def test_the_unchanged_firmware_advertises_what_the_world_is(tmp_path: Path) -> None:
    async def work(air: Air) -> None:
        mote = _mote(air, tmp_path, world=lambda quantity: {"temperature": 21.5}.get(quantity))
        mote.power_on()
        advert = await _advert(mote)
        assert advert is not None
        assert {reading.name: reading.value for reading in advert.readings} == {"temperature": 21.5, "battery": 100}
        assert mote.board is not None
        assert mote.board.crash is None
        assert mote.flash.underlay == FIRMWARE
        mote.power_off()

    _on_air(work)


def test_a_filter_written_over_the_air_makes_the_reference_labels(tmp_path: Path) -> None:
    degrees = {"now": 20.0}

    async def work(air: Air) -> None:
        mote = _mote(air, tmp_path, {"sample_interval_s": 5}, world=lambda _quantity: degrees["now"])
        mote.power_on()
        await _advert(mote)
        async with BleakClient(mote.radio.address) as client, MoteLink(client) as link:
            info = await link.info()
            rows = [Attribute(row.name, row.p, row.q, row.low, row.high) for row in info.attributes]
            wanted = spinney.parse("WHEN temperature > 25 UNTIL temperature <= 22")
            made = compile_filter(wanted, Known({}), rows, Delivery(7))
            assert isinstance(made, Compiled)
            await link.change_filters({7: made.program})
            found: list[Event] = []

            async def follow() -> None:
                async for event in link.events():
                    found.append(event)  # noqa: PERF401 - it never ends, and is read meanwhile

            task = asyncio.create_task(follow())
            for value in (26.0, 24.0, 27.0, 22.0, 21.0):
                degrees["now"] = value
                await asyncio.sleep(10)
            task.cancel()
            await asyncio.wait([task])
        assert [event.bit for event in found] == [True, False]
        assert [event.values[0] for event in found] == [2600, 2200]
        mote.power_off()

    _on_air(work)


def test_deep_sleep_keeps_the_boot_and_goes_on_with_the_sequence(tmp_path: Path) -> None:
    async def work(air: Air) -> None:
        mote = _mote(air, tmp_path, {"deep_sleep": True, "sample_interval_s": 30}, world=lambda _quantity: 1.0)
        mote.power_on()
        await asyncio.sleep(301)
        info = await _info(mote)
        assert mote.counts["deep sleeps"] >= 9
        assert info.boot == 1
        assert info.sequence >= 9
        assert mote.flash.writes < 6, "sleeping writes no flash"
        mote.power_off()
        mote.power_on()
        await asyncio.sleep(0.5)  # it sleeps again soon
        assert (await _info(mote)).boot > 1
        mote.power_off()

    _on_air(work)


def test_sleep_saves_battery_and_an_empty_one_stops_the_mote(tmp_path: Path) -> None:
    async def work(air: Air) -> None:
        awake = _mote(air, tmp_path / "awake", world=lambda _quantity: 1.0)
        asleep = _mote(air, tmp_path / "asleep", {"deep_sleep": True, "sample_interval_s": 60})
        asleep.radio.address = "C0:00:00:00:00:02"
        for mote in (awake, asleep):
            mote.power_on()
        await asyncio.sleep(600)
        assert awake.battery.used_mah == pytest.approx(600 / 3600 * 25.0, rel=0.05)
        assert asleep.battery.used_mah < awake.battery.used_mah / 8
        asleep.battery.drain(100.0)
        await asyncio.sleep(120)
        assert asleep.counts["battery empty"] == 1
        assert not asleep.is_on
        awake.power_off()

    _on_air(work)


def test_each_thing_that_a_mote_does_costs_what_the_model_says() -> None:
    use = Consumption(run_ma=10.0, idle_ma=4.0, radio_ma=6.0, light_sleep_ma=2.0, deep_sleep_ma=1.0)
    use = replace(use, boot_s=0.3, load_s=0.2, radio_start_s=0.1, read_s=0.01, tx_ma=100.0, rx_ma=50.0, ramp_us=100.0)
    use = replace(use, listen_us=50.0, connection_interval_s=0.5)
    on_air = Traffic(adverts=2, advert_bytes=20, scan_responses=1, scan_response_bytes=10, connected_s=1.0)
    on_air.sent_packets, on_air.sent_bytes, on_air.received_packets, on_air.received_bytes = 1, 20, 2, 10
    used = Ledger(10.0, 2.0, 3.0, 4.0, starts=2, radio_starts=3, reads=5, traffic=on_air)
    # an advert: three times 300 us of listening and 16 bytes; a byte is sent in 8 us
    advert_uc, byte_uc = 3 * (0.3 * 50 + 16 * 0.8), 0.8
    event_uc = 0.25 * 50 + 10 * 0.4 + 10 * 0.8
    assert use.shares(used) == pytest.approx(
        {
            "deep sleep": 10_000,
            "light sleep": 4_000,
            "starts": 2 * 0.5 * 10_000,
            "samples": 5 * 0.01 * 10_000,
            "awake, radio off": 12_000,
            "awake, radio on": 24_000,
            "radio's starts": 3 * 0.1 * 10_000,
            "adverts": 2 * advert_uc + 20 * 3 * byte_uc,
            "scan responses": 28 * 0.4 + 0.15 * 50 + 16 * byte_uc + 10 * byte_uc,
            "connections": 2 * event_uc + 10 * 0.8 + 20 * 0.8 + 2 * 10 * 0.4 + 10 * 0.4,
        }
    )
    battery = Battery(1000.0, use)
    battery.ledger = used
    assert battery.used_mah == pytest.approx(sum(use.shares(used).values()) / 3_600_000)


def test_the_page_charges_an_advert_as_the_model_does() -> None:
    script = clone.root() / "cloud" / "spinney_cloud" / "dashboard" / "static" / "savings.js"
    found = re.search(r"MOTE = \{ message: ([\d.]+), byte: ([\d.]+), size: 31 \}", script.read_text("utf-8"))
    assert found is not None
    of_advert, of_bytes = (
        Consumption().shares(Ledger(traffic=traffic))["adverts"]
        for traffic in (Traffic(adverts=1), Traffic(advert_bytes=1))
    )
    assert float(found[1]) == pytest.approx(of_advert, abs=0.5)
    assert float(found[2]) == pytest.approx(of_bytes, abs=0.005)


def test_what_a_mote_does_is_in_its_ledger(tmp_path: Path) -> None:
    async def work(air: Air) -> None:
        mote = _mote(air, tmp_path, {"deep_sleep": True, "sample_interval_s": 60}, world=lambda _quantity: 1.0)
        mote.power_on()
        await asyncio.sleep(1800)
        used = mote.battery.ledger
        assert used.samples == used.starts == used.radio_starts == 30
        assert used.reads == 60
        assert used.idle_s + used.light_sleep_s < 1.0
        per_start_s = mote.battery.consumption.boot_s + mote.battery.consumption.load_s
        assert used.radio_s + used.asleep_s + used.starts * per_start_s == pytest.approx(1800, abs=60)
        assert used.traffic is mote.radio.traffic
        assert used.traffic.adverts > 30
        mote.power_off()

    _on_air(work)


def test_power_cut_in_the_middle_of_a_write_leaves_a_part_and_the_mote_starts_again(tmp_path: Path) -> None:
    main = 'import os\nwith open("a.bin", "wb") as f:\n    f.write(bytes(100))\nprint("done")\n'

    async def work(air: Air) -> None:
        mote = _script(air, tmp_path, main)
        mote.flash.cut_after_bytes = 40
        mote.power_on()
        await asyncio.sleep(1)
        assert not mote.is_on
        assert mote.counts["power cuts"] == 1
        assert (tmp_path / "m1" / "a.bin").stat().st_size == 40
        mote.flash.cut_after_bytes = None
        mote.power_on()
        await asyncio.sleep(1)
        assert list(mote.log) == ["done"]
        assert (tmp_path / "m1" / "a.bin").stat().st_size == 100
        mote.power_off()

    _on_air(work)


def test_the_real_firmware_survives_a_power_cut_at_any_early_byte_of_its_flash(tmp_path: Path) -> None:
    async def work(air: Air) -> None:
        for cut in range(0, 40, 3):
            mote = _mote(air, tmp_path / str(cut), world=lambda _quantity: 5.0)
            mote.flash.cut_after_bytes = cut
            mote.power_on()
            await asyncio.sleep(2)
            mote.power_off()
            mote.flash.cut_after_bytes = None
            mote.power_on()
            await asyncio.sleep(1)
            assert (await _info(mote)).last_crash == ""
            mote.power_off()

    _on_air(work)


def test_a_hanging_firmware_is_reset_by_its_watchdog(tmp_path: Path) -> None:
    main = (
        "import machine, time\nprint(machine.reset_cause())\nmachine.WDT(timeout=5000)\n"
        "while True:\n    time.sleep_ms(100)\n"
    )

    async def work(air: Air) -> None:
        mote = _script(air, tmp_path, main)
        mote.power_on()
        await asyncio.sleep(12)
        assert mote.counts["watchdog resets"] == 2
        assert list(mote.log) == ["1", "3", "3"]
        mote.power_off()

    _on_air(work)


def test_a_loop_that_waits_for_its_clock_ends_and_the_clock_runs_at_its_own_rate(tmp_path: Path) -> None:
    main = (
        "import time\nstart = time.ticks_ms()\nwhile time.ticks_diff(time.ticks_ms(), start) < 50:\n    pass\n"
        'print("waited")\nwhile True:\n    time.sleep_ms(1000)\n    print(time.ticks_ms())\n'
    )

    async def work(air: Air) -> None:
        mote = _script(air, tmp_path, main, ppm=10_000.0)
        mote.power_on()
        await asyncio.sleep(100)
        assert mote.log[0] == "waited"
        assert int(mote.log[-1]) == pytest.approx(100_000 * 1.01, abs=1_500)
        assert len(mote.log) - 1 == pytest.approx(100 * 1.01, abs=1.5)
        mote.power_off()

    _on_air(work)


def test_a_crash_is_in_the_log_and_a_handler_that_fails_stops_nothing(tmp_path: Path) -> None:
    main = (
        "import bluetooth, micropython\nble = bluetooth.BLE()\nble.active(True)\n"
        "def bad(event, data):\n    raise ValueError('in a handler')\n"
        "ble.irq(bad)\nble.gap_advertise(100000, adv_data=b'\\x02\\x01\\x06', resp_data=b'\\x03\\x09m1')\n"
        "micropython.schedule(lambda _: 1 // 0, 0)\nprint('on')\nimport nothing_of_that_name\n"
    )

    async def work(air: Air) -> None:
        mote = _script(air, tmp_path, main)
        mote.power_on()
        device = await BleakScanner.find_device_by_name("m1", timeout=5)
        assert device is not None
        async with BleakClient(device):
            pass
        text = "\n".join(mote.log)
        for words in ("on", "in a handler", "ZeroDivisionError", "nothing_of_that_name"):
            assert words in text
        mote.power_off()

    _on_air(work)


def test_a_mote_sees_nothing_outside_its_flash(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x", "utf-8")
    main = (
        "import os\nprint(sorted(os.listdir('/')))\n"
        "for name in ('../secret', '/../secret', 'a/../../secret'):\n"
        "    try:\n        open(name)\n        print('open')\n"
        "    except OSError as error:\n        print(error.args[0])\n"
        "try:\n    import subprocess\nexcept ImportError:\n    print('no subprocess')\n"
    )

    async def work(air: Air) -> None:
        mote = _script(air, tmp_path, main)
        mote.power_on()
        await asyncio.sleep(1)
        assert list(mote.log) == ["['main.py']", "2", "2", "2", "no subprocess"]
        mote.power_off()

    _on_air(work)


def test_two_motes_share_no_modules(tmp_path: Path) -> None:
    main = "import counter\ncounter.count += 1\nprint(counter.count)\n"

    async def work(air: Air) -> None:
        one = _script(air, tmp_path, main)
        (tmp_path / "firmware" / "counter.py").write_text("count = 0\n", "utf-8")
        two = VirtualMote(air, "m2", "C0:00:00:00:00:02", tmp_path / "m2", firmware=tmp_path / "firmware")
        for mote in (one, two):
            mote.power_on()
        await asyncio.sleep(1)
        assert (list(one.log), list(two.log)) == (["1"], ["1"])
        for mote in (one, two):
            mote.power_off()

    _on_air(work)


@pytest.mark.slow
def test_200_motes_at_once_are_all_heard_and_each_answers(tmp_path: Path) -> None:
    async def work(air: Air) -> None:
        motes = []
        for number in range(200):
            name, address = f"m{number}", f"C0:00:00:00:00:{number:02X}"
            mote = VirtualMote(air, name, address, tmp_path / name, place=(number % 20, number // 20), seed=number)
            mote.configure({**CONFIG, "name": name})
            motes.append(mote)
            mote.power_on()
        heard: dict[str, str | None] = {}
        async with BleakScanner(lambda device, data: heard.update({device.address: data.local_name})):
            while len(heard) < len(motes):
                await asyncio.sleep(0.5)
        assert {mote.radio.address: mote.name for mote in motes}.keys() == heard.keys()
        for mote in motes[::40]:
            assert (await _info(mote)).name == mote.name
        assert all(mote.board is not None and mote.board.crash is None for mote in motes)
        for mote in motes:
            mote.power_off()

    _on_air(work)
