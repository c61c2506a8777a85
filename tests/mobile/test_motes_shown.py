"""What people see of a mote: its own name, the one that settings give it, and its place; however it was heard."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from motes_kit import ADDRESS, clock, until
from radio_kit import Scene, on_air

from spinney_mobile import listing, top
from spinney_mobile.broker import Broker
from spinney_mobile.outbox import Outbox
from spinney_mobile.settings import AcquireBle, AcquireMotes, Device, Place, Settings
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
