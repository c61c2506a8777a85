"""A log with everything that there is in logs, and a pipeline's process to be killed over it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import orjson
import psutil
from engine_logs import ends
from kit import TENANT, air, for_pipeline

from spinney import Label, Mark, parse
from spinney_cloud.records import Announced, Publications, Record, RowLabel, Run, SubscriptionChange, encode
from spinney_cloud.subscriptions import form_of

ROWS = 500
"""Of a record."""
SECONDS = 180.0
TOO_BUSY = "Python worker failed to connect back"
"""Spark waits ten seconds for that, however little of the machine there is."""
VERSIONS = 5
"""Of the subscriptions, over the log."""
STATE = "WHEN NO2 > 99.4 UNTIL NO2 < 2"
DIGEST = form_of(parse(STATE)).digest
REPLAYED: dict[str, str | dict[str, Any]] = {
    "content": "NO2 > 99.7 AND indoors = TRUE",
    "state": STATE,
    "each": "WHEN NO2 > 99.5 UNTIL NO2 < 1 EACH room",
    "lost": {"text": "WHEN NO2 > 99.6 UNTIL NO2 < 0.1", "lost": 2},
    "reorder": {"text": "WHEN NO2 > 99.8 UNTIL NO2 < 3", "reorder": 2},
    "last": "TOP 3 OVER LAST 1000 BY NO2 DESC WHERE NO2 > 99 EACH room",
    "over": "TOP 2 OVER 1s BY NO2 WHERE NO2 < 0.3",
}
"""Subscriptions that stand from the log's beginning to its end."""

AIR_REPEATS = 21_000
_AIR = [air(number) for number in range(AIR_REPEATS)]
"""Of these numbers of readings; the next are like them."""
_OWNED = {"m8": 1, "m9": 1}
"""Sources whose owner evaluates STATE, with the epochs of the leases."""


# ---- the log


