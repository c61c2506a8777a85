"""What mobile brokers held back, for a replay of the lake: asked for by the cloud's HTTP API, and put among rows."""

# pyright: reportAttributeAccessIssue=false
# pyarrow.compute makes its functions when it is imported

from __future__ import annotations

import argparse
import os
import ssl
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from spinney.client.http_access import DEFAULT, VARIABLE, HttpAccess, HttpAccessError

from ..data_dir import RUN_FILE
from ..fetch.parts import DEFAULT_SECONDS, LONGEST_SECONDS
from ..fetch.placing import Placing
from ..fetch.result import Fetched, read_fetched
from ..records import Run
from ..service import read_run
from .lake import Lake
from .replay_rows import Wanted, days, within

PATH = "/v1/fetch"
ROOM_SECONDS = 15.0
"""For the cloud to answer, beside the time that its brokers have."""
UNKNOWN = 401
"""The status of an answer to somebody who is not known."""
_COLUMNS = ["log_seq", "log_row", "arrival", "source", "boot", "sequence"]


def look(lake: Lake, wanted: Wanted, placing: Placing) -> None:
    """Tell what was fetched of the numbers that the lake has of its sources."""
    data = lake.dataset()
    sources = pa.array(sorted(placing.sources), pa.string())
    for day in days(lake, wanted):
        where = within(wanted, day.date) & (ds.field("tenant") == wanted.tenant) & ds.field("source").isin(sources)
        rows = data.to_table(columns=_COLUMNS, filter=where)
        for row in rows.sort_by([("log_seq", "ascending"), ("log_row", "ascending")]).to_pylist():
            run = Run(row["source"], row["boot"], row["sequence"], 1, "", None, 1)
            placing.look(row["log_seq"], row["arrival"], (run,))


class FetchError(Exception):
    """Nothing can be fetched; the text says why."""


def add_fetch_options(parser: argparse.ArgumentParser) -> None:
    """`--fetch`, and which cloud is asked, as whom."""
    group = parser.add_argument_group("what mobile brokers still have")
    group.add_argument(
        "--fetch",
        action="store_true",
        help="ask a running cloud's mobile brokers for valid readings that nobody wanted, into this answer only",
    )
    group.add_argument(
        "--fetch-seconds",
        type=_seconds,
        default=DEFAULT_SECONDS,
        metavar="S",
        help="wait so long (default: %(default)g)",
    )
    group.add_argument(
        "--http", metavar="URL", help=f"the cloud's HTTP address ({VARIABLE}, else that of --data, else {DEFAULT})"
    )
    group.add_argument("--token-file", type=Path, metavar="FILE", help="whose first line is a token for it")
    group.add_argument("--ca", type=Path, metavar="FILE", help="the certificate to trust instead of the system's")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected seconds, more than 0 and at most {LONGEST_SECONDS:g}")
    return seconds


def fetch(options: argparse.Namespace, data: Path, wanted: Wanted) -> Fetched:
    """What the cloud's mobile brokers have of a replay; FetchError."""
    question = {
        "subscription": wanted.subscription.to_json(),
        "since": wanted.since,
        "until": wanted.until,
        "seconds": options.fetch_seconds,
    }
    try:
        told = _access(options, data).post(PATH, question, options.fetch_seconds + ROOM_SECONDS)
        fetched = read_fetched(told)
    except HttpAccessError as error:
        advice = "; give --token-file" if error.status == UNKNOWN else ""
        raise FetchError(f"--fetch asks a running cloud: {error}{advice}; --http names another") from None
    except (KeyError, TypeError, ValueError) as error:
        raise FetchError(f"--fetch: the cloud answers what this version does not understand: {error!r}") from None
    if told["tenant"] != wanted.tenant:
        raise FetchError(f"--fetch: the cloud takes us for one of tenant {told['tenant']}, not {wanted.tenant}")
    return fetched


def _access(options: argparse.Namespace, data: Path) -> HttpAccess:
    try:
        token = None if options.token_file is None else options.token_file.read_text(encoding="utf-8").split("\n")[0]
        access = HttpAccess(options.http or _address(data), None if token is None else f"Bearer {token.strip()}")
        if access.is_secure and options.ca is not None:
            access.tls = ssl.create_default_context(cafile=options.ca)
    except OSError as error:
        raise FetchError(f"--fetch: {error.filename or options.ca}: {error.strerror}") from None
    return access


def _address(data: Path) -> str | None:
    """Of the cloud that ran on a data directory last."""
    if VARIABLE in os.environ:
        return None
    try:
        settings, endpoints = read_run(data / RUN_FILE)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    from ..ports import at, reachable  # psutil need not be there where the cloud does not run

    secure = "" if settings.http.tls.certificate is None else "s"
    return f"http{secure}://{at(reachable(settings.http.host), endpoints.http_port)}"
