"""Where this broker passes on all that is measured, a mote that it owns sends it every sample, and each one arrives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from motes_kit import HOT, US, living, until
from radio_kit import Scene, on_air

from spinney_mobile.listening import Taken
from spinney_mobile.settings import HomeAssistant


class Kept:
    """A Listener that keeps what is taken."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.wanted: list[bool] = []

    def taken(self, taken: Taken) -> None:
        self.numbers.append(taken.id.sequence)
        self.wanted.append(taken.wanted)


@pytest.mark.parametrize(
    "settings", [{"send": "all"}, {"home_assistant": HomeAssistant(url="mqtt://127.0.0.1:1")}], ids=["all", "home"]
)
def test_every_sample_of_a_mote_arrives_though_nobody_has_subscribed(tmp_path: Path, settings: dict[str, Any]) -> None:
    async def play(_: Scene) -> None:
        kept = Kept()
        async with living(tmp_path / "data", **settings) as (broker, _port):
            broker.taking.listeners.append(kept)
            await until(lambda: len(kept.numbers) >= 120, 1_000)
            first = kept.numbers[0]
            assert kept.numbers == list(range(first, first + len(kept.numbers)))
            assert not any(kept.wanted)
            assert broker.status().counts["weak_hits"] == 0

    (tmp_path / "mote").mkdir()
    on_air(tmp_path / "mote", play)


def test_beside_every_sample_a_mote_keeps_the_bits_of_state_filters(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        kept = Kept()
        async with living(tmp_path / "data", send="all") as (broker, port):
            broker.taking.listeners.append(kept)
            port.configured(US, {"warm": "temperature > 18", "hot": HOT})
            await until(lambda: len(kept.numbers) > 20, 300)
            scene.readings["temperature"] = 30.0
            await until(lambda: [one["why"] for one in port.subscriptions.recent if one["sid"] == "hot"] == ["enter"])
            (mote,) = [one.mote for one in broker.status().sources if one.mote is not None]
            assert {one["why"] for one in mote["here"]} == {"the mote sends every sample"}

    (tmp_path / "mote").mkdir()
    on_air(tmp_path / "mote", play)
