"""Intake: what is accepted, under which id, in which runs, and what is refused without harm to the rest."""

import json
import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import Label, Mark, PublicationError, PublicationId
from spinney.event_json import read_events
from spinney.publication import read
from spinney_cloud.intake import Intake, Sender, Taken, TooLargeForRecord, parts
from spinney_cloud.numbering import Numbers, next_boot
from spinney_cloud.rate_limit import RateLimit
from spinney_cloud.records import RowLabel, Run
from spinney_cloud.settings import Limits
from spinney_cloud.source_owners import SourceOwners

KIT = Sender("default", "kit")
BOOT = 1731900000000


def intake(*, leases=None, **limits):
    owners = SourceOwners()
    for key, held in (leases or {}).items():
        owners.update(key, orjson.dumps({"leases": held}))
    return Intake(Limits(**limits), Numbers(BOOT), owners)


def take(what, **given):
    data = what if isinstance(what, bytes) else orjson.dumps(what)
    return intake(**given).take(KIT, data, 1000.0)


def refused(taken):
    return [(each.row, each.kind) for each in taken.refusals]


# ---- one meaning: the door of the core and spinney.publication.read

attribute_names = st.one_of(
    st.sampled_from(["NO2", "time", "lat", "long", "type", "valid_for", "source", "", "a"]), st.text(max_size=4)
)
odd_values = st.sampled_from(
    [
        "1e999",
        "-0",
        "1e-400",
        str(10**400),
        str(2**64),
        str(2**53 + 1),
        "NaN",
        "Infinity",
        "-Infinity",
        "01",
        "[]",
        "{}",
        '"\\ud800"',
        '"\\ud83d\\ude00"',
        '"2026-11-18T12:00:00Z"',
        '"2026-02-30T12:00:00Z"',
        "null",
        "true",
        "-1",
        '"\t"',
    ]
)
written_values = st.one_of(
    odd_values, st.floats().map(repr), st.integers().map(str), st.text(max_size=6).map(lambda text: _json(text))
)


def _json(text):
    return json.dumps(text)


@st.composite
def written_rows(draw):
    members = draw(st.lists(st.tuples(attribute_names.map(_json), written_values), max_size=5))
    return "{" + ", ".join(f"{name}: {value}" for name, value in members) + "}"


def expected(written):
    """What the core's door and read make of one row; None if either refuses it."""
    try:
        read_events(written.encode())
        row = read(json.loads(written))
        return row if row.get("source") != "" else None  # a source has a name
    except (PublicationError, UnicodeEncodeError):
        return None


def without_our_own(row):
    return {name: value for name, value in row.items() if name not in ("id", "source")}


@given(written_rows())
def test_a_row_is_accepted_exactly_if_the_core_accepts_it(written):
    should = expected(written)
    taken = take(written.encode(errors="surrogatepass"))
    if should is None:
        assert not taken.rows
        assert len(taken.refusals) == 1
    else:
        assert [without_our_own(read(row)) for row in taken.rows] == [without_our_own(should)]
        assert taken.rows[0]["source"] == should.get("source", "kit")


@pytest.mark.parametrize("value", ["1", '"x"', '""', "null"])
def test_a_key_that_is_there_twice_is_seen_whatever_stands_beside_it(value: str) -> None:
    once = f'{{"a":{value},"b":"]","c":null,"d":""}}'
    assert len(take(once.encode()).rows) == 1
    for twice in (once[:-1] + f',"a":{value}}}', f'{{"a":7,{once[1:]}', once.replace('"b"', '"a"')):
        assert refused(take(twice.encode())) == [(0, "row")]


@given(st.lists(written_rows(), max_size=4))
def test_in_an_array_what_is_refused_harms_no_other_row(written):
    text = ("[" + ",".join(written) + "]").encode(errors="surrogatepass")
    should = [expected(row) for row in written]
    taken = take(text)
    if any(each.row is None for each in taken.refusals):
        assert None in should  # the text is no JSON at all, because of one of them
        return
    assert [without_our_own(read(row)) for row in taken.rows] == [
        without_our_own(row) for row in should if row is not None
    ]
    assert sorted(each.row for each in taken.refusals) == [place for place, row in enumerate(should) if row is None]


