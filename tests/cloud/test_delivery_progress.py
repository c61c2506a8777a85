"""What is done is never done again, and what is not is never forgotten, wherever the process dies."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import NatsServer

from spinney_cloud import delivery_progress
from spinney_cloud.delivery_progress import Journal, Progress, Resumed, tag_of
from spinney_cloud.delivery_start import find_start, together
from spinney_cloud.names import NOTES, notes_subject
from spinney_cloud.nats_log import Message, NatsLog, read_range
from spinney_cloud.positions import Position
from spinney_cloud.settings import Settings


def test_the_floor_stops_below_what_is_open() -> None:
    progress = Progress()
    for sequence in (1, 2, 3):
        progress.begin(sequence, 2, float(sequence))
    progress.done([(1, 0), (3, 0), (3, 1), (1, 1)])
    assert (progress.floor, progress.open, progress.last) == (1, 1, 3)
    progress.done([(2, 0), (2, 1)])
    assert (progress.floor, progress.open) == (3, 0)


def test_the_oldest_is_of_what_is_open() -> None:
    progress = Progress()
    assert progress.oldest is None
    for sequence in (1, 2):
        progress.begin(sequence, 1, 10.0 * sequence)
    progress.done([(2, 0)])
    assert progress.oldest == 10.0
    progress.done([(1, 0)])
    assert progress.oldest is None


def test_a_message_without_notifications_is_done_at_once() -> None:
    progress = Progress()
    assert progress.begin(1, 0, 1.0) == set()
    assert progress.floor == 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["read", "done", "done", "anew", "die"]), st.integers(0, 1 << 16)), max_size=60
)


@given(STEPS, st.lists(st.integers(0, 4), min_size=1, max_size=15))
def test_after_any_death_exactly_what_was_not_done_comes_again(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], counts: list[int]
) -> None:
    journal = Journal(tmp_path_factory.mktemp("journal") / "delivery.journal")
    messages = {sequence: (count, 100.0 + sequence) for sequence, count in enumerate(counts, 1)}
    done: set[tuple[int, int]] = set()
    waiting: list[tuple[int, int]] = []
    unread: list[int] = []
    progress = Progress()

    def start(resumed: Resumed | None) -> None:
        nonlocal progress
        progress = Progress(resumed)
        if resumed is None:
            journal.begin(progress.header())
        else:
            journal.go_on()
        unread[:] = [*sorted(resumed.open if resumed else ()), *(s for s in messages if s > progress.last)]
        waiting.clear()

    def read(sequence: int) -> None:
        count, time = messages[sequence]
        skipped = progress.begin(sequence, count, time)
        assert skipped == {index for index in range(count) if (sequence, index) in done}
        waiting.extend((sequence, index) for index in range(count) if index not in skipped)

    start(None)
    for what, number in steps:
        if what == "read" and unread:
            read(unread.pop(0))
        elif what == "done" and waiting:
            place = waiting.pop(number % len(waiting))
            progress.done([place])
            done.add(place)
            journal.add(progress.take_entries())
        elif what == "anew" and progress.settled():
            journal.begin(progress.header())
        elif what == "die":
            journal.close()
            resumed = journal.read()
            assert resumed is not None
            start(resumed)
    while unread:
        read(unread.pop(0))
    for place in waiting:
        progress.done([place])
        done.add(place)
    assert done == {(sequence, index) for sequence, (count, _) in messages.items() for index in range(count)}
    assert (progress.floor, progress.open) == (len(messages), 0)
    journal.close()


def test_half_an_entry_and_the_zeros_of_a_power_cut_end_a_journal(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "delivery.journal")
    progress = Progress()
    journal.begin(progress.header())
    progress.begin(1, 1, 1.0)
    progress.done([(1, 0)])
    journal.add(progress.take_entries())
    whole = journal.path.read_bytes()
    for tail in (b"\1\2\3", bytes(64)):
        journal.path.write_bytes(whole + tail)
        resumed = journal.read()
        assert resumed is not None
        assert set(resumed.later) == {1}
    journal.path.write_bytes(whole + b"\1\2\3")
    journal.go_on()
    progress.begin(2, 1, 2.0)
    progress.done([(2, 0)])
    journal.add(progress.take_entries())
    resumed = journal.read()
    assert resumed is not None
    assert set(resumed.later) == {1, 2}
    journal.close()


def test_an_entry_for_which_there_is_no_room_is_not_begun(tmp_path: Path) -> None:
    """What the disk took of it would have shifted all that came after."""
    journal = Journal(tmp_path / "delivery.journal")
    progress = Progress()
    journal.begin(progress.header())
    before = journal.path.stat().st_size
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    for sequence in (1, 2):
        progress.begin(sequence, 1, float(sequence))
        progress.done([(sequence, 0)])
    resource.setrlimit(resource.RLIMIT_FSIZE, (before + 24, most[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.add(progress.take_entries())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert journal.path.stat().st_size == before
    progress.begin(3, 1, 3.0)
    progress.done([(3, 0)])
    journal.add(progress.take_entries())
    resumed = journal.read()
    assert resumed is not None
    assert set(resumed.later) == {3}
    journal.close()


@pytest.mark.parametrize(
    "text", [b"", b"rubbish", b'{"v":2,"last":1,"tag":0,"time":0,"open":[]}\n', b"[]\n", b'{"v":1}\n']
)
def test_a_journal_that_cannot_be_read_is_none(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "delivery.journal"
    assert Journal(path).read() is None
    path.write_bytes(text)
    assert Journal(path).read() is None


def test_a_journal_is_written_anew_when_it_is_long(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "delivery.journal")
    journal.begin(Progress().header())
    journal.add(bytes(delivery_progress.MAX_JOURNAL_BYTES))
    assert journal.is_long
    journal.begin(Progress().header())
    assert not journal.is_long
    journal.close()


def test_what_was_done_of_a_number_that_was_given_again_counts_for_nothing() -> None:
    resumed = Resumed(last=1, tag=tag_of(1.0), time=1.0)
    resumed.add(2, 0, tag_of(2.0))
    progress = Progress(resumed)
    assert progress.begin(2, 2, 2.5) == set()


def test_messages_that_are_near_are_read_together() -> None:
    assert list(together([5, 1, 90, 400, 401])) == [(1, 90), (400, 401)]
    assert list(together([])) == []


# ---- Where to go on, with a real log ----------------------------------------------------------------------------


def with_log(nats: NatsServer, scenario: Callable[[NatsLog, list[Message]], Awaitable[None]]) -> None:
    """A notification log of ten messages."""

    async def whole() -> None:
        async with await NatsLog.connect(nats.endpoints(), name="test") as log:
            await log.ensure(Settings())
            writer = log.writer(NOTES)
            for _ in range(10):
                await (await writer.put(notes_subject("default"), b"{}"))
            messages = [message async for batch in read_range(log, NOTES, 1, 10) for message in batch]
            await scenario(log, messages)

    asyncio.run(asyncio.wait_for(whole(), 30))


def position(message: Message, floor: int) -> Position:
    return Position(NOTES, floor, message.sequence, message.time)


def test_the_journal_says_where_to_go_on_and_else_the_position(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, messages: list[Message]) -> None:
        at_six = messages[5]
        journal = Resumed(6, tag_of(at_six.time), at_six.time)
        assert (await find_start(log, journal, position(messages[4], 4))).last == 6
        assert (await find_start(log, None, position(messages[4], 4))).last == 4
        assert (await find_start(log, journal, position(messages[8], 8))).last == 8
        assert (await find_start(log, None, None)).last == 0
        await log.purge(NOTES, 7)
        assert (await find_start(log, journal, None)).last == 6
        assert (await find_start(log, None, None)).last == 7

    with_log(nats, scenario)


def test_a_log_whose_numbers_were_given_again_is_gone_on_with_by_time(nats: NatsServer) -> None:
    async def scenario(log: NatsLog, messages: list[Message]) -> None:
        between = (messages[3].time + messages[4].time) / 2
        for beyond in (8, 50):
            journal = Resumed(beyond, tag_of(between), between)
            assert (await find_start(log, journal, None)).last == 4
            kept = Position(NOTES, beyond, beyond, between)
            assert (await find_start(log, None, kept)).last == 4

    with_log(nats, scenario)
