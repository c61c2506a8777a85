"""What each user may do on the MQTT server, for our own nats-server and for mosquitto.

A client's user name is the `<client>` of its topics, so one template serves all of a role. What a server cannot see is
checked again by the gateway: a topic's client decides whose a message is, and only that client may publish there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from .data_dir import Secrets
from .names import TOPICS
from .users import Role, User, Users

CORE_USER = "spinney-core"
"""Our own processes at our own nats-server."""
MQTT_USER = "spinney-mqtt"
"""The same at its MQTT listener."""
SYSTEM_USER = "spinney-system"
ANONYMOUS_USER = "spinney-anonymous"
"""Whom nats-server takes those for who say no name; only without users, and only on loopback."""
ACCOUNT = "SPINNEY"
SYSTEM_ACCOUNT = "SYSTEM"

_MQTT_INTERNAL = ("$MQTT.sub.>", "$MQTT.deliver.pubrel.>")
"""What nats-server itself subscribes to for a client with a persistent session."""


PUBLISHES = {
    Role.PUBLISHER: ("pub", "unpub"),
    Role.SUBSCRIBER: ("sub/+",),
    Role.MOBILE_BROKER: ("pub", "unpub", "ann", "sub/+"),
    Role.OPERATOR: ("pub", "unpub", "ann", "sub/+"),
}
"""Leaves below `spinney/<client>/` that a role may publish to."""
HEARS = ("#",)
"""What is below `spinney/<client>/` is for the client itself, so everybody may hear all of it."""


def topics(client: str, leaves: Iterable[str]) -> list[str]:
    """The MQTT topic filters of a client's leaves."""
    return [f"{TOPICS}/{client}/{leaf}" for leaf in leaves]


# ---- nats-server ------------------------------------------------------------------------------------------------


def nats_authorization(users: Users, secrets: Secrets, *, anonymous_may: bool = True) -> str:
    """The part of nats-server's configuration that says who may do what; anonymous clients only without users."""
    listed = [_core(secrets), _mqtt(secrets), *(_client(user) for user in users)]
    anonymous = ""
    if anonymous_may and not len(users):
        listed.append(_anonymous())
        anonymous = f"no_auth_user: {_quoted(ANONYMOUS_USER)}\n"
    rows = "\n".join(f"      {row}" for row in listed)
    system = f"{{ user: {_quoted(SYSTEM_USER)}, password: {_quoted(secrets.system_password)} }}"
    return (
        f"{anonymous}system_account: {SYSTEM_ACCOUNT}\n"
        "accounts {\n"
        f"  {SYSTEM_ACCOUNT} {{ users: [ {system} ] }}\n"
        f"  {ACCOUNT} {{\n    jetstream: enabled\n    users: [\n{rows}\n    ]\n  }}\n"
        "}\n"
    )


def _core(secrets: Secrets) -> str:
    types = 'allowed_connection_types: ["STANDARD"]'
    return f"{{ user: {_quoted(CORE_USER)}, password: {_quoted(secrets.nats_password)}, {types} }}"


def _mqtt(secrets: Secrets) -> str:
    types = 'allowed_connection_types: ["MQTT"]'
    return f"{{ user: {_quoted(MQTT_USER)}, password: {_quoted(secrets.mqtt_password)}, {types} }}"


def _client(user: User) -> str:
    return _nats_user(user.name, user.bcrypt, user.name, PUBLISHES[user.role])


def _anonymous() -> str:
    """Any client name will do: there is nobody to tell them apart."""
    return _nats_user(ANONYMOUS_USER, None, "*", PUBLISHES[Role.MOBILE_BROKER])


def _nats_user(name: str, password: str | None, client: str, publishes: Iterable[str]) -> str:
    publish = [_subject(topic) for topic in topics(client, publishes)]
    # a filter that ends in # means the level above it as well
    subscribe = [f"{TOPICS}.{client}", *(_subject(topic) for topic in topics(client, HEARS))]
    secret = "" if password is None else f", password: {_quoted(password)}"
    permissions = f"{{ publish: {json.dumps(publish)}, subscribe: {json.dumps([*subscribe, *_MQTT_INTERNAL])} }}"
    types = 'allowed_connection_types: ["MQTT", "MQTT_WS"]'
    return f"{{ user: {_quoted(name)}{secret}, {types}, permissions: {permissions} }}"


def _subject(topic: str) -> str:
    return topic.replace("/", ".").replace("+", "*").replace("#", ">")


def _quoted(text: str) -> str:
    """As a string of nats-server's configuration, in which `$` would begin a variable."""
    return json.dumps(text)


# ---- mosquitto --------------------------------------------------------------------------------------------------


def mosquitto_acl(users: Users, core_user: str = MQTT_USER) -> str:
    """The file for mosquitto's `acl_file`."""
    parts = [
        "# Written by `spinney cloud acl mosquitto`. When users change: again, and SIGHUP to mosquitto.",
        f"user {core_user}\ntopic readwrite #",
    ]
    for user in users:
        rows = [f"topic write {topic}" for topic in topics(user.name, PUBLISHES[user.role])]
        rows += [f"topic read {topic}" for topic in topics(user.name, HEARS)]
        parts.append("\n".join([f"user {user.name}", *rows]))
    return "\n\n".join(parts) + "\n"


def mosquitto_passwords(users: Users, core_hash: str, core_user: str = MQTT_USER) -> str:
    """The file for mosquitto's `password_file`: no password, only hashes."""
    return "".join(
        f"{name}:{hashed}\n" for name, hashed in [(core_user, core_hash), *((u.name, u.mosquitto) for u in users)]
    )