@given(st.lists(written_rows(), max_size=4))
def test_what_goes_to_the_log_is_what_the_cores_reader_accepts(written):
    taken = take(("[" + ",".join(written) + "]").encode(errors="surrogatepass"))
    rows = b"[" + b",".join(part.body for part in parts(taken, 2**20, 2**20)) + b"]"
    events = read_events(rows)
    assert [read(event) for event in events] == [read(row) for row in taken.rows]
    assert b"\n" not in rows
    for row in orjson.loads(rows):
        assert None not in row.values()
        assert row["id"]
        assert row["source"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":{"b":1}}', "dict"),
        (b'{"a":NaN}', "finite"),
        (b'{"a":1e999}', "finite"),
        (b'{"":1}', "not empty"),
        (b'{"time":true}', "time"),
        (b'{"time":"yesterday"}', "timestamp"),
        (b'{"lat":"45"}', "lat"),
        (b'{"valid_for":-1}', "negative"),
        (b'{"source":""}', "source"),
        (b'{"source":7}', "source"),
        (b'{"id":7}', "id"),
        (b'{"id":"m7"}', "source:boot:sequence"),
        (b'{"id":"m7:1:-1"}', "source:boot:sequence"),
        (b'{"id":"m7:1:9007199254740992"}', "2**53"),
        (b'{"id":"m7:1:1","source":"m8"}', "m8"),
        (b"7", "object"),
        (b'[{"a":1}]', "object"),
    ],
)
def test_a_refused_row_says_why_and_the_rest_passes(row, says):
    taken = take(b'[{"NO2":1},' + row + b',{"NO2":3}]')
    (refusal,) = taken.refusals
    assert refusal.row == 1
    assert says in refusal.reason
    assert [each["NO2"] for each in taken.rows] == [1, 3]


def test_a_timestamp_becomes_seconds_and_nulls_go():
    (row,) = take(b'{"time":"1970-01-01T00:01:00.5Z","gone":null,"NO2":3}').rows
    assert row["time"] == 60.5
    assert "gone" not in row
    (row,) = take(b'{"gone":null,"NO2":3}').rows
    assert "gone" not in row
    assert ["gone" in row for row in take(b'[{"gone":null,"NO2":3},{"NO2":4}]').rows] == [False, False]


@pytest.mark.parametrize(
    "payload", [b"", b"[", b'{"a":', b"7", b"null", b'"text"', b"\xff\xfe", b"[" * 100_000, b'[{"a":"\xff"}]', b"[1]x"]
)
def test_a_payload_that_nothing_can_be_made_of_is_refused_whole(payload):
    taken = take(payload)
    assert not taken.rows
    assert refused(taken) == [(None, "payload")]


# ---- ids and runs


def test_numbered_rows_keep_their_ids_in_runs():
    ids = ["m7:4:17", "m7:4:18", "m7:4:19", "m7:4:21", "m8:0:0", "m7:4:22", "m7:5:23"]
    taken = take([{"id": id, "NO2": 1} for id in ids])
    assert [row["id"] for row in taken.rows] == ids
    assert [row["source"] for row in taken.rows] == ["m7", "m7", "m7", "m7", "m8", "m7", "m7"]
    assert [run[:4] for run in taken.runs] == [
        ("m7", 4, 17, 3),
        ("m7", 4, 21, 1),
        ("m8", 0, 0, 1),
        ("m7", 4, 22, 1),
        ("m7", 5, 23, 1),
    ]
    assert {run.numbered for run in taken.runs} == {1}
    assert taken.stored() == {"m7": (5, 23), "m8": (0, 0)}


