"""Arrow IPC streams, and that any bytes whatever are read or refused, and never take long."""

import gc
import time

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.intake import Intake, Sender
from spinney_cloud.numbering import Numbers
from spinney_cloud.payloads import PayloadError, read_payload
from spinney_cloud.payloads.arrow_payload import MAX_CELLS
from spinney_cloud.settings import Limits
from spinney_cloud.source_owners import SourceOwners


def stream(table, **options):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def rows(table, **options):
    batch = read_payload(stream(table, **options), 0.0)
    assert batch.refusals == []
    assert list(batch.places) == list(range(len(batch.rows)))
    return batch.rows


def test_columns_are_attributes_and_nulls_are_missing():
    table = pa.table(
        {
            "source": ["m7", "m8", "m7"],
            "NO2": [57.5, None, 58.0],
            "count": pa.array([1, 2, None], pa.uint8()),
            "open": [True, None, False],
            "half": pa.array([1.5, 2.5, None], pa.float16()),
            "nothing": pa.nulls(3),
        }
    )
    assert rows(table) == [
        {"source": "m7", "NO2": 57.5, "count": 1, "open": True, "half": 1.5},
        {"source": "m8", "count": 2, "half": 2.5},
        {"source": "m7", "NO2": 58.0, "open": False},
    ]


def test_dictionaries_are_looked_up_in_every_batch():
    chunks = [pa.array(["a", "b", None]).dictionary_encode(), pa.array(["c"]).dictionary_encode()]
    assert rows(pa.table({"room": pa.chunked_array(chunks)})) == [{"room": "a"}, {"room": "b"}, {}, {"room": "c"}]


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Zagreb"])
def test_timestamps_are_seconds(unit, ticks, zone):
    times = pa.array([1731900000 * ticks, None], pa.int64()).cast(pa.timestamp(unit, zone))
    assert rows(pa.table({"time": times, "NO2": [1, 2]})) == [{"time": 1731900000.0, "NO2": 1}, {"NO2": 2}]


def test_entries_of_maps_are_attributes():
    kind = pa.map_(pa.string(), pa.float64())
    table = pa.table({"NO2": [1, 2, 3], "more": pa.array([[("a", 1.5), ("b", None)], None, []], kind)})
    assert rows(table) == [{"NO2": 1, "a": 1.5}, {"NO2": 2}, {"NO2": 3}]
    assert rows(table.slice(1)) == [{"NO2": 2}, {"NO2": 3}]


def test_an_attribute_that_is_there_twice_in_a_row_refuses_the_row():
    kind = pa.map_(pa.string(), pa.float64())
    table = pa.table({"NO2": [1, 2], "more": pa.array([[("NO2", 1.5)], [("a", 1.0)]], kind)})
    batch = read_payload(stream(table), 0.0)
    assert batch.rows == [{"NO2": 2, "a": 1.0}]
    assert [(each.row, each.kind) for each in batch.refusals] == [(0, "row")]


def test_a_value_that_no_publication_may_have_refuses_its_row_alone():
    intake = Intake(Limits(), Numbers(1), SourceOwners())
    taken = intake.take(Sender("t", "kit"), stream(pa.table({"NO2": [1.0, float("nan"), 3.0]})), 0.0)
    assert [row["NO2"] for row in taken.rows] == [1.0, 3.0]
    assert [each.row for each in taken.refusals] == [1]


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_compressed_stream_is_refused_for_what_it_could_become(codec):
    tables = pa.table({"a": [0] * 1000}), pa.table({"a": pa.array(["x" * 1000] * 3).dictionary_encode()})
    for table in tables:
        with pytest.raises(PayloadError, match="compression"):
            read_payload(stream(table, compression=codec), 0.0)


@pytest.mark.parametrize(
    "column",
    [
        [[1], [2]],
        [{"a": 1}, {"a": 2}],
        [b"x", b"y"],
        pa.array([1, 2], pa.date32()),
        pa.array(["1.5", "2.5"]).cast(pa.decimal128(5, 2)),
        pa.array(["a", "b"], pa.string_view()),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(column):
    with pytest.raises(PayloadError, match="odd"):
        read_payload(stream(pa.table({"odd": column})), 0.0)


def test_two_columns_of_one_name_are_refused():
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(PayloadError, match="one name"):
        read_payload(stream(table), 0.0)


def test_few_bytes_cannot_become_many_rows_or_much_text():
    nulls = pa.table({"a": pa.nulls(MAX_CELLS + 1)})
    long_word = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int8()), pa.array(["x" * 100_000]))
    maps = pa.array([[("a", None)] * 2] * (MAX_CELLS // 2 + 1), pa.map_(pa.string(), pa.null()))
    for table in (nulls, pa.table({"a": long_word}), pa.table({"m": maps})):
        started = time.process_time()
        with pytest.raises(PayloadError, match=r"more than|most"):
            read_payload(stream(table), 0.0)
        assert time.process_time() - started < 1.0


small = stream(pa.table({"a": [1, None], "s": pa.array(["x", "y"]).dictionary_encode(), "t": ["p", "q"]}))


@given(st.data())
def test_a_damaged_stream_is_read_or_refused(data):
    at = data.draw(st.integers(4, len(small) - 1))
    what = data.draw(st.binary(min_size=1, max_size=8))
    for damaged in (small[:at], small[:at] + what + small[at + len(what) :]):
        try:
            read_payload(damaged, 0.0)
        except PayloadError:
            continue


@given(
    st.binary(max_size=80), st.sampled_from([b"", b"{", b"[", b"[{", b'{"publications":[', b"\x81\xa1", b"\xff" * 4])
)
def test_any_bytes_are_read_or_refused(data, start):
    try:
        batch = read_payload(start + data, 0.0)
    except PayloadError:
        return
    assert len(batch.rows) == len(batch.places)


@pytest.mark.slow
@pytest.mark.parametrize(
    "payload",
    [
        b'[{"a":1},' + b'{"a":[]},' * 100_000 + b"{}]",
        b"[" + b'{"a":1,"a":1},' * 70_000 + b"{}]",
        b'[{"bn":"m7/"},' + b'{"n":"a"},' * 99_000 + b"{}]",
        b"\x9a\x00\x01\x86\x9f" + b"\xa1\x02\x01" * 99_999,
        b"{" + b",".join(b'"k%d":1' % number for number in range(90_000)) + b"}",
        b'{"publications":[' + b"[" * 900_000,
    ],
    ids=["refused rows", "repeated keys", "SenML without values", "CBOR records", "attributes", "nesting"],
)
def test_the_worst_that_fits_in_a_payload_holds_nobody_up_for_long(payload):
    intake = Intake(Limits(payload=1024**2 + 512 * 1024), Numbers(1), SourceOwners())
    gc.freeze()  # what other tests have left in memory is not the gateway's to look through
    try:
        started = time.process_time()
        intake.take(Sender("t", "kit"), payload, 0.0)
        assert time.process_time() - started < 1.0
    finally:
        gc.unfreeze()
