"""`spinney replay`: what a subscription would have told, from the lake."""

from __future__ import annotations

import argparse
import datetime as dt
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds

from spinney import SyntaxError as SubscriptionError
from spinney import parse
from spinney.configuring import ConfigurationError

from ..completeness.answer import MAX_REASONS
from ..configuration import Configuration
from ..data_option import add_data_options, configuration_of
from ..fetch.placing import Placing
from ..fetch.result import Fetched
from ..names import DEFAULT_TENANT
from ..settings import Settings
from ..subscriptions import form_of
from .columns_bounds import implied
from .lake import OBSERVATIONS, Lake, LakeError
from .needs import EXTRA
from .replay import replay
from .replay_fetch import FetchError, add_fetch_options, fetch, look
from .replay_history import completeness_of
from .replay_progress import Progress
from .replay_results import FORMS, Counts, Output, OutputError
from .replay_rows import DAY_SECONDS, Wanted, days, tables
from .replay_times import moment, written

if TYPE_CHECKING:  # Spark is imported when it is needed
    from pyspark.sql import SparkSession

APP = "spinney replay"
FAILED, INTERRUPTED = 1, 130
REASONS = 10
"""Shown, unless said otherwise."""
SPARK_FROM_BYTES = 4 * 1024**3
"""Of files: from so many on Spark reads them, unless it is said who is to."""
EPILOG = f"""\
Moments are dates, timestamps (UTC unless they say a zone), now, today, yesterday, or so long ago: -7d. --to is not
included: --from 2026-10-01 --to 2026-10-02 is one day. What the lake has not yet is not told; see spinney lake stats.

A mobile broker sends up what somebody had asked for. So the answer says whether it is complete, or why not and when:
--reasons 1000 says more of that, and --reasons 0 nothing but the verdict. --fetch asks for what brokers held back and
still have, since it is valid (valid_for); it comes into this answer, and neither into the log nor into the lake.

The subscription is text or JSON with options. State and top-k start empty at --from.

--out: {", ".join(FORMS)}, or - for JSON lines on standard output; notifications as a subscriber would have got them.

examples:
  spinney replay 'NO2 > 40 AND lat > 45.8' --from -7d
  spinney replay 'WHEN temp > 25 UNTIL temp <= 22 EACH room' --from 2026-10-01 --to now --out warm.parquet
  spinney replay 'TOP 10 OVER 24h BY PM10 DESC' --from 2026-10 --to 2026-11 --out - | jq .publication.source
  spinney replay 'PM10 > 150' --lake s3://city/lake --by spark --master spark://head:7077

exit codes: 0 done, 1 it could not be done, 2 wrong use, 130 stopped by Ctrl-C
"""


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > MAX_REASONS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to {MAX_REASONS}")
    return int(text)


class ReplayError(Exception):
    """It cannot be done; the text says why."""


