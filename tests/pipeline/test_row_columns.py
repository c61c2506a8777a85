"""The rows of records as columns: what the C core makes of them is what Python makes of them, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import publications

from spinney import Label, Mark, native
from spinney.columns import ColumnsFull
from spinney_cloud.pipeline.decode import Decoder
from spinney_cloud.pipeline.row_columns import CoreRows, PythonRows
from spinney_cloud.pipeline.schema import FORMS
from spinney_cloud.records import Announced, Publications, RecordError, RowLabel, Run, Tick, encode

CORE = native.core()
DECODED = ("publications", "all", "lake", "records")

pytestmark = pytest.mark.skipif(CORE is None, reason="there is no C core to compare with")


def core_rows(most_bytes: int = 1 << 30) -> CoreRows:
    assert CORE is not None
    return CoreRows(CORE, most_bytes)


# ---- any rows


@dataclass(frozen=True)
class Taken:
    """A record of the log, and which of its rows are duplicates."""

    data: bytes
    repeated: tuple[int, ...] = ()


NAMES = ("a", "b", "a_unit", "b_unit", "_unit", "", "time", "time_unit", "lat", "long", "type", "id", "source", "ä\n€")
names = st.sampled_from(NAMES) | st.text(max_size=5)
INTEGERS = (0, 2**53 + 1, 2**60, 2**63, 2**64 - 1, -(2**63), 10**25, -(10**40))
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(INTEGERS) | st.integers(-200, 200),
    st.sampled_from([-0.0, 5e-324, 1e308, 45.8, 89.99, 90.0, 180.5]),
).map(repr)
ODD_NUMBERS = ("-0", "1e400", "-1e-400", "1E5", "0.1e1", "9" * 400, "01", "1.", "-", "123456789012345678901.5e-3")
texts = st.text(max_size=8).map(lambda text: orjson.dumps(text).decode())
ODD_TEXTS = ('"\\u0041\\ud83d\\ude00"', '"\\ud83d"', '"\\/\\b"', '"\\x"', '"\n"', '"')
words = st.sampled_from(["null", "true", "false"])
NESTED = ("{}", "[]", '[{"a":1}]', "nul")
values = st.one_of(numbers, texts, words)
odd_values = st.sampled_from([*ODD_NUMBERS, *ODD_TEXTS, *NESTED])
RESERVED = {"type": texts, "time": numbers, "lat": numbers, "long": numbers}
MOSTLY = {"a": numbers, "a_unit": texts, "b": numbers, "b_unit": texts, "": numbers, "_unit": texts, "time_unit": texts}


def members(name: str, odd: bool) -> st.SearchStrategy[str]:
    """A member of an object; a reserved attribute has what it should, unless odd."""
    value = RESERVED.get(name, MOSTLY.get(name, values) | values) | st.just("null")
    if odd:
        value = value | value | values | odd_values
    return value.map(lambda text: f"{orjson.dumps(name).decode()}:{text}")


@st.composite
def objects(draw: st.DrawFn, keys: Sequence[str], odd: bool) -> str:
    """A row with mostly these keys, in this order, once each."""
    if draw(st.integers(0, 3)) == 0:
        keys = draw(st.lists(names, max_size=8, unique=not odd))
    between = draw(st.sampled_from([",", ",", " ,\t"]))
    return "{" + between.join(draw(members(name, odd)) for name in keys) + "}"


def runs_of(draw: st.DrawFn, rows: int) -> Iterator[Run]:
    while rows:
        length = draw(st.integers(1, rows))
        first = draw(st.sampled_from([0, 5, 99, 10**15]))
        yield Run(draw(st.sampled_from(["m7", "ä:b", ""])), draw(st.integers(0, 3)), first, length, "kit", None, 1)
        rows -= length


def labels_of(draw: st.DrawFn, rows: int) -> tuple[RowLabel, ...]:
    label = Label(Mark("m7", (1, 1, 1), True), (), False)
    places = st.none() | st.integers(0, max(rows - 1, 0))
    return tuple(RowLabel(place, "ff", label) for place in draw(st.lists(places, max_size=2)))


@st.composite
def taken(draw: st.DrawFn) -> Taken:
    """A record: mostly rows that are alike, but anything may be there."""
    kind = draw(st.integers(0, 9))
    if kind == 0:
        other = (encode(Tick()), encode(Announced("default", ("m7",), over=False)), b"junk")
        return Taken(draw(st.sampled_from(other)))
    odd = kind < 3
    keys = draw(st.lists(names, max_size=6, unique=True))
    rows = draw(st.lists(objects(keys, odd), max_size=6))
    text = draw(st.sampled_from(["[{}]", "[{}]", " [ {}\n] "])).replace("{}", ",".join(rows))
    runs = tuple(runs_of(draw, len(rows) + (draw(st.sampled_from([0, 0, 0, 0, -1, 1])) if odd and rows else 0)))
    record = Publications("default", 1_760_000_000.25, runs, b"", labels_of(draw, len(rows)))
    header, _, *more = encode(record).split(b"\n")
    repeated = tuple(sorted(draw(st.sets(st.integers(0, len(rows)), max_size=2))))
    return Taken(b"\n".join([header, text.replace("\n", " ").encode(errors="replace"), *more]), repeated)


def bits(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Doubles as what they are made of, since 0.0 is equal to -0.0."""
    numbers = batch.column("numbers")
    items = numbers.items.view(pa.int64())
    maps = pa.MapArray.from_arrays(numbers.offsets, numbers.keys, items)
    columns = [maps if name == "numbers" else column for name, column in zip(batch.schema.names, batch, strict=True)]
    plain = [column.view(pa.int64()) if pa.types.is_floating(column.type) else column for column in columns]
    return pa.RecordBatch.from_arrays(plain, names=batch.schema.names)


