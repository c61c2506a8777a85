from __future__ import annotations

import os
import socket

import pytest
from servers import take_any_of

from spinney_cloud.ports import HOLDS, Listener, PortsError, held, is_loopback, reachable, resolve


def test_a_port_in_use_is_told_with_the_process_and_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortsError) as caught:
            resolve([Listener("MQTT", "127.0.0.1", port, "--mqtt-port")])
    (problem,) = caught.value.problems
    assert f"MQTT: port {port} on 127.0.0.1 is in use by" in problem
    assert f"(pid {os.getpid()})" in problem
    assert "--mqtt-port" in problem


def test_all_ports_that_cannot_be_had_are_told_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortsError) as caught:
            resolve(
                [
                    Listener("HTTP", "127.0.0.1", port, "--http-port"),
                    Listener("nats-server", "192.0.2.1", 4222, "--nats-port"),
                    Listener("MQTT", "no such host", 0, "--mqtt-port"),
                ]
            )
    http, nats, mqtt = caught.value.problems
    assert "--http-port" in http
    assert "192.0.2.1 is no address of this machine; change --nats-host" in nats
    assert "no such host is no address of this machine; change --mqtt-host" in mqtt


def test_free_ports_differ_and_can_be_listened_on() -> None:
    ports = resolve([Listener(what, "127.0.0.1", 0, f"--{what}-port") for what in "abcdefgh"])
    assert len(set(ports)) == len(ports)
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


@pytest.mark.skipif(not HOLDS, reason="this system has no way to hold a port for another process")
def test_a_port_that_is_held_is_for_those_alone_who_ask_for_it() -> None:
    with held([Listener("HTTP", "127.0.0.1", 0, "--http-port")]) as [port]:
        for _ in range(2):  # a server that starts again, too
            socket.create_server(("127.0.0.1", port)).close()
        with pytest.raises(OSError, match="in use"):
            take_any_of(port)
    take_any_of(port)


def test_a_port_is_free_again_although_a_connection_to_it_was_just_closed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        server.accept()[0].close()  # the server closes first: its end waits
        client.close()
    assert resolve([Listener("HTTP", "127.0.0.1", port, "--http-port")]) == [port]


@pytest.mark.parametrize(
    ("host", "loopback", "connects_to"),
    [
        ("127.0.0.1", True, "127.0.0.1"),
        ("127.1.2.3", True, "127.1.2.3"),
        ("localhost", True, "localhost"),
        ("::1", True, "::1"),
        ("0.0.0.0", False, "127.0.0.1"),
        ("::", False, "::1"),
        ("192.168.1.7", False, "192.168.1.7"),
        ("broker.example.org", False, "broker.example.org"),
    ],
)
def test_hosts(host: str, loopback: bool, connects_to: str) -> None:
    assert is_loopback(host) is loopback
    assert reachable(host) == connects_to
