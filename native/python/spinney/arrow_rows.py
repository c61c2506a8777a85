"""The Arrow door in pure Python: what it refuses is what native/src/arrow.c refuses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import types

from .errors import PublicationError
from .expression import Value
from .publication import attribute

_FLAT = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_large_string, types.is_null)


def rows(batch: Any) -> list[dict[str, Value]]:
    """The events of a batch, without what is null; columns are attributes, and so are the entries of maps."""
    batch = pa.record_batch(batch)
    columns = [_Column(field, column) for field, column in zip(batch.schema, batch.columns, strict=True)]
    names: set[str] = set()
    for column in columns:
        if not column.is_map:
            _take_name(names, column.name, column.name)
    return [_row(columns, names, row) for row in range(batch.num_rows)]


class _Column:
    """A column whose type is understood, as Python's values."""

    def __init__(self, field: pa.Field, values: pa.Array) -> None:
        self.name: str = field.name
        self.is_map = types.is_map(field.type)
        if types.is_timestamp(field.type):
            raise self.refused("a time is a number of seconds, not a timestamp")
        if self.is_map and not _is_text(field.type.key_type):
            raise self.refused("the keys of a map must be strings")
        if not _is_flat(field.type.item_type if self.is_map else field.type):
            raise self.refused("its Arrow type is no number, string, boolean, dictionary of these or map")
        self._values: list[Any] = (values.cast(pa.float32()) if types.is_float16(field.type) else values).to_pylist()

    def refused(self, what: str, row: int | None = None) -> PublicationError:
        """The error that says where."""
        place = "" if row is None else f"row {row}, "
        return PublicationError(f'{place}column "{self.name}": {what}', attribute=self.name)

    def entries(self, row: int) -> Iterator[tuple[str, Any]]:
        """The attributes that the column has in a row."""
        value = self._values[row]
        if not self.is_map:
            yield self.name, value
        elif value is not None:
            yield from value


def _is_text(kind: pa.DataType) -> bool:
    plain = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(plain) or types.is_large_string(plain))


def _is_flat(kind: pa.DataType) -> bool:
    plain = kind.value_type if types.is_dictionary(kind) else kind
    return any(is_kind(plain) for is_kind in _FLAT)


def _take_name(names: set[str], name: str, column: str) -> None:
    if name in names:
        raise PublicationError(f'"{name[:60]}" is there twice', attribute=column)
    names.add(name)


def _row(columns: list[_Column], names: set[str], row: int) -> dict[str, Value]:
    event: dict[str, Value] = {}
    in_maps = set(names)
    for column in columns:
        for name, value in column.entries(row):
            if column.is_map:
                _take_name(in_maps, name, column.name)
            try:
                clean = attribute({name: value}, name)
            except PublicationError as error:
                raise column.refused(str(error), row) from None
            if clean is not None:
                event[name] = clean
    return event
