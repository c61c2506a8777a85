"""SenML packs (RFC 8428): resolved, one publication for a source and time, refused record by record."""

import cbor2
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney.publication import read
from spinney_cloud.payloads import PayloadError, read_payload
from spinney_cloud.payloads.senml import is_pack

NOW = 1_731_900_000.0
LABELS = {"bver": -1, "bn": -2, "bt": -3, "bu": -4, "bv": -5, "bs": -6}
LABELS |= {name: number for number, name in enumerate(["n", "u", "v", "vs", "vb", "s", "t", "ut", "vd"])}


def as_json(pack):
    return orjson.dumps(pack)


def as_cbor(pack):
    return cbor2.dumps([{LABELS.get(name, name): value for name, value in record.items()} for record in pack])


def both(pack):
    """The rows and refusals of a pack, the same in both forms."""
    one, other = read_payload(as_json(pack), NOW), read_payload(as_cbor(pack), NOW)
    assert (one.rows, list(one.places), one.refusals) == (other.rows, list(other.places), other.refusals)
    return one


def rows(pack):
    batch = both(pack)
    assert batch.refusals == []
    return batch.rows


def test_base_fields_hold_from_their_record_on():
    pack = [
        {"bn": "urn:dev:ow:10e2073a0108006:", "bt": 1.276020076001e09, "bu": "A", "n": "voltage", "u": "V", "v": 120.1},
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "t": -4, "v": 1.3},
        {"bn": "urn:dev:ow:2:", "bv": 20, "n": "temp", "v": 1.5},
        {"n": "current", "v": 1.7},
    ]
    first, second = "urn:dev:ow:10e2073a0108006", "urn:dev:ow:2"
    assert rows(pack) == [
        {"source": first, "time": 1276020076.001, "voltage": 120.1, "voltage_unit": "V"},
        {"source": first, "time": 1276020071.001, "current": 1.2, "current_unit": "A"},
        {"source": first, "time": 1276020072.001, "current": 1.3, "current_unit": "A"},
        {
            "source": second,
            "time": 1276020076.001,
            "temp": 21.5,
            "temp_unit": "A",
            "current": 21.7,
            "current_unit": "A",
        },
    ]


def test_records_of_one_source_and_time_are_one_publication_where_the_first_stood():
    pack = [{"bn": "m7/", "n": "NO2", "v": 1}, {"n": "NO2", "t": -9, "v": 2}, {"n": "temp", "v": 3}]
    batch = both(pack)
    assert batch.rows == [{"source": "m7", "NO2": 1, "temp": 3}, {"source": "m7", "time": NOW - 9, "NO2": 2}]
    assert list(batch.places) == [0, 1]


@pytest.mark.parametrize(
    ("name", "source", "attribute"),
    [
        ("temp", None, "temp"),
        ("m7/temp", "m7", "temp"),
        ("m7:temp", "m7", "temp"),
        ("gw/room:3/temp", "gw/room:3", "temp"),
        ("urn:dev:ow:10e2073a01080063", "urn:dev:ow:10e2073a01080063", "value"),
        ("urn:dev:ow:10e2073a01080063:temp", "urn:dev:ow:10e2073a01080063", "temp"),
    ],
)
def test_the_name_is_the_source_and_the_attribute_however_it_is_written(name, source, attribute):
    expected = [{attribute: 1}] if source is None else [{"source": source, attribute: 1}]
    assert rows([{"n": name, "v": 1}]) == expected
    for cut in range(1, len(name)):
        assert rows([{"bn": name[:cut], "n": name[cut:], "v": 1}]) == expected
    assert rows([{"bn": name, "v": 1}]) == expected


@pytest.mark.parametrize(
    ("base", "time", "resolved"),
    [(None, None, None), (0, 0, None), (None, -5, NOW - 5), (10, 5, NOW + 15), (1.2e9, 5, 1.2e9 + 5), (None, 1e9, 1e9)],
)
def test_small_times_count_from_now(base, time, resolved):
    record = {"n": "m7/a", "v": 1}
    record |= {} if base is None else {"bt": base}
    record |= {} if time is None else {"t": time}
    (row,) = rows([record])
    assert row.get("time") == resolved


def test_values_are_numbers_texts_booleans_and_sums():
    pack = [
        {"bn": "m7/", "bs": 100, "n": "a", "v": 1.5},
        {"n": "b", "vs": "open"},
        {"n": "c", "vb": False},
        {"n": "d", "v": 2, "s": 7},
        {"n": "e", "s": 8},
    ]
    assert rows(pack) == [
        {"source": "m7", "a": 1.5, "b": "open", "c": False, "d": 2, "d_sum": 107, "e_sum": 108},
    ]


def test_units_of_places_name_the_reserved_attributes():
    pack = [{"bn": "m7/", "n": "y", "u": "lat", "v": 45.8}, {"n": "x", "u": "lon", "v": 15.9}]
    assert rows(pack) == [{"source": "m7", "lat": 45.8, "long": 15.9}]


