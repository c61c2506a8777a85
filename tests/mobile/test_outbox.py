"""The outbox: all of an append or nothing, bounded by bytes and age, and what is dropped leaves its labels behind."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from spinney import Label, Mark
from spinney.client import OutboxFailed, segment
from spinney.client.segment import Segment
from spinney_mobile import outbox as outbox_module
from spinney_mobile.outbox import Outbox, OutRecord, decode, is_silent
from spinney_mobile.settings import Outbox as Settings

DIGEST = "0123456789abcdef"


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def opened(folder: Path, clock: Clock | None = None, **settings: Any) -> Outbox:
    outbox = Outbox(folder, Settings(**settings), clock=clock)
    outbox.open()
    return outbox


def reading(number: int, source: str = "m1", **more: Any) -> dict[str, Any]:
    return {"id": f"{source}:1:{number}", "source": source, "n": number, **more}


def label(number: int, bit: bool, source: str = "m1") -> Label:
    return Label(Mark(source, (7, 1, number), bit))


def record(number: int, bit: bool | None = None, source: str = "m1", digest: str = DIGEST, **more: Any) -> OutRecord:
    labels = {} if bit is None else {digest: label(number, bit, source)}
    return OutRecord(reading(number, source, **more), 7, labels)


def numbers(outbox: Outbox) -> list[int]:
    return [entry.id.sequence for entry in outbox.log.entries() if not is_silent(entry)]


def silent(outbox: Outbox) -> list[tuple[str, str, int, bool]]:
    """Filter, source, sequence and bit of all silent labels."""
    return [
        (digest, one.mark.source, one.mark.order[2], one.mark.bit)
        for entry in outbox.log.entries()
        if is_silent(entry)
        for digest, one in decode(entry.data).labels.items()
    ]


def test_records_come_back_as_they_were_with_time_epoch_and_labels(tmp_path: Path) -> None:
    clock = Clock()
    outbox = opened(tmp_path, clock)
    outbox.append([record(1), record(2, True, room="käfer")], {"bit:m1": b"\x00\x01"})
    clock.now += 5
    outbox.append([OutRecord(None, 9, {DIGEST: label(3, False)})], {"empty": b""})
    outbox.close()
    again = opened(tmp_path, clock)
    first, second, third = [decode(entry.data) for entry in again.log.entries()]
    assert json.loads(first.publication) == reading(1)
    assert (first.time, first.epoch, first.labels) == (1_000_000.0, 7, {})
    assert json.loads(second.publication) == reading(2, room="käfer")
    assert second.labels == {DIGEST: label(2, True)}
    assert (third.time, third.epoch, third.publication) == (1_000_005.0, 9, b"")
    assert again.state() == {"bit:m1": b"\x00\x01", "empty": b""}
    assert again.boot > outbox.boot
    assert again.status().records == 3
    assert again.status().oldest == 1_000_000.0
    assert again.intact
    again.close()


def test_a_cut_at_any_byte_leaves_a_transaction_whole_or_not_at_all(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    outbox.append([record(1)], {"bit": b"1"})
    size = outbox.log.file_bytes
    outbox.append([record(2), record(3)], {"bit": b"3", "more": b"m"})
    outbox.close()
    (file,) = tmp_path.glob("*.seg")
    whole = file.read_bytes()
    for cut in range(size, len(whole)):
        file.write_bytes(whole[:cut])
        again = opened(tmp_path)
        assert (numbers(again), again.state()) == ([1], {"bit": b"1"}), cut
        assert again.intact
        assert not list(tmp_path.glob("*.damaged"))
        again.close()
    file.write_bytes(whole)
    again = opened(tmp_path)
    assert (numbers(again), again.state()) == ([1, 2, 3], {"bit": b"3", "more": b"m"})
    again.close()


def test_damage_at_any_byte_gives_nothing_back_that_was_not_appended(tmp_path: Path) -> None:
    outbox = opened(tmp_path)
    for number in range(1, 5):
        outbox.append([record(number, number % 2 == 0)], {"n": b"%d" % number})
    outbox.close()
    (file,) = tmp_path.glob("*.seg")
    whole = file.read_bytes()
    records = segment.read(whole).records
    for at in range(len(whole)):
        for flip in (0x01, 0xFF):
            damaged = segment.read(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            assert damaged.records == records[: len(damaged.records)], at
            assert len(damaged.records) < len(records), at
            assert damaged.bad_bytes, at
    for at in range(len(segment.MAGIC), len(whole), 29):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        again = opened(tmp_path)
        kept = numbers(again)
        assert kept == list(range(1, len(kept) + 1)), at
        assert again.state() == ({"n": b"%d" % len(kept)} if kept else {}), at
        assert len(kept) < 4, at
        again.close()


def test_a_large_transaction_is_whole_or_not_there_wherever_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With parts so small that a cut at any byte can be tried."""
    monkeypatch.setattr("spinney.client.segment.MAX_BODY", 200)
    monkeypatch.setattr("spinney.client.disk_outbox._STATE_PART_BYTES", 50)
    outbox = opened(tmp_path)
    outbox.append([record(1)], {"k0": b"0"})
    size = outbox.log.file_bytes
    large = {f"k{n}": b"%d" % n * 20 for n in range(20)}
    outbox.append([record(2), record(3)], large)
    after = outbox.log.file_bytes
    outbox.append([record(4)])
    outbox.close()
    (file,) = tmp_path.glob("*.seg")
    whole = file.read_bytes()
    assert whole[size:after].count(b"CP") + whole[size:after].count(b"C\x00") > 2, "it comes in parts"
    for cut in range(size, after):
        content = segment.read(whole[:cut])
        assert (content.good_bytes, content.torn) == (size, cut > size), cut
    for cut in range(size, after, 150):
        file.write_bytes(whole[:cut])
        again = opened(tmp_path)
        assert (numbers(again), again.state()) == ([1], {"k0": b"0"}), cut
        assert again.intact, cut
        again.append([record(5)])
        again.close()
        last = opened(tmp_path)
        assert (numbers(last), last.state()) == ([1, 5], {"k0": b"0"}), cut
        last.close()
    file.write_bytes(whole)
    again = opened(tmp_path)
    assert (numbers(again), again.state()) == ([1, 2, 3, 4], large)
    again.close()


