"""The unchanged boot.py and main.py on a virtual board: first sample, crash, hang, updates that fail and that hold."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from spinney_boot import CRASH_BYTES, TRIAL_BOOTS, Files, Pointer, read_checked, read_pointer, write_pointer
from spinney_mote.ota import Ota

from spinney.mote.bundle import bundle, library_files
from spinney_tools.sim import clock
from spinney_tools.sim.air import Air
from spinney_tools.sim.mote import FIRMWARE, VirtualMote

SENSORS = [{"driver": "virtual", "quantities": ["temperature"]}]
DEADLINE_S = 600.0
Story = Callable[[VirtualMote], Awaitable[None]]


def tell(folder: Path, story: Story, **settings: Any) -> VirtualMote:
    """Runs a story about one mote in virtual time."""

    async def run() -> VirtualMote:
        air = Air(seed=1)
        mote = VirtualMote(air, "mote", "C0:00:00:00:00:01", folder, world=lambda _quantity: 21.5)
        mote.configure({"sensors": SENSORS, "sample_interval_s": 10, **settings})
        mote.power_on()
        await story(mote)
        mote.power_off()
        return mote

    return clock.run(run())


async def until(condition: Callable[[], object], mote: VirtualMote) -> None:
    """Virtual time passes until the condition holds."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + DEADLINE_S
    while not condition():
        assert loop.time() < end_s, "\n".join(mote.log)
        await asyncio.sleep(0.1)


def state(mote: VirtualMote) -> Files:
    return Files(str(mote.flash.folder / "state"))


def crash(mote: VirtualMote) -> str:
    return (read_checked(state(mote), "crash") or b"").decode()


def changed_library(**files: str) -> dict[str, bytes]:
    """The library with some files replaced."""
    library = library_files(FIRMWARE / "lib" / "spinney_mote")
    return {**library, **{f"spinney_mote/{name}.py": text.encode() for name, text in files.items()}}


def stage(mote: VirtualMote, library: dict[str, bytes]) -> None:
    """An update, whole and verified, whose set the next start tries."""
    update = Ota(state(mote))
    data = bundle(library)
    update.begin(len(data))
    update.write(0, data)
    update.commit()


def test_from_power_on_to_adverts(tmp_path: Path) -> None:
    async def story(mote: VirtualMote) -> None:
        await until(lambda: mote.radio.adverts >= 5, mote)

    mote = tell(tmp_path, story)
    assert mote.counts["starts"] == 1
    assert crash(mote) == ""


def test_it_sleeps_deeply_between_samples_without_a_write_to_flash(tmp_path: Path) -> None:
    async def story(mote: VirtualMote) -> None:
        await until(lambda: mote.counts["deep sleeps"] >= 1, mote)
        writes = mote.flash.writes
        await until(lambda: mote.counts["deep sleeps"] >= 20, mote)
        assert mote.flash.writes == writes

    mote = tell(tmp_path, story, deep_sleep=True, awake_ms=500)
    assert mote.counts["starts"] >= 20
    assert mote.counts["watchdog resets"] == 0


def test_a_crash_is_recorded_once_and_the_mote_starts_anew(tmp_path: Path) -> None:
    broken = tmp_path / "firmware"
    shutil.copytree(FIRMWARE, broken)
    life = broken / "lib" / "spinney_mote" / "life.py"
    life.write_text(life.read_text("utf-8").replace("self._prove(now)", "self.nonsense(now)"), "utf-8")

    async def run() -> VirtualMote:
        mote = VirtualMote(Air(seed=1), "mote", "C0:00:00:00:00:01", tmp_path / "flash", firmware=broken)
        mote.configure({"sensors": SENSORS})
        mote.power_on()
        await until(lambda: mote.counts["resets"] >= 1, mote)
        written = (mote.flash.folder / "state" / "crash").stat().st_mtime_ns
        await until(lambda: mote.counts["resets"] >= 4, mote)
        assert (mote.flash.folder / "state" / "crash").stat().st_mtime_ns == written
        mote.power_off()
        return mote

    mote = clock.run(run())
    assert "nonsense" in crash(mote)
    assert "AttributeError" in crash(mote)
    assert len(crash(mote)) <= CRASH_BYTES


def test_a_main_loop_that_hangs_is_ended_by_the_watchdog(tmp_path: Path) -> None:
    hanging = tmp_path / "firmware"
    shutil.copytree(FIRMWARE, hanging)
    life = hanging / "lib" / "spinney_mote" / "life.py"
    text = life.read_text("utf-8").replace("            sleep_ms(self.turn())", "            sleep_ms(1000)")
    life.write_text(text, "utf-8")

    async def run() -> VirtualMote:
        mote = VirtualMote(Air(seed=1), "mote", "C0:00:00:00:00:01", tmp_path / "flash", firmware=hanging)
        mote.configure({"watchdog_s": 20})
        mote.power_on()
        await until(lambda: mote.counts["watchdog resets"] >= 2, mote)
        mote.power_off()
        return mote

    assert clock.run(run()).counts["starts"] >= 2


def test_an_update_that_works_is_kept(tmp_path: Path) -> None:
    async def story(mote: VirtualMote) -> None:
        stage(mote, changed_library())
        await until(lambda: read_pointer(state(mote)).good == 1, mote)
        mote.power_off()
        mote.power_on()
        await until(lambda: mote.counts["starts"] == 2, mote)
        before = mote.radio.adverts
        await until(lambda: mote.radio.adverts > before, mote)

    assert read_pointer(state(tell(tmp_path, story))).good == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("life", "this is no Python"),
        ("mote", "def run(machine, watchdog, files):\n    raise RuntimeError('not today')\n"),
        ("mote", "import time\n\ndef run(machine, watchdog, files):\n    while True:\n        time.sleep_ms(100)\n"),
    ],
    ids=["cannot be loaded", "crashes", "hangs"],
)
def test_an_update_that_fails_gives_way_to_the_last_good_set(tmp_path: Path, name: str, text: str) -> None:
    async def story(mote: VirtualMote) -> None:
        stage(mote, changed_library(**{name: text}))
        await until(lambda: read_pointer(state(mote)).failed == 1, mote)
        assert mote.counts["starts"] == TRIAL_BOOTS + 1
        before = mote.radio.adverts
        await until(lambda: mote.radio.adverts > before, mote)

    mote = tell(tmp_path, story)
    assert read_pointer(state(mote)).good == 0


def test_a_good_set_that_rotted_gives_way_to_the_one_that_was_flashed(tmp_path: Path) -> None:
    async def story(mote: VirtualMote) -> None:
        folder = mote.flash.folder / "state" / "set1" / "spinney_mote"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "mote.py").write_text("\x00\x00")
        write_pointer(state(mote), Pointer(good=1))
        await until(lambda: mote.radio.adverts > 0, mote)

    assert read_pointer(state(tell(tmp_path, story))).failed == 1