def assert_alike(found: Sequence[pa.RecordBatch], wanted: Sequence[pa.RecordBatch]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        one.validate(full=True)
        assert one.schema == other.schema
        assert one.to_pylist() == other.to_pylist()
        assert one.equals(other)
        if "numbers" in one.schema.names:
            assert bits(one).equals(bits(other))


@pytest.mark.parametrize("give", DECODED)
@given(st.lists(taken(), min_size=1, max_size=6), st.lists(st.integers(0, 5), max_size=2))
def test_the_core_makes_the_batches_that_python_makes(give: str, log: list[Taken], ends: list[int]) -> None:
    ours, reference = Decoder(give, core_rows()), Decoder(give, PythonRows())
    for sequence, one in enumerate(log):
        counts = [each.take(one.data, sequence, 1_760_000_000.5, one.repeated) for each in (ours, reference)]
        assert counts[0] == counts[1]
        assert (ours.rows, ours.readings, ours.dead) == (reference.rows, reference.readings, reference.dead)
        if sequence in ends:
            assert_alike(list(ours.give()), list(reference.give()))
    assert_alike(list(ours.give()), list(reference.give()))


@pytest.mark.parametrize("text", [*ODD_NUMBERS, *map(str, INTEGERS), "-0.0", "-0e1", *ODD_TEXTS, *NESTED])
def test_an_odd_value_is_taken_or_refused_as_python_does(text: str) -> None:
    record = encode(replace(publications("m7", 0, [{}]), rows=b"")).rstrip(b"\n")
    for row in (f'{{"a":{text}}}', f'{{"time":{text}}}', f'{{"type":{text}}}', f'{{"id":{text}}}'):
        ours, reference = Decoder("all", core_rows()), Decoder("all", PythonRows())
        for each in (ours, reference):
            each.take(record + b"\n[" + row.replace("\n", "\t").encode() + b"]", 1, 1_760_000_000.5)
        assert_alike(list(ours.give()), list(reference.give()))


def test_every_form_that_is_decoded_is_compared() -> None:
    assert {*DECODED} == FORMS.keys() - {"matches", "files"}, "matches have no rows, files those of `lake`"


# ---- what the core refuses


def rows(text: str, count: int = 1) -> Publications:
    return replace(publications("m7", 0, [{}] * count), rows=text.encode())


def test_a_key_that_is_there_twice_counts_as_python_has_it() -> None:
    found, wanted = core_rows(), PythonRows()
    record = rows('[{"a":1,"b":"x","a":2},{"a":3}]', 2)
    for each in (found, wanted):
        each.take(record, (), 0)
    assert found.arrays()["numbers"].to_pylist() == wanted.arrays()["numbers"].to_pylist() == [[("a", 2)], [("a", 3)]]


@pytest.mark.parametrize(
    "text", ['[{"a":1},{"b":[]}]', '[{"a":1,"s":"x","s_unit":"y","t":true},{"time":"noon"}]', "[{"]
)
def test_of_what_is_refused_nothing_stays(text: str) -> None:
    found, wanted = core_rows(), core_rows()
    good = rows('[{"a":5,"t":false,"s":"x","a_unit":"m","type":"air"}]')
    found.take(good, (), 0)
    with pytest.raises(RecordError):
        found.take(rows(text, 2), (), 1)
    for each in (found, wanted):
        each.take(good, (), 1)
    wanted.clear()
    for _ in range(2):
        wanted.take(good, (), 0)
    assert found.arrays()["numbers"].to_pylist() == [[("a", 5)], [], [("a", 5)]]
    assert found.arrays()["id"].to_pylist() == ["m7:1:0", None, "m7:1:0"]
    for name in ("numbers", "texts", "flags", "units"):
        assert found.arrays()[name].take([0, 2]).equals(wanted.arrays()[name])


# ---- more than a batch holds


def test_what_a_batch_does_not_hold_goes_into_another() -> None:
    log = [encode(publications("m7", at, [{"text": "x" * 40}])) for at in range(5)]
    small, large = Decoder("all", core_rows(100)), Decoder("all", core_rows())
    for sequence, data in enumerate(log):
        small.take(data, sequence, 1_760_000_000.5)
        large.take(data, sequence, 1_760_000_000.5)
    found, (wanted,) = list(small.give()), large.give()
    assert [batch.num_rows for batch in found] == [2, 2, 1]
    assert pa.Table.from_batches(found).combine_chunks().equals(pa.Table.from_batches([wanted]))
    assert list(small.give()) == []


def test_a_record_that_no_batch_holds_is_a_dead_letter() -> None:
    decoder = Decoder("all", core_rows(100))
    too_large = encode(publications("m7", 1, [{"text": "x" * 101}]))
    for data in (too_large, encode(publications("m7", 0, [{"a": 1}])), too_large):
        decoder.take(data, 1, 1_760_000_000.5)
    first, second = decoder.give()
    reason = "a record that no batch holds: too many rows for one batch"
    assert first.column("id").to_pylist() == [None, "m7:1:0"]
    assert [batch.column("reason").to_pylist() for batch in (first, second)] == [[reason, None], [reason]]


def test_columns_that_are_full_keep_what_they_have() -> None:
    found = core_rows(100)
    found.take(rows('[{"text":"one"}]'), (), 0)
    with pytest.raises(ColumnsFull):
        found.take(rows(f'[{{"text":"{"x" * 98}"}}]'), (), 0)
    assert found.arrays()["texts"].to_pylist() == [[("text", "one")]]
