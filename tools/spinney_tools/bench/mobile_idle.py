"""`spinney bench idle`: what a mobile broker takes while nobody wants anything: 50 sensors, a cloud, no page open.

The real `spinney mobile run` with 50 of its simulated rooms, connected to a real cloud broker in which nobody has
subscribed: every sample is ruled, numbered and looked at, and none goes up. At the rate of quick sensors each room has
a new sample every second, at the rate of thermometers every ten. With the C core, where there is one, and without.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import psutil

from spinney import native

from .machine import describe
from .running_cloud import START_SECONDS, ended, running_cloud
from .stuck import Stuck
from .table import Table

SENSORS: Final = 50
EVERY_S: Final = (1.0, 10.0)
SECONDS: Final = 30.0
"""For which each is looked at, once it has heard all."""
HEARD_SECONDS: Final = 180.0
"""Until all sensors are announced."""
MOST_CPU: Final = {1.0: 0.05, 10.0: 0.02}
"""Of a core, by how often a sample comes."""
MOST_MB: Final = 100.0
_MB: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Idle:
    """One broker's."""

    core: str
    """C, or pure."""
    every_s: float
    cpu: float
    """Of a core."""
    rss_mb: float
    samples: int
    """In the meantime."""

    def missed(self) -> Iterator[str]:
        """The targets that it does not reach, in words."""
        most = MOST_CPU[self.every_s]
        what = f"{self.core}, a sample each {self.every_s:g} s"
        if self.cpu > most:
            yield f"{what}: {self.cpu:.1%} of a core instead of {most:.0%}"
        if self.rss_mb > MOST_MB:
            yield f"{what}: {self.rss_mb:.0f} MB instead of {MOST_MB:.0f}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """All of them."""

    idles: Sequence[Idle]
    seconds: float

    def missed(self) -> list[str]:
        """The targets that are not reached, in words."""
        return [text for one in self.idles for text in one.missed()]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured."""
        return {"seconds": self.seconds, "idles": [asdict(one) for one in self.idles], "missed": self.missed()}


def measure(progress: Callable[[str], None], seconds: float = SECONDS, rates: Sequence[float] = EVERY_S) -> Measurement:
    """One after the other, beside one cloud. Stuck if one does not start."""
    cores = ["pure"] if native.core() is None else ["C", "pure"]
    idles = []
    with running_cloud() as cloud:
        for core in cores:
            for every_s in rates:
                progress(f"looking at an idle mobile broker for {seconds:g} s: {core}, a sample each {every_s:g} s")
                idles.append(_idle(core, every_s, seconds, cloud.mqtt_port))
    return Measurement(idles, seconds)


def table(found: Measurement) -> Table:
    """One row for each core and rate."""
    notes = (
        f"`spinney mobile run` with {SENSORS} simulated sensors, connected to a cloud in which nobody has subscribed,",
        f"its page closed, over {found.seconds:g} s.",
    )
    rows = tuple(
        (
            f"{'C core' if one.core == 'C' else 'pure Python'}, each a new sample every {one.every_s:g} s",
            f"{one.cpu:.1%}",
            f"{MOST_CPU[one.every_s]:.0%}",
            f"{one.rss_mb:.0f} MB",
            f"{MOST_MB:.0f} MB",
        )
        for one in found.idles
    )
    return Table("idle", describe(), ("50 sensors", "of a core", "at most", "memory (RSS)", "at most"), rows, notes)


def _idle(core: str, every_s: float, seconds: float, mqtt_port: int) -> Idle:
    with (
        tempfile.TemporaryDirectory(prefix="spinney-bench-") as folder,
        _broker(Path(folder), core, every_s, mqtt_port) as process,
    ):
        data = Path(folder) / "data"
        _wait_until_all_are_heard(data)
        before = _sampled(data)
        cpu, began = _cpu_seconds(process), time.monotonic()
        time.sleep(seconds)
        used, took = _cpu_seconds(process) - cpu, time.monotonic() - began
        rss = process.memory_info().rss
        return Idle(core, every_s, used / took, rss / _MB, _sampled(data) - before)


@contextmanager
def _broker(folder: Path, core: str, every_s: float, mqtt_port: int) -> Iterator[psutil.Process]:
    """A mobile broker that is ready; stopped at the end."""
    config = folder / "mobile.toml"
    name = f"idle-{core.lower()}-{every_s:g}"
    config.write_text(
        f'name = "{name}"\n[cloud]\nurl = "mqtt://127.0.0.1:{mqtt_port}"\n[web]\nport = 0\n'
        f'[[acquire]]\nkind = "simulator"\nsources = {SENSORS}\nevery = {every_s}\n'
    )
    command = [sys.executable, "-m", "spinney_mobile", "run", "--config", str(config), "--data", str(folder / "data")]
    environment = {**os.environ, native.PURE: "1" if core == "pure" else "0"}
    errors = folder / "errors"
    with (
        errors.open("wb") as out,
        ended(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, env=environment)) as process,
    ):
        assert process.stdout
        waited = select.select([process.stdout], [], [], START_SECONDS)[0]
        if not (waited and process.stdout.readline()):
            raise Stuck(errors.read_text(errors="replace")[-2000:])
        yield psutil.Process(process.pid)


def _wait_until_all_are_heard(data: Path) -> None:
    """All announced, and the cloud has answered."""
    deadline = time.monotonic() + HEARD_SECONDS
    while time.monotonic() < deadline:
        status = _status(data)
        if (
            len(status["sources"]) == SENSORS
            and all(one["owned"] for one in status["sources"])
            and status["uplink"]["connected"]
        ):
            return
    raise Stuck(f"not all of {SENSORS} sensors are announced after {HEARD_SECONDS:g} s")


def _sampled(data: Path) -> int:
    return int(_status(data)["counts"]["sampled"])


def _status(data: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "spinney_mobile", "status", "--json", "--data", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        raise Stuck(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
