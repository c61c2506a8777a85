"""Answers for Arrow batches, as Arrow."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

SCHEMA = pa.schema({"row": pa.int64(), "id": pa.dictionary(pa.int32(), pa.string())})
"""Ids are dictionary-encoded: each is there once, however many rows it matches."""


def batch_answer(offsets: bytes, numbers: bytes, translate: Callable[[int], str]) -> pa.RecordBatch:
    """The pairs of row and id, from where each row's numbers begin, and the numbers (64 and 32 bits each)."""
    places = pa.Array.from_buffers(pa.int64(), len(offsets) // 8, [None, pa.py_buffer(offsets)])
    found = pa.Array.from_buffers(pa.uint32(), len(numbers) // 4, [None, pa.py_buffer(numbers)])
    rows = pc.call_function("list_parent_indices", [pa.LargeListArray.from_arrays(places, found)])
    encoded = found.dictionary_encode()
    names = pa.array(map(translate, encoded.dictionary.to_pylist()), pa.string())
    ids = pa.DictionaryArray.from_arrays(encoded.indices, names)
    return pa.RecordBatch.from_arrays([rows, ids], schema=SCHEMA)
