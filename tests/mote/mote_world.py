"""A board for the mote's main loop: its ticks, RTC memory, flash and watchdog are handed in, and time is the test's."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

from spinney_boot import Files
from spinney_mote import mote
from spinney_mote.life import Life
from spinney_mote.sensor import Attribute, Sensor

from spinney_tools.sim import mp_cryptolib

sys.modules["cryptolib"] = mp_cryptolib.module()

PWRON, WATCHDOG, DEEPSLEEP = 1, 3, 4
WRAP = 1 << 30
READINGS: dict[str, Any] = {}
"""What the scripted sensor reads: `value`, raw; an exception, which it raises; `wait_ms`, for how long it measures."""


class Scripted(Sensor):
    """A sensor of the owner's own."""

    driver = "scripted"
    measures = (Attribute("temperature", "°C", 1, 100, -4000, 8500, "temperature"),)

    def _begin(self) -> int:
        return int(READINGS.get("wait_ms", 0))

    def _fetch(self, values: list[int | None]) -> None:
        value = READINGS["value"]
        if isinstance(value, Exception):
            raise value
        values[0] = value


class Charge(Sensor):
    """A battery that the test empties."""

    driver = "charge"
    measures = (Attribute("battery", "%", 1, 1, 0, 100, "battery"),)

    def _fetch(self, values: list[int | None]) -> None:
        values[0] = READINGS.get("battery")


def driver_module(name: str, driver: type[Sensor]) -> None:
    """As if a file of that name lay beside the library's drivers."""
    made = types.ModuleType(f"spinney_mote.drivers.{name}")
    setattr(made, driver.__name__, driver)
    sys.modules[made.__name__] = made


driver_module("scripted", Scripted)
driver_module("charge", Charge)


class Wdt:
    def __init__(self, world: World, timeout: int) -> None:
        self.world = world
        world.watchdog_ms = timeout
        self.feed()

    def feed(self) -> None:
        self.world.fed_ms = self.world.ms


class Rtc:
    def __init__(self, world: World) -> None:
        self.world = world

    def memory(self, data: bytes | None = None) -> bytes | None:
        if data is None:
            return self.world.rtc
        assert len(data) <= 2048
        self.world.rtc = bytes(data)
        return None


class RadioStub:
    """The main loop's side of radio.Radio."""

    def __init__(self) -> None:
        self.busy = False
        self.more = False
        self.shown: list[int] = []
        self.polls = 0
        self.is_on = False

    def start(self) -> None:
        self.is_on = True

    def stop(self) -> None:
        self.is_on = False

    def show(self, sample: Any) -> None:
        self.shown.append(sample.sequence)

    def poll(self) -> bool:
        self.polls += 1
        return self.more


class World:
    """One board over many starts. It is both `machine` and the `time` that the mote is given."""

    DEEPSLEEP_RESET = DEEPSLEEP

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.folder = folder
        self.settings = {"sensors": [{"driver": "scripted"}], **settings}
        self.ms = 0  # true time
        self.started_ms = 0
        self.rtc = b""
        self.cause = PWRON
        self.fed_ms = -1
        self.watchdog_ms = 0
        self.slept: list[int] = []
        self.resets = 0
        self.files = Files(str(folder / "state"))
        self.radio = RadioStub()
        READINGS.clear()
        READINGS["value"] = 2000

    # ---- machine

    def reset_cause(self) -> int:
        return self.cause

    def RTC(self) -> Rtc:  # noqa: N802 - machine's name
        return Rtc(self)

    def WDT(self, timeout: int) -> Wdt:  # noqa: N802 - machine's name
        return Wdt(self, timeout)

    def reset(self) -> None:
        self.resets += 1

    def deepsleep(self, ms: int) -> None:
        self.slept.append(ms)

    # ---- time

    def ticks_ms(self) -> int:
        return (self.ms - self.started_ms) % WRAP

    @staticmethod
    def ticks_diff(later: int, earlier: int) -> int:
        return (later - earlier + WRAP // 2) % WRAP - WRAP // 2

    def time_ns(self) -> int:
        return self.ms * 1_000_000

    def sleep_ms(self, ms: int) -> None:
        self.ms += ms

    # ---- the test's

    def start(self, cause: int = PWRON, *, boot_ms: int = 0) -> Life:
        """A start of the board; without power RTC memory is lost."""
        if cause == PWRON:
            self.rtc = b""
        self.cause = cause
        self.started_ms = self.ms
        self.ms += boot_ms
        self.files = Files(str(self.folder / "state"))
        life = mote.assemble(self, None, self.files, json.dumps(self.settings), self)
        life.begin()
        self.radio = RadioStub()
        life.switch_on(self.radio)
        return life

    def run(self, life: Life, ms: int) -> None:
        """Turns until so much time has passed, or the board sleeps or resets."""
        end_ms = self.ms + ms
        ends = len(self.slept) + self.resets
        while self.ms < end_ms:
            idle_ms = life.turn()
            if len(self.slept) + self.resets > ends:
                return
            self.ms += min(idle_ms, end_ms - self.ms)

    def wake(self) -> Life:
        """Sleeps as long as the mote wanted, and starts."""
        self.ms += self.slept[-1]
        return self.start(DEEPSLEEP)


class NoRtcWorld(World):
    """A board such as the Pico W, which keeps nothing in deep sleep."""

    RTC = None  # type: ignore[assignment]

    def __getattribute__(self, name: str) -> Any:
        if name == "RTC":
            raise AttributeError(name)
        return super().__getattribute__(name)
