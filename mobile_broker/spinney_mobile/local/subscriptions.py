"""Subscriptions that are evaluated here, over what this broker takes: local clients', and those of the settings.

They outlive a restart, also by kill -9, in the data directory: as they were saved last, and a journal of what has
happened since.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from spinney import (
    ContentSubscription,
    Matcher,
    PublicationId,
    StateFilter,
    StateSubscription,
    TopK,
    TopKSubscription,
    feed,
    normal_form,
    parse,
)
from spinney.client.address import is_name
from spinney.errors import SpinneyError, SyntaxError
from spinney.expression import Filter
from spinney.notification import Notification

from ..listening import Taken
from . import files, journal
from .journal import Journal
from .valid import LocalValid

log = logging.getLogger(__name__)

FILE: Final = "local-subscriptions.json"
MAX_TEXT: Final = 64 * 1024
"""Of one subscription."""
MAX_RECENT: Final = 50
"""Notifications that pages show."""
MAX_UNDELIVERED: Final = 1_000
"""Notifications of states and top-k that are kept until they have arrived; of more, the oldest go, and are counted."""
_VERSION: Final = 2

Told = Callable[[str, str, Mapping[str, Any], Callable[[], object]], None]
"""Owner, sid, the notification as its subscriber gets it, and what to call once it has arrived or nobody hears it."""


class LocalError(SpinneyError):
    """Why a subscription is refused, where its text is not to blame."""


@dataclass(slots=True)
class _One:
    owner: str
    sid: str
    source: str
    feed: Filter
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
        self.dropped = 0
        """Notifications that may be lost if this process is killed, since too many had not arrived."""
        self._tell = tell
        self._limit = limit
        self._clock = clock
        self._matcher = Matcher()
        self._all: dict[str, _One] = {}
        self._own: set[str] = set()
        """Keys of the settings' own, which do not count for the limit."""
        self._waking: dict[str, _One] = {}
        self._fresh: dict[str, Filter] = {}
        self._log_time = 0.0
        self.valid = LocalValid()
        self._undelivered: OrderedDict[str, tuple[str, str, Mapping[str, Any]]] = OrderedDict()
        """By id: owner, sid, and the notification."""
        self._replayed: set[str] | None = None
        """While the journal is replayed: ids that were delivered; nobody is told then."""
        self._folder: Path | None = None
        self._save = 0
        self._journal = Journal()

    def __len__(self) -> int:
        return len(self._all)

    # ---- what is subscribed

    def put(self, owner: str, sid: str, source: str, *, is_own: bool = False) -> str:
        """Add or replace one; its normal form. SyntaxError with line and column, or LocalError.

        The settings' own (`is_own`) do not count for the limit, which is for clients.
        """
        key = f"{owner}/{sid}"
        if not is_own and key not in self._all and len(self._all) - len(self._own) >= self._limit:
            raise LocalError(f"{self._limit} subscriptions are here already")
        normal = self._put(owner, sid, source)
        if is_own:
            self._own.add(key)
        return normal

    def _put(self, owner: str, sid: str, source: str) -> str:
        if len(source) > MAX_TEXT:
            raise LocalError(f"subscription {sid}: {len(source)} characters; the limit is {MAX_TEXT}")
        subscription = parse(source)
        before = self._all.get(f"{owner}/{sid}")
        normal = json.dumps(normal_form(subscription).to_json(), ensure_ascii=False)
        if before is not None and before.source == source:
            return normal
        self.end(owner, sid)
        fed: StateFilter | TopK | None = None
        if isinstance(subscription, StateSubscription):
            fed = StateFilter(subscription)
        elif isinstance(subscription, TopKSubscription):
            fed = TopK(subscription)
        one = _One(owner, sid, source, feed(subscription), fed)
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

    def feeds(self) -> dict[str, Filter]:
        """What they need, by their keys (rule R1)."""
        return {key: one.feed for key, one in self._all.items()}

    def end(self, owner: str, sid: str) -> bool:
        """Whether there was one."""
        one = self._all.pop(f"{owner}/{sid}", None)
        if one is not None:
            self._own.discard(one.key)
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
        wanting = [self._all[key] for key in sorted(self._matcher.match(taken.publication))]
        if any(one.fed is not None for one in wanting):
            self._journal.fed(taken.id, taken.publication, self._log_time)
        for one in wanting:
            if one.fed is None:
                self._notify(one, _match(one, taken, self._log_time))
        self._feed(wanting, taken.id, taken.publication)
        if self._journal.is_full and self._folder is not None:
            self.save(self._folder)

    def _feed(self, wanting: Iterable[_One], id: PublicationId, publication: Mapping[str, Any]) -> None:
        for one in wanting:
            if one.fed is not None:
                for notification in one.fed.feed(id, publication, self._log_time):
                    self._notify_once(one, _item(one, notification))
                self._waking[one.key] = one
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
                    self._notify_once(one, _item(one, notification))
            if wake is None:
                del self._waking[key]

    def _notify(self, one: _One, item: Mapping[str, Any]) -> None:
        self.told += 1
        self.recent.appendleft(item)
        self._tell(one.owner, one.sid, item, lambda: None)

    def _notify_once(self, one: _One, item: Mapping[str, Any]) -> None:
        """Of what is remembered: it is kept until it has arrived."""
        id = item["id"]
        if self._replayed is not None and id in self._replayed:
            return
        self._undelivered[id] = (one.owner, one.sid, item)
        if len(self._undelivered) > MAX_UNDELIVERED:
            self._undelivered.popitem(last=False)
            self.dropped += 1
        if self._replayed is None:
            self.told += 1
            self.recent.appendleft(item)
            self._tell(one.owner, one.sid, item, lambda: self._delivered(id))

    def _delivered(self, id: str) -> None:
        if self._undelivered.pop(id, None) is not None:
            self._journal.delivered(id)

    # ---- over a restart

    def save(self, folder: Path) -> None:
        """As they are now."""
        items = [
            {"owner": one.owner, "sid": one.sid, "source": one.source, "state": one.fed.snapshot() if one.fed else None}
            for one in self._all.values()
        ]
        undelivered = [item for item in self._undelivered.values() if f"{item[0]}/{item[1]}" in self._all]
        kept = {"v": _VERSION, "save": self._save + 1, "subscriptions": items, "undelivered": undelivered}
        try:
            files.save(folder / FILE, kept)
        except OSError as error:
            log.error("local subscriptions are not kept: %s: %s", folder / FILE, error.strerror)
            return
        self._save += 1
        self._journal.begin(self._save)

    def load(self, folder: Path) -> None:
        """As they were; what cannot be read is said, and left out. What had not been delivered is told again."""
        self._folder, self._journal = folder, Journal(folder)
        self._load(folder)
        self.save(folder)
        for id, (owner, sid, item) in list(self._undelivered.items()):
            self._tell(owner, sid, item, partial(self._delivered, id))

    def close(self) -> None:
        """All is saved, and nothing more happens."""
        if self._folder is not None:
            self.save(self._folder)
        self._journal.close()

    def _load(self, folder: Path) -> None:
        file = folder / FILE
        try:
            kept = json.loads(file.read_bytes())
            items = list(_items(kept))
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.error("%s cannot be read, and local clients must subscribe again: %s", file, error)
            return
        for item in items:
            with contextlib.suppress(SyntaxError, LocalError):
                self._put(item["owner"], item["sid"], item["source"])
                self._restore(self._all[f"{item['owner']}/{item['sid']}"], item.get("state"))
        self._fresh.clear()
        self._save = kept["save"]
        self._undelivered = OrderedDict((item["id"], (owner, sid, item)) for owner, sid, item in kept["undelivered"])
        self._replay(list(journal.read(folder, self._save)))

    def _restore(self, one: _One, state: Any) -> None:
        if one.fed is None or not isinstance(state, dict):
            return
        try:
            one.fed.restore(state)
        except SpinneyError as error:
            log.warning("local subscription %s starts afresh: %s", one.key, error)
        self._waking[one.key] = one

    def _replay(self, happened: Iterable[journal.Read | str]) -> None:
        happened = list(happened)
        self._replayed = {one for one in happened if isinstance(one, str)}
        for note in self._replayed:
            self._undelivered.pop(note, None)
        for one in happened:
            if not isinstance(one, str):
                id, publication, log_time = one
                self._log_time = max(self._log_time, log_time)
                self._settle()
                self._feed([self._all[key] for key in sorted(self._matcher.match(publication))], id, publication)
        self.tick()
        self._replayed = None


def _items(kept: Any) -> Iterator[dict[str, Any]]:
    match kept:
        case {"v": version, "save": int(), "subscriptions": list(), "undelivered": list()} if version == _VERSION:
            pass
        case _:
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
