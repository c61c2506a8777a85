"""Notifications reach their subscribers over MQTT: each at least once, whoever is killed, whoever is slow."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from delivery_kit import Bench, ForgetfulServer, Process, Subscriber, bench, match, until
from servers import MosquittoServer, NatsServer

from spinney_cloud.delivery_options import DEFAULT
from spinney_cloud.mqtt_backlog import MqttBacklog
from spinney_cloud.names import DEAD, NOTES, READERS, notes_subject
from spinney_cloud.nats_log import read_range
from spinney_cloud.notes import Note
from spinney_cloud.positions import Position
from spinney_cloud.service import Service

YEAR = 366 * 24 * 3600.0


def run(scenario: Coroutine[Any, Any, None], seconds: float = 60) -> None:
    asyncio.run(asyncio.wait_for(scenario, seconds))


@pytest.fixture(params=["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def mqtt(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MosquittoServer | None]:
    """The MQTT server beside nats-server; None: nats-server itself."""
    if request.param == "nats":
        yield None
    else:
        with MosquittoServer(tmp_path / "mosquitto") as server:
            yield server


def port(nats: NatsServer, mqtt: MosquittoServer | None) -> int:
    return mqtt.mqtt_port if mqtt else nats.mqtt_port


def numbered(owner: str, number: int, sid: str = "air") -> Note:
    return Note(owner, sid, "match", None, None, f"m7:1:{number}")


async def floor(on: Bench) -> int:
    entry = await on.log.bucket(READERS).get("delivery")
    return Position.decode(entry.value).floor if entry else 0


# ---- What goes where --------------------------------------------------------------------------------------------


def test_each_subscriber_gets_its_notifications_once_on_the_topic_of_the_subscription(
    tmp_path: Path, nats: NatsServer, mqtt: MosquittoServer | None
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats, mqtt) as on, on.delivery() as delivery:
            for owner, sid in (("ana", "air"), ("ana", "roads"), ("bob", "air")):
                await on.subscribe(owner, sid)
            ana, bob = [await Subscriber(port(nats, mqtt), owner).start() for owner in ("ana", "bob")]
            await on.tell(match("ana"), match("ana", "roads"), match("bob"))
            await until(lambda: len(ana.got) == 2 and len(bob.got) == 1)
            assert sorted(ana.topics) == ["spinney/ana/note/air", "spinney/ana/note/roads"]
            assert bob.topics == ["spinney/bob/note/air"]
            assert ana.qos + bob.qos == [1, 1, 1]
            assert {note["sid"]: note["also"] for note in ana.got} == {"air": ["roads"], "roads": ["air"]}
            assert bob.got[0]["publication"]["NO2"] == 57
            await until(lambda: delivery.status.delivered == 3)
            assert delivery.progress.open == 0
            await ana.close()
            await bob.close()

    run(scenario())


def test_a_subscribers_notifications_come_in_the_logs_order(
    tmp_path: Path, nats: NatsServer, mqtt: MosquittoServer | None
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats, mqtt) as on, on.delivery():
            await on.subscribe("ana")
            ana = await Subscriber(port(nats, mqtt), "ana").start()
            times = [time.time() + number / 1000 for number in range(1000)]
            for number, each in enumerate(times):
                await on.tell(match("ana", number=number), time=each)
            await until(lambda: len(ana.got) >= 1000)
            assert [note["time"] for note in ana.got] == times
            await ana.close()

    run(scenario())


def test_rate_limit_digest_and_qos_of_a_subscription_are_obeyed_also_when_it_is_new(
    tmp_path: Path, nats: NatsServer
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await on.tell(*(match("ana", "slow", number) for number in range(3)))
            await until(lambda: delivery.queues.held == 3)
            await on.subscribe("ana", "slow", max_per="1/500ms")
            await on.subscribe("ana", "daily", digest="300ms")
            await on.subscribe("ana", "loose", qos=0)
            await until(lambda: delivery.queues.knows(("default", "ana", "loose")))
            await on.tell(match("ana", "daily", 1), match("ana", "daily", 2), match("ana", "loose"))
            await until(lambda: Counter(note["sid"] for note in ana.got) == {"slow": 2, "daily": 1, "loose": 1})
            (digest,) = [note["digest"] for note in ana.got if "digest" in note]
            assert [note["sid"] for note in digest] == ["daily", "daily"]
            assert ana.qos[[note["sid"] for note in ana.got].index("loose")] == 0
            assert delivery.status.dropped == {"rate": 1}
            await until(lambda: delivery.progress.floor == 2)
            await ana.close()

    run(scenario())


def test_a_queue_that_is_smaller_than_a_burst_drops_nothing(tmp_path: Path, nats: NatsServer) -> None:
    """Delivery waits with reading: the bound is for what cannot go, not for what only has not gone yet."""

    async def scenario() -> None:
        limits = {"queue_count": 50, "in_flight": 10}
        async with bench(tmp_path, nats, delivery=limits) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await on.tell(*(match("ana", number=number) for number in range(1000)))
            await until(lambda: len(ana.got) == 1000)
            assert delivery.status.dropped == {}
            await ana.close()

    run(scenario())


# ---- Who is slow or away ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_dead_subscriber_among_a_thousand_delays_nobody(
    tmp_path: Path, nats: NatsServer, mqtt: MosquittoServer | None
) -> None:
    """One that never acknowledges and one that is offline, each with a backlog; then a round for all others."""

    async def scenario() -> None:
        count = 1000
        async with bench(tmp_path, nats, mqtt) as on, on.delivery() as delivery:
            where = port(nats, mqtt)
            mute = await Subscriber(where, "mute", acknowledge=False).start()
            away = await Subscriber(where, "away").start()
            await away.close()
            others = [Subscriber(where, f"s{number}") for number in range(count - 2)]
            for chunk in range(0, len(others), 50):
                await asyncio.gather(*(each.start() for each in others[chunk : chunk + 50]))
            for owner in ["mute", "away", *(each.owner for each in others)]:
                delivery.queues.set_options(("default", owner, "air"), DEFAULT, 0.0)
            for number in range(20):
                dead = [match(owner, number=each) for owner in ("mute", "away") for each in range(100)]
                living = [match(each.owner, number=number) for each in others[number * 10 : number * 10 + 10]]
                await on.tell(*dead, *living)
            await on.tell(*(match(each.owner, number=77) for each in others))
            began = time.monotonic()
            await until(lambda: all(each.got for each in others), 30)
            took = time.monotonic() - began
            await until(lambda: delivery.status.delivered == 20 * 210 + len(others), 30)
            assert delivery.status.dropped == {}
            assert delivery.progress.open == 0
            assert took < 15
            back = await Subscriber(where, "away").start()
            await until(lambda: len(set(back.ids())) == 100 and len(back.got) >= 2000)
            await asyncio.gather(*(each.close() for each in (*others, mute, back)))

    run(scenario(), 120)


def test_what_our_server_keeps_for_who_is_away_is_bounded_by_count(tmp_path: Path, nats: NatsServer) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats, delivery={"queue_count": 100}) as on:
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            bob = await Subscriber(nats.mqtt_port, "bob").start()
            gateway = await Subscriber(nats.mqtt_port, "gateway").start()
            await gateway.client.subscribe("spinney/+/pub")
            for each in (ana, bob, gateway):
                await each.close()
            async with on.delivery() as delivery:
                for owner in ("ana", "bob"):
                    await on.subscribe(owner)
                times = [time.time() + number / 1000 for number in range(150)]
                for number, each in enumerate(times):
                    await on.tell(match("ana", number=number), time=each)
                await on.tell(*(match("bob", number=number) for number in range(100)))
                client = delivery.client
                for _ in range(300):
                    await client.publish("spinney/ana/pub", b"{}")
                await client.drain()
                await until(lambda: delivery.status.delivered == 250)
                await delivery.backlog.look()
                assert delivery.backlog.messages == 250
                assert delivery.backlog.dropped == 50
                await delivery.backlog.look()
                assert (delivery.backlog.messages, delivery.backlog.dropped) == (200, 50)
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await until(lambda: len(ana.got) == 100)
            assert [note["time"] for note in ana.got] == times[50:]
            state = await on.log.connection.api(
                "STREAM.INFO.$MQTT_msgs", {"subjects_filter": "$MQTT.msgs.spinney.*.pub"}
            )
            assert state["state"]["subjects"] == {"$MQTT.msgs.spinney.ana.pub": 300}
            await ana.close()

    run(scenario())


def test_and_by_age(tmp_path: Path, nats: NatsServer) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats, delivery={"queue_age": 100.0}) as on:
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await ana.close()
            publisher = await Subscriber(nats.mqtt_port, "publisher").start()
            for _ in range(7):
                await publisher.client.publish("spinney/ana/note/air", b"1")
            await publisher.client.drain()
            later = 0.0
            backlog = MqttBacklog(
                Service("delivery", on.settings, on.endpoints), on.log, lambda: time.monotonic() + later
            )
            await backlog.look()
            assert (backlog.messages, backlog.dropped) == (7, 0)
            for _ in range(3):
                await publisher.client.publish("spinney/ana/note/air", b"2")
            await publisher.client.drain()
            later = 60.0
            await backlog.look()
            assert (backlog.messages, backlog.dropped) == (10, 0)
            later = 110.0
            await backlog.look()
            assert (backlog.messages, backlog.dropped) == (3, 7)
            later = 170.0
            await backlog.look()
            assert (backlog.messages, backlog.dropped) == (0, 10)
            await publisher.close()

    run(scenario())


@pytest.mark.parametrize("seconds", [-YEAR, YEAR])
def test_a_step_of_the_clock_drops_nothing_that_waits(
    tmp_path: Path, nats: NatsServer, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Neither what the server keeps for who is offline, nor what delivery reads then."""

    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await ana.close()
            real = time.time
            monkeypatch.setattr(time, "time", lambda: real() + seconds)
            for number in range(5):
                await on.tell(match("ana", number=number))
            await until(lambda: delivery.progress.last == 5 and delivery.progress.settled())
            await delivery.backlog.look()
            assert (delivery.backlog.messages, delivery.backlog.dropped) == (5, 0)
            back = await Subscriber(nats.mqtt_port, "ana").start()
            await until(lambda: len(back.got) == 5)
            await back.close()

    run(scenario())


