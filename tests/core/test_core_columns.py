"""The columns of the C core, as Python has them: buffers, and what is refused."""

from __future__ import annotations

import struct

import pytest

from spinney import PublicationError, native
from spinney.columns import MAPS, Columns, ColumnsFull

CORE = native.core()
RUN = (b"m7:4:", 17, 2)

pytestmark = pytest.mark.skipif(CORE is None, reason="there is no C core")


def columns(most_bytes: int = 1 << 30) -> Columns:
    assert CORE is not None
    return Columns(CORE, most_bytes)


def test_buffers_are_as_arrow_lays_them_out() -> None:
    made = columns()
    made.take(b'[{"time":1.5,"NO2":57,"NO2_unit":"ug/m3"},{"type":"air"}]', [RUN])
    made.skip(1)
    fixed, maps = made.give()
    assert made.rows == 3
    assert fixed["id"] == (b"\x03", struct.pack("4i", 0, 7, 14, 14), b"m7:4:17m7:4:18")
    assert fixed["time"] == (b"\x01", None, struct.pack("3d", 1.5, 0, 0))
    assert fixed["type"] == (b"\x02", struct.pack("4i", 0, 0, 3, 3), b"air")
    assert tuple(maps) == MAPS
    assert maps["numbers"].offsets == struct.pack("4i", 0, 1, 1, 1)
    assert (maps["numbers"].entries, maps["numbers"].items.data) == (1, struct.pack("d", 57))
    assert (maps["units"].keys.data, maps["units"].items.data) == (b"NO2", b"ug/m3")
    assert maps["flags"].items == (None, None, b"")


def test_rows_are_left_out_in_any_order() -> None:
    made = columns()
    made.take(b'[{"a":1},{"a":2},{"a":3}]', [(b"a", 1, 1), (b"b", 5, 2)], [2, 0])
    fixed, maps = made.give()
    assert fixed["id"].data == b"b5"
    assert maps["numbers"].items.data == struct.pack("d", 2)


def test_what_is_refused_says_where_and_is_not_taken() -> None:
    made = columns()
    with pytest.raises(PublicationError, match="nested") as error:
        made.take(b'[{"a":1},{"a":[]}]', [RUN])
    assert error.value.position == 14
    assert made.rows == 0


def test_columns_that_are_full_take_again_what_they_have_forgotten() -> None:
    made = columns(most_bytes=14)
    made.take(b"[{},{}]", [RUN])
    with pytest.raises(ColumnsFull):
        made.take(b"[{},{}]", [RUN])
    made.keep(0)
    made.take(b"[{},{}]", [RUN])
    assert made.rows == 2
