"""A virtual mote: radio, flash, battery, and a board that runs the unchanged firmware through resets and sleeps."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import Any

from .air import Air
from .battery import Battery
from .board import Board
from .flash import Flash
from .mp_machine import DEEPSLEEP_RESET, PWRON_RESET, WDT_RESET, Reset
from .propagation import Place
from .radio import Radio

FIRMWARE = Path(__file__).parents[3] / "firmware"
MAX_LOG_LINES = 200
World = Callable[[str], float | None]


def _nothing(_quantity: str) -> float | None:
    return None


class VirtualMote:
    """One mote. `flash` is its own folder; what is not in there is read from `firmware`.

    `ppm` is how fast its crystal runs. `hardware` is what Board attaches; `world` what its virtual sensors read.
    """

    def __init__(
        self,
        air: Air,
        name: str,
        address: str,
        flash: Path,
        *,
        firmware: Path = FIRMWARE,
        place: Place = (0.0, 0.0),
        power_dbm: float = 0.0,
        battery: Battery | None = None,
        ppm: float = 0.0,
        hardware: Mapping[tuple[str, Hashable], Any] | None = None,
        world: World = _nothing,
        seed: int = 0,
    ) -> None:
        self.name = name
        self.radio = Radio(air, name, address, place, power_dbm)
        self.flash = Flash(flash, firmware)
        self.battery = battery or Battery()
        self.battery.ledger.traffic = self.radio.traffic
        self.levels: dict[Hashable, int] = {}
        self.log: deque[str] = deque(maxlen=MAX_LOG_LINES)
        self.counts: Counter[str] = Counter()
        self.board: Board | None = None
        self._hardware = dict(hardware or {})
        self._ppm = ppm
        self._world = world
        self._seed = seed
        self._rtc_memory = b""
        self._rtc_s = 0.0
        self._next: asyncio.TimerHandle | None = None
        self._off_s = 0.0
        self._is_on = False

    @property
    def is_on(self) -> bool:
        """Whether it has power; it may be asleep."""
        return self._is_on

    def configure(self, entries: Mapping[str, Any]) -> None:
        """Writes its config.json, as flashing does."""
        (self.flash.folder / "config.json").write_text(json.dumps(entries), "utf-8")

    def power_on(self) -> None:
        """Gives it power: it starts soon."""
        if not self._is_on:
            self._is_on = True
            self._rtc_memory, self._rtc_s = b"", 0.0
            self._start_later(self._boot_s, PWRON_RESET)

    def power_off(self) -> None:
        """Takes its power at once, whatever it does."""
        self._is_on = False
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self.board is not None:
            self.board.stop()

    def read(self, quantity: str) -> float | None:
        """What its virtual sensors read: of the battery itself, else of the world around it."""
        return self.battery.percent if quantity == "battery" else self._world(quantity)

    @property
    def _boot_s(self) -> float:
        """From power or reset until the firmware's first line, with its library loaded."""
        return self.battery.consumption.boot_s + self.battery.consumption.load_s

    def _start_later(self, seconds: float, cause: int) -> None:
        loop = asyncio.get_running_loop()
        self._off_s = loop.time()
        if seconds < float("inf"):
            self._next = loop.call_later(seconds, self._start, cause)

    def _start(self, cause: int) -> None:
        self._next = None
        loop = asyncio.get_running_loop()
        asleep_s = loop.time() - self._off_s
        if cause != PWRON_RESET:
            self._rtc_s += asleep_s * (1.0 + self._ppm * 1e-6)
        if cause == DEEPSLEEP_RESET:
            self.battery.ledger.asleep_s += max(0.0, asleep_s - self._boot_s)
        self.battery.ledger.starts += 1
        if self.battery.percent <= 0:
            self.counts["battery empty"] += 1
            self.power_off()
            return
        self.counts["starts"] += 1
        self.flash.is_powered = True
        self.board = Board(
            self.name,
            self.radio,
            self.flash,
            self.battery,
            cause=cause,
            rtc_memory=self._rtc_memory,
            rtc_s=self._rtc_s,
            ppm=self._ppm,
            hardware=self._hardware,
            levels=self.levels,
            world=self.read,
            log=self.log.append,
            ended=self._ended,
            seed=self._seed,
        )
        self.board.start()

    def _ended(self, reset: Reset | None) -> None:
        board, self.board = self.board, None
        assert board is not None
        self._rtc_memory = board.rtc_memory
        self._rtc_s = board.rtc_s()
        if reset is None or not self._is_on:
            self._is_on = False
            self.counts["power cuts"] += 1
            return
        self.counts[_CAUSES.get(reset.cause, "resets")] += 1
        self._start_later(reset.after_s + self._boot_s, reset.cause)


_CAUSES = {DEEPSLEEP_RESET: "deep sleeps", WDT_RESET: "watchdog resets"}