# ---- What fails -------------------------------------------------------------------------------------------------


async def letters(on: Bench) -> list[dict[str, Any]]:
    last = (await on.log.state(DEAD)).last
    return [orjson.loads(one.data) async for batch in read_range(on.log, DEAD, 1, last) for one in batch]


def test_what_can_never_go_becomes_a_dead_letter_and_delays_nobody(tmp_path: Path, nats: NatsServer) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats, nats={"max_payload": 20_000}) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            await on.subscribe("bob")
            ana, bob = [await Subscriber(nats.mqtt_port, owner).start() for owner in ("ana", "bob")]
            await on.tell(match("ana", number=1), size=30_000)
            await on.tell(match("bob"), match("ana", number=2), Note("no/name", "air", "match", None, 0, "m7:1:1"))
            await until(lambda: len(bob.got) == 1 and len(ana.got) == 1)
            await until(lambda: delivery.progress.floor == 2)
            found = {letter["client"]: letter for letter in await letters(on)}
            assert set(found) == {"ana", "no/name"}
            assert "no topic" in found["no/name"]["reason"]
            assert "bytes" in found["ana"]["reason"]
            assert found["ana"]["payload"].startswith('{"id":')
            status = orjson.loads(
                await on.log.ask("delivery", "status", b'{"tenant":"default","owner":"ana","sid":"air"}')
            )
            assert status["ok"]
            assert status["queued"] == 0
            assert (status["dead"], status["delivered"]) == (1, 1)
            assert status["last_failure"]["reason"] == found["ana"]["reason"]
            assert status["last_delivered"]["id"] == ana.got[0]["id"]
            await ana.close()
            await bob.close()

    run(scenario())


