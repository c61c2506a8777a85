"""What was fetched, from whom, and what is known of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spinney import PublicationId


class FetchedReading(NamedTuple):
    """A publication that a mobile broker had held back, at the log's time at which it was taken."""

    id: PublicationId
    arrival: float
    epoch: int | None
    client: str
    publication: dict[str, Any]


class Claim(NamedTuple):
    """Of a source all that its broker held back from some time on, up to another, is among the readings."""

    client: str
    source: str
    since: float
    until: float


@dataclass(slots=True)
class FetchedBroker:
    """One mobile broker that may have had something."""

    client: str
    why_not: str | None = None
    """Why it was not asked."""
    is_answered: bool = False
    """Whether all of its answer came."""
    readings: int = 0
    is_cut: bool = False
    """Whether it has more than there was room for."""
    error: str | None = None
    """Why it gave no answer."""

    @property
    def text(self) -> str:
        """In words."""
        if self.why_not is not None:
            return f"{self.client} was not asked: {self.why_not}"
        if not self.is_answered:
            why = " in time" if self.error is None else f": {self.error}"
            return f"{self.client} did not answer{why}" + (f"; {self.readings} came" if self.readings else "")
        return f"{self.client} had {self.readings}" + ("; there was no room for more" if self.is_cut else "")

    def to_json(self) -> dict[str, Any]:
        """As the API tells it."""
        return {
            "broker": self.client,
            "asked": self.why_not is None,
            "answered": self.is_answered,
            "readings": self.readings,
            "cut": self.is_cut,
            "text": self.text,
        }


@dataclass(slots=True)
class Fetched:
    """All that came of a question. `repeated` and `unused` are known once it is among the log's records."""

    asked_at: float
    """The log's time at which it was asked."""
    readings: list[FetchedReading] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    brokers: list[FetchedBroker] = field(default_factory=list)
    not_named: int = 0
    """Brokers that were not asked, beyond those that are named."""
    refused: int = 0
    """Readings that were none of the broker's, or not asked for."""
    repeated: int = 0
    """That the log has, too: they count once."""
    unused: int = 0
    """That the answer could not take in, for it was cut short."""

    @property
    def count(self) -> int:
        """Of the readings that are in the answer."""
        return len(self.readings) - self.repeated - self.unused

    @property
    def text(self) -> str:
        """In a sentence or two."""
        asked = [one for one in self.brokers if one.why_not is None]
        if not self.brokers:
            return "Nothing was fetched: no mobile broker may have held back what it asks for."
        said = [f"{_counted(self.count, 'reading')} fetched from {_counted(len(asked), 'mobile broker')}"]
        said += [one.text for one in self.brokers if one.why_not or one.error or not one.is_answered or one.is_cut]
        if self.unused:
            said.append(f"{self.unused:,} more are not in the answer, for it was cut short")
        if self.not_named:
            said.append(f"{self.not_named:,} more brokers were not asked")
        return "; ".join(said) + "."

    def to_json(self) -> dict[str, Any]:
        """As the API tells it beside what it is an answer to."""
        return {
            "readings": self.count,
            "repeated": self.repeated,
            "refused": self.refused,
            "unused": self.unused,
            "brokers": [one.to_json() for one in self.brokers],
            "not_named": self.not_named,
            "text": self.text,
        }

    def to_whole_json(self) -> dict[str, Any]:
        """With the readings, for a replay elsewhere: `read_fetched` reads it."""
        return {
            "asked_at": self.asked_at,
            "readings": [[one.arrival, one.epoch, one.client, one.publication] for one in self.readings],
            "claims": self.claims,
            "brokers": [one.to_json() | {"error": one.error, "why_not": one.why_not} for one in self.brokers],
            "not_named": self.not_named,
            "refused": self.refused,
        }


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def read_fetched(item: Mapping[str, Any]) -> Fetched:
    """What gave this; KeyError, TypeError or ValueError if nothing did."""
    return Fetched(
        float(item["asked_at"]),
        [
            FetchedReading(PublicationId.parse(row["id"]), at, epoch, client, row)
            for at, epoch, client, row in item["readings"]
        ],
        [Claim(*one) for one in item["claims"]],
        [
            FetchedBroker(one["broker"], one["why_not"], one["answered"], one["readings"], one["cut"], one["error"])
            for one in item["brokers"]
        ],
        item["not_named"],
        item["refused"],
    )
