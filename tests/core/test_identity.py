"""Which reading is which, which is a duplicate, and which is late (rules I1 to I3)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney.errors import PublicationError, SnapshotError
from spinney.identity import LARGEST_NUMBER, Duplicates, Lateness, PublicationId, content_digest

NUMBERS = st.integers(0, LARGEST_NUMBER)


@given(st.builds(PublicationId, st.text(min_size=1), NUMBERS, NUMBERS))
def test_an_id_is_read_back_from_its_text_i1(publication_id: PublicationId) -> None:
    assert PublicationId.parse(str(publication_id)) == publication_id


def test_colons_in_the_name_of_a_source_do_no_harm() -> None:
    assert PublicationId.parse("urn:dev:7:1:2") == PublicationId("urn:dev:7", 1, 2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "mote",
        "mote:1",
        ":1:2",
        "mote:-1:2",
        "mote:01:2",
        "mote:1:2 ",
        "mote:1:²",
        f"mote:1:{2**53}",
        "m:1:" + "9" * 99999,
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(PublicationError, match=r"^id: "):
        PublicationId.parse(text)


def test_ids_of_a_source_are_ordered_by_boot_then_sequence_i3() -> None:
    ids = [PublicationId("m", 2, 1), PublicationId("m", 1, 9), PublicationId("m", 1, 10)]
    assert sorted(ids) == [ids[1], ids[2], ids[0]]


LOGS = st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, 4.0]), st.integers(0, 5), st.booleans()), max_size=40)


@given(LOGS, st.integers(0, 40))
def test_a_duplicate_occurs_earlier_within_the_window_whatever_the_snapshots_i2(log: list[Any], cut: int) -> None:
    duplicates, time = Duplicates(3.0, content_seconds=1.5), 0.0
    seen: list[tuple[float, tuple[int, bool]]] = []
    for n, (delay, which, is_numbered) in enumerate(log):
        time += delay
        if n == cut:
            duplicates = Duplicates.restore(json.loads(json.dumps(duplicates.snapshot())))
        if is_numbered:
            repeated = duplicates.repeats(PublicationId("m", 1, which), time)
        else:
            repeated = duplicates.repeats_content("m", {"x": which}, time)
        window = 3.0 if is_numbered else 1.5
        assert repeated == any(one == (which, is_numbered) and time - at <= window for at, one in seen)
        seen.append((time, (which, is_numbered)))
    assert duplicates.forgotten == 0


def test_equal_content_has_one_digest_and_other_content_another_i2() -> None:
    assert content_digest("m", {"x": 1, "y": None}) == content_digest("m", {"x": 1.0})
    assert content_digest("m", {"a": 1, "b": 2}) == content_digest("m", {"b": 2, "a": 1})
    others = [("m", {"x": True}), ("m", {"x": "1"}), ("m", {"y": 1}), ("n", {"x": 1}), ("m", {})]
    assert len({content_digest(*one) for one in [("m", {"x": 1}), *others]}) == 6


def test_readings_beyond_the_bound_are_forgotten_oldest_first_and_counted() -> None:
    duplicates = Duplicates(100.0, limit=2)
    told = [duplicates.repeats(PublicationId("m", 1, n), 0.0) for n in (1, 2, 1, 3, 2, 1)]
    assert told == [False, False, True, False, False, False]
    assert duplicates.forgotten == 3
    assert duplicates.duplicates == 1


@given(
    st.lists(st.tuples(st.sampled_from("pq"), st.integers(1, 2), st.integers(0, 4)), max_size=30), st.integers(0, 30)
)
def test_a_reading_older_than_the_newest_examined_of_its_source_is_late(log: list[Any], cut: int) -> None:
    lateness, examined = Lateness(), []
    for n, one in enumerate(log):
        if n == cut:
            lateness = Lateness.restore(json.loads(json.dumps(lateness.snapshot())))
        late = any(earlier[0] == one[0] and earlier[1:] > one[1:] for earlier in examined)
        assert lateness.examine(PublicationId(*one)) == late
        examined.append(one)
    assert lateness.late <= len(log)


def test_the_source_unheard_for_longest_is_forgotten_beyond_the_bound_and_counted() -> None:
    lateness = Lateness(limit=2)
    for source in ("p", "q", "p", "r"):
        lateness.examine(PublicationId(source, 1, 5))
    assert lateness.forgotten == 1
    assert [lateness.examine(PublicationId(source, 1, 4)) for source in ("p", "q")] == [True, False]
    assert lateness.late == 1


@pytest.mark.parametrize("kind", [Duplicates, Lateness])
def test_a_snapshot_of_something_else_is_refused(kind: Any) -> None:
    with pytest.raises(SnapshotError, match="expected a snapshot of"):
        kind.restore({"format": "top-k", "version": 1})
