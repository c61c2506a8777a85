"""One tenant's subscriptions, and what each of its records tells them."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from spinney import Label, Matcher
from spinney.filter_bytes import FilterBytes

from ..records import Publications
from ..settings import Settings
from ..subscription_request import is_on_pipeline
from ..subscriptions import StoredSubscription
from .batch import Batch, Reading
from .repeats import Repeats
from .subscribed import StateSubscribed, Subscribed, TopSubscribed, subscribed
from .told import Told, owner_and_sid, told
from .valid import Valid
from .wakes import Wakes

MAX_AWAY = 100_000
"""Sources whose announcement is over; beyond it the one away for longest is forgotten: it will not be lost."""

_VALID = ""
"""Among the ids of the matcher: finds what has `valid_for`. Sorts before all keys."""


def is_answered(stored: StoredSubscription) -> bool:
    """Whether it is for the engine to answer: the pipeline has its own."""
    return stored.enabled and not is_on_pipeline(stored.options)


class Tenant:
    """A pure function of its records. Keys are those of the bucket of subscriptions."""

    def __init__(self, settings: Settings, wakes: Wakes) -> None:
        self.readings = self.matched = 0
        self.repeats = Repeats(settings.log.duplicate_window, settings.log.content_window)
        self.valid = Valid(settings.matching.valid_kept, settings.log.max_age)
        self.kinds: Counter[str] = Counter()
        self._subscriptions: dict[str, Subscribed] = {}
        self._states: dict[int, dict[str, StateSubscribed]] = {}  # by digest
        self._matcher = Matcher()
        self._matcher.add(_VALID, "valid_for >= 0")
        self._away: OrderedDict[str, float] = OrderedDict()
        self._wakes = wakes

    # ---- subscriptions

    def change(self, key: str, value: Mapping[str, Any] | None, time: float) -> list[Told]:
        """A subscription begins, changes or ends; a new content subscription gets what is valid (rule L2)."""
        new = None if value is None else StoredSubscription.from_json(value)
        old = self._subscriptions.get(key)
        if new is None or not is_answered(new):
            self._end(key)
            return []
        if old is not None and old.digest == int(new.digest, 16) and old.kind == new.kind:
            return []
        self._end(key)
        self.begin(key, new)
        return self._initial(key, new, time) if new.kind == "content" else []

    def all_keys(self) -> list[str]:
        """Of the subscriptions that are matched."""
        return list(self._subscriptions)

    def begin(self, key: str, new: StoredSubscription) -> None:
        """Start matching a subscription under a new key."""
        if self._matcher.native:
            self._matcher.add_compiled(key, new.compiled_feed())
        else:
            self._matcher.add(key, new.normal)
        one = self._subscriptions[key] = subscribed(new.kind, key, new.digest, new.normal)
        self.kinds[one.kind] += 1
        if isinstance(one, StateSubscribed):
            self._states.setdefault(one.digest, {})[key] = one

    def _end(self, key: str) -> None:
        one = self._subscriptions.pop(key, None)
        if one is None:
            return
        self._matcher.remove(key)
        self.kinds[one.kind] -= 1
        if isinstance(one, StateSubscribed | TopSubscribed):
            self._wakes.set(one, None)
        if isinstance(one, StateSubscribed):
            del self._states[one.digest][key]
            if not self._states[one.digest]:
                del self._states[one.digest]

    def _initial(self, key: str, new: StoredSubscription, time: float) -> list[Told]:
        compiled: FilterBytes | str = new.compiled_feed() if self._matcher.native else new.normal
        owner, sid = owner_and_sid(key)
        return [Told(owner, sid, "match", None, id, row) for id, row in self.valid.matching(compiled, time)]

    # ---- publications

    def publications(self, record: Publications, time: float) -> list[Told]:
        """What a batch tells, row by row, and for each row by key."""
        found = self._matcher.match_rows(record.rows)
        batch = Batch(record, found)
        self.readings += found.objects
        repeated, late = self.repeats.examine(record.runs, batch.rows, time)
        matches: Iterable[tuple[int, list[str]]] = found.matches
        labels, silent = batch.labels() if record.labels else ({}, [])
        if labels:
            missing = [(row, list[str]()) for row in labels.keys() - {row for row, _ in found.matches}]
            matches = sorted([*found.matches, *missing])
        out: list[Told] = []
        for row, keys in matches:
            if row not in repeated:
                out += self._row(batch.reading(row, row in late), keys, labels.get(row), time)
        for digest, label in silent:
            for one in self._labelled(digest):
                out += self._take(one, label, None, time)
        return out

    def _row(
        self, reading: Reading, keys: list[str], labels: Mapping[str, Label] | None, time: float
    ) -> Iterable[Told]:
        """A reading that subscriptions under these keys match, and others may be told by label."""
        by_key: dict[str, Label] = {}
        for digest, label in (labels or {}).items():
            by_key |= {one.key: label for one in self._labelled(digest)}
        keys = sorted({*keys, *by_key}) if by_key else sorted(keys)
        if keys and keys[0] == _VALID:
            self.valid.keep(str(reading.id), reading.publication, time)
            del keys[0]
        self.matched += bool(keys)
        out: list[Told] = []
        for key in keys:
            one = self._subscriptions[key]
            if isinstance(one, StateSubscribed):
                label_of = by_key.get(key)
                if label_of is None:
                    out += told(key, one.feed(reading, time, self._away))
                    self._wakes.set(one, one.next_wake())
                else:
                    out += self._take(one, label_of, reading, time)
            elif isinstance(one, TopSubscribed):
                out += told(key, one.feed(reading, time))
                self._wakes.set(one, one.next_wake())
            else:
                owner, sid = owner_and_sid(key)
                out.append(Told(owner, sid, "match", None, str(reading.id), reading.publication))
        return out

    def _labelled(self, digest: str) -> list[StateSubscribed]:
        try:
            states = self._states.get(int(digest, 16), {})
        except ValueError:
            return []
        return [states[key] for key in sorted(states)]

    def _take(self, one: StateSubscribed, label: Label, reading: Reading | None, time: float) -> list[Told]:
        out = told(one.key, one.take(label, reading, time, self._away))
        self._wakes.set(one, one.next_wake())
        return out

    # ---- all else

    def tick(self, key: str, time: float) -> list[Told]:
        """What is due for one subscription."""
        one = self._subscriptions[key]
        assert isinstance(one, StateSubscribed | TopSubscribed)
        out = told(key, one.tick(time))
        self._wakes.set(one, one.next_wake())
        return out

    def announced(self, sources: Iterable[str], over: bool, time: float) -> None:
        """Sources are announced (again), or no longer (rule S4)."""
        changed = [source for source in sources if not over or source not in self._away]
        for source in changed:
            if over:
                self._away[source] = time
            else:
                self._away.pop(source, None)
        while len(self._away) > MAX_AWAY:
            self._away.popitem(last=False)
        for states in self._states.values():
            for one in states.values():
                for source in changed:
                    one.announced(source, over, time)
                self._wakes.set(one, one.next_wake())

    def snapshot(self) -> dict[str, Any]:
        """What it remembers but its subscriptions, as objects for JSON."""
        running = (one for one in self._subscriptions.values() if isinstance(one, StateSubscribed | TopSubscribed))
        return {
            "counts": [self.readings, self.matched],
            "repeats": self.repeats.snapshot(),
            "valid": self.valid.snapshot(),
            "away": list(self._away.items()),
            "running": {one.key: kept for one in running if (kept := one.snapshot()) is not None},
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Become what gave this snapshot; the subscriptions have been begun."""
        self.readings, self.matched = snapshot["counts"]
        self.repeats.restore(snapshot["repeats"])
        self.valid.restore(snapshot["valid"])
        self._away = OrderedDict((source, since) for source, since in snapshot["away"])
        for key, kept in snapshot["running"].items():
            one = self._subscriptions.get(key)
            if isinstance(one, StateSubscribed | TopSubscribed):
                one.restore(kept)
                self._wakes.set(one, one.next_wake())
