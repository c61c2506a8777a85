"""Ends subscribers' sessions at our nats-server that nobody has used for `delivery.session_expiry`.

nats-server keeps a session and what waits in it until the client comes back, without an end and without saying when the
client was last there. A session is a JetStream consumer for each of its QoS 1 filters, and a record with its client id;
a consumer is bound while the client is connected. So the consumers are looked at twice a minute, and a bucket keeps
since when each session is away. One that has been away for too long is ended as its own client would end it: by a clean
connection under its id. When that client comes back it is told on `reply` how many notifications were lost with it.

Sessions that hear anything but notifications and replies (a mobile broker's) are never ended. Other MQTT servers have
settings of their own for this: see cloud/README.md.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

from spinney.client.session import fingerprint
from spinney.mqtt_codec import MqttError

from .bucket import Bucket
from .log_errors import NO_MESSAGE_FOUND, LogError, Refused, StreamMissing
from .mqtt import MqttClient
from .mqtt.of_endpoints import mqtt_client
from .mqtt_backlog import PREFIX
from .names import SESSIONS, TOPICS
from .nats_log import NatsLog
from .service import Service
from .session_redelivery import consumers

log = logging.getLogger(__name__)

RECORDS: Final = "$MQTT_sess"
"""The stream of nats-server's that has a record for each session."""
LOOK_SECONDS: Final = 30.0
END_SECONDS: Final = 10.0
"""For the clean connection that ends a session."""
MAX_ENDED: Final = 10_000
"""Sessions that have ended and whose clients are to be told; the oldest are forgotten first."""
VERSION: Final = 1


@dataclass(slots=True)
class Session:
    """What is known of one; the server's own short name for it is the key in the bucket."""

    client: str
    away_since: float | None = None
    """UTC seconds; None while it is connected."""
    ended: float | None = None
    """When it was ended for being away; None once it is there again."""
    lost: int = 0
    """Notifications that waited when it ended, and of which its client has not been told."""
    fingerprint: str = ""
    """What its client knows it by; where it has to be told."""
    v: int = VERSION

    @classmethod
    def decode(cls, value: bytes) -> Session | None:
        """None for what is damaged, or of a version that came later."""
        try:
            item = orjson.loads(value)
            return cls(**item) if item.get("v") == VERSION else None
        except (ValueError, TypeError, AttributeError):
            return None


@dataclass(slots=True)
class Found:
    """A session as the server has it now."""

    client: str
    connected: bool = False
    waiting: int = 0
    """Notifications, those without their acknowledgement included."""


