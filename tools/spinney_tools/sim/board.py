"""One start of a virtual board: unchanged firmware in a fiber of its own, with the mote's clock, from boot to reset.

A firmware that sleeps gives way to all others; one that computes takes no virtual time, but for a little each time it
looks at its clock, so that loops which wait for it end.
"""

from __future__ import annotations

import asyncio
import gc as real_gc
import io
import random
import sys as real_sys
import time as real_time
import traceback
import types
from collections.abc import Callable, Coroutine, Hashable, Mapping
from pathlib import Path
from typing import Any

import greenlet  # type: ignore[import-untyped]

from . import mp_bluetooth, mp_cryptolib, mp_machine
from .battery import Battery
from .flash import Flash, PowerCut
from .importer import Importer
from .mp_machine import WDT_RESET, Reset
from .radio import Radio

_TICKS_MASK = 0x3FFFFFFF
_TICKS_HALF = 0x20000000
_LOOK_S = 10e-6
"""What looking at the clock takes."""
_EPOCH_2000_S = 946_684_800
_FOR_EVER_S = 1e9
MAX_SCHEDULED = 8
_DRIVERS = "spinney_mote.drivers"
_EXTRA: Mapping[str, Path] = {f"{_DRIVERS}.virtual": Path(__file__).with_name("virtual_driver.py")}
"""Files that motes find beside their own: the sensor that reads the simulated world."""


