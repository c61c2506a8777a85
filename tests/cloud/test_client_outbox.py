"""The outbox: first in, first out, bounded; on disk it survives a kill at any byte."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from servers import MosquittoServer
from stand_in import StandIn

from spinney import PublicationId
from spinney.client import DiskOutbox, NotStored, Outbox, OutboxFailed, OutboxFull, OutboxInUse, Publisher, segment
from spinney.client.outbox import Entry
from spinney.client.sending import Sending


def fill(outbox: Outbox, count: int, size: int = 20) -> list[Entry]:
    return [outbox.append(PublicationId("kit", outbox.boot, n), b"%0*d" % (size, n)) for n in range(count)]


def opened(folder: Path, **more: int) -> DiskOutbox:
    outbox = DiskOutbox(folder, **more)
    outbox.open()
    return outbox


def contents(folder: Path) -> list[bytes]:
    outbox = opened(folder)
    kept = [entry.data for entry in outbox.entries()]
    outbox.close()
    return kept


class AnyOutbox(RuleBasedStateMachine):
    """Against a list: memory and disk alike, the disk's also after it is opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Outbox(max_count=50, max_bytes=1_000)
        self.memory.open()
        self.model: list[Entry] = []

    @rule(size=st.integers(1, 200))
    def append(self, size: int) -> None:
        fits = not self.model or (len(self.model) < 50 and sum(len(e.data) for e in self.model) + size <= 1_000)
        if fits:
            self.model.append(self.memory.append(PublicationId("kit", 1, self.memory.end), b"x" * size))
        else:
            with pytest.raises(OutboxFull):
                self.memory.append(PublicationId("kit", 1, 0), b"x" * size)

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        gone = data.draw(st.lists(st.sampled_from(self.model), unique=True))
        assert self.memory.leave(gone) == gone
        assert self.memory.leave(gone) == []
        self.model = [entry for entry in self.model if entry not in gone]

    @invariant()
    def same(self) -> None:
        assert list(self.memory.entries()) == self.model
        assert self.memory.count == len(self.model)
        assert self.memory.bytes == sum(len(entry.data) for entry in self.model)
        place = self.model[len(self.model) // 2].place if self.model else 0
        assert list(self.memory.entries(place)) == [entry for entry in self.model if entry.place >= place]
        assert len(self.memory._entries) <= 2 * len(self.model) + 50  # it does not grow for ever


TestAnyOutbox = AnyOutbox.TestCase


def test_on_disk_what_has_not_left_is_there_next_time_in_order(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    entries = fill(outbox, 10)
    outbox.leave([entries[0], entries[1], entries[5]])
    outbox.close()
    again = opened(tmp_path)
    assert [entry.id.sequence for entry in again.entries()] == [2, 3, 4, 6, 7, 8, 9]
    assert list(again.entries()) == [entries[n] for n in (2, 3, 4, 6, 7, 8, 9)]
    assert again.boot > outbox.boot
    assert (again.count, again.bytes) == (7, 7 * 20)
    again.close()


def test_a_kill_at_any_byte_of_a_write_leaves_all_that_was_whole(tmp_path: Path) -> None:
    folder = tmp_path / "outbox"
    outbox = opened(folder)
    entries = fill(outbox, 4)
    outbox.leave([entries[0]])
    entries += [outbox.append(PublicationId("kit", outbox.boot, 4), b"last")]
    outbox.close()
    (file,) = folder.glob("*.seg")
    whole = file.read_bytes()
    ends = [len(segment.MAGIC)]
    for record in [segment.encode_publication(entry) for entry in entries[:4]]:
        ends.append(ends[-1] + len(record))
    ends += [ends[-1] + len(segment.encode_left([0]))]
    ends += [ends[-1] + len(segment.encode_publication(entries[4]))]
    assert ends[-1] == len(whole)
    for cut in range(len(whole) + 1):
        file.write_bytes(whole[:cut])
        records = sum(end <= cut for end in ends[1:])
        expected = entries[: min(records, 4)][records >= 5 :] + entries[4:][: records >= 6]
        again = opened(folder)
        assert [entry.data for entry in again.entries()] == [entry.data for entry in expected], cut
        good = max((end for end in ends if end <= cut), default=0)
        assert again.cut_bytes == cut - good, cut
        # It goes on from there, and what it adds is whole, too.
        again.append(PublicationId("kit", again.boot, 0), b"new")
        again.close()
        assert contents(folder) == [entry.data for entry in expected] + [b"new"]


def test_a_flipped_bit_is_noticed_and_what_was_before_it_is_kept(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    fill(outbox, 20)
    outbox.close()
    (file,) = tmp_path.glob("*.seg")
    whole = file.read_bytes()
    for seed in range(60):
        at = random.Random(seed).randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << seed % 8)]) + whole[at + 1 :])
        content = segment.read(file.read_bytes())
        assert [entry.data for entry in content.records if isinstance(entry, Entry)] == [
            b"%020d" % n for n in range(len(content.records))
        ]
        assert content.good_bytes <= at
        assert content.good_bytes + content.bad_bytes == len(whole)


