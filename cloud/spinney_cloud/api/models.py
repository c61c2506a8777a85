"""What goes in and out of the API, as OpenAPI tells it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from ..completeness.answer import Why
from ..fetch.parts import DEFAULT_SECONDS, LONGEST_SECONDS
from .errors import RefusedRow

MAX_TEXT = 256 * 1024
"""Characters of a subscription's text."""
MAX_LABELS = 64
MAX_LABEL = 256
"""Characters of a label's name or value."""
MAX_PAGE = 1_000
MAX_LAST = 1_000
"""Publications of the log that one request explains."""
MAX_RADIUS_METERS = 20_100_000.0
"""Half of the way around the world."""

DURATION = r"^[1-9][0-9]{0,6}(ms|s|m|min|h|d|w)$"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$", examples=["air"])]
Sid = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="The subscription's id")]
Owner = Annotated[
    str | None,
    Query(pattern=r"^[A-Za-z0-9_-]{1,64}$", description="For operators: whose; else one's own"),
]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="At most so many on a page")]
After = Annotated[str | None, Query(max_length=512, description="`next` of the page before")]
Duration = Annotated[str, Field(pattern=DURATION, max_length=12, examples=["1h"])]
FetchSeconds = Annotated[
    float, Query(gt=0, le=LONGEST_SECONDS, description="For `fetch`: how long to wait for mobile brokers")
]
Value = float | str | bool | None
Publication = Annotated[
    dict[str, Any],
    Field(description="One reading: a flat object of attributes", examples=[{"NO2": 57, "room": "kit"}]),
]
SubscriptionSource = Annotated[
    Annotated[str, Field(max_length=MAX_TEXT)] | dict[str, Any],
    Field(description="A subscription as text, or in its JSON form", examples=["NO2 > 40"]),
]
Label = Annotated[str, Field(max_length=MAX_LABEL)]
Labels = Annotated[dict[Label, Label], Field(max_length=MAX_LABELS)]
Instant = Annotated[float, Field(ge=0, le=1e11, description="Epoch seconds")]


class Given(BaseModel):
    """What a client sends. What is misspelt is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


# ---- Publications


class Intake(BaseModel):
    """What became of the publications of one request."""

    ids: list[str] = Field(description="Of those that are stored, in their order")
    stored: dict[str, tuple[int, int]] = Field(description="For each source, boot and number of the last")
    refused: list[RefusedRow]
    batch: Any = None


class Unpublished(BaseModel):
    """A publication that is no longer valid."""

    id: str


# ---- Subscriptions


class SubscriptionBody(Given):
    """A subscription, and how it is kept and delivered."""

    subscription: SubscriptionSource
    enabled: bool = True
    expires: Instant | None = Field(default=None, description="Epoch seconds when it ends; null: never")
    labels: Labels = {}
    options: dict[str, Any] = Field(
        default={},
        description="Delivery: max_per, digest, queue, drop, qos. `density`: how many sources of each H3 cell serve "
        "(per_cell, cell, every), and for content subscriptions how much of each is delivered (cell, at_most). What is "
        "said of delivery holds over MQTT and in dry runs; event streams carry every notification. `on`: `pipeline` "
        "leaves it to the Spark pipeline, which must be running; `broker` (default) to the matcher",
        examples=[{"max_per": "10/min", "density": {"per_cell": 3, "cell": 8, "every": "5m", "at_most": "1/5m"}}],
    )


class NewSubscription(SubscriptionBody):
    """A subscription to be made."""

    sid: Name | None = Field(default=None, description="Its id; one is made up where there is none")


class SubscriptionView(BaseModel):
    """A subscription as it stands."""

    sid: str
    owner: str
    subscription: str | dict[str, Any]
    kind: Literal["content", "state", "top-k"]
    normal: str = Field(description="The form that all ways to write the same have in common")
    cost: Literal["indexed", "scanned"] = Field(description="Whether the matcher's index finds it")
    start: int = Field(description="Of the log: matching began here")
    created: float
    enabled: bool
    expires: float | None
    labels: dict[str, str]
    options: dict[str, Any]


class SubscriptionPage(BaseModel):
    """Some of the subscriptions."""

    subscriptions: list[SubscriptionView]
    next: str | None = Field(description="For `after`; null on the last page")
    count: int | None = Field(description="How many there are on all pages; null where labels were asked for")


class DeliveryStatus(BaseModel):
    """How notifications go out over MQTT for one subscription, since delivery was started."""

    sid: str
    owner: str
    queued: int = Field(description="Notifications that wait for their turn")
    delivered: int
    dropped: dict[str, int] = Field(
        description="Notifications, by reason: queue, age, rate (max_per), at_most (not the first of their cell and "
        "period), unsubscribed"
    )
    dead: int = Field(description="Those that became dead letters")
    last_failure: dict[str, Any] | None
    last_delivered: dict[str, Any] | None


# ---- Explanations


class ExplainBody(Given):
    """A subscription, and what to judge by it: a publication, or the last of the log."""

    subscription: SubscriptionSource
    publication: Publication | None = None
    last: Annotated[int, Field(ge=1, le=MAX_LAST)] | None = None


class Part(BaseModel):
    """One part of a filter with its verdict (null: unknown), what it read, and the parts below it."""

    text: str
    verdict: bool | None
    values: dict[str, Any]
    parts: list[Part] | None = None


class Explained(BaseModel):
    """One publication's verdict."""

    publication: dict[str, Any]
    verdict: bool | None = Field(description="Whether the subscription is fed it; only true is")
    text: str = Field(description="The whole explanation, for people")
    reasons: list[str] = Field(description="The smallest parts that made the verdict")
    parts: dict[str, Part] = Field(description="`feed`, and for state `for`, `when`, `until`; for top-k `where`")
    each: Any = Field(default=None, description="The value of EACH's attribute")
    score: float | None = Field(default=None, description="For top-k")
    cell: str | None = Field(
        default=None, description="With at_most: the H3 cell that it counts for; empty where nobody knows its place"
    )