class Board:
    """`ended` is told, once, with the reset that ended it, or None after a loss of power.

    `hardware` holds what is attached: ("i2c", 0) a bus, ("adc", 34) a function that gives millivolts. `world` is what
    virtual sensors read: a value by the quantity's name, None where there is none. `rtc_memory` outlives the board.
    """

    heap_bytes = 120_000

    def __init__(
        self,
        name: str,
        radio: Radio,
        flash: Flash,
        battery: Battery,
        *,
        cause: int,
        rtc_memory: bytes,
        rtc_s: float,
        ppm: float,
        hardware: Mapping[tuple[str, Hashable], Any],
        levels: dict[Hashable, int],
        world: Callable[[str], float | None],
        log: Callable[[str], None],
        ended: Callable[[Reset | None], None],
        seed: int,
    ) -> None:
        self.name = name
        self.battery = battery
        self.cause = cause
        self.rtc_memory = rtc_memory
        self.hardware = hardware
        self.levels = levels
        self.crash: BaseException | None = None
        self._flash = flash
        self._log = log
        self._rate = 1.0 + ppm * 1e-6
        self._world = world
        self._ended = ended
        self._seed = seed
        self._loop = asyncio.get_running_loop()
        self._start_s = self._loop.time()
        self._rtc_s = rtc_s
        self._ahead_s = 0.0
        self._read_s = -1.0
        self._fate: BaseException | None = None
        self._is_over = False
        self._round = 0
        self._watchdog: asyncio.TimerHandle | None = None
        self._timers: set[asyncio.TimerHandle] = set()
        self._task: asyncio.Task[None] | None = None
        self.ble = mp_bluetooth.BLE(radio, self.report, self._start_radio)
        self._fiber = greenlet.greenlet(self._run)

    def start(self) -> None:
        """Runs boot.py and main.py until they wait for the first time."""
        self._fiber.parent = greenlet.getcurrent()
        self._fiber.switch()

    def stop(self) -> None:
        """Cuts the power."""
        self._end(PowerCut(), None)

    @property
    def is_awake(self) -> bool:
        """Whether the firmware runs or sleeps lightly, and has neither ended nor crashed."""
        return not self._is_over and not self._fiber.dead

    # ---- the firmware's fiber

    def _run(self) -> None:
        try:
            importer = Importer(self._flash, self._modules(), _EXTRA, self._path, self._print, _know_driver)
            for file in ("boot.py", "main.py"):
                importer.run(file)
        except Reset as reset:
            self._over(reset)
        except PowerCut:
            self._over(None)
        except Exception as error:  # noqa: BLE001 - any error of the firmware's: it is kept, and the board idles
            self.crash = error
            self.report(error)

    def _block(self) -> None:
        """Gives way until _resume; raises what has befallen the board meanwhile."""
        if greenlet.getcurrent() is not self._fiber:
            raise RuntimeError("a handler of interrupts must not wait")
        assert self._fiber.parent is not None
        self._fiber.parent.switch()
        if self._fate is not None:
            raise self._fate

    def _resume(self, number: int) -> None:
        if number == self._round and not self._is_over:
            self._round += 1
            self._fiber.parent = greenlet.getcurrent()
            self._fiber.switch()

    def sleep(self, seconds: float, is_light: bool = False) -> None:
        """What time.sleep() and machine.lightsleep() do."""
        if self._fate is not None:
            raise self._fate
        real_s = max(0.0, seconds) / self._rate + self._ahead_s
        self._ahead_s = 0.0
        number, began_s = self._round, self._loop.time()
        if real_s < _FOR_EVER_S:
            self.later(real_s, self._resume, number)
        has_radio = self.ble.active()
        try:
            self._block()
        finally:
            self._count_time(self._loop.time() - began_s, is_light, has_radio)

    def _count_time(self, seconds: float, is_light: bool, has_radio: bool) -> None:
        ledger = self.battery.ledger
        if is_light:
            ledger.light_sleep_s += seconds
        elif has_radio:
            ledger.radio_s += seconds
        else:
            ledger.idle_s += seconds

    def wait(self, work: Coroutine[Any, Any, None]) -> None:
        """Blocks the firmware until something asynchronous is done."""
        number = self._round
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(lambda _task: self._resume(number))
        self._block()
        if self._task.done() and not self._task.cancelled():
            self._task.result()

    def _start_radio(self, work: Coroutine[Any, Any, None]) -> None:
        self.battery.ledger.radio_starts += 1
        self.wait(work)

    def later(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        """Calls something, unless the board is over by then."""

        def fire() -> None:
            self._timers.discard(handle)
            call(*arguments)

        handle = self._loop.call_later(seconds, fire)
        self._timers.add(handle)

    def guarded(self, handler: Callable[..., Any], *arguments: Any) -> None:
        """Calls a handler of the firmware's from outside its fiber; what it raises is reported."""
        try:
            handler(*arguments)
        except Exception as error:  # noqa: BLE001 - any error of the firmware's; it is reported
            self.report(error)
        except Reset as reset:
            self._end(reset, reset)
        except PowerCut:
            self._end(PowerCut(), None)

    def guard(self, seconds: float) -> None:
        """The watchdog: starts anew unless it is called again in time."""
        if self._watchdog is not None:
            self._watchdog.cancel()
        reset = Reset(WDT_RESET)
        self._watchdog = self._loop.call_later(seconds, self._end, reset, reset)

    def _end(self, fate: BaseException, reset: Reset | None) -> None:
        if self._is_over:
            return
        self._fate = fate
        self._flash.is_powered = False
        if self._fiber and not self._fiber.dead and greenlet.getcurrent() is not self._fiber:
            self._fiber.parent = greenlet.getcurrent()
            self._fiber.throw(fate)
        self._over(reset)

    def _over(self, reset: Reset | None) -> None:
        if self._is_over:
            return
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        if self._watchdog is not None:
            self._watchdog.cancel()
        for timer in self._timers:
            timer.cancel()
        self.ble.stop()
        self._loop.call_soon(self._ended, reset)

    def _read(self, quantity: str) -> float | None:
        ledger, now_s = self.battery.ledger, self._loop.time()
        ledger.reads += 1
        ledger.samples += now_s != self._read_s  # the quantities of a sample are read in one go
        self._read_s = now_s
        return self._world(quantity)

    # ---- the mote's own time

    def seconds(self) -> float:
        """Since this start, by the mote's own crystal."""
        return (self._loop.time() + self._ahead_s - self._start_s) * self._rate

    def rtc_s(self) -> float:
        """The real-time clock's, which goes on in deep sleep; it begins in the year 2000."""
        return self._rtc_s + self.seconds()

    def localtime(self, seconds: float | None = None) -> tuple[int, ...]:
        since = self.rtc_s() if seconds is None else seconds
        return tuple(real_time.gmtime(_EPOCH_2000_S + since))[:8]

    def _look(self) -> float:
        self._ahead_s += _LOOK_S
        return self.seconds()

    # ---- modules

    def _modules(self) -> dict[str, types.ModuleType]:
        made = {
            "bluetooth": mp_bluetooth.module(self.ble),
            "cryptolib": mp_cryptolib.module(),
            "machine": mp_machine.machine_module(self),
            "esp32": mp_machine.esp32_module(self),
            "time": self._time(),
            "os": self._os(),
            "sys": self._sys(),
            "gc": self._gc(),
            "micropython": self._micropython(),
            "random": self._random(),
            "spinney_sim": _module("spinney_sim", read=self._read, now_s=self._loop.time),
        }
        made.update({f"u{name}": module for name, module in list(made.items())})
        return made

    def _time(self) -> types.ModuleType:
        return _module(
            "time",
            ticks_ms=lambda: int(self._look() * 1e3) & _TICKS_MASK,
            ticks_us=lambda: int(self._look() * 1e6) & _TICKS_MASK,
            ticks_cpu=lambda: int(self._look() * 1e6) & _TICKS_MASK,
            ticks_diff=lambda one, other: ((one - other + _TICKS_HALF) & _TICKS_MASK) - _TICKS_HALF,
            ticks_add=lambda ticks, more: (ticks + more) & _TICKS_MASK,
            sleep=self.sleep,
            sleep_ms=lambda ms: self.sleep(ms / 1e3),
            sleep_us=lambda us: self.sleep(us / 1e6),
            time=lambda: int(self.rtc_s()),
            time_ns=lambda: int(self.rtc_s() * 1e9),
            gmtime=self.localtime,
            localtime=self.localtime,
        )

    def _os(self) -> types.ModuleType:
        made = self._flash.module()
        chance = random.Random(f"{self._seed}/{self.name}/{self._start_s}")  # noqa: S311 - repeatable on purpose
        made.__dict__.update(
            urandom=chance.randbytes,
            uname=lambda: ("esp32", "esp32", "1.27.0", "virtual", "Spinney's virtual board with ESP32C3"),
        )
        return made

    def _random(self) -> types.ModuleType:
        chance = random.Random(f"{self._seed}/{self.name}/{self._start_s}/random")  # noqa: S311 - as above
        names = ("random", "randint", "randrange", "uniform", "choice", "getrandbits", "seed")
        return _module("random", **{name: getattr(chance, name) for name in names})

    def _sys(self) -> types.ModuleType:
        def print_exception(error: BaseException, file: Any = None) -> None:
            text = "".join(traceback.format_exception(error))
            if file is None:
                self._log(text)
            else:
                file.write(text)

        def leave(_value: object = None) -> None:
            raise Reset(mp_machine.SOFT_RESET)

        self._path = ["", ".frozen", "/lib"]
        implementation = types.SimpleNamespace(name="micropython", version=(1, 27, 0), _machine="virtual", _mpy=0x2906)
        return _module(
            "sys",
            path=self._path,
            modules={},
            argv=[],
            platform="esp32",
            implementation=implementation,
            version="3.4.0; MicroPython v1.27.0",
            version_info=(3, 4, 0),
            byteorder="little",
            maxsize=0x7FFFFFFF,
            print_exception=print_exception,
            exit=leave,
            stdout=real_sys.stdout,
        )

    def _gc(self) -> types.ModuleType:
        """Plausible numbers; the true ones are measured on MicroPython."""
        return _module(
            "gc",
            collect=lambda: None,
            mem_free=lambda: self.heap_bytes // 2,
            mem_alloc=lambda: self.heap_bytes // 2,
            threshold=lambda _bytes=-1: -1,
            enable=lambda: None,
            disable=lambda: None,
            isenabled=real_gc.isenabled,
        )

    def _micropython(self) -> types.ModuleType:
        waiting = 0

        def schedule(handler: Callable[[Any], None], argument: Any) -> None:
            nonlocal waiting
            if waiting >= MAX_SCHEDULED:
                raise RuntimeError("schedule queue full")
            waiting += 1

            def fire() -> None:
                nonlocal waiting
                waiting -= 1
                self.guarded(handler, argument)

            self.later(0.0, fire)

        def no_native_code(name: str) -> Any:
            if name in ("native", "viper"):
                raise SyntaxError("invalid micropython decorator")
            raise AttributeError(name)

        return _module(
            "micropython",
            const=lambda value: value,
            schedule=schedule,
            alloc_emergency_exception_buf=lambda _bytes: None,
            opt_level=lambda _level=0: 0,
            mem_info=lambda *_verbose: None,
            heap_lock=lambda: 0,
            heap_unlock=lambda: 0,
            kbd_intr=lambda _character: None,
            __getattr__=no_native_code,
        )

    # ---- what it says

    def _print(self, *values: object, sep: str = " ", end: str = "\n", file: Any = None, **_named: Any) -> None:
        text = io.StringIO()
        print(*values, sep=sep, end=end, file=text)
        if file is None:
            self._log(text.getvalue().rstrip("\n"))
        else:
            file.write(text.getvalue())

    def report(self, error: BaseException) -> None:
        """Prints an exception that stops nothing."""
        self._log("".join(traceback.format_exception(error)))


def _know_driver(loaded: types.ModuleType) -> None:
    """Adds the virtual sensor to the drivers that the firmware knows by name."""
    if loaded.__name__ == _DRIVERS:
        loaded.__dict__["DRIVERS"]["virtual"] = "Virtual"


def _module(name: str, **contents: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    return made
