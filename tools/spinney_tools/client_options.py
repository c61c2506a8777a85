"""What `spinney pub`, `sub` and `ls` have in common: which cloud, as whom, and how trouble is told."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from spinney.client.address import DEFAULT, VARIABLE
from spinney.client.errors import ConnectionRefused
from spinney.errors import SpinneyError

DONE, REFUSED, ERROR, INTERRUPTED = 0, 1, 2, 130

USER = "SPINNEY_USER"
PASSWORD_FILE = "SPINNEY_PASSWORD_FILE"  # noqa: S105  # the name of a variable that names a file


class OptionError(SpinneyError):
    """An option, or a file that one names, that cannot be used."""


def add_access(parser: argparse.ArgumentParser) -> None:
    """--server, --user, --password-file, --name and --ca."""
    group = parser.add_argument_group("the cloud")
    group.add_argument(
        "--server", metavar="URL", help=f"mqtt://host:port, mqtts://, ws:// ({VARIABLE}, else {DEFAULT})"
    )
    add_user(group)
    group.add_argument("--name", help="of an anonymous client (default: made up); a user's is that of the user")


def add_user(group: argparse._ArgumentGroup) -> None:
    """--user, --password-file, --ca, --certificate and --key."""
    group.add_argument("--user", default=os.environ.get(USER), help=f"({USER})")
    group.add_argument(
        "--password-file",
        type=Path,
        default=os.environ.get(PASSWORD_FILE),
        metavar="FILE",
        help=f"whose first line is the password ({PASSWORD_FILE})",
    )
    group.add_argument("--ca", type=Path, metavar="FILE", help="the certificate to trust instead of the system's")
    group.add_argument("--certificate", type=Path, metavar="FILE", help="the client's own, where one is asked for")
    group.add_argument("--key", type=Path, metavar="FILE", help="of --certificate")


def certificate(options: argparse.Namespace) -> tuple[Path, Path] | None:
    """The client's own, and its key; OptionError for one without the other."""
    if (options.certificate is None) != (options.key is None):
        raise OptionError("--certificate and --key go together")
    return None if options.certificate is None else (options.certificate, options.key)


def password(options: argparse.Namespace) -> str | None:
    """From its file; OptionError where user and password do not go together."""
    if options.user is None:
        return None
    if options.password_file is None:
        raise OptionError(f"--user {options.user} needs --password-file, or {PASSWORD_FILE}")
    return first_line(options.password_file)


def first_line(file: Path) -> str:
    """Of a file that holds a secret."""
    try:
        lines = Path(file).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OptionError(f"{file}: {error.strerror}") from None
    if not lines or not lines[0]:
        raise OptionError(f"{file}: its first line is empty")
    return lines[0]


def advice(error: Exception) -> str:
    """What else to try, behind an error's own words."""
    if isinstance(error, ConnectionRefused) and error.user is None:
        return "; give --user and --password-file"
    return ""


def say(text: str) -> None:
    """To whoever looks on, beside the output."""
    print(text, file=sys.stderr, flush=True)


def discard_output() -> None:
    """Nobody reads it any more: what is still buffered must neither complain nor wait at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
