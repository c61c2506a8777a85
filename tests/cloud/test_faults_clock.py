"""Wall clocks that are stepped under load: time is the log's (rule I3), so nobody is told anything else."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from fault_kit import PROCESSES, Load, Stand, all_of, loading, run, seed_of_today, standing, until
from stepped_cloud import STEP

from spinney_cloud.names import LOG
from spinney_cloud.nats_log import NatsLog

PROGRAM = [sys.executable, str(Path(__file__).with_name("stepped_cloud.py"))]
HOUR, YEAR = 3600.0, 366 * 24 * 3600.0


def step(stand: Stand, process: str, seconds: float) -> None:
    part = stand.cloud.data / f"{STEP}{process}.part"
    part.write_text(str(seconds))
    part.replace(part.with_suffix(""))


async def steps(folder: Path, plan: list[tuple[str, float]], seed: int) -> None:
    print(f"seed {seed}: {plan}")
    async with standing(folder, program=PROGRAM) as stand, loading(stand, seed) as load:
        await load.goes_on()
        for process, seconds in plan:
            step(stand, process, seconds)
            await load.goes_on()
        judgement = await load.finish()
        judgement.check(load, most_repeated=0)
        assert "killed" not in stand.cloud.said
        assert " error " not in stand.cloud.said


@pytest.mark.slow
def test_clocks_that_step_far_beyond_all_bounds_change_nothing_of_what_is_told(tmp_path: Path) -> None:
    seed = seed_of_today()
    random_ = random.Random(seed)
    plan = [(process, random_.choice([HOUR, -HOUR, YEAR, -YEAR])) for process in PROCESSES]
    run(steps(tmp_path, plan, seed))


@pytest.mark.soak
def test_clocks_that_step_to_and_fro_change_nothing_of_what_is_told(tmp_path: Path) -> None:
    seed = seed_of_today()
    random_ = random.Random(seed)
    run(steps(tmp_path, [(random_.choice(PROCESSES), random_.uniform(-YEAR, YEAR)) for _ in range(60)], seed), 1200.0)


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [-HOUR, HOUR])
def test_what_falls_due_by_the_log_falls_due_though_the_matchers_clock_is_stepped(
    tmp_path: Path, seconds: float
) -> None:
    """No record comes that would bring it about."""

    async def test() -> None:
        async with standing(tmp_path, program=PROGRAM) as stand:
            load = Load(stand, 0)
            (ana, _), (kit, _) = load.listeners, load.sources
            await ana.start()
            await ana.subscribe("late", '{"text": "WHEN x > 8 UNTIL x < 2", "reorder": 1}')
            step(stand, "matcher", seconds)
            await kit.mqtt.start()
            await kit.send([{"id": "kit:1:1", "source": "kit", "x": 9}])
            await until(lambda: len(ana.got) == 1, "enter", 10.0)
            async with await NatsLog.connect(stand.nats.endpoints(), name="judge") as log:
                ticks = [each for each in await all_of(log, LOG) if ".tick." in each.subject]
            assert 1 <= len(ticks) <= 5
            for client in (ana.mqtt, kit.mqtt):
                await client.close()

    run(test())
