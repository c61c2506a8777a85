"""What local clients say and hear, on the cloud's topics: `spinney/<client>/` and `pub`, `unpub`, `sub/<sid>`,
`note/<sid>`, `reply`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from spinney.client.address import is_name
from spinney.errors import PublicationError, SyntaxError
from spinney.expression import Filter
from spinney.identity import PublicationId

from ..listening import Taken
from ..plain import plain
from ..samples import MAX_HEARD_BYTES, Heard, Sink
from . import files
from .packets import Connect
from .server import MAX_PACKET_BYTES, MqttServer, Refused
from .subscriptions import LocalError, LocalSubscriptions

log = logging.getLogger(__name__)

ACQUIRER: Final = "local"
"""What the sources of local publishers are heard by."""
SESSIONS: Final = "local-sessions.json"
MAX_REFUSALS: Final = 500
"""In one answer."""
_LONGEST_WAIT_SECONDS: Final = 3600.0


class LocalPort:
    """A Handler of the MQTT server, and a Listener of the broker. Readings go to the sink as whatever else is heard."""

    def __init__(
        self,
        sink: Sink,
        folder: Path,
        *,
        subscriptions: int,
        passwords: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        unpublish: Callable[[str], object] = lambda _: None,
        want: Callable[[Mapping[str, Filter]], object] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`folder` is the data directory. Without passwords any client may come in, under any name.
        `unpublish` is told the ids of readings that are withdrawn, `want` what all subscriptions need.
        """
        self.server = MqttServer(self, tls)
        self.subscriptions = LocalSubscriptions(self._tell, limit=subscriptions, clock=clock)
        self._sink = sink
        self._folder = folder
        self._passwords = passwords
        self._unpublish = unpublish
        self._want = want
        self._clock = clock
        self._changed = asyncio.Event()
        self._load_sessions()
        self.server.on_sessions = self._save_sessions
        self._is_loading = True
        """What is told now waits for those who will come back."""
        self.subscriptions.load(folder)
        self._is_loading = False
        self._want(self.subscriptions.feeds())

    async def run(self, listener: socket.socket | None) -> None:
        """Until cancelled; without a listener only the settings' own subscriptions are told, to pages."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tick())
                if listener is not None:
                    tasks.create_task(self.server.run(listener))
        finally:
            self.subscriptions.close()

    async def _tick(self) -> None:
        """Timers of state and top-k subscriptions fall due also when nothing is heard."""
        while True:
            self._changed.clear()
            due = self.subscriptions.next_wake()
            wait = _LONGEST_WAIT_SECONDS if due is None else max(due - self._clock(), 0.0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(wait, _LONGEST_WAIT_SECONDS))
            self.subscriptions.tick()

    def taken(self, taken: Taken) -> None:
        """A Listener: one reading, for whoever has subscribed to it here."""
        self.subscriptions.taken(taken)
        if self.subscriptions.waits:
            self._changed.set()

    def configured(self, owner: str, wanted: Mapping[str, str]) -> None:
        """The settings' own subscriptions, by sid; their texts have been checked."""
        self.subscriptions.keep_only(owner, wanted)
        try:
            for sid, text in wanted.items():
                self.subscriptions.put(owner, sid, text, is_own=True)
        finally:
            self._subscriptions_changed()
        self.subscriptions.tell_valid()

    # ---- the server's handler

    def login(self, connect: Connect) -> str | None:
        """With passwords: the user is the client."""
        if self._passwords is None:
            return None
        expected = self._passwords.get(connect.user or "")
        if expected is None or not hmac.compare_digest(expected.encode(), connect.password or b""):
            raise Refused(f"user {connect.user!s:.64} with a password that is not in [local] password_file")
        return connect.user

    def may_hear(self, client: str | None, topic: str) -> bool:
        """What is published here, and `note` and `reply`."""
        levels = topic.split("/")
        if client is not None and levels[:2] != ["spinney", client]:
            return False
        return levels[0] in ("spinney", "+", "#")

    def received(self, client: str | None, topic: str, payload: bytes) -> None:
        """A request; Refused if the topic is none of the client's."""
        match topic.split("/"):
            case ["spinney", name, *rest] if is_name(name) and client in (None, name):
                match rest:
                    case ["pub"]:
                        if payload:  # one that is empty takes back what was retained, and is no reading
                            self._published(name, payload)
                        return
                    case ["unpub"]:
                        self._reply(name, self._unpublished(payload))
                        return
                    case ["sub", sid] if is_name(sid):
                        self._reply(name, self._subscribed(name, sid, payload))
                        self.subscriptions.tell_valid()
                        return
        raise Refused(f"may not publish to {topic!r:.100}: there are spinney/<client>/pub, unpub and sub/<sid>")

    # ---- sessions that outlive a restart

    def _load_sessions(self) -> None:
        file = self._folder / SESSIONS
        try:
            self.server.restore(json.loads(file.read_bytes()))
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.error("%s cannot be read, and local clients find their sessions gone: %s", file, error)

    def _save_sessions(self) -> None:
        try:
            files.save(self._folder / SESSIONS, self.server.kept())
        except OSError as error:
            log.error("local sessions are not kept: %s: %s", self._folder / SESSIONS, error.strerror)

    # ---- readings

    def _published(self, client: str, payload: bytes) -> None:
        """One reading, several, or the SDK's envelope. What is refused is said; all else is stored with the answer."""
        batch, items = None, None
        refused: list[dict[str, Any]] = []
        try:
            said = json.loads(payload)
        except (ValueError, RecursionError) as error:
            refused.append({"row": 0, "reason": f"not JSON: {error}"})
            said = []
        if isinstance(said, dict) and isinstance(said.get("publications"), list):
            batch, items = said.get("batch"), said["publications"]
        else:
            items = said if isinstance(said, list) else [said]
        stored: dict[str, tuple[int, int]] = {}
        for row, item in enumerate(items):
            try:
                self._hear(client, item, stored)
            except PublicationError as error:
                refused.append({"row": row, "reason": str(error)})
        name = {} if batch is None else {"batch": batch}
        if refused:
            self._reply(client, {"refused": refused[:MAX_REFUSALS]} | name)
        if len(refused) < len(items) or (items == [] and not refused):
            self._reply(client, {"stored": stored, "max_payload": MAX_PACKET_BYTES} | name)

    def _hear(self, client: str, item: Any, stored: dict[str, tuple[int, int]]) -> None:
        if not isinstance(item, dict):
            raise PublicationError(f"a reading is an object, not {type(item).__name__}")
        if len(json.dumps(item)) > MAX_HEARD_BYTES:
            raise PublicationError(f"a reading has at most {MAX_HEARD_BYTES} bytes")
        reading = plain(item)
        source = reading.source or client
        why = self._sink.heard(Heard(ACQUIRER, source, self._clock(), source, values={**item, "source": source}))
        if why is not None:
            raise PublicationError(why)
        if reading.number is not None:
            stored[source] = max(stored.get(source, (0, 0)), reading.number)

    def _unpublished(self, payload: bytes) -> dict[str, Any]:
        told: dict[str, Any] = {"request": "unpub"}
        try:
            item = json.loads(payload)
            told["id"] = item["id"]
            id = str(PublicationId.parse(item["id"]))
        except (ValueError, TypeError, KeyError, RecursionError, PublicationError):
            return told | {"ok": False, "error": {"message": 'expected {"id": "source:boot:sequence"}'}}
        self.subscriptions.valid.unpublish(id)
        self._unpublish(id)
        return told | {"ok": True}

    # ---- subscriptions

    def _subscribed(self, client: str, sid: str, payload: bytes) -> dict[str, Any]:
        told: dict[str, Any] = {"request": "sub", "sid": sid}
        try:
            text = payload.decode()
            if not text.strip():
                self.subscriptions.end(client, sid)
                answer: dict[str, Any] = {"ok": True, "ended": True}
            else:
                answer = {"ok": True, "normal": self.subscriptions.put(client, sid, text), "start": 0}
        except SyntaxError as error:
            where = {"message": error.message, "line": error.line, "column": error.column}
            return told | {"ok": False, "error": where | {"found": error.found, "expected": error.expected}}
        except (LocalError, UnicodeDecodeError) as error:
            return told | {"ok": False, "error": {"message": str(error)}}
        self._subscriptions_changed()
        return told | answer

    def _subscriptions_changed(self) -> None:
        self.subscriptions.save(self._folder)
        self._want(self.subscriptions.feeds())

    def _tell(self, owner: str, sid: str, item: Mapping[str, Any], delivered: Callable[[], object]) -> None:
        payload = json.dumps(item, ensure_ascii=False).encode()
        self.server.publish(f"spinney/{owner}/note/{sid}", payload, delivered, waits=self._is_loading)

    def _reply(self, client: str, item: Mapping[str, Any]) -> None:
        self.server.publish(f"spinney/{client}/reply", json.dumps(item).encode())


def read_passwords(file: Path) -> dict[str, str]:
    """Lines `client:password`; ValueError for what is none, OSError if it cannot be read."""
    passwords: dict[str, str] = {}
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, password = line.partition(":")
        if not colon or not password or not is_name(name):
            raise ValueError(f"{file}:{number}: expected client:password")
        passwords[name] = password
    return passwords
