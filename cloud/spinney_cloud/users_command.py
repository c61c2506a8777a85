"""`spinney cloud user`: who may come in. A running cloud takes a change over at once."""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from spinney.configuring import ConfigurationError

from .data_option import add_data_options, configuration_of
from .names import DEFAULT_TENANT
from .settings import Seconds, Settings
from .users import Role, User, Users, UsersError, change, new_password

ROLES = [role.value for role in Role]

EPILOG = """\
roles: publisher (pub), subscriber (sub, note), "mobile broker" (both, and announcements), operator (all, and HTTP's
administration). A user's name is the client in MQTT topics: alice publishes to spinney/alice/pub.

examples:
  spinney cloud user add alice --role subscriber            prints a new password, once
  spinney cloud user add pi-3 --role "mobile broker" --tenant city --password-file pi-3.txt
  spinney cloud user token alice --for 30d                  a token for HTTP, printed once
  spinney cloud user ls

exit codes: 0 done, 1 refused, 2 wrong use"""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 done, 1 refused, 2 wrong use."""
    options = _parser().parse_args(arguments)
    try:
        settings = configuration_of(options).settings
        act: Callable[[argparse.Namespace, Settings], int] = options.act
        return act(options, settings)
    except (UsersError, ConfigurationError, OSError) as error:
        print(f"spinney cloud user: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney cloud user",
        description="Who may come in, and as what.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="add | ls | rm | passwd | token | revoke")
    add = _command(commands, "add", "add a user", _add)
    add.add_argument("--role", required=True, choices=ROLES)
    add.add_argument("--tenant", default=DEFAULT_TENANT, help="whose publications they see (default: %(default)s)")
    _password_options(add)
    listing = _command(commands, "ls", "list users", _ls, named=False)
    listing.add_argument("--json", action="store_true", help="as JSON")
    _command(commands, "rm", "remove a user, and end their connections", _rm)
    _password_options(_command(commands, "passwd", "give a user another password", _passwd))
    token = _command(commands, "token", "make a token for HTTP", _token)
    token.add_argument("--for", dest="lifetime", type=_lifetime, metavar="TIME", help="such as 12h or 30d")
    revoke = _command(commands, "revoke", "end a token, or all of a user's", _revoke)
    revoke.add_argument("token", nargs="?", help="the token's id, as ls shows it; none: all")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    summary: str,
    act: Callable[[argparse.Namespace, Settings], int],
    *,
    named: bool = True,
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if named:
        parser.add_argument("name", help="the user")
    add_data_options(parser)
    parser.set_defaults(act=act)
    return parser


def _password_options(parser: argparse.ArgumentParser) -> None:
    """Never the password itself: a command line is seen by all on the machine."""
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--password-file", type=Path, metavar="FILE", help="its first line; - for standard input")
    how.add_argument("--ask", action="store_true", help="ask for it on the terminal; else one is made and printed")


# ---- What they do -----------------------------------------------------------------------------------------------


def _add(options: argparse.Namespace, settings: Settings) -> int:
    password, made = _password(options)
    change(settings.data, lambda users: users.add(options.name, Role(options.role), options.tenant, password))
    _tell(f"added {options.name}, {options.role}, tenant {options.tenant}", password if made else None)
    return 0


def _passwd(options: argparse.Namespace, settings: Settings) -> int:
    password, made = _password(options)
    change(settings.data, lambda users: users.set_password(options.name, password))
    _tell(f"changed the password of {options.name}", password if made else None)
    return 0


def _rm(options: argparse.Namespace, settings: Settings) -> int:
    change(settings.data, lambda users: users.remove(options.name))
    _tell(f"removed {options.name}")
    return 0


def _token(options: argparse.Namespace, settings: Settings) -> int:
    lifetime = options.lifetime or settings.security.token_lifetime
    told: list[str] = []

    def add(users: Users) -> Users:
        users, secret, token = users.add_token(options.name, lifetime)
        told[:] = [f"token {token.id} of {options.name}, until {_date(token.expires)}", secret]
        return users

    change(settings.data, add)
    _tell(*told)
    return 0


def _revoke(options: argparse.Namespace, settings: Settings) -> int:
    change(settings.data, lambda users: users.revoke(options.name, options.token))
    _tell(f"revoked {options.token or 'all tokens'} of {options.name}")
    return 0


def _ls(options: argparse.Namespace, settings: Settings) -> int:
    now = time.time()
    users = Users.load(settings.data)
    if options.json:
        print(json.dumps([_row(user, now) for user in users], indent=1))
        return 0
    for user in users:
        tokens = ", ".join(f"{token.id} until {_date(token.expires)}" for token in user.tokens if token.holds(now))
        print(f"{user.name:<20} {user.role:<14} {user.tenant:<16} {_date(user.created)}  tokens: {tokens or '-'}")
    if not users:
        print("no users: anybody on this machine is let in, and nobody from elsewhere", file=sys.stderr)
    return 0


def _row(user: User, now: float) -> dict[str, Any]:
    return {
        "name": user.name,
        "role": user.role,
        "tenant": user.tenant,
        "created": _date(user.created),
        "tokens": [{"id": token.id, "until": _date(token.expires)} for token in user.tokens if token.holds(now)],
    }


def _password(options: argparse.Namespace) -> tuple[str, bool]:
    """The password, and whether it was made here."""
    if options.password_file:
        source = sys.stdin if str(options.password_file) == "-" else options.password_file.open()
        with source:
            return source.readline().rstrip("\r\n"), False
    if not options.ask:
        return new_password(), True
    first, again = getpass.getpass("password: "), getpass.getpass("again: ")
    if first != again:
        raise UsersError("these were two different passwords")
    return first, False


def _tell(what: str, secret: str | None = None) -> None:
    """Words for people on stderr; a secret alone on stdout, so that it can be piped away."""
    print(what, file=sys.stderr)
    if secret is not None:
        print(secret)


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _lifetime(text: str) -> float:
    try:
        return TypeAdapter[float](Seconds).validate_python(text)
    except ValidationError:
        raise argparse.ArgumentTypeError(f"expected a time such as 12h or 30d, not {text!r}") from None
