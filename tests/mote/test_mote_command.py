"""`spinney mote` over the virtual radio, with the unchanged firmware at the other end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from radio_kit import ADDRESS, HOT, Scene, on_air, until

from spinney.mote.protocol import EventFlag
from spinney_tools.mote import filters, flash, info, key, keys, ls, mode, notes, ota, radio, set_time, tail
from spinney_tools.mote import main as mote_main
from spinney_tools.sim import bleak_backend
from spinney_tools.sim.mote import FIRMWARE

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


async def call(module: ModuleType, *arguments: str) -> int:
    """As main() does it, in the virtual world's time."""
    options = module.parser().parse_args(arguments)
    return await radio.guarded(module.__name__.rpartition(".")[2], module.run(options))


def play(folder: Path, *calls: tuple[Any, ...], **settings: Any) -> list[int]:
    """The exit codes of some calls, one after the other."""

    async def scene(there: Scene) -> list[int]:
        await until(lambda: there.mote.radio.adverts > 0)
        return [await call(*one) for one in calls]

    return on_air(folder, scene, **settings)


def rows(captured: Captured) -> list[dict[str, Any]]:
    return [json.loads(line) for line in captured.readouterr().out.splitlines()]


# ---- ls


def test_ls_shows_who_is_heard_with_readings(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (ls,), (ls, "--json")) == [0, 0]
    head, line, as_json = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "ADDRESS", "RSSI", "BOOT", "SAMPLE", "EVENT", "READINGS"]
    assert line.startswith(f"hut   {ADDRESS}")
    assert line.endswith("temperature 20")
    found = json.loads(as_json)
    assert (found["name"], found["address"], found["readings"]) == ("hut", ADDRESS, {"temperature": 20.0})


def test_ls_says_that_nobody_was_heard(tmp_path: Path, capsys: Captured) -> None:
    async def scene(there: Scene) -> int:
        there.broker.move((100_000.0, 0.0))
        return await call(ls, "--seconds", "3")

    assert on_air(tmp_path, scene) == 1
    assert "no mote was heard for 3 s" in capsys.readouterr().err


# ---- info


def test_info_says_it_all_in_words_and_as_json(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (info, "hut"), (info, ADDRESS.lower(), "--json")) == [0, 0]
    *text, as_json = capsys.readouterr().out.splitlines()
    assert text[0] == f"name        hut ({ADDRESS})"
    assert any(re.fullmatch(r"temperature +°C +0\.01 +-40 +85 +2", line) for line in text), text
    found = json.loads(as_json)
    assert (found["name"], found["filters"], found["last_crash"], found["time"]) == ("hut", 0, "", None)
    assert found["attributes"][0]["name"] == "temperature"


def test_a_mote_that_is_not_there_is_told_with_what_to_do(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (info, "shed", "--seconds", "2")) == [2]
    told = capsys.readouterr().err
    assert told.startswith("spinney mote info: no mote 'shed' was heard for 2 s.")
    assert "--seconds above its sample interval" in told


SLEEPY = {"deep_sleep": True, "sample_interval_s": 30, "advert_fast_ms": 1000, "advert_interval_ms": 1000}


def test_a_mote_that_sleeps_again_at_once_is_connected_to_when_it_is_heard_next(tmp_path: Path) -> None:
    async def scene(there: Scene) -> int:
        await until(lambda: there.mote.counts["deep sleeps"] > 0)
        return await call(info, "hut", "--seconds", "35")

    assert on_air(tmp_path, scene, awake_ms=200, **SLEEPY) == 0


def test_a_mote_that_is_gone_when_it_is_called_is_called_again(tmp_path: Path) -> None:
    async def scene(there: Scene) -> int:
        await until(lambda: there.mote.counts["deep sleeps"] > 0)
        heard = there.mote.radio.adverts
        asking = asyncio.ensure_future(call(info, "hut", "--seconds", "35"))
        await until(lambda: there.mote.radio.adverts > heard, 100.0)
        await asyncio.sleep(0.1)
        there.mote.power_off()
        await asyncio.sleep(45.0)
        there.mote.power_on()
        return await asking

    assert on_air(tmp_path, scene, awake_ms=200, **SLEEPY) == 0


def test_an_adapter_that_is_not_there_is_told(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (info, "hut", "--adapter", "hci7")) == [2]
    assert "no virtual adapter 'hci7'" in capsys.readouterr().err


# ---- filters


