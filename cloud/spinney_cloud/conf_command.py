"""`spinney cloud conf mosquitto`: settings without which a mosquitto of your own would lose what it acknowledged."""

from __future__ import annotations

import argparse

from .acl import MQTT_USER

MEMORY_LIMIT = 1 << 30
MESSAGE_SIZE = 4 << 20
"""Bytes, unless said otherwise."""

MOSQUITTO = """\
# For Spinney: all that mosquitto needs to be told beside persistence_location. Name it in mosquitto.conf by
# include_dir, or give it to `mosquitto -c`.

# A client that is away keeps its session; the gateway must find all that came meanwhile.
persistence true
# All is written down each second. Without this, kill -9 loses all since the last half hour; with it, at most the last
# second. What the gateway has answered with `stored` is safe in any case. (Not autosave_on_changes: whatever waits for
# anybody would be written anew for each message, and some dozens a second would be all that comes through.)
autosave_interval 1
# Beyond its queue mosquitto acknowledges a message and drops it: no limit for what waits for the gateway...
max_queued_messages 0
# ...but one in bytes for everybody together, as far as this machine's memory goes.
memory_limit {memory_limit}
max_inflight_messages 1000
message_size_limit {message_size}
# Sessions of clients that never come back.
persistent_client_expiration 14d
set_tcp_nodelay true

{access}"""

OPEN = """\
# Anybody who reaches a listener may do anything. With users: `spinney cloud acl mosquitto`, then this with --acl.
allow_anonymous true
listener {listen}
# Then: spinney cloud --mqtt mqtt://{server}
"""

SECURED = """\
# Who may do what, written by `spinney cloud acl mosquitto`: again whenever users change, and SIGHUP to mosquitto.
allow_anonymous false
acl_file {acl}/spinney.acl
password_file {acl}/spinney.passwords

# For clients. The user's name becomes the client id, so that nobody can take another's session by its id: a user
# has one connection. TLS goes here: certfile, keyfile, and cafile with require_certificate for client certificates.
listener {listen}
use_username_as_clientid true

# For Spinney's own processes, which share a user and have secret client ids.
listener {own}
# Then: spinney cloud --mqtt mqtt://{server} --mqtt-user {user}
"""

EPILOG = """\
examples:
  spinney cloud conf mosquitto > /etc/mosquitto/conf.d/spinney.conf
  spinney cloud conf mosquitto --acl /etc/mosquitto/spinney > /etc/mosquitto/conf.d/spinney.conf

exit codes: 0 done, 2 wrong use"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="spinney cloud conf",
        description="Print what an MQTT server of your own must be told, with the reasons.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("server", choices=["mosquitto"])
    parser.add_argument(
        "--acl", metavar="FOLDER", help="where `spinney cloud acl mosquitto --to` has written its files"
    )
    parser.add_argument(
        "--listen", metavar="[ADDRESS:]PORT", help="for clients (default: 1883, without --acl 127.0.0.1:1883)"
    )
    parser.add_argument(
        "--own-listen",
        default="127.0.0.1:1884",
        metavar="[ADDRESS:]PORT",
        help="for Spinney's own processes, with --acl (default: %(default)s)",
    )
    parser.add_argument("--memory-limit", type=int, default=MEMORY_LIMIT, metavar="BYTES", help="default: %(default)s")
    parser.add_argument("--message-size", type=int, default=MESSAGE_SIZE, metavar="BYTES", help="default: %(default)s")
    options = parser.parse_args(arguments)
    print(_mosquitto(_access(options), options.memory_limit, options.message_size), end="")
    return 0


def open_mosquitto(listen: str) -> str:
    """What is printed without users."""
    return _mosquitto(_open(listen))


def _mosquitto(access: str, memory_limit: int = MEMORY_LIMIT, message_size: int = MESSAGE_SIZE) -> str:
    return MOSQUITTO.format(memory_limit=memory_limit, message_size=message_size, access=access)


def _open(listen: str) -> str:
    return OPEN.format(listen=_listener(listen), server=_server(listen))


def _access(options: argparse.Namespace) -> str:
    if options.acl is None:
        return _open(options.listen or "127.0.0.1:1883")
    return SECURED.format(
        acl=options.acl,
        listen=_listener(options.listen or "1883"),
        own=_listener(options.own_listen),
        server=_server(options.own_listen),
        user=MQTT_USER,
    )


def _listener(where: str) -> str:
    """As mosquitto writes it: the port first."""
    address, _, port = where.rpartition(":")
    return f"{port} {address}".rstrip()


def _server(where: str) -> str:
    address, _, port = where.rpartition(":")
    return f"{address or '127.0.0.1'}:{port}"
