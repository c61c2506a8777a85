"""Where delivery goes on after a restart: by its journal, else by its position in the bucket of readers.

Either may be of a log that is no more: nats-server loses its newest messages in a power cut and gives their numbers
again. So what they say is believed only if the message there has the time that they say.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from .delivery_progress import Resumed, tag_of
from .names import NOTES
from .nats_log import NatsLog, StreamState, read_range
from .positions import Position

log = logging.getLogger(__name__)

READER: Final = "delivery"
"""The key in the bucket of readers."""
NEAR: Final = 100
"""Messages to be read again that are nearer to each other than this are read together."""


async def find_start(nats_log: NatsLog, journal: Resumed | None, position: Position | None) -> Resumed:
    """Where to go on."""
    state = await nats_log.state(NOTES)
    if journal is not None and (position is None or position.floor <= journal.newest):
        if await _stands(nats_log, state, journal.last, journal.tag):
            journal.cut(state.last)
            return journal
        log.error("the notification log is not the one that the journal tells of; looking for the place by time")
        return await _by_time(nats_log, state, journal.time)
    if position is None:
        return Resumed(max(0, state.first - 1))
    if await _stands(nats_log, state, position.sequence, tag_of(position.time)):
        return Resumed(position.floor)
    log.error("the notification log is not the one that the last position tells of; looking for the place by time")
    return await _by_time(nats_log, state, position.time)


async def _stands(nats_log: NatsLog, state: StreamState, sequence: int, tag: int) -> bool:
    """Whether the message is the one meant; one that was purged is."""
    if sequence > state.last:
        return False
    if sequence < state.first:
        return True
    time = await _time_of(nats_log, sequence)
    return time is None or tag_of(time) == tag


async def _time_of(nats_log: NatsLog, sequence: int) -> float | None:
    async for messages in read_range(nats_log, NOTES, sequence, sequence):
        return messages[0].time
    return None


async def _by_time(nats_log: NatsLog, state: StreamState, time: float) -> Resumed:
    """After the last message that is not later."""
    low, high = state.first - 1, state.last
    while low < high:
        middle = (low + high + 1) // 2
        found = await _time_of(nats_log, middle)
        if found is None or found <= time:
            low = middle
        else:
            high = middle - 1
    return Resumed(low, time=time)


def together(sequences: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ranges that hold all of these, first and last."""
    first = last = 0
    for sequence in sorted(sequences):
        if first and sequence - last > NEAR:
            yield first, last
            first = 0
        first, last = first or sequence, sequence
    if first:
        yield first, last
