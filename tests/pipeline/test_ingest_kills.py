"""kill -9 of the driver, of Spark's JVM, of its Python processes, at any moment: nothing is lost, nothing is twice."""

from __future__ import annotations

import random
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import orjson
import psutil
import pyarrow as pa
import pytest
from engine_logs import ends
from kit import TENANT, air, engine_says, for_pipeline, in_order, make_log, messages, put, told
from servers import NatsServer

from spinney_cloud.pipeline.decode import Decoder
from spinney_cloud.pipeline.duplicates import Duplicates, Windows
from spinney_cloud.pipeline.lake import OBSERVATIONS, TABLES, Lake, with_date
from spinney_cloud.records import Publications, Run, SubscriptionChange

DRIVER = str(Path(__file__).parent / "ingest_driver.py")
READINGS = 500_000
ROWS = 500
SECONDS = 120.0
VERSIONS = 5
"""Of the subscriptions, over the log."""


def log_of(readings: int, random_: random.Random) -> list[Publications]:
    """Readings of ten sources, whose senders repeat a seventh of what they sent."""
    sent: list[Publications] = []
    for at in range(readings // ROWS):
        source, first = f"m{at % 10}", at // 10 * ROWS
        rows = [{"id": f"{source}:1:{first + n}", "source": source, **air(at + n)} for n in range(ROWS)]
        run = Run(source, 1, first, ROWS, "kit", None, 1)
        sent.append(Publications(TENANT, 1_760_000_000.0, (run,), orjson.dumps(rows)))
        if random_.random() < 1 / 7:
            sent.append(random_.choice(sent[-20:]))
    return sent


def subscriptions(version: int) -> list[SubscriptionChange]:
    """Of all kinds; some begin, others change or end with each version."""
    some: list[SubscriptionChange] = []
    for place in range(4):
        threshold = 99.4 - place / 10
        some += [
            for_pipeline(f"c{place}", f"NO2 > {threshold + version / 20:.2f}"),
            for_pipeline(f"s{place}", f"WHEN NO2 > {threshold} UNTIL NO2 < 2"),
            for_pipeline(f"r{place}", f"WHEN NO2 > {threshold} UNTIL NO2 < 1 EACH room"),
            for_pipeline(
                f"t{place}", f"TOP 3 OVER LAST {1000 + version} BY NO2 DESC WHERE NO2 > {threshold} EACH room"
            ),
            for_pipeline(f"w{place}", f"TOP 2 OVER 1s BY NO2 WHERE NO2 < {0.3 + place / 10}"),
        ]
    return [*some, ends("c1")] if version % 2 else some


def wanted(nats: NatsServer) -> pa.Table:
    """What the lake must hold, read without Spark, in one go."""
    duplicates, decoder = Duplicates(Windows()), Decoder()
    batches: list[pa.RecordBatch] = []
    for message in messages(nats):
        seen = duplicates.apply(message)
        decoder.take(message.data, message.sequence, duplicates.arrival, seen.repeated)
        batches += decoder.give()
    return with_date(pa.Table.from_batches(batches), TABLES[OBSERVATIONS])


def children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def victims(pid: int, what: str) -> list[psutil.Process]:
    """Whom to kill: the driver, its JVM, one of Spark's Python processes, or all at once."""
    family = children(pid)
    if what == "driver":
        return [psutil.Process(pid)]
    if what == "JVM":
        return [each for each in family if name_of(each) == "java"]
    if what == "worker":
        return [each for each in family if name_of(each).startswith("python")][-1:]
    return [psutil.Process(pid), *family]


def name_of(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:  # Java's helpers live for a moment
        return ""


class Driver:
    """The pipeline's process."""

    def __init__(self, nats: NatsServer, folder: Path, end: int) -> None:
        command = [sys.executable, DRIVER, nats.url, str(folder), str(end)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.said: list[str] = []

    def until(self, sequence: int) -> bool:
        """Until it is so far; False if it ended before."""
        assert self.process.stdout
        for line in self.process.stdout:
            self.said.append(line)
            if line.strip().isdigit() and int(line) >= sequence:
                return True
        return False

    def kill(self, what: str) -> None:
        family = children(self.process.pid)
        for each in victims(self.process.pid, what):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._bury(family)

    def _bury(self, family: list[psutil.Process]) -> None:
        """The others end by themselves, for want of what was killed."""
        assert self.process.stdout
        try:
            self.process.wait(SECONDS)
            _, left = psutil.wait_procs(family, timeout=SECONDS)
            assert not left, f"still there: {left}"
        finally:
            for each in [*family, self.process]:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            self.process.stdout.close()

    def finish(self) -> int:
        self.until(2**60)
        family = children(self.process.pid)
        self._bury(family)
        return self.process.returncode


def kill_and_compare(nats: NatsServer, tmp_path: Path, kills: list[str], readings: int, seed: int) -> None:
    random_ = random.Random(seed)
    make_log(nats)
    log = log_of(readings, random_)
    for version in range(VERSIONS):
        part = len(log) // VERSIONS + 1
        put(nats, [*subscriptions(version), *log[version * part : (version + 1) * part]])
    end = len(messages(nats))
    lake = Lake(tmp_path / "lake")
    moments = sorted(random_.randrange(1, end) for _ in kills)
    for what, moment in zip(kills, moments, strict=True):
        driver = Driver(nats, tmp_path, end)
        driver.until(moment)
        driver.kill(what)
    last = Driver(nats, tmp_path, end)
    assert last.finish() == 0, last.said
    found = lake.dataset().to_table().sort_by([("log_seq", "ascending"), ("log_row", "ascending")])
    expected = wanted(nats)
    assert expected.num_rows == readings
    assert found.num_rows == readings
    assert found.select(expected.schema.names).cast(expected.schema).equals(expected)
    assert in_order(told(nats)) == in_order(engine_says(nats))


@pytest.mark.slow
def test_nothing_is_lost_or_twice_when_it_is_killed(nats: NatsServer, tmp_path: Path) -> None:
    kill_and_compare(nats, tmp_path, ["driver", "worker", "JVM", "all"], READINGS, seed=7)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_lost_or_twice_when_it_is_killed_often(nats: NatsServer, tmp_path: Path, seed: int) -> None:
    random_ = random.Random(100 + seed)
    kills = [random_.choice(["driver", "worker", "JVM", "all"]) for _ in range(10)]
    kill_and_compare(nats, tmp_path, kills, READINGS, seed)
