"""What the cloud has told this broker to evaluate: epochs, full sets, leases; kept on disk, so that it works offline.

Each message has the epoch after the one before it. Where one is missing, the announcement says which one this broker
has, and the cloud sends all of it. What is too much for one message comes in several, all but the last with `more`:
nothing of it is at work before all of it is here. The set is kept in the outbox's state, filter by filter, and changes
with it.

Of many filters some are taken at a time, so that others in the loop have their turn: first what is new; then, in one
step, all of it is kept, and the epoch and the leases change; then what is not wanted any more goes.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, Protocol

from .active import MAX_FILTERS, ActivationError, ActiveFilter, ActiveSet, digest_of
from .leases import Lease, Leases
from .samples import Digest

KEY: Final = "act"
"""Begins the keys of what is kept."""
MAX_SEEN: Final = 256
"""Epochs of messages that are remembered, to tell one that comes again."""
AT_ONCE: Final = 20
"""Filters that are parsed, taken or dropped between two turns of others: some 60 ms on a small machine."""

_EPOCH = f"{KEY}:epoch"
_LEASES = f"{KEY}:leases"
_FILTER = f"{KEY}:filter:"

_log = logging.getLogger(__name__)

OnChange = Callable[[list[ActiveFilter], list[Digest], Mapping[str, Lease], bool], object]
"""Told what has been added, then what has been dropped, all leases, and whether more of this change is to come."""
_Steps = Generator[None, None, bool]
"""Work with a turn for others at each yield; whether anything has changed."""


class Keeper(Protocol):
    """What keeps values by key, and all of a call or nothing."""

    def keep(self, state: Mapping[str, bytes | None]) -> None:
        """Keep these; None takes one away."""


@dataclass(slots=True)
class _Message:
    """One that is whole, or the parts of one that are here."""

    epoch: int
    full: bool
    add: list[Any]
    drop: list[str]
    leases: Any
    more: bool
    """There is a part to come."""

    def join(self, part: _Message) -> None:
        """The next part."""
        self.epoch, self.more = part.epoch, part.more
        self.add += part.add[: MAX_FILTERS + 1 - len(self.add)]  # one too many is told from enough
        self.drop += part.drop
        self.leases = self.leases if part.leases is None else part.leases


@dataclass(slots=True)
class _Fine:
    """What of a message's filters can be taken."""

    items: list[Any] = field(default_factory=list)
    new: dict[Digest, ActiveFilter] = field(default_factory=dict)
    """Those of them that are not here yet."""
    kept: dict[str, bytes | None] = field(default_factory=dict)
    """The new ones, as they are kept."""


