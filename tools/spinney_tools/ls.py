"""`spinney ls`: subscriptions, sources and mobile brokers, as the cloud's HTTP API has them."""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import ssl
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spinney.client.http_access import DEFAULT, VARIABLE, HttpAccess, HttpAccessError

from .client_options import DONE, ERROR, OptionError, add_user, certificate, first_line, password, say

UNKNOWN, FORBIDDEN = 401, 403
"""Statuses: who asks is not known, or may not."""
PAGE = 1_000
MAX_CELL = 60

COLUMNS = {
    "subscriptions": ("sid", "owner", "kind", "normal", "cost", "enabled"),
    "sources": (),
    "brokers": (),
    "activations": (),
    "sessions": ("client", "connected", "away_since", "waiting", "ended", "lost"),
}
"""What a table shows of each; all there is where nothing is said."""

_EPILOG = """\
examples:
  spinney ls                                               subscriptions: one's own, an operator everybody's
  spinney ls sources --near 45.81,15.97 --within 2km --attribute NO2
  spinney ls brokers --json | jq .name

exit codes: 0 done, 2 something was wrong
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney ls` and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        rows = _rows(options)
        if options.json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            show(list(rows), options.what)
    except OptionError as error:
        say(f"spinney ls: {error}")
        return ERROR
    return DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney ls",
        description="List subscriptions, announced sources, mobile brokers or subscribers' sessions of a cloud.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", choices=list(COLUMNS), default="subscriptions")
    parser.add_argument("--near", metavar="LAT,LONG", help="sources: the nearest first")
    parser.add_argument("--within", metavar="DISTANCE", help="sources: up to so far from there, 500m or 2km")
    parser.add_argument("--attribute", metavar="NAME", help="sources: that give this")
    parser.add_argument("--json", action="store_true", help="print each as a JSON object")
    group = parser.add_argument_group("the cloud")
    group.add_argument("--http", metavar="URL", help=f"its HTTP address ({VARIABLE}, else {DEFAULT})")
    add_user(group)
    group.add_argument("--token-file", type=Path, metavar="FILE", help="whose first line is a token, instead of a user")
    return parser


def _rows(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All of them, page by page."""
    query: dict[str, str] = {"limit": str(PAGE)}
    if options.what == "sources":
        named = ("near", "within", "attribute")
        query |= {name: value for name in named if (value := getattr(options, name)) is not None}
    if options.what == "subscriptions":
        query["all_owners"] = "true"
    ask = _Api(options)
    while True:
        page = ask.get(f"/v1/{options.what}", query)
        yield from page[options.what]
        if not page.get("next"):
            return
        query["after"] = page["next"]


class _Api:
    """The address, and who asks."""

    def __init__(self, options: argparse.Namespace) -> None:
        authorization = None
        if options.token_file is not None:
            authorization = f"Bearer {first_line(options.token_file)}"
        elif (secret := password(options)) is not None:
            authorization = f"Basic {base64.b64encode(f'{options.user}:{secret}'.encode()).decode()}"
        try:
            self._access = HttpAccess(options.http, authorization)
        except HttpAccessError as error:
            raise OptionError(str(error)) from None
        if self._access.is_secure:
            self._access.tls = _tls(options)

    def get(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """The answer's object; OptionError with what went wrong."""
        try:
            return self._access.get(path, query)
        except HttpAccessError as error:
            if error.status == FORBIDDEN and query.pop("all_owners", ""):
                return self.get(path, query)  # no operator: one's own
            advice = "; give --user and --password-file, or --token-file" if error.status == UNKNOWN else ""
            raise OptionError(f"{error}{advice}") from None


def _tls(options: argparse.Namespace) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca)
        if (own := certificate(options)) is not None:
            context.load_cert_chain(*own)
    except OSError as error:
        raise OptionError(f"the certificates cannot be used: {error.strerror or error}") from None
    return context


# ---- A table ------------------------------------------------------------------------------------------------------


def show(rows: list[dict[str, Any]], what: str) -> None:
    """As wide as the terminal; all of it where it is no terminal."""
    if not rows:
        say(f"no {what}")
        return
    columns = COLUMNS[what] or tuple(dict.fromkeys(name for row in rows for name in row))
    table = [[name.upper() for name in columns], *([cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in table:
        text = "  ".join(f"{text:<{width}}" for text, width in zip(line, widths, strict=True)).rstrip()
        print(text[:room])


def cell(value: Any) -> str:
    """One value, short."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 3] + "..."
