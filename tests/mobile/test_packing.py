"""The form in which batches go up, from a broker's outbox to the gateway's intake: negotiated, referred to, refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinney import Label, Mark, packed
from spinney_cloud.intake import Intake, Sender, Taken
from spinney_cloud.numbering import Numbers
from spinney_cloud.replies import FORMATS
from spinney_cloud.settings import Limits
from spinney_cloud.source_owners import SourceOwners
from spinney_mobile import batches as module
from spinney_mobile.batches import Batches
from spinney_mobile.leases import Leases
from spinney_mobile.lone import SURE_SECONDS
from spinney_mobile.outbox import Outbox, OutRecord
from spinney_mobile.packing import MAX_FORGOTTEN, unpacked

KIT = Sender("default", "b1")
DIGEST = "0123456789abcdef"
LIMITS = {"max_payload": 1 << 20}


class Pair:
    """An outbox with its batches, a clock, and the intake of a cloud that says which formats it reads."""

    def __init__(self, folder: Path, formats: Any = FORMATS) -> None:
        self.outbox = Outbox(folder)
        self.outbox.open()
        self.batches = Batches(self.outbox, Leases("b1"), "p")
        self.now = 100.0
        self.outbox.on_append = lambda entries: [self.batches.appended(entry, self.now) for entry in entries]
        self.log: list[dict[str, Any]] = []
        self.labels: list[Any] = []
        self.sent: list[tuple[str, bytes, bool]] = []
        """Batch, payload, and whether it went at QoS 0."""
        self.formats = formats
        self.restart()
        self.batches.opened(self.now)
        self.tell(self.greeting())

    @property
    def packing(self) -> Any:
        return self.batches.packing

    def restart(self) -> None:
        """The cloud starts anew."""
        self.intake = Intake(Limits(), Numbers(1), SourceOwners())

    def greeting(self) -> dict[str, Any]:
        return LIMITS | ({} if self.formats is None else {"formats": list(self.formats)})

    def tell(self, reply: dict[str, Any]) -> None:
        _, refused = self.batches.told(json.loads(json.dumps(reply)), self.now)
        assert refused == []

    def add(self, *numbers: int, source: str = "m1", **more: Any) -> None:
        for number in numbers:
            self.outbox.append([OutRecord({"id": f"{source}:1:{number}", "source": source, "n": number, **more}, 7)])

    def go(self) -> list[bytes]:
        """All that goes out now."""
        found = []
        while (message := self.batches.next(self.now)) is not None:
            self.sent.append((*message, self.batches.lone.batch == message.batch))
            found.append(message.payload)
        return found

    def take(self, payload: bytes) -> Taken:
        """At the cloud, which answers."""
        taken = self.intake.take(KIT, payload, 0.0)
        if taken.busy is not None:
            self.tell({"busy": taken.busy, "batch": taken.batch})
            return taken
        if taken.refusals:
            self.tell({"refused": [{"row": row, "reason": reason} for row, _, reason, _ in taken.refusals]})
        if taken.rows or taken.labels:
            self.log += taken.rows
            self.labels += taken.labels
            self.tell({"stored": taken.stored(), "batch": taken.batch})
        return taken

    def round(self) -> list[bytes]:
        """All that goes out now is taken and answered."""
        found = self.go()
        for payload in found:
            self.take(payload)
        return found

    def numbers(self) -> list[int]:
        return [row["n"] for row in self.log]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    yield made
    made.outbox.close()


@pytest.mark.parametrize("formats", [None, [], ["packed-2"], "packed-1"])
def test_a_cloud_that_does_not_name_the_format_gets_json_at_qos_1(tmp_path: Path, formats: Any) -> None:
    """As one of before does, which says how much it takes and no more."""
    pair = Pair(tmp_path, formats)
    for number in range(3):
        pair.add(number)
        (payload,) = pair.round()
        assert json.loads(payload)["publications"][0]["n"] == number
    assert pair.packing.text(b'{"a":1}') == b'{"a":1}'
    assert [lone for *_, lone in pair.sent] == [False] * 3
    pair.outbox.close()


def test_until_the_cloud_names_the_format_on_this_link_it_is_json(pair: Pair) -> None:
    pair.add(1)
    assert packed.is_packed(pair.round()[0])
    pair.batches.opened(pair.now)
    pair.add(2)
    assert json.loads(pair.round()[0])["publications"][0]["n"] == 2
    pair.tell(pair.greeting())
    pair.add(3)
    assert packed.is_packed(pair.round()[0])
    assert pair.numbers() == [1, 2, 3]


def test_a_cloud_that_starts_anew_as_an_older_one_gets_json_and_nothing_is_lost(pair: Pair) -> None:
    """Its MQTT server holds what was packed, and it cannot read that."""
    pair.add(1)
    (payload,) = pair.go()
    pair.tell(LIMITS | {"refused": [{"row": None, "reason": "this is not JSON"}]})
    (again,) = pair.round()
    assert packed.is_packed(payload)
    assert json.loads(again)["publications"][0]["n"] == 1
    assert (pair.numbers(), pair.outbox.log.count) == ([1], 0)


def test_of_several_packed_messages_that_an_older_cloud_refuses_none_is_given_up(pair: Pair) -> None:
    pair.add(0)
    pair.round()
    pair.batches.window, pair.batches.max_rows = 16, 1
    pair.add(*range(1, 9))
    pair.now += 1.0
    assert len(pair.go()) == 8
    pair.formats = None
    for _ in range(8):
        pair.tell(LIMITS | {"refused": [{"row": None, "reason": "this is not JSON"}]})
        pair.round()
    assert pair.numbers() == list(range(9))
    assert (pair.outbox.log.count, pair.batches.busy, pair.batches.why) == (0, 0, None)


def test_a_packed_message_that_is_refused_as_a_whole_goes_again_as_json_before_anything_is_given_up(pair: Pair) -> None:
    pair.add(1, 2, 3)
    pair.go()
    pair.tell(pair.greeting() | {"refused": [{"row": None, "reason": "packed: it is cut"}]})
    assert pair.outbox.log.count == 3
    (again,) = pair.round()
    assert [row["n"] for row in json.loads(again)["publications"]] == [1, 2, 3]
    assert pair.outbox.log.count == 0


def test_what_readings_repeat_is_said_once(pair: Pair) -> None:
    sizes = []
    for number in range(4):
        pair.add(number, name="the kitchen of ana", cell="891e130d507ffff", time=1.7e9 + number)
        sizes += map(len, pair.round())
    assert max(sizes[1:]) < sizes[0] / 2
    assert pair.numbers() == [0, 1, 2, 3]


def test_a_cloud_that_keeps_nothing_any_longer_gets_all_again_in_order(pair: Pair) -> None:
    pair.add(1)
    pair.round()
    pair.restart()
    pair.add(2)
    (referring,) = pair.go()
    assert pair.take(referring).busy
    assert pair.batches.why is None, "nobody is busy, nothing waits"
    pair.add(3)
    pair.round()
    pair.round()
    assert (pair.numbers(), pair.outbox.log.count) == ([1, 2, 3], 0)
    pair.add(4)
    assert len(pair.round()[0]) < len(referring) + 10, "it is referred to again"


def test_clouds_that_never_keep_anything_are_asked_a_few_times(pair: Pair) -> None:
    """Several gateways, say, each of which hears another part."""
    pair.add(0)
    pair.round()
    for number in range(1, 20):
        pair.restart()
        pair.add(number)
        while pair.round():
            pass
    assert pair.numbers() == list(range(20))
    assert pair.packing.forgotten == MAX_FORGOTTEN


def test_a_lone_reading_goes_at_qos_0_and_nothing_else_until_it_is_stored(pair: Pair) -> None:
    pair.batches.window = 16
    pair.add(1)
    (lone,) = pair.go()
    pair.add(2)
    pair.now += 10 * module.LINGER_SECONDS
    assert pair.go() == []
    pair.take(lone)
    pair.round()
    assert [lone for *_, lone in pair.sent] == [True, False], "it came while another was under way"
    pair.now += 5.0
    pair.add(3)
    pair.round()
    assert pair.sent[-1][2]
    assert pair.numbers() == [1, 2, 3]


def test_a_lone_reading_that_is_lost_goes_again_at_qos_1_and_so_does_all_for_a_while(pair: Pair) -> None:
    pair.add(1)
    pair.go()
    pair.batches.acked("p-1", pair.now)
    pair.now += module.RESEND_SECONDS
    assert pair.batches.overdue(pair.now)
    pair.add(2)
    pair.round()
    pair.now += 1.0
    assert pair.go() == [], "as the loop does after an answer"
    pair.add(3)
    pair.round()
    assert [lone for *_, lone in pair.sent] == [True, False, False]
    pair.now += SURE_SECONDS
    pair.add(4)
    pair.round()
    assert pair.sent[-1][2]
    assert pair.numbers() == [1, 2, 3, 4]


def test_what_waited_before_a_link_goes_at_qos_1(pair: Pair) -> None:
    pair.add(1)
    pair.batches.opened(pair.now)
    pair.tell(pair.greeting())
    pair.round()
    assert [lone for *_, lone in pair.sent] == [False]


def test_nothing_is_due_while_a_lone_reading_is_under_way_but_its_answer(pair: Pair) -> None:
    """Else the loop would turn without end."""
    pair.add(1)
    pair.go()
    pair.batches.acked("p-1", pair.now)
    pair.add(2)
    assert pair.batches.due(pair.now) == pair.now + module.RESEND_SECONDS


def test_a_backlog_goes_in_larger_batches_than_as_json(pair: Pair) -> None:
    pair.batches.window = 1
    pair.add(*range(5_000), room="kitchen", time=1.7e9)
    (packed_batch,) = pair.round()
    count = len(pair.log)
    assert len(packed_batch) < 20_000
    pair.batches.opened(pair.now)
    (text,) = pair.round()
    assert count > 1.8 * (len(pair.log) - count)
    assert len(packed_batch) < len(text) / 8


def test_labels_and_leases_go_along(pair: Pair) -> None:
    label = Label(Mark("m1", (7, 1, 1), True), (Mark("m1", (7, 1, 1), True),))
    pair.outbox.append([OutRecord({"id": "m1:1:1", "source": "m1", "n": 1}, 7, {DIGEST: label})])
    pair.outbox.append([OutRecord(None, 7, {DIGEST: label})])
    pair.round()
    assert [(one.row, one.filter, one.label) for one in pair.labels] == [(0, DIGEST, label), (None, DIGEST, label)]


def test_an_activation_is_unpacked_and_json_stays_as_it_is() -> None:
    text = b'{"epoch":1,"full":true,"add":[],"drop":[]}'
    assert unpacked(packed.pack(packed.TEXT, text)) == text == unpacked(text)
    with pytest.raises(packed.PackedError):
        unpacked(b"\xf2\x01\xff\xff\xff\xff\x0fx")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["add", "add", "go", "answer", "lose", "link", "restart", "wait", "older"]), max_size=40)
)
def test_whatever_is_lost_in_between_each_reading_is_stored_and_each_source_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """Answers and messages at QoS 0 are lost, clouds start anew, also as older ones; QoS 1 comes again, in order."""
    pair = Pair(tmp_path_factory.mktemp("pair"))
    under_way: list[bytes] = []
    count = 0
    for step in [*steps, "link", "greet", "wait", *["go", "answer"] * 4]:
        match step:
            case "add":
                pair.add(count)
                count += 1
            case "go":
                under_way += pair.go()
            case "answer":
                for payload in under_way:
                    pair.take(payload)
                under_way.clear()
            case "lose":
                under_way = [payload for _, payload, lone in pair.sent if payload in under_way and not lone]
            case "link":
                pair.batches.opened(pair.now)
            case "greet" | "restart":
                pair.restart()
                pair.tell(pair.greeting())
            case "wait":
                for name, *_ in pair.sent:
                    pair.batches.acked(name, pair.now)
                pair.now += 200.0
                pair.batches.overdue(pair.now)
            case "older":
                pair.tell(LIMITS)
    firsts = list(dict.fromkeys(pair.numbers()))
    pair.outbox.close()
    assert firsts == list(range(count))
    assert pair.outbox.log.count == 0
