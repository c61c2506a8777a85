"""What the options of a subscription would have let through in a dry run, by the queue that delivery itself has.

Its clock is the log's. What a subscriber takes is not known: everything that is ready is taken at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from ..cell_limits import Key, position_of
from ..delivery_options import DeliveryOptions
from ..note_payload import encode_notes
from ..notes import Notes
from ..settings import Settings
from ..subscriber_queue import Bounds, DropReason, Item, Place, SubscriberQueues

HELD: Final = "held"
"""Left out since a digest or a rate would have let it through only after the end."""


class DryDelivery:
    """Of one subscription; `deliver` gets the payload of each notification that goes out."""

    def __init__(
        self, key: Key, options: DeliveryOptions, settings: Settings, deliver: Callable[[bytes], None]
    ) -> None:
        self.left_out: Counter[str] = Counter()
        """Notifications, by the reasons of delivery, and HELD."""
        bounds = settings.delivery
        self._queues = SubscriberQueues(Bounds(bounds.queue_count, bounds.queue_bytes, bounds.queue_age), self._drop)
        self._queues.set_options(key, options, 0.0)
        self._key = key
        self._deliver = deliver
        self._waiting: dict[Place, bytes] = {}
        self._number = 0

    @property
    def remembered(self) -> int:
        """Notifications that are waiting, and ids of those that count for a cell."""
        return len(self._waiting) + self._queues.limits.remembered

    def take(self, notes: Notes) -> None:
        """What was told next."""
        self.run(notes.time)
        for told in encode_notes(notes):
            self._number += 1
            place = self._number, 0
            self._waiting[place] = told.payload
            item = Item(self._key, told.payload, (place,), told.id, notes.time, 0.0)
            if (row := notes.notes[told.number].row) is not None:
                item.position = position_of(notes.publications[row])
            self._queues.push(item, notes.time)
            self._pop(notes.time)
        self._queues.limits.take_lines()  # nobody keeps them
        self._queues.limits.prune(self._number)

    def run(self, now: float) -> None:
        """Until this time of the log; each thing at the moment when it falls due."""
        while (due := self._queues.next_due()) is not None and due <= now:
            self._queues.run_due(due)
            self._pop(due)

    def finish(self) -> None:
        """Nothing more comes."""
        self._queues.forget(self._key)

    def _pop(self, now: float) -> None:
        while (item := self._queues.pop(now)) is not None:
            for place in item.places:
                self._deliver(self._waiting.pop(place))

    def _drop(self, item: Item, reason: DropReason) -> None:
        self.left_out[HELD if reason == "unsubscribed" else reason] += len(item.places)
        for place in item.places:
            del self._waiting[place]
