"""`spinney bench dashboard`: what the page costs the process that serves it, with many sources and many browsers."""

from __future__ import annotations

import asyncio
import importlib.metadata
import itertools
import json
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from . import dashboard_frames
from .dashboard_frames import Frames
from .machine import describe
from .running_cloud import RunningCloud, running_cloud
from .stuck import Stuck
from .table import Table, number

HOST = "127.0.0.1"
BROWSERS = 20
SOURCES = 2_000
TICKS_PER_SECOND = 20
SECONDS = 15.0
LOOK_SECONDS = 10.0
"""At each thing that is done with the map."""
WAIT_SECONDS = 60.0
MOST_SHARE = 0.10
"""Of one core."""
LEAST_FRAMES = 15.0
"""A second, to each browser: below it a map is not smooth."""

NOTES = ("A frame and its scripts: half of them take at most the first, 95 of 100 the second; drawn without a GPU.", "")

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """So many readings in each twentieth of a second, to so many browsers."""

    readings: int
    browsers: int
    has_target: bool

    @property
    def name(self) -> str:
        """For figures."""
        return f"{self.readings * TICKS_PER_SECOND}_to_{self.browsers}"


CASES = (
    Case(1, 0, has_target=False),
    Case(1, BROWSERS, has_target=True),
    Case(100, 0, has_target=False),
    Case(100, 1, has_target=False),
    Case(100, BROWSERS, has_target=True),
)
LOOKS = {"shown": dashboard_frames.shown, "dragged and zoomed": dashboard_frames.moved}
"""What is done with the map of a real browser; the other browsers of the last case are sockets alone."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, dict[str, float]]
    frames: dict[str, Frames]
    """By what was done; none where there is no browser."""
    load: float

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        missed = []
        for case in CASES:
            found = self.figures[case.name]
            if case.has_target and found["share"] > MOST_SHARE:
                missed.append(f"{_words(case)}: {found['share']:.1%} of a core instead of {MOST_SHARE:.0%}")
            if case.has_target and found["frames"] < LEAST_FRAMES:
                missed.append(f"{_words(case)}: {found['frames']:.1f} frames/s instead of {LEAST_FRAMES:g}")
        return missed + [f"map {look}: {text}" for look, frames in self.frames.items() for text in frames.missed()]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        frames = {look: frames.as_json() for look, frames in self.frames.items()}
        return {**self.figures, "map": frames, "load": self.load, "missed": self.missed()}


def measure(progress: Progress) -> Measurement:
    """Each case in one cloud, which runs on."""
    load = os.getloadavg()[0]
    with running_cloud("--dashboard-tiles", "") as cloud:
        figures = {}
        for case in CASES:
            progress(f"showing {_words(case)}")
            figures[case.name] = asyncio.run(_measure(cloud, case))
        frames = _measure_frames(cloud, progress)
    return Measurement(figures, frames, load)


def _measure_frames(cloud: RunningCloud, progress: Progress) -> dict[str, Frames]:
    if (missing := dashboard_frames.missing()) is not None:
        progress(f"how smooth the map is in a browser is left out: there is no {missing}")
        return {}
    progress(f"showing {_words(CASES[-1])}, one of them chromium")
    return asyncio.run(_look(cloud, CASES[-1]))


async def _look(cloud: RunningCloud, case: Case) -> dict[str, Frames]:
    """Each of LOOKS, in one real browser beside the others."""
    async with _browsers(cloud, case.browsers - 1) as (publisher, _):
        publishing = asyncio.create_task(_publish(publisher, case.readings, None))
        try:
            async with dashboard_frames.page_of(f"http://{HOST}:{cloud.http_port}", SOURCES) as page:
                return {name: await look(page, LOOK_SECONDS) for name, look in LOOKS.items()}
        finally:
            publishing.cancel()


async def _measure(cloud: RunningCloud, case: Case) -> dict[str, float]:
    async with _browsers(cloud, case.browsers) as (publisher, browsers):
        return await _watch(cloud, publisher, browsers, case)


@asynccontextmanager
async def _browsers(cloud: RunningCloud, count: int) -> AsyncIterator[tuple[_Publisher, list[_Browser]]]:
    """So many, which know all sources and read on."""
    from websockets.asyncio.client import connect

    publisher = _Publisher(cloud.mqtt_port)
    url = f"{HOST}:{cloud.http_port}"
    async with AsyncExitStack() as stack:
        stack.callback(publisher.close)
        publisher.publish(SOURCES)
        browsers = []
        for _ in range(count):
            socket = await stack.enter_async_context(
                connect(f"ws://{url}/dashboard/live", origin=f"http://{url}", max_size=None)  # type: ignore[arg-type]
            )
            await socket.send('{"resolution":9}')
            browsers.append(_Browser(socket))
        reading = [asyncio.create_task(browser.read()) for browser in browsers]
        try:
            await _until(lambda: all(browser.known >= SOURCES for browser in browsers))
            yield publisher, browsers
        finally:
            for task in reading:
                task.cancel()
            await asyncio.gather(*reading, return_exceptions=True)


async def _watch(cloud: RunningCloud, publisher: _Publisher, browsers: list[_Browser], case: Case) -> dict[str, float]:
    began, used = time.monotonic(), cloud.cpu_seconds()["http"]
    before = sum(browser.frames for browser in browsers), sum(browser.bytes for browser in browsers)
    await _publish(publisher, case.readings, SECONDS)
    passed = time.monotonic() - began
    frames, size = sum(browser.frames for browser in browsers), sum(browser.bytes for browser in browsers)
    each = max(1, len(browsers)) * passed
    return {
        "share": (cloud.cpu_seconds()["http"] - used) / passed,
        "frames": (frames - before[0]) / each,
        "kilobytes": (size - before[1]) / each / 1000,
    }


async def _publish(publisher: _Publisher, readings: int, seconds: float | None) -> None:
    """So many in each tick; None: until cancelled."""
    began = time.monotonic()
    for tick in itertools.count(1) if seconds is None else range(1, int(seconds * TICKS_PER_SECOND) + 1):
        publisher.publish(readings)
        await asyncio.sleep(max(0.0, began + tick / TICKS_PER_SECOND - time.monotonic()))


async def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise Stuck(f"the browsers were not told of all sources in {WAIT_SECONDS:g} s")
        await asyncio.sleep(0.05)


class _Browser:
    """Takes what it is told, and looks at as little of it as can be."""

    def __init__(self, socket: Any) -> None:
        self.frames = 0
        self.bytes = 0
        self.known = 0
        self._socket = socket

    async def read(self) -> None:
        """Until cancelled."""
        async for message in self._socket:
            self.bytes += len(message)
            if message.startswith('{"kind":"points"'):
                self.frames += 1
                if self.known < SOURCES:
                    told = json.loads(message)
                    self.known = len(told["items"]) if told["whole"] else self.known + len(told["items"])


class _Publisher:
    """Sources all over a city, each in its turn."""

    def __init__(self, port: int) -> None:
        chance = random.Random(1)  # noqa: S311 - repeatable on purpose
        self._places = [(45.8 + chance.gauss(0, 0.02), 15.97 + chance.gauss(0, 0.03)) for _ in range(SOURCES)]
        self._next = 0
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id="bench")
        self._client.connect(HOST, port)
        self._client.loop_start()

    def publish(self, count: int) -> None:
        """As many readings, in one message."""
        rows = []
        for _ in range(count):
            lat, long = self._places[self._next]
            rows.append(
                {"source": f"mote-{self._next:04d}", "lat": lat, "long": long, "NO2": 40.5, "temperature": 21.25}
            )
            self._next = (self._next + 1) % SOURCES
        self._client.publish("spinney/bench/pub", json.dumps(rows), qos=1)

    def close(self) -> None:
        """No more."""
        self._client.disconnect()
        self._client.loop_stop()


def _words(case: Case) -> str:
    browsers = {0: "nobody", 1: "1 browser"}.get(case.browsers, f"{case.browsers} browsers")
    return f"{SOURCES:,} sources, {case.readings * TICKS_PER_SECOND:,} readings/s, to {browsers}"


def table(found: Measurement) -> Table:
    """One row for each case, and for each thing that is done with the map of a real browser."""
    rows = []
    for case in CASES:
        one = found.figures[case.name]
        told = (f"{one['frames']:.1f}", f"{number(one['kilobytes'])} kB/s") if case.browsers else ("", "")
        target = f"{MOST_SHARE:.0%}" if case.has_target else ""
        rows.append((_words(case), f"{one['share']:.1%}", *told, "", "", "", target))
    for look, frames in found.frames.items():
        target = f"script <= {dashboard_frames.MOST_WORK_MS:g} ms"
        rows.append((f"the same, the map {look} in chromium", "", "", "", *frames.cells(), target))
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("nicegui", "uvicorn", "websockets")]
    header = ("shown", "of a core", "frames/s", "to each", "frame", "its scripts", "longest task", "target")
    return Table("dashboard", describe(*versions), header, tuple(rows), NOTES if found.frames else ())
