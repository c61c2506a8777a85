"""Records of the log: what is written is read again; what is newer or damaged is refused."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import Label, Mark, PublicationId
from spinney_cloud import records
from spinney_cloud.records import (
    Announced,
    Publications,
    RecordError,
    RowLabel,
    Run,
    SubscriptionChange,
    Tick,
    Unpublish,
)

names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
numbers = st.integers(0, 2**53 - 1)
values = st.one_of(texts, st.booleans(), st.floats(allow_nan=False, allow_infinity=False), numbers)
runs = st.builds(Run, texts, numbers, numbers, st.integers(1, 9), names, st.none() | numbers, st.sampled_from([0, 1]))
marks = st.builds(Mark, texts, st.tuples(numbers, numbers, numbers), st.booleans(), st.none() | texts)
labels = st.builds(Label, marks, st.lists(marks, max_size=3).map(tuple), st.booleans())
row_labels = st.builds(RowLabel, st.none() | st.integers(0, 9), st.from_regex("[0-9a-f]{16}", fullmatch=True), labels)
rows = st.lists(st.dictionaries(texts, values, max_size=5), max_size=4).map(orjson.dumps)
publications = st.builds(
    Publications,
    names,
    st.floats(0, 4e9),
    st.lists(runs, max_size=4).map(tuple),
    rows,
    st.lists(row_labels, max_size=3).map(tuple),
)
changes = st.builds(SubscriptionChange, names, texts, st.none() | st.dictionaries(texts, values, max_size=4))
others = st.one_of(
    changes,
    st.builds(Unpublish, names, names, texts),
    st.builds(Announced, names, st.lists(texts, max_size=4).map(tuple), st.booleans()),
    st.builds(Tick, names),
)


@given(publications | others)
def test_what_is_written_is_read_again(record):
    assert records.decode(records.encode(record)) == record


@given(publications | others, st.data())
def test_damage_is_a_record_error_and_nothing_else(record, data):
    written = records.encode(record)
    cut = data.draw(st.integers(0, len(written)))
    with_noise = written[:cut] + data.draw(st.binary(min_size=1, max_size=4)) + written[cut + 1 :]
    for damaged in (written[:cut], with_noise):
        try:
            records.decode(damaged)
        except RecordError:
            continue


def test_the_rows_stand_in_the_record_as_they_came():
    rows = b'[{"id":"m7:4:17","source":"m7","NO2":57}]'
    record = records.encode(Publications("default", 1.5, (Run("m7", 4, 17, 1, "kit", None, 1),), rows))
    assert record.split(b"\n")[1] == rows


def test_a_run_tells_each_rows_id():
    record = Publications("t", 0.0, (Run("a", 1, 5, 2, "c", None, 1), Run("b", 2, 9, 1, "c", 3, 1)), b"[]")
    assert list(record.ids()) == [PublicationId("a", 1, 5), PublicationId("a", 1, 6), PublicationId("b", 2, 9)]


def test_a_newer_version_is_refused_by_name():
    newer = records.encode(Tick()).replace(b'"v":1', b'"v":2')
    with pytest.raises(RecordError, match="version 2"):
        records.decode(newer)


@pytest.mark.parametrize("tenant", ["", "a b", "a.b", "*", ">", "x" * 65])
def test_a_tenant_is_a_name(tenant):
    with pytest.raises(RecordError, match="tenant"):
        records.decode(records.encode(Tick(tenant)))


def test_an_unknown_kind_is_refused():
    with pytest.raises(RecordError, match="unknown kind"):
        records.decode(records.encode(Tick()).replace(b'"tick"', b'"tock"'))