class Explanations(BaseModel):
    """All verdicts, the newest publication first."""

    kind: Literal["content", "state", "top-k"]
    normal: str
    cost: Literal["indexed", "scanned"]
    results: list[Explained]
    cut: Literal["time", "size", "range"] | None = Field(
        default=None, description="Why there are fewer than asked for: out of time, of room, or the log is too sparse"
    )


class Incomplete(BaseModel):
    """Why something may be missing of a source, and when."""

    reason: Why
    verdict: Literal["at least", "unknown"]
    source: str | None = Field(description="null: all of them, or all of the broker's")
    broker: str | None
    since: float
    until: float
    text: str = Field(description="In words")


class Completeness(BaseModel):
    """Whether anything that the subscription would have been told of was held back, and so is not in the log."""

    verdict: Literal["complete", "at least", "unknown"] = Field(
        description="`complete`: proven that nothing is missing. `at least`: there may be more. `unknown`: nobody "
        "can say; of a state or top-k subscription wherever anything may be missing, which might change all it tells"
    )
    text: str = Field(description="The same in words")
    sources: int = Field(description="Sources that were there within the time")
    count: int = Field(description="Of all reasons")
    reasons: list[Incomplete] = Field(description="By source and time, a page of them")
    next: int | None = Field(description="For `reasons_after`; null on the last page")


class FetchedBroker(BaseModel):
    """A mobile broker that may have held back what was asked for."""

    broker: str
    asked: bool = Field(description="Not those that are older than this cloud, or not connected")
    answered: bool = Field(description="Whether all of its answer came in time")
    readings: int
    cut: bool = Field(description="Whether it has more than there was room for")
    text: str = Field(description="The same in words")


class Fetched(BaseModel):
    """What mobile brokers had held back and still had, because it is valid. It is in this answer and nowhere else."""

    readings: int = Field(description="Those that are in the answer, at the log's time at which they were taken")
    repeated: int = Field(description="Those that the log has, too: they count once")
    refused: int = Field(description="Those that were not the broker's own, or not asked for")
    unused: int = Field(description="Those that are not in the answer, for it was cut short")
    brokers: list[FetchedBroker]
    not_named: int = Field(description="Brokers that were not asked, beyond those that are named")
    text: str = Field(description="In words")


class FetchBody(Given):
    """A subscription, and the time within which mobile brokers have taken what is asked for."""

    subscription: SubscriptionSource
    since: Instant
    until: Instant | None = Field(default=None, description="Epoch seconds; null: now")
    seconds: Annotated[
        float, Field(gt=0, le=LONGEST_SECONDS, strict=False, description="How long to wait for mobile brokers")
    ] = DEFAULT_SECONDS


