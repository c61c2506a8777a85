"""`spinney cloud health`: whether the cloud of a data directory does its work; for containers and scripts."""

from __future__ import annotations

import argparse
import http.client
import json
import ssl
import sys
from typing import Any

from spinney.configuring import ConfigurationError

from .data_dir import RUN_FILE
from .data_option import add_data_options, configuration_of
from .ports import reachable
from .service import read_run

TIMEOUT_SECONDS = 8.0
MAX_ANSWER_BYTES = 1024 * 1024

EPILOG = """\
It asks /readyz of the cloud that runs on the data directory, wherever that listens.

examples:
  spinney cloud health
  spinney cloud health --data /var/lib/spinney

exit codes: 0 ready, 1 not, 2 wrong use"""


class HealthError(Exception):
    """Why there is no answer, and what to do."""


def main(arguments: list[str]) -> int:
    """The command; exit code 0 ready, 1 not, 2 wrong use."""
    parser = argparse.ArgumentParser(
        prog="spinney cloud health",
        description="Say whether the cloud on this machine does its work, and if not, who does not.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_options(parser)
    options = parser.parse_args(arguments)
    try:
        health = _ask(options)
    except (HealthError, ConfigurationError) as error:
        print(f"spinney cloud health: {error}", file=sys.stderr)
        return 1
    print("ready" if health["ready"] else "; ".join(health["why"]))
    return 0 if health["ready"] else 1


def _ask(options: argparse.Namespace) -> dict[str, Any]:
    data = configuration_of(options).settings.data
    try:
        settings, endpoints = read_run(data / RUN_FILE)
    except OSError as error:
        raise HealthError(f"no cloud has run on {data}: {error.strerror}; --data names another") from error
    host, port = reachable(settings.http.host), endpoints.http_port
    connection = _connection(host, port, secure=settings.http.tls.certificate is not None)
    try:
        connection.request("GET", "/readyz")
        answer = json.loads(connection.getresponse().read(MAX_ANSWER_BYTES))
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HealthError(f"no answer from {host}:{port}: {error}; is it running?") from error
    finally:
        connection.close()
    return {"ready": answer.get("ready") is True, "why": answer.get("why") or ["it does not say why"]}


def _connection(host: str, port: int, *, secure: bool) -> http.client.HTTPConnection:
    if not secure:
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    # Nothing secret is said or believed: the certificate may be for another of this machine's names.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)
