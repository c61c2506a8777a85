"""The uplink against the real cloud, on its own nats-server and on mosquitto: nothing lost, nothing sent for ever."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from clouds import Cloud
from fault_kit import Wire
from servers import MosquittoServer, NatsServer, free_ports
from stand_in import StandIn
from uplink_kit import REAL, Edge, body, fixed_cloud, run, until

from spinney import Label, Mark, Subscriber
from spinney_mobile import uplink as uplink_module
from spinney_mobile.outbox import OutRecord

Found = list[Any]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests that leave it as it is: each has brokers and sources of its own. A lease is over at once."""
    data = tmp_path_factory.mktemp("cloud") / "data"
    with Cloud(data, "--coordinator-away-grace", "0.2s", program=REAL).start() as cloud:
        yield cloud


@contextmanager
def hearing(port: int, text: str, name: str) -> Iterator[Found]:
    """All notifications of a subscription, also of times without a link."""
    found: Found = []
    with Subscriber(name, server=f"mqtt://127.0.0.1:{port}", session="kept") as subscriber:
        handle = subscriber.subscribe(text, sid="s", callback=found.append)
        yield found
        handle.unsubscribe()


def numbers(found: Found) -> list[int]:
    return [int(each.publication["n"]) for each in found]


async def begun(edge: Edge, *sources: str) -> None:
    """Announced, told what is active, and the owner of its sources."""
    edge.uplink.announce(body(*sources))
    edge.uplink.want(sources)
    await edge.owns(*sources)


def brokers(cloud: Cloud) -> dict[str, dict[str, Any]]:
    """As the cloud shows them."""
    with urllib.request.urlopen(f"{cloud.addresses()['HTTP']}/v1/brokers", timeout=60) as answer:
        return {one["broker"]: one for one in json.load(answer)["brokers"]}


def test_what_is_appended_is_stored_in_order_and_leaves(cloud: Cloud, tmp_path: Path) -> None:
    async def scenario() -> None:
        with hearing(cloud.port("MQTT"), "source = 'a1'", "ana") as found:
            async with Edge(tmp_path, "a", cloud.port("MQTT")) as edge:
                await begun(edge, "a1")
                await until(lambda: edge.active, "an activation")
                for number in range(300):
                    edge.send(number, "a1")
                await edge.drained()
                await until(lambda: len(found) >= 300, "all notifications")
                assert numbers(found) == list(range(300))
                assert edge.uplink.counts.stored == 300
                assert edge.uplink.counts.refused == edge.uplink.counts.resent == 0
                status = edge.uplink.status()
                assert (status.connected, status.epoch, status.error) == (True, edge.activations.have, None)

    run(scenario())


def test_what_a_local_publisher_withdraws_is_withdrawn_at_the_cloud_whatever_ends_in_between(
    cloud: Cloud, tmp_path: Path
) -> None:
    async def scenario() -> None:
        port = cloud.port("MQTT")
        edge = await Edge(tmp_path, "w", port).start()
        await begun(edge, "w1")
        edge.send(1, "w1", valid_for=3600)
        edge.send(2, "w1", valid_for=3600)
        await edge.drained()
        await edge.kill()
        edge = await Edge(tmp_path, "w", port).start()
        edge.uplink.unpublish("w1:1:1")
        await edge.kill()
        async with Edge(tmp_path, "w", port) as edge:
            await until(lambda: not any(key.startswith("unpub:") for key in edge.outbox.state()), "the cloud's answer")
            with hearing(port, "source = 'w1'", "wim") as found:
                await begun(edge, "w1")
                edge.send(3, "w1")
                await until(lambda: len(found) >= 2, "what is valid, and what is new")
                assert numbers(found) == [2, 3]

    run(scenario())


