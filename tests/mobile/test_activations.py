"""Activations: epochs without a gap, or the full set; what is kept on disk is what goes on offline."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from spinney_mobile import activations
from spinney_mobile.activations import AT_ONCE, Activations
from spinney_mobile.active import ActiveFilter
from spinney_mobile.leases import Lease, Leases
from spinney_mobile.outbox import Outbox


class Broker:
    """What has the activations, and can be started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.outbox = Outbox(folder)
        self.outbox.open()
        self.start()

    def start(self) -> None:
        self.calls: list[tuple[list[str], list[str]]] = []
        self.active: dict[str, str] = {}
        self.leases = Leases("b1")
        self.activations = Activations(self.leases, self.outbox, self._changed)
        self.activations.start(self.outbox.state())

    def again(self) -> None:
        self.outbox.close()
        self.outbox = Outbox(self.folder)
        self.outbox.open()
        self.start()

    def _changed(self, added: list[ActiveFilter], dropped: list[str], _: Mapping[str, Lease], more: bool) -> None:
        self.more = more
        self.calls.append(([one.digest for one in added], dropped))
        self.active |= {one.digest: one.text for one in added}
        for digest in dropped:
            del self.active[digest]

    def hear(
        self,
        epoch: int,
        *,
        full: bool = False,
        drop: tuple[str, ...] = (),
        leases: Any = None,
        more: bool = False,
        **add: str,
    ) -> bool:
        message: dict[str, Any] = {"epoch": epoch, "full": full, "add": list(map(item, add, add.values()))}
        message["drop"] = list(drop)
        message |= {"more": True} if more else {}
        return self.activations.receive(
            json.dumps(message if leases is None else message | {"leases": leases}).encode()
        )


def item(digest: str, text: str) -> dict[str, Any]:
    return {"filter": digest, "kind": "content", "subscription": {"filter": text}}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.outbox.close()


def test_changes_follow_one_another_and_survive_a_restart(broker: Broker) -> None:
    assert broker.activations.have is None
    assert broker.hear(100, full=True, a="NO2 > 40", b="NO2 > 50")
    assert broker.hear(101, c="temp > 1", drop=("a",))
    assert broker.calls == [([], []), (["a", "b"], []), (["c"], ["a"])]
    broker.again()
    assert broker.active == {"b": "NO2 > 50", "c": "temp > 1"}
    assert broker.calls == [(["b", "c"], [])]
    assert broker.activations.have == 101
    assert broker.hear(102, drop=("b", "c"))
    broker.again()
    assert broker.active == {}
    assert broker.activations.have == 102
    assert not any(key.startswith("act:filter:") for key in broker.outbox.state())


