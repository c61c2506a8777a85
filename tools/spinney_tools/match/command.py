"""`spinney match`: options, the way through the files, and how it ends."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping

from spinney import PublicationError
from spinney.subscription import Subscription

from .errors import InputError
from .matching import Found, Matching, Place
from .output import Counts, Lines, Output
from .progress import Progress
from .readings import MAX_LINE_BYTES, STANDARD_INPUT, Batch, batches, total_bytes
from .subscriptions import load

SOME, NONE, ERROR, INTERRUPTED = 0, 1, 2, 130

_LINES_AT_ONCE = 128

_EPILOG = """\
examples:
  spinney match -s 'NO2 > 40' readings.jsonl
  spinney match -s 'smoke: PM10 > 150' -s 'WHEN temp > 25 UNTIL temp <= 22 EACH room' monday.jsonl.gz tuesday.jsonl.gz
  mosquitto_sub -t 'sensors/#' | spinney match --subscriptions mine.txt --explain | jq .ids

readings: one JSON object on a line; gzip is recognised. A reading's log time is its `time`, else that of the reading
  before; its source is its `source`, else the file's name.
subscriptions file: `FILTER` or `id: FILTER` on a line, subscriptions in JSON, or an array of them; # begins a comment.
output: {"line": 3, "ids": ["smoke"], "why": "match", "publication": {...}} for each reading and reason ("match",
  "enter", "exit", "top"), with "file" if there are several, and "scope" and "rank" where there are such.

exit codes: 0 something matched, 1 nothing did, 2 something was wrong (also with --keep-going), 130 stopped by Ctrl-C
"""


def main(argv: list[str]) -> int:
    """Runs `spinney match` and returns its exit code."""
    options = _parser().parse_args(argv)
    try:
        subscriptions = load(options.subscription, options.subscriptions)
        if not subscriptions:
            raise InputError("spinney match", "no subscription: give -s TEXT or --subscriptions FILE")
        return _Run(options, subscriptions).run()
    except InputError as error:
        _say(str(error))
        return ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney match",
        description="Print the readings that match subscriptions, as JSON lines.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("readings", nargs="*", default=[STANDARD_INPUT], help="files; - or none for standard input")
    parser.add_argument("-s", "--subscription", action="append", default=[], metavar="TEXT", help="may be repeated")
    parser.add_argument("--subscriptions", action="append", default=[], metavar="FILE", help="may be repeated")
    parser.add_argument(
        "--count", action="store_true", help="print only how often each subscription matched, at the end"
    )
    parser.add_argument("--explain", action="store_true", help="add which part of each subscription made it match")
    parser.add_argument("--explain-all", action="store_true", help="print every reading, and why it matches or not")
    parser.add_argument("--keep-going", action="store_true", help="report a reading that is refused and go on")
    return parser


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class _Run:
    """One way through all files."""

    def __init__(self, options: argparse.Namespace, subscriptions: Mapping[str, Subscription]) -> None:
        self._files: list[str] = options.readings
        self._keep_going: bool = options.keep_going
        explaining = options.explain or options.explain_all
        self._matching = Matching(
            subscriptions, self._files, read_all=explaining, keep_all=options.explain_all and not options.count
        )
        self._output: Output = (
            Counts(sys.stdout.buffer, subscriptions)
            if options.count
            else Lines(
                sys.stdout.buffer, subscriptions, self._files, explain=options.explain, explain_all=options.explain_all
            )
        )
        self._progress = self._make_progress(options.count)
        self._readings = self._matched = self._refused = 0
        self._bytes_before = 0

    def _make_progress(self, counting: bool) -> Progress | None:
        """None where nobody would see it, or where it would stand between the lines."""
        if not sys.stderr.isatty() or (sys.stdout.isatty() and not counting):
            return None
        return Progress(sys.stderr, total_bytes(self._files), time.monotonic)

    def run(self) -> int:
        """Reads everything; what was found before an error or Ctrl-C is printed."""
        try:
            for number, name in enumerate(self._files):
                self._read_file(number, name)
            self._deliver(self._matching.finish())
            status = ERROR if self._refused else SOME if self._matched else NONE
        except KeyboardInterrupt:
            status = INTERRUPTED
        finally:
            if self._progress:
                self._progress.clear()
            self._output.flush()
        self._output.finish()
        if status == INTERRUPTED:
            _say(f"stopped after {self._readings:,} readings, {self._matched:,} of which matched")
        if self._refused:
            _say(f"{self._refused:,} refused, {self._readings:,} readings taken")
        return status

    def _read_file(self, number: int, name: str) -> None:
        done = 0
        try:
            for batch in batches(name):
                done = batch.bytes_read
                self._take(number, batch)
                self._output.flush()
                if self._progress:
                    self._progress.show(self._bytes_before + done, self._readings)
        except InputError as error:
            self._refuse(error)
        self._bytes_before += done

    def _take(self, file: int, batch: Batch) -> None:
        for start in range(0, len(batch.lines), _LINES_AT_ONCE):
            self._take_lines(file, batch.first_line + start, batch.lines[start : start + _LINES_AT_ONCE])

    def _take_lines(self, file: int, first: int, lines: list[bytes | None]) -> None:
        """All at once if that is possible, else one by one, so that every refusal has its line."""
        numbered = [(n, reading) for n, text in enumerate(lines, first) if text and (reading := text.strip())]
        found = None if None in lines else self._matching.take_block(file, numbered)
        if found is not None:
            self._readings += len(numbered)
            self._deliver(found)
            return
        for line, text in enumerate(lines, first):
            if text is None:
                problem = f"the line is longer than {MAX_LINE_BYTES} bytes"
                self._refuse(InputError(f"{self._files[file]}:{line}", problem))
            elif reading := text.strip():
                self._take_reading(Place(file, line), text, reading)

    def _take_reading(self, place: Place, text: bytes, reading: bytes) -> None:
        try:
            found = self._matching.take(place, reading)
        except PublicationError as error:
            name = f"{self._files[place.file]}:{place.line}:{_column(text, reading, error)}"
            self._refuse(InputError(name, str(error)))
            return
        self._readings += 1
        self._deliver(found)

    def _deliver(self, found: list[Found]) -> None:
        for item in found:
            self._matched += item.why is not None
            self._output.take(item)

    def _refuse(self, error: InputError) -> None:
        if not self._keep_going:
            raise error
        self._refused += 1
        if self._progress:
            self._progress.clear()
        _say(str(error))


def _column(text: bytes, reading: bytes, error: PublicationError) -> int:
    """Where the error is in the line, in characters from 1; the reading may stand behind white space."""
    position = error.position
    if position is None:
        position = max(reading.find(f'"{error.attribute}"'.encode()), 0)
    before = text[: text.find(reading) + position]
    return len(before.decode("utf-8", "replace")) + 1
