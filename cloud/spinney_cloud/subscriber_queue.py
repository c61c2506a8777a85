"""What waits to be sent, subscriber by subscriber: bounded, in order, and fair.

No I/O and no clock: the time is handed in, monotonic, in seconds. A subscriber is an owner of subscriptions. Its
notifications wait in one lane, in order; a subscription with a bound of its own has a lane of its own. Owners take
turns, and an owner's lanes take turns, so that nobody waits for another's backlog.

Before the lanes come a subscription's digest and its rate limit, and a short wait for the options of a subscription
that is not known yet. What waits there is held: it is no reason to stop reading the notification log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final, Literal

from .cell_limits import CellLimits, Key, Position
from .delivery_options import DEFAULT, DeliveryOptions
from .note_payload import encode_digest

UNKNOWN_SECONDS: Final = 1.0
"""How long a notification waits for its subscription's options; then it goes as if it had none."""
MAX_DIGEST_BYTES: Final = 256 * 1024
"""A digest that is longer goes out as several messages."""
TURN: Final = 8
"""Messages that an owner gets out before it is another's turn."""
MAX_TOTAL_BYTES: Final = 512 * 1024**2
"""Of all owners together; beyond it whatever comes finds its queue full."""

DropReason = Literal["queue", "age", "rate", "unsubscribed", "at_most"]
"""queue: too many or too much waited. age: it waited too long. rate: a newer one took its place (rule S6). at_most: it
was not among the first of its cell and period."""
DROP_REASONS: Final[tuple[DropReason, ...]] = ("queue", "age", "rate", "unsubscribed", "at_most")

Place = tuple[int, int]
"""Of a notification in the notification log: the message's sequence, and the index in it."""


@dataclass(eq=False, slots=True)
class Item:
    """One message to be sent: a notification, or a digest of several."""

    key: Key
    payload: bytes
    places: tuple[Place, ...]
    id: str
    """Of the notification; of the last one in a digest."""
    logged: float
    """When the matcher told it: UTC epoch seconds."""
    age: float
    """Seconds since then, when it was read."""
    expires: float = 0.0
    """Monotonic. Later it is of no use."""
    qos: Literal[0, 1] = 1
    digest: bool = False
    position: Position = None
    """Where its publication was made."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one owner's queue."""

    count: int
    bytes: int
    age: float


@dataclass(eq=False, slots=True)
class _Lane:
    sid: str | None
    """None: of all subscriptions that have no lane of their own."""
    items: deque[Item] = field(default_factory=deque)


@dataclass(eq=False, slots=True)
class _Owner:
    name: tuple[str, str]
    count: int = 0
    bytes: int = 0
    shared: _Lane = field(default_factory=lambda: _Lane(None))
    own: dict[str, _Lane] = field(default_factory=dict)
    turns: deque[_Lane] = field(default_factory=deque)
    """Lanes that hold something."""
    served: int = 0
    """Messages taken in this turn."""


@dataclass(eq=False, slots=True)
class _Held:
    """What one subscription's digest or rate limit holds back, or what waits for its options."""

    options: DeliveryOptions | None
    digest: deque[Item] = field(default_factory=deque)
    left_out: int = 0
    """Of the digest."""
    digest_due: float | None = None
    newest: Item | None = None
    """What the rate limit holds: of all that came too soon the newest."""
    newest_due: float | None = None
    sent: deque[float] = field(default_factory=deque)
    """When messages passed the rate limit, within its period."""
    scheduled: float | None = None
    """The time under which it stands among the times to come; entries under other times are stale."""

    def due(self) -> float | None:
        """When something is to be done."""
        return min((due for due in (self.digest_due, self.newest_due) if due is not None), default=None)


