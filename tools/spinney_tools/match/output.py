"""What `spinney match` prints: a line of JSON for each reading that matched, or how often each subscription did."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol

from spinney.subscription import StateSubscription, Subscription, TopKSubscription

from .explaining import explanation
from .matching import Found


class Output(Protocol):
    """Takes what was found."""

    def take(self, found: Found) -> None:
        """One reading and the subscriptions that it is for."""

    def flush(self) -> None:
        """Everything so far has to be seen."""

    def finish(self) -> None:
        """There is no more."""


class Lines:
    """One line for each reading and reason, the reading as it came."""

    def __init__(
        self,
        out: BinaryIO,
        subscriptions: Mapping[str, Subscription],
        files: list[str],
        *,
        explain: bool,
        explain_all: bool,
    ) -> None:
        self._out = out
        self._subscriptions = subscriptions
        self._explain, self._explain_all = explain, explain_all
        self._ids = {name: _compact(name) for name in subscriptions}
        self._files = [f'"file":{_compact(name)},' if len(files) > 1 else "" for name in files]
        self._waiting: list[bytes] = []

    def take(self, found: Found) -> None:
        """Puts the line together; the reading's own JSON is copied, not printed anew."""
        ids = ",".join([self._ids[name] for name in found.ids])
        head = f'{{{self._files[found.place.file]}"line":{found.place.line},"ids":[{ids}],"why":{_compact(found.why)}'
        details = "".join(f",{_compact(name)}:{_compact(value)}" for name, value in found.details.items())
        line = f'{head}{details},"publication":'.encode() + found.json
        if explained := self._explanations(found):
            line += f',"explain":{_compact(explained)}'.encode()
        self._waiting.append(line + b"}\n")

    def flush(self) -> None:
        """Writes what waits."""
        if self._waiting:
            self._out.write(b"".join(self._waiting))
            self._waiting.clear()
            self._out.flush()

    def finish(self) -> None:
        """Writes what waits."""
        self.flush()

    def _explanations(self, found: Found) -> dict[str, Any]:
        if found.publication is None:
            return {}
        names = list(self._subscriptions) if self._explain_all else found.ids if self._explain else []
        return {name: explanation(self._subscriptions[name], found.publication) for name in names}


class Counts:
    """One line for each subscription, at the end: how often it was notified of what."""

    def __init__(self, out: BinaryIO, subscriptions: Mapping[str, Subscription]) -> None:
        self._out = out
        self._subscriptions = subscriptions
        self._counts: dict[str, Counter[str]] = {why: Counter() for why in ("match", "enter", "exit", "top")}

    def take(self, found: Found) -> None:
        """Counts."""
        if found.why:
            self._counts[found.why].update(found.ids)

    def flush(self) -> None:
        """Nothing is seen before the end."""

    def finish(self) -> None:
        """Writes the counts."""
        for name, subscription in self._subscriptions.items():
            usual = _reasons(subscription)
            counts = {why: count[name] for why, count in self._counts.items() if why in usual or count[name]}
            line = {"id": name} | counts
            self._out.write(json.dumps(line, ensure_ascii=False).encode() + b"\n")
        self._out.flush()


def _reasons(subscription: Subscription) -> tuple[str, ...]:
    """Why a subscription of this kind is notified, as a rule: one with enter = exit is told of matches (S7)."""
    if isinstance(subscription, StateSubscription):
        return ("enter", "exit")
    return ("top",) if isinstance(subscription, TopKSubscription) else ("match",)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