def test_a_source_without_numbers_is_numbered_here():
    door = intake()
    first = door.take(KIT, b'[{"NO2":1},{"NO2":2},{"source":"m8","NO2":3},{"NO2":4}]', 0.0)
    assert [row["id"] for row in first.rows] == [f"kit:{BOOT}:0", f"kit:{BOOT}:1", f"m8:{BOOT}:0", f"kit:{BOOT}:2"]
    assert first.runs[0] == Run("kit", BOOT, 0, 2, "kit", None, 0)
    (again,) = door.take(KIT, b'{"NO2":5}', 0.0).rows
    assert again["id"] == f"kit:{BOOT}:3"
    (elsewhere,) = door.take(Sender("other", "kit"), b'{"NO2":5}', 0.0).rows
    assert elsewhere["id"] == f"kit:{BOOT}:0"


sources = st.sampled_from(["a", "b", "c:d"])
given_ids = st.builds(PublicationId, sources, st.integers(0, 2), st.integers(0, 5)).map(str)
some_rows = st.lists(
    st.one_of(st.just({}), given_ids.map(lambda id: {"id": id}), sources.map(lambda name: {"source": name}))
)


@given(some_rows)
def test_runs_tell_the_id_of_each_row(rows):
    taken = take([{**row, "NO2": 1} for row in rows])
    ids = [
        f"{run.source}:{run.boot}:{number}" for run in taken.runs for number in range(run.first, run.first + run.length)
    ]
    assert ids == [row["id"] for row in taken.rows]
    unnumbered = [run.numbered == 0 for run in taken.runs for _ in range(run.length)]
    assert unnumbered == ["id" not in row for row in rows]


def test_a_number_is_never_given_twice_though_sources_are_forgotten():
    numbers = Numbers(BOOT, limit=2)
    given_out = [(name, numbers.take("t", name)) for name in "abcabcaabbccdaebc" * 3]
    assert len(set(given_out)) == len(given_out)
    assert numbers.forgotten > 0


def test_a_boot_is_never_used_twice(tmp_path):
    assert next_boot(tmp_path, 100.0) == 100_000
    assert next_boot(tmp_path, 90.0) == 100_001  # the clock was set back
    assert next_boot(tmp_path, 200.0) == 200_000
    (tmp_path / "gateway.boot").write_text("nonsense")
    assert next_boot(tmp_path, 300.0) > 200_000


# ---- owners


def test_only_its_owner_publishes_a_source():
    leases = {"default.kit": {"m7": 3}, "default.van": {"m8": 5}}
    rows = [{"id": f"{name}:1:1", "NO2": 1} for name in ("m7", "m8", "m9")]
    taken = take(rows, leases=leases)
    assert [(run.source, run.epoch) for run in taken.runs] == [("m7", 3), ("m9", None)]
    assert refused(taken) == [(1, "lease")]
    assert "van" in taken.refusals[0].reason


def test_without_an_id_it_is_the_same():
    taken = take([{"source": "m8"}, {"source": "m7"}], leases={"default.kit": {"m7": 3}, "default.van": {"m8": 5}})
    assert [(run.source, run.epoch) for run in taken.runs] == [("m7", 3)]


@pytest.mark.parametrize(("epoch", "accepted"), [(3, True), (2, False), (4, False)])
def test_a_lease_that_is_over_is_refused(epoch, accepted):
    envelope = {"publications": [{"id": "m7:1:1"}], "epochs": {"m7": epoch}}
    taken = take(envelope, leases={"default.kit": {"m7": 3}})
    assert bool(taken.rows) is accepted
    assert refused(taken) == ([] if accepted else [(0, "lease")])


def test_another_tenants_leases_are_no_matter():
    assert take({"id": "m7:1:1"}, leases={"other.van": {"m7": 3}}).rows


