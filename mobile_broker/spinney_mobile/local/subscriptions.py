"""Subscriptions that are evaluated here, over what this broker takes: local clients', and those of the settings.

They outlive a restart in the data directory, with what state and top-k had come to at the last clean stop.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from spinney import (
    ContentSubscription,
    Matcher,
    StateFilter,
    StateSubscription,
    TopK,
    TopKSubscription,
    normal_form,
    parse,
)
from spinney.client.address import is_name
from spinney.errors import SpinneyError, SyntaxError
from spinney.expression import Filter
from spinney.notification import Notification

from ..listening import Taken
from .valid import LocalValid

log = logging.getLogger(__name__)

FILE: Final = "local-subscriptions.json"
MAX_TEXT: Final = 64 * 1024
"""Of one subscription."""
MAX_RECENT: Final = 50
"""Notifications that pages show."""
_VERSION: Final = 1

Told = Callable[[str, str, Mapping[str, Any]], None]
"""Owner, sid and the notification as its subscriber gets it."""


class LocalError(SpinneyError):
    """Why a subscription is refused, where its text is not to blame."""


@dataclass(slots=True)
class _One:
    owner: str
    sid: str
    source: str
    fed: StateFilter | TopK | None

    @property
    def key(self) -> str:
        """Unique."""
        return f"{self.owner}/{self.sid}"


class LocalSubscriptions:
    """`tell` is called for each notification, `recent` keeps the newest for pages."""

    def __init__(self, tell: Told, *, limit: int, clock: Callable[[], float] = time.time) -> None:
        self.recent: deque[Mapping[str, Any]] = deque(maxlen=MAX_RECENT)
        self.told = 0
        self._tell = tell
        self._limit = limit
        self._clock = clock
        self._matcher = Matcher()
        self._all: dict[str, _One] = {}
        self._waking: dict[str, _One] = {}
        self._fresh: dict[str, Filter] = {}
        self._log_time = 0.0
        self.valid = LocalValid()

    def __len__(self) -> int:
        return len(self._all)

    # ---- what is subscribed

    def put(self, owner: str, sid: str, source: str) -> str:
        """Add or replace one; its normal form. SyntaxError with line and column, or LocalError."""
        if len(source) > MAX_TEXT:
            raise LocalError(f"{len(source)} characters; the limit is {MAX_TEXT}")
        subscription = parse(source)
        before = self._all.get(f"{owner}/{sid}")
        if before is None and len(self._all) >= self._limit:
            raise LocalError(f"{self._limit} subscriptions are here already")
        normal = json.dumps(normal_form(subscription).to_json(), ensure_ascii=False)
        if before is not None and before.source == source:
            return normal
        self.end(owner, sid)
        fed: StateFilter | TopK | None = None
        if isinstance(subscription, StateSubscription):
            fed = StateFilter(subscription)
        elif isinstance(subscription, TopKSubscription):
            fed = TopK(subscription)
        one = _One(owner, sid, source, fed)
        self._matcher.add(one.key, subscription)
        self._all[one.key] = one
        if isinstance(subscription, ContentSubscription):
            self._fresh[one.key] = subscription.filter
        return normal

    def tell_valid(self) -> None:
        """New content subscriptions are told what came before and is valid still (rule L2)."""
        self._log_time = max(self._log_time, self._clock())
        fresh, self._fresh = self._fresh, {}
        for key, wanted in fresh.items():
            for taken in self.valid.matching(wanted, self._log_time):
                self._notify(self._all[key], _match(self._all[key], taken, self._log_time))

    def end(self, owner: str, sid: str) -> bool:
        """Whether there was one."""
        one = self._all.pop(f"{owner}/{sid}", None)
        if one is not None:
            self._matcher.remove(one.key)
            self._waking.pop(one.key, None)
            self._fresh.pop(one.key, None)
        return one is not None

    def keep_only(self, owner: str, sids: Iterable[str]) -> None:
        """End all others of an owner."""
        kept = {f"{owner}/{sid}" for sid in sids}
        for one in [one for one in self._all.values() if one.owner == owner and one.key not in kept]:
            self.end(one.owner, one.sid)

    # ---- what happens

    def taken(self, taken: Taken) -> None:
        """One reading, in the order of arrival."""
        self.tick()
        self.tell_valid()
        self.valid.keep(taken, self._log_time)
        for key in sorted(self._matcher.match(taken.publication)):
            one = self._all[key]
            if one.fed is None:
                self._notify(one, _match(one, taken, self._log_time))
                continue
            for notification in one.fed.feed(taken.id, taken.publication, self._log_time):
                self._notify(one, _item(one, notification))
            self._waking[key] = one
        self._settle()

    def tick(self) -> None:
        """What has fallen due: windows and timers."""
        self._log_time = max(self._log_time, self._clock())
        self._settle()

    @property
    def waits(self) -> bool:
        """Whether anything may fall due."""
        return bool(self._waking)

    def next_wake(self) -> float | None:
        """When `tick` has something to do, in seconds since 1970."""
        wakes = (one.fed.next_wake() for one in self._waking.values() if one.fed is not None)
        return min((wake for wake in wakes if wake is not None), default=None)

    def _settle(self) -> None:
        for key, one in list(self._waking.items()):
            assert one.fed is not None
            while (wake := one.fed.next_wake()) is not None and wake <= self._log_time:
                for notification in one.fed.tick(wake):
                    self._notify(one, _item(one, notification))
            if wake is None:
                del self._waking[key]

    def _notify(self, one: _One, item: Mapping[str, Any]) -> None:
        self.told += 1
        self.recent.appendleft(item)
        self._tell(one.owner, one.sid, item)

    # ---- over a restart

    def save(self, folder: Path) -> None:
        """As they are now."""
        items = [
            {"owner": one.owner, "sid": one.sid, "source": one.source, "state": one.fed.snapshot() if one.fed else None}
            for one in self._all.values()
        ]
        part = folder / f".{FILE}.part"
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
                json.dump({"v": _VERSION, "subscriptions": items}, out)
                out.flush()
                os.fsync(out.fileno())
            part.replace(folder / FILE)
        except OSError as error:
            log.error("local subscriptions are not kept: %s: %s", folder / FILE, error.strerror)

    def load(self, folder: Path) -> None:
        """As they were saved; what cannot be read is said, and left out."""
        file = folder / FILE
        try:
            items = list(_items(json.loads(file.read_bytes())))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.error("%s cannot be read, and local clients must subscribe again: %s", file, error)
            return
        for item in items:
            with contextlib.suppress(SyntaxError, LocalError):
                self.put(item["owner"], item["sid"], item["source"])
                self._restore(self._all[f"{item['owner']}/{item['sid']}"], item.get("state"))

    def _restore(self, one: _One, state: Any) -> None:
        if one.fed is None or not isinstance(state, dict):
            return
        try:
            one.fed.restore(state)
        except SpinneyError as error:
            log.warning("local subscription %s starts afresh: %s", one.key, error)
        self._waking[one.key] = one


def _items(kept: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(kept, dict) or kept.get("v") != _VERSION or not isinstance(kept.get("subscriptions"), list):
        raise ValueError("of another version")
    for item in kept["subscriptions"]:
        match item:
            case {"owner": str(owner), "sid": str(sid), "source": str()} if is_name(owner) and is_name(sid):
                yield item
            case _:
                raise ValueError(f"expected owner, sid and source, not {item!s:.80}")


def _match(one: _One, taken: Taken, log_time: float) -> dict[str, Any]:
    notification = Notification(
        subscription=one.key, publication_id=taken.id, why="match", scope=None, time=log_time, publication=None
    )
    return _item(one, notification) | {"publication": dict(taken.publication)}


def _item(one: _One, notification: Notification) -> dict[str, Any]:
    """As the cloud says it on `note`: what is null is left out."""
    item = {
        "id": blake2b(f"{one.key}\n{notification.id}".encode(), digest_size=12).hexdigest(),
        "sid": one.sid,
        "why": notification.why,
        "scope": notification.scope,
        "time": notification.time,
        "publication": dict(notification.publication) if notification.publication is not None else None,
        "since": notification.since,
        "rank": notification.rank,
        "reason": notification.reason,
    }
    return {name: value for name, value in item.items() if value is not None}
