"""Where the broker is: fixed, gpsd over a real socket, NMEA over a real pty, a file; cells of H3 and MGRS."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import tty
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from deciding_kit import NOW

from spinney.geodesy import distance
from spinney_mobile import place as module
from spinney_mobile.cells import GridError, Mgrs, grid
from spinney_mobile.place import FIX_SECONDS, Fix, PlaceError, Whereabouts, of_file, of_gpsd, of_nmea
from spinney_mobile.settings import Place

TPV = {"class": "TPV", "mode": 3, "time": "2026-03-01T12:00:00.000Z", "lat": 45.815, "lon": 15.977}
RMC = "$GPRMC,123519,A,4807.038,N,01131.000,E,022.4,084.4,230394,003.1,W*6A"
EDGE = (0.001, -0.001)
"""Where zones meet, squares are cut, and their middles are in others."""
GGA = "$GPGGA,123519,4807.038,N,01131.000,E,1,08,0.9,545.4,M,46.9,M,,*47"


async def until(holds: Callable[[], Any], what: str) -> None:
    deadline = asyncio.get_running_loop().time() + 60
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, f"waited for {what}"
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def following(settings: Place, **more: Any) -> AsyncIterator[Whereabouts]:
    here = Whereabouts(settings, **more)
    task = asyncio.create_task(here.run())
    try:
        yield here
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ---- places and times


def test_a_fixed_place_is_the_same_at_all_times() -> None:
    here = Whereabouts(Place(kind="fixed", lat=45.8, long=15.9))
    assert here.at(0.0) == here.at(NOW) == (45.8, 15.9)


def test_a_fixed_place_needs_to_be_said() -> None:
    with pytest.raises(PlaceError, match=r"place\.lat"):
        Whereabouts(Place(kind="fixed"))


def test_a_sample_is_where_the_broker_was_when_it_was_made() -> None:
    here = Whereabouts(Place(kind="gpsd"))
    for n in range(3):
        here.put(Fix(NOW + 100 * n, 45.0 + n, 15.0))
    assert here.at(NOW + 105) == (46.0, 15.0)
    assert here.at(NOW + 30) == (45.0, 15.0)
    assert here.at(NOW + 99) is None
    assert here.at(NOW + 200 + FIX_SECONDS + 1) is None
    assert here.at(NOW - 1) == (45.0, 15.0)


def test_fixes_that_come_twice_or_late_are_passed_over() -> None:
    here = Whereabouts(Place(kind="gpsd"))
    for fix in (Fix(NOW, 45.0, 15.0), Fix(NOW, 46.0, 15.0), Fix(NOW - 5, 47.0, 15.0)):
        here.put(fix)
    assert here.at(NOW) == (45.0, 15.0)


def test_when_the_clock_was_set_back_what_was_known_before_is_forgotten() -> None:
    here = Whereabouts(Place(kind="gpsd"))
    for fix in (Fix(NOW, 45.0, 15.0), Fix(NOW - 2 * FIX_SECONDS, 46.0, 15.0)):
        here.put(fix)
    assert here.at(NOW - 2 * FIX_SECONDS) == (46.0, 15.0)
    assert here.at(NOW) is None


# ---- what lines say


def test_gpsd_says_where_we_are_only_with_a_fix() -> None:
    assert of_gpsd(json.dumps(TPV).encode()) == Fix(0.0, 45.815, 15.977)
    for mode in (0, 1, None, "3", [3]):
        assert of_gpsd(json.dumps({**TPV, "mode": mode}).encode()) is None
    assert of_gpsd(b'{"class":"SKY"}') is None


@pytest.mark.parametrize("line", [RMC, GGA, RMC + "\r\n"])
def test_sentences_of_a_receiver_are_in_degrees_and_minutes(line: str) -> None:
    fix = of_nmea(line.encode())
    assert fix is not None
    assert fix[1:] == pytest.approx((48 + 7.038 / 60, 11 + 31 / 60))


def test_south_and_west_are_negative() -> None:
    fix = of_nmea(_sentence("GPRMC,1,A,3351.5,S,07030.0,W,,,,,"))
    assert fix is not None
    assert fix[1:] == pytest.approx((-(33 + 51.5 / 60), -70.5))


def _sentence(body: str) -> bytes:
    found = 0
    for letter in body.encode():
        found ^= letter
    return f"${body}*{found:02X}".encode()


@pytest.mark.parametrize(
    "body", ["GPRMC,1,V,4807.0,N,01131.0,E,,,,,", "GPGGA,1,4807.0,N,01131.0,E,0,0,,,,,,,", "GPGSV,1,1,0"]
)
def test_without_a_fix_a_sentence_says_nothing(body: str) -> None:
    assert of_nmea(_sentence(body)) is None


@pytest.mark.parametrize(
    ("read", "line"),
    [
        (of_nmea, RMC.replace("4807", "4808").encode()),
        (of_nmea, b"\xff\xfe"),
        (of_nmea, _sentence("GPRMC,1,A,x,N,y,E")),
        (of_gpsd, b"{"),
        (of_gpsd, json.dumps({**TPV, "lat": "45"}).encode()),
        (of_file, b'{"time": 1, "lat": 91, "long": 0}'),
        (of_file, b"[]"),
    ],
)
def test_damaged_lines_are_no_fix(read: Any, line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - whatever its words are, it is counted and no more
        read(line)


@pytest.mark.parametrize("line", [b"[" * 10_000, b'{"class":"TPV","mode":3,"lat":1%s,"lon":0}' % (b"0" * 400)])
def test_lines_that_no_receiver_would_send_are_counted_and_end_nothing(line: bytes) -> None:
    here = Whereabouts(Place(kind="gpsd"))
    assert here._read(of_gpsd, line) is None
    assert here.refused == 1


# ---- receivers


def test_gpsd_is_asked_to_tell_and_asked_again_when_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.01)

    async def test() -> None:
        asked: list[bytes] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readline())
            lat = 45.0 + len(asked)
            for line in ({"class": "VERSION"}, {**TPV, "lat": lat}):
                writer.write(json.dumps(line).encode() + b"\n")
            await writer.drain()
            if len(asked) > 2:
                await reader.read()  # it stays
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with following(Place(kind="gpsd", gpsd=f"127.0.0.1:{port}")) as here:
            await until(lambda: len(asked) > 2, "the third connection")
            await until(lambda: here._fixes and here._fixes[-1].lat >= 47.0, "its fix")
            await until(lambda: here.error is None, "the trouble to be over")
            assert b"WATCH" in asked[0]
        server.close()
        await server.wait_closed()

    asyncio.run(test())


def test_no_gpsd_is_said_with_what_to_do() -> None:
    async def test() -> None:
        async with following(Place(kind="gpsd", gpsd="127.0.0.1:1")) as here:
            await until(lambda: here.error, "an error")
            assert "is it running" in str(here.error)

    asyncio.run(test())


def test_a_receiver_on_a_serial_port_is_followed() -> None:
    async def test() -> None:
        ours, theirs = pty.openpty()
        tty.setraw(theirs)
        try:
            async with following(Place(kind="nmea", port=os.ttyname(theirs)), clock=lambda: NOW) as here:

                def heard() -> Any:  # opening the port throws away what came before, so it is said again and again
                    os.write(ours, f"half a sentence\r\n{RMC}\r\n".encode())
                    return here.at(NOW)

                await until(heard, "a fix")
                assert here.at(NOW) == pytest.approx((48.1173, 11.516667))
        finally:
            os.close(ours)
            os.close(theirs)

    asyncio.run(test())


def test_no_such_port_is_said_with_what_to_do() -> None:
    async def test() -> None:
        async with following(Place(kind="nmea", port="/dev/no-such-port")) as here:
            await until(lambda: here.error, "an error")
            assert "plugged in" in str(here.error)

    asyncio.run(test())


def test_a_file_is_followed_as_it_grows_and_when_it_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FILE_SECONDS", 0.01)
    file = tmp_path / "track.jsonl"

    def write(mode: str, moment: float, lat: float) -> None:
        with file.open(mode) as opened:
            opened.write(json.dumps({"time": moment, "lat": lat, "long": 15.0}) + "\n")

    async def test() -> None:
        write("w", NOW, 45.0)
        async with following(Place(kind="file", file=file)) as here:
            await until(lambda: here.at(NOW) == (45.0, 15.0), "the first")
            write("a", NOW + 1, 46.0)
            await until(lambda: here.at(NOW + 1) == (46.0, 15.0), "the second")
            write("w", NOW + 2, 47.0)
            await until(lambda: here.at(NOW + 2) == (47.0, 15.0), "the one of the new file")

    asyncio.run(test())


# ---- cells


@pytest.mark.parametrize(("name", "resolutions"), [("h3", range(16)), ("mgrs", range(6))])
@pytest.mark.parametrize("place", [(45.815, 15.977), (-33.86, 151.2), EDGE, (64.1, -21.9)])
def test_a_point_is_within_the_radius_of_its_cell(name: Any, resolutions: range, place: tuple[float, float]) -> None:
    pytest.importorskip(name)
    for resolution in resolutions:
        cells = grid(name, resolution)
        cell = cells.cell(*place, resolution)
        assert distance(*cells.centre(cell), *place) <= cells.radius_meters(cell)
        if place != EDGE:
            assert cells.cell(*cells.centre(cell), resolution) == cell


def test_a_grid_that_is_too_fine_is_refused() -> None:
    with pytest.raises(GridError, match="finest"):
        grid("mgrs", 6)


def test_cells_whose_package_is_missing_say_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mgrs", None)
    with pytest.raises(GridError, match="pip install mgrs"):
        Mgrs()
