"""Both ends of `act`: the cloud's coordinator at a real nats-server, and what a mobile broker makes of it."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from coordinator_kit import Kit, until
from deciding_kit import NOW
from servers import NatsServer

from spinney import PublicationId
from spinney_cloud import broker_sender
from spinney_mobile.activations import AT_ONCE, Activations
from spinney_mobile.active import ActiveFilter
from spinney_mobile.deciding import Decider
from spinney_mobile.leases import Lease, Leases
from spinney_mobile.outbox import Outbox

COUNT = 30
PART_BYTES = 1_024
HOT = "WHEN NO2 > 40 UNTIL NO2 < 30 FOR room <> 'x{0}'"
"""Wanted COUNT times."""


class Broker:
    """What a mobile broker does with activations, and no more."""

    def __init__(self, folder: Path) -> None:
        self.outbox = Outbox(folder)
        self.outbox.open()
        self.decider = Decider("b1")
        self.leases = Leases("b1")
        self.changes: list[tuple[list[str], list[str]]] = []
        self.activations = Activations(self.leases, self.outbox, self._changed)
        self.activations.start({})
        self._taken = 0
        self._sequence = 0

    def _changed(
        self, added: list[ActiveFilter], dropped: list[str], leases: Mapping[str, Lease], more: bool = False
    ) -> None:
        del more
        self.changes.append(([one.digest for one in added], dropped))
        self.decider.change(added, dropped, leases)

    def hear(self, kit: Kit, *, but: int | None = None) -> None:
        """All that the cloud has said since; `but` one of the messages is lost on the way."""
        told = kit.heard("b1", "act")
        for number, message in enumerate(told[self._taken :]):
            if number != but:
                self.activations.receive(json.dumps(message).encode())
        self._taken = len(told)

    def labels(self, value: float) -> int:
        """How many state filters tell a reading."""
        self._sequence += 1
        id = PublicationId("m1", 1, self._sequence)
        reading = {"id": str(id), "source": "m1", "time": NOW, "NO2": value, "room": "lab"}
        return len(self.decider.decide(id, reading, self.leases.epoch("m1"), {}).labels)


def announcement(session: str = "s1", **more: Any) -> dict[str, Any]:
    attributes = {"NO2": {"min": 0, "max": 400}, "room": {}}
    return {"session": session, "sources": [{"name": "m1", "attributes": attributes}], "lease": ["m1"], **more}


async def begun(kit: Kit, broker: Broker) -> int:
    """Everything is wanted, and told in parts; how many messages that took."""
    for number in range(COUNT):
        await kit.request("ana", "sub", HOT.format(number), f"s{number}")
    await until(lambda: len(kit.heard("ana", "reply")) == COUNT)
    await kit.announce("b1", announcement())
    await until(lambda: len(kit.active("b1")) == COUNT)
    count = len(kit.heard("b1", "act"))
    assert count > 3
    broker.hear(kit)
    assert len(broker.decider.filters) == COUNT
    return count


async def full_again(kit: Kit, before: int, have: int) -> None:
    await kit.announce("b1", announcement(have=have))
    await until(lambda: kit.heard("b1", "act")[before:] and "more" not in kit.heard("b1", "act")[-1])


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_sender, "MAX_ACT_BYTES", PART_BYTES)


def test_a_full_set_in_parts_leaves_bits_and_filters_that_stay_as_they_are(nats: NatsServer, tmp_path: Path) -> None:
    async def work() -> None:
        broker = Broker(tmp_path / "box")
        async with Kit(nats) as kit:
            before = await begun(kit, broker)
            told = [len(added) for added, _ in broker.changes if added]
            assert (len(told), sum(told)) == (math.ceil(COUNT / AT_ONCE), COUNT), "none before the last part was here"
            assert broker.labels(50.0) == COUNT
            assert broker.labels(51.0) == 0
            await full_again(kit, before, have=7)
            broker.hear(kit)
            assert broker.changes[-1] == ([], [])
            assert broker.labels(52.0) == 0, "bits are known as before"
            assert broker.labels(20.0) == COUNT
        broker.outbox.close()

    asyncio.run(work())


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_part_that_is_lost_has_the_whole_set_sent_again(nats: NatsServer, tmp_path: Path, lost: int) -> None:
    async def work() -> None:
        broker = Broker(tmp_path / "box")
        async with Kit(nats) as kit:
            before = await begun(kit, broker)
            assert broker.labels(50.0) == COUNT
            await full_again(kit, before, have=7)
            await kit.request("ana", "sub", "", "s0")
            await until(lambda: len(kit.active("b1")) == COUNT - 1)
            broker.hear(kit, but=lost)
            assert len(broker.decider.filters) == COUNT, "nothing was taken"
            have = broker.activations.have
            assert have is not None
            assert have != kit.heard("b1", "act")[-1]["epoch"], "the next announcement shows it"
            before = len(kit.heard("b1", "act"))
            await full_again(kit, before, have)
            broker.hear(kit)
            assert set(broker.decider.filters) == set(kit.active("b1"))
            assert len(broker.decider.filters) == COUNT - 1
            assert not broker.activations.is_lost
            assert broker.labels(20.0) == COUNT - 1, "no bit was forgotten"
        broker.outbox.close()

    asyncio.run(work())