def test_a_state_of_any_size_and_what_comes_after_it_are_there_after_a_restart(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=1 << 20)
    large = {f"act:filter:{n}": b"%d" % (n % 10) * 100_000 for n in range(200)}
    outbox.append([record(1)], large)
    outbox.append([record(2)], {"after": b"1"})
    outbox.close()
    again = opened(tmp_path, max_bytes=1 << 20)
    assert numbers(again) == [1, 2]
    assert {key: value[:1] for key, value in again.state().items()} == {
        **{key: value[:1] for key, value in large.items()},
        "after": b"1",
    }
    assert again.intact
    assert again.log.has_room(100), "the state takes no room from readings"
    again.close()


def test_a_file_with_a_record_that_was_thought_too_long_to_read_is_read_to_its_end(tmp_path: Path) -> None:
    """Versions before this one wrote all of a state in one record, and took it for damage afterwards."""
    outbox = opened(tmp_path)
    outbox.append([record(1)])
    large = {"act:filter:1": b"x" * (segment.MAX_BODY + 1)}
    assert outbox.log._last is not None
    body = b"T" + segment.encode_state(large)
    outbox.log._last.append([struct.pack(">II", len(body), zlib.crc32(body)) + body])
    outbox.append([record(2)])
    outbox.close()
    again = opened(tmp_path)
    assert numbers(again) == [1, 2]
    assert {key: len(value) for key, value in again.state().items()} == {"act:filter:1": segment.MAX_BODY + 1}
    assert again.intact
    again.close()


def test_the_state_outlives_the_segments_that_it_was_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney.client.disk_outbox.SEGMENT_BYTES", 2_000)
    outbox = opened(tmp_path)
    outbox.append([], {"first": b"1", "gone": b"x"})
    outbox.append([], {"gone": None})
    for number in range(200):
        outbox.append([record(number)], {f"n{number % 7}": b"%d" % number})
        outbox.leave(list(outbox.log.entries()))
    assert len(list(tmp_path.glob("*.seg"))) <= 2
    expected = {"first": b"1"} | {f"n{n % 7}": b"%d" % n for n in range(193, 200)}
    assert outbox.state() == expected
    outbox.close()
    again = opened(tmp_path)
    assert again.state() == expected
    assert numbers(again) == []
    again.close()


def test_beyond_its_bytes_the_oldest_give_way_and_are_counted(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=20_000)
    for number in range(1_000):
        outbox.append([record(number, text="x" * 100)])
        assert outbox.log.bytes <= 20_000
    kept = numbers(outbox)
    assert kept == list(range(kept[0], 1_000))
    assert len(kept) > 50
    assert outbox.counts.dropped_full == kept[0] == outbox.status().dropped
    outbox.close()


def test_or_the_newest_where_that_is_set(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=20_000, drop="newest")
    for number in range(1_000):
        outbox.append([record(number, bit=number % 2 == 0 if number > 990 else None, text="x" * 100)])
    kept = numbers(outbox)
    assert kept == list(range(len(kept)))
    assert outbox.counts.dropped_full == 1_000 - len(kept)
    assert silent(outbox)[-1] == (DIGEST, "m1", 999, False)
    outbox.close()


