"""`spinney up --source ble`: all is real but the adapter, one of a virtual radio with makers' sensors on it."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import Cloud, wait_until
from test_up import DEADLINE_SECONDS, PORTS, measured

from spinney_tools.sim import beacons
from spinney_tools.sim.air import Air
from spinney_tools.sim.remote_adapter import ServedRadio, serve
from spinney_tools.up.city import adapter_address

pytestmark = pytest.mark.slow
ON_AIR = Path(__file__).with_name("up_on_air.py")
ADAPTER = "here"


@pytest.fixture
def sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the adapter is served while sensors of several makers are on the air."""
    folder = tmp_path / "air"
    folder.mkdir()
    monkeypatch.chdir(folder)  # a socket's path must be short
    loop = asyncio.new_event_loop()
    served, over = threading.Event(), asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(_on_the_air(served, over),))
    thread.start()
    assert served.wait(DEADLINE_SECONDS)
    yield folder
    loop.call_soon_threadsafe(over.set)
    thread.join(DEADLINE_SECONDS)
    loop.close()


async def _on_the_air(served: threading.Event, over: asyncio.Event) -> None:
    air = Air()
    async with serve(ServedRadio(air, ADAPTER, adapter_address(0)), Path(f"{ADAPTER}.hci"), Counter()):
        for recording in beacons.read(beacons.RECORDED):
            beacons.Beacon(air, recording).start()
        served.set()
        await over.wait()


class Up(Cloud):
    def __init__(self, data: Path, sockets: Path, *arguments: str) -> None:
        program = [sys.executable, str(ON_AIR), str(sockets), ADAPTER]
        super().__init__(data, "--source", "ble", *arguments, program=program, ports=PORTS)


def test_what_the_adapter_hears_is_told_of_and_has_its_place_on_the_map_from_then_on(
    tmp_path: Path, sockets: Path
) -> None:
    with Up(tmp_path / "data", sockets) as up:
        assert "--place LAT,LONG puts it on the map, too" in up.said
        wait_until(lambda: "warm matches" in up.said, "a notification on the terminal", DEADLINE_SECONDS)
        assert "lat" not in measured(up, "temperature > 20")
        assert up.stop() == 0, up.said
    for place in (["--place", "45.81,15.98"], []):
        with Up(tmp_path / "data", sockets, *place) as up:
            assert "--place" not in up.said
            found = measured(up, "temperature > 20 AND lat IS NOT NULL")
            assert (found["lat"], found["long"]) == (45.81, 15.98)
            assert up.stop() == 0, up.said