def log_of(readings: int, chance: random.Random, since: float) -> list[list[Record | bytes]]:
    """In parts, to be put one after the other: so many readings, of ten sources, taken in the hour from `since` on.

    Some records come late, some again; some sources are announced (no longer), two are labelled by their owner; there
    are records that nobody can read; and with each version some subscriptions begin, change or end.
    """
    sent = [_publications(at, readings, chance, since) for at in range(readings // ROWS)]
    for at in chance.sample(range(len(sent) - 10), len(sent) // 20):
        sent[at], sent[at + 10] = sent[at + 10], sent[at]
    every = len(sent) // VERSIONS
    parts: list[list[Record | bytes]] = []
    for at, record in enumerate(sent):
        if at % (every // 5) == 0:
            parts.append([])
        if at % every == 0:
            parts[-1] += [*_subscriptions(at // every), *(_standing() if at == 0 else ())]
        parts[-1].append(record)
        if chance.random() < 1 / 7:
            parts[-1].append(chance.choice(sent[max(0, at - 20) : at + 1]))
        if chance.random() < 1 / 20:
            parts[-1].append(Announced(TENANT, (f"m{chance.randrange(10)}",), chance.random() < 0.7))
        if chance.random() < 1 / 50:
            parts[-1].append(chance.choice([b"junk", _with_a_bad_row(at)]))
    return parts


def _publications(at: int, readings: int, chance: random.Random, since: float) -> Publications:
    source, first = f"m{at % 10}", at // 10 * ROWS
    rows = [
        {**_AIR[(at * ROWS + n) % AIR_REPEATS], "id": f"{source}:1:{first + n}", "source": source} for n in range(ROWS)
    ]
    for n, row in enumerate(rows):
        row["time"] = round(since + 3600 * (at * ROWS + n) / readings, 3)
    del rows[chance.randrange(ROWS)]["time"]
    rows[chance.randrange(ROWS)]["time"] = since - 8 * 86_400  # too late for windows
    rows[chance.randrange(ROWS)]["time"] = since + 9 * 86_400  # by a clock that is wrong
    epoch = _OWNED.get(source)
    labels = () if epoch is None else tuple(_labels(rows, source, first, epoch))
    run = Run(source, 1, first, ROWS, "kit", epoch, 1)
    return Publications(TENANT, since, (run,), orjson.dumps(rows), labels)


def _labels(rows: list[dict[str, Any]], source: str, first: int, epoch: int) -> Iterator[RowLabel]:
    """Of its owner, which knows STATE; after the rows a silent one."""
    for place, row in enumerate(rows):
        if row["NO2"] > 99.4 or row["NO2"] < 2:
            yield RowLabel(place, DIGEST, Label(Mark(source, (epoch, 1, first + place), row["NO2"] > 99.4)))
    if first % (3 * ROWS) == 0:
        yield RowLabel(None, DIGEST, Label(Mark(source, (epoch, 1, first + ROWS - 1), False), (), silent=True))


def _with_a_bad_row(at: int) -> bytes:
    """Of which nobody is told anything."""
    run = Run("bad", 1, at, 1, "kit", None, 1)
    row = orjson.dumps([{"id": f"bad:1:{at}", "source": "bad", "NO2": [100]}])
    return encode(Publications(TENANT, 0.0, (run,), row))


def _standing() -> list[SubscriptionChange]:
    return [for_pipeline(sid, text) for sid, text in REPLAYED.items()]


def _subscriptions(version: int) -> list[SubscriptionChange]:
    """Of all kinds; some begin, others change or end with each version."""
    some: list[SubscriptionChange] = []
    for place in range(4):
        threshold = 99.4 - place / 10
        some += [
            for_pipeline(f"c{place}", f"NO2 > {threshold + version / 20:.2f}"),
            for_pipeline(f"s{place}", f"WHEN NO2 > {threshold} UNTIL NO2 < {2 + version // 2}"),
            for_pipeline(f"r{place}", f"WHEN NO2 > {threshold} UNTIL NO2 < 1 EACH room"),
            for_pipeline(
                f"t{place}", f"TOP 3 OVER LAST {1000 + version} BY NO2 DESC WHERE NO2 > {threshold} EACH room"
            ),
            for_pipeline(f"w{place}", f"TOP 2 OVER 1s BY NO2 WHERE NO2 < {0.3 + place / 10}"),
        ]
    return [*some, ends("c1"), ends("r2")] if version % 2 else some


# ---- the process


class Pipeline:
    """ingest_driver.py, which is started again whenever what was killed has ended it."""

    def __init__(self, url: str, folder: Path, rows: int, seconds: float) -> None:
        driver = Path(__file__).parent / "ingest_driver.py"
        self._command = [sys.executable, str(driver), url, str(folder), str(rows), str(seconds)]
        self._errors = folder / "errors.txt"
        self._start()

    def _start(self) -> None:
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        self.batch_seconds = 0.0
        """What the last one took."""
        self._place = 0
        self._said: list[str] = []
        self._hurt = False
        self._family: set[psutil.Process] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._look()
        self._end_all()

    def until(self, sequence: int) -> None:
        """Until it is so far."""
        while not self._comes_to(sequence):
            self._start_again()

    def _comes_to(self, sequence: int) -> bool:
        assert self._process.stdout
        while self._place < sequence and (line := self._process.stdout.readline()):
            self._said.append(line)
            place, _, seconds = line.partition(" ")
            if place.isdigit():
                self._place, self.batch_seconds = int(place), float(seconds)
        return self._place >= sequence

    def _start_again(self) -> None:
        """As whoever runs it does."""
        self._excuse(self._bury())
        self._start()

    def _excuse(self, code: int) -> None:
        """Where nothing was killed, only the machine is an excuse."""
        assert code in (-signal.SIGKILL, 3), f"{self._said} {self._errors.read_text()[-3000:]}"
        assert self._hurt or TOO_BUSY in "".join(self._said), f"it ended by itself: {self._said}"
        if not self._hurt:
            print(f"not killed, but ended: {TOO_BUSY}", flush=True)

    def stays(self, seconds: float) -> None:
        """Let it go on for a time that nothing it says can tell, or until it ends."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def kill(self, what: str, chance: random.Random) -> list[str]:
        """kill -9: the driver, its JVM, one of Spark's Python processes, or all of these. The names of what was killed.

        Without the driver or the JVM it ends; without one of the others it may go on.
        """
        killed: list[str] = []
        while not killed:
            if self._process.poll() is not None:  # for want of what was killed before
                self._start_again()
            self._look()
            for each in self._victims(what, chance):
                with suppress(psutil.NoSuchProcess):
                    name = each.name()
                    each.kill()
                    killed.append(name)
        self._hurt = True
        if what != "worker":
            self._start_again()
        return killed

    def _victims(self, what: str, chance: random.Random) -> list[psutil.Process]:
        if what == "driver":
            return [psutil.Process(self._process.pid)]
        if what == "JVM":
            return [each for each in self._family if _name_of(each) == "java"]
        if what == "worker":
            workers = [each for each in self._family if _name_of(each).startswith("python")]
            return [chance.choice(sorted(workers, key=lambda each: each.pid))] if workers else []
        return [psutil.Process(self._process.pid), *self._family]

    def _look(self) -> None:
        """Who belongs to it is not to be found any more when it has ended."""
        with suppress(psutil.NoSuchProcess):
            self._family |= {*psutil.Process(self._process.pid).children(recursive=True)}

    def _bury(self) -> int:
        """The rest of it ends by itself; its exit code."""
        assert self._process.stdout
        self._look()
        try:
            self._process.wait(SECONDS)
            _, left = psutil.wait_procs(self._family, timeout=SECONDS)
            assert not left, f"still there: {left}"
            self._said += self._process.stdout.readlines()
        finally:
            self._end_all()
        return self._process.returncode

    def _end_all(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        for each in [*self._family, self._process]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def finish(self, sequence: int) -> tuple[int, int]:
        """Have it stop as it does, once it is so far; up to which records the lake has come, and matching."""
        self.until(sequence)
        assert self._process.stdin
        self._process.stdin.close()
        code = self._bury()
        if code == 0:
            lake, matching = self._said[-1].split()
            return int(lake), int(matching)
        self._excuse(code)
        self._start()
        return self.finish(sequence)


def _name_of(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else process.name()
    except psutil.NoSuchProcess:  # Java's helpers live for a moment
        return ""
