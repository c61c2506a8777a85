"""The gateway with real servers: what is sent is stored, told and acknowledged, or refused, whatever happens."""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import orjson
import paho.mqtt.client as paho
import pyarrow as pa
import pytest
from gateway_kit import Client, GatewayProcess, Ground, ground, run, until
from servers import HOST, MosquittoServer, NatsServer

from spinney_cloud import gateway, mqtt_intake, names, post, way_out
from spinney_cloud.intake import Intake, Sender, Taken
from spinney_cloud.log_errors import AskError
from spinney_cloud.mqtt import MqttClient, Publish
from spinney_cloud.mqtt_intake import FILTERS
from spinney_cloud.nats_server import ACK_WAIT_SECONDS
from spinney_cloud.records import Publications, Unpublish
from spinney_cloud.replies import INTERVAL_SECONDS
from spinney_cloud.users import Role, Users


@pytest.fixture(params=["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def mqtt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MosquittoServer | None]:
    """The MQTT server, beside the log's server; None: they are one."""
    if request.param == "nats":
        yield None
    else:
        with MosquittoServer(tmp_path / "mosquitto") as server:
            yield server


def arrow(**columns: Any) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


SOON_SECONDS = 6.0
ENOUGH_BYTES = 4 * 1024**2
FORMS = {
    "an object": b'{"source":"m7","NO2":57}',
    "an array": b'[{"source":"m7","NO2":57}]',
    "SenML": b'[{"bn":"m7/","n":"NO2","v":57}]',
    "SenML in CBOR": cbor2.dumps([{-2: "m7/", 0: "NO2", 2: 57}]),
    "Arrow": arrow(source=["m7"], NO2=[57]),
    "an envelope": b'{"publications":[{"source":"m7","NO2":57}]}',
}


def test_each_form_of_payload_is_stored_and_told(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            for number, payload in enumerate(FORMS.values()):
                await kit.publish(payload)
                await until(lambda number=number: kit.stored().get("m7", (0, -1))[1] == number, "stored")
            rows = await made.rows()
            assert [(row["source"], row["NO2"]) for row in rows] == [("m7", 57)] * len(FORMS)
            (boot,) = {row["id"].split(":")[1] for row in rows}
            assert [row["id"] for row in rows] == [f"m7:{boot}:{number}" for number in range(len(FORMS))]

    run(test())


def test_http_stores_the_same(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway():
            for payload in FORMS.values():
                question = b'{"tenant":"default","client":"web"}\n' + payload
                answer = orjson.loads(await made.log.ask("gateway", "publish", question))
                assert answer["ok"]
                assert answer["ids"] == [row["id"] for row in (await made.rows())[-1:]]
                assert answer["stored"].keys() == {"m7"}
            answer = orjson.loads(await made.log.ask("gateway", "publish", b'{"tenant":"default","client":"web"}\n[7]'))
            assert [each["row"] for each in answer["refused"]] == [0]
            assert await made.metric("received_total") == len(FORMS)

    run(test())


def test_what_is_refused_is_told_counted_and_kept_and_the_rest_passes(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.gateway(), made.client() as kit:
            await kit.publish({"batch": "b1", "publications": [{"id": "m7:1:1"}, {"id": "m7:1:2", "NO2": []}]})
            refused = await kit.hears("refused")
            assert refused["batch"] == "b1"
            assert [(each["row"], each["id"]) for each in refused["refused"]] == [(1, "m7:1:2")]
            assert "NO2" in refused["refused"][0]["reason"]
            assert await kit.hears("stored") == {"stored": {"m7": [1, 1]}, "batch": "b1"}
            assert [row["id"] for row in await made.rows()] == ["m7:1:1"]
            (letter,) = await until(made.dead, "a dead letter")
            assert (letter["client"], letter["topic"], letter["refused"]) == ("kit", "spinney/kit/pub", 1)
            assert letter["reasons"] == refused["refused"]
            assert orjson.loads(letter["payload"])["batch"] == "b1"
            assert await made.metric('refused_total{kind="row"}') == 1

    run(test())


def test_the_first_reply_says_how_large_a_payload_may_be_and_so_does_a_refusal_for_its_size(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test() -> None:
        async with (
            ground(nats, tmp_path / "data", limits={"payload": 4096}) as made,
            made.gateway(),
            made.client() as kit,
        ):
            await kit.publish(b"{}")
            assert (await kit.hears("stored"))["max_payload"] == 4096
            await kit.publish(b'{"source": 7}')
            assert "max_payload" not in await kit.hears("refused")
            kit.told.clear()
            await kit.publish(b'{"NO2":"%s"}' % (b"x" * 4096))
            assert (await kit.hears("refused"))["max_payload"] == 4096
            assert "4096" in kit.told[-1]["refused"][0]["reason"]

    run(test())


def test_requests_go_to_the_coordinators_stream_unread(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.gateway(), made.client() as kit:
            await kit.publish(b"NO2 > 40", "sub", "s1")
            await kit.publish(b"", "sub", "s1")
            await kit.publish(b"\xff\x00", "ann")

            async def all_there() -> Any:
                return len(found := await made.requests()) == 3 and found

            found = await until(all_there, "three requests")
            assert {subject for subject, _ in found} == {names.request_subject("kit")}
            items = [item for _, item in found]
            subs = [item for item in items if item["leaf"] == "sub"]
            assert [(item["sid"], item["payload"]) for item in subs] == [("s1", "NO2 > 40"), ("s1", "")]
            (ann,) = [item for item in items if item["leaf"] == "ann"]
            assert (ann["payload"], ann["payload_b64"], ann["sid"]) == (None, "/wA=", None)
            assert {(item["v"], item["client"], item["tenant"]) for item in items} == {(1, "kit", "default")}

    run(test())


def test_an_unpublish_is_a_record_after_what_came_before(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            await kit.publish({"id": "m7:1:1"})
            await kit.hears("stored")
            await kit.publish({"id": "m7:1:1"}, "unpub")
            assert await kit.hears("request") == {"request": "unpub", "id": "m7:1:1", "ok": True}
            answer = await made.log.ask("gateway", "unpublish", b'{"tenant":"t","client":"web","id":"m8:1:2"}')
            assert orjson.loads(answer) == {"ok": True, "id": "m8:1:2"}
            found = await made.records()
            assert isinstance(found[0], Publications)
            assert found[1:] == [Unpublish("default", "kit", "m7:1:1"), Unpublish("t", "web", "m8:1:2")]
            kit.told.clear()
            await kit.publish(b"7", "unpub")
            told = await kit.hears("request")
            assert (told["request"], told["ok"]) == ("unpub", False)
            answer = await made.log.ask("gateway", "unpublish", b'{"tenant":"t","client":"web","id":"m8"}')
            assert orjson.loads(answer)["status"] == 422

    run(test())


def test_only_its_owner_publishes_and_unpublishes_a_source(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made:
            bucket = made.log.bucket(names.ACTIVATIONS)
            await bucket.put("default.van", orjson.dumps({"leases": {"m8": 5}}))
            async with made.gateway(), made.client("kit") as kit, made.client("van") as van:
                await kit.publish({"id": "m8:1:1"})
                assert "van" in (await kit.hears("refused"))["refused"][0]["reason"]
                await kit.publish({"id": "m8:1:1"}, "unpub")
                told = await kit.hears("request")
                assert "van" in told["error"]["message"]
                assert (told["id"], told["ok"]) == ("m8:1:1", False)
                await van.publish({"publications": [{"id": "m8:1:1"}], "epochs": {"m8": 5}})
                await van.hears("stored")
                await bucket.put("default.kit", orjson.dumps({"leases": {"m8": 6}}))  # at no time nobody owns it
                await bucket.put("default.van", orjson.dumps({"leases": {}}))

                async def is_owner() -> bool:
                    await kit.publish({"id": "m8:1:2"})
                    return "m8" in kit.stored()

                await until(is_owner, "the lease to be known")
                await van.publish({"publications": [{"id": "m8:1:3"}], "epochs": {"m8": 5}})
                assert "kit" in (await van.hears("refused"))["refused"][0]["reason"]
                (first, *others) = [record for record in await made.records() if isinstance(record, Publications)]
                assert (first.runs[0].client, first.runs[0].epoch) == ("van", 5)
                assert {(run.client, run.epoch) for record in others for run in record.runs} == {("kit", 6)}

    run(test())


def test_clients_are_their_tenants_from_the_moment_they_are_added(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        data = tmp_path / "data"
        async with ground(nats, data) as made:
            users = Users().add("kit", Role.PUBLISHER, "north", "secret")
            users.save(data)
            async with made.gateway(), made.client("kit") as kit, made.client("van") as van:
                await kit.publish({"id": "m7:1:1"})
                await kit.hears("stored")
                await van.publish({"id": "m7:1:1"})
                assert "no user" in (await van.hears("refused"))["refused"][0]["reason"]
                users.add("van", Role.PUBLISHER, "south", "secret").save(data)
                await van.publish({"id": "m7:1:1"})
                await van.hears("stored")
                assert [message.subject for message in await made.messages()] == [
                    names.log_subject("publications", "north"),
                    names.log_subject("publications", "south"),
                ]

    run(test())


def test_damaged_users_are_told_once_however_often_they_are_looked_at(
    nats: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        data = tmp_path / "data"
        async with ground(nats, data) as made:
            Users().add("kit", Role.PUBLISHER, "north", "secret").save(data)
            async with made.gateway(), made.client("van") as van:
                (data / "users.json").write_text("{")
                for number in range(4):  # each time somebody is looked for, and so is the file
                    await van.publish({"id": f"m7:1:{number}"})
                await until(lambda: len(van.told) >= 4, "four refusals")
                assert caplog.text.count("the users stay as they were") == 1

    run(test())


def test_a_retained_copy_and_a_strange_client_are_refused(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.client() as kit:
            await kit.publish({"NO2": 1}, retain=True)
            async with made.gateway():
                assert "retain" in (await kit.hears("refused"))["refused"][0]["reason"]
                await (await kit.mqtt.publish("spinney/k.t/pub" if mqtt else "spinney/k~t/pub", b"{}"))

                async def both() -> Any:
                    return len(found := await made.dead()) == 2 and found

                letters = await until(both, "two dead letters")
                assert [letter["client"] for letter in letters] == ["kit", "_unknown"]
                assert await made.rows() == []

    run(test())


def test_the_way_out_reaches_a_clients_topics_and_no_others(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.gateway(), made.client() as kit:
            await made.log.out("kit", "act", b'{"epoch":1}')
            await until(lambda: kit.acts == [b'{"epoch":1}'], "the activation")
            await made.log.out("kit", "reply", b'{"request":"sub"}')
            await kit.hears("request")
            for client, leaf in (("kit", "note"), ("kit", "pub"), ("k~t", "act")):
                with pytest.raises(AskError):
                    await made.log.out(client, leaf, b"", timeout_seconds=0.01)

    run(test())


def test_more_than_the_way_out_has_room_for_goes_out_soon_and_once(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None waits for its sender to give it up as lost."""
    monkeypatch.setattr(way_out, "MAX_WAITING", 50)
    monkeypatch.setattr(post, "ANSWER_SECONDS", 3600.0)
    monkeypatch.setattr(post, "MAX_TOGETHER", 1)
    count = 3 * post.MAX_UNDER_WAY

    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.gateway(), made.client() as kit:
            letters = post.Post(made.log.connection)
            await letters.start()
            sent = [await letters.send("kit", "act", b"%d" % number) for number in range(count)]
            assert all(await asyncio.gather(*sent))
            await until(lambda: len(kit.acts) == count, "all of them")
            assert sorted(map(int, kit.acts)) == list(range(count))
            assert letters.resent
            await letters.close()

    run(test())


def test_what_is_sent_at_once_goes_together_and_each_message_arrives_once_in_order(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    """Small ones of one turn to one topic are one request; a large one goes alone, and none overtakes another."""

    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.gateway(), made.client() as kit:
            letters = post.Post(made.log.connection)
            await letters.start()
            requests = 0

            def count(*_: object) -> None:
                nonlocal requests
                requests += 1

            await made.log.connection.listen(names.OUT, count)
            payloads = [b"%d" % number * (post.SMALL_BYTES if number == 150 else 1) for number in range(200)]
            sent = [await letters.send("kit", "act", payload) for payload in payloads]
            assert all(await asyncio.gather(*sent))
            await until(lambda: len(kit.acts) == len(payloads), "all of them")
            assert kit.acts == payloads
            assert requests == 5  # 64, 64 and 22, the large one, 49
            await letters.close()

    run(test())


def test_a_request_out_whose_sizes_are_not_its_datas_is_refused(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.gateway():
            where = names.out_subject("kit", "act")
            for sizes in ("1 2", "x", "4 -1"):
                answer = await made.log.connection.request(where, b"ab", headers={"Spinney-Sizes": sizes}, timeout=10)
                assert (answer.headers or {}).get("Spinney-Error") == "1"

    run(test())


# ---- order, back pressure, and nothing lost


def test_nothing_is_told_or_acknowledged_before_the_log_has_it(
    nats: NatsServer, mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    async def test() -> None:
        async with (
            ground(nats, tmp_path / "data", mqtt=mosquitto) as made,
            made.gateway() as service,
            made.client() as kit,
        ):
            await kit.publish({"id": "m7:1:0"})
            await kit.hears("stored")
            kit.told.clear()
            nats.pause()
            for number in range(1, 6):
                await kit.publish({"id": f"m7:1:{number}"})
            pending = "spinney_gateway_pending"
            await until(lambda: service.metrics.get_sample_value(pending) == 5, "five messages that are pending")
            assert kit.told == []
            nats.resume()
            await until(lambda: kit.stored() == {"m7": (1, 5)}, "stored")
            assert [row["id"] for row in await made.rows()] == [f"m7:1:{number}" for number in range(6)]
            assert service.metrics.get_sample_value(pending) == 0

    run(test())


async def send(client: Client, source: str, count: int, *, batch: int = 1, pace: int = 0, first: int = 0) -> None:
    """Numbered publications in their order, each message with a name, as quickly as the MQTT server takes them.

    With `pace` it waits after so many until the server has them all.
    """
    for start in range(first, first + count, batch):
        rows = [{"id": f"{source}:1:{number}", "n": number} for number in range(start, start + batch)]
        payload = orjson.dumps({"batch": f"{source}-{start}", "publications": rows})
        await client.mqtt.publish(names.topic(client.name, "pub"), payload)
        if pace and start % pace == 0:
            await client.mqtt.drain()
    await client.mqtt.drain()


def test_publications_and_requests_at_once_are_all_heard_soon(nats: NatsServer, tmp_path: Path) -> None:
    """nats-server holds some back for its `ack_wait` (10 s here) if one session has filters for both."""

    async def test() -> None:
        async with ground(nats, tmp_path) as made, made.gateway(), made.client("kit") as kit, made.client("ana") as ana:
            sending = asyncio.create_task(send(kit, "kit", 2000))
            for number in range(2000):
                await ana.mqtt.publish(names.topic("ana", "sub", f"s{number}"), b"NO2 > 40")
            await sending
            await ana.mqtt.drain()
            async with asyncio.timeout(SOON_SECONDS):
                await until(lambda: len(kit.stored_batches()) == 2000, "all publications to be stored")
                while len(await made.requests()) < 2000:
                    await asyncio.sleep(0.05)

    run(test())


async def check_order_and_loss(made: Ground, sources: dict[str, int]) -> None:
    """Each source's publications are in the log, and their first occurrences in the order in which they were sent."""
    seen: dict[str, list[int]] = {source: [] for source in sources}
    for row in await made.rows():
        if row["n"] not in seen[row["source"]]:
            seen[row["source"]].append(row["n"])
    assert seen == {source: list(range(count)) for source, count in sources.items()}


@pytest.mark.slow
def test_no_publication_is_lost_or_out_of_order_when_the_logs_server_is_killed(
    nats: NatsServer, mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    async def test() -> None:
        async with (
            ground(nats, tmp_path / "data", mqtt=mosquitto) as made,
            made.gateway(),
            made.client("kit") as kit,
            made.client("van") as van,
        ):
            sending = [asyncio.create_task(send(each, each.name, 1500, pace=10)) for each in (kit, van)]
            for stored in (200, 600):
                await until(lambda stored=stored: kit.stored().get("kit", (0, 0))[1] > stored, "some progress")
                nats.kill()
                await asyncio.to_thread(nats.start)
            await asyncio.gather(*sending)
            await until(lambda: len(kit.stored_batches()) == len(van.stored_batches()) == 1500, "all to be stored")
            await until(lambda: made.log.connected, "the log's server")
            await check_order_and_loss(made, {"kit": 1500, "van": 1500})

    run(test())


@pytest.mark.slow
def test_what_was_acknowledged_is_in_the_log_though_the_gateway_is_killed_again_and_again(
    nats: NatsServer, tmp_path: Path
) -> None:
    async def test() -> None:
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        async with ground(nats, tmp_path / "data") as made, made.client("kit") as kit:
            process = GatewayProcess(made, tmp_path)
            await process.start()
            sending = asyncio.create_task(send(kit, "kit", 3000, pace=10))
            try:
                for _ in range(4):
                    goal = kit.stored().get("kit", (0, 0))[1] + chance.randrange(1, 400)
                    await until(
                        lambda goal=goal: kit.stored().get("kit", (0, 0))[1] >= min(goal, 2999), "some progress"
                    )
                    await process.kill()
                    await process.start()
                await sending

                async def all_there() -> bool:
                    return len({row["n"] for row in await made.rows()}) == 3000

                await until(all_there, "all in the log")
                await check_order_and_loss(made, {"kit": 3000})
                assert await process.stop() == 0
            finally:
                await process.kill()

    run(test())


def test_what_is_sent_while_the_gateway_is_away_is_stored_when_it_is_back(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.client() as kit:
            async with made.gateway():
                pass
            await send(kit, "kit", 50)
            async with made.gateway():
                await until(lambda: len(kit.stored_batches()) == 50, "all to be stored")
            await check_order_and_loss(made, {"kit": 50})

    run(test())


def test_what_a_killed_gateway_left_unacknowledged_comes_at_once_and_before_what_is_newer(
    nats: NatsServer, mqtt: MosquittoServer | None, tmp_path: Path
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mqtt) as made, made.client() as kit:
            left: list[Publish] = []
            killed = MqttClient(HOST, made.endpoints.mqtt_port, "secret-gateway-0", on_message=left.append)
            await killed.start()
            await killed.subscribe(FILTERS if mqtt else FILTERS[:1])
            await send(kit, "kit", 20)
            await until(lambda: len(left) == 20, "messages to be left unacknowledged")
            await killed.close()
            await send(kit, "kit", 20, first=20)
            async with made.gateway():
                began = asyncio.get_running_loop().time()
                await until(lambda: len(kit.stored_batches()) == 40, "all to be stored")
                assert asyncio.get_running_loop().time() - began < ACK_WAIT_SECONDS / 2, "they waited for ack_wait"
            assert [row["n"] for row in await made.rows()] == list(range(40))

    run(test())


def test_a_full_log_holds_everything_back_and_goes_on_by_itself(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        small = {"max_bytes": 256 * 1024, "keeper_interval": 3600}
        async with ground(nats, tmp_path / "data", log=small) as made, made.gateway(), made.client() as kit:
            big = "x" * 20_000
            sending = asyncio.create_task(fill(kit, big, 40))

            async def is_full() -> bool:
                return "log takes nothing" in (await made.health()).get("why", "")

            await until(is_full, "the log to be full")
            there = len(await made.rows())
            assert there < 40
            assert len(kit.stored_batches()) <= there
            assert not [told for told in kit.told if "refused" in told]

            async def make_room() -> bool:
                if "why" in made.service.health():
                    await made.log.purge(names.LOG, (await made.log.state(names.LOG)).last)
                return len(kit.stored_batches()) == 40

            await until(make_room, "all to be stored")
            await sending
            assert await made.health() == {"ready": True, "holds": []}

    async def fill(kit: Client, text: str, count: int) -> None:
        for number in range(count):
            row = {"id": f"m7:1:{number}", "text": text}
            await kit.publish({"batch": number, "publications": [row]})

    run(test())


def test_a_flood_of_requests_that_say_nothing_takes_no_more_memory_than_it_may(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While their stream takes none. What is read at one time may come on top."""
    monkeypatch.setattr(mqtt_intake, "MAX_PENDING_BYTES", ENOUGH_BYTES)

    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            config = (await made.log.connection.api(f"STREAM.INFO.{names.REQUESTS}"))["config"]
            await made.log.connection.api(f"STREAM.UPDATE.{names.REQUESTS}", {**config, "max_bytes": 1})
            for number in range(20_000):
                await kit.mqtt.publish(names.topic("kit", "sub", f"s{number % 10}"), b"", qos=0)
            await kit.publish({}, "unpub")  # the server has all of them by then
            await until(lambda: is_full(made), "no more to be read")
            for _turn in range(100):  # in which all would be read
                held = await made.metric("pending_bytes")
            assert held < 12 * ENOUGH_BYTES
            await made.log.connection.api(f"STREAM.UPDATE.{names.REQUESTS}", config)
            await until(lambda: is_read(made), "all of it")

    async def is_full(made: Ground) -> bool:
        return await made.metric("pending_bytes") > ENOUGH_BYTES

    async def is_read(made: Ground) -> bool:
        return await made.metric('messages_total{leaf="sub"}') == 20_000 and await made.metric("pending") == 0

    run(test())


def test_a_poisonous_message_delays_the_next_by_less_than_a_second(
    nats: NatsServer, mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    async def test() -> None:
        async with (
            ground(nats, tmp_path / "data", mqtt=mosquitto) as made,
            made.gateway(),
            made.client("bad", max_payload_bytes=30_000_000) as bad,
            made.client() as kit,
        ):
            poison = [b"x" * 20_000_000, b"[" * 900_000, b"\x81" * 900_000, b'{"a":' * 150_000, b"\xff" * 500_000]
            for number, payload in enumerate(poison):
                began = time.process_time()  # the gateway's, too: it is here
                await bad.publish(payload)
                await kit.publish({"id": f"m7:1:{number}"})
                await until(lambda number=number: kit.stored().get("m7") == (1, number), "the next to be stored")
                assert time.process_time() - began < 1.0 or number == 0  # 20 MB take their time on the way
            await until(lambda: len([told for told in bad.told if "refused" in told]) == len(poison), "refusals")

    run(test())


def test_a_record_that_the_log_can_never_take_is_refused_and_acknowledged(tmp_path: Path) -> None:
    async def test() -> None:
        with NatsServer(tmp_path / "nats", extra="") as nats:
            conf = nats.folder / "nats.conf"
            conf.write_text(conf.read_text().replace("max_payload: 4MB", "max_payload: 256KB"))
            nats.restart()
            with MosquittoServer(tmp_path / "mosquitto") as mosquitto:
                async with (
                    ground(nats, tmp_path / "data", mqtt=mosquitto) as made,
                    made.gateway() as service,
                    made.client() as kit,
                ):
                    await kit.publish({"batch": "b1", "publications": [{"id": "m7:1:1", "a": "x" * 250_000}]})
                    refused = await kit.hears("refused")
                    assert refused["batch"] == "b1"
                    assert "log does not take it" in refused["refused"][0]["reason"]
                    rows = [{"id": f"m7:1:{number}", "a": "x" * 90_000} for number in range(2, 10)]
                    await kit.publish({"batch": "b2", "publications": rows})
                    await until(lambda: "b2" in kit.stored_batches(), "a batch that only fits in several records")
                    assert [row["id"] for row in await made.rows()] == [row["id"] for row in rows]
                    assert service.metrics.get_sample_value("spinney_gateway_pending") == 0
                    (letter,) = await until(made.dead, "a dead letter")
                    assert (letter["size"] > 250_000, len(letter["digest"])) == (True, 32)

    run(test())


class Broken(Intake):
    """An intake with a mistake of ours."""

    def take(self, sender: Sender, payload: bytes, received: float) -> Taken:
        if b"poison" in payload:
            raise ZeroDivisionError(payload[:10])
        return super().take(sender, payload, received)


def test_a_payload_that_we_stumble_over_is_refused_and_the_next_is_stored(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            await kit.publish(b"poison")
            await kit.publish({"id": "m7:1:1"})
            assert "ZeroDivisionError" in (await kit.hears("refused"))["refused"][0]["reason"]
            await kit.hears("stored")
            assert await made.metric('refused_total{kind="broken"}') == 1

    monkeypatch.setattr(gateway, "Intake", Broken)
    run(test())


def test_a_gateway_that_is_stopped_stores_what_it_took_and_tells_it(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.client() as kit:
            async with made.gateway():
                sending = asyncio.create_task(send(kit, "kit", 1000))
                await kit.hears("stored")
            await sending
            stored = len(await made.rows())
            await until(lambda: len(kit.stored_batches()) == stored, "all that is stored to be told")
            async with made.gateway():
                await until(lambda: len(kit.stored_batches()) == 1000, "the rest")
            assert len(await made.rows()) == 1000, "none is stored twice"

    run(test())


def test_a_client_that_is_too_quick_is_told_to_send_again(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", limits={"rate": 1}) as made, made.gateway(), made.client() as kit:
            await send(kit, "kit", 20, batch=5)
            assert "rate" in (await kit.hears("busy"))["busy"]
            await until(lambda: len(kit.told) >= 3, "replies")
            assert kit.stored_batches() == {"kit-0", "kit-5"}
            assert {told["batch"] for told in kit.told if "busy" in told} == {"kit-10", "kit-15"}
            assert await made.metric('busy_total{kind="rate"}') == 2
            async with made.client("van") as van:
                await send(van, "van", 5)
                await van.hears("stored")

    run(test())


def test_what_is_stored_is_told_together_to_a_client_that_sends_quickly(nats: NatsServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data") as made, made.gateway(), made.client() as kit:
            await send(kit, "kit", 2000)
            await until(lambda: len(kit.stored_batches()) == 2000, "all to be stored")
            assert kit.stored() == {"kit": (1, 1999)}
            assert len(kit.told) < 500
            numbers = [told["stored"]["kit"][1] for told in kit.told if "kit" in told.get("stored", {})]
            assert numbers == sorted(numbers)
            assert len(await made.messages()) < 2000, "small messages share records"
            kit.told.clear()
            began = asyncio.get_running_loop().time()
            await send(kit, "van", 100, pace=1)
            await until(lambda: len(kit.stored_batches()) == 100, "all to be stored")
            passed = asyncio.get_running_loop().time() - began
            assert len(kit.told) <= passed / INTERVAL_SECONDS + 2

    run(test())


# ---- MQTT 5


class Mqtt5:
    """A client that speaks MQTT 5."""

    def __init__(self, port: int) -> None:
        self.code: Any = None
        self.told: list[dict[str, Any]] = []
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2, "five", protocol=paho.MQTTv5)
        self.client.on_connect = self._connected
        self.client.on_disconnect = self._disconnected
        self.client.on_message = lambda _client, _data, message: self.told.append(orjson.loads(message.payload))
        self.client.connect(HOST, port)
        self.client.loop_start()

    def _connected(self, client: Any, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        self.code = code
        if not code.is_failure:
            client.subscribe("spinney/five/reply", 1)
            client.publish("spinney/five/pub", b'{"NO2":57}', 1)

    def _disconnected(self, _client: Any, _data: Any, _flags: Any, code: Any, _properties: Any) -> None:
        self.code = self.code or code

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_a_client_of_mqtt_5_comes_in_by_mosquitto(nats: NatsServer, mosquitto: MosquittoServer, tmp_path: Path) -> None:
    async def test() -> None:
        async with ground(nats, tmp_path / "data", mqtt=mosquitto) as made, made.gateway():
            five = await asyncio.to_thread(Mqtt5, mosquitto.mqtt_port)
            try:
                await until(lambda: [told for told in five.told if "stored" in told], "stored")
                assert [row["NO2"] for row in await made.rows()] == [57]
            finally:
                await asyncio.to_thread(five.close)

    run(test())


def test_nats_server_refuses_mqtt_5(nats: NatsServer) -> None:
    async def test() -> None:
        five = await asyncio.to_thread(Mqtt5, nats.mqtt_port)
        try:
            await until(lambda: five.code is not None, "an answer")
            assert five.code.is_failure
        finally:
            await asyncio.to_thread(five.close)

    run(test())
