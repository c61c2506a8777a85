"""A log for the pipeline's benchmarks: a nats-server of their own, with the cloud's streams, and readings of a city."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from spinney_cloud.names import LOG, log_subject
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.nats_server import find
from spinney_cloud.records import Publications, Run, encode
from spinney_cloud.service import Endpoints
from spinney_cloud.settings import Settings

from .running_cloud import ended, wait_for_port

SOURCES = 2_000
TYPES = ("air/no2", "air/o3", "air/pm10", "weather")
SUBJECT = log_subject("publications", "default")


@contextlib.contextmanager
def log_server() -> Iterator[str]:
    """A nats-server with an empty log; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder:
        (Path(folder) / "conf").write_text(
            f'server_name: bench\nlisten: "127.0.0.1:{port}"\nmax_payload: 4MB\n'
            f'jetstream {{ store_dir: "{folder}/store", max_file_store: 20GB }}\n'
        )
        with ended(subprocess.Popen([str(find()), "-c", f"{folder}/conf", "-l", f"{folder}/log"])):
            wait_for_port(port)
            url = f"nats://127.0.0.1:{port}"
            asyncio.run(_ensure(url))
            yield url


def endpoints(url: str) -> Endpoints:
    """Of that server."""
    return Endpoints(url, "127.0.0.1", 0, "nats", 0)


async def _ensure(url: str) -> None:
    async with await NatsLog.connect(endpoints(url), name="bench") as log:
        await log.ensure(Settings())


def place_of(source: int) -> tuple[float, float]:
    """Latitude and longitude of a source, somewhere in Zagreb."""
    chance = random.Random(source)  # noqa: S311  # sensors are no secret
    return round(chance.uniform(45.75, 45.85), 6), round(chance.uniform(15.85, 16.10), 6)


def record(number: int, rows: int, chance: random.Random) -> Publications:
    """A batch that a mobile broker sends for one of its sources, which stays where it is."""
    source = number % SOURCES
    lat, long = place_of(source)
    first = number // SOURCES * rows
    readings = [
        {
            "id": f"m{source}:1:{first + at}",
            "source": f"m{source}",
            "type": TYPES[source % len(TYPES)],
            "lat": lat,
            "long": long,
            "time": 1_760_000_000.0 + number + at / rows,
            "value": round(chance.uniform(0, 100), 2),
            "battery": round(chance.uniform(2.5, 3.3), 2),
            "room": f"room {source % 97}",
        }
        for at in range(rows)
    ]
    run = Run(f"m{source}", 1, first, rows, f"broker{source % 100}", 1, 1)
    return Publications("default", time.time(), (run,), orjson.dumps(readings))


def fill(url: str, records: int, rows: int) -> int:
    """Put so many into the log; the sequence of the last."""

    async def put() -> int:
        chance = random.Random(1)  # noqa: S311
        async with await NatsLog.connect(endpoints(url), name="bench") as log:
            writer = log.writer(LOG)
            for number in range(records):
                await writer.put(SUBJECT, encode(record(number, rows, chance)))
            await writer.drain()
            return (await log.state(LOG)).last

    return asyncio.run(put())


def publish(url: str, per_second: int, seconds: float, rows: int) -> None:
    """At an even pace, each when it is due."""

    async def put() -> None:
        chance = random.Random(2)  # noqa: S311
        async with await NatsLog.connect(endpoints(url), name="bench") as log:
            writer = log.writer(LOG)
            began = time.monotonic()
            for number in range(int(per_second * seconds)):
                await asyncio.sleep(max(0.0, began + number / per_second - time.monotonic()))
                await writer.put(SUBJECT, encode(record(number, rows, chance)))
            await writer.drain()

    asyncio.run(put())


if __name__ == "__main__":
    publish(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
