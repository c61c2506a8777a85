"""`spinney cloud acl mosquitto`: who may do what, as files for a mosquitto of your own."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from spinney.configuring import ConfigurationError

from .acl import MQTT_USER, mosquitto_acl, mosquitto_passwords
from .data_dir import DataDirError, read_secrets, write_whole
from .data_option import add_data_options, configuration_of
from .users import Users, UsersError, hashes

EPILOG = f"""\
It writes two files, readable by their owner only: spinney.acl and spinney.passwords (hashes, no passwords). Written by
root they belong to whom the folder belongs to, which should be mosquitto's user. Run this again when users have
changed, and send mosquitto a SIGHUP: it ends the connections of who is gone.

example:
  install -d -o mosquitto /etc/mosquitto/spinney
  spinney cloud acl mosquitto --to /etc/mosquitto/spinney
  spinney cloud conf mosquitto --acl /etc/mosquitto/spinney > /etc/mosquitto/conf.d/spinney.conf
  systemctl restart mosquitto
  spinney cloud --mqtt mqtt://127.0.0.1:1884 --mqtt-user {MQTT_USER}"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 refused."""
    parser = argparse.ArgumentParser(
        prog="spinney cloud acl",
        description="Write the access rules of all users for an MQTT server of your own.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("server", choices=["mosquitto"])
    parser.add_argument("--to", type=Path, default=Path(), metavar="FOLDER", help="where to write (default: here)")
    add_data_options(parser)
    options = parser.parse_args(arguments)
    try:
        data = configuration_of(options).settings.data
        users = Users.load(data)
        core_hash = hashes(read_secrets(data).mqtt_password)[1]
        _write(options.to / "spinney.acl", mosquitto_acl(users))
        _write(options.to / "spinney.passwords", mosquitto_passwords(users, core_hash))
    except (UsersError, ConfigurationError, DataDirError, OSError) as error:
        print(f"spinney cloud acl: {error}", file=sys.stderr)
        return 1
    print(f"wrote spinney.acl and spinney.passwords for {len(users)} users to {options.to.absolute()}")
    return 0


def _write(file: Path, text: str) -> None:
    write_whole(file, text.encode())
    if os.geteuid() == 0:
        folder = file.absolute().parent.stat()
        os.chown(file, folder.st_uid, folder.st_gid)
