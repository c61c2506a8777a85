"""`spinney cloud conf mosquitto`: settings without which a mosquitto of your own would lose what it acknowledged."""

from __future__ import annotations

import argparse

MOSQUITTO = """\
# For Spinney. Include it from mosquitto.conf, beside your listeners; then: spinney cloud --mqtt mqtt://HOST:PORT

# A client that is away keeps its session; the gateway must find all that came meanwhile.
persistence true
# Whole messages are written down at every change. Without these two, kill -9 loses all since the last half hour;
# with them, at most the last change. What the gateway has answered with `stored` is safe in any case.
autosave_on_changes true
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

# Who may do what: write both files with `spinney cloud acl mosquitto`.
allow_anonymous {anonymous}
{files}
# On the listener of your clients, so that nobody can take another's session by its client id:
#   use_username_as_clientid true
# Spinney's own processes share a user and have secret client ids: give them a listener of their own without it, such as
#   listener 1884 127.0.0.1
"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0."""
    parser = argparse.ArgumentParser(
        prog="spinney cloud conf", description="Print what an MQTT server of your own must be told, with the reasons."
    )
    parser.add_argument("server", choices=["mosquitto"])
    parser.add_argument(
        "--acl", metavar="FOLDER", help="where `spinney cloud acl mosquitto --to` has written its files"
    )
    parser.add_argument("--memory-limit", type=int, default=1 << 30, metavar="BYTES", help="default: %(default)s")
    parser.add_argument("--message-size", type=int, default=4 << 20, metavar="BYTES", help="default: %(default)s")
    options = parser.parse_args(arguments)
    secured = options.acl is not None
    print(
        MOSQUITTO.format(
            memory_limit=options.memory_limit,
            message_size=options.message_size,
            anonymous=str(not secured).lower(),
            files=f"acl_file {options.acl}/spinney.acl\npassword_file {options.acl}/spinney.passwords\n"
            if secured
            else "# acl_file FOLDER/spinney.acl\n# password_file FOLDER/spinney.passwords\n",
        ),
        end="",
    )
    return 0
