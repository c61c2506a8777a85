"""kill -9 of anything at random moments under load: nothing stored is lost, and what is owed comes."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from time import monotonic

import pytest
from fault_kit import ACK_PENDING, IN_FLIGHT, PROCESSES, Load, Stand, loading, run, seed_of_today, standing

VICTIMS = (*PROCESSES, "nats-server", "all", "publisher", "subscriber", "connections")
FAILPOINTS = (
    "gateway.storing",
    "gateway.stored",
    "matcher.told",
    "matcher.stored",
    "delivery.acknowledged",
    "snapshot.begun",
    "snapshot.written",
    "snapshot.publish",
)
WORST = ("gateway.stored", "matcher.stored", "delivery.acknowledged", "snapshot.begun", "snapshot.publish")
"""Of these, what a few rounds are for."""
REPEATED = {
    "delivery": IN_FLIGHT,
    "delivery.acknowledged": IN_FLIGHT,
    "nats-server": IN_FLIGHT + ACK_PENDING,
    "all": IN_FLIGHT + ACK_PENDING,
    "subscriber": ACK_PENDING,
    "connections": ACK_PENDING,
}
"""What may be unacknowledged when that is killed, and so may come again."""


async def strike(load: Load, stand: Stand, victim: str) -> None:
    """Kill one."""
    if victim == "publisher":
        await asyncio.to_thread(load.kill_program, load.publisher)
    elif victim == "subscriber":
        await asyncio.to_thread(load.kill_program, load.subscriber)
    elif victim == "connections":
        load.sources[0].drop()
        load.listeners[0].mqtt.abort()
    elif "." in victim:
        await stand.die_at(victim)
    else:
        await asyncio.to_thread(stand.strike, victim)


async def rounds(folder: Path, victims: list[str], seed: int, *, mosquitto: bool = False) -> None:
    """Kill one after the other, each at a random moment after all goes on again."""
    random_ = random.Random(seed)
    print(f"seed {seed}: {', '.join(victims)}")
    async with standing(folder, mosquitto=mosquitto) as stand, loading(stand, seed) as load:
        began = monotonic()
        await load.goes_on()
        for number, victim in enumerate(victims):
            await asyncio.sleep(random_.uniform(0.0, 1.0))  # the moment is part of the test
            before = [listener.repeated for listener in load.listeners]
            print(f"round {number}: {victim} at {monotonic() - began:.3f} s")
            await strike(load, stand, victim)
            await load.goes_on()
            again = [listener.repeated - one for listener, one in zip(load.listeners, before, strict=True)]
            print(f"  goes on at {monotonic() - began:.3f} s; came again: {again}")
        judgement = await load.finish()
        judgement.check(load, sum(REPEATED.get(victim, 0) for victim in victims))


@pytest.mark.slow
def test_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    seed = seed_of_today()
    run(rounds(tmp_path, random.Random(seed).sample(VICTIMS, 3), seed))


@pytest.mark.slow
def test_killed_at_the_worst_moments_nothing_is_lost(tmp_path: Path) -> None:
    run(rounds(tmp_path, list(WORST), seed_of_today()))


@pytest.mark.slow
@pytest.mark.needs("mosquitto")
def test_with_mosquitto_killed_at_random_moments_nothing_is_lost(tmp_path: Path) -> None:
    """Of ours, that is; what mosquitto itself may lose is in the README."""
    seed = seed_of_today()
    random_ = random.Random(seed)
    victims = ["delivery.acknowledged", *random_.sample(("gateway", "gateway.stored", "nats-server", "all"), 2)]
    run(rounds(tmp_path, victims, seed, mosquitto=True))


@pytest.mark.soak
@pytest.mark.parametrize("mosquitto", [False, pytest.param(True, marks=pytest.mark.needs("mosquitto"))])
@pytest.mark.parametrize("victim", [*VICTIMS, *FAILPOINTS])
def test_killed_twenty_times_nothing_is_lost(tmp_path: Path, victim: str, mosquitto: bool) -> None:
    run(rounds(tmp_path, [victim] * 20, seed_of_today(), mosquitto=mosquitto), 1800.0)