def test_a_message_on_which_the_server_ends_the_connection_is_given_up_after_the_attempts(
    tmp_path: Path,
) -> None:
    async def scenario(nats: NatsServer, mqtt: NatsServer) -> None:
        async with bench(tmp_path, nats, mqtt, delivery={"attempts": 2}) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            ana = await Subscriber(mqtt.mqtt_port, "ana").start()
            await on.tell(match("ana", number=1), size=90_000)
            await on.tell(match("ana", number=2))
            await until(lambda: len(ana.got) == 1)
            (letter,) = await letters(on)
            assert letter["reason"] == "the MQTT server ends the connection; tried 2 times"
            await until(lambda: delivery.progress.floor == 2)
            assert delivery.sender.retried == 2
            assert ana.got[0]["publication"]["text"] == "x"
            await ana.close()

    with (
        NatsServer(tmp_path / "log") as nats,
        NatsServer(tmp_path / "mqtt", extra="max_payload: 50000") as mqtt,
    ):
        run(scenario(nats, mqtt))


@pytest.mark.slow
def test_a_message_that_is_never_acknowledged_is_tried_again_and_given_up_and_delays_nobody(
    tmp_path: Path, nats: NatsServer
) -> None:
    async def scenario() -> None:
        limits = {"attempts": 3, "retry": 0.3}
        async with ForgetfulServer(b"/note/lost") as mqtt, bench(tmp_path, nats, mqtt, delivery=limits) as on:
            await on.subscribe("ana", "lost")
            await on.subscribe("bob")
            async with on.delivery() as delivery:
                await on.tell(match("ana", "lost"))
                for number in range(100):
                    await on.tell(match("bob", number=number))
                await until(lambda: delivery.status.delivered == 100)
                assert delivery.status.dead == 0
                assert delivery.lag_seconds > 0.0
                assert b"spinney_delivery_lag_seconds" in await on.log.ask("delivery", "metrics")
                await until(lambda: delivery.status.dead == 1)
                assert delivery.progress.floor == 101
                assert orjson.loads(await on.log.ask("delivery", "health"))["lag_seconds"] == 0.0
                (letter,) = await letters(on)
                assert letter["reason"] == "no acknowledgement within 0.3 s; tried 3 times"
                assert sum(b"/note/lost" in packet for packet in mqtt.packets) == 3
                assert mqtt.connections == 3

    run(scenario())