def test_where_the_newest_give_way_their_labels_do_not_pile_up(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=4_000, drop="newest")
    for number in range(100):
        outbox.append([record(number, text="x" * 100)])
    size = outbox.log.bytes
    for number in range(100, 1_000):
        both = {f"{number % 3:016x}": label(number, True), f"{number % 5:015x}f": label(number, False)}
        outbox.append([OutRecord(reading(number, text="x" * 100), 7, both)])
    assert outbox.log.bytes < size + 8 * 400
    ends: dict[str, int] = {}
    for digest, _, number, _ in silent(outbox):
        ends[digest] = max(number, ends.get(digest, 0))
    assert ends == {f"{n % 3:016x}": n for n in range(997, 1_000)} | {f"{n % 5:015x}f": n for n in range(995, 1_000)}
    outbox.close()


def test_what_is_too_old_goes_and_what_is_younger_stays(tmp_path: Path) -> None:
    clock = Clock()
    outbox = opened(tmp_path, clock, max_age=60.0)
    for number in range(10):
        outbox.append([record(number, True if number == 3 else None)])
        clock.now += 10
    came: list[Any] = []
    outbox.on_append = came.extend
    outbox.drop_old()
    assert numbers(outbox) == [4, 5, 6, 7, 8, 9]
    assert [is_silent(entry) for entry in came] == [True], "who sends what comes in is told of what stays behind"
    assert outbox.counts.dropped_old == 4
    assert silent(outbox) == [(DIGEST, "m1", 3, True)]
    clock.now += 1_000
    outbox.drop_old()
    assert numbers(outbox) == []
    assert silent(outbox) == [(DIGEST, "m1", 3, True)]  # a bit has no age (rule S4)
    outbox.close()


def test_dropped_records_leave_exactly_the_newest_label_of_each_filter_and_source(tmp_path: Path) -> None:
    """Whatever is dropped, what the cloud ends up with is what it would have had (rule S2)."""
    chance = random.Random(5)
    for round_ in range(20):
        outbox = opened(tmp_path / str(round_), max_bytes=8_000)
        truth: dict[tuple[str, str], tuple[int, bool]] = {}
        for number in range(400):
            source, digest = f"m{chance.randrange(3)}", f"{chance.randrange(4):016x}"
            bit = chance.choice([None, None, True, False])
            outbox.append([record(number, bit, source, digest, text="x" * 50)])
            if bit is not None:
                truth[digest, source] = (number, bit)
        assert outbox.counts.dropped_full
        assert outbox.counts.labels_lost == 0
        if round_ % 2:
            outbox.close()
            outbox = opened(tmp_path / str(round_), max_bytes=8_000)
        ends: dict[tuple[str, str], tuple[int, bool]] = {}
        for entry in outbox.log.entries():
            for digest, one in decode(entry.data).labels.items():
                key, order = (digest, one.mark.source), one.mark.order[2]
                if order > ends.get(key, (-1, False))[0]:  # an older label is ignored
                    ends[key] = (order, one.mark.bit)
        assert ends == truth
        assert outbox.log.bytes <= 8_500
        outbox.close()


def test_labels_that_no_room_is_left_for_are_counted(tmp_path: Path) -> None:
    outbox = opened(tmp_path, max_bytes=4_000)
    for number in range(200):
        outbox.append([record(number, True, source=f"m{number}")])
    assert outbox.counts.labels_lost
    assert outbox.counts.labels_lost + len(silent(outbox)) + len(numbers(outbox)) == 200
    assert outbox.log.bytes <= 4_500
    outbox.close()


def test_without_room_on_the_disk_it_goes_on_in_memory_and_writes_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = opened(tmp_path)
    outbox.append([record(1)], {"a": b"1"})
    real = Segment.append

    def full(self: Segment, _: object) -> None:
        raise OutboxFailed(self.path, "No space left on device")

    monkeypatch.setattr(Segment, "append", full)
    for number in (2, 3, 4):
        outbox.append([record(number)], {"a": b"%d" % number})
    assert outbox.error
    assert "No space left" in outbox.error
    assert caplog.text.count("No space left on device: readings are kept in memory") == 1  # said once
    assert numbers(outbox) == [1, 2, 3, 4]
    outbox.leave([list(outbox.log.entries())[1]])
    monkeypatch.setattr(Segment, "append", real)
    monkeypatch.setattr(outbox_module, "DISK_RETRY_SECONDS", 0.0)
    outbox._disk_due = 0.0
    outbox.append([record(5)], {"b": b"2"})
    assert outbox.error is None
    assert outbox.log.in_memory == 0
    outbox.close()
    again = opened(tmp_path)
    assert numbers(again) == [1, 3, 4, 5]
    assert again.state() == {"a": b"4", "b": b"2"}
    again.close()


