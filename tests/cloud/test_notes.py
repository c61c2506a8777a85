"""The notification log: what is written is read again, and an id is the same for the same notification only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney_cloud import notes
from spinney_cloud.notes import Note, Notes, NotesError

names = st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
floats = st.floats(0, 4e9)
scopes = st.one_of(st.none(), st.booleans(), texts, floats)
a_note = st.builds(
    Note,
    names,
    names,
    st.sampled_from(["match", "enter", "exit", "top"]),
    scopes,
    st.none() | st.integers(0, 5),
    texts,
    st.none() | floats,
    st.none() | st.integers(1, 99),
    st.none() | st.sampled_from(["lost", "forgotten"]),
)
rows = st.dictionaries(texts, st.one_of(texts, st.booleans(), floats), max_size=4)
messages = st.builds(
    Notes,
    names,
    st.integers(1, 2**53),
    floats,
    st.integers(0, 9),
    st.booleans(),
    st.lists(rows, max_size=3).map(tuple),
    st.lists(a_note, max_size=4).map(tuple),
)


@given(messages)
def test_what_is_written_is_read_again(message):
    assert notes.decode(notes.encode(message)) == message


@given(messages, st.data())
def test_damage_is_a_notes_error_and_nothing_else(message, data):
    written = notes.encode(message)
    cut = data.draw(st.integers(0, len(written)))
    for damaged in (written[:cut], written[:cut] + data.draw(st.binary(min_size=1, max_size=4)) + written[cut + 1 :]):
        try:
            notes.decode(damaged)
        except NotesError:
            continue


def test_a_newer_version_is_refused_by_name():
    newer = notes.encode(Notes("t", 1, 0.0, 0, True, (), ())).replace(b'"v":1', b'"v":7')
    with pytest.raises(NotesError, match="version 7"):
        notes.decode(newer)


@given(st.tuples(names, a_note), st.tuples(names, a_note))
def test_an_id_is_equal_for_the_same_notification_only(one, other):
    def told(tenant, note):
        return (tenant, note.owner, note.sid, note.publication_id, note.why, repr(note.scope))

    assert (notes.notification_id(*one) == notes.notification_id(*other)) == (told(*one) == told(*other))


def test_an_id_keeps_apart_what_differs_in_one_place():
    note = Note("ann", "s", "match", "a", 0, "a:1:2")
    others = [
        note._replace(owner="bob"),
        note._replace(sid="t"),
        note._replace(why="enter"),
        note._replace(scope="b"),
        note._replace(scope=None),
        note._replace(publication_id="a:1:3"),
    ]
    ids = {notes.notification_id("t", each) for each in [note, *others]} | {notes.notification_id("u", note)}
    assert len(ids) == 8
    assert notes.notification_id("t", note._replace(row=3, since=1.0)) == notes.notification_id("t", note)