def test_leases_end_while_it_is_away_and_what_waited_goes_up_under_the_new_ones(cloud: Cloud, tmp_path: Path) -> None:
    """What a broker gathered offline is neither refused nor ignored because the cloud gave its lease another epoch."""

    async def scenario() -> None:
        port = cloud.port("MQTT")
        with hearing(port, "WHEN n > 10 UNTIL n <= 5 FOR source = 'c1'", "cleo") as found:
            edge = await Edge(tmp_path, "c", port).start()
            await begun(edge, "c1")
            digest = next(iter(await until(lambda: edge.active, "an activation")))
            before = edge.leases.epoch("c1")
            mark = Mark("c1", (before, 1, 0), True)
            edge.send(0, "c1", labels={digest: Label(mark)})  # as if it were 11
            await until(lambda: len(found) == 1, "enter")
            await edge.drained()
            await edge.kill()
            await until(lambda: "c" not in brokers(cloud), "the announcement to be over")

            edge.outbox.open()
            epoch = before
            labels = {digest: Label(Mark("c1", (epoch, 1, 1), False))}
            edge.outbox.append([OutRecord({"id": "c1:1:1", "source": "c1", "n": 3}, epoch, labels)])
            labels = {digest: Label(Mark("c1", (epoch, 1, 2), True))}
            edge.outbox.append([OutRecord({"id": "c1:1:2", "source": "c1", "n": 12}, epoch, labels)])
            edge.outbox.close()
            again = await Edge(tmp_path, "c", port).start()
            assert again.active.keys() == {digest}  # from the disk
            again.uplink.announce(body("c1"))
            again.uplink.want(["c1"])
            await again.drained()
            assert again.uplink.counts.refused == 0
            await until(lambda: len(found) == 3, "exit and enter")
            assert [each.why for each in found] == ["enter", "exit", "enter"]
            await again.owns("c1")
            assert again.leases.epoch("c1") > before
            await again.stop()

    run(scenario())


def test_what_another_owns_is_given_up_and_kept_as_a_dead_letter(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney_mobile.batches.HOLD_SECONDS", 0.2)

    async def scenario() -> None:
        port = cloud.port("MQTT")
        async with Edge(tmp_path / "1", "d", port) as first, Edge(tmp_path / "2", "e", port) as second:
            await begun(first, "d1")
            second.uplink.announce(body("d1", "e1"))
            second.uplink.want(["d1", "e1"])
            await second.owns("e1")
            await until(lambda: "d1" in second.leases.known, "word of who owns d1")
            assert not second.leases.owns("d1")
            second.send(1, "d1")
            second.send(1, "e1")
            await second.drained()
            assert (second.uplink.counts.refused, second.uplink.counts.stored) == (1, 1)
            (letter,) = second.dead.newest
            assert letter["publication"]["id"] == "d1:1:1"
            assert "published by its owner alone, and that is d" in letter["reason"]
            assert json.loads((tmp_path / "2" / "refused.jsonl").read_text())["reason"] == letter["reason"]
            # The owner stops, and the other one takes over.
            await first.stop()
            await second.owns("d1")
            second.send(2, "d1")
            await second.drained()
            assert (second.uplink.counts.refused, second.uplink.counts.stored) == (1, 2)
            await first.start()

    run(scenario())


def test_a_refused_reading_leaves_its_label_to_go_up_alone(cloud: Cloud, tmp_path: Path) -> None:
    async def scenario() -> None:
        port = cloud.port("MQTT")
        with hearing(port, "WHEN n > 10 UNTIL n <= 5 FOR source = 'f1'", "fay") as found:
            async with Edge(tmp_path, "f", port) as edge:
                await begun(edge, "f1")
                digest = next(iter(await until(lambda: edge.active, "an activation")))
                epoch = edge.leases.epoch("f1")
                wide = {f"a{n}": n for n in range(300)}
                edge.send(11, "f1", labels={digest: Label(Mark("f1", (epoch, 1, 11), True))}, **wide)
                await edge.drained()
                assert edge.uplink.counts.refused == 1
                edge.send(12, "f1", labels={digest: Label(Mark("f1", (epoch, 1, 12), False))})
                await until(lambda: found, "a notification")
                await until(lambda: "exit" in [each.why for each in found], "exit")  # which needs the bit of the label
                assert "attributes" in edge.dead.newest[0]["reason"]

    run(scenario())


def test_a_lost_epoch_is_answered_with_the_full_set(cloud: Cloud, tmp_path: Path) -> None:
    async def scenario() -> None:
        port = cloud.port("MQTT")
        async with Edge(tmp_path, "g", port) as edge:
            await begun(edge, "g1")
            with hearing(port, "source = 'g1' AND n > 1", "gus"):
                await until(lambda: edge.active, "an activation")
                assert edge.activations.active.epoch is not None
                edge.activations.active.epoch -= 1  # it has missed something
                with hearing(port, "source = 'g1' AND n < 1", "gil"):
                    await until(lambda: len(edge.active) == 2, "both filters")
                    assert edge.activations.gaps == 1
                    assert not edge.activations.is_lost
            await until(lambda: not edge.active, "no filter")
            assert edge.activations.gaps == 1

    run(scenario())


def test_a_stop_sends_what_waits_and_tells_the_cloud_that_the_broker_is_gone(cloud: Cloud, tmp_path: Path) -> None:
    async def scenario() -> None:
        edge = await Edge(tmp_path, "h", cloud.port("MQTT")).start()
        await begun(edge, "h1")
        await until(lambda: "h" in brokers(cloud), "the announcement")
        for number in range(2_000):
            edge.send(number, "h1")
        await edge.stop()
        assert edge.uplink.counts.stored == 2_000
        await until(lambda: "h" not in brokers(cloud), "the announcement to be over")

    run(scenario())


def test_a_link_that_is_cut_says_the_will_and_a_new_one_is_not_taken_for_away(cloud: Cloud, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Wire(cloud.port("MQTT")) as wire, Edge(tmp_path, "i", wire.port) as edge:
            await begun(edge, "i1")
            epoch = edge.leases.epoch("i1")
            sessions = {brokers(cloud)["i"]["session"]}
            for n in range(3):
                wire.fall_silent()  # the server has not noticed when the next link comes
                edge.uplink._connection.drop("as when a network changes")  # type: ignore[union-attr]  # it runs
                await until(lambda n=n: edge.uplink._presence.sent >= n + 2, "the announcement on the new link")
                await until(lambda: brokers(cloud)["i"]["session"] not in sessions, "the new session")
                sessions.add(brokers(cloud)["i"]["session"])
                edge.send(n, "i1")
                await edge.drained()
            assert len(sessions) == 4
            assert not brokers(cloud)["i"]["away"]
            assert edge.uplink.counts.refused == 0
            assert edge.leases.epoch("i1") >= epoch

    run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["own", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))])
