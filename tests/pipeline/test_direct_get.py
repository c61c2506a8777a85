"""Reading the log by batched direct get: the same messages as the cloud's own reader, over whatever happens."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit import city, direct, make_log, messages, publications, purge, put
from servers import HOST, NatsServer

from spinney_cloud.certs import Certificates
from spinney_cloud.log_errors import Refused, StreamMissing, Unavailable
from spinney_cloud.names import LOG, READERS, log_subject
from spinney_cloud.pipeline import direct_get
from spinney_cloud.pipeline.direct_get import DirectGet, LogServer
from spinney_cloud.pipeline.wire import Arrived, Wire
from spinney_cloud.records import SubscriptionChange
from spinney_cloud.service import write_run
from spinney_cloud.settings import Settings


def test_messages_are_those_of_the_cloud_s_own_reader(nats: NatsServer) -> None:
    """Data, subjects, and times to the last bit."""
    make_log(nats)
    put(nats, city(2_500, rows=1))
    with direct(nats) as log:
        assert list(log.range(LOG, 1, 2_500)) == messages(nats)
        assert [one.sequence for one in log.range(LOG, 1_001, 1_003)] == [1_001, 1_002, 1_003]
        assert list(log.range(LOG, 2_501, 9_999)) == []
        assert list(log.range(LOG, 10, 9)) == []


def test_what_is_purged_is_left_out(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(20, rows=1))
    purge(nats, 12)
    with direct(nats) as log:
        assert log.bounds(LOG)[:3] == (13, 20, 8)
        assert [one.sequence for one in log.range(LOG, 1, 15)] == [13, 14, 15]
        first = log.first_from(LOG, 1)
        assert first is not None
        assert first.sequence == 13
        assert log.first_from(LOG, 21) is None


def test_large_messages_come_in_several_requests(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_get, "BATCH_BYTES", 100_000)
    make_log(nats)
    put(nats, [publications("m", at, [{"text": "x" * 60_000}]) for at in range(10)])
    with direct(nats) as log:
        assert [len(one.data) > 60_000 for one in log.range(LOG, 1, 10)] == [True] * 10


class Mixing(DirectGet):
    """As if several servers answered: all that comes of the newest question is met before what is left of others."""

    def __init__(self, url: str) -> None:
        super().__init__(LogServer(url).endpoints())
        self.mixed = 0
        self._waiting: deque[Arrived] = deque()
        self._whole = 0

    def _connect(self) -> Wire:
        wire: Any = super()._connect()
        come = wire.next
        wire.next = lambda: self._mixed(come)
        return wire

    def _mixed(self, come: Callable[[], Arrived]) -> Arrived:
        while self._whole < self._number:
            arrived = come()
            if arrived.subject.endswith(b".%d" % self._number):
                self.mixed += bool(self._waiting)
                if arrived.headers.startswith((b"NATS/1.0 204", b"NATS/1.0 404")) or not arrived.headers:
                    self._whole = self._number
                return arrived
            self._waiting.append(arrived)
        return self._waiting.popleft() if self._waiting else come()


@pytest.mark.parametrize("mixing", [False, True])
def test_batches_that_are_asked_for_ahead_come_in_order(
    nats: NatsServer, mixing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct_get, "BATCH", 5)
    monkeypatch.setattr(direct_get, "BATCH_BYTES", 100_000)
    make_log(nats)
    large = [publications("m", at, [{"text": "x" * 60_000}]) for at in range(3)]
    put(nats, [*city(42, rows=1), *large, *city(17, rows=1, first=42)])
    purge(nats, 3)
    with Mixing(nats.url) if mixing else direct(nats) as log:
        for last in (1, 8, 13, 25, 43, 44, 45, 60, 62, 99):
            assert [one.sequence for one in log.range(LOG, 1, last)] == list(range(4, min(last, 62) + 1))
            assert log.bounds(LOG).last == 62
        assert not isinstance(log, Mixing) or log.mixed > 20


def test_the_newest_record_of_a_subject_up_to_a_place(nats: NatsServer) -> None:
    make_log(nats)
    change = SubscriptionChange("default", "0001.default.me.s", None)
    put(nats, [*city(2), change, *city(2), change, SubscriptionChange("other", "0001.other.me.s", None)])
    with direct(nats) as log:
        subject = log_subject("subscription", "*")
        assert [log.last_of_subject(LOG, subject, upto) for upto in (1, 3, 5, 6, 7)] == [0, 3, 3, 6, 7]


def test_a_server_that_is_killed_and_comes_back_is_read_on(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(5_000, rows=1))
    with direct(nats) as log:
        found = []
        for message in log.range(LOG, 1, 5_000):
            if len(found) == 1_500:
                nats.kill()
                nats.start()
            found.append(message.sequence)
        assert found == list(range(1, 5_001))
        assert log.reconnected >= 2


def test_a_server_that_stays_away_is_named(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_get, "RETRY_SECONDS", 0.3)
    with direct(nats) as log:
        nats.kill()
        with pytest.raises(Unavailable, match=str(nats.port)):
            log.bounds(LOG)


def test_a_connection_that_the_server_gave_up_is_made_anew(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(3))
    with direct(nats) as log:
        assert log.bounds(LOG).last == 3
        nats.kill()
        nats.start()
        assert log.bounds(LOG).last == 3


def test_a_server_without_the_log_is_no_silent_end(nats: NatsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_get, "RETRY_SECONDS", 0.3)
    with direct(nats) as log:
        with pytest.raises(StreamMissing):
            log.bounds(LOG)
        with pytest.raises(Unavailable, match="no such stream"):
            list(log.range(LOG, 1, 10))


def test_a_value_is_put_into_a_bucket_and_read_again(nats: NatsServer) -> None:
    make_log(nats)
    stream, subject = f"KV_{READERS}", f"$KV.{READERS}.pipeline"
    with direct(nats) as log:
        assert log.newest_in_bucket(stream, subject) is None
        log.publish(subject, b"one")
        log.publish(subject, b"two")
        assert log.newest_in_bucket(stream, subject) == b"two"


def test_two_ranges_at_once_are_refused_and_not_mixed(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(50, rows=1))
    with direct(nats) as log:
        one = log.range(LOG, 1, 50)
        next(one)
        assert [each.sequence for each in log.range(LOG, 1, 50)] == list(range(1, 51))
        with pytest.raises(RuntimeError, match="one range at a time"):
            list(one)


def test_a_user_with_a_password_from_a_file(tmp_path: Path) -> None:
    users = 'authorization { users = [ { user: "core", password: "s3cret" } ] }'
    with NatsServer(tmp_path / "nats", extra=users) as nats:
        secret = tmp_path / "password"
        secret.write_text("s3cret\n")
        server = LogServer(nats.url, user="core", password_file=str(secret))
        assert "s3cret" not in str(server.options())
        with DirectGet(server.endpoints()) as log, pytest.raises(StreamMissing):
            log.bounds(LOG)
        with DirectGet(LogServer(nats.url).endpoints()) as log, pytest.raises(Refused, match="Authorization"):
            log.bounds(LOG)


def test_tls_with_the_cloud_s_own_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_get, "RETRY_SECONDS", 0.2)
    made = Certificates(tmp_path / "data")
    made.make_ca()
    certificate = made.make_server([HOST])
    tls = f'tls {{ cert_file: "{certificate}", key_file: "{made.key_path("server")}" }}'
    with NatsServer(tmp_path / "nats", extra=tls) as nats:
        url = f"tls://{HOST}:{nats.port}"
        with DirectGet(LogServer(url, ca=str(made.path("ca"))).endpoints()) as log, pytest.raises(StreamMissing):
            log.bounds(LOG)
        with DirectGet(LogServer(url).endpoints()) as log, pytest.raises(Unavailable, match=r"(?i)certificate"):
            log.bounds(LOG)


def test_the_run_file_of_a_cloud_says_it_all(nats: NatsServer, tmp_path: Path) -> None:
    make_log(nats)
    write_run(tmp_path / "run.json", Settings(), nats.endpoints())
    with DirectGet(LogServer.from_options({"run": str(tmp_path / "run.json")}).endpoints()) as log:
        assert log.bounds(LOG).last == 0


def test_one_of_several_addresses_will_do(nats: NatsServer) -> None:
    make_log(nats)
    with DirectGet(LogServer(f"nats://{HOST}:1,{nats.url}").endpoints()) as log:
        assert log.bounds(LOG).last == 0


def test_what_comes_while_it_is_read_does_not_disturb(nats: NatsServer) -> None:
    make_log(nats)
    put(nats, city(500, rows=1))
    writer = threading.Thread(target=put, args=(nats, city(500, rows=1, first=500)))
    writer.start()
    with direct(nats) as log:
        at, deadline = 0, time.monotonic() + 60
        while at < 1_000 and time.monotonic() < deadline:
            for message in log.range(LOG, at + 1, 1_000):
                assert message.sequence == at + 1
                at = message.sequence
    writer.join()
    assert at == 1_000
