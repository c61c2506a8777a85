"""A log that has lost its tail, as after a power cut: what is left is told right, and what comes afterwards, too."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from clouds import kill
from engine_logs import whole
from fault_kit import Judgement, Listener, Load, Stand, all_of, at_rest, loading, run, seed_of_today, standing, until

from spinney_cloud import notes
from spinney_cloud.engine import Engine
from spinney_cloud.names import LOG, NOTES
from spinney_cloud.nats_log import NatsLog
from spinney_cloud.settings import Settings


def cut(stand: Stand, stream: str, size: int) -> int:
    """Take this many bytes from the end of a stream's newest file; how many it had."""
    blocks = (stand.nats.folder / "store").glob(f"**/{stream}/msgs/*.blk")
    newest = max(blocks, key=lambda path: int(path.stem))
    before = newest.stat().st_size
    with newest.open("r+b") as file:
        file.truncate(max(before - size, before // 2))
    return before


def kill_everything(stand: Stand) -> None:
    family = stand.cloud.family()
    kill(stand.cloud.pid)
    stand.nats.kill()
    for each in family:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    stand.cloud.wait()
    psutil.wait_procs(family, 30.0)


async def last_of(stand: Stand, stream: str) -> int:
    async with await NatsLog.connect(stand.nats.endpoints(), name="judge") as log:
        return (await log.state(stream)).last


async def check(load: Load, kept: int, noted: int) -> None:
    """Since the cut exactly that was told which the log says as it is now. `kept`, `noted`: where it ended."""
    async with await NatsLog.connect(load.stand.nats.endpoints(), name="judge") as log:
        engine = Engine(Settings())
        await until(lambda: at_rest(log, engine), "the matcher to have read all of the log")
        records, messages = await all_of(log, LOG), await all_of(log, NOTES)
    judgement = await asyncio.to_thread(Judgement, records, messages, {})
    told = whole(notes.decode(each.data) for each in messages if each.sequence > noted)
    owed = [line for line in judgement.right if line[1] > kept]
    assert owed, "nothing was told after the cut"
    wrong = Counter(map(str, told))
    wrong.subtract(map(str, owed))
    before = {str(line) for line in judgement.right if line[1] <= kept}
    differing = [(line, count) for line, count in wrong.items() if count and not (count == 1 and line in before)]
    assert not differing, f"told once too often (or not: negative): {differing[:5]}, {len(differing)} in all"
    for listener in load.listeners:
        expected = {line[8] for line in owed if line[3] == listener.name}
        await until(
            lambda listener=listener, expected=expected: expected <= _ids(listener), f"what is owed to {listener.name}"
        )


def _ids(listener: Listener) -> set[str]:
    return {one["publication"]["id"] for one in listener.order if "publication" in one}


async def cut_and_go_on(folder: Path, streams: tuple[str, ...], seed: int, rounds: int, sizes: list[int]) -> None:
    random_ = random.Random(seed)
    print(f"seed {seed}")
    async with standing(folder) as stand, loading(stand, seed) as load:
        await load.goes_on()
        for number in range(rounds):
            await asyncio.sleep(random_.uniform(0.0, 1.0))  # the moment is part of the test
            await asyncio.to_thread(kill_everything, stand)
            for stream in streams:
                size = random_.choice(sizes)
                print(f"round {number}: {size} bytes of {cut(stand, stream, size)} are cut from {stream}")
            await asyncio.to_thread(stand.nats.start)
            kept, noted = await last_of(stand, LOG), await last_of(stand, NOTES)
            await asyncio.to_thread(stand.cloud.start)
            await load.goes_on()
        load.publisher.kill()
        for source in load.sources:
            await source.finish()
        await check(load, kept, noted)
        for listener in load.listeners:
            await listener.mqtt.close()
        await load.events.close()


@pytest.mark.slow
def test_a_log_cut_at_its_tail_goes_on(tmp_path: Path) -> None:
    run(cut_and_go_on(tmp_path, (LOG, NOTES), seed_of_today(), 1, [10**9]))


@pytest.mark.soak
@pytest.mark.parametrize("streams", [(LOG,), (NOTES,), (LOG, NOTES)], ids=["log", "notes", "both"])
def test_logs_cut_at_their_tails_again_and_again_go_on(tmp_path: Path, streams: tuple[str, ...]) -> None:
    run(cut_and_go_on(tmp_path, streams, seed_of_today(), 20, [1, 7, 100, 2_000, 10_000, 10**9]), 900.0)
