"""Every name that processes and clients agree on: MQTT topics, NATS subjects, streams, buckets and keys."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import NamedTuple

# ---- Clients ----------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_name(text: str) -> bool:
    """Whether this can be a client, a subscription id or a tenant: safe in topics, subjects and keys alike."""
    return _NAME.fullmatch(text) is not None


DEFAULT_TENANT = "default"

UNIT_SUFFIX = "_unit"
"""NO2_unit is the unit of the attribute NO2."""

# ---- MQTT topics (nats-server reads `/` as `.`) -----------------------------------------------------------------

TOPICS = "spinney"
"""The first level of every topic. Levels: spinney, client, leaf, and the sid below `sub` and `note`."""


class Topic(NamedTuple):
    """A topic that a client publishes to."""

    client: str
    leaf: str
    sid: str | None = None


def parse_topic(topic: str) -> Topic | None:
    """What a client's topic says; None for one that no client may use."""
    match topic.split("/"):
        case ["spinney", client, "pub" | "unpub" | "ann" as leaf] if is_name(client):
            return Topic(client, leaf)
        case ["spinney", client, "sub", sid] if is_name(client) and is_name(sid):
            return Topic(client, "sub", sid)
    return None


def topic(client: str, leaf: str, sid: str | None = None) -> str:
    """`spinney/<client>/<leaf>`, with the sid if there is one."""
    return f"{TOPICS}/{client}/{leaf}" if sid is None else f"{TOPICS}/{client}/{leaf}/{sid}"


# ---- NATS: durable ----------------------------------------------------------------------------------------------

ROOT = "spinney_cloud"
"""The first token of all subjects that are no client's topics."""

LOG = "SPINNEY_LOG"
"""The stream of records: publications, and whatever else must come in one order with them (see records)."""
REQUESTS = "SPINNEY_REQUESTS"
"""Subscriptions and announcements as clients sent them, until the coordinator has dealt with them."""
NOTES = "SPINNEY_NOTES"
"""The notification log: what the matcher has found, one message for a record of the log."""
DEAD = "SPINNEY_DEAD"
"""What was refused or could not be delivered, with the reason."""

STREAM_SUBJECTS = {
    LOG: f"{ROOT}.log.>",
    REQUESTS: f"{ROOT}.request.>",
    NOTES: f"{ROOT}.notes.>",
    DEAD: f"{ROOT}.dead.>",
}


def log_subject(kind: str, tenant: str) -> str:
    """Where a record of the log is published."""
    return f"{ROOT}.log.{kind}.{tenant}"


def request_subject(client: str) -> str:
    """Where a client's request is published."""
    return f"{ROOT}.request.{client}"


def notes_subject(tenant: str) -> str:
    """Where a tenant's notifications are published."""
    return f"{ROOT}.notes.{tenant}"


def dead_subject(stage: str, client: str) -> str:
    """Where what is refused at a stage (intake, request, delivery) is kept."""
    return f"{ROOT}.dead.{stage}.{client}"


SUBSCRIPTIONS = "spinney_subscriptions"
"""Bucket: `<slot>.<tenant>.<owner>.<sid>` -> a subscription (see subscriptions)."""
ANNOUNCEMENTS = "spinney_announcements"
"""Bucket: `<tenant>.<client>` -> an announcement."""
ACTIVATIONS = "spinney_activations"
"""Bucket: `<tenant>.<client>` -> the activation that a mobile broker was sent last."""
READERS = "spinney_readers"
"""Bucket: a reader's name -> how far it has read (see positions)."""
SESSIONS = "spinney_sessions"
"""Bucket: nats-server's short name for a subscriber's session -> since when it is away (see session_expiry)."""
RELIABILITIES = "spinney_reliabilities"
"""Bucket: `<tenant>.<shard>` -> how reliable sources have been (see source_report_store)."""
BUCKETS = (SUBSCRIPTIONS, ANNOUNCEMENTS, ACTIVATIONS, READERS, SESSIONS, RELIABILITIES)

SLOTS = 1024
"""Matching is partitioned by slot; one matcher owns them all for now."""


def slot_of(owner: str, sid: str) -> int:
    """The partition of a subscription."""
    return int.from_bytes(blake2b(f"{owner}/{sid}".encode(), digest_size=4).digest(), "big") % SLOTS


def subscription_key(tenant: str, owner: str, sid: str) -> str:
    """The key in the bucket of subscriptions."""
    return f"{slot_of(owner, sid):04d}.{tenant}.{owner}.{sid}"


# ---- NATS: between processes, nothing kept ----------------------------------------------------------------------


def out_subject(client: str, leaf: str) -> str:
    """A request here, answered by the gateway once the MQTT server has it, reaches the client's topic `leaf`."""
    return f"{ROOT}.out.{client}.{leaf}"


OUT = f"{ROOT}.out.*.*"


def ask_subject(process: str, what: str) -> str:
    """A question to a process: its metrics, its health, or what its module documents."""
    return f"{ROOT}.ask.{process}.{what}"
