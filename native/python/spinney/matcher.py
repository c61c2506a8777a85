"""`spinney.Matcher`: which subscriptions want this publication? In C where the core is there, else in Python."""

from __future__ import annotations

import re
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from . import native as native_core
from .dense_ids import DenseIds
from .errors import MatcherError, PublicationError
from .expression import Filter
from .feed import feed
from .filter_bytes import FilterBytes
from .matcher_stats import Stats
from .native_matcher import NativeMatcher
from .parse import parse
from .python_matcher import PythonMatcher
from .reader import Buffer, Rows
from .subscription import Subscription

if TYPE_CHECKING:
    import pyarrow

_AN_ARRAY = re.compile(rb"[ \t\r\n]*\[")


class _Engine(Protocol):
    """What NativeMatcher and PythonMatcher do: filters under small numbers."""

    def prepare(self, condition: Filter) -> Any: ...
    def add(self, number: int, prepared: Any) -> None: ...
    def remove(self, number: int) -> None: ...
    def match(self, publication: Mapping[str, Any]) -> list[int]: ...
    def match_json(self, json: Buffer) -> list[list[int]]: ...
    def match_rows(self, json: Buffer) -> Rows[int]: ...
    def match_batch(self, batch: Any) -> tuple[bytes, bytes]: ...
    def stats(self) -> Stats: ...


class Matcher:
    """Subscriptions under ids, and which of them match a publication. Any number of threads may use it at once.

    >>> matcher = Matcher()
    >>> matcher.add("alarm", "NO2 > 40")
    >>> matcher.match({"NO2": 41})
    ['alarm']

    A state or top-k subscription is matched by its feed (rule R1): the publications that it must be given.
    `native` False is pure Python, True insists on the C core; `simd` is for tests.
    """

    def __init__(
        self,
        *,
        native: bool | None = None,
        simd: Literal["scalar", "sse2", "avx2", "avx512", "neon"] | None = None,
    ) -> None:
        core = None if native is False else native_core.core()
        if core is None and (native or simd):
            raise MatcherError("the C core is not there")
        self._engine: _Engine = PythonMatcher() if core is None else NativeMatcher(core, simd)
        self._ids = DenseIds()
        self._lock = threading.Lock()

    @property
    def native(self) -> bool:
        """Whether it matches in C."""
        return isinstance(self._engine, NativeMatcher)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    # ---- subscriptions

    def add(self, id: str, what: Subscription | Filter | str | bytes | dict[str, Any]) -> None:
        """Adds a subscription, a filter, or the text or JSON of a subscription. If it fails, nothing has changed."""
        if not isinstance(id, str):
            raise MatcherError(f"an id is a string, not {id!r}")
        condition = _condition(what)
        with _understood(id):
            prepared = self._engine.prepare(condition)
        self._add(id, prepared)

    def add_compiled(self, id: str, compiled: FilterBytes) -> None:
        """Adds a filter as `filter_bytes` has compiled it, at a fraction of the time. Only the C core takes it."""
        if not self.native:
            raise MatcherError(f"'{id}': a compiled filter needs the C core")
        self._add(id, compiled)

    def _add(self, id: str, prepared: Any) -> None:
        with self._lock:
            if id in self._ids:
                raise MatcherError(f"'{id}' has been added already")
            with ExitStack() as undo:
                number = self._ids.add(id)
                undo.callback(self._ids.remove, id)
                self._engine.add(number, prepared)
                undo.pop_all()

    def remove(self, id: str) -> None:
        """Removes a subscription."""
        with self._lock:
            if id not in self._ids:
                raise MatcherError(f"'{id}' is not there")
            self._engine.remove(self._ids.number(id))
            self._ids.remove(id)

    def stats(self) -> Stats:
        """Counts of what it holds."""
        with self._lock:
            return self._engine.stats()

    # ---- publications

    def match(self, publication: Mapping[str, Any]) -> list[str]:
        """The ids of what matches, in no particular order. PublicationError if a value is refused (rule P1)."""
        if publication.__class__ is not dict:
            publication = _as_dict(publication)
        ids = self._ids
        moment = ids.begin()
        try:
            return list(map(ids.translate, self._engine.match(publication)))
        finally:
            ids.end(moment)

    def match_json(self, json: Buffer | str) -> list[str] | list[list[str]]:
        """The ids for a flat object; for an array of them a list for each."""
        if isinstance(json, str):
            json = _encoded(json)
        ids = self._ids
        moment = ids.begin()
        try:
            answers = [list(map(ids.translate, numbers)) for numbers in self._engine.match_json(json)]
        finally:
            ids.end(moment)
        return answers if _AN_ARRAY.match(json) else answers[0]

    def match_rows(self, json: Buffer) -> Rows[str]:
        """As match_json for an array, for when few of its objects match."""
        ids = self._ids
        moment = ids.begin()
        try:
            count, found, texts = self._engine.match_rows(json)
            return Rows(count, [(row, list(map(ids.translate, numbers))) for row, numbers in found], texts)
        finally:
            ids.end(moment)

    def match_batch(self, batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
        """A row and an id for each match; rows count from 0 and ascend. Columns are attributes, maps hold more."""
        from .batch_answer import batch_answer

        ids = self._ids
        moment = ids.begin()
        try:
            return batch_answer(*self._engine.match_batch(batch), ids.translate)
        finally:
            ids.end(moment)


def _condition(what: Subscription | Filter | str | bytes | dict[str, Any]) -> Filter:
    if isinstance(what, Filter):
        return what
    if isinstance(what, Subscription):
        return feed(what)
    return feed(parse(what))


@contextmanager
def _understood(id: str) -> Iterator[None]:
    """What a filter made by hand, and not by parse, may be."""
    try:
        yield
    except RecursionError:
        raise MatcherError(f"'{id}': nested too deeply") from None
    except UnicodeEncodeError as error:
        raise MatcherError(f"'{id}': a text with half of a surrogate pair: {error.object!r:.60}") from None
    except struct.error as error:
        raise MatcherError(f"'{id}': too large: {error}") from None


def _as_dict(publication: Any) -> dict[str, Any]:
    if not isinstance(publication, Mapping):
        raise PublicationError(f"a publication is an object of attributes, not {type(publication).__name__}")
    return dict(publication)


def _encoded(json: str) -> bytes:
    try:
        return json.encode()
    except UnicodeEncodeError as error:
        position = len(json[: error.start].encode())
        raise PublicationError("this is not UTF-8", position=position) from None
