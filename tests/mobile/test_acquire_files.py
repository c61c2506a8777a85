"""Replays of files and rooms that are not there, in virtual time."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hearing_kit import NOW, Kept, until

from spinney_mobile.acquire import Acquirers, make, name_of
from spinney_mobile.acquire.simulator import room
from spinney_mobile.samples import MAX_HEARD_BYTES, Acquirer, AcquirerError, Sample
from spinney_mobile.settings import (
    AcquireBle,
    AcquireMotes,
    AcquireMqtt,
    AcquireReplay,
    AcquireSerial,
    AcquireSimulator,
    AnyAcquire,
    MqttTopic,
)
from spinney_tools.sim import clock

SAMPLE = Path(__file__).parents[2] / "tools" / "spinney_tools" / "sample" / "madrid.jsonl"


def now() -> float:
    return NOW + asyncio.get_running_loop().time()


def played(settings: AnyAcquire, count: int | None = None) -> list[tuple[float, Sample]]:
    """When each of so many samples came, or of all there are."""

    async def main() -> list[tuple[float, Sample]]:
        found: list[tuple[float, Sample]] = []

        class Timed(Kept):
            def sampled(self, sample: Sample) -> None:
                found.append((now() - NOW, sample))
                super().sampled(sample)

        acquirer = make(settings)
        acquirer._clock = now  # type: ignore[attr-defined]
        kept = Timed()
        run = asyncio.create_task(acquirer.run(kept))
        if count is None:
            await run
        else:
            await kept.until(lambda: len(found) >= count)
            run.cancel()
        return found[:count]

    return clock.run(main())


def jsonl(tmp_path: Path, *items: dict[str, Any] | str) -> Path:
    file = tmp_path / "log.jsonl"
    file.write_text("".join((item if isinstance(item, str) else json.dumps(item)) + "\n" for item in items))
    return file


READINGS = [{"source": "a", "time": 1000 + 10 * step, "temp": step} for step in range(3)]


def test_a_replay_keeps_the_recordings_time_and_is_as_old_as_if_made_now(tmp_path: Path) -> None:
    found = played(AcquireReplay(file=jsonl(tmp_path, *READINGS)))
    assert [when for when, _ in found] == [0, 10, 20]
    assert found[2][1] == Sample("a", {"temp": 2.0}, NOW + 20, NOW + 20, "replay:log.jsonl")


def test_a_replay_is_faster_when_asked(tmp_path: Path) -> None:
    found = played(AcquireReplay(file=jsonl(tmp_path, *READINGS), speed=10.0))
    assert [when for when, _ in found] == [0, 1, 2]
    assert [sample.time - NOW for _, sample in found] == [0, 1, 2]


def test_at_full_speed_samples_keep_their_times_and_others_have_their_turn(tmp_path: Path) -> None:
    items = [{"time": 1000 + step, "v": step, "id": f"a:2:{step}"} for step in range(1000)]
    settings = AcquireReplay(file=jsonl(tmp_path, *items), speed=0)
    found = played(settings)
    assert [sample.time for _, sample in found] == [1000.0 + step for step in range(1000)]
    assert {when for when, _ in found} == {0.0}
    assert (found[7][1].source, found[7][1].boot, found[7][1].sequence) == ("a", 2, 7)

    async def main() -> int:
        turns = 0
        run = asyncio.create_task(make(settings).run(Kept()))
        while not run.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert clock.run(main()) >= 10


def test_a_repeated_replay_leaves_its_numbers_out(tmp_path: Path) -> None:
    file = jsonl(tmp_path, {"id": "a:1:1", "v": 1})
    found = played(AcquireReplay(file=file, speed=0, repeat=True), 3)
    assert [(sample.source, sample.boot, sample.sequence) for _, sample in found] == [("a", None, None)] * 3


def test_csv_and_compressed_files(tmp_path: Path) -> None:
    file = tmp_path / "log.csv.gz"
    with gzip.open(file, "wt") as out:
        out.write('source,time,temp,open,note\nb,2026-01-31T11:00:00Z,21.5,true,"warm, dry"\nb,,22,,\n')
    found = played(AcquireReplay(file=file, speed=0))
    assert [sample.values for _, sample in found] == [
        {"temp": 21.5, "open": True, "note": "warm, dry"},
        {"temp": 22.0},
    ]
    assert [sample.time for _, sample in found] == [1769857200.0, NOW]


@pytest.mark.parametrize("size", [MAX_HEARD_BYTES + 1, 2 * MAX_HEARD_BYTES, 3 * MAX_HEARD_BYTES + 7])
def test_of_a_line_that_is_too_long_not_even_its_end_is_a_sample(tmp_path: Path, size: int) -> None:
    file = tmp_path / "log.csv"
    end = "a,3"
    file.write_text(f"source,temp\na,1\n{'x' * (size - len(end))}{end}\na,2\n{'y' * size}")
    acquirer = make(AcquireReplay(file=file, speed=0))
    kept = Kept()
    clock.run(acquirer.run(kept))
    assert [sample.values for sample in kept.samples] == [{"temp": 1.0}, {"temp": 2.0}]
    assert acquirer.counts["bad lines"] == 2
    assert "log.csv:5: longer than" in (acquirer.error or "")


def test_a_line_may_be_as_long_as_a_sample(tmp_path: Path) -> None:
    start = '{"v": 1, "text": "'
    line = f'{start}{"x" * (MAX_HEARD_BYTES - len(start) - 2)}"}}'
    assert len(line) == MAX_HEARD_BYTES
    assert len(played(AcquireReplay(file=jsonl(tmp_path, line, line), speed=0))) == 2


def test_the_sample_that_comes_along_is_replayed() -> None:
    found = played(AcquireReplay(file=SAMPLE, speed=0))
    assert len(found) == len(SAMPLE.read_text().splitlines())
    assert all(sample.place and sample.source for _, sample in found)


def test_bad_lines_are_counted_and_the_rest_is_told(tmp_path: Path) -> None:
    file = jsonl(tmp_path, {"v": 1}, "no json", {"v": []}, {"time": "noon", "v": 1}, {"source": "x"}, {"v": 2})
    acquirer = make(AcquireReplay(file=file, speed=0, source="s"))
    kept = Kept()
    clock.run(acquirer.run(kept))
    assert [(sample.source, sample.values["v"]) for sample in kept.samples] == [("s", 1), ("s", 2)]
    assert (acquirer.counts["lines"], acquirer.counts["bad lines"]) == (6, 4)
    assert "log.jsonl:5: no attribute in it" in str(acquirer.error)


@pytest.mark.parametrize(
    ("name", "content"), [("none.jsonl", None), ("cut.jsonl.gz", b"\x1f\x8b\x08\x00"), ("x.gz", b"x")]
)
def test_a_file_that_cannot_be_read_says_which(tmp_path: Path, name: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(AcquirerError, match=name):
        clock.run(make(AcquireReplay(file=tmp_path / name)).run(Kept()))


def test_an_empty_file_is_not_read_for_ever(tmp_path: Path) -> None:
    with pytest.raises(AcquirerError, match="no sample in it"):
        clock.run(make(AcquireReplay(file=jsonl(tmp_path), repeat=True)).run(Kept()))


def test_an_acquirer_that_has_come_to_its_end_is_stopped_and_not_failed(tmp_path: Path) -> None:
    async def main() -> None:
        kept = Kept()
        async with Acquirers(kept) as acquirers:
            acquirers.add(make(AcquireReplay(file=jsonl(tmp_path, *READINGS), speed=0)))
            await until(lambda: acquirers.status()[0].state == "stopped")
            (status,) = acquirers.status()
            assert (status.state, status.heard, status.error) == ("stopped", 3, None)

    clock.run(main())


# ---- rooms that are not there


def test_rooms_come_evenly_and_the_same_for_the_same_seed() -> None:
    settings = AcquireSimulator(sources=4, every=8.0, seed=3)
    found = played(settings, 12)
    assert [when for when, _ in found] == [2.0 * step for step in range(12)]
    assert [sample.source for _, sample in found[:5]] == ["room-1", "room-2", "room-3", "room-4", "room-1"]
    assert found == played(settings, 12)
    assert found != played(AcquireSimulator(sources=4, every=8.0, seed=4), 12)
    assert all(sample.time == sample.heard == NOW + when for when, sample in found)
    assert [sample.values for _, sample in found] == [room(3, step % 4, NOW + 2 * step) for step in range(12)]
    assert room(3, 0, NOW) != room(3, 1, NOW)
    batteries = [sample.battery or 0.0 for _, sample in found]
    assert 0 < batteries[-1] < batteries[0] <= 1


def test_however_many_rooms_there_are_others_have_their_turn() -> None:
    acquirer, turns = make(AcquireSimulator(sources=2, every=1e-9)), 0

    class Counting(Kept):
        def sampled(self, sample: Sample) -> None:
            assert len(self.samples) < 1000 * (turns + 1), "nobody else has had a turn"
            super().sampled(sample)

    async def main() -> None:
        nonlocal turns
        run = asyncio.create_task(acquirer.run(Counting()))
        while turns < 10 and not run.done():
            turns += 1
            await asyncio.sleep(0)
        if run.done():
            run.result()
        run.cancel()

    asyncio.run(main())


def test_a_rooms_numbers_are_a_rooms() -> None:
    week = [room(1, 2, NOW + 60 * minute) for minute in range(7 * 24 * 60)]
    temperatures = [float(values["temperature"]) for values in week]
    assert 15 < min(temperatures) < max(temperatures) < 27
    assert max(temperatures) - min(temperatures) > 2
    assert max(abs(after - before) for before, after in itertools.pairwise(temperatures)) < 0.3
    assert {values["motion"] for values in week} == {True, False}
    assert all(400 < float(values["co2"]) < 1100 and 30 < float(values["humidity"]) < 70 for values in week)


# ---- names


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (AcquireBle(), "ble"),
        (AcquireBle(adapter="hci1"), "ble:hci1"),
        (AcquireMotes(adapter="hci1"), "motes:hci1"),
        (AcquireMqtt(topics=(MqttTopic(topic="a"),)), "mqtt:127.0.0.1:1883"),
        (AcquireSerial(port="/dev/ttyUSB0"), "serial:ttyUSB0"),
        (AcquireReplay(file=Path("x/log.csv")), "replay:log.csv"),
        (AcquireSimulator(), "simulator"),
        (AcquireSimulator(name="rooms"), "rooms"),
    ],
)
def test_an_acquirer_is_called_by_its_kind_and_what_it_hears(settings: AnyAcquire, name: str) -> None:
    assert name_of(settings) == name
    if not isinstance(settings, AcquireMotes):
        acquirer: Acquirer = make(settings)
        assert acquirer.name == name
