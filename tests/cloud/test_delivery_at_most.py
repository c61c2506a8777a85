"""`at_most` with real servers: the first of each cell and period reach their subscriber, whoever is killed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import orjson
from delivery_kit import Process, Subscriber, bench, match, until
from servers import NatsServer

from spinney_cloud.notes import notification_id

DENSITY: Final = {"density": {"cell": 8, "at_most": "1/1m"}}
PLACES: Final = ({"lat": 45.8, "long": 15.97}, {"lat": 47.0, "long": 16.0}, {})
BEGIN: Final = 1_900_000_000.0 // 60 * 60
"""A period begins."""


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 90))


def id_of(number: int) -> str:
    return notification_id("default", match("ana", number=number))


def test_the_first_of_each_cell_and_period_are_delivered_and_the_others_counted(
    tmp_path: Path, nats: NatsServer
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            await on.subscribe("ana", **DENSITY)
            await on.subscribe("bob")
            ana, bob = [await Subscriber(nats.mqtt_port, owner).start() for owner in ("ana", "bob")]
            for number in range(30):
                place = PLACES[number % 3]
                await on.tell(match("ana", number=number), match("bob"), time=BEGIN + 5 * number, **place)
            await until(lambda: len(bob.got) == 30 and delivery.progress.floor == 30)
            assert ana.ids() == [id_of(number) for number in (0, 1, 2, 12, 13, 14, 24, 25, 26)]
            question = orjson.dumps({"tenant": "default", "owner": "ana", "sid": "air"})
            assert orjson.loads(await on.log.ask("delivery", "status", question))["dropped"] == {"at_most": 21}
            metrics = (await on.log.ask("delivery", "metrics", b"")).decode()
            assert 'spinney_delivery_dropped_total{reason="at_most"} 21.0' in metrics
            await ana.close()
            await bob.close()

    run(scenario())


def test_a_kill_in_between_neither_doubles_nor_loses_what_a_limit_lets_through(
    tmp_path: Path, nats: NatsServer
) -> None:
    """Each time the first of a period is out, or on its way, when delivery is killed; others of it come afterwards."""

    async def scenario() -> None:
        async with bench(tmp_path, nats) as on:
            await on.subscribe("ana", **DENSITY)
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            told, wanted = 0, set[str]()
            process = Process(on)
            await process.start()
            for period in range(3):
                for at in range(12):
                    if at in (0, 1):  # in each period, two places
                        wanted.add(id_of(told))
                    await on.tell(match("ana", number=told), time=BEGIN + 60 * period + 4 * at, **PLACES[at % 2])
                    told += 1
                    if at == 6:
                        # Sometimes before anything of the period is out, sometimes after.
                        out = 2 * (period + period % 2)
                        await until(lambda out=out: len(ana.got) >= out)  # type: ignore[misc]  # mypy infers no default
                        await process.end(signal.SIGKILL)
                        process = Process(on)
                        await process.start()
            await process.end(signal.SIGKILL)
            async with on.delivery() as delivery:
                await until(lambda: delivery.progress.floor == told)
                await until(lambda: set(ana.ids()) >= wanted)
            assert set(ana.ids()) == wanted
            await ana.close()

    run(scenario())


def test_a_limit_holds_whatever_else_is_asked_for_and_a_new_subscription_obeys_it_at_once(
    tmp_path: Path, nats: NatsServer
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            for number in range(6):
                await on.tell(match("ana", number=number), time=BEGIN + number, **PLACES[number % 2])
            await until(lambda: delivery.queues.held == 6)
            await on.subscribe("ana", **DENSITY, digest="200ms")
            await until(lambda: len(ana.got) == 1)
            assert [note["id"] for note in ana.got[0]["digest"]] == [id_of(0), id_of(1)]
            assert delivery.status.dropped == {"at_most": 4}
            await ana.close()

    run(scenario())