def test_filters_are_added_listed_and_dropped(tmp_path: Path, capsys: Captured) -> None:
    added = (filters, "hut", "--add", HOT, "--add", "temperature < 0", "--json")
    assert play(tmp_path, (filters, "hut"), added, (filters, "hut", "--drop", "1"), (info, "hut", "--json")) == [0] * 4
    out, err = capsys.readouterr()
    assert "no filters" in err
    first, second, head, left, about = out.splitlines()
    assert [(json.loads(row)["id"], json.loads(row)["text"]) for row in (first, second)] == [
        (1, HOT),
        (2, "temperature < 0"),
    ]
    assert head.split() == ["ID", "CRC", "TEXT"]
    assert left.split(maxsplit=2)[::2] == ["2", "temperature < 0"]
    assert json.loads(about)["filters"] == 1


def test_ids_are_chosen_or_free_and_all_can_be_dropped(tmp_path: Path, capsys: Captured) -> None:
    calls = [
        (filters, "hut", "--add", HOT, "--id", "7", "--add", "temperature < 0"),
        (filters, "hut", "--add", "temperature < 5", "--json"),
        (filters, "hut", "--drop", "all"),
    ]
    assert play(tmp_path, *calls) == [0, 0, 0]
    out, err = capsys.readouterr()
    assert [json.loads(line)["id"] for line in out.splitlines() if line.startswith("{")] == [1, 2, 7]
    assert "no filters: the mote sends no events" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--add", "temperature >"), "--add 'temperature >': 1:14: expected a value"),
        (("--add", "noise > 3"), "the mote does not measure noise; hut measures temperature"),
        (("--drop", "5"), "--drop 5: there is no such filter; there are: none"),
        (("--drop", "some"), "--drop some: there is no such filter"),
        (("--add", HOT, "--id", "70000"), "--id 70000: from 0 to 65535"),
    ],
)
def test_what_cannot_be_is_told_and_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], why: str, capsys: Captured
) -> None:
    assert play(tmp_path, (filters, "hut", *words), (filters, "hut")) == [2, 0]
    told = capsys.readouterr()
    assert why in told.err
    assert told.out == ""


def test_a_text_that_this_computer_never_sent_is_not_made_up(tmp_path: Path, capsys: Captured) -> None:
    async def scene(_there: Scene) -> None:
        await call(filters, "hut", "--add", HOT)
        notes.file().unlink()
        await call(filters, "hut")

    on_air(tmp_path, scene)
    assert capsys.readouterr().out.splitlines()[-1].endswith("(not sent by this computer)")


def test_notes_are_bounded_and_a_damaged_file_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MAX_NOTES", 2)
    for number in range(4):
        notes.write(number, f"text {number}")
    assert notes.read() == {2: "text 2", 3: "text 3"}
    notes.file().write_text("[broken")
    assert notes.read() == {}


# ---- tail


def test_tail_prints_events_as_they_come_and_acknowledges_them(tmp_path: Path, capsys: Captured) -> None:
    async def scene(there: Scene) -> None:
        assert await call(filters, "hut", "--add", HOT) == 0
        capsys.readouterr()
        following = asyncio.create_task(call(tail, "hut", "--json", "--count", "3"))
        printed = ""
        for temperature, wanted in ((20.0, "exit"), (30.0, "enter"), (21.0, "exit")):
            there.readings["temperature"] = temperature

            def has_come(wanted: str = wanted) -> bool:
                nonlocal printed
                printed += capsys.readouterr().out
                return f'"why": "{wanted}"' in printed.splitlines()[-1] if printed else False

            await until(has_come)
        assert await following == 0
        found = [json.loads(line) for line in printed.splitlines()]
        assert [row["why"] for row in found] == ["exit", "enter", "exit"]
        assert [row["values"] for row in found] == [{"temperature": value} for value in (20.0, 30.0, 21.0)]
        assert {(row["source"], row["filter"], row["text"]) for row in found} == {("hut", 1, HOT)}
        assert there.life.ring.first > found[-1]["number"], "the mote has forgotten them"

    on_air(tmp_path, scene)


def test_tail_without_ack_leaves_the_events_on_the_mote(tmp_path: Path, capsys: Captured) -> None:
    async def scene(there: Scene) -> None:
        await call(filters, "hut", "--add", HOT)
        capsys.readouterr()
        for _ in range(2):
            assert await call(tail, "hut", "--count", "1", "--no-ack", "--json") == 0
        assert there.life.ring.next - there.life.ring.first == 1

    on_air(tmp_path, scene)
    first, again = rows(capsys)
    assert first["number"] == again["number"]


