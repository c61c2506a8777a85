"""Which records go in which message: latency first while idle, size while busy; what is refused, held or sent again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spinney import Label, Mark
from spinney_mobile import batches as module
from spinney_mobile.batches import Batches
from spinney_mobile.leases import Leases
from spinney_mobile.outbox import Outbox, OutRecord

DIGEST = "0123456789abcdef"


class Bench:
    """An outbox, its batches and a clock."""

    def __init__(self, folder: Path) -> None:
        self.outbox = Outbox(folder)
        self.outbox.open()
        self.leases = Leases("b1")
        self.now = 100.0
        self.batches = Batches(self.outbox, self.leases, "p")
        self.outbox.on_append = lambda entries: [self.batches.appended(entry, self.now) for entry in entries]

    def add(self, *numbers: int, source: str = "m1", epoch: int = 0, **labels: Label) -> None:
        for number in numbers:
            publication = {"id": f"{source}:1:{number}", "n": number}
            self.outbox.append([OutRecord(publication, epoch, labels)])

    def go(self, most: int = 100) -> list[tuple[str, dict[str, Any]]]:
        """All that goes out now."""
        self.batches.look(self.now)
        sent = []
        while len(sent) < most and (message := self.batches.next(self.now)) is not None:
            sent.append((message.batch, json.loads(message.payload)))
        return sent

    def rows(self) -> list[list[int]]:
        return [[row["n"] for row in envelope["publications"]] for _, envelope in self.go()]

    def stored(self, *batches: str) -> list[int]:
        stored, refused = self.batches.told({"stored": {}, "batch": list(batches)}, self.now)
        assert refused == []
        return [entry.id.sequence for entry in stored]

    def refused(self, batch: str | None, *items: tuple[int | None, str]) -> list[tuple[int, str]]:
        reply: dict[str, Any] = {"refused": [{"row": row, "reason": reason} for row, reason in items]}
        stored, refused = self.batches.told(reply if batch is None else reply | {"batch": batch}, self.now)
        assert stored == []
        return [(one.entry.id.sequence, one.reason) for one in refused]

    def left(self) -> list[int]:
        return [entry.id.sequence for entry in self.outbox.log.entries()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.outbox.close()


def told(*leases: tuple[str, str | None, int]) -> list[dict[str, Any]]:
    return [{"source": source, "owner": owner, "epoch": epoch or None} for source, owner, epoch in leases]


def mark(number: int, bit: bool, epoch: int, source: str = "m1") -> Label:
    return Label(Mark(source, (epoch, 1, number), bit))


def test_the_first_goes_at_once_and_what_comes_meanwhile_goes_together(bench: Bench) -> None:
    bench.add(1)
    assert bench.rows() == [[1]]
    bench.batches.window = 4
    bench.add(2, 3, 4)
    assert bench.rows() == []  # one is under way: they wait for company
    bench.stored("p-1")
    assert bench.rows() == [[2, 3, 4]]
    bench.add(5)
    assert bench.rows() == []
    bench.now += module.LINGER_SECONDS
    assert bench.rows() == [[5]]  # or for a little while
    bench.add(*range(6, 1_500))
    first, *_ = bench.rows()  # a full message goes
    assert len(first) > 300


def test_a_new_link_begins_with_one_batch_and_each_stored_allows_more(bench: Bench) -> None:
    bench.batches.window = 16
    bench.add(*range(20_000))
    bench.batches.opened(bench.now)
    counts = []
    while sent := [name for name, _ in bench.go()]:
        counts.append(len(sent))
        for name in sent:
            bench.stored(name)
    assert counts[:3] == [1, 2, 8]  # two stored in a row: doubled twice
    assert max(counts) == module.WINDOW
    assert bench.left() == []


def test_silent_labels_epochs_and_rows_are_in_the_envelope(bench: Bench) -> None:
    bench.leases.tell(told(("m1", "b1", 9), ("m2", "other", 4)))
    bench.add(1, epoch=9)
    bench.add(2, epoch=9, **{DIGEST: mark(2, True, 9)})
    bench.outbox.append([OutRecord(None, 3, {DIGEST: mark(7, False, 3, "m3")})])
    bench.add(5, source="m2", epoch=2)
    bench.batches.hurry = True
    ((batch, envelope),) = bench.go()
    assert batch == "p-1"
    assert [row["id"] for row in envelope["publications"]] == ["m1:1:1", "m1:1:2", "m2:1:5"]
    assert envelope["epochs"] == {"m1": 9, "m3": 3, "m2": 2}
    assert envelope["labels"] == [
        [1, DIGEST, mark(2, True, 9).to_json()],
        [None, DIGEST, mark(7, False, 3, "m3").to_json()],
    ]


def test_what_was_made_under_an_earlier_lease_of_ours_goes_up_under_the_one_of_now(bench: Bench) -> None:
    bench.leases.tell(told(("m1", "b1", 4)))
    bench.add(1, epoch=4, **{DIGEST: mark(1, True, 4)})
    bench.leases.tell(told(("m1", "b1", 9)))
    ((_, envelope),) = bench.go()
    assert envelope["epochs"] == {"m1": 9}
    assert envelope["labels"][0][2]["mark"][1] == 9


def test_but_a_label_from_before_somebody_else_had_the_source_stays_old(bench: Bench) -> None:
    bench.leases.tell(told(("m1", "b1", 4)))
    bench.add(1, epoch=4, **{DIGEST: mark(1, True, 4)})
    bench.leases.tell(told(("m1", "b2", 6)))
    bench.leases.tell(told(("m1", "b1", 9)))
    ((_, envelope),) = bench.go()
    assert envelope["epochs"] == {"m1": 9}  # else the cloud would refuse the reading
    assert envelope["labels"][0][2]["mark"][1] == 4


def test_a_refused_row_is_told_and_the_rest_is_stored(bench: Bench) -> None:
    bench.add(1, 2, 3)
    bench.batches.hurry = True
    bench.go()
    assert bench.refused("p-1", (1, "256 attributes")) == [(2, "256 attributes")]
    assert bench.stored("p-1") == [1, 3]
    assert bench.left() == []


def test_a_label_is_refused_by_its_own_number_not_its_row(bench: Bench) -> None:
    bench.add(1)
    bench.add(2, **{DIGEST: mark(2, True, 0)})
    bench.outbox.append([OutRecord(None, 0, {DIGEST: mark(7, False, 0, "m3")})])
    bench.batches.hurry = True
    bench.go()
    _, refused = bench.batches.told(
        {"refused": [{"row": 0, "reason": "label: nonsense"}, {"row": 1, "reason": "label: more"}], "batch": "p-1"}, 0.0
    )
    assert [(one.entry.id.sequence, one.digest, one.reason) for one in refused] == [
        (2, DIGEST, "nonsense"),
        (0, DIGEST, "more"),
    ]
    assert bench.stored("p-1") == [1, 2]  # the silent one, of which nothing was stored, has left with its refusal
    assert bench.left() == []


def test_a_message_that_is_refused_as_a_whole_is_halved_down_to_the_row_that_is_why(bench: Bench) -> None:
    bench.add(*range(1, 9))
    dead: list[tuple[int, str]] = []
    stored: list[int] = []
    for _ in range(40):
        for name, envelope in bench.go():
            rows = [row["n"] for row in envelope["publications"]]
            if 5 in rows:
                dead += bench.refused(name, (None, "size: too much"))
            else:
                stored += bench.stored(name)
        bench.now += module.LINGER_SECONDS
    assert dead == [(5, "size: too much")]
    assert stored == [1, 2, 3, 4, 6, 7, 8]


def test_messages_grow_again_after_they_were_halved(bench: Bench) -> None:
    bench.batches.max_rows = 10
    bench.add(*range(2_000))
    longest = 0
    while sent := bench.go():
        for name, envelope in sent:
            longest = max(longest, len(envelope["publications"]))
            bench.stored(name)
    assert longest > 50


def test_a_refusal_that_names_no_batch_is_traced_to_its_row(bench: Bench) -> None:
    """As for what breaks the gateway: it cannot say which message that was."""
    bench.batches.window = 4
    dead: list[int] = []
    stored: list[int] = []
    for first in range(0, 60, 3):
        bench.add(first, first + 1, first + 2)
    for _ in range(600):
        for name, envelope in bench.go():
            if 31 in [row["n"] for row in envelope["publications"]]:
                dead += [number for number, _ in bench.refused(None, (None, "broken"))]
            else:
                stored += bench.stored(name)
        bench.now += 1.0
    assert dead == [31]
    assert sorted(stored) == [number for number in range(60) if number != 31]
    assert bench.left() == []


def test_a_limit_that_comes_with_a_refusal_is_enough_to_go_on_at_once(bench: Bench) -> None:
    publication = {"id": "m1:1:1", "n": 1, "text": "x" * 8_000}
    bench.outbox.append([OutRecord(publication, 0, {})])
    ((_, envelope),) = bench.go()
    assert len(envelope["publications"]) == 1
    bench.add(2)
    reply = {"refused": [{"row": None, "reason": "a payload of 8100 bytes; the limit is 4096"}], "max_payload": 4096}
    stored, refused = bench.batches.told(reply, bench.now)
    assert (stored, [one.entry.id.sequence for one in refused]) == ([], [1])
    assert bench.rows() == [[2]], "without a pause"


def test_a_refusal_of_everything_loses_nothing_and_pauses_longer_and_longer(bench: Bench) -> None:
    """As when the user is not known to the cloud yet."""
    bench.add(1, 2, 3)
    times = []
    for _ in range(2_000):
        for _ in bench.go():
            times.append(bench.now)
            assert bench.refused(None, (None, "there is no user b1")) == []
        bench.now += 1.0
    assert bench.batches.why == "there is no user b1"
    assert len(times) < 40
    assert bench.left() == [1, 2, 3]
    stored: list[int] = []
    for _ in range(600):
        for name, _ in bench.go():
            stored += bench.stored(name)
        bench.now += 1.0
    assert sorted(stored) == [1, 2, 3]
    assert bench.batches.why is None


def test_a_busy_cloud_is_left_alone_for_a_while_and_gets_all_again(bench: Bench) -> None:
    bench.add(1)
    assert bench.rows() == [[1]]
    bench.add(2)
    bench.batches.told({"busy": "disk: too little space", "batch": "p-1"}, bench.now)
    assert bench.batches.why == "the cloud is busy: disk: too little space"
    bench.now += module.BUSY_SECONDS - 0.1
    assert bench.rows() == []
    assert bench.batches.due(bench.now) == pytest.approx(bench.now + 0.1)
    bench.now += 0.2
    assert bench.rows() == [[1, 2]]
    assert bench.stored("p-2") == [1, 2]
    assert bench.batches.why is None


NOT_OWNER = "lease: m1 is published by its owner alone, and that is b2"


def test_what_is_refused_for_its_lease_waits_for_word_of_it_and_goes_in_order(bench: Bench) -> None:
    bench.leases.tell(told(("m1", "b1", 4)))
    bench.add(1, epoch=4)
    bench.add(2, source="m2")
    bench.batches.hurry = True
    ((batch, _),) = bench.go()
    assert bench.refused(batch, (0, "lease: m1 is held under epoch 9, not 4")) == []
    assert bench.stored(batch) == [2]
    bench.add(3, epoch=4)
    assert bench.rows() == []  # all of the source waits, so that none overtakes
    bench.leases.tell(told(("m1", "b1", 9)))
    bench.batches.leases_told(["m1"], bench.now)
    ((batch, envelope),) = bench.go()
    assert ([row["n"] for row in envelope["publications"]], envelope["epochs"]) == ([1, 3], {"m1": 9})
    assert bench.stored(batch) == [1, 3]


def test_what_is_another_owners_is_tried_once_more_and_then_given_up(bench: Bench) -> None:
    bench.add(1)
    ((batch, _),) = bench.go()
    assert bench.refused(batch, (0, NOT_OWNER)) == []
    assert bench.batches.due(bench.now) == bench.now + module.HOLD_SECONDS
    bench.now += module.HOLD_SECONDS
    ((batch, _),) = bench.go()
    assert bench.refused(batch, (0, NOT_OWNER)) == [(1, NOT_OWNER)]
    assert bench.left() == []


def test_a_silent_label_waits_for_its_lease_like_a_reading(bench: Bench) -> None:
    bench.outbox.append([OutRecord(None, 4, {DIGEST: mark(1, True, 4)})])
    ((batch, _),) = bench.go()
    assert bench.refused(batch, (0, f"label: {NOT_OWNER}")) == []
    bench.leases.tell(told(("m1", "b1", 9)))
    bench.batches.leases_told(["m1"], bench.now)
    ((batch, envelope),) = bench.go()
    assert envelope["labels"][0][2]["mark"][1] == 9
    bench.stored(batch)
    assert bench.left() == []


def test_leases_that_change_have_what_is_under_way_sent_again_in_order(bench: Bench) -> None:
    bench.batches.window = 4
    bench.leases.tell(told(("m1", "b1", 4)))
    bench.batches.hurry = True
    bench.add(1, epoch=4)
    ((first, _),) = bench.go()
    bench.add(2, epoch=4)
    ((second, _),) = bench.go()
    bench.leases.tell(told(("m1", "b1", 9)))
    bench.batches.leases_told(["m1"], bench.now)
    ((third, envelope),) = bench.go()
    assert [row["n"] for row in envelope["publications"]] == [1, 2]
    # The late refusals of what went out under the old lease change nothing.
    for batch in (first, second):
        assert bench.refused(batch, (0, "lease: m1 is held under epoch 9, not 4")) == []
        assert bench.stored(batch) == []
    assert bench.stored(third) == [1, 2]


def test_what_fits_into_no_message_is_told_once_the_cloud_has_said_what_it_takes(bench: Bench) -> None:
    bench.outbox.append([OutRecord({"id": "m1:1:1", "text": "x" * 5_000}, 0)])
    bench.add(2)
    _, refused = bench.batches.told({"max_payload": 3_000}, bench.now)
    assert [one.entry.id.sequence for one in refused] == [1]
    assert "3000 bytes" in refused[0].reason
    bench.add(*range(3, 300))
    for _, envelope in bench.go():
        assert len(json.dumps(envelope)) <= 3_300  # json.dumps puts blanks in
    bench.batches.told({"max_payload": 5}, bench.now)
    assert bench.batches.max_payload == 3_000


def test_the_size_of_an_entry_is_never_below_what_it_adds_to_a_message(bench: Bench) -> None:
    source = "a source with ä long name"
    bench.leases.tell(told((source, "b1", 2**40)))
    marks = tuple(Mark(f"s{n}", (1, 1, n), True, "käfer") for n in range(30))
    bench.leases.tell(told((source, "b1", 2**40), *((f"s{n}", "b1", 2**40) for n in range(30))))
    for number in range(3):
        label = Label(Mark(source, (1, 1, number), True), marks)
        bench.add(number, source=source, epoch=1, **{DIGEST: label, DIGEST[::-1]: label})
    entries = list(bench.outbox.log.entries())
    payload = bench.batches.encode("p-1", entries)
    assert len(payload) <= sum(bench.batches.size(entry) + 1 for entry in entries) + 256
    assert json.loads(payload)["labels"][0][2]["membership"][0][1] == 2**40


def test_replies_that_make_no_sense_change_nothing(bench: Bench) -> None:
    bench.add(1, 2)
    bench.go()
    for reply in (
        {"stored": 7},
        {"stored": {"m1": [1, 9]}},
        {"stored": {}, "batch": {"a": 1}},
        {"stored": {}, "batch": [None, 3, "q-1"]},
        {"refused": {"row": 0}, "batch": "p-1"},
        {"refused": [7, {"row": 99, "reason": "x"}, {"row": "0"}, {"row": -1}], "batch": "p-1"},
        {"refused": [{"row": 5, "reason": "label: x"}], "batch": "p-1"},
        {"busy": 4},
        {"max_payload": "many"},
    ):
        assert bench.batches.told(reply, bench.now) == ([], [])
    assert bench.left() == [1, 2]