def test_a_lease_that_is_given_up_frees_the_source():
    owners = SourceOwners()
    owners.update("default.van", orjson.dumps({"leases": {"m7": 3}}))
    owners.update("default.kit", orjson.dumps({"leases": {"m7": 4}}))
    owners.update("default.van", orjson.dumps({"leases": {}}))
    assert owners.check("default", "kit", "m7", None) == 4
    owners.update("default.kit", None)
    assert owners.check("default", "van", "m7", None) is None
    assert len(owners) == 0


# ---- the envelope of a mobile broker


def label(source="m7", epoch=3):
    return Label(Mark(source, (epoch, 1, 1), True))


def test_an_envelope_has_a_name_epochs_and_labels():
    rows = [{"id": "m7:1:1", "NO2": 50}, {"id": "m7:1:2", "NO2": 60}]
    labels = [[1, "0123456789abcdef", label().to_json()], [None, "0123456789abcdef", label().to_json()]]
    taken = take({"batch": "b1", "publications": rows, "epochs": {"m7": 3}, "labels": labels})
    assert taken.batch == "b1"
    assert taken.runs == [Run("m7", 1, 1, 2, "kit", 3, 1)]
    assert taken.labels == [RowLabel(1, "0123456789abcdef", label()), RowLabel(None, "0123456789abcdef", label())]


def test_a_label_moves_with_its_row_and_goes_with_it():
    rows = [{"id": "bad"}, {"id": "m7:1:2"}]
    labels = [[0, "0123456789abcdef", label().to_json()], [1, "0123456789abcdef", label().to_json()]]
    taken = take({"publications": rows, "labels": labels})
    assert taken.labels == [RowLabel(0, "0123456789abcdef", label())]
    assert refused(taken) == [(0, "id"), (0, "label")]


@pytest.mark.parametrize(
    "item",
    [
        None,
        [],
        [0, "x", {}],
        [9, "0123456789abcdef", label().to_json()],
        [0, "0123456789ABCDEF", label().to_json()],
        [True, "0123456789abcdef", label().to_json()],
        [0, "0123456789abcdef", {"mark": 1}],
    ],
)
def test_a_bad_label_is_refused_alone(item):
    taken = take({"publications": [{"id": "m7:1:2"}], "labels": [item]})
    assert len(taken.rows) == 1
    assert refused(taken) == [(0, "label")]


def test_a_label_of_anothers_source_is_refused():
    item = [0, "0123456789abcdef", label("m8").to_json()]
    taken = take({"publications": [{"id": "m7:1:2"}], "labels": [item]}, leases={"default.van": {"m8": 3}})
    assert refused(taken) == [(0, "label")]


@pytest.mark.parametrize(
    "rows",
    [
        b'[{"id":"m7:1:1","a":"]"}]',
        b'[{"id":"m7:1:1","a":"\\"publications\\":[]"}]',
        b'[{"id":"m7:1:1"},{"id":"m7:1:2","a":[]}]',
        b'[{"id":"m7:1:1"},{"id":"m7:1:2","a":1,"a":1}]',
        b"[]",
    ],
)
@pytest.mark.parametrize("frame", [b'{"batch":"x]","publications":%s}', b' { "publications" : %s ,"batch":"x]"}'])
def test_an_envelope_gives_what_its_array_gives(frame, rows):
    inside, alone = take(frame % rows), take(rows)
    assert inside.rows == alone.rows
    assert inside.refusals == alone.refusals
    assert inside.batch == "x]"


@pytest.mark.parametrize(
    "more",
    [
        b'"epochs":[]',
        b'"epochs":{"m7":"3"}',
        b'"epochs":{"m7":-1}',
        b'"labels":{}',
        b'"batch":{}',
        b'"other":1',
        b'"batch":"%s"' % (b"x" * 300),
    ],
)
def test_an_envelope_of_another_shape_is_refused(more):
    taken = take(b'{"publications":[{"NO2":1}],%s}' % more)
    assert refused(taken) == [(None, "payload")]
    assert not taken.rows


