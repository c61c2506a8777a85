"""`spinney pub`: publications from files, a pipe or the command line to the cloud, until it has stored them."""

from __future__ import annotations

import argparse
import json
import os
import re
import secrets
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from spinney.client import ClientError, NotStored, Publisher
from spinney.errors import PublicationError, SpinneyError

from .client_options import DONE, ERROR, INTERRUPTED, REFUSED, add_access, advice, certificate, password, say
from .interrupts import Interrupts
from .match.errors import InputError
from .match.progress import Progress
from .match.readings import MAX_LINE_BYTES, STANDARD_INPUT, Batch, batches, total_bytes

CONNECT_SECONDS = 3.0
"""To reach the server. With an outbox on disk it need not be there at all."""
END_SECONDS = 10.0
"""To close the link, beyond what --timeout gives to what is not stored yet."""
REPORT_SECONDS = 1.0
"""To say what is stored after a second Ctrl-C, if nobody reads it."""
LINGER_MS = 5.0
MAX_PLACES = 200_000
"""Publications under way of which it is known where they stood: more than fit into the outbox."""

_PAIR = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*)=(.*)", re.DOTALL)

_EPILOG = """\
examples:
  spinney pub NO2=57 lat=45.81 long=15.97 type=air          one publication; a value is JSON, or else text
  spinney pub monday.jsonl.gz tuesday.jsonl                 a JSON object on each line
  sensors | spinney pub --user kit --password-file kit.txt  from a pipe, as it comes

Each publication is numbered and kept until the cloud says that it is stored, over lost links too; with --outbox also
over the end of this command: the next one sends it.

After Ctrl-C nothing more is read, and what was published is waited for as at the end. A second one does not wait.

exit codes: 0 all is stored, 1 some were refused, 2 something was wrong, 130 stopped by Ctrl-C or SIGTERM
"""


