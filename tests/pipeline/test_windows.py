"""Windows: a pure function of the lake, however it is cut into steps; late readings, gaps, coverage."""

from __future__ import annotations

import asyncio
import itertools
import math
import random
import statistics
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import h3
import numpy as np
import orjson
import pytest
from kit import make_log, publications, server_of, wait_until
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from replay_kit import Entry, lake_of
from servers import NatsServer

from spinney import parse
from spinney_cloud.density import Density
from spinney_cloud.names import SUBSCRIPTIONS
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.pipeline import windows as windows_module
from spinney_cloud.pipeline.lake import LakeError
from spinney_cloud.pipeline.windows import WINDOWS, WindowPlan, Windows, Written
from spinney_cloud.pipeline.windows_gaps import gaps
from spinney_cloud.pipeline.windows_part import WindowsPart
from spinney_cloud.pipeline.windows_rows import parent, summed
from spinney_cloud.pipeline.windows_wanted import Densities, types_of, wanted_densities
from spinney_cloud.records import Tick
from spinney_cloud.subscriptions import StoredSubscription, form_of

MIDNIGHT = 20_000 * 86_400.0
DELAY = 120.0
PLACES = ((45.8, 15.97), (45.81, 15.98), (46.3, 16.3))
LENGTHS = (60, 3_600)
PLAN = WindowPlan(LENGTHS, DELAY)
KEY = ("length", "tenant", "type", "cell", "attribute", "start")


class City:
    """A log in which some come late, some much too late, some by a clock that is wrong, and some say no time."""

    def __init__(self, seed: int = 1) -> None:
        self.chance = random.Random(seed)
        self.time = MIDNIGHT - 1_800
        self._number = 0

    def make(self, records: int) -> list[Entry]:
        return [self._entry() for _ in range(records)]

    def _entry(self) -> Entry:
        self.time += self.chance.expovariate(1 / 40)
        if self.chance.random() < 0.05:
            return Entry(self.time, Tick())
        source = self.chance.randrange(5)
        rows = [self._row(source) for _ in range(self.chance.choice((1, 2, 4)))]
        self._number += 10
        return Entry(self.time, publications(f"m{source}", self._number, rows))

    def _row(self, source: int) -> dict[str, Any]:
        back = self.chance.choice((1, 1, 1, 30, 30, 100, 400, 5_000, -30, -5_000, 8 * 86_400))
        row: dict[str, Any] = {"type": ("air", "rain")[source % 2], "NO2": round(self.chance.uniform(0, 90), 1)}
        if source < 4:
            row["lat"], row["long"] = PLACES[source % 3]
        else:
            del row["type"]
        if self.chance.random() < 0.9:
            row["time"] = round(self.time - back, 1)
        if self.chance.random() < 0.5:
            row |= {"temp": self.chance.randrange(30), "room": "hall"}
        return row


def rows_of(lake: Any) -> dict[tuple[Any, ...], dict[str, Any]]:
    """All rows, by their key; a key that is there twice is an error."""
    found = lake.dataset(WINDOWS).to_table().to_pylist()
    by_key = {tuple(row[name] for name in KEY): row for row in found}
    assert len(by_key) == len(found)
    return by_key


def expected(log: Iterable[Entry], lengths: Iterable[int] = LENGTHS) -> dict[tuple[Any, ...], dict[str, Any]]:
    """By the rules, in Python."""
    readings, newest = [], 0.0
    for time, record in log:
        if not isinstance(record, Tick):
            newest = time
            readings += [(time, row) for row in orjson.loads(record.rows)]
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for length in lengths:
        closed = math.floor((newest - DELAY) / length) * length
        groups: dict[tuple[Any, ...], list[tuple[float, float, str, bool]]] = {}
        for arrival, row in readings:
            time = row.get("time", arrival)
            time = arrival if time > arrival + 60 else time
            start = math.floor(time / length) * length
            if time < arrival - 7 * 86_400 or start >= closed:
                continue
            cell = h3.latlng_to_cell(row["lat"], row["long"], 8) if "lat" in row else ""
            for name in ("NO2", "temp"):
                if name in row:
                    key = (length, "default", row.get("type", ""), cell, name, start)
                    late = arrival >= start + length + DELAY
                    groups.setdefault(key, []).append((row[name], time, row["source"], late))
        for key, some in groups.items():
            found[key] = summary(some)
        found |= expected_gaps(groups, length, closed)
    return found


def summary(some: list[tuple[float, float, str, bool]]) -> dict[str, Any]:
    values = [value for value, *_ in some]
    return {
        "count": len(values),
        "mean": pytest.approx(statistics.fmean(values)),
        "min": min(values),
        "max": max(values),
        "p25": pytest.approx(np.percentile(values, 25)),
        "p50": pytest.approx(np.percentile(values, 50)),
        "p95": pytest.approx(np.percentile(values, 95)),
        "last": max(enumerate(some), key=lambda each: (each[1][1], each[0]))[1][0],
        "sources": len({source for _, _, source, _ in some}),
        "late": sum(late for *_, late in some),
        "gap": False,
    }


