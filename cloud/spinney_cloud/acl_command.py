"""`spinney cloud acl`: who may do what, as files for a mosquitto or a nats-server of your own."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from spinney.configuring import ConfigurationError

from .acl import CORE_USER, MQTT_USER, mosquitto_acl, mosquitto_passwords, nats_authorization
from .data_dir import DataDirError, read_secrets, write_whole
from .data_option import add_data_options, configuration_of
from .users import Users, UsersError, hashes

NATS_FILE = "spinney-nats.conf"
EPILOG = f"""\
For mosquitto it writes spinney.acl and spinney.passwords (hashes, no passwords); for nats-server {NATS_FILE}, to be
included in its configuration, with the passwords of the cloud's own processes. The files are readable by their owner
only; written by root they belong to whom the folder belongs to, which should be the server's user. Run this again when
users have changed, and send the server a SIGHUP: it ends the connections of who is gone.

examples:
  install -d -o mosquitto /etc/mosquitto/spinney
  spinney cloud acl mosquitto --to /etc/mosquitto/spinney
  spinney cloud conf mosquitto --acl /etc/mosquitto/spinney > /etc/mosquitto/conf.d/spinney.conf
  systemctl restart mosquitto
  spinney cloud --mqtt mqtt://127.0.0.1:1884 --mqtt-user {MQTT_USER}

  spinney cloud acl nats --to /etc/nats
  spinney cloud --nats nats://10.0.0.5:4222 --nats-user {CORE_USER} --mqtt mqtt://10.0.0.5:1883 \\
                --mqtt-user {MQTT_USER}

exit codes: 0 done, 1 refused, 2 wrong use"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 refused."""
    parser = argparse.ArgumentParser(
        prog="spinney cloud acl",
        description="Write the access rules of all users for an MQTT server of your own.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("server", choices=["mosquitto", "nats"])
    parser.add_argument("--to", type=Path, default=Path(), metavar="FOLDER", help="where to write (default: here)")
    add_data_options(parser)
    options = parser.parse_args(arguments)
    try:
        data = configuration_of(options).settings.data
        users = Users.load(data)
        secrets = read_secrets(data)
        if options.server == "nats":
            files = {NATS_FILE: nats_authorization(users, secrets, anonymous_may=False)}
        else:
            passwords = mosquitto_passwords(users, hashes(secrets.mqtt_password)[1])
            files = {"spinney.acl": mosquitto_acl(users), "spinney.passwords": passwords}
        for name, text in files.items():
            _write(options.to / name, text)
    except (UsersError, ConfigurationError, DataDirError, OSError) as error:
        print(f"spinney cloud acl: {error}", file=sys.stderr)
        return 1
    print(f"wrote {' and '.join(files)} for {len(users)} users to {options.to.absolute()}")
    return 0


def _write(file: Path, text: str) -> None:
    write_whole(file, text.encode())
    if os.geteuid() == 0:
        folder = file.absolute().parent.stat()
        os.chown(file, folder.st_uid, folder.st_gid)