def main(arguments: list[str]) -> int:
    """Runs `spinney replay` and returns its exit code."""
    options = _parser().parse_args(_joined(arguments))
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _Run(options).run()
    except (ReplayError, LakeError, OutputError, FetchError, ConfigurationError) as error:
        print(f"spinney replay: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("spinney replay: stopped; nothing was written", file=sys.stderr)
        return INTERRUPTED
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _joined(arguments: Sequence[str]) -> list[str]:
    """`--from -7d` as one word: it would be taken for an option."""
    found: list[str] = []
    for word in arguments:
        if found and found[-1] in ("--from", "--to") and word[:1] == "-" and word[1:2].isdigit():
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spinney replay",
        description="What a subscription would have told, from the pipeline's lake.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("subscription", help="text or JSON")
    parser.add_argument("--from", dest="since", metavar="MOMENT", help="default: where the lake begins")
    parser.add_argument("--to", dest="until", metavar="MOMENT", default="now", help="default: now")
    parser.add_argument("--out", metavar="FILE", help="write the notifications, too")
    parser.add_argument("--lake", metavar="PLACE", help="a folder, or a URL such as s3://bucket/lake")
    add_data_options(parser)
    parser.add_argument("--tenant", default=DEFAULT_TENANT, help="whose publications (default: %(default)s)")
    parser.add_argument(
        "--by", choices=("auto", "arrow", "spark"), default="auto", help="who reads: Spark, where there is much of it"
    )
    parser.add_argument(
        "--reasons",
        type=_count,
        default=REASONS,
        metavar="N",
        help="why it may not be complete: at most so many of them",
    )
    parser.add_argument("--master", help="Spark's, if it is not to run here; spark://, k8s://, sc://")
    parser.add_argument("--explain", action="store_true", help="only say what would be read, and how")
    add_fetch_options(parser)
    return parser


class _Run:
    """From the options to the chart."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._configuration: Configuration = configuration_of(options)
        self._lake = self._open(options.lake or self._settings.lake)
        self._wanted = self._read_wanted()
        self._days = days(self._lake, self._wanted)
        self._progress = Progress(self._days)
        self._fetched: Fetched | None = None

    @property
    def _settings(self) -> Settings:
        return self._configuration.settings

    def run(self) -> None:
        """Explains, or replays."""
        if self._options.fetch and not self._options.explain:
            self._progress.say("asking mobile brokers")
            try:
                self._fetched = fetch(self._options, self._settings.data, self._wanted)
            finally:
                self._progress.end()
        if not self._days and not (self._fetched and self._fetched.readings):
            begins, ends = self._extent()
            raise ReplayError(f"the lake has nothing from then: it holds {begins} to {ends}")
        if self._options.explain:
            self._explain()
            return
        counts, placing = Counts(), self._placing()
        with Output(self._options.out) as output, self._rows() as rows:
            for notes in replay(
                self._lake, self._wanted, self._settings, rows, whole=output.wants_publications, placing=placing
            ):
                counts.put(notes)
                output.put(notes)
        self._tell(counts)
        self._tell_how_complete()

    def _placing(self) -> Placing | None:
        """What mobile brokers still have, if they are to be asked, to be put among what the lake has."""
        if self._fetched is None:
            return None
        placing = Placing(self._fetched, self._wanted.tenant)
        look(self._lake, self._wanted, placing)
        placing.looked()
        return placing

    # ---- what is asked for

    @staticmethod
    def _open(place: str) -> Lake:
        lake = Lake(place if "://" in place else Path(place).expanduser().absolute())
        if OBSERVATIONS not in lake.names():
            raise ReplayError(f"there is no lake in {place}: spinney pipeline makes one; --lake says where it is")
        return lake

    def _read_wanted(self) -> Wanted:
        text, now = self._options.subscription, time.time()
        try:
            subscription = parse(text)
        except SubscriptionError as error:
            raise ReplayError(f"the subscription:{error}\n{_pointer(text, error)}") from None
        try:
            until = moment(self._options.until, now)
            since = moment(self._options.since, now) if self._options.since is not None else self._beginning(until)
        except ValueError as error:
            raise ReplayError(str(error)) from None
        if since >= until:
            raise ReplayError(f"--from {written(since)} does not come before --to {written(until)}")
        return Wanted(subscription, form_of(subscription), self._options.tenant, since, until)

    def _beginning(self, until: float) -> float:
        first = self._lake.state(OBSERVATIONS).first
        if first is None:
            return until - 1
        return dt.datetime.combine(first, dt.time(), dt.UTC).timestamp()

    def _extent(self) -> tuple[str, str]:
        state = self._lake.state(OBSERVATIONS)
        if state.first is None:
            raise ReplayError(f"the lake in {self._lake.place} is empty yet")
        return str(state.first), str(state.last)

    # ---- reading

    @contextmanager
    def _rows(self) -> Iterator[Iterable[pa.Table]]:
        progress = self._progress
        try:
            if self._is_for_spark():
                with self._spark_rows(progress) as rows:
                    yield rows
            else:
                yield tables(self._lake, self._wanted, progress.heard)
        finally:
            progress.end()

    def _is_for_spark(self) -> bool:
        if self._options.by != "auto" or self._options.master is not None:
            return str(self._options.by) != "arrow"
        return sum(day.bytes for day in self._days) >= SPARK_FROM_BYTES and find_spec("pyspark") is not None

    @contextmanager
    def _spark_rows(self, progress: Progress) -> Iterator[Iterable[pa.Table]]:
        progress.say("starting Spark")
        with self._spark() as spark:
            from .replay_spark import spark_tables

            progress.say("Spark reads and sorts")
            yield progress.watched(spark_tables(spark, self._lake, self._wanted))

    @contextmanager
    def _spark(self) -> Iterator[SparkSession]:
        if find_spec("pyspark") is None:
            raise ReplayError(f"Spark is not installed: pip install '{EXTRA}', or leave it to --by arrow")
        from pyspark.errors import PySparkException

        from .java import NoJavaError
        from .session import session, stop

        settings = self._settings.pipeline
        heap = f"{settings.heap // 1024**2}m"
        with TemporaryDirectory(prefix="spinney-replay-") as folder:
            try:
                spark = session(APP, Path(folder), master=self._options.master, cores=settings.cores, heap=heap)
            except (NoJavaError, PySparkException) as error:
                raise ReplayError(f"{error}\nWithout Spark: --by arrow") from None
            try:
                yield spark
            except PySparkException as error:
                raise ReplayError(str(error).split("\n\n")[0].strip()) from error
            finally:
                stop(spark)

    # ---- telling

    def _tell(self, counts: Counts) -> None:
        wanted, out = self._wanted, sys.stderr if self._options.out == "-" else sys.stdout
        first, last = self._wanted.days()
        if self._days:
            first, last = self._days[0].date, self._days[-1].date
        if self._fetched is not None and self._fetched.readings:
            last = max(last, self._wanted.days()[1])
        encoding = (out.encoding or "ascii").lower()
        for line in counts.chart(first, last, "█" if encoding.startswith("utf") else "#"):
            print(line, file=out)
        whys = ", ".join(f"{count:,} {why}" for why, count in sorted(counts.by_why.items()))
        print(f"\n{counts.total:,} notifications{f' ({whys})' if whys else ''}", file=out, end="")
        print(f" of {self._progress.readings:,} readings" if self._progress.readings else "", file=out, end="")
        print(f", {written(wanted.since)} to {written(wanted.until)}", file=out)
        if self._options.out not in (None, "-"):
            print(f"written to {self._options.out}", file=out)
        newest = self._lake.state(OBSERVATIONS).last
        if newest is not None and newest < dt.datetime.fromtimestamp(wanted.until - DAY_SECONDS, dt.UTC).date():
            print(f"the lake ends on {newest}: what came later is not in it", file=sys.stderr)

    def _tell_how_complete(self) -> None:
        """In words: whether all that it would have been told of is in the lake, and if not why."""
        out = sys.stderr if self._options.out == "-" else sys.stdout
        claims = [] if self._fetched is None else self._fetched.claims
        if self._fetched is not None:
            print(self._fetched.text, file=out)
        for line in completeness_of(self._lake, self._wanted, claims).lines(self._options.reasons):
            print(line, file=out)

    def _explain(self) -> None:
        wanted, by_spark = self._wanted, self._is_for_spark()
        size, rows = (sum(column) for column in zip(*((day.bytes, day.rows) for day in self._days), strict=True))
        print(f"{wanted.form.kind}: {wanted.form.normal}")
        print(f"heard: {wanted.feed.to_text()}")
        print(f"read: {len(self._days)} days, {size / 1e6:,.1f} MB of files, {rows:,} readings")
        pushed = None if wanted.all_records else implied(wanted.feed, ds.field)
        left = "every reading counts" if wanted.all_records else "nothing" if pushed is None else pushed
        print(f"passed over by the files' bounds: {left}")
        if not by_spark:
            print("by: pyarrow and the core")
            return
        with self._spark():
            from .columns import compile_filter

            by_core = compile_filter(wanted.feed).by_core
        print("by: Spark" + ("" if not by_core else f"; but these conditions by the core: {'; '.join(by_core)}"))


def _pointer(text: str, error: SubscriptionError) -> str:
    """The line that is wrong, with a mark below the column."""
    lines = text.splitlines() or [""]
    line = lines[min(error.line, len(lines)) - 1]
    return f"  {line}\n  {' ' * (error.column - 1)}^"
