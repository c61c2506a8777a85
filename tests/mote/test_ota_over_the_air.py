"""New library files over the virtual radio: the mote restarts into them, and what is cut off goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from radio_kit import Scene, linked, on_air, until
from spinney_boot import Files, read_checked, read_pointer, record_crash

from spinney.mote.bundle import bundle, library_files
from spinney.mote.link import MoteLink
from spinney.mote.protocol import LinkError, MoteRefused
from spinney.mote.update import update
from spinney_tools.sim.mote import FIRMWARE

KEY = "a1" * 32


def library(version: str) -> bytes:
    """The library as it is, with another version."""
    files = library_files(FIRMWARE / "lib" / "spinney_mote")
    life = files["spinney_mote/life.py"]
    assert b'VERSION = "0.1.0"' in life
    files["spinney_mote/life.py"] = life.replace(b'VERSION = "0.1.0"', f'VERSION = "{version}"'.encode())
    return bundle(files, bytes.fromhex(KEY))


def pointer(scene: Scene) -> Any:
    return read_pointer(Files(str(scene.mote.flash.folder / "state")))


async def version() -> str:
    async with linked() as mote:
        return (await mote.info()).firmware


@pytest.mark.slow
def test_a_mote_is_updated_over_the_air_through_a_lost_connection(tmp_path: Path) -> None:
    done: list[int] = []
    whole = library("0.2.0")

    async def send(scene: Scene, mote: MoteLink, cut_at: int) -> None:
        def progress(sent: int, _whole: int) -> None:
            done.append(sent)
            if len(done) == cut_at:
                scene.broker.move((100_000.0, 0.0))

        await update(mote, whole, progress)

    async def play(scene: Scene) -> None:
        with pytest.raises(LinkError):
            async with linked() as mote:
                await send(scene, mote, cut_at=40)
        scene.broker.move((0.0, 0.0))
        await until(lambda: not scene.life.radio.busy, 120.0)
        cut = len(done)
        async with linked() as mote:
            await send(scene, mote, cut_at=-1)
            assert done[cut] >= done[cut - 1] > 0  # it went on
            assert (await mote.info()).firmware == "0.1.0"  # nothing is switched while it runs
            await mote.reboot()
        await until(lambda: scene.mote.counts["starts"] == 2)
        await until(lambda: scene.mote.radio.adverts > 0 and scene.life.samples)
        assert await version() == "0.2.0"
        assert pointer(scene).trial == 1
        await until(lambda: pointer(scene).good == 1)

    on_air(tmp_path, play, ota_key=KEY)
    assert done[-1] == len(whole)


def test_a_bundle_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with linked() as mote:
            with pytest.raises(MoteRefused, match="another ota_key"):
                await update(mote, bundle({"spinney_mote/__init__.py": b"", "spinney_mote/life.py": b"evil = True"}))
            assert await mote.info()
        assert pointer(scene).good == 0

    on_air(tmp_path, play, ota_key=KEY)


def test_a_crash_can_be_read_over_the_air(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        try:
            raise RuntimeError("what went wrong " * 10)
        except RuntimeError as error:
            record_crash(error, Files(str(scene.mote.flash.folder / "state")))
        written = read_checked(Files(str(scene.mote.flash.folder / "state")), "crash").decode()
        async with linked() as mote:
            info = await mote.info()
            assert written.startswith(info.last_crash)
            assert await mote.last_crash() == written
            assert "what went wrong" in written

    on_air(tmp_path, play)