class Activations:
    """Of one broker. `start` first: it tells of all that was active before."""

    def __init__(self, leases: Leases, keeper: Keeper, on_change: OnChange) -> None:
        self.active = ActiveSet()
        self.is_lost = False
        """Whether the full set must be asked for."""
        self.gaps = 0
        """How often an epoch was missing."""
        self.repeated = 0
        """Messages that came again."""
        self.unreadable = 0
        """Filters and messages that this broker does not understand; it works on without them."""
        self._leases = leases
        self._keeper = keeper
        self._on_change = on_change
        self._seen: OrderedDict[int, str] = OrderedDict()
        """By epoch, what the message was."""
        self._parts: _Message | None = None
        """Of a message of which not all is here."""
        self._taking: int | None = None
        """The epoch of what is being taken."""

    @property
    def have(self) -> int | None:
        """The epoch that it has, for announcements; None before the first activation.

        Of what is being taken, too: else the cloud, were it told of a new place meanwhile, would send all of it again.
        """
        if self._taking is not None:
            return self._taking
        return self.active.epoch if self._parts is None else self._parts.epoch

    @property
    def at_work(self) -> int | None:
        """The epoch of what is at work, whole; None before the first activation, and while one is being taken."""
        return None if self._taking is not None else self.active.epoch

    # ---- From the start ----------------------------------------------------------------------------------------

    def start(self, kept: Mapping[str, bytes]) -> None:
        """Go on with what was kept. What is damaged is none: all of it is asked for."""
        try:
            self._restore(kept)
        except (ValueError, KeyError, TypeError) as error:
            _log.error("what was active before is damaged, the cloud is asked for it: %s", error)
            self.active = ActiveSet()
            self._keeper.keep({key: None for key in kept if key.startswith(_FILTER) or key == _EPOCH})
        self._on_change(list(self.active.filters.values()), [], self._leases.known, False)

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        if _LEASES in kept:
            self._leases.restore(kept[_LEASES])
        if _EPOCH in kept:
            items = [json.loads(value) for key, value in kept.items() if key.startswith(_FILTER)]
            epoch, _, mark = kept[_EPOCH].decode().partition(" ")
            self.active.apply(int(epoch), items, [], full=True)
            self._seen[int(epoch)] = mark

    # ---- What the cloud says -----------------------------------------------------------------------------------

    def receive(self, payload: bytes) -> bool:
        """A message on `act`, at once; whether it has changed anything. It is kept when this returns."""
        steps = self._receive(payload)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)

    async def take(self, payload: bytes) -> bool:
        """`receive` with turns for others. One message after the other."""
        steps = self._receive(payload)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return bool(end.value)
            await asyncio.sleep(0)

    def _receive(self, payload: bytes) -> _Steps:
        try:
            message = _read(payload)
        except ValueError as error:
            self._complain("an activation cannot be read: %s", error)
            return False
        mark = blake2b(payload, digest_size=8).hexdigest()
        if self._seen.get(message.epoch) == mark:
            self.repeated += 1
            return False
        if not message.full and (self.have is None or message.epoch != self.have + 1):
            self.gaps += not self.is_lost
            self.is_lost, self._parts = True, None
            return False
        self._seen[message.epoch] = mark
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        whole = self._joined(message)
        if whole is None:
            return False
        self._taking = whole.epoch
        try:
            return (yield from self._take(whole))
        finally:
            self._taking = None

    def _joined(self, message: _Message) -> _Message | None:
        """With the parts before it; None while there is one to come."""
        if message.full or self._parts is None:
            self._parts = message
        else:
            self._parts.join(message)
        if self._parts.more:
            return None
        whole, self._parts = self._parts, None
        return whole

    def _take(self, message: _Message) -> _Steps:
        fine = yield from self._fine(message)
        added, leases = list(fine.new.values()), self._leases.known
        while len(added) > AT_ONCE:
            self._on_change(added[:AT_ONCE], [], leases, True)
            del added[:AT_ONCE]
            yield
        self._take_leases(message)
        change = self.active.apply(message.epoch, fine.items, message.drop, full=message.full, parsed=fine.new)
        dropped = change.dropped
        self._keep(fine, dropped, with_leases=message.leases is not None)
        leases = self._leases.known
        while True:
            some, dropped = dropped[:AT_ONCE], dropped[AT_ONCE:]
            self._on_change(added, some, leases, bool(dropped))
            if not dropped:
                break
            added = []
            yield
        self.is_lost = self.is_lost and not message.full
        return True

    def _take_leases(self, message: _Message) -> None:
        if message.leases is None:
            return
        try:
            self._leases.tell(message.leases)
        except ValueError as error:
            self._complain("leases cannot be read: %s", error)

    def _fine(self, message: _Message) -> Generator[None, None, _Fine]:
        """Without the filters that this broker does not understand, as of a newer cloud, and those beyond the limit."""
        fine = _Fine()
        gone = set() if message.full else set(message.drop)
        here = set() if message.full else self.active.filters.keys() - gone
        is_full = False
        for number, item in enumerate(message.add, 1):
            if number % AT_ONCE == 0:
                yield
            try:
                digest = digest_of(item)
                if digest in gone:
                    continue
                if len(here) >= MAX_FILTERS and digest not in here:
                    is_full = True
                    continue
                if self.active.holds(item):
                    fine.new.pop(digest, None)  # should it come twice, the last is meant
                else:
                    fine.new[digest] = ActiveFilter.from_json(item)
                    fine.kept[_FILTER + digest] = json.dumps(item, separators=(",", ":")).encode()
            except ActivationError as error:
                self._complain("a filter is left out: %s; is this broker older than the cloud?", error)
                continue
            here.add(digest)
            fine.items.append(item)
        if is_full:
            self._complain("more than %d filters are wanted here: the others are left out", MAX_FILTERS)
        return fine

    def _complain(self, what: str, about: object) -> None:
        self.unreadable += 1
        _log.error(what, about)

    def _keep(self, fine: _Fine, dropped: list[Digest], *, with_leases: bool) -> None:
        epoch = self.active.epoch or 0
        state: dict[str, bytes | None] = {_EPOCH: f"{epoch} {self._seen[epoch]}".encode(), **fine.kept}
        state |= {_FILTER + digest: None for digest in dropped}
        if with_leases:
            state[_LEASES] = self._leases.encode()
        self._keeper.keep(state)


def _read(payload: bytes) -> _Message:
    message = json.loads(payload)
    match message:
        case {"epoch": int(epoch), "full": bool(full), "add": list(add), "drop": list(drop), **rest}:
            leases, more = rest.get("leases"), rest.get("more", False)
            if all(isinstance(one, str) for one in drop) and isinstance(leases, list | None) and type(more) is bool:
                return _Message(epoch, full, add, drop, leases, more)
    raise ValueError(f"expected epoch, full, add, drop, leases and more, not {message!s:.80}")
