"""`spinney bench adverts`: what an advert costs on its whole way, from bleak's callback to the outbox on disk.

It is a whole mobile broker, as `spinney mobile run` makes it, but for the radio: bleak's own callback is called, with
adverts that were made before. It has settings for its devices, a place, and 300 active filters, and each sample is
decoded, ruled, placed, numbered, looked at by all filters, and appended to the outbox if one wants it. Time goes on
evenly. Each way of having the core runs in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bleak.backends.device import BLEDevice
from bleak.backends.scanner import AdvertisementData
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

from spinney import native, parse
from spinney.mote.advert import BTHOME
from spinney_mobile.acquire.ble import BleAdverts
from spinney_mobile.announcing import SETTLE_SECONDS
from spinney_mobile.broker import Broker
from spinney_mobile.outbox import Outbox
from spinney_mobile.settings import AcquireBle, Cloud, Device, Place, Settings

from .machine import describe
from .matching import WrongAnswer
from .mobile_hearing import _Adverts, _Scanner
from .table import Table, number

DEVICES: Final = 200
SAMPLES: Final = 6_000
REPEATS: Final = 3
"""How often a sample is heard, where it is heard again."""
FILTERS: Final = 300
"""Half of them state filters; a tenth of both kinds is for one device."""
ROUNDS: Final = 5
SHARE: Final = 0.25
"""Of a core, for the dearest kind at PER_S a second with the C core."""
PER_S: Final = 2_000
PURE_PER_S: Final = 1_000
"""On a whole core, in pure Python."""
START_S: Final = 1_763_460_000.0
STEP_S: Final = 0.03
"""From advert to advert by the broker's clock: each device every six seconds, so that equal samples are not one."""
_KEY: Final = bytes(range(16))
_EPOCH: Final = 1
KINDS: Final = ("a new sample", "a new sample, encrypted", f"each sample {REPEATS} times")


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one core."""

    core: str
    """C, or pure Python."""
    us: dict[str, float]
    """By kind, processor time for one advert."""
    wanted: float
    """Share of the samples that went up."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """With the C core, where there is one, and in pure Python."""

    costs: Sequence[Costs]

    def missed(self) -> list[str]:
        """The targets that are not reached, in words."""
        out = []
        for one in self.costs:
            kind, dearest = max(one.us.items(), key=lambda item: item[1])
            if one.core == "C" and dearest * PER_S / 1e6 >= SHARE:
                out.append(f"C core: {PER_S:,} adverts a second take {dearest * PER_S / 1e6:.0%} of a core: {kind}")
            if one.core != "C" and 1e6 / dearest < PURE_PER_S:
                out.append(f"pure Python: {1e6 / dearest:,.0f} adverts a second instead of {PURE_PER_S:,}: {kind}")
        return out

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {"costs": [asdict(one) for one in self.costs], "missed": self.missed()}


def measure(progress: Callable[[str], None], samples: int = SAMPLES, rounds: int = ROUNDS) -> Measurement:
    """Each core in a process of its own. WrongAnswer if other samples come out than went in."""
    costs = []
    for is_pure in (False, True):
        if is_pure or native.core() is not None:
            progress(f"measuring adverts {'in pure Python' if is_pure else 'with the C core'}")
            costs.append(_in_a_process(is_pure, samples, rounds))
    return Measurement(costs)


def _in_a_process(is_pure: bool, samples: int, rounds: int) -> Costs:
    environment = {**os.environ, native.PURE: "1" if is_pure else "0"}
    if is_pure:
        environment.pop(native.REQUIRE, None)
    command = [sys.executable, "-m", __name__, str(samples), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise WrongAnswer(done.stderr.strip().splitlines()[-1] if done.stderr else "no answer")
    return Costs(**json.loads(done.stdout))


def table(found: Measurement) -> Table:
    """One row for each core and kind."""
    rows = tuple(
        (
            f"{kind}, {'C core' if one.core == 'C' else 'pure Python'}",
            f"{number(us)} us",
            f"{1e6 / us:,.0f}",
            f"{us * PER_S / 1e6:.1%}",
            f"< {SHARE:.0%} at {PER_S:,}/s" if one.core == "C" else f">= {PURE_PER_S:,}/s",
        )
        for one in found.costs
        for kind, us in one.us.items()
    )
    notes = (
        f"A whole mobile broker with {DEVICES} devices and {FILTERS} active filters, half of them state filters, from",
        f"bleak's callback to the outbox on disk; {found.costs[0].wanted:.0%} of the samples go up. The radio's own",
        "cost is left out.",
    )
    header = ("an advert that is", "costs", "a second on a core", f"core at {PER_S:,}/s", "target")
    return Table("adverts", describe(), header, rows, notes)


# ---- in the process that measures


def measured(samples: int, rounds: int) -> Costs:
    """With the core that this process has; the best of the rounds."""
    made = {KINDS[0]: _plain(samples, 1), KINDS[1]: _sealed(samples), KINDS[2]: _plain(samples // REPEATS, REPEATS)}
    best: dict[str, float] = {}
    wanted = 0.0
    for _ in range(rounds):
        for kind, adverts in made.items():
            us, wanted = asyncio.run(_round(adverts, samples if kind != KINDS[2] else samples // REPEATS))
            best[kind] = min(best.get(kind, us), us)
    return Costs("pure" if native.core() is None else "C", best, wanted)


async def _round(adverts: _Adverts, samples: int) -> tuple[float, float]:
    """Microseconds for an advert, and the share of the samples that went up."""
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        outbox = Outbox(Path(folder) / "outbox")
        outbox.open()
        try:
            return _heard(_Setting(Path(folder), outbox), adverts, samples)
        finally:
            outbox.close()


class _Setting:
    """A broker whose devices are known, announced and its own, and bleak's callback."""

    def __init__(self, folder: Path, outbox: Outbox) -> None:
        self.now = START_S
        settings = Settings(
            name="pi",
            data=folder,
            cloud=Cloud(url="mqtt://127.0.0.1:1"),
            acquire=(),
            place=Place(kind="fixed", lat=45.81, long=15.97),
            device=tuple(Device(address=_address(n), name=_name(n), bindkey=_KEY.hex()) for n in range(DEVICES)),
        )
        self.broker = Broker(settings, outbox, clock=lambda: self.now)
        self._ble = BleAdverts("ble", AcquireBle(mode="passive"), lambda: self.now)
        self._ble._sink = self.broker
        self.scanner = _Scanner(self._ble._detected, None)

    def settle(self, first: _Adverts) -> None:
        """Each device is heard once, announced, and leased; the cloud has activated all filters."""
        self.broker.activations.receive(json.dumps(_activation()).encode())
        for device, data in first:
            self.scanner.call_detection_callbacks(device, data)
        self.now += 1.0
        self.broker.tick(self.now)
        assert self.broker._announced is not None
        self.broker._cloud_has(self.broker._announced)
        self.now += SETTLE_SECONDS
        self.broker.tick(self.now)


