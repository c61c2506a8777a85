"""What a replay found: counted for a chart, and written to a file. The name's end says in which form.

A file appears when it is whole; one that was there before is replaced then.
"""

from __future__ import annotations

import datetime as dt
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ..note_payload import encode_notes
from ..notes import Notes, notification_id

SCHEMA = pa.schema(
    [
        ("notification", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("why", pa.string()),
        ("scope", pa.string()),
        ("publication_id", pa.string()),
        ("since", pa.timestamp("us", tz="UTC")),
        ("rank", pa.int32()),
        ("reason", pa.string()),
        ("log_seq", pa.int64()),
        ("publication", pa.string()),
    ]
)
"""Of Parquet and CSV. The scope and the publication are JSON."""
ROWS_AT_ONCE = 10_000
STANDARD_OUTPUT = "-"

BAR = 40
"""Characters of the longest."""
MAX_BARS = 62
"""More days than these are shown by the week or by the month."""


class OutputError(Exception):
    """The results cannot be written."""


class Sink(Protocol):
    """Takes notifications in one form."""

    def put(self, notes: Notes) -> None: ...
    def close(self) -> None: ...


class Output:
    """A file that appears when all is in it; or nothing at all."""

    def __init__(self, name: str | None) -> None:
        self._path = None if name in (None, STANDARD_OUTPUT) else Path(str(name)).expanduser()
        self._part: Path | None = None
        self._sink: Sink | None = None
        if name is not None:
            self._open(name)

    def _open(self, name: str) -> None:
        if self._path is None:
            self._sink = _Lines(sys.stdout.buffer)
            return
        make = FORMS.get(self._path.suffix.lower())
        if make is None:
            raise OutputError(f"--out {name}: its name must end in one of {', '.join(FORMS)}; or - for JSON lines")
        self._part = self._path.with_name(f".{self._path.name}.{os.getpid()}.part")
        try:
            self._sink = make(self._part.open("wb"))
        except OSError as error:
            raise OutputError(f"--out {name}: {error.strerror or error}") from None

    @property
    def wants_publications(self) -> bool:
        """Whether there is more to do than to count."""
        return self._sink is not None

    def put(self, notes: Notes) -> None:
        """What one record told."""
        if self._sink is not None:
            try:
                self._sink.put(notes)
            except BrokenPipeError:  # whoever reads it has had enough
                raise
            except OSError as error:
                raise OutputError(f"{self._path}: {error.strerror or error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._sink is not None and not isinstance(error, BrokenPipeError):
                self._sink.close()
            if kind is None and self._part is not None and self._path is not None:
                self._part.replace(self._path)
        except OSError as problem:
            raise OutputError(f"{self._path}: {problem.strerror or problem}") from None
        finally:
            if self._part is not None:
                with suppress(OSError):
                    self._part.unlink(missing_ok=True)


class _Lines:
    """The objects that a subscriber would have got, one to a line."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out

    def put(self, notes: Notes) -> None:
        for told in encode_notes(notes):
            self._out.write(told.payload + b"\n")

    def close(self) -> None:
        self._out.flush()
        if self._out is not sys.stdout.buffer:
            self._out.close()


class _Json:
    """The same as one array."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._before = b"[\n"

    def put(self, notes: Notes) -> None:
        for told in encode_notes(notes):
            self._out.write(self._before + told.payload)
            self._before = b",\n"

    def close(self) -> None:
        self._out.write(b"\n]\n" if self._before == b",\n" else b"[]\n")
        self._out.close()


class _Table:
    """Rows for one of pyarrow's writers."""

    def __init__(self, out: IO[bytes], make: Callable[[IO[bytes], pa.Schema], Any]) -> None:
        self._out = out
        self._writer = make(out, SCHEMA)
        self._rows: list[dict[str, Any]] = []

    def put(self, notes: Notes) -> None:
        texts = [orjson.dumps(publication).decode() for publication in notes.publications]
        for note in notes.notes:
            self._rows.append(
                {
                    "notification": notification_id(notes.tenant, note),
                    "time": _moment(notes.time),
                    "why": note.why,
                    "scope": None if note.scope is None else orjson.dumps(note.scope).decode(),
                    "publication_id": note.publication_id,
                    "since": _moment(note.since),
                    "rank": note.rank,
                    "reason": note.reason,
                    "log_seq": notes.at,
                    "publication": None if note.row is None else texts[note.row],
                }
            )
        if len(self._rows) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        self._writer.write_table(pa.Table.from_pylist(self._rows, SCHEMA))
        self._rows = []

    def close(self) -> None:
        self._flush()
        self._writer.close()
        self._out.close()


def _moment(seconds: float | None) -> dt.datetime | None:
    return None if seconds is None else dt.datetime.fromtimestamp(seconds, dt.UTC)


FORMS: Mapping[str, Callable[[IO[bytes]], Sink]] = {
    ".parquet": lambda out: _Table(out, pyarrow.parquet.ParquetWriter),
    ".csv": lambda out: _Table(out, pyarrow.csv.CSVWriter),
    ".json": _Json,
    ".jsonl": _Lines,
}
"""By the end of a file's name."""


# ---- counting


class Counts:
    """How often it would have told, day by day, and why. `total` counts all, also of days that are not shown."""

    def __init__(self) -> None:
        self.total = 0
        self.by_why: Counter[str] = Counter()
        self._by_day: Counter[dt.date] = Counter()

    def put(self, notes: Notes) -> None:
        """What one record told."""
        count = len(notes.notes)
        self.total += count
        self.by_why.update(note.why for note in notes.notes)
        self._by_day[dt.datetime.fromtimestamp(notes.time, dt.UTC).date()] += count

    def chart(self, since: dt.date, until: dt.date, full: str = "█") -> list[str]:
        """A line for each day; for each week or month where the days are too many."""
        name, bars = "", dict[dt.date, int]()
        for name, begin in _PERIODS:  # it is the last one's where there are too many of all
            bars = self._bars(since, until, begin)
            if len(bars) <= MAX_BARS:
                return [f"notifications by {name} (UTC)", *_drawn(bars, full)]
        return [f"notifications by {name} (UTC), the last {MAX_BARS}", *_drawn(dict([*bars.items()][-MAX_BARS:]), full)]

    def _bars(self, since: dt.date, until: dt.date, begin: Callable[[dt.date], dt.date]) -> dict[dt.date, int]:
        found: dict[dt.date, int] = {}
        day = since
        while day <= until:
            found[begin(day)] = found.get(begin(day), 0) + self._by_day[day]
            day += dt.timedelta(1)
        return found


_PERIODS: tuple[tuple[str, Callable[[dt.date], dt.date]], ...] = (
    ("day", lambda day: day),
    ("week", lambda day: day - dt.timedelta(day.weekday())),
    ("month", lambda day: day.replace(day=1)),
)


def _drawn(bars: Mapping[dt.date, int], full: str) -> list[str]:
    most = max(bars.values(), default=0)
    width = len(f"{most:,}")
    return [
        f"{day}  {count:>{width},}  {full * (max(1, round(count / most * BAR)) if count else 0)}".rstrip()
        for day, count in bars.items()
    ]