def test_a_damaged_file_is_set_aside_and_what_is_good_of_it_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outbox = opened(tmp_path)
    for number in range(10):
        outbox.append([record(number)], {"n": b"%d" % number})
    outbox.close()
    (file,) = tmp_path.glob("*.seg")
    whole = bytearray(file.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    file.write_bytes(whole)
    again = opened(tmp_path)
    kept = numbers(again)
    assert kept == list(range(len(kept)))
    assert 2 < len(kept) < 9
    assert not again.intact  # so bits are not known
    assert "was damaged" in caplog.text
    assert [copy.read_bytes() for copy in tmp_path.glob("*.damaged")] == [bytes(whole)]
    again.append([record(10)])
    again.close()
    last = opened(tmp_path)
    assert numbers(last) == [*kept, 10]
    assert last.intact
    last.close()


def test_a_file_of_nonsense_is_set_aside_too(tmp_path: Path) -> None:
    tmp_path.joinpath("0000000000000001.seg").write_bytes(b"nonsense")
    outbox = opened(tmp_path)
    assert numbers(outbox) == []
    assert not outbox.intact
    assert tmp_path.joinpath("0000000000000001.damaged").read_bytes() == b"nonsense"
    outbox.append([record(1)])
    outbox.close()
    again = opened(tmp_path)
    assert numbers(again) == [1]
    again.close()


@pytest.mark.parametrize(("sync", "intact"), [("interval", False), ("never", False), ("always", True)])
def test_after_a_power_cut_what_was_not_synced_is_not_believed_to_be_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sync: str, intact: bool
) -> None:
    outbox = opened(tmp_path, sync=sync)
    outbox.append([record(1)])
    os.close(outbox.log._lock)  # type: ignore[arg-type]  # it is open: as if the machine had gone down
    outbox.log._lock = None
    monkeypatch.setattr(outbox_module, "_machine_boot", lambda: "another start of the machine")
    again = opened(tmp_path, sync=sync)
    assert again.intact == intact
    again.close()
    outbox.log.close()


def test_a_clock_that_was_set_back_does_not_make_the_new_older_than_the_old(tmp_path: Path) -> None:
    later = Clock()
    later.now = 4e9  # beyond any machine's time
    outbox = opened(tmp_path, later)
    outbox.append([record(1)])
    outbox.close()
    again = opened(tmp_path, max_age=100.0)
    again.append([record(2)])
    again.drop_old()
    assert numbers(again) == [1, 2]
    first, second = [decode(entry.data).time for entry in again.log.entries()]
    assert first <= second < first + 60
    again.close()


def test_what_must_be_synced_is_synced_without_being_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "SYNC_SECONDS", 0.01)
    monkeypatch.setattr(outbox_module, "AGE_SECONDS", 0.01)

    async def scenario() -> None:
        outbox = opened(tmp_path)
        synced = asyncio.Event()
        loop = asyncio.get_running_loop()
        real = os.fsync

        def fsync(file: int) -> None:
            real(file)
            loop.call_soon_threadsafe(synced.set)

        monkeypatch.setattr(os, "fsync", fsync)
        task = asyncio.create_task(outbox.run())
        outbox.append([record(1)])
        await asyncio.wait_for(synced.wait(), 60)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        outbox.close()

    asyncio.run(scenario())


KILLED = """
import os, sys
from pathlib import Path
from spinney_mobile.outbox import Outbox, OutRecord
outbox = Outbox(Path(sys.argv[1]))
outbox.open()
number = int(outbox.state().get("n", b"0"))
while True:
    number += 1
    outbox.append([OutRecord({"id": f"m1:1:{number}", "n": number}, 1)] * 2, {"n": b"%d" % number})
    os.write(1, b"%d\\n" % number)
"""


@pytest.mark.slow
def test_killed_at_any_time_all_that_append_returned_for_is_there_with_its_state(tmp_path: Path) -> None:
    chance = random.Random(1)
    said = 0
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout
        for _ in range(chance.randrange(1, 400)):
            said = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        said = max([said, *(int(line) for line in process.stdout.read().split(b"\n")[:-1])])
        process.wait()
        process.stdout.close()
        outbox = opened(tmp_path)
        kept = numbers(outbox)
        last = int(outbox.state()["n"])
        assert last >= said
        assert kept == [number for number in range(1, last + 1) for _ in range(2)]
        assert outbox.intact
        outbox.close()