@pytest.mark.parametrize("more", [(), ("--no-ack",)], ids=["acknowledged", "left there"])
def test_tail_goes_on_over_a_lost_connection_with_every_event_once(
    tmp_path: Path, more: tuple[str, ...], capsys: Captured
) -> None:
    printed: list[str] = []

    def lines() -> int:
        printed.extend(capsys.readouterr().out.splitlines())
        return len(printed)  # the next may be printed, but not yet acknowledged, when the link is cut

    async def scene(there: Scene) -> None:
        await call(filters, "hut", "--add", "temperature > -30")
        capsys.readouterr()
        following = asyncio.create_task(call(tail, "hut", "--count", "30", "--json", *more))
        await until(lambda: lines() > 5)
        there.air.cut(there.mote.radio.controller)
        assert await following == 0

    on_air(tmp_path, scene)
    out, err = capsys.readouterr()
    numbers = [json.loads(line)["number"] for line in [*printed, *out.splitlines()]]
    assert numbers == list(range(numbers[0], numbers[0] + 30))
    assert "connecting again" in err


def test_tail_in_words(tmp_path: Path, capsys: Captured) -> None:
    calls = [(filters, "hut", "--add", HOT), (set_time, "hut"), (tail, "hut", "--count", "1")]
    assert play(tmp_path, *calls) == [0, 0, 0]
    line = capsys.readouterr().out.splitlines()[-1]
    assert re.fullmatch(r"[\d:]{8}  exit    temperature 20  \(1: " + re.escape(HOT) + r"\)", line), line


def test_tail_says_which_samples_a_mote_leaves_undecided(tmp_path: Path, capsys: Captured) -> None:
    async def scene(there: Scene) -> None:
        there.readings["temperature"] = 30.0
        assert await call(filters, "hut", "--add", "WHEN temperature > 25 UNTIL temperature > 22") == 0
        assert "sends more" not in capsys.readouterr().err, "but for these it keeps the bit"
        for temperature in (30.0, 24.0, 30.0):
            there.readings["temperature"] = temperature
            told = there.life.ring.next
            await until(lambda before=told: there.life.ring.next > before)
        assert await call(tail, "hut", "--json", "--count", str(len(there.life.ring))) == 0

    on_air(tmp_path, scene)
    found = [row["why"] for row in rows(capsys)]
    first = found.index("exit")
    assert set(found[:first]) == {"undecided"}
    assert found[first : first + 2] == ["exit", "enter"], "one that tells sets the bit"


def test_why_an_event_came_is_named() -> None:
    assert tail.why(EventFlag.LABEL | EventFlag.BIT) == "enter"
    assert tail.why(EventFlag.LABEL) == "exit"
    assert tail.why(EventFlag.PRESENCE | EventFlag.BIT) == "alive"
    assert tail.why(EventFlag.PRESENCE | EventFlag.UNKNOWN) == "alive"
    assert tail.why(EventFlag.UNKNOWN | EventFlag.CRITICAL) == "undecided"
    assert tail.why(EventFlag(0)) == "match"


# ---- set-time


def test_set_time_sets_this_computers_time(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (set_time, "hut"), (set_time, "hut"), (info, "hut", "--json")) == [0, 0, 0]
    first, second, about = capsys.readouterr().out.splitlines()
    assert first == "hut: the clock was not set and is set; drift 0 ppm"
    assert re.fullmatch(r"hut: the clock was [+-][\d.]+ s off and is set; drift 0 ppm", second)
    assert json.loads(about)["time"][:10] in {
        time.strftime("%Y-%m-%d", time.gmtime(time.time() + day)) for day in (-9, 0)
    }


# ---- pairing


def test_where_only_the_paired_may_write_it_pairs_first(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (filters, "hut", "--add", HOT), (filters, "hut"), bonded_writes=True) == [0, 0]
    assert HOT in capsys.readouterr().out


def test_a_mote_that_lets_nobody_pair_any_more_is_told_with_what_to_do(tmp_path: Path, capsys: Captured) -> None:
    async def scene(there: Scene) -> int:
        await there.add_broker("F0:00:00:00:00:02", "hci1")
        assert await call(filters, "hut", "--add", HOT) == 0
        await until(lambda: not there.life.radio._bonds.is_open(), 300.0)
        return await call(filters, "hut", "--drop", "all", "--adapter", "hci1")

    assert on_air(tmp_path, scene, bonded_writes=True, pairing_s=5) == 2
    told = capsys.readouterr().err
    assert "reset it and try again" in told


