"""What people see of a mote: its own name, the one that settings give it, and its place; however it was heard."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from motes_kit import ADDRESS, SOURCE, clock, living, until
from radio_kit import Scene, on_air

from spinney_mobile import listing, top
from spinney_mobile.broker import Broker
from spinney_mobile.outbox import Outbox
from spinney_mobile.settings import AcquireBle, AcquireMotes, Device, Place, Rule, Settings
from spinney_mobile.settings import Cloud as CloudSettings


@pytest.mark.parametrize("mode", ["active", "passive"])
def test_a_mote_is_shown_with_its_own_name_and_where_it_stands(tmp_path: Path, mode: str) -> None:
    (tmp_path / "mote").mkdir()
    settings = Settings(
        cloud=CloudSettings(url=None),
        acquire=(AcquireBle(adapter="hci0", mode=mode), AcquireMotes(adapter="hci0", addresses=("attic",))),
        device=(Device(address=ADDRESS, name="attic", lat=45.815, long=15.977),),
        place=Place(kind="fixed", lat=45.8, long=15.9),
        data=tmp_path,
    )

    async def play(_: Scene) -> None:
        outbox = Outbox(tmp_path / "outbox", settings.outbox)
        outbox.open()
        broker = Broker(settings, outbox, clock=clock)
        running = asyncio.create_task(broker.run())
        await until(lambda: any("temperature" in one.units for one in broker.status().sources))
        (source,) = broker.status().to_json()["sources"]
        assert (source["name"], source["called"], source["address"]) == ("attic", "hut", ADDRESS)
        assert (source["place"]["lat"], source["place"]["long"]) == (45.815, 15.977)
        (seen,) = [one.to_json() for one in broker.devices.seen()]
        assert (seen["name"], seen["source"], seen["place"]) == ("hut", "attic", (45.815, 15.977))
        assert seen["decoder"] == "spinney" or mode == "passive"
        status = broker.status().to_json()
        broker.stop()
        await running
        outbox.close()
        assert "hut" in listing.devices([seen])
        assert "attic at 45.815, 15.977" in listing.devices([seen])
        assert "place      45.8000, 15.9000" in listing.summary(status)
        assert "attic (hut)" in listing.summary(status)
        name, *_, values = top.source_row(source, status["now"])
        assert name == "attic (hut)"
        assert values.endswith("at 45.8150, 15.9770")
        assert "at 45.8000, 15.9000" in top.head(status)

    on_air(tmp_path / "mote", play)


UNKNOWN_PLACE = "temperature > 25 AND lat > 45"


@pytest.mark.parametrize("is_private", [False, True])
def test_which_filters_stay_here_and_why_is_shown(tmp_path: Path, is_private: bool) -> None:
    (tmp_path / "mote").mkdir()
    rules = (Rule(name="hot", when="temperature > 80"),) if is_private else ()

    async def play(_: Scene) -> None:
        async with living(tmp_path / "data", rule=rules) as (broker, port):
            port.configured("pi", {"here": UNKNOWN_PLACE, "there": "temperature > 30"})

            def of_mote() -> Mapping[str, Any]:
                return next((one.mote for one in broker.status().sources if one.mote is not None), {})

            await until(lambda: of_mote().get("filters"), 120)
            await until(lambda: of_mote()["here"], 120)
            (reason,) = of_mote()["here"]
            assert reason["count"] == (2 if is_private else 1)
            assert ("private rule" in reason["why"]) == is_private
            assert ("lat" in reason["why"]) != is_private
            assert of_mote()["sampling"]
            status = broker.status().to_json()
            assert f"  here: {UNKNOWN_PLACE}" in listing.summary(status)
            assert any(reason["why"] in line for line in top.motes(status))
            answer = {"publication": {"source": SOURCE}, "filters": explain_all(broker)}
            assert f"evaluated here, not on the mote: {reason['why']}" in listing.explanation(answer)

    on_air(tmp_path / "mote", play)


def explain_all(broker: Broker) -> list[dict[str, Any]]:
    """As if what local subscriptions need had been activated by a cloud."""
    broker.decider.change(list(broker.wanted().values()), [], {})
    return broker.explain({"source": SOURCE, "temperature": 20.0})