def test_with_the_cloud_down_for_an_hour_nothing_is_lost_within_bounds(tmp_path: Path, kind: str) -> None:
    async def scenario(cloud: Cloud, port: int) -> None:
        hour = 3_600.0
        now = [1e9]
        edge = Edge(tmp_path / "edge", "b1", port, max_age=2 * hour)
        edge.outbox._clock = lambda: now[0]
        cloud.start()
        with cloud, hearing(port, "n >= 0", "zoe") as found:
            await edge.start()
            await begun(edge, "m1", "m2")
            for number in range(10):
                edge.send(number, "m1")
            await edge.drained()
            await asyncio.to_thread(cloud.stop)
            for second in range(3_600):  # both sources, each second
                now[0] += 1.0
                for source in ("m1", "m2"):
                    edge.send(10 + second, source)
                if second % 100 == 0:
                    edge.outbox.drop_old()
                    await asyncio.sleep(0)
            assert edge.outbox.log.count == 7_200
            await asyncio.to_thread(cloud.start)
            await edge.drained()
            assert edge.uplink.counts.refused == 0
            assert edge.outbox.status().dropped == 0
            assert edge.uplink.counts.stored == 7_210
            await until(lambda: len(found) >= 7_210, "all notifications")
            for source, first in (("m1", 0), ("m2", 10)):
                got = [int(one.publication["n"]) for one in found if one.publication["source"] == source]
                assert got == list(range(first, 3_610))  # each once, in order
            await edge.stop()

    if kind == "own":
        cloud = fixed_cloud(tmp_path / "data")
        port = int(cloud.command[cloud.command.index("--mqtt-port") + 1])
        run(scenario(cloud, port))
        return
    with MosquittoServer(tmp_path / "mosquitto") as mosquitto:
        http, nats = map(str, free_ports(2))
        ports = ("--http-port", http, "--nats-port", nats, "--mqtt", f"mqtt://127.0.0.1:{mosquitto.mqtt_port}")
        run(scenario(Cloud(tmp_path / "data", program=REAL, ports=ports), mosquitto.mqtt_port))


