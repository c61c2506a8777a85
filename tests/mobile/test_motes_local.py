"""Subscriptions of one's own, over what motes measure: filters on motes let through what they need, too."""

from __future__ import annotations

from pathlib import Path

from motes_kit import HOT, US, living, programs, until
from radio_kit import Scene, on_air

from spinney_mobile.local import LocalPort
from spinney_mobile.motes.mote import UNWANTED_SECONDS


def whys(port: LocalPort) -> list[str]:
    return [note["why"] for note in reversed(port.subscriptions.recent)]


def test_a_mote_lets_through_what_a_subscription_of_ones_own_needs_and_no_more(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with living(tmp_path / "data") as (broker, port):
            port.configured(US, {"hot": HOT})
            await until(lambda: programs(scene), 120)
            for temperature, told in ((30.0, ["enter"]), (24.0, ["enter"]), (20.0, ["enter", "exit"])):
                scene.readings["temperature"] = temperature
                await until(lambda expected=told: whys(port) == expected, 120)
            assert broker.status().counts["weak_hits"] == 0
            scene.readings["temperature"] = 24.0
            sampled = scene.life.samples
            await until(lambda: scene.life.samples > sampled + 5)
            before = broker.status().counts["sampled"]
            await until(lambda: scene.life.samples > sampled + 25)
            assert broker.status().counts["sampled"] == before, "of what is neither hot nor cold it says nothing"

    (tmp_path / "mote").mkdir()
    on_air(tmp_path / "mote", play)


def test_once_the_subscription_ends_the_mote_is_left_in_peace(tmp_path: Path) -> None:
    async def play(scene: Scene) -> None:
        async with living(tmp_path / "data") as (_, port):
            port.configured(US, {"hot": HOT})
            await until(lambda: programs(scene), 120)
        async with living(tmp_path / "data") as (broker, port):
            assert len(broker.wanted()) == 1, "it outlives a restart"
            port.configured(US, {})
            await until(lambda: not programs(scene), 2 * UNWANTED_SECONDS)

    (tmp_path / "mote").mkdir()
    on_air(tmp_path / "mote", play)
