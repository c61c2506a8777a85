"""`spinney sim city`: the same seed gives the same run; fields, series, other makers' adverts, and the command."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bleak import BleakScanner

import spinney
from spinney.mote.advert import BTHOME
from spinney.mote.advert import Advert as BTHomeAdvert
from spinney_tools.sim import beacons, bleak_backend, clock, main
from spinney_tools.sim.air import Air
from spinney_tools.sim.city import City, Plan
from spinney_tools.sim.field import SCENARIOS, Pollution, SeriesError, Source, replay
from spinney_tools.sim.radio import Radio

NOON_S = 1_700_049_600.0
DENSE = {"advert_interval_ms": 500}


def _publications(folder: Path, seconds: float, **plan: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    async def run() -> None:
        async with City(Plan(interval_s=20, extra=DENSE, **plan), folder, found.append) as city:
            await city.run(seconds)
            assert not any(line for mote in city.motes for line in mote.log), "the firmware says that all is well"

    clock.run(run())
    return found


def test_the_same_seed_gives_the_same_publications_and_another_seed_others(tmp_path: Path) -> None:
    one, again, other = (
        _publications(tmp_path / name, 90.0, motes=12, brokers=3, seed=seed)
        for name, seed in (("one", 4), ("again", 4), ("other", 5))
    )
    assert one
    assert one == again
    assert [each["id"] for each in one] != [each["id"] for each in other]


def test_each_sample_is_published_once_with_its_place_and_what_the_field_was(tmp_path: Path) -> None:
    found = _publications(tmp_path, 120.0, motes=12, brokers=4, seed=2)
    assert len({each["id"] for each in found}) == len(found) > 5
    for each in found:
        assert 45.80 < each["lat"] < 45.82
        assert 15.96 < each["long"] < 15.99
        assert 0 < each["temperature"] < 20


def test_a_filter_on_the_motes_sends_a_part_of_what_everything_is(tmp_path: Path) -> None:
    wanted = spinney.parse("WHEN temperature > -30 UNTIL temperature <= -40")
    everything = _publications(tmp_path / "all", 200.0, motes=10, brokers=3, seed=3)
    filtered = _publications(tmp_path / "some", 200.0, motes=10, brokers=3, seed=3, subscription=wanted)
    assert 0 < len(filtered) < len(everything) / 2
    assert all(each["bit"] is True for each in filtered)
    assert max(sum(1 for each in filtered if each["source"] == name) for name in {e["source"] for e in filtered}) == 1


def test_a_filter_saves_energy_and_what_it_holds_back_is_not_on_the_air(capsys: pytest.CaptureFixture[str]) -> None:
    """As in an issue: it made motes spend more, since their adverts went on and visits came on top."""
    arguments = ["city", "--motes", "6", "--brokers", "3", "--seed", "3", "--speed", "max", "--minutes", "20", "--json"]
    found = []
    for text in ([], ["--filter", "WHEN temperature > 50 UNTIL temperature <= 40"]):
        assert main([*arguments, *text]) == 0
        found.append(json.loads(capsys.readouterr().out))
    everything, filtered = found
    assert filtered["mAh"] < everything["mAh"] * 0.9
    assert filtered["of samples"]["not broadcast"] > filtered["samples"] / 2
    assert everything["of samples"]["not broadcast"] == 0
    assert filtered["on the air, of motes"]["adverts"] < everything["on the air, of motes"]["adverts"]


def test_another_makers_scanner_drives_the_city_by_its_own_adapter(tmp_path: Path) -> None:
    async def run() -> set[str]:
        names: set[str] = set()
        async with City(Plan(motes=5, brokers=0, seed=1, interval_s=5, extra={"deep_sleep": False}), tmp_path) as city:
            adapter, radio = await city.add_adapter((0.0, 0.0))
            for mote in city.motes:
                mote.radio.move((10.0, 10.0))
            async with BleakScanner(lambda _device, data: names.add(data.local_name or ""), bluez={"adapter": adapter}):
                await city.run(20.0)
                city.mote("m0003").power_off()
                names.clear()
                await city.run(20.0)
            assert radio.is_on
        return names - {""}

    assert "m0003" not in clock.run(run())


def test_pollution_is_down_the_wind_of_its_source_and_follows_the_traffic() -> None:
    field = Pollution(SCENARIOS["rush-hour"], [Source((0.0, 0.0), 100.0)], seed=1)
    eight_s, three_s = NOON_S - 4 * 3600, NOON_S - 9 * 3600
    east, north = field.wind(eight_s)
    speed = (east**2 + north**2) ** 0.5
    ahead = (100 * east / speed, 100 * north / speed)
    behind = (-ahead[0], -ahead[1])
    rush, away = field.value("NO2", ahead, eight_s), field.value("NO2", behind, eight_s)
    assert rush is not None
    assert away is not None
    assert rush > away + 5
    east, north = field.wind(three_s)
    night = field.value("NO2", (100 * east / speed, 100 * north / speed), three_s)
    assert night is not None
    assert night < rush
    assert field.value("noise", ahead, eight_s) is None


def test_a_series_is_replayed_from_csv_with_its_gaps_and_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "series.csv.gz"
    text = "time,NO2\n2020-01-01T00:00:00Z,10\n2020-01-01T00:01:00Z,\n2020-01-01T00:02:00Z,30\n"
    file.write_bytes(gzip.compress(text.encode()))
    field = replay(file, Pollution(SCENARIOS["night"], [], 0), NOON_S)
    values = [field.value("NO2", (0.0, 0.0), NOON_S + seconds) for seconds in (0, 59, 60, 119, 120)]
    assert values == [10.0, 10.0, None, None, 10.0]
    assert field.value("temperature", (0.0, 0.0), NOON_S) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("when,NO2\n1,2\n", "no column `time`; the columns are: when, NO2"),
        ("time,NO2\n", "no rows"),
        ("time,NO2\nyesterday,2\n", ":2: 'yesterday' is no time"),
        ("time,NO2\n1,2\n2,many\n", ":3: NO2: 'many' is no number"),
        ("time,NO2\n1,inf\n", "no finite number"),
        ("time,NO2\n5,1\n4,1\n", ":3: the time goes back"),
    ],
)
def test_a_series_that_cannot_be_replayed_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "series.csv"
    file.write_text(text, "utf-8")
    with pytest.raises(SeriesError) as refused:
        replay(file, Pollution(SCENARIOS["night"], [], 0), 0.0)
    assert words in str(refused.value)


def test_other_makers_recorded_adverts_are_on_the_air_as_they_were() -> None:
    async def run() -> dict[str, Any]:
        air = Air()
        hci0 = Radio(air, "hci0", "F0:00:00:00:00:01")
        await hci0.power_on()
        for recording in beacons.read(beacons.RECORDED):
            beacons.Beacon(air, recording).start()
        heard: dict[str, Any] = {}
        with bleak_backend.install():
            bleak_backend.add_adapter(hci0)
            async with BleakScanner(lambda device, data: heard.update({device.address: data})):
                await asyncio.sleep(10)
        return heard

    heard = clock.run(run())
    bthome = BTHomeAdvert.decode(heard["A4:C1:38:00:00:01"].service_data[BTHOME])
    assert {reading.name: reading.value for reading in bthome.readings} == {"temperature": 25.0, "humidity": 50.55}
    assert heard["A4:C1:38:00:00:01"].local_name == "DIY-sensor"
    ruuvi = heard["CB:B8:33:4C:88:4F"].manufacturer_data[0x0499]
    assert (ruuvi[0], int.from_bytes(ruuvi[1:3], "big") * 0.005) == (5, pytest.approx(24.3))
    assert heard["CB:B8:33:4C:88:50"].manufacturer_data[0x0499][0] == 3
    atc = heard["A4:C1:38:00:00:02"].service_data["0000181a-0000-1000-8000-00805f9b34fb"]
    assert int.from_bytes(atc[6:8], "big") in (215, 216)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"maker": "x", "address": "C0:00:00:00:00:01", "interval_ms": 100, "adverts": []}', "1: no adverts"),
        ('{"maker": "x", "address": "C0:00:00:00:00:01", "interval_ms": 1, "adverts": ["00"]}', "the least is 20 ms"),
        ('{"maker": "x", "address": "C0:00:00:00:00:01", "interval_ms": 100}', "no 'adverts'"),
        ('{"maker": "x", "address": "C0", "interval_ms": 100, "adverts": ["00"]}', ":1: "),
        ('{"adverts": ["' + "00" * 32 + '"], "maker": "x", "address": "C0:00:00:00:00:01", "interval_ms": 99}', "31"),
        ("nothing", ":1: "),
    ],
)
def test_a_recording_that_cannot_be_sent_is_refused_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "adverts.jsonl"
    file.write_text(line + "\n", "utf-8")
    with pytest.raises(beacons.RecordingError, match=r"adverts\.jsonl:1: ") as refused:
        beacons.read(file)
    assert words in str(refused.value)


def test_the_command_writes_publications_and_a_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.jsonl"
    arguments = ["--motes", "8", "--brokers", "3", "--interval", "20", "--speed", "max", "--minutes", "1", "--json"]
    assert main(["city", *arguments, "--others", "--out", str(out)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["simulated seconds"] == 60.0
    assert found["motes"] == 8
    assert found["publications"] == len(out.read_text("utf-8").splitlines())
    assert found["mAh"] > 0
    assert found["air"]["adverts"] > 20
    motes = found["each mote on the air"]
    assert len(motes) == 8
    assert found["on the air, of motes"]["adverts"] == sum(mote["adverts"] for mote in motes.values())
    assert found["on the air, of motes"]["readings open"] == found["of samples"]["broadcast in clear"]
    assert found["samples"] == found["of samples"]["broadcast in clear"], "without a filter all is broadcast"
    assert found["mAh"] == pytest.approx(sum(found["mAh by what took it (modelled)"].values()), abs=0.01)


def test_wrong_arguments_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["town"]) == 2
    assert main(["city", "--filter", "NO2 >", "--minutes", "1"]) == 2
    assert main(["city", "--replay", "/nowhere.csv", "--minutes", "1"]) == 2
    told = capsys.readouterr().err
    assert "no simulation 'town'" in told
    assert "spinney sim city: " in told
    assert "/nowhere.csv" in told


def test_ctrl_c_ends_the_city_with_its_summary_and_no_traceback() -> None:
    code = "import sys; from spinney_tools.sim import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "city", "--motes", "30", "--interval", "5", "--speed", "20", "--out", "-"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with contextlib.ExitStack() as stack:
        stack.callback(process.kill)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["source"].startswith("m")
        process.send_signal(signal.SIGINT)
        _out, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "publications" in told
    assert "Traceback" not in told
