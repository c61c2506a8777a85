"""What a subscriber gets: one JSON object, without what is null, the same for the same notification."""

from __future__ import annotations

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud.note_payload import MAX_ALSO, encode_digest, encode_notes
from spinney_cloud.notes import Note, Notes, notification_id


def message(*notes: Note, publications: tuple[dict[str, Any], ...] = ({"id": "m7:1:1", "NO2": 57},)) -> Notes:
    return Notes("default", 17, 1731900000.25, 0, True, publications, notes)


def match(sid: str = "air", owner: str = "ana", row: int | None = 0) -> Note:
    return Note(owner, sid, "match", None, row, "m7:1:1")


def payloads(notes: Notes) -> list[dict[str, Any]]:
    return [orjson.loads(told.payload) for told in encode_notes(notes)]


def test_a_match_carries_its_publication_and_nothing_that_is_null() -> None:
    notes = message(match())
    assert payloads(notes) == [
        {
            "id": notification_id("default", notes.notes[0]),
            "sid": "air",
            "why": "match",
            "time": 1731900000.25,
            "publication": {"id": "m7:1:1", "NO2": 57},
        }
    ]


def test_an_exit_and_a_top_say_since_rank_scope_and_reason() -> None:
    leave = Note("ana", "hot", "exit", "kitchen", None, "m7:1:1", since=1.5, reason="lost")
    top = Note("ana", "best", "top", True, 0, "m7:1:1", rank=3)
    left, best = payloads(message(leave, top))
    assert {name: left[name] for name in ("why", "scope", "since", "reason")} == {
        "why": "exit",
        "scope": "kitchen",
        "since": 1.5,
        "reason": "lost",
    }
    assert "publication" not in left
    assert (best["rank"], best["scope"]) == (3, True)


def test_scopes_that_are_equal_in_python_but_not_here_stay_apart() -> None:
    notes = [Note("ana", f"s{at}", "enter", scope, 0, "m7:1:1") for at, scope in enumerate((1.0, True, 0.0, False))]
    assert [one["scope"] for one in payloads(message(*notes))] == [1.0, True, 0.0, False]
    assert [type(one["scope"]) for one in payloads(message(*notes))] == [float, bool, float, bool]


def test_also_names_the_same_owners_other_subscriptions_of_the_same_publication() -> None:
    rows = ({"id": "m7:1:1"}, {"id": "m7:1:2"})
    told = payloads(
        message(
            match("air"),
            match("roads"),
            match("air", "bob"),
            match("parks", row=1),
            match("lost", row=None),
            publications=rows,
        )
    )
    assert [one.get("also") for one in told] == [["roads"], ["air"], None, None, None]


def test_also_is_bounded_and_counts_what_it_leaves_out() -> None:
    told = payloads(message(*(match(f"s{at}") for at in range(MAX_ALSO + 11))))
    for one in (told[0], told[-1]):
        assert len(one["also"]) == MAX_ALSO
        assert one["sid"] not in one["also"]
        assert one["also_more"] == 10
    exact = payloads(message(*(match(f"s{at}") for at in range(MAX_ALSO + 1))))
    assert len(exact[0]["also"]) == MAX_ALSO
    assert "also_more" not in exact[0]


def test_only_the_wanted_are_encoded_and_still_name_the_others() -> None:
    (told,) = encode_notes(message(match("air"), match("roads")), [1])
    assert (told.number, told.sid) == (1, "roads")
    assert orjson.loads(told.payload)["also"] == ["air"]


def test_a_digest_is_valid_json_of_valid_json() -> None:
    told = [told.payload for told in encode_notes(message(match("air"), match("air", row=None)))]
    digest = orjson.loads(encode_digest("air", told, 2))
    assert digest == {"sid": "air", "digest": [orjson.loads(one) for one in told], "dropped": 2}


VALUES = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)


@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=5), VALUES)
def test_whatever_a_publication_holds_comes_out_as_it_was(publication: dict[str, Any], scope: Any) -> None:
    (told,) = payloads(message(Note("ana", "air", "match", scope, 0, "x"), publications=(publication,)))
    assert told["publication"] == publication
    assert told.get("scope") == scope