@given(st.binary(max_size=200))
def test_any_bytes_can_be_read_as_a_segment(data: bytes) -> None:
    for text in (data, segment.MAGIC + data):
        content = segment.read(text)
        assert content.good_bytes + content.bad_bytes == len(text)


def test_a_damaged_segment_between_others_costs_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney.client.disk_outbox.SEGMENT_BYTES", 300)
    outbox = opened(tmp_path)
    fill(outbox, 30)
    outbox.close()
    files = sorted(tmp_path.glob("*.seg"))
    assert len(files) > 3
    files[1].write_bytes(files[1].read_bytes()[:-1] + b"\xff")
    again = opened(tmp_path)
    kept = [entry.id.sequence for entry in again.entries()]
    assert set(range(30)) - set(kept) == {max(set(range(30)) - set(kept))}
    assert again.cut_segments == 1
    again.close()


def test_segments_go_when_nothing_in_them_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney.client.disk_outbox.SEGMENT_BYTES", 1_000)
    outbox = opened(tmp_path)
    for _ in range(50):
        outbox.leave(fill(outbox, 20))
        assert len([*tmp_path.glob("*.seg")]) <= 2
        assert outbox.file_bytes == sum(file.stat().st_size for file in tmp_path.glob("*.seg"))
    (kept, *rest) = fill(outbox, 100)
    outbox.leave(rest)
    outbox.close()
    again = opened(tmp_path)
    assert list(again.entries()) == [kept]
    again.leave([kept])
    assert len([*tmp_path.glob("*.seg")]) == 1
    again.close()


def test_the_files_are_bounded_also_while_the_oldest_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinney.client.disk_outbox.SEGMENT_BYTES", 1_000)
    outbox = opened(tmp_path, max_bytes=5_000)
    outbox.append(PublicationId("kit", 1, 0), b"the oldest")

    def use() -> None:
        for n in range(10_000):
            outbox.leave([outbox.append(PublicationId("kit", 1, n), b"x" * 100)])

    with pytest.raises(OutboxFull):
        use()
    assert outbox.file_bytes < 2 * 5_000 + 3 * 1_000
    outbox.close()


def test_one_outbox_has_one_publisher_at_a_time(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    with pytest.raises(OutboxInUse) as error:
        Publisher("kit", outbox=tmp_path)
    assert error.value.folder == tmp_path
    outbox.close()
    Publisher("kit", outbox=tmp_path).close()


def test_boots_grow_whatever_the_clock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boots = []
    for clock in (4e9, 1.7e9, 0.0):
        monkeypatch.setattr(time, "time_ns", lambda clock=clock: int(clock * 1e9))
        monkeypatch.setattr("spinney.client.outbox._last_boot", 0)
        outbox = opened(tmp_path)
        boots.append(outbox.boot)
        outbox.close()
    assert boots[0] == 4_000_000_000_000
    assert boots == sorted(set(boots))


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutboxFailed) as error:
        DiskOutbox(tmp_path / "file" / "outbox").open()
    assert "file" in str(error.value)


