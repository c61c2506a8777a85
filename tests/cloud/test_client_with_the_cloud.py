"""The client SDK and its commands against the real cloud, all five processes of it."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from clouds import Cloud
from stand_in import wait_until
from test_commands_pub_sub import run, running

import spinney
from spinney import Publisher, Subscriber
from spinney.client import PublicationRefused, RequestRefused

REAL = [sys.executable, "-m", "spinney_tools", "cloud"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    """One for all tests here: each has clients and sources of its own."""
    with Cloud(tmp_path_factory.mktemp("cloud") / "data", program=REAL).start() as cloud:
        yield cloud


def url(cloud: Cloud) -> str:
    return f"mqtt://127.0.0.1:{cloud.port('MQTT')}"


def test_what_is_published_is_notified_to_whom_it_matches(cloud: Cloud) -> None:
    with Subscriber("ana", server=url(cloud)) as ana, Publisher("kit", server=url(cloud)) as kit:
        air = ana.subscribe("NO2 > 40 AND NO2 > 30 AND source = 'kit'", sid="air")
        assert air.cost == "indexed"
        assert air.normal is not None
        assert "30" not in air.normal
        receipts = kit.publish_batch({"NO2": n, "type": "air"} for n in range(30, 60))
        found = [air.get(20) for _ in range(19)]
        assert [each.publication["NO2"] for each in found if each.publication] == list(range(41, 60))
        assert {(each.sid, each.why) for each in found} == {("air", "match")}
        kit.flush(10)
        assert all(receipt.stored for receipt in receipts)
        assert [each.publication["id"] for each in found if each.publication] == [each.id for each in receipts[11:]]
        air.unsubscribe()
        kit.publish({"NO2": 99}).wait(10)
        assert list(air) == []


def test_enter_and_exit_come_to_an_async_for(cloud: Cloud) -> None:
    async def main(heat: spinney.client.Handle, door: Publisher) -> list[tuple[str, object]]:
        found = []
        door.publish_batch({"temp": temp, "room": "hall", "source": "door"} for temp in (20, 26, 27, 21, 30))
        async for each in heat:
            found.append((each.why, each.scope))
            if len(found) == 3:
                assert each.publication is not None
                assert each.publication["temp"] == 30
                return found
        return found

    with Subscriber("eva", server=url(cloud)) as eva, Publisher("door", server=url(cloud)) as door:
        heat = eva.subscribe("WHEN temp > 25 UNTIL temp <= 22 FOR source = 'door' EACH room")
        found = asyncio.run(asyncio.wait_for(main(heat, door), 20))
        assert found == [("enter", "hall"), ("exit", "hall"), ("enter", "hall")]
        heat.unsubscribe()


def test_a_bad_subscription_and_bad_options_are_refused_with_their_place(cloud: Cloud) -> None:
    with Subscriber("ben", server=url(cloud)) as ben:
        with pytest.raises(spinney.SyntaxError) as error:
            ben.subscribe("NO2 >\n 40 AND")
        assert (error.value.line, error.value.column) == (2, 8)
        with pytest.raises((spinney.SyntaxError, RequestRefused), match="max_per"):
            ben.subscribe({"filter": "NO2 > 40", "max_per": "bananas"})


def test_what_the_gateway_refuses_leaves_the_outbox_with_the_reason(cloud: Cloud) -> None:
    with Publisher("wide", server=url(cloud)) as wide:
        fine = wide.publish({"n": 1})
        refused = wide.publish({f"a{n}": n for n in range(5_000)})
        with pytest.raises(PublicationRefused, match="attributes"):
            refused.wait(20)
        fine.wait(20)
        assert wide.waiting == 0


def test_a_withdrawn_publication_is_not_what_a_new_subscriber_gets(cloud: Cloud) -> None:
    with Publisher("stand", server=url(cloud)) as stand, Subscriber("cara", server=url(cloud)) as cara:
        kept, withdrawn = stand.publish_batch({"bikes": n, "valid_for": 3600} for n in (1, 2))
        stand.flush(10)
        stand.unpublish(withdrawn)
        stand.flush(10)
        with cara.subscribe("bikes > 0") as bikes:
            first = bikes.get(20)
            assert first.publication is not None
            assert first.publication["id"] == kept.id
            last = stand.publish({"bikes": 3})
            second = bikes.get(20)
            assert second.publication is not None
            assert second.publication["id"] == last.id


@pytest.mark.slow
def test_nothing_is_lost_while_each_process_is_killed(cloud: Cloud, tmp_path: Path) -> None:
    found: list[float] = []
    with (
        Subscriber("dan", server=url(cloud), session="s3cret") as dan,
        Publisher("gun", server=url(cloud), outbox=tmp_path / "outbox", resend_seconds=2.0) as gun,
    ):
        dan.subscribe("shot >= 0", sid="shots", callback=lambda each: found.append((each.publication or {})["shot"]))
        number = 0
        for process in ("gateway", "matcher", "delivery", "coordinator"):
            for _ in range(100):
                gun.publish({"shot": number})
                number += 1
            kill_and_wait(cloud, process)
        gun.flush(60)
        assert gun.counts.stored == number
        wait_until(lambda: len(set(found)) == number, "every notification", 60)
        assert set(found) == set(range(number))
        assert len(found) == len(set(found)), "what came again was given out again"


def kill_and_wait(cloud: Cloud, name: str) -> None:
    """Until the supervisor has started another one."""
    process = cloud.child(name)
    assert process is not None
    process.kill()
    wait_until(lambda: (now := cloud.child(name)) is not None and now.pid != process.pid, f"{name} again")


def test_the_commands_together(cloud: Cloud) -> None:
    http = f"http://127.0.0.1:{cloud.port('HTTP')}"
    with running("sub", "loud: dB > 80", "--json", "--count", "2", "--name", "fay", "--server", url(cloud)) as sub:
        assert sub.stderr is not None
        assert sub.stdout is not None
        assert sub.stderr.readline() == "loud: dB > 80 (indexed)\n"
        listed = run("ls", "--http", http, "--json")
        assert ("loud", "fay") in [(row["sid"], row["owner"]) for row in map(json.loads, listed.stdout.splitlines())]
        assert "dB > 80" in run("ls", "--http", http).stdout
        lines = "".join(f'{{"dB": {n}}}\n' for n in (70, 85, 79, 90))
        done = run("pub", "--server", url(cloud), "--name", "mic", "--json", stdin=lines)
        assert json.loads(done.stdout)["stored"] == 4
        assert [json.loads(sub.stdout.readline())["publication"]["dB"] for _ in range(2)] == [85, 90]
        assert sub.wait(20) == 0
    wait_until(lambda: "loud" not in run("ls", "--http", http).stdout, "unsubscribed")


def test_ls_of_sources_and_brokers(cloud: Cloud) -> None:
    http = f"http://127.0.0.1:{cloud.port('HTTP')}"
    for what in ("sources", "brokers", "activations"):
        done = run("ls", what, "--http", http)
        assert (done.returncode, done.stderr) == (0, f"no {what}\n")


def test_a_publisher_of_many_threads_keeps_each_threads_order(cloud: Cloud) -> None:
    with (
        Publisher("many", server=url(cloud)) as many,
        Subscriber("gil", server=url(cloud)) as gil,
        gil.subscribe("thread >= 0") as all_of_them,
    ):
        threads = [
            threading.Thread(
                target=lambda thread=thread: [many.publish({"thread": thread, "n": n}) for n in range(200)]
            )
            for thread in range(4)
        ]
        for thread in threads:
            thread.start()
        publications = [all_of_them.get(20).publication or {} for _ in range(800)]
        for thread in threads:
            thread.join()
        for number in range(4):
            assert [each["n"] for each in publications if each["thread"] == number] == list(range(200))


def test_sub_survives_a_restart_of_the_mqtt_server(tmp_path: Path) -> None:
    """The whole cloud is killed and started again on the same ports: the subscription goes on."""
    cloud = Cloud(tmp_path / "data", program=REAL)
    with cloud.start():
        port = cloud.port("MQTT")
        with (
            Subscriber("ana", server=url(cloud), session="s3cret") as ana,
            Publisher("kit", server=url(cloud), resend_seconds=2.0) as kit,
        ):
            air = ana.subscribe("NO2 > 40", sid="air")
            kit.publish({"NO2": 41})
            assert (air.get(20).publication or {})["NO2"] == 41
            cloud.stop(signal.SIGTERM)
            late = kit.publish({"NO2": 42})
            cloud.command += ["--mqtt-port", str(port)]
            cloud.start()
            late.wait(60)
            assert (air.get(60).publication or {})["NO2"] == 42
