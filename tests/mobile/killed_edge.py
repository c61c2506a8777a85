"""A process with an outbox and an uplink that takes readings as quickly as it can, to be killed at any time.

    killed_edge.py FOLDER NAME PORT COUNT

It says each number on stdout once `append` has returned for it, and ends when COUNT are stored; 0: never.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from uplink_kit import Edge, body, reading, until

from spinney_mobile.outbox import OutRecord

AT_ONCE = 20
FULL = 20_000


async def main(folder: Path, name: str, port: int, count: int) -> None:
    edge = await Edge(folder, name, port).start()
    source = f"{name}-1"
    edge.uplink.announce(body(source))
    edge.uplink.want([source])
    number = int(edge.outbox.state().get("number", b"0"))
    while not count or number < count:
        for _ in range(AT_ONCE):
            number += 1
            record = OutRecord(reading(number, source), edge.leases.epoch(source))
            edge.outbox.append([record], {"number": b"%d" % number})
        os.write(1, b"%d\n" % number)
        await asyncio.sleep(0)
        await until(lambda: edge.outbox.log.count < FULL, "room")
    await edge.drained()
    await edge.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
