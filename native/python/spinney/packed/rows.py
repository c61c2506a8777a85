"""Publications by columns, with the leases and the labels that go up with them: what is in a packed batch, unpacked.

    [name, groups, order, epochs, labels]        what is empty at the end is left out

A group has the rows with the same attributes, in their order; `order` says which group each row of the batch is in
(none if there is one group). With `numbered` groups, `id` is `source:boot:number` and neither is among the names:

    [count, names, kinds, columns, sources, boots, numbers]
    [count, names, kinds, columns]         rows whose ids are otherwise, or that have none

`kinds` has a byte for each column. `sources` is a table, `boots` and `numbers` are integers, as columns have them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from . import cbor, columns
from .columns import Before
from .errors import PackedError, Unpackable

MAX_ROWS: Final = 20_000
MAX_CELLS: Final = 400_000
"""Rows by columns of one batch."""
MAX_TEXT: Final = 4 * 1024 * 1024
"""Characters of all its texts and names, each counted as often as a row has it."""
_FORM: Final = "a batch is [name, groups, order, epochs, labels]"
_OWN: Final = ("id", "source")
_MAX_NUMBER: Final = 1 << 53


@dataclass(slots=True)
class Contents:
    """Of a batch."""

    rows: list[dict[str, Any]]
    epochs: Mapping[str, int] = field(default_factory=dict)
    labels: Sequence[Any] = ()
    name: str | None = None
    """By which its sender is told that it is stored."""


class _Numbered(NamedTuple):
    source: str
    boot: int
    number: int


def write(contents: Contents) -> bytes:
    """The bytes, not yet compressed; Unpackable if they must go up in another way."""
    groups: dict[tuple[str, ...], list[tuple[_Numbered | None, dict[str, Any]]]] = {}
    order: list[int] = []
    places: dict[tuple[str, ...], int] = {}
    for row in contents.rows:
        numbered = _numbered(row)
        shape = tuple(row) if numbered is None else ("", *(name for name in row if name not in _OWN))
        groups.setdefault(shape, []).append((numbered, row))
        order.append(places.setdefault(shape, len(places)))
    item: list[Any] = [
        contents.name,
        [_write_group(shape, rows) for shape, rows in groups.items()],
        columns.write_places(order, len(groups)),
        dict(contents.epochs),
        list(contents.labels),
    ]
    while len(item) > 2 and not item[-1]:
        item.pop()
    return cbor.dumps(item)


def _numbered(row: Mapping[str, Any]) -> _Numbered | None:
    """What its id says, if that is `source:boot:number` as it would be written again."""
    source, id = row.get("source"), row.get("id")
    if not isinstance(source, str) or not isinstance(id, str):
        return None
    rest = id.removeprefix(f"{source}:")
    boot, _, number = rest.partition(":")
    if len(rest) == len(id) or not (_is_number(boot) and _is_number(number)):
        return None
    return _Numbered(source, int(boot), int(number))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 16 and (text[0] != "0" or text == "0")


def _write_group(shape: tuple[str, ...], rows: Sequence[tuple[_Numbered | None, dict[str, Any]]]) -> list[Any]:
    numbers = [numbered for numbered, _ in rows if numbered is not None]
    names = list(shape[1:]) if numbers else list(shape)
    if not all(name.__class__ is str for name in names):
        raise Unpackable("a name that is no text")
    before = Before([numbered.source for numbered in numbers] if numbers else [row.get("source") for _, row in rows])
    written = [columns.write([row[name] for _, row in rows], before) for name in names]
    kinds, data = bytes(kind for kind, _ in written), [data for _, data in written]
    group: list[Any] = [len(rows), names, kinds, data]
    if numbers:
        group.append(columns.write_table([one.source for one in numbers]))
        group.append(columns.write_integers([one.boot for one in numbers], before))
        group.append(columns.write_integers([one.number for one in numbers], before))
    return group


# ---- back


def read(data: bytes) -> Contents:
    """What gave these bytes; PackedError says why nothing can have."""
    item = cbor.loads(data)
    if not isinstance(item, list) or not 2 <= len(item) <= 5:
        raise PackedError(_FORM)
    match item + [b"", {}, []][len(item) - 2 :]:
        case [str() | None as name, list(groups), bytes(order), dict(epochs), list(labels)]:
            budget = _Budget()
            read_groups = [_read_group(group, budget) for group in groups]
            return Contents(_in_order(read_groups, order), epochs, labels, name)
    raise PackedError(_FORM)


class _Budget:
    """What is left of what a batch may hold."""

    def __init__(self) -> None:
        self.rows = MAX_ROWS
        self.cells = MAX_CELLS
        self.text = MAX_TEXT

    def spend(self, rows: int, names: Sequence[str]) -> None:
        self.rows -= rows
        self.cells -= rows * (len(names) + 2)
        self.text -= rows * sum(map(len, names))
        if self.rows < 0 or self.cells < 0:
            raise PackedError(f"more than {MAX_ROWS} rows, or {MAX_CELLS} cells")

    def texts(self, values: Iterable[Any]) -> None:
        self.text -= sum(len(value) for value in values if value.__class__ is str)
        if self.text < 0:
            raise PackedError(f"texts of more than {MAX_TEXT} characters")


def _read_group(group: Any, budget: _Budget) -> list[dict[str, Any]]:
    match group:
        case [int(count), list(names), bytes(kinds), list(data), *numbers] if len(numbers) in (0, 3):
            pass
        case _:
            raise PackedError("a group is [count, names, kinds, columns, sources, boots, numbers]")
    _check_names(names, kinds, data)
    if count is True or count < 1:
        raise PackedError("a group without rows")
    budget.spend(count, names)
    rows = _read_numbers(numbers, count, budget) if numbers else [{} for _ in range(count)]
    before = _before(rows, names, kinds, data, numbered=bool(numbers))
    for name, kind, column in zip(names, kinds, data, strict=True):
        values = columns.read(kind, column, count, before)
        if kind == columns.TABLE:
            budget.texts(values)
        for row, value in zip(rows, values, strict=True):
            row[name] = value
    return rows


def _check_names(names: list[Any], kinds: bytes, data: list[Any]) -> None:
    if any(name.__class__ is not str or not name for name in names) or len(set(names)) < len(names):
        raise PackedError("the names of a group are texts, each once")
    if not len(names) == len(kinds) == len(data):
        raise PackedError("a group has a kind and a column for each name")


def _before(
    rows: Sequence[Mapping[str, Any]], names: list[str], kinds: bytes, data: list[Any], *, numbered: bool
) -> Before:
    if numbered:
        return Before([row["source"] for row in rows])
    if "source" not in names:
        return Before([None] * len(rows))
    place = names.index("source")
    if kinds[place] != columns.TABLE:
        raise PackedError("source: a table is expected")
    return Before(columns.read(columns.TABLE, data[place], len(rows), Before(())))


def _read_numbers(numbers: list[Any], count: int, budget: _Budget) -> list[dict[str, Any]]:
    sources = columns.read_table(numbers[0], count)
    budget.texts(sources)
    before = Before(sources)
    boots = columns.read_integers(numbers[1], count, before)
    sequences = columns.read_integers(numbers[2], count, before)
    if any(source.__class__ is not str for source in sources):
        raise PackedError("a source that is no text")
    if not all(0 <= number < _MAX_NUMBER for each in (boots, sequences) for number in each):
        raise PackedError("a number below 0, or of 2^53 or more")
    budget.texts(sources)
    return [
        {"id": f"{source}:{boot}:{number}", "source": source}
        for source, boot, number in zip(sources, boots, sequences, strict=True)
    ]


def _in_order(groups: Sequence[list[dict[str, Any]]], order: bytes) -> list[dict[str, Any]]:
    if len(groups) == 1 and not order:
        return groups[0]
    count = sum(map(len, groups))
    which = columns.read_places(order, count, len(groups)) if groups else ()
    rows = [iter(group) for group in groups]
    try:
        return [next(rows[place]) for place in which]
    except StopIteration:
        raise PackedError("an order that its groups do not have") from None
