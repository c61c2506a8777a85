"""What the gateway does with answers of mobile brokers: they go to the http process, or nowhere."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest
from gateway_kit import Client, Ground, ground, run, until
from servers import NatsServer

from spinney.packed import TEXT, pack
from spinney_cloud.fetch import passing
from spinney_cloud.fetch.parts import id_in


def answer(id: object = "q1", **more: object) -> dict[str, object]:
    return {"session": "s1", "fetched": {"id": id, "part": 0, "more": False, "readings": [], **more}}


async def counted(made: Ground, what: str) -> int:
    return int(await made.metric(f'fetch_parts{{what="{what}"}}'))


def told(client: Client) -> list[str]:
    return [one["error"]["message"] for one in client.told if one.get("request") == "fetch"]


def test_answers_go_to_http_as_they_came_and_what_it_refuses_is_told(nats: NatsServer, tmp_path: Path) -> None:
    taken: list[bytes] = []

    async def http(data: bytes) -> bytes:
        taken.append(data)
        return orjson.dumps({"ok": len(taken) < 3} | ({} if len(taken) < 3 else {"error": "nobody asks"}))

    async def test() -> None:
        async with ground(nats, tmp_path) as made, made.gateway(), made.client("pi") as pi:
            await made.log.answer("http", passing.WHAT, http)
            await made.log.connection.flush()
            await pi.publish(answer(), "ann")
            await pi.publish(pack(TEXT, orjson.dumps(answer(part=1))), "ann", qos=0)
            await until(lambda: len(taken) == 2, "both")
            heads = [orjson.loads(data.partition(b"\n")[0]) for data in taken]
            assert heads == [{"tenant": "default", "client": "pi", "id": "q1"}] * 2
            assert [orjson.loads(data.partition(b"\n")[2])["fetched"]["part"] for data in taken] == [0, 1]
            await pi.publish(answer(), "ann")
            await until(lambda: told(pi) == ["nobody asks"], "the refusal")
            assert await made.requests() == []
            assert await made.messages() == []
            assert [await counted(made, what) for what in ("passed", "refused", "dropped")] == [2, 1, 0]

    run(test())


def test_without_http_an_answer_is_dropped_and_counted(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path) as made, made.gateway(), made.client("pi") as pi:
            await pi.publish(answer(), "ann")

            async def dropped() -> bool:
                return await counted(made, "dropped") == 1

            await until(dropped, "it to be dropped")
            for nothing in ("x", None, [], {"id": 7}, {"id": "y" * 300}):
                await pi.publish({"session": "s1", "fetched": nothing}, "ann")
            await until(lambda: len(told(pi)) == 5, "five refusals")
            assert await counted(made, "refused") == 5
            assert await made.requests() == []
            await pi.publish([{"source": "m1", "n": 1}])
            await until(pi.stored, "readings to go on")

    run(test())


@pytest.mark.parametrize("bound", ["MAX_UNDER_WAY_BYTES", "MAX_PER_SECOND"])
def test_more_than_there_is_room_for_is_dropped(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(passing, bound, {"MAX_UNDER_WAY_BYTES": 10_000, "MAX_PER_SECOND": 1}[bound])

    async def test() -> None:
        end = asyncio.Event()

        async def http(_: bytes) -> bytes:
            await end.wait()
            return orjson.dumps({"ok": True})

        async with ground(nats, tmp_path) as made, made.gateway(), made.client("pi") as pi:
            await made.log.answer("http", passing.WHAT, http)
            await made.log.connection.flush()
            for _ in range(5):
                await pi.publish(answer(), "ann")
            assert await counted(made, "dropped") >= 2
            end.set()

            async def settled() -> bool:
                return await counted(made, "passed") + await counted(made, "dropped") == 5

            await until(settled, "all of them")
            assert await counted(made, "passed") >= 1

    run(test())


def test_only_an_id_names_a_question() -> None:
    assert id_in({"fetched": {"id": "q1"}}) == "q1"
    for nothing in (None, [], "q1", {}, {"id": None}, {"id": 1}):
        assert id_in({"fetched": nothing}) is None
