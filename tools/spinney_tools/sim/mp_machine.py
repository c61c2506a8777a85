"""MicroPython's `machine` and `esp32`: buses, pins, watchdog, sleep and reset of a virtual board."""

from __future__ import annotations

import errno
import types
import zlib
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .board import Board

PWRON_RESET, HARD_RESET, WDT_RESET, DEEPSLEEP_RESET, SOFT_RESET = 1, 2, 3, 4, 5
RTC_BYTES = 2048
_ADC_FULL = 65535
_ADC_MV = 3300


class Reset(BaseException):
    """The board starts anew, after a sleep."""

    def __init__(self, cause: int, after_s: float = 0.0) -> None:
        super().__init__()
        self.cause = cause
        self.after_s = after_s


class _NoBus:
    """A bus without a device."""

    def scan(self) -> list[int]:
        return []

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def nobody(*_arguments: Any, **_named: Any) -> Any:
            raise OSError(errno.ENODEV)

        return nobody


class _Pin:
    IN, OUT, OPEN_DRAIN = 1, 3, 7
    PULL_UP, PULL_DOWN = 2, 1
    IRQ_RISING, IRQ_FALLING = 1, 2

    def __init__(self, board: Board, number: Hashable) -> None:
        self._board = board
        self.number = number

    def init(self, *_arguments: Any, **_named: Any) -> None: ...

    def irq(self, *_arguments: Any, **_named: Any) -> None: ...

    def value(self, level: int | None = None) -> int | None:
        if level is not None:
            self._board.levels[self.number] = int(bool(level))
            return None
        return self._board.levels.get(self.number, 1)

    __call__ = value

    def on(self) -> None:
        self.value(1)

    def off(self) -> None:
        self.value(0)


class _Adc:
    ATTN_0DB, ATTN_2_5DB, ATTN_6DB, ATTN_11DB = 0, 1, 2, 3
    WIDTH_12BIT = 12

    def __init__(self, board: Board, pin: Any) -> None:
        number = pin.number if isinstance(pin, _Pin) else pin
        self._millivolts: Callable[[], float] = board.hardware.get(
            ("adc", number), lambda: board.battery.millivolts() // 2
        )

    def read_u16(self) -> int:
        return max(0, min(_ADC_FULL, round(self._millivolts() * _ADC_FULL / _ADC_MV)))

    def read_uv(self) -> int:
        return int(self._millivolts() * 1000)

    def atten(self, _db: int) -> None: ...

    def width(self, _bits: int) -> None: ...


class _Rtc:
    def __init__(self, board: Board) -> None:
        self._board = board

    def memory(self, data: bytes | None = None) -> bytes | None:
        if data is None:
            return self._board.rtc_memory
        if len(data) > RTC_BYTES:
            raise ValueError("buffer too long")
        self._board.rtc_memory = bytes(data)
        return None

    def datetime(self, _to: Any = None) -> tuple[int, ...]:
        year, month, day, hour, minute, second, weekday, _day = self._board.localtime()
        return (year, month, day, weekday, hour, minute, second, 0)


class _Watchdog:
    def __init__(self, board: Board, timeout: int) -> None:
        self._board = board
        self._seconds = timeout / 1000
        self.feed()

    def feed(self) -> None:
        self._board.guard(self._seconds)


class _Timer:
    ONE_SHOT, PERIODIC = 0, 1

    def __init__(self, board: Board) -> None:
        self._board = board
        self._rounds = 0

    def init(self, *, mode: int = 1, period: int = -1, callback: Callable[[Any], None] = lambda _timer: None) -> None:
        self._rounds += 1
        self._arm(self._rounds, mode, period / 1000, callback)

    def _arm(self, number: int, mode: int, seconds: float, callback: Callable[[Any], None]) -> None:
        def fire() -> None:
            if number == self._rounds:
                self._board.guarded(callback, self)
                if mode == self.PERIODIC:
                    self._arm(number, mode, seconds, callback)

        self._board.later(seconds, fire)

    def deinit(self) -> None:
        self._rounds += 1


def machine_module(board: Board) -> types.ModuleType:
    """The `machine` of one boot."""
    made = types.ModuleType("machine")

    def bus(kind: str) -> Callable[..., Any]:
        def make(id: int = 0, *_arguments: Any, **_named: Any) -> Any:
            return board.hardware.get((kind, id)) or _NoBus()

        return make

    def reset() -> None:
        raise Reset(HARD_RESET)

    def soft_reset() -> None:
        raise Reset(SOFT_RESET)

    def deepsleep(time_ms: int = 0) -> None:
        raise Reset(DEEPSLEEP_RESET, time_ms / 1000 if time_ms else float("inf"))

    def pin(number: Hashable, *_arguments: Any, **_named: Any) -> _Pin:
        return _Pin(board, number)

    for name in ("IN", "OUT", "OPEN_DRAIN", "PULL_UP", "PULL_DOWN", "IRQ_RISING", "IRQ_FALLING"):
        setattr(pin, name, getattr(_Pin, name))

    def adc(number: Any, *_arguments: Any, **_named: Any) -> _Adc:
        return _Adc(board, number)

    for name in ("ATTN_0DB", "ATTN_2_5DB", "ATTN_6DB", "ATTN_11DB", "WIDTH_12BIT"):
        setattr(adc, name, getattr(_Adc, name))

    def timer(_id: int = -1, **settings: Any) -> _Timer:
        made_timer = _Timer(board)
        if settings:
            made_timer.init(**settings)
        return made_timer

    timer.ONE_SHOT, timer.PERIODIC = 0, 1  # type: ignore[attr-defined]
    made.__dict__.update(
        PWRON_RESET=PWRON_RESET,
        HARD_RESET=HARD_RESET,
        WDT_RESET=WDT_RESET,
        DEEPSLEEP_RESET=DEEPSLEEP_RESET,
        SOFT_RESET=SOFT_RESET,
        I2C=bus("i2c"),
        SoftI2C=lambda **named: board.hardware.get(("i2c", 0)) or _NoBus(),  # noqa: ARG005
        SPI=bus("spi"),
        UART=bus("uart"),
        Pin=pin,
        ADC=adc,
        Timer=timer,
        RTC=lambda: _Rtc(board),
        WDT=lambda id=0, timeout=5000: _Watchdog(board, timeout),  # noqa: ARG005
        reset=reset,
        soft_reset=soft_reset,
        deepsleep=deepsleep,
        lightsleep=lambda time_ms=0: board.sleep(time_ms / 1000, is_light=True),
        idle=lambda: board.sleep(0.001),
        reset_cause=lambda: board.cause,
        wake_reason=lambda: board.cause,
        unique_id=lambda: zlib.crc32(board.name.encode()).to_bytes(4, "big") + b"\x00\x00",
        freq=lambda _hz=None: 160_000_000,
        disable_irq=lambda: 0,
        enable_irq=lambda _state=0: None,
        bootloader=reset,
    )
    return made


def esp32_module(board: Board) -> types.ModuleType:
    """The `esp32` of one boot."""
    made = types.ModuleType("esp32")
    made.__dict__.update(
        WAKEUP_ALL_LOW=False,
        WAKEUP_ANY_HIGH=True,
        raw_temperature=lambda: 95,
        mcu_temperature=lambda: 35,
        wake_on_ext0=lambda *_arguments, **_named: None,
        wake_on_ext1=lambda *_arguments, **_named: None,
        idf_heap_info=lambda _kind=0: [(board.heap_bytes, board.heap_bytes // 2, board.heap_bytes // 2, 0)],
    )
    return made
