"""Packed batches at the gateway's intake: the same as the envelope in JSON; what they refer to; any bytes whatever."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney import Label, Mark, packed
from spinney.packed.rows import MAX_ROWS
from spinney_cloud.intake import Intake, Sender, Taken
from spinney_cloud.numbering import Numbers
from spinney_cloud.payloads import PayloadError, read_payload
from spinney_cloud.payloads.packed import ENTRY_BYTES, MAX_EACH, Kept
from spinney_cloud.settings import Limits
from spinney_cloud.source_owners import SourceOwners

KIT = Sender("default", "kit")
DIGEST = "0123456789abcdef"
ROWS = [{"id": f"m{n % 3}:9:{n}", "source": f"m{n % 3}", "n": n / 10, "room": "ab"[n % 2]} for n in range(1, 40)]
LABELS: list[Any] = [
    [2, DIGEST, Label(Mark("m0", (7, 9, 3), True)).to_json()],
    [None, DIGEST, Label(Mark("m9", (7, 9, 3), False)).to_json()],
]


def intake(**limits: Any) -> Intake:
    return Intake(Limits(**limits), Numbers(1), SourceOwners())


def envelope(rows: list[dict[str, Any]], epochs: dict[str, int], labels: list[Any], name: str) -> bytes:
    return orjson.dumps({"batch": name, "publications": rows, "epochs": epochs, "labels": labels})


def batch(rows: list[dict[str, Any]], epochs: Any = None, labels: Any = (), name: str = "b-1", **how: Any) -> bytes:
    return packed.pack(packed.BATCH, packed.write_rows(packed.Contents(rows, epochs or {}, labels, name)), **how)


def same(one: Taken, other: Taken) -> bool:
    return (one.rows, one.runs, one.labels, one.refusals, one.batch) == (
        other.rows,
        other.runs,
        other.labels,
        other.refusals,
        other.batch,
    )


def test_a_packed_batch_is_taken_as_its_envelope_in_json_would_be() -> None:
    epochs = {f"m{n}": 7 for n in range(3)} | {"m9": 7}
    found = intake().take(KIT, batch(ROWS, epochs, LABELS), 0.0)
    expected = intake().take(KIT, envelope(ROWS, epochs, LABELS, "b-1"), 0.0)
    assert found.rows == ROWS
    assert len(found.labels) == 2
    assert same(found, expected)


@pytest.mark.parametrize(
    ("rows", "epochs", "labels"),
    [
        ([{"id": "m0:1:1", "n": 1.0}, {"id": "other", "n": 2.0}, {"id": "m0:1:2", "lat": "x"}], {}, []),
        ([{"id": "m0:1:1", "source": "m1", "n": None}, {"n": True, "time": "2026-11-18T12:00:00Z"}], {}, []),
        ([{"id": "m0:1:1", "n": 1.0}], {}, [[5, DIGEST, {}], [0, "x", {}], 7, [0, DIGEST, LABELS[0][2]]]),
        ([{"id": "m0:1:1", "n": 1.0}], {"m0": -1}, []),
    ],
)
def test_what_json_would_have_refused_is_refused_with_the_same_words(rows: Any, epochs: Any, labels: Any) -> None:
    found = intake().take(KIT, batch(rows, epochs, labels), 0.0)
    expected = intake().take(KIT, envelope(rows, epochs, labels, "b-1"), 0.0)
    assert found.refusals
    assert same(found, expected)


def test_who_goes_by_batches_is_told_no_numbers() -> None:
    assert intake().take(KIT, batch(ROWS), 0.0).stored() == {}
    assert intake().take(KIT, envelope(ROWS, {}, [], "b-1"), 0.0).stored() == {
        "m0": (9, 39),
        "m1": (9, 37),
        "m2": (9, 38),
    }


def test_what_refers_to_an_earlier_batch_is_read_if_that_is_kept_and_must_come_again_if_not() -> None:
    first, taking = packed.write_rows(packed.Contents(ROWS[:1], name="b-1")), intake()
    later = batch(ROWS[1:2], name="b-2", earlier=first)
    found = taking.take(KIT, later, 0.0)
    assert (found.busy or "").startswith("dictionary:")
    assert (found.rows, found.refusals) == ([], [])
    taking.take(KIT, batch(ROWS[:1]), 0.0)
    assert taking.take(KIT, later, 0.0).busy, "it was not asked to keep it"
    taking.take(KIT, batch(ROWS[:1], keep=True), 0.0)
    assert taking.take(Sender("default", "other"), later, 0.0).busy, "it is another client's"
    assert taking.take(KIT, later, 0.0).rows == ROWS[1:2]


def test_of_each_client_the_last_few_are_kept_and_of_all_clients_what_there_is_room_for() -> None:
    each = [bytes([number]) * 100 for number in range(MAX_EACH + 1)]
    kept = Kept(max_bytes=(100 + ENTRY_BYTES) * MAX_EACH)
    for data in each:
        kept.keep("a", data)
    assert [kept.find("a", packed.digest(data)) for data in each] == [None, *each[1:]]
    kept.keep("b", each[0])
    assert kept.find("b", packed.digest(each[0])) == each[0]
    assert (kept.find("a", packed.digest(each[-1])), kept.dropped, len(kept)) == (None, 1, 1)
    assert kept.bytes == 100 + ENTRY_BYTES


def test_a_packed_text_is_no_publication() -> None:
    with pytest.raises(PayloadError, match="packed text"):
        read_payload(packed.pack(packed.TEXT, b'{"a":1}'), 0.0)


def test_a_bomb_is_refused_as_a_payload() -> None:
    head = b"\xf1\x01\xff\xff\xff\xff\x0f"
    taken = intake().take(KIT, head + bytes(1000), 0.0)
    assert [(each.row, each.kind) for each in taken.refusals] == [(None, "payload")]
    assert "4194304 are the most" in taken.refusals[0].reason


SMALL = batch(ROWS[:4], {"m0": 1}, LABELS[:1])


@given(st.data())
def test_a_damaged_batch_is_taken_or_refused(data: st.DataObject) -> None:
    at = data.draw(st.integers(1, len(SMALL) - 1))
    what = data.draw(st.binary(min_size=1, max_size=4))
    for damaged in (SMALL[:at], SMALL[:at] + what + SMALL[at + len(what) :], b"\xf1\x01" + what):
        taken = intake().take(KIT, damaged, 0.0)
        assert taken.rows or taken.refusals or taken.busy


@given(st.binary(max_size=60))
def test_any_contents_are_taken_or_refused(data: bytes) -> None:
    """Unpacked they are anything."""
    taken = intake().take(KIT, packed.pack(packed.BATCH, data), 0.0)
    assert [each.kind for each in taken.refusals] == ["payload"] or not taken.refusals


def test_the_most_that_a_batch_may_hold_takes_no_longer_than_as_json() -> None:
    """As much as for the same in JSON, in hundreds of times its bytes."""
    rows = [{"id": f"m0:1:{number}", "source": "m0", "n": 1.0} for number in range(MAX_ROWS)]
    payload, text = batch(rows), envelope(rows, {}, [], "b-1")
    assert len(payload) < len(text) / 500
    taking = intake(rate=10**6, payload=4 * 1024**2)
    seconds = []
    for each in (payload, text):
        started = time.process_time()
        assert len(taking.take(KIT, each, 0.0).rows) == MAX_ROWS
        seconds.append(time.process_time() - started)
    assert seconds[0] < 10 * seconds[1]
