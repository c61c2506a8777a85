"""Lines from a serial port: a real pseudo-terminal, unplugged and plugged in again."""

from __future__ import annotations

import asyncio
import os
import tty
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hearing_kit import NOW, Kept, until

from spinney_mobile.acquire import Acquirers
from spinney_mobile.acquire.lines import LineError, Lines
from spinney_mobile.acquire.serial import SerialLines
from spinney_mobile.samples import MAX_HEARD_BYTES, AcquirerError
from spinney_mobile.settings import AcquireSerial


class Plug:
    """A device at the end of a cable: a link with the name of a port, as udev makes it."""

    def __init__(self, port: Path) -> None:
        self.port = port
        self.ours, self._theirs = os.openpty()
        tty.setraw(self._theirs)
        port.symlink_to(os.ttyname(self._theirs))

    def send(self, text: str | bytes) -> None:
        os.write(self.ours, text if isinstance(text, bytes) else text.encode())

    def pull(self) -> None:
        self.port.unlink(missing_ok=True)
        for end in {self._theirs, self.ours} - {-1}:
            os.close(end)
        self._theirs = self.ours = -1


def played(
    tmp_path: Path, play: Callable[[Kept, SerialLines, Acquirers, Plug], Awaitable[None]], **settings: Any
) -> list[tuple[str, Any]]:
    async def main() -> Kept:
        plug, kept = Plug(tmp_path / "ttyUSB0"), Kept()
        options = AcquireSerial(port=str(tmp_path / "ttyUSB0"), **settings)
        acquirer = SerialLines("serial:ttyUSB0", options, lambda: NOW)
        async with Acquirers(kept) as acquirers:
            acquirers.add(acquirer)
            await until(lambda: acquirer.counts["opened"])  # what came before is thrown away
            await play(kept, acquirer, acquirers, plug)
        plug.pull()
        return kept

    return [(heard.address, heard.values) for heard in asyncio.run(main()).heards]


def test_lines_of_json(tmp_path: Path) -> None:
    async def play(kept: Kept, acquirer: SerialLines, acquirers: Acquirers, plug: Plug) -> None:
        plug.send('alf of a line}\n{"temp": 21.5}\r\n\n[1]\n{"source": "shed", "t')
        await kept.until(lambda: kept.heards)
        plug.send('emp": 3}\n')
        await kept.until(lambda: len(kept.heards) == 2)
        assert acquirer.counts == {"opened": 1, "lines": 5, "bad lines": 2}
        assert acquirer.error is None, "the last one was fine"
        plug.send("7\n")
        await until(lambda: acquirer.counts["bad lines"] == 3)
        assert "no object" in str(acquirer.error)
        (status,) = acquirers.status()
        assert (status.state, status.error) == ("hearing", f"what came last cannot be read: {acquirer.error}")

    assert played(tmp_path, play) == [
        ("serial:ttyUSB0", {"temp": 21.5}),
        ("shed", {"source": "shed", "temp": 3}),
    ]


def test_lines_of_csv_with_their_head(tmp_path: Path) -> None:
    async def play(_kept: Kept, acquirer: SerialLines, _acquirers: Acquirers, plug: Plug) -> None:
        plug.send("temp, door ,note\n21.5,true,\n22,FALSE,warm\ntemp,door,note\n1,2\n")
        await until(lambda: acquirer.counts["lines"] == 5)
        assert acquirer.counts["bad lines"] == 1
        assert acquirer.error == "2 cells for 3 columns: '1,2'"

    assert played(tmp_path, play, format="csv", source="board") == [
        ("board", {"temp": 21.5, "door": True}),
        ("board", {"temp": 22.0, "door": False, "note": "warm"}),
    ]


def test_a_line_too_long_is_left_out_and_the_next_one_is_not(tmp_path: Path) -> None:
    async def play(kept: Kept, acquirer: SerialLines, _acquirers: Acquirers, plug: Plug) -> None:
        for _ in range(10):
            await asyncio.to_thread(plug.send, b"x" * 1000)
        plug.send('\n{"v": 1}\n')
        await kept.until(lambda: kept.heards)
        assert acquirer.counts["too long"] == 1

    assert MAX_HEARD_BYTES < 10_000
    assert played(tmp_path, play) == [("serial:ttyUSB0", {"v": 1})]


def test_a_port_unplugged_fails_and_is_opened_again(tmp_path: Path) -> None:
    async def play(kept: Kept, acquirer: SerialLines, acquirers: Acquirers, plug: Plug) -> None:
        plug.send('{"v": 1}\n')
        await kept.until(lambda: kept.heards)
        plug.pull()
        await until(lambda: acquirers.status()[0].state == "failed")
        assert "is it plugged in?" in (acquirers.status()[0].error or "")
        again = Plug(tmp_path / "ttyUSB0")
        await until(lambda: acquirer.counts["opened"] == 2)
        again.send('{"v": 2}\n')
        await kept.until(lambda: len(kept.heards) == 2)
        again.pull()

    assert [values["v"] for _, values in played(tmp_path, play)] == [1, 2]


def test_a_pattern_finds_the_port_and_a_port_is_opened_once(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        plug = Plug(tmp_path / "usb-acme-if00")
        acquirer = SerialLines("serial", AcquireSerial(port=str(tmp_path / "usb-*")))
        async with Acquirers(kept) as acquirers:
            acquirers.add(acquirer)
            await until(lambda: acquirer.counts["opened"])
            plug.send('{"v": 1}\n')
            await kept.until(lambda: kept.heards)
            with pytest.raises(AcquirerError, match="program"):
                await SerialLines("other", AcquireSerial(port=str(tmp_path / "usb-acme-if00"))).run(kept)
        plug.pull()
        with pytest.raises(AcquirerError, match="is it plugged in"):
            await SerialLines("none", AcquireSerial(port=str(tmp_path / "none*"))).run(kept)
        with pytest.raises(AcquirerError, match="is it plugged in"):
            await SerialLines("none", AcquireSerial(port=str(tmp_path / "none"))).run(kept)

    asyncio.run(main())


def test_columns_may_be_given_and_left_out() -> None:
    lines = Lines("csv", ["temp", "", "door"])
    assert lines.read("21,ignored,yes") == {"temp": 21.0, "door": "yes"}
    assert lines.read("nan,x,1") == {"door": 1.0}


@pytest.mark.parametrize(("form", "line"), [("csv", "21.5,22"), ("json", "{"), ("json", "21"), ("json", "[" * 100_000)])
def test_what_is_no_sample_is_refused(form: Any, line: str) -> None:
    with pytest.raises(LineError):
        Lines(form).read(line)