def _heard(setting: _Setting, adverts: _Adverts, samples: int) -> tuple[float, float]:
    """The first advert of each device is not measured."""
    setting.settle(adverts[:DEVICES])
    counts = setting.broker.taking.counts
    counts.clear()
    call = setting.scanner.call_detection_callbacks
    before = time.process_time()
    for device, data in adverts[DEVICES:]:
        setting.now += STEP_S
        call(device, data)
    us = (time.process_time() - before) / (len(adverts) - DEVICES) * 1e6
    _check(counts, samples)
    return us, counts["sent"] / samples


def _check(counts: dict[str, int], samples: int) -> None:
    found = {name: counts[name] for name in ("sampled", "outside", "others", "refused", "repeated")}
    if found != {"sampled": samples, "outside": 0, "others": 0, "refused": 0, "repeated": 0}:
        raise WrongAnswer(f"of {samples} samples: {found}")
    if not 0 < counts["sent"] == samples - counts["spared"] < samples:
        raise WrongAnswer(f"of {samples} samples {counts['sent']} were sent and {counts['spared']} spared")


def _activation() -> dict[str, Any]:
    add = [_item(f"{n:016x}", "content", text) for n, text in enumerate(_texts(False))]
    add += [_item(f"{n:016x}", "state", text) for n, text in enumerate(_texts(True), len(add))]
    leases = [{"source": _name(n), "owner": "pi", "epoch": _EPOCH} for n in range(DEVICES)]
    return {"epoch": 1, "full": True, "add": add, "drop": [], "leases": leases}