@pytest.mark.slow
def test_while_the_mqtt_server_is_silent_or_away_nothing_is_lost_and_no_attempt_counted(tmp_path: Path) -> None:
    async def scenario(nats: NatsServer, mqtt: NatsServer) -> None:
        limits = {"attempts": 1, "retry": 0.1}
        async with bench(tmp_path, nats, mqtt, delivery=limits) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            ana = await Subscriber(mqtt.mqtt_port, "ana").start()
            await on.tell(match("ana", number=0))
            await until(lambda: len(ana.got) == 1)
            mqtt.pause()
            for number in range(1, 3000):
                await on.tell(match("ana", number=number))
            await until(lambda: delivery.sender.oldest_seconds > 0.6)
            mqtt.kill()
            await until(lambda: not delivery.health()["ready"])
            assert delivery.health()["why"] == "no connection to the MQTT server"
            await until(lambda: delivery.sender.oldest_seconds > 1.2)
            await asyncio.to_thread(mqtt.start)
            await until(lambda: len(set(ana.ids())) == 3000)
            assert (delivery.status.dead, delivery.sender.retried, delivery.status.dropped) == (0, 0, {})
            await until(lambda: delivery.health()["ready"])
            await ana.close()

    with NatsServer(tmp_path / "log") as nats, NatsServer(tmp_path / "mqtt") as mqtt:
        run(scenario(nats, mqtt))


def test_a_damaged_message_is_counted_and_the_next_one_delivered(tmp_path: Path, nats: NatsServer) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await on.writer.put(notes_subject("default"), b"rubbish")
            await on.tell(match("ana"))
            await until(lambda: len(ana.got) == 1)
            assert delivery.status.damaged == 1
            await until(lambda: delivery.progress.floor == 2)
            await ana.close()

    run(scenario())


# ---- Kills ------------------------------------------------------------------------------------------------------


