"""A whole mobile broker that is given samples as quickly as it takes them, to be killed at any time.

    killed_broker.py FOLDER PORT SEND FIRST LAST

The samples are numbered from FIRST on, and their level is the number's last digit. It says each number on stdout once
the broker has taken its sample, which then is on disk, or decided upon, and how many it has spared. It ends when LAST
is stored; 0: never.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from uplink_kit import until

from spinney_mobile import announcing
from spinney_mobile.broker import Broker
from spinney_mobile.outbox import Outbox
from spinney_mobile.samples import Sample
from spinney_mobile.settings import Cloud, Settings

AT_ONCE = 20
SETTLE_SECONDS = 0.5
"""This cloud acts on announcements at once, and filters are in force in each round."""
FULL = 20_000
NAME = "kim"
SOURCE = "kim-1"


async def main(folder: Path, port: int, send: Any, first: int, last: int) -> None:
    announcing.SETTLE_SECONDS = SETTLE_SECONDS
    cloud = Cloud(url=f"mqtt://127.0.0.1:{port}")
    outbox = Outbox(folder)
    outbox.open()
    broker = Broker(Settings(name=NAME, data=folder, cloud=cloud, acquire=(), send=send), outbox)
    task = asyncio.create_task(broker.run())
    number = first
    while not last or number <= last:
        for _ in range(AT_ONCE):
            now = broker._clock()
            values = {"n": float(number), "level": float(number % 10)}
            broker.sampled(Sample(SOURCE, values, now, now, "test", boot=1, sequence=number))
            number += 1
        os.write(1, b"%d %d\n" % (number - 1, broker.taking.counts["spared"]))
        await asyncio.sleep(0)
        await until(lambda: outbox.log.count < FULL, "room")
    await until(lambda: outbox.log.count == 0, "an empty outbox")
    broker.stop()
    await task
    outbox.close()


if __name__ == "__main__":
    _, folder, port, send, first, last = sys.argv
    asyncio.run(main(Path(folder), int(port), send, int(first), int(last)))
