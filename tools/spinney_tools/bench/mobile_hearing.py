"""`spinney bench hearing`: what an advert costs the mobile broker, from bleak's callback on, up to its sample.

The baseline in the same run is bleak's own way to a callback that does nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData, BaseBleakScanner
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from spinney.mote.advert import BTHOME
from spinney_mobile.acquire.ble import BleAdverts
from spinney_mobile.decode import Registry
from spinney_mobile.decode.ruuvi import COMPANY as RUUVI
from spinney_mobile.devices import DeviceTable
from spinney_mobile.samples import Heard, Sample, Sink
from spinney_mobile.settings import AcquireBle, Device

from .machine import describe
from .matching import WrongAnswer
from .table import Table, number

DEVICES = 200
ADVERTS = 20_000
ROUNDS = 5
TARGET_PER_S = 2_000
"""That many adverts a second, decoded and matched, may take a quarter of a core; hearing is to leave most of it."""
SHARE = 0.10
"""Of a core, at that rate, for the dearest kind."""
_KEY = bytes(range(16))
_APPLE = 0x004C


@dataclass(frozen=True, slots=True)
class Measurement:
    """Microseconds of processor time for one advert, by kind, and for bleak's empty callback."""

    empty_us: float
    kinds: dict[str, float]

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        kind, dearest = max(self.kinds.items(), key=lambda item: item[1])
        share = dearest * TARGET_PER_S / 1e6
        return [f"{TARGET_PER_S} adverts a second take {share:.0%} of a core: {kind}"] if share > SHARE else []

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {"empty_us": self.empty_us, "kinds_us": self.kinds, "missed": self.missed()}


class _Sink:
    """As the broker does: each advert to the table of devices, and what it means is counted."""

    def __init__(self, devices: DeviceTable) -> None:
        self._devices = devices
        self.samples = 0

    def heard(self, heard: Heard) -> None:
        self.samples += self._devices.take(heard) is not None

    def sampled(self, sample: Sample) -> None:  # as Sink names it
        raise NotImplementedError("adverts only")


def measure(progress: Callable[[str], None], adverts: int = ADVERTS) -> Measurement:
    """Each kind by itself, the best of some rounds. WrongAnswer if other samples come out than went in."""
    progress("measuring what an advert costs")
    kinds = {name: _best(name, make(adverts), samples(adverts)) for name, (make, samples) in _KINDS.items()}
    some = _bthome(adverts)
    return Measurement(min(_dispatch(some, lambda _device, _data: None) for _ in range(ROUNDS)), kinds)


def table(found: Measurement) -> Table:
    """One row for each kind."""
    rows = tuple(
        (
            name,
            f"{number(us)} us",
            f"{us / found.empty_us:.1f} times",
            f"{1e6 / us:,.0f}",
            f"{us * TARGET_PER_S / 1e6:.1%}",
        )
        for name, us in (("bleak's callback that does nothing", found.empty_us), *found.kinds.items())
    )
    header = (
        "an advert that is",
        "costs",
        "of the empty callback",
        "a second on a core",
        f"core at {TARGET_PER_S:,}/s",
    )
    return Table("hearing", describe(), header, rows)


_Adverts = Sequence[tuple[BLEDevice, AdvertisementData]]


def _best(name: str, adverts: _Adverts, samples: int) -> float:
    times = []
    for _ in range(ROUNDS):
        sink = _Sink(DeviceTable(Registry.own(), listed=_LISTED))
        times.append(asyncio.run(_heard(adverts, sink)))
        if sink.samples != samples:
            raise WrongAnswer(f"{name}: {sink.samples} samples of {len(adverts)} adverts, not {samples}")
    return min(times)


async def _heard(adverts: _Adverts, sink: Sink) -> float:
    """From the callback to the sample. Time goes on evenly, one second for each thousand adverts."""
    clock = iter(range(10**9))
    ble = BleAdverts("ble", AcquireBle(mode="passive"), lambda: next(clock) / 1000)
    ble._sink = sink
    return _dispatch(adverts, ble._detected)


def _dispatch(adverts: _Adverts, callback: Callable[[BLEDevice, AdvertisementData], None]) -> float:
    scanner = _Scanner(callback, None)
    before = time.process_time()
    for device, data in adverts:
        scanner.call_detection_callbacks(device, data)
    return (time.process_time() - before) / len(adverts) * 1e6


class _Scanner(BaseBleakScanner):
    """bleak's own part in it, without a radio."""

    async def start(self) -> None:
        raise NotImplementedError("nothing is on the air")

    async def stop(self) -> None:
        raise NotImplementedError("nothing is on the air")


# ---- kinds of adverts: each device in turn


def _address(index: int) -> str:
    return f"C0:00:00:{index >> 16 & 0xFF:02X}:{index >> 8 & 0xFF:02X}:{index & 0xFF:02X}"


_LISTED = [Device(address=_address(index), bindkey=_KEY.hex()) for index in range(DEVICES)]


def _advert(index: int, services: dict[str, bytes], makers: dict[int, bytes]) -> tuple[BLEDevice, AdvertisementData]:
    return BLEDevice(_address(index), None, None), AdvertisementData(
        None, makers, services, list(services), None, -60, ()
    )


def _bthome_data(step: int) -> bytes:
    round_ = step // DEVICES
    return bytes.fromhex(f"4000{round_ & 0xFF:02x}016102{round_ % 4000:04x}03bf13")


def _bthome(count: int) -> _Adverts:
    return [_advert(step % DEVICES, {BTHOME: _bthome_data(step)}, {}) for step in range(count)]


def _repeats(count: int) -> _Adverts:
    return [_advert(step % DEVICES, {BTHOME: _bthome_data(0)}, {}) for step in range(count)]


def _ruuvi(count: int) -> _Adverts:
    return [
        _advert(
            step % DEVICES,
            {},
            {RUUVI: bytes.fromhex(f"0512fc5394c37c0004fffc040cac3642{step // DEVICES:04x}cbb8334c884f")},
        )
        for step in range(count)
    ]


def _encrypted(count: int) -> _Adverts:
    return [_sealed(step % DEVICES, step) for step in range(count)]


def _sealed(index: int, step: int) -> tuple[BLEDevice, AdvertisementData]:
    counter = (step // DEVICES).to_bytes(4, "little")
    nonce = bytes.fromhex(_address(index).replace(":", "")) + b"\xd2\xfc\x41" + counter
    both = AESCCM(_KEY, tag_length=4).encrypt(nonce, _bthome_data(step)[3:], None)
    return _advert(index, {BTHOME: b"\x41" + both[:-4] + counter + both[-4:]}, {})


def _phones(count: int) -> _Adverts:
    """Their addresses change: each is heard ten times."""
    return [_advert(step // 10, {}, {_APPLE: b"\x10\x05" + step.to_bytes(4, "little")}) for step in range(count)]


_KINDS: dict[str, tuple[Callable[[int], _Adverts], Callable[[int], int]]] = {
    "a repeat": (_repeats, lambda _count: DEVICES),
    "a new sample, BTHome": (_bthome, lambda count: count),
    "a new sample, Ruuvi": (_ruuvi, lambda count: count),
    "a new sample, BTHome encrypted": (_encrypted, lambda count: count),
    "unknown, its address new": (_phones, lambda _count: 0),
}
"""By name: the adverts, and how many samples they are."""
