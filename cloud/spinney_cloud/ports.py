"""Ports to listen on: whether they can be had, and who has them if not."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import psutil

HOLDS: Final = sys.platform == "linux"
"""There a port that is bound, and not listened on, goes to nobody who asks for any, but to who asks for this one."""


class Listener(NamedTuple):
    """An address that one of our processes is to listen on."""

    what: str
    host: str
    port: int
    """0: any free one."""
    option: str
    """The flag that changes the port; the host's begins alike."""


class PortsError(Exception):
    """What cannot be listened on: one line each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def reachable(host: str) -> str:
    """Where this machine itself connects to what listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound


def at(host: str, port: int) -> str:
    """`host:port`, as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def resolve(listeners: Sequence[Listener]) -> list[int]:
    """The port of each, chosen where any will do; PortsError names all that cannot be had."""
    with held(listeners) as ports:
        return ports


@contextmanager
def held(listeners: Sequence[Listener]) -> Iterator[list[int]]:
    """As `resolve`; and until its end they are for those alone who ask for them by number (where the system HOLDS)."""
    problems: list[str] = []
    ports: list[int] = []
    with ExitStack() as bound:  # all at once, so that no two get the same
        for listener in listeners:
            try:
                one = bound.enter_context(_bind(listener.host, listener.port))
                ports.append(one.getsockname()[1])
            except OSError as error:
                problems.append(_problem(listener, error))
        if problems:
            raise PortsError(problems)
        if not HOLDS:
            bound.close()
        yield ports


def _bind(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    bound = socket.socket(family, kind, protocol)
    try:
        # as servers do: what is left of closed connections is no obstacle
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        if not HOLDS:
            bound.listen(1)
    except OSError:
        bound.close()
        raise
    return bound


def _problem(listener: Listener, error: OSError) -> str:
    what, host, port, option = listener
    where = f"{what}: port {port} on {host}"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{what}: {host} is no address of this machine; change {option.removesuffix('-port')}-host"
    if error.errno == errno.EADDRINUSE:
        who = user_of(port)
        return (
            f"{where} is in use{f' by {who}' if who else ''}; stop that, or choose another with {option} (0: any free)"
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"{where} needs privileges that this process lacks; choose one from 1024 up with {option}"
    return f"{where} cannot be listened on: {error.strerror or error}; change it with {option}"


def user_of(port: int) -> str | None:
    """The process that listens on a port, as far as we may know: `name (pid 1)`."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except (psutil.AccessDenied, PermissionError):
        return None
    for connection in connections:
        if (
            connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr[1] == port
            and connection.pid
        ):
            try:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
            except psutil.Error:
                return f"pid {connection.pid}"
    return None
