"""A cloud of a few lines, for the client's tests: hears what clients send and answers as the contract says.

An MQTT client of its own at a real server. It stores what it gets in a list, and can be told to hold its answers, to
lose publications, and to refuse some.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

import spinney

WAIT_SECONDS = 60.0
TOPICS = [(f"spinney/+/{leaf}", 1) for leaf in ("pub", "unpub", "sub/+")]


def wait_until(condition: Callable[[], object], what: str = "the condition", seconds: float = WAIT_SECONDS) -> None:
    """Look again and again until it holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.005)


class StandIn:
    """`log` is what is stored, in order, each reading as often as it came."""

    def __init__(self, port: int, *, client_id: str = "stand-in", names_batches: bool = True) -> None:
        self.log: list[dict[str, Any]] = []
        self.messages: list[tuple[str, bytes]] = []
        self.subscriptions: dict[tuple[str, str], Any] = {}
        self.asked: list[str] = []
        """Requests for subscriptions as they came, and empty ones to end them."""
        self.unpublished: list[str] = []
        self.refuse: Callable[[dict[str, Any]], str | None] = lambda _: None
        self.deaf = False
        """Hears and does nothing, as if the message had been lost behind the server's acknowledgement."""
        self.mute = False
        """Stores, and does not say so."""
        self.max_payload: int | None = None
        self.names_batches = names_batches
        self._ready = threading.Event()
        self._port = port
        self._client = paho.Client(CallbackAPIVersion.VERSION2, client_id=client_id, clean_session=False)
        self._client.reconnect_delay_set(1, 1)
        self._client.max_inflight_messages_set(0)
        self._client.on_socket_open = lambda _client, _data, sock: sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        self._client.on_connect = lambda client, *_: client.subscribe(TOPICS)
        self._client.on_subscribe = lambda *_: self._ready.set()
        self._client.on_message = self._on_message

    def __enter__(self) -> Self:
        self._client.connect("127.0.0.1", self._port)
        self._client.loop_start()
        assert self._ready.wait(WAIT_SECONDS)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def say(self, topic: str, item: object) -> None:
        """Publish to a client."""
        self._client.publish(topic, json.dumps(item), qos=1)

    def note(self, client: str, sid: str, id: str, **more: object) -> None:
        """Notify."""
        item = {"id": id, "sid": sid, "why": "match", "time": 1e9, "publication": {"NO2": 41.0}, **more}
        self.say(f"spinney/{client}/note/{sid}", item)

    @property
    def ids(self) -> list[str]:
        """Of what is stored, in order, each once."""
        return list(dict.fromkeys(item["id"] for item in self.log))

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        match message.topic.split("/"):
            case [_, client, "pub"]:
                self.messages.append((client, message.payload))
                if not self.deaf:
                    self._store(client, json.loads(message.payload))
            case [_, client, "unpub"]:
                id = json.loads(message.payload)["id"]
                self.unpublished.append(id)
                if not self.deaf:
                    self.say(f"spinney/{client}/reply", {"request": "unpub", "id": id, "ok": True})
            case [_, client, "sub", sid]:
                self._subscribe(client, sid, message.payload.decode())

    def _store(self, client: str, envelope: dict[str, Any]) -> None:
        refused, stored = [], {}
        for row, item in enumerate(envelope["publications"]):
            if reason := self.refuse(item):
                refused.append({"row": row, "id": item["id"], "reason": reason})
                continue
            self.log.append(item)
            id = spinney.PublicationId.parse(item["id"])
            stored[id.source] = [id.boot, id.sequence]
        batch = {"batch": envelope["batch"]} if self.names_batches else {}
        if refused:
            self.say(f"spinney/{client}/reply", {"refused": refused, "batch": envelope["batch"]})
        if not self.mute:
            limit = {"max_payload": self.max_payload} if self.max_payload else {}
            self.say(f"spinney/{client}/reply", {"stored": stored, **batch, **limit})

    def _subscribe(self, client: str, sid: str, text: str) -> None:
        self.asked.append(text)
        if self.deaf:
            return
        answer: dict[str, Any] = {"request": "sub", "sid": sid, "ok": True}
        if not text:
            self.subscriptions.pop((client, sid), None)
            self.say(f"spinney/{client}/reply", answer)
            return
        try:
            form = spinney.normal_form(spinney.parse(text)).to_text()
            self.subscriptions[client, sid] = text
            answer |= {"normal": form, "cost": "indexed", "start": 7}
        except spinney.SyntaxError as error:
            place = {name: getattr(error, name) for name in ("message", "line", "column", "expected")}
            answer |= {"ok": False, "error": place}
        self.say(f"spinney/{client}/reply", answer)
