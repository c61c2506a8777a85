"""The matchers there are on this machine, which must all give the same answers, and the doors into them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from spinney import Matcher, MatcherError, native
from spinney.expression import Filter
from spinney.native_matcher import SIMD

Publication = Mapping[str, Any]
Answer = list[set[str]]
"""The ids for each publication."""


def _is_to_be_had(simd: Any) -> bool:
    try:
        Matcher(simd=simd)
    except MatcherError:
        return False
    return True


NATIVE = native.core() is not None
LEVELS = [simd for simd in SIMD if NATIVE and _is_to_be_had(simd)]
ENGINES: list[dict[str, Any]] = [{"native": False}, *({"simd": simd} for simd in LEVELS)]
"""Arguments of Matcher."""
MODES = [False, True] if NATIVE else [False]
"""Pure Python, and C as this machine runs it best."""


def filled(filters: Mapping[str, Filter], **engine: Any) -> Matcher:
    """A matcher with these filters."""
    matcher = Matcher(**engine)
    for id, condition in filters.items():
        matcher.add(id, condition)
    return matcher


def expected(filters: Mapping[str, Filter], publications: Sequence[Publication]) -> Answer:
    """What the reference says."""
    return [
        {id for id, condition in filters.items() if condition.evaluate(publication) is True}
        for publication in publications
    ]


def unique(ids: Sequence[str]) -> set[str]:
    """The ids, none of which may be there twice."""
    assert len(set(ids)) == len(ids)
    return set(ids)


def by_mapping(matcher: Matcher, publications: Sequence[Publication]) -> Answer:
    return [unique(matcher.match(publication)) for publication in publications]


def by_object(matcher: Matcher, publications: Sequence[Publication]) -> Answer:
    return [unique(matcher.match_json(json.dumps(publication).encode())) for publication in publications]


def by_array(matcher: Matcher, publications: Sequence[Publication]) -> Answer:
    text = json.dumps(list(publications), ensure_ascii=False)
    return [unique(ids) for ids in matcher.match_json(text)]


def by_batch(matcher: Matcher, publications: Sequence[Publication]) -> Answer:
    answer: Answer = [set() for _ in publications]
    pairs = matcher.match_batch(as_batch(publications))
    rows = pairs.column("row").to_pylist()
    assert rows == sorted(rows)
    for row, id in zip(rows, pairs.column("id").to_pylist(), strict=True):
        assert id not in answer[row]
        answer[row].add(id)
    return answer


DOORS: list[Callable[[Matcher, Sequence[Publication]], Answer]] = [by_mapping, by_object, by_array, by_batch]

_TYPES = {float: pa.float64(), str: pa.string(), bool: pa.bool_()}


def as_batch(publications: Sequence[Publication]) -> pa.RecordBatch:
    """A column for each attribute that has one type; what has several goes into a map for each type."""
    kinds: dict[str, set[type]] = {}
    for publication in publications:
        for name, value in publication.items():
            kinds.setdefault(name, set()).add(type(value))
    columns: dict[str, pa.Array] = {"": pa.nulls(len(publications))}
    for name, types in kinds.items():
        if len(types) == 1:
            column = pa.array([publication.get(name) for publication in publications], _TYPES[next(iter(types))])
            columns[name] = column.dictionary_encode() if len(name) % 2 else column
    for kind, value_type in _TYPES.items():
        entries = [
            [(name, value) for name, value in publication.items() if len(kinds[name]) > 1 and type(value) is kind]
            for publication in publications
        ]
        columns[kind.__name__] = pa.array(entries, pa.map_(pa.string(), value_type))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