# ---- With a cloud of a few lines, which can be made to fail -----------------------------------------------------


def test_what_the_server_took_and_the_cloud_did_not_store_is_sent_again(
    mosquitto: MosquittoServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with StandIn(mosquitto.mqtt_port) as cloud:
            async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
                edge.uplink._batches._resend = edge.uplink._batches._resend_first = 0.2
                cloud.deaf = True
                for number in range(5):
                    edge.send(number)
                await until(lambda: edge.uplink.counts.resent >= 2, "it to be sent again")
                error = edge.uplink.status().error
                assert error is not None
                assert "may b1 publish to spinney/b1/pub?" in error
                cloud.deaf = False
                await edge.drained()
                assert edge.uplink.status().error is None
                assert sorted(set(cloud.ids)) == [f"m1:1:{number}" for number in range(5)]
        assert caplog.text.count("does not say that it has stored") == 1

    run(scenario())


def test_a_lost_stored_costs_a_second_time_and_no_more(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        with StandIn(mosquitto.mqtt_port) as cloud:
            async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
                edge.uplink._batches._resend = edge.uplink._batches._resend_first = 0.2
                cloud.mute = True
                edge.send(1)
                await until(lambda: cloud.log, "it to be stored")
                cloud.mute = False
                await edge.drained()
                assert {item["id"] for item in cloud.log} == {"m1:1:1"}

    run(scenario())


def deaf_after(cloud: StandIn, id: str, item: dict[str, Any]) -> None:
    """It refuses nothing, and stores nothing of what comes after the message with this reading."""
    cloud.deaf = cloud.deaf or item["id"] == id


@pytest.mark.slow
def test_a_server_that_is_killed_with_much_under_way_loses_nothing(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        stored: list[str] = []
        async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
            edge.uplink._batches._resend = edge.uplink._batches._resend_first = 0.5
            for round_ in range(3):
                with StandIn(mosquitto.mqtt_port) as cloud:
                    cloud.refuse = partial(deaf_after, cloud, f"m1:{round_}:2500")
                    await edge.connected()
                    for number in range(5_000):
                        edge.send(number, boot=round_)
                    await until(lambda cloud=cloud: cloud.deaf, "half of it to be stored")
                    await asyncio.to_thread(mosquitto.kill)
                    await until(lambda: not edge.uplink.connected, "the link to be lost")
                    assert edge.outbox.log.count
                    error = edge.uplink.status().error
                    assert error is not None
                    assert str(mosquitto.port) in error
                stored += cloud.ids
                mosquitto.start()
            with StandIn(mosquitto.mqtt_port) as cloud:
                await edge.drained()
                stored += cloud.ids
        assert set(stored) == {f"m1:{boot}:{number}" for boot in range(3) for number in range(5_000)}
        # In what order is mosquitto's: what it had saved of its queue comes before what it had lost of it.

    run(scenario())


def test_it_begins_before_there_is_a_server_and_says_so_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = MosquittoServer(tmp_path / "mosquitto")
        async with Edge(tmp_path / "edge", "b1", server.port) as edge:
            edge.send(1)
            await until(lambda: edge.uplink.status().error != "not yet connected", "why there is no link")
            error = edge.uplink.status().error
            assert error == f"mqtt://127.0.0.1:{server.port}: Connection refused; it is tried again for ever"
            await until(lambda: edge.uplink._connection._pauses._next > 0.4, "a few attempts")  # type: ignore[union-attr]
            assert caplog.text.count("Connection refused") == 1
            with server, StandIn(server.port) as cloud:
                await edge.drained()
                assert cloud.ids == ["m1:1:1"]
                await edge.stop()

    run(scenario())


def _secured(folder: Path, password: str) -> NatsServer:
    """One that knows b1, and what b1 may do."""
    user = (
        f'{{user: "b1", password: "{password}", permissions: {{publish: "spinney.b1.>", subscribe: "spinney.b1.>"}}}}'
    )
    return NatsServer(folder, extra=f"authorization {{ users: [ {user} ] }}\n")


def test_a_wrong_password_is_told_once_with_what_to_do_and_mended_without_a_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        server = _secured(tmp_path / "nats", "right")
        with server:
            async with Edge(tmp_path / "edge", "b1", server.mqtt_port, password="wrong") as edge:
                await until(lambda: "refused" in (edge.uplink.status().error or ""), "the refusal")
                error = edge.uplink.status().error
                assert error is not None
                assert "user 'b1'" in error
                assert "check cloud.user, and what is in cloud.password_file" in error
                await until(lambda: edge.uplink._connection._pauses._next > 0.4, "more")  # type: ignore[union-attr]
                assert caplog.text.count("refused user") == 1
                config = tmp_path / "nats" / "nats.conf"
                config.write_text(config.read_text().replace('password: "right"', 'password: "wrong"'))
                await asyncio.to_thread(server.restart)
                await edge.connected()

    run(scenario())


def test_topics_that_are_not_granted_are_told_with_what_to_do(tmp_path: Path) -> None:
    async def scenario() -> None:
        with _secured(tmp_path / "nats", "right") as server:
            config = tmp_path / "nats" / "nats.conf"
            config.write_text(config.read_text().replace('subscribe: "spinney.b1.>"', 'subscribe: "spinney.b2.>"'))
            await asyncio.to_thread(server.restart)
            async with Edge(tmp_path / "edge", "b1", server.mqtt_port, password="right") as edge:
                await until(lambda: "must be the name of its user" in (edge.uplink.status().error or ""), "the refusal")

    run(scenario())


def test_a_server_that_does_not_acknowledge_is_left(
    mosquitto: MosquittoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney.client.sending.PUBACK_SECONDS", 0.5)

    async def scenario() -> None:
        async with Wire(mosquitto.port) as wire, Edge(tmp_path, "b1", wire.port) as edge:
            with StandIn(mosquitto.port) as cloud:
                await edge.connected()
                wire.fall_silent()
                edge.send(1)
                await edge.drained()
                assert wire.connections >= 2
                assert cloud.ids == ["m1:1:1"]

    run(scenario())


def test_what_was_under_way_when_the_link_was_lost_goes_again_without_any_time_out(
    mosquitto: MosquittoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney.client.sending.PUBACK_SECONDS", 1e6)

    async def scenario() -> None:
        async with Wire(mosquitto.port) as wire, Edge(tmp_path, "b1", wire.port) as edge:
            with StandIn(mosquitto.port) as cloud:
                await edge.connected()
                wire.fall_silent()
                edge.send(1)
                await until(lambda: edge.uplink.counts.batches, "it to be under way")
                edge.uplink._connection.drop("the network has changed")  # type: ignore[union-attr]  # it runs
                await edge.drained()
                assert cloud.ids == ["m1:1:1"]
                assert edge.uplink.counts.batches == 2

    run(scenario())


def test_messages_keep_below_what_the_cloud_takes_also_after_a_restart(
    mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    """The cloud says it in its first reply only."""

    async def scenario() -> None:
        with StandIn(mosquitto.mqtt_port) as cloud:
            cloud.max_payload = 2_000
            async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
                edge.send(0)
                await edge.drained()
                edge.send(1, text="x" * 3_000)
                assert edge.uplink.counts.refused == 1
            cloud.max_payload = None
            async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
                for number in range(200):
                    edge.send(number)
                await edge.drained()
            assert max(len(payload) for _, payload in cloud.messages) <= 2_000

    run(scenario())


def test_what_cannot_be_sent_within_the_bound_waits_for_the_next_start(
    mosquitto: MosquittoServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uplink_module, "FLUSH_SECONDS", 0.1)

    async def scenario() -> None:
        with StandIn(mosquitto.mqtt_port) as cloud:
            cloud.deaf = True
            async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
                await edge.connected()
                edge.send(1)
            assert "1 records wait in the outbox" in caplog.text
            cloud.deaf = False
            async with Edge(tmp_path, "b1", mosquitto.mqtt_port) as edge:
                await edge.drained()
            assert cloud.ids == ["m1:1:1"]

    run(scenario())