def test_a_passkey_that_is_not_entered_is_told(tmp_path: Path, capsys: Captured) -> None:
    async def scene(_there: Scene) -> int:
        bleak_backend.adapter().passkey = 111111
        return await call(filters, "hut")

    assert on_air(tmp_path, scene, bonded_writes=True, passkey=123456) == 2
    assert "One with a passkey is paired in the system's Bluetooth settings first" in capsys.readouterr().err


# ---- what it advertises, and its key


def test_the_mode_is_shown_and_set(tmp_path: Path, capsys: Captured) -> None:
    calls = [
        (mode, "hut"),
        (filters, "hut", "--add", HOT),
        (mode, "hut", "presence", "--open-after", "60", "--json"),
        (ls, "--seconds", "7"),
        (info, "hut", "--json"),
        (mode, "hut", "open"),
    ]
    assert play(tmp_path, *calls) == [0] * len(calls)
    told = capsys.readouterr().out
    assert "mode     open (nobody has set anything)" in told
    found = next(json.loads(line) for line in told.splitlines() if line.startswith('{"mode"'))
    assert (found["mode"], found["open_after"], found["since_renewed"]) == ("presence", 60, 0)
    assert "(presence)" in told
    about = next(json.loads(line) for line in told.splitlines() if line.startswith('{"name"'))
    assert about["adverts"] == "presence"
    assert "mode     open (open was set)" in told


def test_a_mode_of_mote_toml_is_refused_in_the_motes_words(tmp_path: Path, capsys: Captured) -> None:
    assert play(tmp_path, (mode, "hut", "open"), (mode, "hut"), advert_mode="presence") == [2, 0]
    told = capsys.readouterr()
    assert "advert_mode is set in mote.toml" in told.err
    assert "presence (set in mote.toml)" in told.out


def test_the_key_is_shown_renewed_and_forgotten_for_who_is_paired_by_the_passkey(
    tmp_path: Path, capsys: Captured
) -> None:
    file = str(tmp_path / "keys.toml")

    async def scene(_there: Scene) -> list[int]:
        bleak_backend.adapter().passkey = 123456
        calls = [("show", "hut"), ("new", "hut", "--keys", file), ("show", "hut"), ("new", "hut", "--keys", file)]
        codes = [await call(key, *words) for words in calls]
        assert [one.name for one in keys.read(Path(file)).values()] == ["hut"]
        return [*codes, await call(key, "forget", "hut", "--keys", file), await call(key, "show", "hut")]

    assert on_air(tmp_path / "mote", scene, bonded_writes=True, passkey=123456) == [2, 0, 0, 0, 0, 2]
    told = capsys.readouterr()
    first, shown, second = told.out.split()
    assert first == shown != second
    assert len(bytes.fromhex(second)) == 16
    assert told.err.count("hut has no key; make one: spinney mote key new hut") == 2
    assert keys.read(Path(file)) == {}


def test_a_key_is_not_told_without_a_passkey(tmp_path: Path, capsys: Captured) -> None:
    for bonded in True, False:
        assert play(tmp_path / str(bonded), (key, "show", "hut"), bonded_writes=bonded) == [2]
        assert "only to who is paired by its passkey" in capsys.readouterr().err