class SessionExpiry:
    """`run` looks until cancelled; `sessions` is the list for people."""

    def __init__(
        self,
        service: Service,
        nats_log: NatsLog,
        client: MqttClient,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client` tells those that come back."""
        self.expired = 0
        self._service = service
        self._expiry = service.settings.delivery.session_expiry
        self._log = nats_log
        self._client = client
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._waiting: dict[str, int] = {}
        self._away: dict[str, float] = {}
        """Since when, by our own clock: a step of the wall clock ends no session."""

    @property
    def bucket(self) -> Bucket:
        """Where it is kept."""
        return self._log.bucket(SESSIONS)

    async def run(self) -> None:
        """Look now and then, until cancelled; for nats-server only."""
        said, loaded = "", False
        while True:
            try:
                loaded = loaded or await self._load()
                await self.look()
                said = ""
            except LogError as error:
                if str(error) != said:
                    log.warning("the MQTT server's sessions cannot be looked at: %s", error)
                    said = str(error)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Note who is there and who is away, and end what has been away for too long."""
        try:
            found = await self._found()
        except StreamMissing:
            found = {}  # made when the first client subscribes at QoS 1
        self._waiting = {name: one.waiting for name, one in found.items()}
        for name in [name for name, known in self._sessions.items() if known.ended is None and name not in found]:
            await self._forget(name)
        for name, one in found.items():
            await (self._is_here(name, one) if one.connected else self._is_away(name, one))
        await self._bound_ended()

    def list(self, client: str | None, after: str, limit: int) -> list[dict[str, Any]]:
        """A page of sessions, of one client or of all, in the order of their keys."""
        mine = (name for name, one in self._sessions.items() if name > after and client in (None, one.client))
        return [self._shown(name, self._sessions[name]) for name in sorted(mine)[:limit]]

    def _shown(self, name: str, one: Session) -> dict[str, Any]:
        return {
            "key": name,
            "client": one.client,
            "connected": one.away_since is None,
            "away_since": one.away_since,
            "waiting": self._waiting.get(name, 0),
            "ended": one.ended,
            "lost": one.lost,
        }

    # ---- one session

    async def _is_here(self, name: str, found: Found) -> None:
        before = self._sessions.get(name)
        if before is not None and before.fingerprint:
            await self._tell(before)
        if before is None or before.away_since is not None:
            self._away.pop(name, None)
            await self._put(name, Session(found.client))

    async def _is_away(self, name: str, found: Found) -> None:
        before = self._sessions.get(name)
        if before is None or before.away_since is None or before.ended is not None:
            self._away[name] = self._clock()
            session = Session(found.client) if before is None else before
            await self._put(name, replace(session, away_since=time.time(), ended=None))
        elif self._clock() - self._away[name] > self._expiry:
            await self._end(name, before, found)

    async def _end(self, name: str, session: Session, found: Found) -> None:
        client_id = await self._client_id(name)
        if client_id is None:
            return  # it has just ended
        lost = session.lost + found.waiting
        # Before it ends: its client must not come back to nothing and not be told.
        await self._put(name, replace(session, ended=time.time(), lost=lost, fingerprint=fingerprint(client_id)))
        ending = self._own_client(client_id)
        try:
            await asyncio.wait_for(ending.start(), END_SECONDS)
        except (OSError, TimeoutError, MqttError) as error:
            log.warning("a session of %s has expired and cannot be ended: %s", found.client, error or "no answer")
            await self._put(name, session)
            return
        finally:
            await ending.close()
        self.expired += 1
        log.info("ended a session of %s after %.0f s away; %d waited in it", found.client, self._expiry, found.waiting)

    def _own_client(self, client_id: str) -> MqttClient:
        client = mqtt_client(self._service.endpoints, "expiry", clean=True)
        client.target = replace(client.target, client_id=client_id)
        return client

    async def _tell(self, session: Session) -> None:
        """The client, which has come back."""
        told = {"session": session.fingerprint, "lost": session.lost, "away_since": session.away_since}
        payload = orjson.dumps({"session_expired": {**told, "ended": session.ended}})
        await self._client.publish(f"{TOPICS}/{session.client}/reply", payload, 0)

    # ---- what is kept

    async def _load(self) -> bool:
        now, wall = self._clock(), time.time()
        async for key, value, _ in self.bucket.each():
            session = None if value is None else Session.decode(value)
            if session is not None:
                self._sessions[key] = session
                if session.away_since is not None:
                    self._away[key] = now - max(0.0, wall - session.away_since)
        return True

    async def _put(self, name: str, session: Session) -> None:
        self._sessions[name] = session
        await self.bucket.put(name, orjson.dumps(asdict(session)))

    async def _forget(self, name: str) -> None:
        del self._sessions[name]
        self._away.pop(name, None)
        await self.bucket.delete(name)

    async def _bound_ended(self) -> None:
        ended = sorted((one.ended, name) for name, one in self._sessions.items() if one.ended is not None)
        for _, name in ended[: max(0, len(ended) - MAX_ENDED)]:
            await self._forget(name)

    # ---- the server

    async def _found(self) -> dict[str, Found]:
        """Subscribers' sessions by the server's short name for each."""
        found: dict[str, Found] = {}
        others: set[str] = set()
        for consumer in await consumers(self._log.connection):
            name = str(consumer["config"].get("durable_name", "")).rpartition("_")[0]
            client = _told_client(consumer["config"].get("filter_subject", ""))
            if client is None:
                others.add(name)
                continue
            one = found.setdefault(name, Found(client))
            one.connected |= bool(consumer.get("push_bound"))
            one.waiting += consumer["num_pending"] + consumer["num_ack_pending"]
        return {name: one for name, one in found.items() if name and name not in others}

    async def _client_id(self, name: str) -> str | None:
        """From the session's record; None if it is gone, or the client has come back meanwhile."""
        question = {"last_by_subj": f"$MQTT.sess.{name}"}
        try:
            message = (await self._log.connection.api(f"STREAM.MSG.GET.{RECORDS}", question))["message"]
            record = orjson.loads(base64.b64decode(message["data"]))
        except Refused as error:
            if error.error_code == NO_MESSAGE_FOUND:
                return None
            raise
        except (ValueError, binascii.Error):
            return None
        now = await self._found()
        client_id = record.get("id") if isinstance(record, dict) else None
        return client_id if isinstance(client_id, str) and name in now and not now[name].connected else None


def _told_client(subject: str) -> str | None:
    """Of a filter on a client's notifications or replies, the client; None for any other filter."""
    levels = subject.removeprefix(PREFIX).split(".")
    ours = subject.startswith(PREFIX) and len(levels) > 2 and levels[0] == TOPICS and levels[2] in ("note", "reply")
    return levels[1] if ours and levels[1] not in ("*", ">") else None