def _item(digest: str, kind: str, text: str) -> dict[str, Any]:
    return {"filter": digest, "kind": kind, "subscription": parse(text).to_json()}


def _texts(is_state: bool) -> Iterator[str]:
    chance = random.Random(f"adverts {is_state}")  # noqa: S311  # repeatable on purpose
    for n in range(FILTERS // 2):
        name, low, high = ("temperature", 24.0, 28.0) if n % 2 else ("humidity", 65.0, 75.0)
        limit = round(chance.uniform(low, high), 2)
        only = f"source = '{_name(chance.randrange(DEVICES))}'" if n % 10 == 0 else "battery > 10"
        if is_state:
            yield f"WHEN {name} > {limit} UNTIL {name} <= {limit - 1.0:.2f} FOR {only}"
        else:
            yield f"{name} > {limit} AND {only}"


# ---- adverts: each device in turn, each with values that wander


def _address(index: int) -> str:
    return f"C0:00:00:00:{index >> 8:02X}:{index & 0xFF:02X}"


def _name(index: int) -> str:
    return f"room-{index}"


def _values(samples: int) -> Iterator[tuple[int, int, int]]:
    """Device, and hundredths of degrees and of per cent."""
    chance = random.Random("rooms")  # noqa: S311  # repeatable on purpose
    rooms = [[chance.uniform(1800.0, 2450.0), chance.uniform(4500.0, 6700.0)] for _ in range(DEVICES)]
    for step in range(samples + DEVICES):
        room = rooms[step % DEVICES]
        room[0] += chance.uniform(-10.0, 10.0)
        room[1] += chance.uniform(-20.0, 20.0)
        yield step % DEVICES, round(room[0]), round(room[1])


def _plain(samples: int, times: int) -> _Adverts:
    """BTHome with battery, temperature and humidity; the first of each device once."""
    found = []
    for step, (device, temperature, humidity) in enumerate(_values(samples)):
        packet = step // DEVICES & 0xFF
        data = b"\x40" + struct.pack("<BBBBBhBH", 0x00, packet, 0x01, 97, 0x02, temperature, 0x03, humidity)
        found += [_advert(device, data)] * (times if step >= DEVICES else 1)
    return found


def _sealed(samples: int) -> _Adverts:
    found = []
    for step, (device, temperature, humidity) in enumerate(_values(samples)):
        plain = struct.pack("<BBBhBH", 0x01, 97, 0x02, temperature, 0x03, humidity)
        counter = (step // DEVICES + 1).to_bytes(4, "little")
        nonce = bytes.fromhex(_address(device).replace(":", "")) + b"\xd2\xfc\x41" + counter
        both = AESCCM(_KEY, tag_length=4).encrypt(nonce, plain, None)
        found.append(_advert(device, b"\x41" + both[:-4] + counter + both[-4:]))
    return found


def _advert(device: int, data: bytes) -> tuple[BLEDevice, AdvertisementData]:
    return (
        BLEDevice(_address(device), None, None),
        AdvertisementData(None, {}, {BTHOME: data}, [BTHOME], None, -60, ()),
    )


if __name__ == "__main__":
    print(json.dumps(asdict(measured(int(sys.argv[1]), int(sys.argv[2])))))
