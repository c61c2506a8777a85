"""The subscriber: what it asks is answered, what comes is given out once, in order, and acknowledged when read."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import MosquittoServer, NatsServer
from stand_in import StandIn, wait_until

import spinney
from spinney.client import (
    Closed,
    Handle,
    NotGranted,
    Notification,
    RequestRefused,
    ServerUnreachable,
    Subscriber,
    TimedOut,
)
from spinney.client.callbacks import Caller
from spinney.client.mailbox import Item, Seen
from spinney.client.notification import read

Server = NatsServer | MosquittoServer
WORDS = ["id", "sid", "why", "time", "publication", "also", "digest", "dropped", "request", "ok", "error", "normal"]


def url(server: Server) -> str:
    return f"mqtt://127.0.0.1:{server.mqtt_port}"


def ids(handle: Handle, count: int) -> list[str]:
    return [handle.get(10).id for _ in range(count)]


def test_a_subscription_is_accepted_with_its_normal_form_and_cost(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, Subscriber("ana", server=url(mqtt_server)) as ana:
        air = ana.subscribe("NO2 > 40 AND 1 = 1", sid="air")
        assert (air.sid, air.normal, air.cost, air.start) == ("air", "NO2 > 40", "indexed", 7)
        assert cloud.subscriptions == {("ana", "air"): "NO2 > 40 AND 1 = 1"}
        cloud.note("ana", "air", "n1", scope="m7", since=5, rank=2, reason="lost", also=["roads"])
        assert air.get(10) == Notification(
            id="n1",
            sid="air",
            why="match",
            time=1e9,
            publication={"NO2": 41.0},
            scope="m7",
            since=5,
            rank=2,
            reason="lost",
            also=("roads",),
        )
        air.unsubscribe()
        assert cloud.subscriptions == {}
        assert list(air) == []


def test_objects_and_json_are_subscriptions_too(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        texts = [
            ana.subscribe(spinney.parse("WHEN temp > 25 UNTIL temp <= 22 EACH room")).normal,
            ana.subscribe({"filter": "NO2 > 40", "id": "x"}).normal,
        ]
        assert texts == ["WHEN temp > 25 UNTIL temp <= 22 EACH room", "NO2 > 40"]
        # The same text is the same subscription.
        assert ana.subscribe({"filter": "NO2 > 40", "id": "x"}) is ana.subscribe({"filter": "NO2 > 40", "id": "x"})
        assert len(cloud.subscriptions) == 2


def test_a_bad_subscription_raises_with_line_and_column(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port), Subscriber("ana", server=url(mqtt_server)) as ana:
        with pytest.raises(spinney.SyntaxError) as error:
            ana.subscribe("NO2 >\n 40 AND", sid="air")
        with pytest.raises(spinney.SyntaxError) as same:
            spinney.parse("NO2 >\n 40 AND")
        assert str(error.value) == str(same.value)
        assert (error.value.line, error.value.expected) == (same.value.line, same.value.expected)
        assert ana.subscribe("NO2 > 40", sid="air").normal == "NO2 > 40"


def test_a_refusal_for_another_reason_is_told(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        cloud.deaf = True
        answer = {"request": "sub", "sid": "air", "ok": False, "error": {"message": "too many subscriptions"}}
        timer = threading.Thread(
            target=lambda: (wait_until(lambda: ana._requests), cloud.say("spinney/ana/reply", answer))
        )
        timer.start()
        with pytest.raises(RequestRefused, match="too many"):
            ana.subscribe("NO2 > 40", sid="air")
        timer.join()


def test_an_answer_to_an_earlier_request_is_not_taken_for_one_to_this(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        cloud.deaf = True
        answer = {"request": "sub", "sid": "air", "ok": True}

        def answer_both() -> None:
            wait_until(lambda: ana._requests)
            cloud.say("spinney/ana/reply", {**answer, "ended": True})
            cloud.note("ana", "air", "n1")  # behind it
            wait_until(lambda: ana.counts.notifications == 1)
            cloud.say("spinney/ana/reply", {**answer, "normal": "NO2 > 40", "cost": "indexed", "start": 9})

        thread = threading.Thread(target=answer_both)
        thread.start()
        assert ana.subscribe("NO2 > 40", sid="air").start == 9
        thread.join()


def test_no_answer_is_told_in_time_and_asked_for_again(
    mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney.client.subscriber.RESEND_SECONDS", 0.05)
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        cloud.deaf = True
        with pytest.raises(TimedOut):
            ana.subscribe("NO2 > 40", timeout_seconds=0.2)
        hears = threading.Thread(target=lambda: (wait_until(lambda: ana._requests), setattr(cloud, "deaf", False)))
        hears.start()
        assert ana.subscribe("NO2 > 40").normal == "NO2 > 40"
        hears.join()


def test_notifications_go_to_their_handles_in_order(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, Subscriber("ana", server=url(mqtt_server)) as ana:
        air, heat = ana.subscribe("NO2 > 40", sid="air"), ana.subscribe("temp > 30", sid="heat")
        for n in range(50):
            cloud.note("ana", "air", f"a{n}")
            cloud.note("ana", "heat", f"h{n}")
        assert ids(air, 50) == [f"a{n}" for n in range(50)]
        assert ids(heat, 50) == [f"h{n}" for n in range(50)]
        with pytest.raises(TimedOut):
            air.get(0.01)


def test_what_comes_again_is_given_out_once(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud, Subscriber("ana", server=url(mqtt_server)) as ana:
        air = ana.subscribe("NO2 > 40", sid="air")
        for id in ("n1", "n1", "n2", "n1", "n3"):
            cloud.note("ana", "air", id)
        assert ids(air, 3) == ["n1", "n2", "n3"]
        assert ana.repeated == 2


def test_a_digest_is_several_notifications(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        air = ana.subscribe("NO2 > 40", sid="air")
        notes = [{"id": f"n{n}", "sid": "air", "why": "match", "time": n} for n in range(3)]
        cloud.say("spinney/ana/note/air", {"sid": "air", "digest": notes, "dropped": 4})
        assert ids(air, 3) == ["n0", "n1", "n2"]
        assert air.left_out == 4


def test_a_callback_gets_them_one_after_the_other_and_may_use_the_subscriber(mqtt_server: Server) -> None:
    told: list[str] = []

    def callback(notification: Notification) -> None:
        told.append(notification.id)
        if notification.id == "n0":
            told.append(ana.subscribe("temp > 30", sid="heat").normal or "")

    with StandIn(mqtt_server.mqtt_port) as cloud, Subscriber("ana", server=url(mqtt_server)) as ana:
        ana.subscribe("NO2 > 40", sid="air", callback=callback)
        for n in range(20):
            cloud.note("ana", "air", f"n{n}")
        wait_until(lambda: len(told) == 21)
    assert told == ["n0", "temp > 30", *(f"n{n}" for n in range(1, 20))]


def test_a_callback_that_fails_does_not_end_the_others(
    mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: reported.append(args.exc_value))
    told: list[str] = []

    def callback(notification: Notification) -> None:
        told.append(notification.id)
        raise KeyError(notification.id)

    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        ana.subscribe("NO2 > 40", sid="air", callback=callback)
        for n in range(3):
            cloud.note("ana", "air", f"n{n}")
        wait_until(lambda: len(reported) == 3)
    assert told == ["n0", "n1", "n2"]


def test_async_for_runs_in_its_own_loop(mqtt_server: Server) -> None:
    async def main(handle: Handle, cloud: StandIn) -> list[str]:
        found = []
        cloud.note("ana", "air", "n0")
        async for notification in handle:
            found.append(notification.id)
            if len(found) == 10:
                break
            cloud.note("ana", "air", f"n{len(found)}")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(handle), 0.01)
        return found

    with StandIn(mqtt_server.mqtt_port) as cloud, Subscriber("ana", server=url(mqtt_server)) as ana:
        handle = ana.subscribe("NO2 > 40", sid="air")
        assert asyncio.run(main(handle, cloud)) == [f"n{n}" for n in range(10)]
        # The loop that was waiting is closed; the next notification finds its reader all the same.
        cloud.note("ana", "air", "later")
        assert ids(handle, 1) == ["later"]


def test_async_for_ends_when_the_subscriber_is_closed(mosquitto: MosquittoServer) -> None:
    async def main(ana: Subscriber, handle: Handle) -> None:
        asyncio.get_running_loop().call_later(0.05, ana.close)
        assert [notification async for notification in handle] == []

    with StandIn(mosquitto.mqtt_port):
        ana = Subscriber("ana", server=url(mosquitto)).connect()
        asyncio.run(main(ana, ana.subscribe("NO2 > 40")))
    with pytest.raises(Closed):
        ana.subscribe("NO2 > 40")


def test_it_hears_again_after_the_server_forgot_it(mqtt_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a session the server forgets its topics with the link; they are subscribed to again."""
    monkeypatch.setattr("spinney.client.subscriber.RESEND_SECONDS", 0.3)
    states: list[bool] = []
    with (
        StandIn(mqtt_server.mqtt_port) as cloud,
        Subscriber("ana", server=url(mqtt_server), on_connection=lambda up, _: states.append(up)) as ana,
    ):
        air = ana.subscribe("NO2 > 40", sid="air")
        mqtt_server.kill()
        mqtt_server.start()
        wait_until(lambda: states[-2:] == [False, True], "connected again")
        assert ana.subscribe("NO2 > 40", sid="air") is air
        cloud.note("ana", "air", "n1")
        assert ids(air, 1) == ["n1"]