def test_a_filter_that_changes_under_its_digest_takes_the_others_place(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    broker.hear(101, a="NO2 > 30")
    assert broker.active == {"a": "NO2 > 30"}
    broker.again()
    assert broker.active == {"a": "NO2 > 30"}


def test_a_gap_is_noticed_nothing_is_taken_and_the_full_set_heals_it(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    assert not broker.hear(102, b="temp > 1")
    assert broker.activations.is_lost
    assert not broker.hear(103, c="temp > 2")
    assert (broker.active, broker.activations.have, broker.activations.gaps) == ({"a": "NO2 > 40"}, 100, 1)
    assert broker.hear(104, full=True, b="temp > 1", c="temp > 2")
    assert not broker.activations.is_lost
    assert broker.active == {"b": "temp > 1", "c": "temp > 2"}
    assert broker.calls[-1] == (["b", "c"], ["a"])  # told as added, then dropped


def test_a_full_set_in_parts_is_taken_when_the_last_is_here(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40", c="NO2 > 60", z="temp > 1")
    assert not broker.hear(101, full=True, more=True, a="NO2 > 40")
    assert not broker.hear(102, more=True, b="NO2 > 50")
    assert sorted(broker.active) == ["a", "c", "z"], "what was active goes on"
    assert broker.activations.have == 102, "so that the cloud does not begin anew"
    assert broker.hear(103, c="NO2 > 60", leases=[{"source": "m1", "owner": "b1", "epoch": 3}])
    assert broker.calls[-1] == (["b"], ["z"]), "what stays is not dropped in between"
    assert broker.leases.epoch("m1") == 3
    broker.again()
    assert sorted(broker.active) == ["a", "b", "c"]
    assert broker.activations.have == 103


def test_a_change_in_parts_is_one_change(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    assert not broker.hear(101, more=True, b="NO2 > 50")
    assert broker.hear(102, c="NO2 > 60", drop=("a",))
    assert broker.calls[-1] == (["b", "c"], ["a"])


def test_a_lost_part_is_a_gap_and_nothing_of_the_others_is_taken(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    broker.hear(101, full=True, more=True, b="NO2 > 50")
    assert not broker.hear(103, d="NO2 > 70")
    assert broker.activations.is_lost
    assert broker.activations.have == 100
    assert not broker.hear(102, c="NO2 > 60"), "nor does it help when it comes late"
    assert broker.active == {"a": "NO2 > 40"}
    broker.hear(104, full=True, more=True, b="NO2 > 50")
    assert broker.activations.is_lost, "until all is here"
    broker.hear(105, c="NO2 > 60")
    assert not broker.activations.is_lost
    assert sorted(broker.active) == ["b", "c"]


def test_a_restart_between_two_parts_loses_the_count(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    broker.hear(101, full=True, more=True, b="NO2 > 50")
    broker.again()
    assert broker.active == {"a": "NO2 > 40"}
    assert not broker.hear(102, c="NO2 > 60")
    assert broker.activations.is_lost


def test_a_full_set_that_begins_anew_takes_the_place_of_one_that_was_cut_off(broker: Broker) -> None:
    """As by a coordinator that was killed between two parts: it counts from what it has stored, and things change."""
    broker.hear(100, full=True, a="NO2 > 40")
    broker.hear(101, full=True, more=True, b="NO2 > 50")
    assert not broker.hear(101, full=True, more=True, c="NO2 > 60")
    assert broker.hear(102, d="NO2 > 70")
    assert sorted(broker.active) == ["c", "d"]
    assert broker.hear(102, full=True, e="NO2 > 80"), "the same number, and not what came before"
    assert sorted(broker.active) == ["e"]
    broker.again()
    assert not broker.hear(102, full=True, e="NO2 > 80")


def test_more_filters_than_there_is_room_for_are_left_out_and_said(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinney_mobile.activations.MAX_FILTERS", 3)
    monkeypatch.setattr("spinney_mobile.active.MAX_FILTERS", 3)
    broker.hear(100, full=True, more=True, a="NO2 > 1", b="NO2 > 2")
    broker.hear(101, more=True, c="NO2 > 3", d="NO2 > 4", e="NO2 > 5")
    assert broker.hear(102, f="NO2 > 6")
    assert sorted(broker.active) == ["a", "b", "c"]
    assert broker.activations.unreadable == 1


def full_set(epoch: int, texts: Mapping[str, str]) -> bytes:
    return json.dumps({"epoch": epoch, "full": True, "add": [item(*one) for one in texts.items()], "drop": []}).encode()


def test_many_filters_are_taken_some_at_a_time_and_others_have_their_turn(broker: Broker) -> None:
    """As adverts, pages and the watchdog need it."""
    old = {f"old{n}": f"NO2 > {n}" for n in range(100)}
    new = {f"new{n}": f"NO2 > {n}.5" for n in range(100)}

    async def taken(payload: bytes) -> int:
        taking, turns = asyncio.create_task(broker.activations.take(payload)), 0
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        assert taking.result()
        return turns

    assert asyncio.run(taken(full_set(100, old))) > 2 * 100 / AT_ONCE - 2
    assert asyncio.run(taken(full_set(101, new))) > 3 * 100 / AT_ONCE - 3
    assert all(max(map(len, call)) <= AT_ONCE for call in broker.calls)
    assert not broker.more
    assert broker.active == new
    broker.again()
    assert broker.active == new


def test_while_many_are_taken_what_was_active_stays_so_and_on_disk(broker: Broker) -> None:
    old = {f"old{n}": f"NO2 > {n}" for n in range(50)}
    new = {f"new{n}": f"NO2 > {n}.5" for n in range(50)}
    broker.activations.receive(full_set(100, old))
    before = broker.outbox.state()

    async def taken() -> None:
        taking = asyncio.create_task(broker.activations.take(full_set(101, new)))
        while not new.keys() & broker.active.keys():
            await asyncio.sleep(0)
        assert broker.more
        assert old.keys() < broker.active.keys(), "nothing goes before all that is new is here"
        assert broker.activations.have == 101, "so that the cloud does not send it again"
        assert broker.outbox.state() == before
        taking.cancel()  # as if it were killed now
        await asyncio.gather(taking, return_exceptions=True)

    asyncio.run(taken())
    broker.again()
    assert broker.active == old
    assert broker.activations.have == 100


@pytest.mark.parametrize("full", [True, False])
def test_beyond_the_limit_filters_are_left_out(broker: Broker, monkeypatch: pytest.MonkeyPatch, full: bool) -> None:
    monkeypatch.setattr(activations, "MAX_FILTERS", 3)
    broker.hear(100, full=True, a="NO2 > 1", b="NO2 > 2")
    broker.hear(101, full=full, a="NO2 > 1", c="NO2 > 3", d="NO2 > 4", e="NO2 > 5")
    assert sorted(broker.active) == (["a", "c", "d"] if full else ["a", "b", "c"])
    assert broker.activations.unreadable == 1
    broker.again()
    assert len(broker.active) == 3


def test_what_comes_again_is_not_taken_again(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    broker.hear(101, drop=("a",), b="NO2 > 50")
    assert not broker.hear(100, full=True, a="NO2 > 40")
    assert not broker.hear(101, drop=("a",), b="NO2 > 50")
    assert broker.active == {"b": "NO2 > 50"}
    assert (broker.activations.repeated, broker.activations.is_lost) == (2, False)
    broker.again()
    assert not broker.hear(101, drop=("a",), b="NO2 > 50")


def test_without_any_activation_a_change_alone_is_a_gap(broker: Broker) -> None:
    assert not broker.hear(100, a="NO2 > 40")
    assert broker.activations.is_lost


def test_a_cloud_that_counts_from_elsewhere_is_believed_with_a_full_set(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    assert broker.hear(7, full=True, b="NO2 > 50")
    assert broker.hear(8, c="NO2 > 60")
    assert sorted(broker.active) == ["b", "c"]


def test_a_filter_of_a_newer_cloud_is_left_out_and_the_others_work(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40", b="NO2 BLOOMS")
    assert broker.active == {"a": "NO2 > 40"}
    assert broker.activations.unreadable == 1
    broker.again()
    assert broker.active == {"a": "NO2 > 40"}


def test_filters_come_as_text_and_as_json_of_old(broker: Broker) -> None:
    add = [{"filter": "a", "kind": "content", "subscription": {"text": "NO2 > 40"}}, item("b", "NO2 > 50")]
    assert broker.activations.receive(json.dumps({"epoch": 100, "full": True, "add": add, "drop": []}).encode())
    broker.again()
    assert broker.active == {"a": "NO2 > 40", "b": "NO2 > 50"}


def test_nonsense_changes_nothing(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40", leases=[{"source": "m1", "owner": "b1", "epoch": 3}])
    for payload in (
        b"",
        b"\xff",
        b"[]",
        b"7",
        b'{"epoch": 101}',
        b'{"epoch": "x", "full": true, "add": [], "drop": []}',
    ):
        assert not broker.activations.receive(payload)
    assert not broker.activations.receive(b'{"epoch": 101, "full": false, "add": [], "drop": [], "leases": 7}')
    assert broker.hear(101, leases=[{"nonsense": 1}])
    assert broker.active == {"a": "NO2 > 40"}
    assert broker.leases.epoch("m1") == 3
    assert broker.activations.unreadable == 8


def test_what_is_damaged_on_disk_counts_as_none(broker: Broker) -> None:
    broker.hear(100, full=True, a="NO2 > 40")
    broker.outbox.keep({"act:filter:b": b"{"})
    broker.again()
    assert broker.activations.have is None
    assert broker.active == {}
    assert broker.hear(200, full=True, c="NO2 > 60")
    broker.again()
    assert broker.active == {"c": "NO2 > 60"}


def test_leases_survive_a_restart(broker: Broker) -> None:
    leases = [{"source": "m1", "owner": "b1", "epoch": 3}, {"source": "m2", "owner": "b2", "epoch": 4}]
    broker.leases.want(["m1", "m2", "m3"])
    broker.hear(100, full=True, leases=leases)
    broker.again()
    assert (broker.leases.epoch("m1"), broker.leases.owns("m1")) == (3, True)
    assert (broker.leases.epoch("m2"), broker.leases.owns("m2")) == (0, False)
    assert broker.leases.owns("m3")  # of which the cloud has said nothing


def test_a_source_that_is_nobodys_any_more_is_ours_to_connect_and_under_no_epoch(broker: Broker) -> None:
    broker.leases.want(["m1"])
    broker.hear(100, full=True, leases=[{"source": "m1", "owner": "b2", "epoch": 3}])
    assert not broker.leases.owns("m1")
    broker.hear(101, leases=[{"source": "m1", "owner": None, "epoch": None}])
    assert broker.leases.owns("m1")
    assert broker.leases.epoch("m1") == 0
    broker.hear(102, leases=[])
    assert broker.leases.owns("m1")