def test_after_an_orderly_end_nothing_comes_twice(
    tmp_path: Path, nats: NatsServer, mqtt: MosquittoServer | None
) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats, mqtt) as on:
            await on.subscribe("ana")
            ana = await Subscriber(port(nats, mqtt), "ana").start()
            for life in range(2):
                async with on.delivery():
                    for number in range(100):
                        await on.tell(match("ana", number=100 * life + number))
                    await until(lambda life=life: len(ana.got) == 100 * (life + 1))
            assert len(set(ana.ids())) == 200
            assert await floor(on) == 200
            (tmp_path / "delivery.journal").unlink()
            async with on.delivery():
                await on.tell(match("ana", number=200))
                await until(lambda: len(ana.got) == 201)
            await ana.close()

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_killed_at_any_moment_it_loses_nothing_and_repeats_at_most_what_was_under_way(
    tmp_path: Path, nats: NatsServer, mqtt: MosquittoServer | None, rounds: int
) -> None:
    in_flight = 64
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)

    async def scenario() -> None:
        async with bench(tmp_path, nats, mqtt, delivery={"in_flight": in_flight}) as on:
            owners = [f"s{number}" for number in range(10)]
            subscribers = [await Subscriber(port(nats, mqtt), owner).start() for owner in owners]
            for owner in owners:
                await on.subscribe(owner)
            await on.subscribe("s0", digest="200ms")
            process = Process(on)
            owed = 0
            repeated = []
            await process.start()
            for _ in range(rounds):
                seen = sum(len(ids(each)) for each in subscribers)
                load = 4000
                for number in range(load):
                    await on.tell(numbered(owners[number % 10], owed + number))
                owed += load
                part = seen + chance.randrange(200, load // 2)
                await until(lambda part=part: sum(len(ids(each)) for each in subscribers) >= part)
                print(f"killed at {part - seen} of {load}")
                await process.end(signal.SIGKILL)
                before = sum(len(ids(each)) - len(set(ids(each))) for each in subscribers)
                await process.start()
                await until(lambda owed=owed: sum(len(set(ids(each))) for each in subscribers) >= owed)
                again = sum(len(ids(each)) - len(set(ids(each))) for each in subscribers)
                repeated.append(again - before)
            assert sum(len(set(ids(each))) for each in subscribers) == owed
            # A digest is one message under way, however much is in it.
            assert max(repeated) <= in_flight + load // 10
            plain = [ids(each) for each in subscribers[1:]]
            assert sum(len(each) - len(set(each)) for each in plain) <= in_flight * rounds
            assert await process.end(signal.SIGTERM) == 0
            assert await floor(on) == (await on.log.state(NOTES)).last
            await asyncio.gather(*(each.close() for each in subscribers))

    run(scenario(), 30 * rounds + 60)


def ids(subscriber: Subscriber) -> list[str]:
    """Of all notifications, those in digests too."""
    return [one["id"] for note in subscriber.got for one in note.get("digest", [note])]


@pytest.mark.slow
def test_it_goes_on_when_nats_server_is_killed_and_comes_back(tmp_path: Path, nats: NatsServer) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            for number in range(4000):
                await on.tell(numbered("ana", number))
                if number == 2000:
                    await until(lambda: len(ana.got) > 100)
                    await asyncio.to_thread(nats.kill)
                    await asyncio.to_thread(nats.start)
            await until(lambda: len(set(ana.ids())) == 4000, 40)
            assert delivery.status.dead == 0
            await until(lambda: delivery.progress.floor == delivery.progress.last)
            await ana.close()

    run(scenario())


# ---- Seen from outside ------------------------------------------------------------------------------------------


def test_metrics_and_health_are_answered(tmp_path: Path, nats: NatsServer) -> None:
    async def scenario() -> None:
        async with bench(tmp_path, nats) as on, on.delivery() as delivery:
            await on.subscribe("ana")
            await on.subscribe("ana", "few", max_per="1/h")
            ana = await Subscriber(nats.mqtt_port, "ana").start()
            await on.tell(match("ana"), *(match("ana", "few", number) for number in range(4)))
            await until(lambda: delivery.status.delivered == 2)
            metrics = (await on.log.ask("delivery", "metrics")).decode()
            for line in (
                "spinney_delivery_delivered_total 2.0",
                'spinney_delivery_dropped_total{reason="rate"} 2.0',
                "spinney_delivery_held 1.0",
                'spinney_delivery_seconds_bucket{le="+Inf"} 2.0',
                "spinney_delivery_dead_total 0.0",
            ):
                assert line in metrics.splitlines()
            health = orjson.loads(await on.log.ask("delivery", "health"))
            assert health["ready"]
            assert health["read"] == 1
            status = await on.log.ask("delivery", "status", b'{"tenant":"default","owner":"ana","sid":"few"}')
            told = orjson.loads(status)
            assert (told["queued"], told["delivered"], told["dropped"]) == (1, 1, {"rate": 2})
            await ana.close()

    run(scenario())