class SubscriberQueues:
    """All queues. What is dropped is given to `on_drop`, once, with the reason."""

    def __init__(self, bounds: Bounds, on_drop: Callable[[Item, DropReason], None]) -> None:
        self.bounds = bounds
        self.ready = 0
        """Messages that could be sent now."""
        self.ready_bytes = 0
        self.held = 0
        """Messages that a digest, a rate limit or missing options hold back."""
        self.bytes = 0
        self.limits = CellLimits()
        self._drop = on_drop
        self._options: dict[Key, DeliveryOptions] = {}
        self._owners: dict[tuple[str, str], _Owner] = {}
        self._turns: deque[_Owner] = deque()
        self._held: dict[Key, _Held] = {}
        self._dues: list[tuple[float, int, Key]] = []
        self._tie = 0

    # ---- Subscriptions ------------------------------------------------------------------------------------------

    def set_options(self, key: Key, options: DeliveryOptions, now: float) -> None:
        """A subscription is there, or has other options now."""
        self._options[key] = DEFAULT if options == DEFAULT else options
        self.limits.set_limit(key, options.at_most)
        held = self._held.get(key)
        if held and held.options != options:
            self._release(key, now)

    def forget(self, key: Key) -> None:
        """A subscription has ended: what a digest or a rate limit still holds is dropped."""
        self._options.pop(key, None)
        self.limits.forget(key)
        held = self._held.pop(key, None)
        if held:
            for item in self._emptied(held):
                self._drop(item, "unsubscribed")

    def knows(self, key: Key) -> bool:
        """Whether its options are known."""
        return key in self._options

    def subscriptions(self) -> Iterable[Key]:
        """All that are known."""
        return self._options.keys()

    # ---- In and out ---------------------------------------------------------------------------------------------

    def push(self, item: Item, now: float) -> None:
        """Queue it behind what its owner already has."""
        item.expires = now + self.bounds.age - item.age
        options = self._options.get(item.key)
        if options is DEFAULT:
            self._queue(item, DEFAULT)
        elif options is None:
            self._wait_for_options(item, now)
        else:
            item.qos = options.qos
            sequence = item.places[0][0]
            if not self.limits.passes(item.key, item.position, item.logged, item.id, sequence):
                self._drop(item, "at_most")
            elif options.digest_seconds is not None:
                self._digest(item, options, options.digest_seconds, now)
            else:
                self._limit(item, options, now)

    def pop(self, now: float) -> Item | None:
        """The next one to be sent: owners take turns."""
        while self._turns:
            owner = self._turns.popleft()
            lane = owner.turns.popleft()
            item = lane.items.popleft()
            if lane.items:
                owner.turns.append(lane)
            elif lane.sid is not None:
                del owner.own[lane.sid]
            if owner.turns:
                self._next_turn(owner)
            self.ready -= 1
            self.ready_bytes -= len(item.payload)
            self._uncount(owner, item)
            if item.expires >= now:
                return item
            self._drop(item, "age")
        return None

    def _next_turn(self, owner: _Owner) -> None:
        """An owner's turn is several messages: nats-server writes down once what one subscriber took."""
        owner.served += 1
        if owner.served < TURN:
            self._turns.appendleft(owner)
        else:
            owner.served = 0
            self._turns.append(owner)

    def next_due(self) -> float | None:
        """When `run_due` has something to do."""
        return self._dues[0][0] if self._dues else None

    def run_due(self, now: float) -> None:
        """Digests and rate-limited notifications whose time has come get into their lanes."""
        while self._dues and self._dues[0][0] <= now:
            due, _, key = heappop(self._dues)
            held = self._held.get(key)
            if held is None or held.scheduled != due:
                continue
            held.scheduled = None
            if held.options is None:
                self._options_never_came(key, held)
            else:
                self._run(key, held, held.options, now)

    def waiting(self, key: Key) -> int:
        """How many of a subscription's notifications wait, held ones included."""
        owner = self._owners.get(key[:2])
        if owner is None:
            return 0
        lane = owner.own.get(key[2], owner.shared)
        held = self._held.get(key)
        inside = len(held.digest) + (held.newest is not None) if held else 0
        return inside + sum(item.key[2] == key[2] for item in lane.items)

    def longest(self) -> int:
        """The length of the longest owner's queue."""
        return max((owner.count for owner in self._owners.values()), default=0)

    # ---- Lanes --------------------------------------------------------------------------------------------------

    def _queue(self, item: Item, options: DeliveryOptions) -> None:
        owner = self._owner(item)
        if options.queue is None:
            lane = owner.shared
        else:
            lane = owner.own.get(item.key[2]) or _Lane(item.key[2])
            if len(lane.items) >= options.queue and not self._make_room(owner, lane, item, options):
                return
        if self._full(owner, item) and not self._make_room(owner, lane, item, options):
            return
        if lane.sid is not None:
            owner.own[lane.sid] = lane
        if not owner.turns:
            self._turns.append(owner)
        if not lane.items:
            owner.turns.append(lane)
        lane.items.append(item)
        self.ready += 1
        self.ready_bytes += len(item.payload)
        self._count(owner, item)

    def _full(self, owner: _Owner, item: Item) -> bool:
        size = len(item.payload)
        return (
            owner.count >= self.bounds.count
            or owner.bytes + size > self.bounds.bytes
            or self.bytes + size > MAX_TOTAL_BYTES
        )

    def _make_room(self, owner: _Owner, lane: _Lane, item: Item, options: DeliveryOptions) -> bool:
        """Drop at the end that the subscription names; False if that is the item itself."""
        while options.drop == "oldest" and (lane.items or owner.turns):
            from_lane = lane if lane.items else owner.turns[0]
            oldest = from_lane.items.popleft()
            if not from_lane.items:
                self._leave(owner, from_lane)
            self.ready -= 1
            self.ready_bytes -= len(oldest.payload)
            self._uncount(owner, oldest, keep=True)
            self._drop(oldest, "queue")
            if not self._full(owner, item):
                return True
        self._forget_if_empty(owner)
        self._drop(item, "queue")
        return False

    def _leave(self, owner: _Owner, lane: _Lane) -> None:
        owner.turns.remove(lane)
        if lane.sid is not None:
            owner.own.pop(lane.sid, None)
        if not owner.turns:
            self._turns.remove(owner)

    def _owner(self, item: Item) -> _Owner:
        name = item.key[:2]
        owner = self._owners.get(name)
        if owner is None:
            owner = self._owners[name] = _Owner(name)
        return owner

    def _count(self, owner: _Owner, item: Item) -> None:
        size = len(item.payload)
        owner.count += 1
        owner.bytes += size
        self.bytes += size

    def _uncount(self, owner: _Owner, item: Item, *, keep: bool = False) -> None:
        size = len(item.payload)
        owner.count -= 1
        owner.bytes -= size
        self.bytes -= size
        if not keep:
            self._forget_if_empty(owner)

    def _forget_if_empty(self, owner: _Owner) -> None:
        if not owner.count:
            self._owners.pop(owner.name, None)

    # ---- Held back ----------------------------------------------------------------------------------------------

    def _hold(self, item: Item) -> None:
        self.held += 1
        self._count(self._owner(item), item)

    def _unhold(self, item: Item) -> None:
        self.held -= 1
        self._uncount(self._owner(item), item)

    def _schedule(self, key: Key, held: _Held) -> None:
        due = held.due()
        if due is not None and (held.scheduled is None or due < held.scheduled):
            held.scheduled = due
            self._tie += 1
            heappush(self._dues, (due, self._tie, key))

    def _wait_for_options(self, item: Item, now: float) -> None:
        held = self._held.get(item.key)
        if held is None:
            held = self._held[item.key] = _Held(None, digest_due=now + UNKNOWN_SECONDS)
            self._schedule(item.key, held)
        self._keep(held, item, DEFAULT)

    def _keep(self, held: _Held, item: Item, options: DeliveryOptions) -> None:
        """Add to what waits in a digest, dropping at the end that the subscription names."""
        bound = self.bounds.count if options.queue is None else options.queue
        owner = self._owner(item)
        while len(held.digest) >= bound or self._full(owner, item):
            held.left_out += 1
            if options.drop == "newest" or not held.digest:
                self._forget_if_empty(owner)
                self._drop(item, "queue")
                return
            oldest = held.digest.popleft()
            self._unhold(oldest)
            self._drop(oldest, "queue")
            owner = self._owner(item)
        held.digest.append(item)
        self._hold(item)

    def _digest(self, item: Item, options: DeliveryOptions, seconds: float, now: float) -> None:
        held = self._held.get(item.key)
        if held is None:
            held = self._held[item.key] = _Held(options)
        if held.digest_due is None:
            # What was read again after a restart has waited already.
            held.digest_due = now + max(0.0, seconds - item.age)
            self._schedule(item.key, held)
        self._keep(held, item, options)

    def _limit(self, item: Item, options: DeliveryOptions, now: float) -> None:
        if options.max_per is None:
            self._queue(item, options)
            return
        held = self._held.get(item.key)
        if held is None:
            held = self._held[item.key] = _Held(options)
        while held.sent and held.sent[0] + options.max_per.seconds <= now:
            held.sent.popleft()
        if held.newest is not None:
            older, held.newest = held.newest, item
            self._unhold(older)
            self._drop(older, "rate")
            self._hold(item)
        elif len(held.sent) < options.max_per.count:
            held.sent.append(now)
            self._queue(item, options)
        else:
            held.newest = item
            held.newest_due = held.sent[0] + options.max_per.seconds
            self._hold(item)
            self._schedule(item.key, held)

    def _run(self, key: Key, held: _Held, options: DeliveryOptions, now: float) -> None:
        if held.newest_due is not None and held.newest_due <= now and held.newest is not None:
            item, held.newest, held.newest_due = held.newest, None, None
            self._unhold(item)
            self._limit(item, options, now)
        if held.digest_due is not None and held.digest_due <= now:
            held.digest_due = None
            items, left_out = list(held.digest), held.left_out
            held.digest.clear()
            held.left_out = 0
            for item in items:
                self._unhold(item)
            for message in self._digests(items, left_out, now):
                self._limit(message, options, now)
        self._schedule(key, held)
        if held.due() is None and not held.sent:
            self._held.pop(key, None)

    def _digests(self, items: list[Item], left_out: int, now: float) -> Iterable[Item]:
        """One message for what a digest holds; several where that would be too long."""
        start = size = 0
        for at, item in enumerate(items):
            if at > start and size + len(item.payload) > MAX_DIGEST_BYTES:
                yield self._one_digest(items[start:at], left_out, now)
                start = at
                size = left_out = 0
            size += len(item.payload) + 1
        if items:
            yield self._one_digest(items[start:], left_out, now)

    def _one_digest(self, items: list[Item], left_out: int, now: float) -> Item:
        last = items[-1]
        payload = encode_digest(last.key[2], (item.payload for item in items), left_out)
        places = tuple(place for item in items for place in item.places)
        expires = now + self.bounds.age
        return Item(last.key, payload, places, last.id, last.logged, last.age, expires, last.qos, digest=True)

    def _options_never_came(self, key: Key, held: _Held) -> None:
        del self._held[key]
        for item in self._emptied(held):
            self._queue(item, DEFAULT)

    def _release(self, key: Key, now: float) -> None:
        """What was held under other options begins anew under those that hold now."""
        for item in self._emptied(self._held.pop(key)):
            if item.digest:
                self._queue(item, self._options[key])
            else:
                self.push(item, now)

    def _emptied(self, held: _Held) -> list[Item]:
        items = [*held.digest] + ([held.newest] if held.newest is not None else [])
        for item in items:
            self._unhold(item)
        return items
