"""What goes up of the publications here: readings that an active feed wants, and labels of state filters (R4, S2, S3).

A source that this broker owns has its state filters evaluated here, or on the mote; its readings go up for content and
top-k feeds, and with the labels that its state filters set. Of a source that nobody owns the cloud evaluates all: a
state filter is then as good as its feed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from spinney import FilterList, Label, Mark, OwnerFilter, PublicationId
from spinney.evaluator import Setting, same
from spinney.expression import Value
from spinney.subscription import StateSubscription

from .active import ActiveFilter
from .leases import Lease
from .samples import Digest
from .state_index import StateIndex

NOBODY: Final = 0
"""The epoch of a source that has no owner."""
BIT: Final = "bit"
"""Begins the keys of what is kept of state filters: bit, digest, source."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a publication."""

    send: bool
    labels: Mapping[Digest, Label] = field(default_factory=dict)
    why: Digest | None = None
    """The feed that it was found to be wanted by; None if only by its labels, or not at all."""


class Decider:
    """Pure: no clock, no disk. What must survive a restart is in `changes`, to be stored with the publication."""

    def __init__(self, client: str, kept: Mapping[str, bytes] | None = None) -> None:
        self.matched: dict[Digest, int] = {}
        """How often each filter decided that a publication goes up."""
        self.strays = 0
        """Marks of filters that are not active any more."""
        self._client = client
        self._filters: dict[Digest, ActiveFilter] = {}
        self._wanted = FilterList()
        """Content and top-k feeds: the roots of the cloud's forest, so that a forest of them would be flat."""
        self._of_states = FilterList()
        """Feeds of state filters, for sources that nobody owns."""
        self._states: dict[Digest, OwnerFilter] = {}
        self._index = StateIndex()
        self._held: dict[str, None] = {}
        """Sources of which a bit may be known."""
        self._kept = _by_digest(kept or {})
        """Of filters that have not been activated since the start."""
        self._changes: dict[str, bytes | None] = {}

    # ---- what is active ----------------------------------------------------------------------------------------

    @property
    def filters(self) -> Mapping[Digest, ActiveFilter]:
        """All that are active."""
        return self._filters

    def change(
        self, added: Iterable[ActiveFilter], dropped: Iterable[Digest], leases: Mapping[str, Lease]
    ) -> Mapping[Digest, Label]:
        """An activation: added before dropped, and who owns what. The first one tells of all that was active before.

        Silent labels are to go up for what depended on sources that are another's now.
        """
        for one in added:
            self._add(one)
        for digest in dropped:
            self._drop(digest)
        for digest, sources in self._kept.items():
            self._changes |= {_key(digest, source): None for source in sources}
        self._kept = {}
        lost = [source for source in self._held if not self._is_ours(leases.get(source))]
        labels: dict[Digest, Label] = {}
        for source in lost:
            for digest, label in self.release(source).items():
                rest = _without_its_own(label)
                if rest is not None:
                    labels[digest] = rest
        return labels

    def _is_ours(self, lease: Lease | None) -> bool:
        return lease is not None and lease.owner == self._client

    def _add(self, one: ActiveFilter) -> None:
        before = self._filters.get(one.digest)
        if before is not None and before.kind != one.kind:
            self._drop(one.digest)
            before = None
        self._filters[one.digest] = one
        self.matched.setdefault(one.digest, 0)
        if not isinstance(one.subscription, StateSubscription):
            _put(self._wanted, one, before)
            return
        _put(self._of_states, one, before)
        running = OwnerFilter(one.subscription)
        if before is not None:
            running.restore(self._states[one.digest].snapshot())
            if one.begins_again(before):
                running.begin_again()
        for source, snapshot in self._kept.pop(one.digest, {}).items():
            running.restore_source(source, snapshot)
            self._held[source] = None
        self._states[one.digest] = running
        self._index.put(one.digest, one.subscription, running.evaluator)
        if before is not None and one.begins_again(before):
            for source in running.sources():
                self._note(one.digest, source, None)

    def _drop(self, digest: Digest) -> None:
        one = self._filters.pop(digest, None)
        if one is None:
            return
        del self.matched[digest]
        if one.kind != "state":
            self._wanted.remove(digest)
            return
        self._of_states.remove(digest)
        self._index.remove(digest)
        running = self._states.pop(digest)
        for source in running.sources():
            self._changes[_key(digest, source)] = None

    # ---- publications ------------------------------------------------------------------------------------------

    def decide(
        self,
        id: PublicationId,
        publication: Mapping[str, Any],
        epoch: int,
        marks: Mapping[Digest, Mark],
        undecided: Collection[Digest] = (),
        *,
        late: bool = False,
    ) -> Decision:
        """What becomes of a publication. A late one is not examined by state filters (rule I3)."""
        why = self._wanted.first_match(publication)
        labels: dict[Digest, Label] = {}
        if epoch == NOBODY:
            why = self._of_states.first_match(publication) if why is None else why
        else:
            labels = {} if late else self._labels(id, publication, epoch, marks)
            labels |= {} if late else self.undecided(id, publication, epoch, undecided)
            labels |= self.marked(id, epoch, marks)
        if why is not None:
            self.matched[why] += 1
        for digest in labels:
            self.matched[digest] += 1
        return Decision(why is not None or bool(labels), labels, why)

    def _labels(
        self, id: PublicationId, publication: Mapping[str, Any], epoch: int, marks: Mapping[Digest, Mark]
    ) -> dict[Digest, Label]:
        """What the evaluators here say."""
        self._held[id.source] = None
        labels = {
            digest: self._evaluate(digest, id, publication, epoch)
            for digest in self._index.news(id, publication, epoch)
            if digest not in marks
        }
        return {digest: label for digest, label in labels.items() if label is not None}

    def undecided(
        self, id: PublicationId, publication: Mapping[str, Any], epoch: int, digests: Collection[Digest]
    ) -> dict[Digest, Label]:
        """Decides what a mote could not: by the bits that are known here, else the cloud has to (rule S2)."""
        if epoch == NOBODY:
            return {}
        labels: dict[Digest, Label] = {}
        for digest in digests:
            if digest not in self._states:
                self.strays += 1
            elif (label := self._evaluate(digest, id, publication, epoch)) is not None:
                labels[digest] = label
        return labels

    def marked(self, id: PublicationId, epoch: int, marks: Mapping[Digest, Mark]) -> dict[Digest, Label]:
        """What the mote's evaluators said of one of its samples, for those who need to hear it."""
        labels: dict[Digest, Label] = {}
        for digest, mark in marks.items():
            if digest not in self._states or epoch == NOBODY:
                self.strays += 1
                continue
            running = self._states[digest]
            label = running.take(mark, epoch)
            if not self._index.is_elsewhere(digest, id.source):
                running.join(id.source)  # while it changes hands both evaluate it, and the mote may have seen more
                self._index.settle(digest, id.source, running.evaluator)
            self._note(digest, id.source, label)
            if label is not None:
                labels[digest] = label
        return labels

    def _evaluate(self, digest: Digest, id: PublicationId, publication: Mapping[str, Any], epoch: int) -> Label | None:
        running = self._states[digest]
        before = running.evaluator.state(id.source)
        label = running.feed(id, publication, epoch)
        after = running.evaluator.state(id.source)
        if not self._index.is_elsewhere(digest, id.source):
            self._index.settle(digest, id.source, running.evaluator)
        if after is not None and (before is None or replace(before, newest=after.newest) != after):
            self._note(digest, id.source, label)
        return label

    def _note(self, digest: Digest, source: str, label: Label | None) -> None:
        """A source's bit has changed, and with the label what has been told of others."""
        running = self._states[digest]
        for name in {source} if label is None else {source, *(mark.source for mark in label.membership)}:
            snapshot = running.source_snapshot(name)
            self._changes[_key(digest, name)] = None if snapshot is None else json.dumps(snapshot).encode()

    # ---- sources -----------------------------------------------------------------------------------------------

    def on_mote(self, source: str, digests: Collection[Digest]) -> None:
        """The filters that the mote evaluates from now on; of the others bits are unknown, and ours again (S2)."""
        for digest in self._index.set_elsewhere(source, digests):
            self._states[digest].join(source)
            self._note(digest, source, None)

    def elsewhere(self, source: str) -> Collection[Digest]:
        """The filters that the mote evaluates."""
        return self._index.elsewhere(source)

    def bit(self, digest: Digest, source: str, value: Value | None = None) -> bool | None:
        """What the bit of a source was set to last; None if nothing is known, or it is undecided by now.

        With EACH, `value` is the only one that matters: None also if the bit was set to 1 in another.
        """
        running = self._states.get(digest)
        state = None if running is None else running.evaluator.state(source)
        setting = None if state is None else state.setting
        if setting is None or (setting.bit and not same(Setting(True, value), setting)):
            return None
        return setting.bit

    def release(self, source: str) -> Mapping[Digest, Label]:
        """Give a source up; the silent labels to send before that."""
        labels: dict[Digest, Label] = {}
        for digest, running in self._states.items():
            label = running.release(source)
            self._note(digest, source, label)
            if label is not None:
                labels[digest] = label
        self._index.forget(source)
        self._held.pop(source, None)
        return labels

    # ---- what is kept ------------------------------------------------------------------------------------------

    def changes(self) -> dict[str, bytes | None]:
        """What has changed since it was asked last, by key; None for what is to be forgotten."""
        changes, self._changes = self._changes, {}
        return changes


def _put(filters: FilterList, one: ActiveFilter, before: ActiveFilter | None) -> None:
    if before is None:
        filters.add(one.digest, one.feed)
    elif before.feed != one.feed:
        filters.replace(one.digest, one.feed)


def _key(digest: Digest, source: str) -> str:
    return f"{BIT}:{digest}:{source}"


def _by_digest(kept: Mapping[str, bytes]) -> dict[Digest, dict[str, Any]]:
    found: dict[Digest, dict[str, Any]] = {}
    for key, value in kept.items():
        kind, _, rest = key.partition(":")
        digest, _, source = rest.partition(":")
        if kind == BIT:
            found.setdefault(digest, {})[source] = json.loads(value)
    return found


def _without_its_own(label: Label) -> Label | None:
    """A silent label for the rest of a scope, when the source that it was about cannot be spoken for any more."""
    return Label(label.membership[0], label.membership[1:], silent=True) if label.membership else None