def expected_gaps(groups: Iterable[tuple[Any, ...]], length: int, closed: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    there = set(groups)
    found = {}
    for *series, start in there:
        for gap in range(start + length, min(start + 61 * length, closed), length):
            if (*series, gap) in there:
                break
            found[(*series, gap)] = {"count": 0, "gap": True, "mean": None, "sources": 0, "late": 0}
    return found


def assert_is(found: dict[tuple[Any, ...], dict[str, Any]], wanted: dict[tuple[Any, ...], dict[str, Any]]) -> None:
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        assert {name: found[key][name] for name in row} == row, key


def test_steps_however_they_are_cut_give_the_same_table(spark: SparkSession, tmp_path: Path) -> None:
    log = City().make(160)
    cuts = (0, 70, 71, 160)
    for begin, end in itertools.pairwise(cuts):
        lake = lake_of(tmp_path, log[begin:end], first=begin + 1)
        written = Windows(spark, lake, PLAN).step()  # a new one each time, as after a kill
        assert Windows(spark, lake, PLAN).step() == []
        assert_is(rows_of(lake), expected(log[:end]))
    assert any(one.changed for one in written)
    assert sum(row["late"] for row in rows_of(lake).values()) > 20
    assert {row["gap"] for row in rows_of(lake).values()} == {False, True}


def test_a_step_that_was_killed_has_done_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = City(2).make(60)
    lake = lake_of(tmp_path, log[:40])
    Windows(spark, lake, PLAN).step()
    before = rows_of(lake)
    lake = lake_of(tmp_path, log[40:], first=41)
    with monkeypatch.context() as broken:
        broken.setattr(windows_module.Lake, "put", _fails)
        with pytest.raises(LakeError, match="killed"):
            Windows(spark, lake, PLAN).step()
    assert rows_of(lake) == before
    Windows(spark, lake, PLAN).step()
    assert_is(rows_of(lake), expected(log))


def _fails(*_: Any, **__: Any) -> None:
    raise LakeError("killed")


def test_what_is_much_too_late_is_counted_and_in_no_window(spark: SparkSession, tmp_path: Path) -> None:
    old = publications("m", 0, [{"time": MIDNIGHT - 8 * 86_400, "a": 1.0}, {"time": MIDNIGHT, "a": 2.0}])
    lake = lake_of(tmp_path, [Entry(MIDNIGHT, old), Entry(MIDNIGHT + 7_200, publications("m", 9, [{"a": 3.0}]))])
    windows = Windows(spark, lake, WindowPlan((3_600,), DELAY))
    assert windows.step() == [Written(3_600, MIDNIGHT + 3_600, 1, 0, 0)]
    assert windows.too_late == 1
    ((row),) = rows_of(lake).values()
    assert (row["count"], row["last"], row["begin"].timestamp()) == (1, 2.0, MIDNIGHT)


@pytest.mark.parametrize("removed", ["before a step", "within it"])
def test_windows_whose_readings_were_removed_stay_as_they_are(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    def some(first: int, *times: float) -> Entry:
        rows = [{"time": MIDNIGHT + at, "a": 1.0} for at in times]
        return Entry(MIDNIGHT + times[-1], publications("m", first, rows))

    hour, day = 3_600, 86_400
    log = [some(0, 60, 61, 62), some(10, day + 60, day + 61), some(20, 2 * day), some(30, 3 * day + DELAY)]
    lake, plan = lake_of(tmp_path, log), WindowPlan((hour, day), DELAY)
    Windows(spark, lake, plan).step()
    before = rows_of(lake)
    assert sorted(row["count"] for row in before.values() if row["count"]) == [1, 1, 2, 2, 3, 3]
    lake = lake_of(tmp_path, [some(40, 63, day + 62, day + hour, 3 * day + DELAY)], first=5)
    if removed == "before a step":
        lake.retain(3)
    else:
        monkeypatch.setattr(windows_module, "summed", lambda *given: (lake.retain(3), summed(*given))[1])
    windows = Windows(spark, lake, plan)
    windows.step()
    changed = {(key[0], key[-1] - MIDNIGHT) for key, row in rows_of(lake).items() if row != before.get(key)}
    assert changed == {(hour, day + hour)}
    assert windows.too_late == (2 if removed == "before a step" else 0)


def test_coverage_is_what_there_is_of_what_was_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """Two sources each quarter of an hour: in the first both, in the second one (often), in the third three."""
    place = {"lat": 45.8, "long": 15.97}
    heard = [("a", 0), ("b", 60), ("a", 900), ("a", 960), ("a", 1020), ("a", 1800), ("b", 1801), ("c", 1802)]
    log = [
        Entry(
            MIDNIGHT + at, publications(kind[0] + source, at, [{"type": kind, "v": 1, "time": MIDNIGHT + at, **place}])
        )
        for source, at in heard
        for kind in ("air", "rain")
    ]
    log.append(Entry(MIDNIGHT + 9_000, publications("z", 0, [{"v": 1.0}])))
    wanted: dict[str | None, Density] = {"air": Density(2, 8, 900.0)}
    windows = Windows(spark, lake_of(tmp_path, log), WindowPlan((3_600,), DELAY, wanted=wanted))
    windows.step()
    found = {(row["type"], row["gap"]): row["coverage"] for row in rows_of(lake_of(tmp_path, [])).values()}
    assert found["air", False] == pytest.approx((1 + 0.5 + 1 + 0) / 4)
    assert found["rain", False] is None
    assert found["air", True] == 0
    assert found["rain", True] is None


def test_cells_are_the_parents_that_h3_says(spark: SparkSession) -> None:
    chance = random.Random(3)
    cells = [h3.latlng_to_cell(chance.uniform(-90, 90), chance.uniform(-180, 180), 9) for _ in range(300)]
    frame = spark.createDataFrame([(cell,) for cell in [*cells, None]], "cell string")
    for resolution in (0, 5, 8):
        found = [row[0] for row in frame.select(parent(F.col("cell"), resolution)).collect()]
        assert found == [*(h3.cell_to_parent(cell, resolution) for cell in cells), ""]


@pytest.mark.parametrize(
    ("starts", "found"),
    [
        ([0], [10, 20, 30]),
        ([0, 20], [10, 30, 40, 50]),
        ([0, 10, 20], [30, 40, 50]),
        ([0, 90], [10, 20, 30]),
        ([], []),
    ],
)
def test_gaps_follow_what_there_is_for_so_long(starts: list[int], found: list[int]) -> None:
    assert [gap for _, gap in gaps({("s",): starts}, 10, 0, 100, most=3)] == found
    assert [gap for _, gap in gaps({("s",): starts}, 10, 20, 40, most=3)] == [gap for gap in found if 20 <= gap < 40]


# ---- what is asked for


def stored(text: str, density: Any, *, enabled: bool = True) -> StoredSubscription:
    form = form_of(parse(text))
    options = {} if density is None else {"density": density}
    return StoredSubscription(
        "default", "ana", "s", text, 1, 0.0, form.kind, form.normal, form.digest, enabled=enabled, options=options
    )


def test_the_highest_density_of_each_type_counts() -> None:
    low, high = {"per_cell": 1, "cell": 8, "every": "5m"}, {"per_cell": 2, "cell": 8, "every": "5m"}
    found = wanted_densities(
        [
            stored("type = 'air' AND NO2 > 40", low),
            stored("type IN ('air', 'rain')", high),
            stored("temp > 3", low),
            stored("type = 'snow'", None),
            stored("type = 'hail'", {"cell": 8, "at_most": "1/5m"}),
            stored("type = 'fog'", high, enabled=False),
        ]
    )
    assert found == {"air": Density(2, 8, 300.0), "rain": Density(2, 8, 300.0), None: Density(1, 8, 300.0)}


def test_the_types_that_a_filter_names() -> None:
    assert types_of(parse("type = 'a' OR type = 'b' AND x > 1").filter) == ["a", "b"]
    assert types_of(parse("type LIKE 'a%'").filter) == [None]
    assert types_of(parse("x > 1").filter) == [None]


def test_what_is_asked_for_is_followed(nats: NatsServer) -> None:
    make_log(nats)
    densities = Densities(server_of(nats))
    dense = stored("type = 'air'", {"per_cell": 1, "cell": 8, "every": "5m"})

    def change(*values: tuple[str, bytes | None]) -> None:
        async def put() -> None:
            async with await NatsLog.connect(nats.endpoints(), name="test") as log:
                for key, value in values:
                    bucket = log.bucket(SUBSCRIPTIONS)
                    await (bucket.delete(key) if value is None else bucket.put(key, value))

        asyncio.run(put())

    assert densities.read() == {}
    change(("1.default.ana.s", dense.encode()), ("3.a.b.c", b"junk"))
    change(("2.default.ana.t", stored("x > 1", None).encode()))
    assert densities.read() == densities.read() == {"air": Density(1, 8, 300.0)}
    change(("1.default.ana.s", None))
    assert densities.read() == {}


# ---- as a part of a pipeline


def test_a_part_keeps_up_until_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    log = City(4).make(60)
    wanted: dict[str | None, Density] = {None: Density(1, 8, 3_600.0)}
    part = WindowsPart(spark, lake_of(tmp_path, log[:40]), WindowPlan((3_600,), DELAY), 0.01, lambda: wanted)
    part.start()
    running = threading.Thread(target=part.wait)
    running.start()
    try:
        wait_until(lambda: part.done.windows, "the first windows")
        lake = lake_of(tmp_path, log[40:], first=41)
        steps = part.done.steps
        wait_until(lambda: part.done.steps > steps + 1, "another step")
    finally:
        part.stop()
        running.join()
    assert_is(rows_of(lake), expected(log, (3_600,)))
    assert {row["coverage"] for row in rows_of(lake).values()} == {1.0}