def test_a_unit_is_carried_beside_its_number():
    pack = [
        {"bn": "m7/", "n": "NO2", "u": "µg/m³", "v": 57},
        {"n": "door", "u": "V", "vs": "open"},
        {"n": "on", "u": "V", "vb": True},
        {"n": "rain", "u": "mm", "s": 3},
        {"n": "hum", "u": "", "v": 40},
    ]
    row = {"source": "m7", "NO2": 57, "NO2_unit": "µg/m³", "door": "open", "on": True, "rain_sum": 3, "hum": 40}
    assert rows(pack) == [row]


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"n": "a"}, "without a value"),
        ({"n": "a", "v": "1"}, "number"),
        ({"n": "a", "v": True}, "number"),
        ({"n": "a", "vs": 1}, "text"),
        ({"n": "a", "vb": 1}, "true or false"),
        ({"n": "a", "vd": "aGk"}, "data"),
        ({"n": "a", "v": 1, "vs": "x"}, "one value"),
        ({"n": "a", "v": 1, "must_": 1}, "must be understood"),
        ({"n": "a b", "v": 1}, "not a name"),
        ({"n": "-a", "v": 1}, ""),
        ({"n": "", "v": 1}, ""),
        ({"n": "id", "v": 1}, "id"),
        ({"n": "time", "v": 1}, "time"),
        ({"n": "x" * 300, "v": 1}, "characters"),
        ({"n": 7, "v": 1}, "text"),
        ({"n": "first", "v": 1}, "twice"),
        ({"n": "a", "v": 1, "t": "now"}, "number"),
    ],
)
def test_a_refused_record_says_why_and_the_rest_passes(record, says):
    batch = both(
        [
            {"bn": "m7:", "n": "first", "v": 1},
            {"bn": ""} if record["n"] == "-a" else {},
            record,
            {"bn": "m7:", "n": "last", "v": 2},
        ]
    )
    assert batch.rows == [{"source": "m7", "first": 1, "last": 2}]
    assert [(each.row, each.kind) for each in batch.refusals][-1] == (2, "row")
    assert says in batch.refusals[-1].reason


@pytest.mark.parametrize(
    "pack",
    [
        [{"bver": 11, "n": "a", "v": 1}],
        [{"n": "a", "v": 1}, {"bver": 11, "n": "b", "v": 1}],
        [{"bn": "x", "bt": "now", "v": 1}],
        [{"bn": "x", "v": 1}, {"bn": 7}],
    ],
)
def test_a_pack_with_a_base_that_means_nothing_is_refused_whole(pack):
    for form in (as_json, as_cbor):
        with pytest.raises(PayloadError):
            read_payload(form(pack), NOW)


def test_a_long_base_name_cannot_grow_with_every_record():
    pack = [{"bn": "x" * 100_000, "n": "a", "v": 1}] + [{"n": str(number), "v": 1} for number in range(1000)]
    batch = both(pack)
    assert batch.rows == []
    assert len(batch.refusals) == 1001
    assert max(len(each.reason) for each in batch.refusals) < 200


@pytest.mark.parametrize(
    ("items", "pack"),
    [
        ([{"bn": "x"}], True),
        ([{"n": "x", "v": 1}], True),
        ([{"bt": 1, "n": "x"}], True),
        ([{"bn": "x", "foo": 1}], True),
        ([{"t": 21.5, "v": 3.3}], False),
        ([{"n": "x", "v": 1, "NO2": 3}], False),
        ([{"bt": 1, "NO2": 3}], False),
        ([{"NO2": 3}, {"bn": "x"}], False),
        ([{"n": "x"}], False),
        ([7], False),
        ([], False),
    ],
)
def test_a_pack_is_known_by_its_first_record(items, pack):
    assert is_pack(items) is pack


@pytest.mark.parametrize(
    "payload",
    [
        b"\x9f",
        b"\x81",
        b"\x80x",
        b"\x81" * 5000,
        b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x81\xc4\x82\x1b\x7f\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x81\xd8\x23\x61(",
    ],
)
def test_what_is_no_cbor_is_refused_whole(payload):
    with pytest.raises(PayloadError):
        read_payload(payload, NOW)


@pytest.mark.parametrize("exponent", [2**31 - 1, -(2**31), 400, 2])
def test_a_decimal_fraction_is_a_number_or_refused(exponent):
    (value,) = [cbor2.CBORTag(4, [exponent, 15])]
    batch = read_payload(cbor2.dumps([{0: "m7/a", 2: value}]), NOW)
    if exponent > 308:
        assert [each.kind for each in batch.refusals] == ["row"]
    else:
        assert batch.rows == [{"source": "m7", "a": float(f"15e{exponent}")}]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
records = st.dictionaries(st.sampled_from([*LABELS, "x", "y_"]), junk | st.floats(0, 3e9) | st.text(max_size=4))


@given(st.lists(records, min_size=1, max_size=5))
def test_whatever_a_pack_says_it_is_resolved_or_refused(pack):
    pack[0] = {**pack[0], "bn": "m7/"}
    try:
        batch = read_payload(cbor2.dumps([{LABELS.get(k, k): v for k, v in record.items()} for record in pack]), NOW)
    except PayloadError:
        return
    assert len(batch.rows) + len(batch.refusals) <= len(pack)
    for row in batch.rows:
        read(row)


@given(st.binary(max_size=60))
def test_any_bytes_are_resolved_or_refused(data):
    try:
        read_payload(b"\x82" + data, NOW)
    except PayloadError:
        return
