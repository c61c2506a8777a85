"""The process of the virtual radio: motes that run the firmware, and an adapter for each mobile broker's process.

It says `ready: ...` when all is on the air, and ends on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

from ..sim.air import Air
from ..sim.mote import VirtualMote
from ..sim.remote_adapter import ServedRadio, serve
from .plan import Plan, Spot, address, on_air
from .weather import QUANTITIES, Weather

STARTING_S = 2.0
"""Over which the motes are switched on."""
LOOK_S = 10.0
"""Between looks for firmware that has crashed."""
ADVERT_MS = 300
CONNECTION_INTERVAL_S = 0.0075
SCAN_SHARE = 0.9


def adapter_address(number: int) -> str:
    """Of a mobile broker's adapter."""
    return address(0xF0, number)


def main(arguments: list[str]) -> int:
    """Runs the city; exit code 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="the motes' flash is kept in it")
    parser.add_argument("sockets", type=Path, help="of adapters, as NAME.hci")
    parser.add_argument("--motes", type=int, required=True)
    parser.add_argument("--brokers", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    options = parser.parse_args(arguments)
    plan = Plan(options.motes, options.brokers, options.seed, options.every)
    folder = options.folder.absolute()
    os.chdir(options.sockets)  # a socket's path must be short
    asyncio.run(_City(plan, folder).run())
    return 0


class _City:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self._plan = plan
        self._folder = folder
        self._weather = Weather(plan)
        self._counts: Counter[str] = Counter()
        self._told: set[str] = set()
        self._air = Air(seed=plan.seed, collisions=True, interval_s=CONNECTION_INTERVAL_S)
        self._motes: list[VirtualMote] = []

    async def run(self) -> None:
        """Until SIGTERM."""
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        for end in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(end, stopping.set)
        self._motes = [self._mote(spot) for spot in self._plan.spots()]
        async with AsyncExitStack() as stack:
            for number, square in enumerate(self._plan.squares):
                place = on_air(square.lat, square.long)
                radio = ServedRadio(self._air, square.name, adapter_address(number), place, scan_share=SCAN_SHARE)
                await stack.enter_async_context(serve(radio, Path(f"{square.name}.hci"), self._counts))
            for number, mote in enumerate(self._motes):
                loop.call_later(STARTING_S * number / len(self._motes), mote.power_on)
            print(f"ready: {len(self._motes)} motes, {self._plan.brokers} adapters", flush=True)
            await self._watch(stopping)
            for mote in self._motes:
                mote.power_off()

    async def _watch(self, stopping: asyncio.Event) -> None:
        """Until it stops; says what befalls motes and adapters."""
        while not stopping.is_set():
            for mote in self._motes:
                if mote.board is not None and mote.board.crash is not None and mote.name not in self._told:
                    self._told.add(mote.name)
                    print(f"{mote.name}: the firmware has crashed: {mote.board.crash!r}", flush=True)
            try:
                async with asyncio.timeout(LOOK_S):
                    await stopping.wait()
            except TimeoutError:
                continue
        print(f"ended: {dict(self._counts | self._air.counts)}", flush=True)

    def _mote(self, spot: Spot) -> VirtualMote:
        mote = VirtualMote(
            self._air,
            spot.name,
            spot.address,
            self._folder / spot.name,
            place=on_air(spot.lat, spot.long),
            world=lambda quantity: self._weather.value(quantity, spot, time.time()),
            seed=self._plan.seed,
        )
        mote.configure(
            {
                "name": spot.name,
                "sample_interval_s": self._plan.every_s,
                "advert_interval_ms": ADVERT_MS,
                "bonded_writes": False,
                "sensors": [{"driver": "virtual", "quantities": list(QUANTITIES)}],
            }
        )
        return mote


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
