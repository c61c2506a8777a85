"""`spinney replay --fetch`: what a running cloud's mobile brokers held back, among what the lake has."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import Cloud
from fetch_kit import broker, held
from gateway_kit import run
from kit import TENANT, publications
from replay_kit import SETTINGS, Entry, by_engine, lake_of, told, wanted
from security_kit import REAL
from servers import HOST, free_ports

from spinney import PublicationId
from spinney_cloud.api.dry_run import Replay, private
from spinney_cloud.fetch.placing import Placing
from spinney_cloud.fetch.result import Fetched, FetchedReading
from spinney_cloud.pipeline.replay import replay
from spinney_cloud.pipeline.replay_fetch import look
from spinney_cloud.pipeline.replay_lake import Earlier
from spinney_cloud.records import Publications
from spinney_tools.replay import main

COMMAND = [sys.executable, "-c", "import sys; from spinney_tools.replay import main; sys.exit(main(sys.argv[1:]))"]
BEGIN = 1_700_000_000.0


# ---- among the rows of the lake


def record(source: str, number: int, temp: float) -> Publications:
    return publications(source, number, [{"temp": temp, "room": source}], client="pi")


def log() -> list[Entry]:
    """Two sources whose temperature goes up and down."""
    found = []
    for at in range(120):
        source = "ab"[at % 2]
        found.append(Entry(BEGIN + at * 10.0, record(source, at // 2, 20 + (at * 7) % 11)))
    return found


def test_what_is_fetched_stands_where_the_log_would_have_had_it(tmp_path: Path) -> None:
    """Every third reading was held back: with these the lake tells what the whole log would have told."""
    whole = log()
    there = [one for at, one in enumerate(whole) if at % 3]
    lake = lake_of(tmp_path / "lake", there)
    for text in ("temp > 25", "WHEN temp > 25 UNTIL temp <= 22 EACH room", "TOP 2 OVER 5m BY temp DESC"):
        what = wanted(text, BEGIN - 1, BEGIN + 10_000)
        found = Fetched(BEGIN + 2_000, [reading(one) for at, one in enumerate(whole) if not at % 3 or not at % 4])
        placing = Placing(found, TENANT)
        look(lake, what, placing)
        placing.looked()
        now = told(replay(lake, what, SETTINGS, placing=placing))
        assert now == by_engine(whole, what)
        assert now != told(replay(lake, what, SETTINGS))
        assert found.repeated == sum(bool(at % 3) and not at % 4 for at in range(120))
        assert found.count == 40


def test_a_dry_run_that_goes_back_to_the_lake_puts_it_there_too(tmp_path: Path) -> None:
    whole = log()
    lake_of(tmp_path / "lake", [one for at, one in enumerate(whole) if at % 3])
    for text in ("temp > 25", "WHEN temp > 25 UNTIL temp <= 22 EACH room"):
        what = wanted(text, BEGIN - 1, BEGIN + 10_000)
        earlier = Earlier(str(tmp_path / "lake"), what.form, TENANT, what.since, what.until, 1_000)
        found = Fetched(BEGIN + 2_000, [reading(one) for at, one in enumerate(whole) if not at % 3 or not at % 4])
        placing = Placing(found, TENANT)
        earlier.look(placing)
        placing.looked()
        one = Replay.of(private(TENANT, "ana", "dry", what.form), SETTINGS)
        one.placing = placing
        one.hear(earlier)
        one.finish(BEGIN + 2_000)
        now = [(note["time"], note["publication"]["id"], note["why"]) for note in map(json.loads, one.kept)]
        assert now == [(at, id, why) for at, id, why, *_ in by_engine(whole, what)]
        assert (found.count, one.cut) == (40, [])


def reading(one: Entry) -> FetchedReading:
    assert isinstance(one.record, Publications)
    (row,) = json.loads(one.record.rows)
    return FetchedReading(PublicationId.parse(row["id"]), one.time, None, "pi", row)


# ---- the command


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What came up ten minutes ago."""
    place = tmp_path_factory.mktemp("lake") / "lake"
    begun = time.time() - 600.0
    lake_of(place, [Entry(begun + at, publications("m1", at, [{"co2": 100.0 + at}], client="pi")) for at in range(10)])
    return place


async def command(*arguments: str, **variables: str) -> tuple[int, str, str]:
    """Exit code, standard output and error."""
    process = await asyncio.create_subprocess_exec(
        *COMMAND, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
    )  # fmt: skip
    out, error = await process.communicate()
    return process.returncode or 0, out.decode(), error.decode()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--http", "--data"])
def test_a_replay_asks_the_cloud_for_what_its_brokers_held_back(cloud: Cloud, lake: Path, way: str) -> None:
    async def test() -> None:
        address = f"http://{HOST}:{cloud.port('HTTP')}" if way == "--http" else str(cloud.data)
        async with broker(cloud.port("MQTT"), "pi", "m1") as pi:
            asked = asyncio.create_task(
                command("co2 >= 108", "--lake", str(lake), "--from", "-1h", "--fetch", way, address, "--out", "-")
            )
            question = await pi.next_question()
            assert question["since"] == pytest.approx(3600, abs=60)
            some = [
                held("m1", 208, number=8, age=598.0),
                held("m1", 210, number=20, age=5.0),
                held("m1", 90, number=21),
            ]
            await pi.answer(question["id"], *some)
            code, out, error = await asked
            assert code == 0, error
            rows = [json.loads(line)["publication"]["co2"] for line in out.splitlines()]
            assert rows == [108.0, 109.0, 210.0]
            assert "3 notifications" in error
            assert "1 reading fetched from 1 mobile broker" in error
            code, out, _ = await command("co2 >= 108", "--lake", str(lake), "--from", "-1h", "--out", "-")
            assert (code, len(out.splitlines()), len(pi.asked)) == (0, 2, 1)

    run(test())


@pytest.mark.slow
def test_a_cloud_that_refuses_or_is_not_there_is_said(cloud: Cloud, lake: Path) -> None:
    async def test() -> None:
        (nobody,) = free_ports(1)
        where = ("co2 > 1", "--lake", str(lake), "--fetch")
        code, out, error = await command(*where, "--http", f"http://{HOST}:{nobody}")
        assert (code, out) == (1, "")
        assert "--fetch asks a running cloud" in error
        assert "refused" in error
        assert "--http names another" in error
        here = f"http://{HOST}:{cloud.port('HTTP')}"
        code, _, error = await command(*where, "--http", here, "--tenant", "city")
        assert code == 1
        assert "the cloud takes us for one of tenant default, not city" in error
        code, _, error = await command(*where, "--http", here + "/metrics?")
        assert code == 1
        code, _, error = await command(*where, "--http", "file:///x")
        assert "an HTTP address is" in error
        code, _, error = await command(*where, SPINNEY_HTTP=f"http://{HOST}:{nobody}")
        assert code == 1
        assert str(nobody) in error

    run(test())


def test_so_long_and_no_longer_is_waited_for(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seconds in ("0", "31", "soon", "nan"):
        with pytest.raises(SystemExit) as ended:
            main(["co2 > 1", "--lake", str(lake), "--fetch-seconds", seconds])
        assert ended.value.code == 2
        assert "at most 30" in capsys.readouterr().err