def test_a_session_keeps_what_comes_while_the_program_is_away(mqtt_server: Server) -> None:
    with StandIn(mqtt_server.mqtt_port) as cloud:
        with Subscriber("ana", server=url(mqtt_server), session="desk") as ana:
            ana.subscribe("NO2 > 40", sid="air")
        cloud.note("ana", "air", "away1")
        cloud.note("ana", "air", "away2")
        cloud.note("ana", "other", "nobody's")
        again = Subscriber("ana", server=url(mqtt_server), session="desk")
        air = again.resume("air")
        with again:
            assert ids(air, 2) == ["away1", "away2"]
            cloud.note("ana", "air", "here")
            assert ids(air, 1) == ["here"]


@pytest.fixture
def quick_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that soon sends again what was not acknowledged; nats-server waits also when a session is taken up."""
    quick = NatsServer(tmp_path / "nats", mqtt=', ack_wait: "1s"')
    with MosquittoServer(tmp_path / "mosquitto") if request.param == "mosquitto" else quick as server:
        yield server


@pytest.mark.parametrize(
    "quick_server", ["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))], indirect=True
)
def test_a_session_claims_what_came_before_the_handle(quick_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney.client.subscriber.UNCLAIMED_SECONDS", 60.0)
    with StandIn(quick_server.mqtt_port) as cloud:
        with Subscriber("ana", server=url(quick_server), session="desk") as ana:
            ana.subscribe("NO2 > 40", sid="air")
        for n in range(5):
            cloud.note("ana", "air", f"n{n}")
        with Subscriber("ana", server=url(quick_server), session="desk") as ana:
            wait_until(lambda: len(ana._unclaimed) == 5)
            assert sorted(ids(ana.subscribe("NO2 > 40", sid="air"), 5)) == [f"n{n}" for n in range(5)]


@pytest.mark.parametrize(
    "quick_server", ["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))], indirect=True
)
def test_what_was_not_read_comes_again_in_the_next_session_and_what_was_does_not(quick_server: Server) -> None:
    with StandIn(quick_server.mqtt_port) as cloud:
        with Subscriber("ana", server=url(quick_server), session="desk") as ana:
            air = ana.subscribe("NO2 > 40", sid="air")
            for n in range(10):
                cloud.note("ana", "air", f"n{n}")
            wait_until(lambda: ana.counts.notifications == 10)
            assert ids(air, 4) == ["n0", "n1", "n2", "n3"]
        again = Subscriber("ana", server=url(quick_server), session="desk")
        air = again.resume("air")
        with again:
            assert sorted(ids(air, 6)) == [f"n{n}" for n in range(4, 10)]
            with pytest.raises(TimedOut):
                air.get(0.2)


def while_starting(monkeypatch: pytest.MonkeyPatch, name: str, what: Callable[[], object]) -> list[Exception]:
    """Have another thread do that when the thread of this name is made and not started; what it raises."""
    start, raised = threading.Thread.start, list[Exception]()

    def do() -> None:
        try:
            what()
        except Exception as error:  # noqa: BLE001  # the test looks at it
            raised.append(error)

    def started(thread: threading.Thread) -> None:
        if thread.name == name:
            other = threading.Thread(target=do)
            start(other)
            other.join(0.2)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    return raised


def test_it_may_be_closed_as_its_threads_start(mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ana = Subscriber("ana", server=url(mosquitto), session=False)
    raised = while_starting(monkeypatch, "spinney-ana", ana.close)
    with suppress(ServerUnreachable):
        ana.connect()
    caller = Caller("caller", iter(()))
    raised_too = while_starting(monkeypatch, "caller", caller.join)
    caller.start()
    caller.join()
    assert [*raised, *raised_too] == []


@pytest.mark.parametrize(
    "quick_server", ["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))], indirect=True
)
def test_it_is_closed_when_the_server_has_read_all(quick_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney.client.link.CLOSE_SECONDS", 60.0)
    assert quick_server.process is not None
    ana = Subscriber("ana", server=url(quick_server), session="desk").connect()
    closing = threading.Thread(target=ana.close)
    quick_server.process.send_signal(signal.SIGSTOP)
    try:
        closing.start()
        closing.join(0.5)
        assert closing.is_alive(), "a server that reads nothing"
    finally:
        quick_server.process.send_signal(signal.SIGCONT)
    closing.join(30)
    assert not closing.is_alive()


READING = """
import sys
from spinney import Subscriber
ana = Subscriber("ana", server=sys.argv[1], session="desk")
air = ana.resume("air")
ana.connect()
for notification in air:
    print(notification.id, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "quick_server", ["nats", pytest.param("mosquitto", marks=pytest.mark.needs("mosquitto"))], indirect=True
)
def test_kill_9_of_a_reading_process_loses_nothing(
    quick_server: Server,
) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    randomly = random.Random(seed)
    read_by: list[list[str]] = []
    with StandIn(quick_server.mqtt_port) as cloud:
        with Subscriber("ana", server=url(quick_server), session="desk") as ana:
            ana.subscribe("NO2 > 40", sid="air")
        for round_number in range(3):
            for n in range(300):
                cloud.note("ana", "air", f"n{round_number * 300 + n}")
            command = [sys.executable, "-c", READING, url(quick_server)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                lines = [process.stdout.readline() for _ in range(randomly.randrange(1, 250))]
                process.kill()
                lines += process.stdout.read().splitlines(keepends=True)
            read_by.append([line.strip() for line in lines if line.endswith("\n")])
        again = Subscriber("ana", server=url(quick_server), session="desk")
        air = again.resume("air")
        with again:
            expected = {f"n{n}" for n in range(900)}
            last: list[str] = []
            while missing := expected - {*sum(read_by, last)}:
                try:
                    last.append(air.get(20).id)
                except TimedOut:
                    pytest.fail(f"never came: {sorted(missing)}")
        read_by.append(last)
    # What comes twice was under way when a process was killed: each process gives out each once.
    assert all(len(ids) == len(set(ids)) for ids in read_by)


def test_a_lost_link_in_a_session_loses_no_notification_and_repeats_none(nats: NatsServer) -> None:
    with (
        StandIn(nats.mqtt_port) as cloud,
        Subscriber("ana", server=url(nats), session="desk") as ana,
    ):
        air = ana.subscribe("NO2 > 40", sid="air")
        for n in range(20):
            cloud.note("ana", "air", f"n{n}")
        wait_until(lambda: ana.counts.notifications == 20)
        first = ids(air, 5)
        nats.kill()
        nats.start()
        for n in range(20, 30):
            cloud.note("ana", "air", f"n{n}")
        assert first + sorted(ids(air, 25), key=lambda id: int(id[1:])) == [f"n{n}" for n in range(30)]
        with pytest.raises(TimedOut):
            air.get(0.3)


def test_a_reader_that_is_behind_drops_the_oldest_if_it_says_so(mosquitto: MosquittoServer) -> None:
    with (
        StandIn(mosquitto.mqtt_port) as cloud,
        Subscriber("ana", server=url(mosquitto), max_waiting=3, when_behind="drop_oldest") as ana,
    ):
        air = ana.subscribe("NO2 > 40", sid="air")
        for n in range(10):
            cloud.note("ana", "air", f"n{n}")
        wait_until(lambda: ana.counts.notifications == 10)
        assert ids(air, 3) == ["n7", "n8", "n9"]
        assert air.dropped == 7 == ana.dropped


def test_a_reader_that_is_behind_loses_nothing_otherwise(mosquitto: MosquittoServer) -> None:
    with (
        StandIn(mosquitto.mqtt_port) as cloud,
        Subscriber("ana", server=url(mosquitto), max_waiting=3) as ana,
    ):
        air = ana.subscribe("NO2 > 40", sid="air")
        for n in range(100):
            cloud.note("ana", "air", f"n{n}")
        wait_until(lambda: ana.counts.notifications >= 4)
        assert ids(air, 100) == [f"n{n}" for n in range(100)]
        assert air.dropped == 0


def test_closing_does_not_wait_for_a_reader_that_is_behind(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud:
        with Subscriber("ana", server=url(mosquitto), max_waiting=1) as ana:
            ana.subscribe("NO2 > 40", sid="air")
            for n in range(10):
                cloud.note("ana", "air", f"n{n}")
            wait_until(lambda: ana.counts.notifications >= 2)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("spinney-ana")]


def test_unclaimed_notifications_go_to_on_notification_or_are_given_up(
    mosquitto: MosquittoServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney.client.subscriber.UNCLAIMED_SECONDS", 0.05)
    told: list[str] = []
    with StandIn(mosquitto.mqtt_port) as cloud:
        with Subscriber("ana", server=url(mosquitto), on_notification=lambda each: told.append(each.id)):
            cloud.note("ana", "air", "n1")
            wait_until(lambda: told == ["n1"])
        with Subscriber("ana", server=url(mosquitto)) as ana:
            cloud.note("ana", "air", "n2")
            wait_until(lambda: ana.counts.unclaimed == 1)


def test_nonsense_from_the_cloud_is_counted_and_harms_nothing(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        air = ana.subscribe("NO2 > 40", sid="air")
        nonsense: list[object] = ["", 7, [], {}, {"id": 7, "sid": "air"}, {"sid": "air", "digest": [7]}, {"digest": 7}]
        for item in nonsense:
            cloud.say("spinney/ana/note/air", item)
        cloud.say("spinney/ana/reply", ["nonsense"])
        cloud.say("spinney/ana/reply", {"request": "sub", "sid": ["air"], "ok": True})
        cloud.note("ana", "air", "n1")
        assert ids(air, 1) == ["n1"]
        wait_until(lambda: ana.counts.unreadable == len(nonsense) + 1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=12,
)


@given(JSON)
def test_whatever_comes_as_a_notification_is_read_or_a_value_error(item: object) -> None:
    try:
        told = read(json.dumps(item).encode())
    except ValueError:
        return
    assert all(isinstance(each, Notification) for each in told.notifications)


@given(JSON)
def test_whatever_comes_as_a_reply_is_read_or_a_value_error(item: object) -> None:
    ana = Subscriber("ana", session=False)
    try:
        ana._answer(item)
    except ValueError:
        assert not isinstance(item, dict)


def test_topics_that_are_not_granted_are_told(tmp_path: Path) -> None:
    rights = '{user: ana, password: "p", permissions: {publish: ["spinney.ana.>"], subscribe: ["spinney.ana.reply"]}}'
    with (
        NatsServer(tmp_path / "nats", extra=f"authorization {{ users = [{rights}] }}") as server,
        pytest.raises(NotGranted) as error,
    ):
        Subscriber("ana", server=url(server), password="p", session=False).connect()
    assert error.value.topics == ("spinney/ana/note/+",)


def test_names_of_subscriptions_are_checked_here() -> None:
    ana = Subscriber("ana", session=False)
    for sid in ("a/b", "*", "x" * 65):
        with pytest.raises(ValueError, match="a subscription's id"):
            ana.subscribe("NO2 > 40", sid=sid)
    with pytest.raises(spinney.SyntaxError):
        ana.subscribe("  ", sid="air")


def test_what_is_remembered_of_notifications_is_bounded() -> None:
    class Message:
        acks = 0

        def ack(self) -> None:
            self.acks += 1

    seen = Seen(limit=100)
    for n in range(1_000):
        (notification,) = read(b'{"id":"n%d","sid":"air","why":"match","time":1}' % n).notifications
        assert isinstance(seen.item(notification, None), Item)  # type: ignore[arg-type]  # nothing is acknowledged
    assert len(seen._items) == 100


def test_a_subscription_in_a_with_ends_with_it(mosquitto: MosquittoServer) -> None:
    with StandIn(mosquitto.mqtt_port) as cloud, Subscriber("ana", server=url(mosquitto)) as ana:
        with ana.subscribe("NO2 > 40", sid="air"):
            assert cloud.subscriptions
        assert not cloud.subscriptions
        cloud.note("ana", "air", "late")
        wait_until(lambda: ana.counts.unclaimed == 1)
