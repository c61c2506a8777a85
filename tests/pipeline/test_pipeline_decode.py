"""From records to rows: one schema for whatever comes, vectorised; what cannot be decoded is a dead letter."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import air, city, publications

from spinney import Label, Mark
from spinney_cloud.cells import cell_at
from spinney_cloud.intake import Intake, Sender, Taken, parts
from spinney_cloud.numbering import Numbers
from spinney_cloud.pipeline.decode import Decoder, flat
from spinney_cloud.pipeline.schema import ALL, FORMS, PUBLICATIONS, RECORDS, ddl
from spinney_cloud.records import (
    Announced,
    Publications,
    Record,
    RecordError,
    RowLabel,
    SubscriptionChange,
    Tick,
    decode,
    encode,
)
from spinney_cloud.settings import Limits
from spinney_cloud.source_owners import SourceOwners


def rows_of(
    *records: Record | bytes, give: str = "publications", repeated: tuple[int, ...] = ()
) -> list[dict[str, Any]]:
    decoder = Decoder(give)
    for at, record in enumerate(records, 1):
        data = record if isinstance(record, bytes) else encode(record)
        decoder.take(data, at, 1_760_000_000.5 + at, repeated)
    return [row for batch in decoder.give() for row in batch.to_pylist()]


def test_a_reading_has_its_own_columns_and_the_rest_in_maps() -> None:
    reading = {
        "type": "air",
        "lat": 45.81,
        "long": 15.97,
        "time": 5.5,
        "NO2": 57,
        "room": "hall",
        "ok": True,
        "valid_for": 9,
    }
    (row,) = rows_of(publications("m7", 17, [reading], boot=4, client="phone", epoch=3, received=1_760_000_000.25))
    assert {name: row[name] for name in PUBLICATIONS.names if name not in ("received", "log_time")} == {
        "id": "m7:4:17",
        "source": "m7",
        "boot": 4,
        "sequence": 17,
        "time": 5.5,
        "type": "air",
        "lat": 45.81,
        "long": 15.97,
        "cell": cell_at(45.81, 15.97, 9),
        "tenant": "default",
        "client": "phone",
        "epoch": 3,
        "arrival": 1_760_000_001.5,
        "log_seq": 1,
        "log_row": 0,
        "numbers": [("NO2", 57.0), ("valid_for", 9.0)],
        "texts": [("room", "hall")],
        "flags": [("ok", True)],
        "units": [],
    }
    assert row["received"].timestamp() == 1_760_000_000.25
    assert row["log_time"].timestamp() == 1_760_000_001.5


def test_what_is_not_there_is_null_and_needs_no_cell() -> None:
    (row, lost) = rows_of(publications("m", 0, [{}, {"lat": 99.0, "long": 1.0}]))
    assert [row[name] for name in ("time", "type", "lat", "long", "cell", "epoch")] == [None] * 6
    assert [row[name] for name in ("numbers", "texts", "flags", "units")] == [[]] * 4
    assert lost["cell"] is None  # there is no such place


def test_each_row_has_the_cell_of_its_own_place() -> None:
    places = [(45.8, 15.9), (45.8, 15.9), (45.8, 16.0), (45.9, 16.0), (None, 16.0), (None, None), (45.9, 16.0)]
    found = rows_of(publications("m", 0, [{"lat": lat, "long": long} for lat, long in places]))
    assert [row["cell"] for row in found] == [None if lat is None else cell_at(lat, long, 9) for lat, long in places]


def test_a_new_attribute_and_a_new_type_of_an_old_one_need_nothing() -> None:
    first = publications("m", 0, [{"a": 1}, {"a": "one", "b": 2.5}])
    second = publications("m", 2, [{"a": True, "c": "new"}])
    found = rows_of(first, second)
    assert [flat(row) for row in found] == [
        {"id": "m:1:0", "source": "m", "a": 1.0},
        {"id": "m:1:1", "source": "m", "a": "one", "b": 2.5},
        {"id": "m:1:2", "source": "m", "a": True, "c": "new"},
    ]


def test_units_come_with_their_numbers() -> None:
    (row,) = rows_of(publications("m", 0, [{"NO2": 1.5, "NO2_unit": "ug/m3", "business_unit": "north"}]))
    assert dict(row["units"]) == {"NO2": "ug/m3"}
    assert dict(row["texts"]) == {"NO2_unit": "ug/m3", "business_unit": "north"}


def test_duplicates_are_left_out_and_the_others_keep_their_numbers() -> None:
    found = rows_of(publications("m", 5, [air(number) for number in range(6)]), repeated=(0, 2))
    places = [(row["id"], row["sequence"], row["log_row"]) for row in found]
    assert places == [("m:1:6", 6, 1), ("m:1:8", 8, 3), ("m:1:9", 9, 4), ("m:1:10", 10, 5)]
    assert [dict(row["numbers"])["NO2"] for row in found] == [air(number)["NO2"] for number in (1, 3, 4, 5)]


def test_records_of_other_kinds_have_no_rows() -> None:
    assert rows_of(Tick(), SubscriptionChange("default", "0.default.a.b", None), give="all") == []


def test_records_as_they_are() -> None:
    records = [encode(Tick()), encode(city(1)[0])]
    found = rows_of(*records, b"junk", give="records")
    assert [(row["log_seq"], row["kind"], row["data"]) for row in found] == [
        (1, "tick", records[0]),
        (2, "publications", records[1]),
        (3, "damaged", b"junk"),
    ]


GOOD = orjson.loads(encode(publications("m", 0, [{"a": 1}])).split(b"\n")[0])


def damaged(rows: str, **header: Any) -> bytes:
    return orjson.dumps(GOOD | header) + b"\n" + rows.encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"no record", "damaged record"),
        (b"", "damaged record"),
        (damaged('[{"a":1}]', v=2), "version 2"),
        (damaged('[{"a":1}]', kind="novelty"), "unknown kind"),
        (damaged('[{"a":1'), "damaged rows"),
        (damaged('{"a":1}'), "no array of rows"),
        (damaged('[{"a":1},{"a":2}]'), "2 rows, and runs of 1"),
        (damaged('[{"a":{"b":1}}]'), "a: a value is a number, a string or a boolean, not dict"),
        (damaged('[{"a":1e400}]'), "damaged rows"),
        (damaged("[7]"), "row 0: a publication is an object, not int"),
        (damaged('[{"time":"noon"}]'), "time: it must not be str"),
        (damaged('[{"lat":true}]'), "lat: it must not be bool"),
        (damaged('[{"type":5}]'), "type: it must not be int"),
        (damaged('[{"a":1}]', received="now"), "received at"),
        (damaged('[{"a":1}]', received=1e300), "received at"),
        (damaged('[{"a":1}]', runs=[["m", "1", 0, 1, "kit", None, 1]]), "a run of"),
        (damaged('[{"a":1}]', runs=[["m", 1, -1, 1, "kit", None, 1]]), "a run of"),
        (damaged('[{"a":1}]', runs=[["m", 1, 2**63 - 1, 1, "kit", None, 1]]), "a run of"),
        (damaged('[{"a":1}]', runs=[["m", 2**63, 0, 1, "kit", None, 1]]), "a run of"),
        (damaged('[{"a":1}]', runs=[["m", 1, 0, 1, "kit", 2**63, 1]]), "a run of"),
        (damaged('[{"a":1}]', runs=[["m", 1, 0, 1]]), "damaged record"),
    ],
)
def test_what_cannot_be_decoded_is_a_dead_letter_among_good_rows(data: bytes, reason: str) -> None:
    before, after = publications("m", 0, [{"a": 1}]), publications("m", 1, [{"a": 2}])
    first, dead, last = rows_of(before, data, after, give="all")
    assert [first["id"], last["id"]] == ["m:1:0", "m:1:1"]
    assert first["reason"] is last["reason"] is None
    assert reason in dead["reason"]
    assert dead["raw"] == data.decode()
    assert (dead["log_seq"], dead["arrival"], dead["id"], dead["numbers"]) == (2, 1_760_000_002.5, None, [])
    assert [row["id"] for row in rows_of(before, data, after)] == ["m:1:0", "m:1:1"]


def test_for_the_lake_a_run_without_end_is_a_dead_letter_and_not_counted_through() -> None:
    (dead,) = rows_of(damaged('[{"a":1}]', runs=[["m", 1, 0, 2**62, "kit", None, 1]]), give="lake")
    assert dead["reason"] == f"a damaged record: 1 rows, and runs of {2**62}"


def test_a_large_dead_letter_is_cut() -> None:
    (dead,) = rows_of(b"\xff" * 100_000, give="all")
    assert len(dead["raw"]) == 16 * 1024


# ---- one schema for JSON, SenML and Arrow


def taken(payload: bytes) -> list[dict[str, Any]]:
    """The readings of a payload, as the gateway takes them in and the pipeline reads them, flat."""
    return [flat(row) for row in taken_rows(payload)]


def taken_rows(payload: bytes) -> list[dict[str, Any]]:
    """The same, as rows of the lake."""
    found: Taken = Intake(Limits(), Numbers(1), SourceOwners()).take(Sender("default", "kit"), payload, 1_760_000_000.0)
    assert not found.refusals
    records = [
        Publications("default", 1_760_000_000.0, part.runs, b"[" + part.body + b"]")
        for part in parts(found, 500_000, 1_000_000)
    ]
    return rows_of(*records)


def test_the_units_of_senml_are_in_the_lake() -> None:
    pack = [{"bn": "m7/", "n": "NO2", "u": "ug/m3", "v": 57.5}, {"n": "temp", "u": "Cel", "v": 21}, {"n": "a", "v": 1}]
    (row,) = taken_rows(json.dumps(pack).encode())
    assert row["units"] == [("NO2", "ug/m3"), ("temp", "Cel")]
    assert row["numbers"] == [("NO2", 57.5), ("temp", 21.0), ("a", 1.0)]


def test_json_senml_and_arrow_come_out_alike() -> None:
    plain = {
        "source": "m7",
        "time": 1_700_000_000.0,
        "lat": 45.8,
        "long": 15.9,
        "NO2": 57.5,
        "room": "hall",
        "ok": True,
    }
    senml = [
        {"bn": "m7/", "bt": 1_700_000_000.0, "n": "lat", "u": "lat", "v": 45.8},
        {"n": "long", "u": "lon", "v": 15.9},
        {"n": "NO2", "v": 57.5},
        {"n": "room", "vs": "hall"},
        {"n": "ok", "vb": True},
    ]
    out = io.BytesIO()
    batch = pa.RecordBatch.from_pylist([plain])
    with pa.ipc.new_stream(out, batch.schema) as writer:
        writer.write_batch(batch)
    (from_json,), (from_senml,), (from_arrow,) = (
        taken(payload) for payload in (json.dumps(plain).encode(), json.dumps(senml).encode(), out.getvalue())
    )
    assert from_json == from_arrow
    assert from_json.items() - from_senml.items() <= {("id", from_json["id"])}


# ---- for all readings

names = st.text(min_size=1, max_size=12).filter(
    lambda name: name not in ("id", "source", "time", "lat", "long", "type")
)
values = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**60), 2**60), st.text(max_size=12), st.booleans()
)


@given(st.lists(st.lists(st.dictionaries(names, values, max_size=6), min_size=1, max_size=5), min_size=1, max_size=4))
def test_every_reading_comes_out_as_it_went_in(batches: list[list[dict[str, Any]]]) -> None:
    records = [publications(f"m{at}", 0, rows) for at, rows in enumerate(batches)]
    found = [flat(row) for row in rows_of(*records)]
    wanted = [row for record in records for row in orjson.loads(record.rows)]
    assert found == [
        {name: float(value) if type(value) is int else value for name, value in row.items()} for row in wanted
    ]
    assert [[type(value) for value in row.values()] for row in found] == [
        [float if type(row[name]) is int else type(row[name]) for name in flat_row]
        for row, flat_row in zip(wanted, found, strict=True)
    ]


@given(st.binary(max_size=200))
def test_no_bytes_bring_the_decoder_down(data: bytes) -> None:
    rows_of(data, give="all")


@given(st.binary(max_size=60))
def test_no_bytes_below_a_good_header_do_either(rows: bytes) -> None:
    data = orjson.dumps(GOOD) + b"\n" + rows
    found = rows_of(data, give="all")
    try:
        decode(data)
    except RecordError:
        assert found[0]["reason"]
    assert len(found) == 1


@pytest.mark.usefixtures("spark")
def test_the_schema_is_spark_s() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_string

    for schema in FORMS.values():
        assert to_arrow_schema(_parse_datatype_string(ddl(schema)), timezone="UTC").equals(schema)
    assert ALL.names[: len(PUBLICATIONS)] == PUBLICATIONS.names
    assert "data" in RECORDS.names


# ---- what else the lake needs for replays


def label(source: str, sequence: int, bit: bool) -> Label:
    return Label(Mark(source, (1, 1, sequence), bit), (), False)


def test_for_the_lake_labels_are_with_their_readings_and_silent_ones_apart() -> None:
    record = publications("m", 0, [{"a": 1}, {"a": 2}, {"a": 3}])
    silent = Label(Mark("m", (1, 1, 2), False), (), True)
    labels = (
        RowLabel(0, "ff", label("m", 0, True)),
        RowLabel(2, "ee", label("m", 2, False)),
        RowLabel(None, "dd", silent),
    )
    found = rows_of(replace(record, labels=labels), give="lake", repeated=(0,))
    silence, first, second = found
    assert (silence["id"], silence["log_seq"], silence["reason"]) == (None, 1, None)
    assert orjson.loads(silence["raw"]) == {"kind": "publications", "labels": [["dd", silent.to_json()]]}
    assert (first["id"], first["labels"]) == ("m:1:1", None)
    assert (second["id"], orjson.loads(second["labels"])) == ("m:1:2", {"ee": label("m", 2, False).to_json()})
    assert first["raw"] is second["raw"] is None


def test_for_the_lake_every_record_leaves_a_row() -> None:
    over = Announced("default", ("m", "n"), over=True)
    repeat = publications("m", 0, [{"a": 1}])
    found = rows_of(over, Tick(), city(1)[0], give="lake")
    assert [orjson.loads(row["raw"]) for row in found if row["raw"]] == [
        {"kind": "announced", "sources": ["m", "n"], "over": True},
        {"kind": "tick"},
    ]
    assert [row["tenant"] for row in found[:3]] == ["default", "all", "default"]
    (left,) = rows_of(repeat, give="lake", repeated=(0,))
    assert orjson.loads(left["raw"]) == {"kind": "publications", "labels": []}
