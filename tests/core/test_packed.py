"""Packed batches: what comes out is what went in, to the bit; foreign bytes are read or refused, and never unfold."""

from __future__ import annotations

import json
import math
import random
import tracemalloc
import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spinney import packed
from spinney.packed import cbor, columns, frame
from spinney.packed.columns import Before
from spinney.packed.rows import MAX_ROWS, MAX_TEXT, Contents

cbor2 = pytest.importorskip("cbor2")

GIGABYTE = 1 << 30


def exact(item: Any) -> str:
    """Tells 1 from 1.0 and True, and 0.0 from -0.0."""
    return repr(item)


def through_json(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(json.dumps(rows))
    return found


def message(rows: list[dict[str, Any]], **how: Any) -> bytes:
    return packed.pack(packed.BATCH, packed.write_rows(Contents(rows, name="b-1")), **how)


def contents(payload: bytes) -> Contents:
    return packed.read_rows(packed.unpack(payload).data)


# ---- what went in comes out

doubles = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(10**7), 10**7).map(lambda raw: raw / 100),
    st.decimals(-1000, 1000, places=3).map(float),
    st.sampled_from([0.0, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53, 2.0**53 + 2, 1e22, 0.1 + 0.2, 1e-7]),
)
values = st.one_of(doubles, st.integers(-(2**70), 2**70), st.text(max_size=5), st.booleans(), st.none())
names = st.sampled_from(["temperature", "humidity", "time", "cell", "öde", "n"])
sources = st.sampled_from(["m0", "m1", "a:b", ""])
numbers = st.integers(0, 2**53 - 1)


@st.composite
def some_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Of a few sources, in columns of one kind or of several."""
    kinds = {name: draw(st.sampled_from([doubles, values, st.text(max_size=3)])) for name in ("time", "cell", "n")}
    found = []
    for _ in range(draw(st.integers(0, 8))):
        source = draw(sources)
        row = {name: draw(kind) for name, kind in kinds.items() if draw(st.integers(0, 4))}
        if draw(st.integers(0, 5)):
            row |= {"id": f"{source}:{draw(numbers)}:{draw(numbers)}", "source": source}
        elif draw(st.booleans()):
            row |= {"id": draw(st.sampled_from(["m0:1:01", "x", "m0:1", "m0:1:²"])), "source": source}
        found.append(row)
    return found


def is_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) >= 2**62


@given(some_rows())
def test_each_value_comes_out_as_json_would_have_given_it(rows: list[dict[str, Any]]) -> None:
    if any(is_large(value) for row in rows for value in row.values()):
        with pytest.raises(packed.Unpackable):
            message(rows)
        return
    found, expected = contents(message(rows)).rows, through_json(rows)
    assert [sorted(map(exact, row.items())) for row in found] == [sorted(map(exact, row.items())) for row in expected]


@given(st.lists(doubles, min_size=1, max_size=20), st.lists(st.integers(0, 3), min_size=20, max_size=20))
def test_any_doubles_keep_all_their_bits(column: list[float], owners: list[int]) -> None:
    before = Before(owners[: len(column)])
    kind, data = columns.write(column, before)
    found = columns.read(kind, cbor.loads(cbor.dumps(data)), len(column), before)
    assert list(map(exact, found)) == list(map(exact, column))


def test_what_a_source_repeats_costs_next_to_nothing() -> None:
    """Names, place, consecutive numbers, times at equal distances."""
    rows = [
        {
            "id": f"m{n % 4}:7:{n // 4}",
            "source": f"m{n % 4}",
            "temperature": 20 + n % 3 / 10,
            "time": 1.7e9 + n // 4 * 10,
        }
        for n in range(1000)
    ]
    assert contents(message(rows)).rows == rows
    assert len(message(rows)) < len(json.dumps(rows)) / 50


def test_a_later_message_refers_to_an_earlier_one() -> None:
    rows = [{"id": f"m0:7:{n}", "source": "m0", "name": "kitchen of ana", "time": 1.7e9 + n} for n in (1, 2)]
    first = packed.write_rows(Contents([rows[0]]))
    later = message([rows[1]], earlier=first)
    assert len(later) < len(message([rows[1]])) - len("kitchen of ana")
    kept = {packed.digest(first): first}
    assert packed.read_rows(packed.unpack(later, kept.get).data).rows == [rows[1]]
    with pytest.raises(packed.UnknownDictionary):
        packed.unpack(later)


def test_epochs_labels_and_order_come_out() -> None:
    rows = [
        {"id": "a:1:1", "source": "a", "n": 1.0},
        {"id": "b:1:1", "source": "b"},
        {"id": "a:1:2", "source": "a", "n": 2.0},
    ]
    labels = [[0, "0123456789abcdef", {"mark": ["a", [9, 1, 1], True]}], [None, "0123456789abcdef", {}]]
    contents = Contents(rows, {"a": 9}, labels, "b-1")
    assert packed.read_rows(packed.write_rows(contents)) == contents


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x", 2**62, "\ud800"])
def test_what_has_no_place_is_sent_in_another_way(value: Any) -> None:
    with pytest.raises(packed.Unpackable):
        message([{"odd": value}])


simple = st.recursive(
    st.one_of(
        st.integers(-(2**64), 2**64 - 1), st.floats(allow_nan=False), st.text(), st.binary(), st.booleans(), st.none()
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(), inner, max_size=4)),
    max_leaves=8,
)


@given(simple)
def test_it_is_the_cbor_that_others_read_and_write(item: Any) -> None:
    try:
        data = cbor.dumps(item)
    except packed.Unpackable:
        return  # nested too deeply
    assert exact(cbor2.loads(data)) == exact(item) == exact(cbor.loads(data)) == exact(cbor.loads(cbor2.dumps(item)))


# ---- what others send


def bomb(says: int, zeros: int) -> bytes:
    """Unpacks to so many zeros, whatever it says."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunk = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)  # it stands alone, and may be repeated
    return bytes((frame.BATCH, 1)) + frame._varint(says) + chunk * (zeros >> 20) + packer.flush()