@pytest.mark.parametrize(("one", "other"), [(b'[{"NO2":1}]', b'[{"NO2":2}]'), (b'[{"NO2":1}]', b"[]"), (b"[]", b"[]")])
def test_an_envelope_with_its_publications_twice_is_refused(one, other):
    taken = take(b'{"publications":%s,"publications":%s}' % (one, other))
    assert not taken.rows
    assert len(taken.refusals) == 1


def test_publications_can_be_the_name_of_an_attribute():
    assert take(b'{"publications":3}').rows[0]["publications"] == 3


# ---- limits


def test_limits_are_refused_loudly():
    assert refused(take(b'{"NO2":1}', payload=8)) == [(None, "size")]
    assert refused(take([{"a": 1}, {"a": 1, "b": 2}], attributes=1)) == [(1, "row")]


def test_beyond_the_rate_a_client_is_told_to_send_again_and_others_are_not():
    door = intake(rate=1)
    payload = orjson.dumps({"batch": "b1", "publications": [{"NO2": number} for number in range(8)]})
    assert len(door.take(KIT, payload, 1000.0).rows) == 8
    busy = door.take(KIT, payload, 1000.0)
    assert (busy.rows, busy.refusals, busy.batch) == ([], [], "b1")
    assert "rate" in busy.busy
    assert len(door.take(Sender("default", "van"), payload, 1000.0).rows) == 8
    assert len(door.take(KIT, payload, 1006.0).rows) == 8


def test_a_payload_that_the_rate_never_allows_is_refused_for_good():
    taken = take([{"NO2": number} for number in range(11)], rate=1)
    assert refused(taken) == [(None, "rate")]
    assert taken.busy is None


def test_who_was_too_quick_waits_until_the_bucket_is_half_full():
    limit = RateLimit(1.0)
    assert limit.allow("kit", 10, 0.0)
    assert not limit.allow("kit", 1, 0.5)
    assert not limit.allow("kit", 1, 4.9)
    assert limit.allow("kit", 1, 5.0)
    assert limit.allow("kit", 4, 5.0)


def test_a_clock_that_steps_back_adds_nothing_and_takes_nothing():
    limit = RateLimit(1.0)
    assert limit.allow("kit", 5, 1000.0)
    assert limit.allow("kit", 4, 10.0)
    assert limit.allow("kit", 3, 12.0)
    assert not limit.allow("kit", 1, 12.0)


def test_forgotten_clients_are_bounded():
    limit = RateLimit(1.0, limit=2)
    for name in "abc":
        limit.allow(name, 10, 0.0)
    assert not limit.allow("c", 1, 0.0)
    assert limit.allow("a", 1, 0.0)


# ---- parts


@given(st.lists(st.one_of(given_ids.map(lambda id: {"id": id}), st.just({})), min_size=1), st.integers(90, 400))
def test_parts_are_all_of_it_in_order_and_none_is_too_large(rows, size):
    taken = take([{**row, "NO2": 1} for row in rows])
    taken.labels = [RowLabel(row, "f", label()) for row in range(len(rows))] + [RowLabel(None, "f", label())]
    made = list(parts(taken, size, 400))
    assert all(len(part.body) <= size or part.rows == 1 for part in made)
    assert [row for part in made for row in orjson.loads(b"[" + part.body + b"]")] == taken.rows
    at = 0
    for part in made:
        ids = [f"{run.source}:{run.boot}:{run.first + step}" for run in part.runs for step in range(run.length)]
        assert ids == [row["id"] for row in taken.rows[at : at + part.rows]]
        rows_of_labels = [one.row for one in part.labels if one.row is not None]
        assert rows_of_labels == list(range(part.rows))
        at += part.rows
    assert [one.row for one in made[-1].labels][-1] is None


def test_a_row_that_no_record_holds_is_said_before_anything():
    taken = take([{"a": "x"}, {"a": "x" * 500}])
    with pytest.raises(TooLargeForRecord) as error:
        list(parts(taken, 100, 200))
    assert error.value.row == 1
    assert not next(iter(parts(Taken(), 100, 200))).rows
    assert math.isfinite(error.value.size)
