"""What the cloud has told this broker to evaluate: epochs, full sets, leases; kept on disk, so that it works offline.

Each message has the epoch after the one before it. Where one is missing, the announcement says which one this broker
has, and the cloud sends all of it. The set is kept in the outbox's state, filter by filter, and changes with it.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from .active import ActivationError, ActiveChange, ActiveFilter, ActiveSet
from .leases import Lease, Leases
from .samples import Digest

KEY: Final = "act"
"""Begins the keys of what is kept."""
MAX_SEEN: Final = 256
"""Epochs of messages that are remembered, to tell one that comes again."""

_EPOCH = f"{KEY}:epoch"
_LEASES = f"{KEY}:leases"
_FILTER = f"{KEY}:filter:"

_log = logging.getLogger(__name__)

OnChange = Callable[[list[ActiveFilter], list[Digest], Mapping[str, Lease]], object]
"""Told what has been added, then what has been dropped, and all leases."""


class Keeper(Protocol):
    """What keeps values by key, and all of a call or nothing."""

    def keep(self, state: Mapping[str, bytes | None]) -> None:
        """Keep these; None takes one away."""


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
        self._seen: deque[int] = deque(maxlen=MAX_SEEN)

    @property
    def have(self) -> int | None:
        """The epoch that it has, for announcements; None before the first activation."""
        return self.active.epoch

    # ---- From the start ----------------------------------------------------------------------------------------

    def start(self, kept: Mapping[str, bytes]) -> None:
        """Go on with what was kept. What is damaged is none: all of it is asked for."""
        try:
            self._restore(kept)
        except (ValueError, KeyError, TypeError) as error:
            _log.error("what was active before is damaged, the cloud is asked for it: %s", error)
            self.active = ActiveSet()
            self._keeper.keep({key: None for key in kept if key.startswith(_FILTER) or key == _EPOCH})
        self._on_change(list(self.active.filters.values()), [], self._leases.known)

    def _restore(self, kept: Mapping[str, bytes]) -> None:
        if _LEASES in kept:
            self._leases.restore(kept[_LEASES])
        if _EPOCH in kept:
            items = [json.loads(value) for key, value in kept.items() if key.startswith(_FILTER)]
            self.active.apply(int(kept[_EPOCH]), items, [], full=True)
            self._seen.append(int(kept[_EPOCH]))

    # ---- What the cloud says -----------------------------------------------------------------------------------

    def receive(self, payload: bytes) -> bool:
        """A message on `act`; whether it has changed anything. It is kept when this returns."""
        try:
            message = _read(payload)
        except ValueError as error:
            self.unreadable += 1
            _log.error("an activation cannot be read: %s", error)
            return False
        epoch: int = message["epoch"]
        if epoch in self._seen:
            self.repeated += 1
            return False
        if not message["full"] and (self.have is None or epoch != self.have + 1):
            self.gaps += not self.is_lost
            self.is_lost = True
            return False
        self._seen.append(epoch)
        self._take_leases(message)
        self._take(message)
        self.is_lost = self.is_lost and not message["full"]
        return True

    def _take(self, message: Mapping[str, Any]) -> None:
        before = set(self.active.filters)
        change = self._apply(message["epoch"], message["add"], message["drop"], message["full"])
        self._keep(change, before, with_leases=message.get("leases") is not None)
        self._on_change(change.added, change.dropped, self._leases.known)

    def _take_leases(self, message: Mapping[str, Any]) -> None:
        if message.get("leases") is None:
            return
        try:
            self._leases.tell(message["leases"])
        except ValueError as error:
            self.unreadable += 1
            _log.error("leases cannot be read: %s", error)

    def _apply(self, epoch: int, add: list[Any], drop: list[str], full: bool) -> ActiveChange:
        try:
            return self.active.apply(epoch, add, drop, full=full)
        except ActivationError:
            return self.active.apply(epoch, self._readable(add), drop, full=full)

    def _readable(self, items: Iterable[Any]) -> list[Any]:
        """Without the filters that this broker does not understand, as of a newer cloud."""
        fine = []
        for item in items:
            try:
                ActiveFilter.from_json(item)
            except ActivationError as error:
                self.unreadable += 1
                _log.error("a filter is left out: %s; is this broker older than the cloud?", error)
            else:
                fine.append(item)
        return fine

    def _keep(self, change: ActiveChange, before: set[Digest], *, with_leases: bool) -> None:
        items = {item["filter"]: item for item in self.active.to_json()["add"]}
        state: dict[str, bytes | None] = {_EPOCH: str(self.have).encode()}
        for one in change.added:
            state[_FILTER + one.digest] = json.dumps(items[one.digest], separators=(",", ":")).encode()
        for digest in before - items.keys():
            state[_FILTER + digest] = None
        if with_leases:
            state[_LEASES] = self._leases.encode()
        self._keeper.keep(state)


def _read(payload: bytes) -> dict[str, Any]:
    message = json.loads(payload)
    match message:
        case {"epoch": int(), "full": bool(), "add": list(), "drop": list(drop), **more}:
            if all(isinstance(one, str) for one in drop) and isinstance(more.get("leases"), list | None):
                return dict(message)
    raise ValueError(f"expected epoch, full, add, drop and leases, not {message!s:.80}")