def test_a_disk_without_room_is_told_and_nothing_is_half_written(tmp_path: Path) -> None:
    program = """
import resource, signal, sys
from pathlib import Path
from spinney import PublicationId
from spinney.client import DiskOutbox, OutboxFailed
outbox = DiskOutbox(Path(sys.argv[1]))
outbox.open()
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
kept = []
for n in range(100):
    try:
        kept.append(outbox.append(PublicationId("kit", 1, n), b"%050d" % n))
    except OutboxFailed as error:
        assert "0001.seg" in str(error), error
        break
assert outbox.count == len(kept) < 100
outbox.leave(kept[:1])
assert outbox.unsaved + 1 >= 1
print(len(kept))
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True)
    outbox = opened(tmp_path)
    assert outbox.cut_bytes == 0
    assert outbox.count in (int(done.stdout) - 1, int(done.stdout))
    outbox.close()


PUBLISHING = """
import sys
from pathlib import Path
from spinney.client import Publisher
kit = Publisher("kit", server=sys.argv[1], outbox=Path(sys.argv[2]), when_full="wait")
kit.connect(0)
n = int(sys.argv[3])
while True:
    receipt = kit.publish({"n": n})
    print(n, flush=True)   # from now on it must not be lost
    n += 1
"""


@pytest.mark.slow
def test_kill_9_of_a_publishing_process_loses_nothing_that_publish_returned_for(
    mosquitto: MosquittoServer, tmp_path: Path
) -> None:
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    randomly = random.Random(seed)
    first = 0
    with StandIn(mosquitto.mqtt_port) as cloud:
        server = f"mqtt://127.0.0.1:{mosquitto.mqtt_port}"
        for _ in range(4):
            command = [sys.executable, "-c", PUBLISHING, server, str(tmp_path / "outbox"), str(first)]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                returned = [process.stdout.readline() for _ in range(randomly.randrange(1, 2_000))]
                process.send_signal(signal.SIGKILL)
                returned += process.stdout.read().splitlines()
            first = int(returned[-1]) + 1
        with Publisher("kit", server=server, outbox=tmp_path / "outbox") as kit:
            kit.flush(20)
        arrived = {int(item["n"]) for item in cloud.log}
        sources = [PublicationId.parse(item["id"]) for item in cloud.log]
    assert len({id.boot for id in sources}) >= 4
    assert arrived >= set(range(first))
    # The order of first arrival is that of publishing, within each boot.
    for boot in {id.boot for id in sources}:
        numbers = list(dict.fromkeys(id.sequence for id in sources if id.boot == boot))
        assert numbers == sorted(numbers)


def test_what_an_outbox_kept_goes_out_first_next_time(mosquitto: MosquittoServer, tmp_path: Path) -> None:
    server = f"mqtt://127.0.0.1:{mosquitto.mqtt_port}"
    before = Publisher("kit", server=server, outbox=tmp_path)
    before.publish_batch({"n": n} for n in range(100))
    before.close()  # nothing is lost: it is on disk
    with StandIn(mosquitto.mqtt_port) as cloud, Publisher("kit", server=server, outbox=tmp_path) as kit:
        kit.publish({"n": 100})
        kit.flush(10)
        assert [item["n"] for item in cloud.log] == list(range(101))
    assert contents(tmp_path) == []


def test_a_policy_of_always_has_each_publication_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(file))
    for policy, at_least in (("always", 10), ("never", 0)):
        outbox = DiskOutbox(tmp_path / policy, sync=policy)  # type: ignore[arg-type]  # one of its words
        outbox.open()
        synced.clear()
        fill(outbox, 10)
        assert len(synced) == at_least
        outbox.close()


def test_a_policy_of_interval_syncs_soon_after_without_being_asked(tmp_path: Path) -> None:
    program = """
import os, sys, time
from pathlib import Path
from spinney.client import Publisher
synced = []
real = os.fsync
kit = Publisher("kit", outbox=Path(sys.argv[1]))
os.fsync = lambda file: (synced.append(os.readlink(f"/proc/self/fd/{file}")), real(file))
kit.publish({"n": 0})
deadline = time.monotonic() + 10
while not synced and time.monotonic() < deadline:
    time.sleep(0.01)