def main(arguments: list[str]) -> int:
    """Runs `spinney pub` and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _Run(options).run()
    except (SpinneyError, ValueError) as error:
        say(f"spinney pub: {error}{advice(error)}")
        return ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney pub",
        description="Publish readings, and wait until the cloud has stored them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "readings", nargs="*", default=[STANDARD_INPUT], help="files (- or none: standard input), or name=value ..."
    )
    parser.add_argument("--source", help="of readings that name none (default: the client's name)")
    parser.add_argument("--outbox", type=Path, metavar="FOLDER", help="keep there what is not stored yet")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS", help="for the last (%(default)s)")
    parser.add_argument("--keep-going", action="store_true", help="report a reading that is none and go on")
    parser.add_argument("--json", action="store_true", help="print the counts as a JSON object")
    add_access(parser)
    return parser


class _Run:
    """One way through all readings."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._names: list[str] = options.readings
        self._places: OrderedDict[str, str] = OrderedDict()
        self._bad = 0
        self._wrong_input = False
        self._ending = False
        self._publishing = threading.Lock()
        self._start = time.monotonic()
        total = None if self._is_pairs() else total_bytes(self._names)
        self._progress = Progress(sys.stderr, total, time.monotonic) if sys.stderr.isatty() else None
        self._publisher = Publisher(
            options.user or options.name or f"pub-{secrets.token_hex(4)}",
            server=options.server,
            password=password(options),
            ca=options.ca,
            certificate=certificate(options),
            source=options.source,
            outbox=options.outbox,
            linger_ms=LINGER_MS,
            on_refused=self._refused,
        )

    def run(self) -> int:
        """Publishes everything, and waits; what was published before an error or Ctrl-C is stored, too."""
        with Interrupts() as interrupts:
            publishing = interrupts.start(self._publish_all)
            interrupts.wait_for(publishing, 1)
            self._ending = True
            closing = interrupts.start(self._close)
            interrupts.wait_for(closing, 2, self._options.timeout + END_SECONDS)
            works = [publishing, closing]
            if interrupts.error is None:
                count = interrupts.count
                works.append(interrupts.start(self._report))
                interrupts.wait_for(works[-1], count + 1, REPORT_SECONDS if count > 1 else None)
            if interrupts.error is not None:
                raise interrupts.error
        status = INTERRUPTED if interrupts.count else self._status()
        if not all(work.over for work in works):
            os._exit(status)  # one that waits for a reader of its words may hold up an orderly end
        return status

    def _status(self) -> int:
        if self._wrong_input or self._bad or self._publisher.waiting:
            return ERROR
        return REFUSED if self._publisher.counts.refused else DONE

    def _publish_all(self) -> None:
        try:
            self._publisher.connect(0.0 if self._options.outbox else CONNECT_SECONDS)
            self._read()
            self._flush()
        except InputError as error:
            self._wrong_input = True
            self._tell(f"spinney pub: {error}")
        except ClientError:
            if not self._ending:
                raise

    def _close(self) -> None:
        """Waits for what is published, if there is a link."""
        if self._progress:
            self._progress.clear()
        end = time.monotonic() + (self._options.timeout if self._publisher.connected else 0.0)
        self._publishing.acquire(timeout=max(end - time.monotonic(), 0.0))  # not given back: no more is published
        with suppress(NotStored):
            self._publisher.close(max(end - time.monotonic(), 0.0))

    def _flush(self) -> None:
        try:
            self._publisher.flush(self._options.timeout)
        except NotStored:
            return  # closing tries again, and counts

    # ---- reading

    def _is_pairs(self) -> bool:
        return all(_PAIR.fullmatch(name) for name in self._names) and not any(
            Path(name).exists() for name in self._names
        )

    def _read(self) -> None:
        if self._is_pairs():
            self._publish("the command line", json.dumps(_reading(self._names)).encode())
            return
        before = 0
        for name in self._names:
            done = 0
            for batch in batches(name):
                self._take(name, batch)
                if self._ending:
                    return
                done = batch.bytes_read
                if self._progress:
                    self._progress.show(before + done, self._publisher.counts.published)
            before += done

    def _take(self, name: str, batch: Batch) -> None:
        for number, line in enumerate(batch.lines, batch.first_line):
            if self._ending:
                return
            if line is None:
                self._wrong(f"{name}:{number}", f"the line is longer than {MAX_LINE_BYTES} bytes")
            elif line.strip():
                self._publish(f"{name}:{number}", line)

    def _publish(self, place: str, line: bytes) -> None:
        try:
            publication = json.loads(line)
            with self._publishing:
                receipt = self._publisher.publish(publication)
        except UnicodeDecodeError:
            self._wrong(place, "not UTF-8")
        except json.JSONDecodeError as error:
            self._wrong(f"{place}:{error.colno}", f"not JSON: {error.msg}")
        except (PublicationError, RecursionError) as error:
            self._wrong(place, str(error))
        else:
            self._places[receipt.id] = place
            if len(self._places) > MAX_PLACES:
                self._places.popitem(last=False)

    def _wrong(self, place: str, problem: str) -> None:
        if not self._options.keep_going:
            raise InputError(place, problem)
        self._bad += 1
        self._tell(f"{place}: {problem}")

    # ---- telling

    def _refused(self, id: str, error: ClientError) -> None:
        place = self._places.get(id)
        self._tell(f"{place}: {error}" if place else str(error))

    def _tell(self, text: str) -> None:
        if self._progress:
            self._progress.clear()
        say(text)

    def _report(self) -> None:
        counts, left = self._publisher.counts, self._publisher.waiting
        seconds = time.monotonic() - self._start
        if self._options.json:
            item = {"stored": counts.stored, "refused": counts.refused, "bad": self._bad, "left": left}
            print(json.dumps({**item, "seconds": round(seconds, 3)}), flush=True)
            return
        parts = [f"{counts.stored:,} stored in {seconds:.1f} s"]
        parts += [f"{counts.refused:,} refused"] if counts.refused else []
        parts += [f"{self._bad:,} no publications"] if self._bad else []
        if left:
            kept = f"kept in {self._options.outbox}" if self._options.outbox else "not known to be stored"
            parts.append(f"{left:,} {kept}")
        say(", ".join(parts))


def _reading(pairs: list[str]) -> dict[str, object]:
    reading: dict[str, object] = {}
    for pair in pairs:
        match = _PAIR.fullmatch(pair)
        assert match is not None
        reading[match[1]] = _value(match[2])
    return reading


def _value(text: str) -> object:
    """JSON, or else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