@pytest.mark.parametrize(
    ("says", "why"), [(GIGABYTE, "4194304 are the most"), (1000, "1000 bytes that it says"), (1 << 22, "it says")]
)
def test_a_bomb_of_a_gigabyte_takes_no_memory(says: int, why: str) -> None:
    payload = bomb(says, GIGABYTE)
    assert len(payload) < 1 << 21
    tracemalloc.start()
    try:
        with pytest.raises(packed.PackedError, match=why):
            packed.unpack(payload)
        assert tracemalloc.get_traced_memory()[1] < 4 * max(min(says, packed.MAX_UNPACKED), 1 << 20)
    finally:
        tracemalloc.stop()


def batch_of(*groups: Any, order: bytes = b"") -> bytes:
    return cbor.dumps([None, list(groups), order])


def group(count: int, *names: str, kinds: bytes = b"", data: Any = ()) -> bytes:
    return batch_of([count, list(names), kinds, list(data)])


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (group(1 << 40), "rows"),
        (group(MAX_ROWS, *map(str, range(30)), kinds=b"\x22" * 30, data=[[[1], b""]] * 30), "cells"),
        (group(2000, "a", kinds=b"\x22", data=[[["x" * (MAX_TEXT // 1999)], b""]]), "characters"),
        (group(2000, "x" * (MAX_TEXT // 1999), kinds=b"\x22", data=[[[1], b""]]), "characters"),
        (b"\x9b" + b"\xff" * 8, "cut"),
        (b"\x81" * 100 + b"\x01", "nested deeper"),
        (b"\xbb" + b"\x00\x00\x00\x00\xff\xff\xff\xff" + b"\x00", "cut"),
        (b"\x9f\xff", "definite"),
        (b"\xc1\x00", "tag"),
        (cbor.dumps([]) + b"\x00", "more after"),
        (batch_of([1, ["a"], b"\x21", [math.inf]]), "finite"),
        (batch_of([1, ["a"], b"\x00", [1 << 53]]), "2\\^53"),
        (batch_of([1, ["a"], b"\x20", [1 << 62]]), "2\\^62"),
        (batch_of([1, ["a"], b"\x22", [[1]]]), "attribute is"),
        (batch_of([1, ["a", "a"], b"\x22\x22", [1, 1]]), "each once"),
        (batch_of([0, [], b"", []]), "without rows"),
        (batch_of([1, [], b"", []], [1, [], b"", []], order=b"\x00\x00"), "order"),
        (batch_of([1, [], b"", [], [["m"], b""], -1, 0]), "below 0"),
    ],
)
def test_a_batch_beyond_the_bounds_or_out_of_form_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(packed.PackedError, match=why):
        packed.read_rows(data)


SMALL = packed.write_rows(
    Contents(
        [
            {
                "id": f"m{n % 2}:1:{n}",
                "source": f"m{n % 2}",
                "t": 20 + n / 10,
                "x": math.pi * n,
                "n": n,
                "s": "ab"[n % 2],
            }
            for n in range(6)
        ]
        + [{"odd": True}],
        {"m0": 5},
        [[0, "0123456789abcdef", {}]],
    )
)


def is_read_or_refused(data: bytes) -> None:
    try:
        found = packed.read_rows(data)
    except packed.PackedError:
        return
    json.dumps(found.rows, allow_nan=False)


@settings(max_examples=300)
@given(st.integers(0, len(SMALL) - 1), st.binary(min_size=1, max_size=6))
def test_a_damaged_batch_is_read_or_refused(at: int, what: bytes) -> None:
    is_read_or_refused(SMALL[:at])
    is_read_or_refused(SMALL[:at] + what + SMALL[at + len(what) :])
    is_read_or_refused(SMALL[:at] + what + SMALL[at:])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    is_read_or_refused(data)
    for payload in (data, b"\xf1\x01" + data, b"\xf2\x02" + data, b"\xf1\x81\x10" + data):
        try:
            packed.unpack(payload, {0: b"x"}.get)
        except packed.PackedError:
            continue


def test_each_of_a_thousand_damaged_messages_is_read_or_refused() -> None:
    chance = random.Random(3)
    whole = packed.pack(packed.BATCH, SMALL)
    for _ in range(1000):
        damaged = bytearray(whole)
        damaged[chance.randrange(1, len(whole))] = chance.randrange(256)
        try:
            data = packed.unpack(bytes(damaged)).data
        except packed.PackedError:
            continue
        is_read_or_refused(data)


def test_the_formats_own_dictionaries_never_change() -> None:
    """Both ends have them: other words would be another format."""
    assert zlib.crc32(frame.dictionary.BATCHES) == 1833239767
    assert zlib.crc32(frame.dictionary.TEXTS) == 1233590881
