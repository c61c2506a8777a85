"""What comes over the wire, however it is cut in pieces."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from servers import HOST

from spinney_cloud.log_errors import Refused
from spinney_cloud.pipeline.wire import CHUNK, Lost, Wire
from spinney_cloud.service import Endpoints

GREETING = b'INFO {"version":"2.11.1"}\r\n'
SIZES = (0, 1, 300, 15_000, CHUNK - 60, CHUNK, 2 * CHUNK + 7)


@contextmanager
def served(pieces: Sequence[bytes], answer: bytes = b"PONG\r\n") -> Iterator[str]:
    """A server that sends these pieces, one by one, to who has logged in, and then closes; its URL."""
    heard: list[bytes] = []
    with socket.create_server((HOST, 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(GREETING)
                while not b"".join(heard).endswith(b"PING\r\n"):
                    heard.append(connection.recv(4096))
                connection.sendall(answer)
                for piece in pieces:
                    connection.sendall(piece)
                connection.shutdown(socket.SHUT_WR)
                while data := connection.recv(4096):
                    heard.append(data)

        server = threading.Thread(target=serve)
        server.start()
        yield f"nats://{HOST}:{listening.getsockname()[1]}"
        server.join()


def opened(url: str) -> Wire:
    return Wire.open(url, Endpoints(url, HOST, 0, "nats", 0))


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    """In pieces, some of which end within a line or between the two bytes that end it."""
    found = []
    while data:
        size = chance.choice([1, 2, 3, 40, 1_000, 70_000, CHUNK + 1])
        found.append(data[:size])
        data = data[size:]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_messages_come_as_they_were_sent(seed: int) -> None:
    chance = random.Random(seed)
    wanted, sent = [], []
    for number in range(60):
        head = b"" if number % 5 == 0 else b"NATS/1.0\r\nNumber: %d\r\n\r\n" % number
        data = chance.randbytes(chance.choice(SIZES))
        reply = b"INBOX.7 " if number % 3 == 0 else b""
        subject = b"a.%d" % number
        line = b"HMSG %s 1 %s%d %d\r\n" % (subject, reply, len(head), len(head) + len(data))
        sent.append((line if head else b"MSG %s 1 %s%d\r\n" % (subject, reply, len(data))) + head + data + b"\r\n")
        sent.append(chance.choice([b"", b"", b"PING\r\n", b"+OK\r\n"]))
        wanted.append((subject, head, data))
    with served(cut(b"".join(sent), chance)) as url:
        wire = opened(url)
        assert [tuple(wire.next()) for _ in wanted] == wanted
        with pytest.raises(Lost, match="closed the connection"):
            wire.next()
        wire.close()


def test_what_the_server_has_against_us_is_said() -> None:
    with served([b"-ERR 'Slow Consumer'\r\n"]) as url:
        wire = opened(url)
        with pytest.raises(Lost, match="Slow Consumer"):
            wire.next()
        wire.close()
    refusing = served([], answer=b"-ERR 'Authorization Violation'\r\n")
    with refusing as url, pytest.raises(Refused, match="the log's server refuses: -ERR 'Authorization Violation'"):
        opened(url)
