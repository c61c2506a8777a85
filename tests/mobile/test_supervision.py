"""What keeps acquirers going: each fails alone, is tried again, later and later, and is shown."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable

import pytest
from hearing_kit import Kept

from spinney_mobile.acquire import Acquirers
from spinney_mobile.acquire.supervision import MAX_ACQUIRERS
from spinney_mobile.samples import Acquirer, AcquirerError, Sample, Sink
from spinney_tools.sim import clock


class Odd(Acquirer):
    """Does what a test wants of it, and notes when."""

    def __init__(self, name: str, play: Callable[[Sink, int], object]) -> None:
        super().__init__(name)
        self.play = play
        self.starts: list[float] = []
        self.is_running = False

    async def run(self, sink: Sink) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        self.is_running = True
        try:
            self.play(sink, len(self.starts))
            await asyncio.Event().wait()
        finally:
            self.is_running = False


def fails(_sink: Sink, _start: int) -> None:
    raise AcquirerError("no cable", "plug one in")


def has_a_bug(_sink: Sink, _start: int) -> None:
    raise ZeroDivisionError("a bug")


def hears(sink: Sink, _start: int) -> None:
    sink.sampled(Sample("s", {"v": 1.0}, 0, 0, "odd"))


def on(*acquirers: Acquirer, seconds: float, then: Callable[[Acquirers], None]) -> None:
    async def main() -> None:
        async with Acquirers(Kept(), clock=asyncio.get_running_loop().time) as kept:
            for acquirer in acquirers:
                kept.add(acquirer)
            await asyncio.sleep(seconds)
            then(kept)

    clock.run(main())


def test_one_that_fails_takes_no_other_with_it_and_says_what_to_do() -> None:
    bad, buggy, good = Odd("bad", fails), Odd("buggy", has_a_bug), Odd("good", hears)

    def then(acquirers: Acquirers) -> None:
        shown = {status.name: (status.state, status.error) for status in acquirers.status()}
        assert shown == {
            "bad": ("failed", "no cable: plug one in"),
            "buggy": ("failed", "ZeroDivisionError: a bug"),
            "good": ("hearing", None),
        }

    on(bad, buggy, good, seconds=1, then=then)
    assert not good.is_running, "all are stopped at the end"


def test_retries_come_later_and_later_up_to_a_bound() -> None:
    bad = Odd("bad", fails)
    on(bad, seconds=250, then=lambda _acquirers: None)
    gaps = [after - before for before, after in zip(bad.starts, bad.starts[1:], strict=False)]
    assert gaps == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_after_something_was_heard_the_first_retry_is_soon_again() -> None:
    def both(sink: Sink, start: int) -> None:
        if start in (5, 6):
            hears(sink, start)
        fails(sink, start)

    bad = Odd("bad", both)
    on(bad, seconds=30, then=lambda _acquirers: None)
    gaps = [after - before for before, after in zip(bad.starts, bad.starts[1:], strict=False)]
    assert gaps[:7] == [1, 2, 4, 8, 1, 1, 2]


def test_a_retry_may_be_asked_for() -> None:
    async def main() -> None:
        bad = Odd("bad", fails)
        async with Acquirers(Kept()) as acquirers:
            acquirers.add(bad)
            await asyncio.sleep(40)
            count = len(bad.starts)
            acquirers.retry("bad")
            acquirers.retry("none of this name")
            await asyncio.sleep(0.1)
            assert len(bad.starts) == count + 1

    clock.run(main())


def test_one_that_cancels_itself_is_tried_again() -> None:
    def cancels(_sink: Sink, _start: int) -> None:
        raise asyncio.CancelledError

    bad = Odd("bad", cancels)
    on(bad, seconds=10, then=lambda _acquirers: None)
    assert len(bad.starts) == 4


def test_silence_is_shown() -> None:
    def then(acquirers: Acquirers) -> None:
        assert [status.state for status in acquirers.status()] == ["silent", "silent"]

    on(Odd("mute", lambda _sink, _start: None), Odd("once", hears), seconds=121, then=then)


def test_added_before_the_start_or_removed_from_none() -> None:
    async def main() -> None:
        acquirers, good = Acquirers(Kept()), Odd("good", hears)
        acquirers.add(good)
        assert acquirers.status()[0].state == "stopped"
        with pytest.raises(KeyError):
            await acquirers.remove("other")
        async with acquirers:
            await asyncio.sleep(1)
            assert good.is_running
            await acquirers.remove("good")
            assert not good.is_running
        for number in range(MAX_ACQUIRERS):
            acquirers.add(Odd(str(number), hears))
        with pytest.raises(AcquirerError, match="more than"):
            acquirers.add(good)

    clock.run(main())


def test_the_same_failure_is_logged_once_until_it_hears_again(caplog: pytest.LogCaptureFixture) -> None:
    def play(sink: Sink, start: int) -> None:
        if start == 5:
            hears(sink, start)
        raise AcquirerError("no cable" if start < 9 else "no port", "plug one in")

    with caplog.at_level(logging.INFO):
        on(Odd("bad", play), seconds=600, then=lambda _: None)
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "bad: no cable: plug one in", "bad: hears again", "bad: no cable: plug one in", "bad: no port: plug one in"
    ]  # fmt: skip


def test_one_that_fails_just_when_it_is_ended_leaves_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    def play(_sink: Sink, _start: int) -> None:
        (tending,) = (task for task in asyncio.all_tasks() if task.get_name() == "acquirer bad")
        tending.cancel()
        raise AcquirerError("no cable")

    on(Odd("bad", play), seconds=1, then=lambda _: None)
    gc.collect()
    assert "never retrieved" not in caplog.text
