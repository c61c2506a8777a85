"""What browsers ask about the hour, and who is here: without a page, and with as little of a server as will do."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import orjson
from starlette.websockets import WebSocket

from spinney_cloud.dashboard.answers import MAX_PASTS, REST, Answers
from spinney_cloud.dashboard.live import Browser
from spinney_cloud.dashboard.presence import Presence
from spinney_cloud.dashboard.watching import Watched
from spinney_cloud.dashboard.world import RESOLUTION, SLOT_SECONDS, World

NOW = 1_800_000_000.0
DRAGGED_OVER = 119


def a_world(slots: int = 3, sources: int = 2) -> World:
    """In each slot each source has said its number."""
    world = World()
    for slot in range(slots):
        for i in range(sources):
            row = {"source": f"s{i}", "n": slot, "lat": 45.8 + i / 1000, "long": 16.0}
            world.take(row, NOW + slot * SLOT_SECONDS)
    return world


def answers_about(world: World, *, is_read_back: bool = True) -> Answers:
    ready = asyncio.Event()
    if is_read_back:
        ready.set()
    return Answers(world, ready)


# ---- The hour


def test_a_time_that_is_over_is_worked_out_once_for_all() -> None:
    async def ask() -> None:
        answers = answers_about(a_world())
        found = await asyncio.gather(*(answers.past(NOW + 1, RESOLUTION) for _ in range(50)))
        assert (answers.worked_out, len(set(found))) == (1, 1)
        assert {point[4]["n"] for point in orjson.loads(found[0])["points"]} == {0}
        await answers.past(NOW + 2, RESOLUTION)
        assert answers.worked_out == 1
        await answers.past(NOW + 2, RESOLUTION - 1)
        assert answers.worked_out == 2

    asyncio.run(ask())


def test_a_time_that_is_not_over_is_looked_at_anew() -> None:
    async def ask() -> None:
        world = a_world()
        answers, now = answers_about(world), NOW + 2 * SLOT_SECONDS
        assert {point[4]["n"] for point in orjson.loads(await answers.past(now, 5))["points"]} == {2}
        for i in range(2):
            world.take({"source": f"s{i}", "n": 9}, now + 1)
        assert {point[4]["n"] for point in orjson.loads(await answers.past(now, 5))["points"]} == {9}

    asyncio.run(ask())


def test_so_many_times_are_remembered_and_no_more() -> None:
    async def ask() -> None:
        answers = answers_about(a_world(MAX_PASTS + 3, 1))
        for _ in range(2):
            for slot in range(MAX_PASTS + 1):
                await answers.past(NOW + slot * SLOT_SECONDS, 5)
        assert answers.worked_out == 2 * (MAX_PASTS + 1)  # each had gone when it was asked again

    asyncio.run(ask())


def test_nothing_is_said_of_an_hour_that_is_read_in_part() -> None:
    async def ask() -> None:
        world = World()
        answers = answers_about(world, is_read_back=False)
        series, past = (asyncio.create_task(one) for one in (answers.series(["s0"]), answers.past(NOW, 5)))
        await asyncio.sleep(0)
        for slot in range(3):
            world.take({"source": "s0", "n": slot}, NOW + slot * SLOT_SECONDS)
        answers._is_read_back.set()
        assert [values["n"] for _, values in orjson.loads(await series)["series"]["s0"]] == [0, 1, 2]
        assert len(orjson.loads(await past)["points"]) == 1

    asyncio.run(ask())


def test_whoever_asks_without_end_has_a_fifth_of_the_time() -> None:
    rested: list[float] = []

    async def rest(seconds: float) -> None:
        rested.append(seconds)
        clock.passed += seconds

    async def ask() -> None:
        ready = asyncio.Event()
        ready.set()
        answers = Answers(a_world(), ready, clock, rest)
        await asyncio.gather(*(answers.series(["s0"]) for _ in range(10)))

    class Clock:
        """Any work takes a second, as does any look at it."""

        passed = 0.0

        def __call__(self) -> float:
            self.passed += 1.0
            return self.passed

    clock = Clock()
    asyncio.run(ask())
    assert rested == [REST - 1.0] * 9  # the look at the clock was a second of it
    assert REST == 4


def test_of_the_times_that_are_dragged_over_only_the_newest_is_worked_out() -> None:
    told: list[dict[str, Any]] = []
    asked: asyncio.Queue[dict[str, Any]]

    async def send(message: Any) -> None:
        if "text" in message:
            told.append(json.loads(message["text"]))

    async def look() -> int:
        nonlocal asked
        asked = asyncio.Queue()
        asked.put_nowait({"type": "websocket.connect"})
        socket = WebSocket({"type": "websocket", "headers": []}, asked.get, send)
        await socket.accept()
        watched = Watched(SimpleNamespace(log=None), "default")  # type: ignore[arg-type]
        watched.world = a_world(DRAGGED_OVER + 2)
        watched.answers = answers_about(watched.world, is_read_back=False)
        stopping = asyncio.Event()
        browser = asyncio.create_task(Browser(socket, watched, {}, lambda _: None).run(allowed, stopping))
        for slot in range(DRAGGED_OVER):
            asked.put_nowait({"type": "websocket.receive", "text": json.dumps({"at": NOW + slot * SLOT_SECONDS})})
        while not asked.empty():
            await asyncio.sleep(0)
        watched.answers._is_read_back.set()
        while not told or told[-1]["at"] != NOW + (DRAGGED_OVER - 1) * SLOT_SECONDS:
            await asyncio.sleep(0.001)
        stopping.set()
        await browser
        return watched.answers.worked_out

    async def allowed() -> bool:
        return True

    assert asyncio.run(look()) <= 2  # the first, which it had begun with, and the last
    assert {message["kind"] for message in told} == {"past"}


# ---- Who is here


def one(name: str, broker: str, *, away: bool = False, radius: float = 0.0) -> dict[str, Any]:
    return {"name": name, "broker": broker, "away": away, "place": {"lat": 1.0, "long": 2.0, "radius": radius}}


def told_since(presence: Presence, version: int) -> tuple[int, Any]:
    news = presence.flow.since(version)
    assert news is not None
    message = orjson.loads(news.data)
    assert message["kind"] == "present"
    return news.version, message["items"]


def test_who_is_announced_is_here_and_changes_alone_are_told() -> None:
    presence = Presence()
    assert presence.put([one("a", "pi"), one("b", "pi", radius=50.0), {**one("c", "pi"), "place": None}])
    version, items = told_since(presence, 0)
    assert items == [["a", 1.0, 2.0, "pi"], ["b", None, None, "pi"], ["c", None, None, "pi"]]
    assert presence.places == {"a": (1.0, 2.0)}
    assert not presence.put([one("a", "pi"), one("b", "pi", radius=50.0), {**one("c", "pi"), "place": None}])
    assert presence.put([one("a", "other"), one("b", "pi", radius=50.0)])
    assert told_since(presence, version)[1] == [["a", 1.0, 2.0, "other"], ["c"]]


def test_whose_broker_is_away_is_not_here_and_where_it_was_is_known() -> None:
    presence = Presence()
    presence.put([one("a", "pi"), one("b", "pi")])
    version, _ = told_since(presence, 0)
    assert presence.put([one("a", "pi", away=True), one("b", "pi", away=True), one("b", "other")])
    assert sorted(told_since(presence, version)[1]) == [["a"], ["b", 1.0, 2.0, "other"]]
    assert presence.places == {"a": (1.0, 2.0), "b": (1.0, 2.0)}
