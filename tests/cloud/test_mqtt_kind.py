from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from servers import HOST, MosquittoServer, NatsServer, free_ports

from spinney_cloud.mqtt_kind import Broker, MqttRefusedError, detect


def test_a_server_is_known_by_what_it_says(mqtt_server: NatsServer | MosquittoServer) -> None:
    assert asyncio.run(detect(Broker(HOST, mqtt_server.mqtt_port, "secret-kind"))) == mqtt_server.kind


@pytest.mark.needs("mosquitto")
def test_a_server_that_does_not_let_us_in_is_told(tmp_path: Path) -> None:
    (tmp_path / "passwords").touch()
    with MosquittoServer(tmp_path, extra=f"password_file {tmp_path}/passwords", listener="") as server:
        conf = tmp_path / "mosquitto.conf"
        conf.write_text(conf.read_text().replace("allow_anonymous true", "allow_anonymous false"))
        server.restart()
        with pytest.raises(MqttRefusedError, match="is the user or the password wrong"):
            asyncio.run(detect(Broker(HOST, server.mqtt_port, "secret-kind", "kit", "wrong")))


def ask(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> str:
    """What a server is that answers so."""

    async def both() -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await answer(reader, writer)
            writer.close()

        async with await asyncio.start_server(serve, HOST, 0) as server:
            return await detect(Broker(HOST, server.sockets[0].getsockname()[1], "secret-kind"))

    return asyncio.run(both())


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.0 400 Bad Request\r\n\r\n",
        b"\x20",
        b"\x20\x00",
        b"\x20\x01\x00",
        b"\x20\xff\xff\xff\xff\x7f",
        b"\x20\x03\x00\x00\x00",
        b"\x20\x03\x00\x00\x00\x90\x04\x00\x01\x00\x80",
        b"\x20\x03\x00\x00\x00\x30\x05\x00\x01a\x00x",
        b"\xd0\x00",
    ],
)
def test_any_other_server_is_other(said: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(said)

    assert ask(answer) == "other"


def test_a_server_that_is_not_there_is_an_error_to_try_again() -> None:
    with pytest.raises(OSError, match="Connect call failed"):
        asyncio.run(detect(Broker(HOST, free_ports(1)[0], "secret-kind")))