assert synced[0].endswith(".seg"), synced
kit.close()
"""
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True)


def test_a_memory_outbox_that_is_closed_too_early_says_how_much_is_lost() -> None:
    kit = Publisher("kit")
    kit.publish_batch({"n": n} for n in range(7))
    with pytest.raises(NotStored) as error:
        kit.close()
    assert error.value.count == 7


class Time:
    """A clock for Sending, which has none."""

    now = 100.0


def make_sending(**more: float) -> tuple[Outbox, Sending]:
    outbox = Outbox()
    outbox.open()
    return outbox, Sending(outbox, "p", **more)  # type: ignore[arg-type]  # its options


def numbers(payload: bytes) -> list[int]:
    return [int(number) for number in json.loads(payload)["publications"]]


def send_all(sending: Sending, now: float) -> list[tuple[str, list[int]]]:
    sent = []
    while (message := sending.next(now)) is not None:
        sent.append((message.batch, numbers(message.payload)))
    return sent


def add(outbox: Outbox, sending: Sending, *values: int) -> None:
    for value in values:
        sending.appended(outbox.append(PublicationId("kit", outbox.boot, value), b"%d" % value), Time.now)


def test_the_window_reaches_from_the_oldest_unanswered_batch() -> None:
    outbox, sending = make_sending(window=3, batch_bytes=2)
    add(outbox, sending, *range(1, 8))
    assert [numbers for _, numbers in send_all(sending, Time.now)] == [[1], [2], [3]]
    sending.stored({"stored": {}, "batch": "p-2"})
    assert send_all(sending, Time.now) == []
    sending.stored({"stored": {}, "batch": ["p-1"]})
    assert [numbers for _, numbers in send_all(sending, Time.now)] == [[4], [5]]


def test_what_lingers_goes_when_its_time_is_over_or_a_message_is_full_or_in_a_hurry() -> None:
    outbox, sending = make_sending(linger_seconds=5.0, batch_bytes=8)
    add(outbox, sending, 1, 2)
    assert send_all(sending, 104.9) == []
    assert sending.due(101.0) == 105.0
    assert send_all(sending, 105.0) == [("p-1", [1, 2])]
    add(outbox, sending, 3)
    assert send_all(sending, 100.0) == []
    sending.hurry = True
    assert send_all(sending, 100.0) == [("p-2", [3])]
    sending.hurry = False
    add(outbox, sending, 10_000, 20_000)
    assert send_all(sending, 100.0) == [("p-3", [10_000])]
    assert send_all(sending, 105.0) == [("p-4", [20_000])]


def test_unanswered_batches_go_again_later_and_later_from_when_the_server_had_them() -> None:
    outbox, sending = make_sending(resend_seconds=10.0)
    add(outbox, sending, 1, 2)
    send_all(sending, 100.0)
    assert not sending.overdue(150.0)  # the server does not have it yet
    assert sending.unheard(160.0)
    sending.acked("p-1", 150.0)
    assert not sending.overdue(159.0)
    assert sending.due(155.0) == 160.0
    assert sending.overdue(160.0)
    assert send_all(sending, 160.0) == [("p-2", [1, 2])]
    sending.acked("p-2", 160.0)
    assert not sending.overdue(179.0)
    assert sending.overdue(180.0)
    # A late answer to the first attempt counts, and patience is as it was.
    assert len(sending.stored({"stored": {}, "batch": "p-1"})) == 2
    assert outbox.count == 0
    add(outbox, sending, 3)
    ((batch, _),) = send_all(sending, 200.0)
    sending.acked(batch, 200.0)
    assert sending.due(200.0) == 210.0


def test_a_refusal_of_a_whole_message_takes_all_of_it() -> None:
    outbox, sending = make_sending()
    add(outbox, sending, 1, 2)
    send_all(sending, Time.now)
    refused = sending.refused({"refused": [{"row": None, "reason": "unreadable"}], "batch": "p-1"})
    assert [(entry.data, reason) for entry, reason in refused] == [(b"1", "unreadable"), (b"2", "unreadable")]
    assert outbox.count == 0
    assert sending.due(Time.now) is None or send_all(sending, Time.now) == []


def test_answers_that_make_no_sense_change_nothing() -> None:
    outbox, sending = make_sending()
    add(outbox, sending, 1, 2)
    send_all(sending, Time.now)
    for reply in (
        {"stored": 7},
        {"stored": {"kit": 3}},
        {"stored": {"kit": [1]}},
        {"stored": {"other": [10**15, 0]}},
        {"stored": {}, "batch": {"a": 1}},
        {"stored": {}, "batch": "q-1"},
        {"stored": {}, "batch": [None, 3]},
        {"refused": {"row": 0}},
        {"refused": [{"row": 7, "id": "nobody"}], "batch": "p-1"},
    ):
        assert sending.stored(reply) == []
        assert sending.refused(reply) == []
    assert outbox.count == 2