class AskedBroker(FetchedBroker):
    """The same with its parts in words."""

    error: str | None = Field(description="Why it gave no answer")
    why_not: str | None = Field(description="Why it was not asked")


class FetchedReadings(BaseModel):
    """What mobile brokers had held back and still had, because it is valid."""

    tenant: str
    asked_at: float = Field(description="The log's time")
    readings: list[tuple[float, int | None, str, dict[str, Any]]] = Field(
        description="The log's time at which each was taken, the epoch of its lease, its broker, and the publication"
    )
    claims: list[tuple[str, str, float, float]] = Field(
        description="Brokers and sources of which all that was held back from some time to another is here"
    )
    brokers: list[AskedBroker]
    not_named: int = Field(description="Brokers that were not asked, beyond those that are named")
    refused: int = Field(description="Readings that were not the broker's own, or not asked for")


class DryRun(BaseModel):
    """What a subscription would have delivered."""

    kind: Literal["content", "state", "top-k"]
    normal: str
    cost: Literal["indexed", "scanned"]
    since: float | None = Field(description="The log's time of the first record that was replayed")
    until: float | None
    readings: int = Field(description="Publications that were replayed")
    count: int = Field(description="Notifications that would have been delivered, each in a digest counted for itself")
    left_out: dict[str, int] = Field(
        description="Notifications that its options would have left out, by reason: at_most, rate (max_per), queue; "
        "and held: those that would go out later"
    )
    notifications: list[dict[str, Any]] = Field(description="The first of those that would have been delivered")
    cut: list[Literal["time", "rows", "memory", "notifications", "retention"]] = Field(
        description="Which bounds ended it early"
    )
    completeness: Completeness
    fetched: Fetched | None = Field(default=None, description="With `fetch`")


# ---- Discovery


class Page(BaseModel):
    """Some of what was asked for."""

    next: str | None = Field(description="For `after`; null on the last page")


class Shown(BaseModel):
    """What is sure to be there. What goes beyond it is told as it is known."""

    model_config = ConfigDict(extra="allow")


class Source(Shown):
    """An announced source."""

    name: str
    broker: str = Field(description="Who announced it")
    distance: float | None = Field(description="Metres, from `near` to the nearest place where it may be")


class Sources(Page):
    """Announced sources."""

    sources: list[Source]


class Broker(Shown):
    """A mobile broker."""

    broker: str
    ends: float = Field(description="When its announcement does, unless it is renewed")
    away: bool
    battery: float | None


class Brokers(Page):
    """Mobile brokers."""

    brokers: list[Broker]


class Activation(Shown):
    """What is active on one mobile broker."""

    broker: str
    epoch: int | None
    count: int = Field(description="Of filters; `active` lists the first of them")
    active: list[dict[str, Any]]


class Activations(Page):
    """What is active."""

    activations: list[Activation]


class Session(BaseModel):
    """What the MQTT server keeps for a subscriber."""

    key: str = Field(description="The server's short name for it")
    client: str
    connected: bool
    away_since: float | None = Field(description="Epoch seconds; null while it is connected")
    waiting: int = Field(description="Notifications without their acknowledgement")
    ended: float | None = Field(description="When it was ended, for it had not been used for delivery.session_expiry")
    lost: int = Field(description="Notifications that waited then, of which the client has not been told yet")


class Sessions(Page):
    """Subscribers' sessions."""

    sessions: list[Session]


# ---- Operators


class DeadLetter(BaseModel):
    """What was refused or could not be delivered."""

    sequence: int
    time: float
    stage: str
    client: str
    letter: dict[str, Any] = Field(description="The reason, and what is kept of it")


class DeadLetters(BaseModel):
    """Some of them, the newest first."""

    letters: list[DeadLetter]
    next: int | None = Field(description="For `before`; null when there are no older ones")


class Released(BaseModel):
    """A reader that the log waits for no longer."""

    reader: str
    floor: int = Field(description="It is waited for again once it has read beyond this")


class ProcessHealth(BaseModel):
    """One process."""

    model_config = ConfigDict(extra="allow")

    ready: bool
    why: str | None = None


class Health(BaseModel):
    """Whether all processes do their work."""

    ready: bool
    why: list[str]
    holds: list[dict[str, Any]] = Field(description="Readers that keep a stream from being purged, and how much of it")
    processes: dict[str, ProcessHealth]