def test_a_file_of_keys_that_others_wrote_is_left_alone(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "keys.toml"
    for text in ("[[device]]\naddress = 1", "not toml", '[[device]]\naddress = "a"\nbindkey = "xyz"\n'):
        file.write_text(text, "utf-8")
        with pytest.raises(keys.KeyFileError, match="no file of bind keys"):
            keys.put(file, keys.Key("C0:00:00:00:00:01", "hut", bytes(16)))
        assert file.read_text("utf-8") == text
    assert play(tmp_path / "mote", (key, "new", "hut", "--keys", str(file))) == [2]
    assert "no file of bind keys" in capsys.readouterr().err


# ---- ota


def new_library(folder: Path, version: str, ending: str = "") -> Path:
    """A copy of the library with another version, and with something more at the end of its main loop's module."""
    target = folder / version / "spinney_mote"
    for source in (FIRMWARE / "lib" / "spinney_mote").rglob("*.py"):
        copy = target / source.relative_to(FIRMWARE / "lib" / "spinney_mote")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(source.read_bytes())
    life = target / "life.py"
    text = life.read_text("utf-8")
    assert 'VERSION = "0.1.0"' in text
    life.write_text(text.replace('VERSION = "0.1.0"', f'VERSION = "{version}"') + ending, "utf-8")
    return target


@pytest.mark.slow
def test_ota_brings_a_new_library_that_the_mote_keeps(tmp_path: Path, capsys: Captured) -> None:
    library = new_library(tmp_path, "0.9.0")
    assert play(tmp_path / "..", (ota, "hut", "--library", str(library)), (info, "hut", "--json")) == [0, 0]
    out, err = capsys.readouterr()
    assert "hut runs the new library, 0.9.0" in out
    assert re.search(r"sent (\d+) of \1 bytes \(100 %\)", err)
    assert json.loads(out.splitlines()[-1])["firmware"] == "0.9.0"


@pytest.mark.slow
def test_ota_says_that_a_mote_went_back_and_why(tmp_path: Path, capsys: Captured) -> None:
    library = new_library(tmp_path, "0.9.1", '\nraise RuntimeError("broken on purpose")\n')
    assert play(tmp_path, (ota, "hut", "--library", str(library)), (info, "hut", "--json")) == [1, 0]
    out, err = capsys.readouterr()
    assert "was not well with the new library and runs its last good one, 0.1.0" in err
    assert "broken on purpose" in err
    assert json.loads(out.splitlines()[-1])["firmware"] == "0.1.0"


@pytest.mark.slow
def test_ota_goes_on_over_a_lost_connection(tmp_path: Path, capsys: Captured) -> None:
    library = new_library(tmp_path, "0.9.2")

    async def scene(there: Scene) -> int:
        updating = asyncio.create_task(call(ota, "hut", "--library", str(library)))
        await until(lambda: there.mote.board is not None and there.life.ota.received > 20_000)
        there.air.cut(there.mote.radio.controller)
        return await updating

    assert on_air(tmp_path, scene) == 0
    assert "going on where it was cut off" in capsys.readouterr().err


def test_ota_with_another_key_is_refused_in_the_motes_words(tmp_path: Path, capsys: Captured) -> None:
    key = tmp_path / "key"
    key.write_text("ab" * 32)
    assert play(tmp_path, (ota, "hut", "--key-file", str(key)), ota_key="cd" * 32) == [2]
    assert "another ota_key" in capsys.readouterr().err


def test_a_folder_that_is_no_library_and_a_key_that_is_none_are_told(tmp_path: Path, capsys: Captured) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    assert play(tmp_path, (ota, "hut", "--library", str(tmp_path)), (ota, "hut", "--key-file", str(key))) == [2, 2]
    told = capsys.readouterr().err
    assert "no folder of the library" in told
    assert "an ota_key has 64 digits" in told


# ---- flash listens for the mote


def test_flash_hears_the_mote_that_it_has_flashed(tmp_path: Path) -> None:
    async def scene(_there: Scene) -> list[str | None]:
        options = flash.parser().parse_args(["--board", "esp32", "--listen", "5"])
        return [await flash.listen(options, "hut"), await flash.listen(options, "shed")]

    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    heard, other = on_air(tmp_path / "one", scene)
    assert heard is not None
    assert re.fullmatch(rf"hut at {ADDRESS}, -?\d+ dBm: temperature 20", heard), heard
    assert other is None
    heard, _ = on_air(tmp_path / "two", scene, sensors=[])
    assert heard is not None
    assert heard.endswith("no readings yet")


# ---- a process of its own


def test_without_a_bluetooth_service_a_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, tmp_path: Path
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path / 'none'}")
    assert mote_main(["ls", "--seconds", "1"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("spinney mote ls: there is no Bluetooth service here")
    assert "sudo apt install bluez" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT])
def test_ctrl_c_and_sigterm_end_a_command_cleanly(sign: signal.Signals) -> None:
    done: list[str] = []

    async def work() -> int:
        try:
            os.kill(os.getpid(), sign)
            await asyncio.Event().wait()
        finally:
            done.append("disconnected")
        return 0

    assert radio.run("info", work()) == 130
    assert radio.run("tail", work(), interrupted=0) == 0
    assert done == ["disconnected"] * 2
