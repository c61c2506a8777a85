"""The packed format at the gateway: named to mobile brokers in each session, read, and written to who writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
from gateway_kit import Ground, ground, run, until
from servers import NatsServer

from spinney import packed
from spinney_cloud.payloads.packed import MAX_EACH

ANNOUNCEMENT: dict[str, Any] = {"sources": [{"name": "m7", "attributes": {"NO2": {"type": "number"}}}], "lease": ["m7"]}


def announcement(session: str) -> bytes:
    return orjson.dumps({**ANNOUNCEMENT, "session": session})


def rows(number: int) -> bytes:
    row = {"id": f"m7:1:{number}", "source": "m7", "NO2": number / 10}
    return packed.write_rows(packed.Contents([row], name=f"b-{number}"))


def batch(number: int, **how: Any) -> bytes:
    return packed.pack(packed.BATCH, rows(number), **how)


async def requests(made: Ground) -> list[dict[str, Any]]:
    return [request for _, request in await made.requests()]


async def there(made: Ground, count: int) -> None:
    async def all_there() -> bool:
        return len(await requests(made)) == count

    await until(all_there, f"{count} requests")


def test_each_session_of_a_mobile_broker_hears_which_formats_there_are(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            for number, session in enumerate(["s-1", "s-1", "s-2"]):
                await kit.publish(announcement(session), "ann")
                await there(made, number + 1)
                await kit.publish({"source": "m7", "NO2": number})
                await until(lambda number=number: kit.stored().get("m7", (0, -1))[1] == number, "stored")
            greetings = [told for told in kit.told if "max_payload" in told]
            assert [told["formats"] for told in greetings] == [[packed.FORMAT]] * 2

    run(test())


def test_an_announcement_reaches_the_coordinator_as_json_however_it_came(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            text = announcement("s-1")
            await kit.publish(text, "ann")
            await kit.publish(packed.pack(packed.TEXT, text), "ann")
            await kit.publish(packed.pack(packed.TEXT, text)[:-3], "ann")
            told = await kit.hears("request")
            assert (told["request"], told["ok"]) == ("ann", False)
            assert told["error"]["message"].startswith("packed: ")
            assert [request["payload"] for request in await requests(made)] == [text.decode()] * 2
            dead = await until(made.dead, "a dead letter")
            assert [letter["topic"] for letter in dead] == ["spinney/kit/ann"]

    run(test())


def test_activations_are_packed_for_those_whose_last_announcement_was(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        act = orjson.dumps({"epoch": 1, "full": True, "add": [], "drop": [], "leases": []})
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            forms = [announcement("s-1"), packed.pack(packed.TEXT, announcement("s-1")), announcement("s-2")]
            for number, form in enumerate(forms):
                await kit.publish(form, "ann")
                await made.log.out("kit", "act", act)
                await until(lambda number=number: len(kit.acts) > number, "an activation")
            assert [packed.is_packed(each) for each in kit.acts] == [False, True, False]
            assert packed.unpack(kit.acts[1]).data == act
            assert await made.metric("packed_out") == 1.0

    run(test())


def test_packed_batches_are_stored_at_either_qos_and_told_by_their_names(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            earlier = None
            for number in range(1, MAX_EACH + 3):
                await kit.mqtt.publish("spinney/kit/pub", batch(number, earlier=earlier, keep=True), qos=number % 2)
                await until(lambda number=number: f"b-{number}" in kit.stored_batches(), "stored")
                earlier = rows(number)
            assert kit.stored() == {}
            assert [row["NO2"] for row in await made.rows()] == [number / 10 for number in range(1, MAX_EACH + 3)]
            assert await made.metric("kept_bytes") > 0

    run(test())


def test_what_refers_to_what_another_gateway_kept_must_come_again(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.client() as kit:
            async with made.gateway():
                await kit.publish(batch(1, keep=True))
                await until(kit.stored_batches, "stored")
            kit.told.clear()
            async with made.gateway():
                await kit.publish(batch(2, earlier=rows(1)))
                told = await kit.hears("busy")
                assert told["busy"].startswith("dictionary:")
                assert told["formats"] == [packed.FORMAT]
                await kit.publish(batch(2))
                await until(lambda: "b-2" in kit.stored_batches(), "stored")
                assert await made.dead() == []
            assert [row["id"] for row in await made.rows()] == ["m7:1:1", "m7:1:2"]

    run(test())
