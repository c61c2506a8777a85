"""What a broker has heard and does, as lines of text."""

from __future__ import annotations

from typing import Any

import pytest
from test_web_page import NOW, picture

from spinney_mobile import listing
from spinney_mobile.status import OutboxStatus, UplinkStatus

NO_CLOUD = UplinkStatus(False, None, "no cloud is set", None)
DEVICE = {
    "address": "AA", "name": "desk", "rssi": -61, "interval": 1.25, "decoder": "ruuvi", "source": "aa", "allowed": True,
    "place": None, "values": {"temperature": 21.5}, "error": None, "hints": [],
}  # fmt: skip


def lines(**more: Any) -> dict[str, str]:
    """Of the summary, by their first word."""
    found = listing.summary(picture(**more).to_json()).splitlines()
    return {line.partition(" ")[0]: line.partition(" ")[2].strip() for line in found}


def saved(**more: Any) -> str:
    return listing.saved(picture(**more).to_json())


def test_the_summary_says_what_has_become_of_the_readings_and_what_is_wrong() -> None:
    found = lines(outbox=OutboxStatus(3, 420, NOW - 5, 7, 1 << 26))
    assert found["cloud"] == "connected to mqtt://cloud:1883"
    assert found["outbox"] == "3 readings wait, 420 B, 7 were dropped"
    assert found["readings"] == "1,000 heard, 100 sent, 900 spared (90 kB)"
    assert found["private"] == "4 by night"
    assert found["problem"] == "decoder <x>: a bug"
    assert found["wanted"] == "1 active filters"
    assert found["serial"] == "failed, 0 heard: gone"
    assert "dropped" not in lines()["outbox"]


def test_where_all_is_sent_it_is_said_what_sending_what_is_wanted_would_save() -> None:
    counts = {"sent": 200, "unneeded": 150, "bytes_unneeded": 45_000, "spared": 3}
    told = "all 200 sent; nobody wanted 150 (75%) of them, 45 kB: --send wanted saves that"
    assert saved(send="all", counts=counts) == told
    assert saved(send="all", counts={}).startswith("all 0 sent; nobody wanted 0 of them")
    assert saved(counts=counts, uplink=NO_CLOUD) == "none sent"


def test_an_explanation_begins_with_the_filters_that_match() -> None:
    def one(text: str, matches: bool, here: str | None = None) -> dict[str, Any]:
        return {"kind": "content", "text": text, "matches": matches, "why": f"{matches}: {text}", "here": here}

    filters = [one("a > 9", False), one("a > 1", True, "the mote does not know a")]
    assert listing.explanation({"publication": {"a": 3.0}, "filters": filters}).splitlines() == [
        "a 3",
        "1 of 2 active filters want it.",
        "",
        "content  a > 1",
        "  True: a > 1",
        "  evaluated here, not on the mote: the mote does not know a",
        "",
        "content  a > 9",
        "  False: a > 9",
    ]


@pytest.mark.parametrize(
    ("more", "ends"),
    [
        ({}, ["aa", "temperature", "21.5"]),
        ({"allowed": False, "values": {}, "hints": ["Ruuvi?"]}, ["-", "Ruuvi?"]),
        ({"error": "its bindkey"}, ["aa", "its", "bindkey"]),
    ],
)
def test_each_device_has_a_row(more: dict[str, Any], ends: list[str]) -> None:
    row = listing.devices([{**DEVICE, **more}]).splitlines()[1]
    assert row.split() == ["AA", "desk", "-61", "dBm", "1.2", "s", "ruuvi", *ends]


def test_devices_come_with_the_strongest_signal_first() -> None:
    found = [{**DEVICE, "address": address, "rssi": rssi} for address, rssi in (("A", -90), ("B", None), ("C", -40))]
    assert [row[0] for row in listing.devices(found).splitlines()[1:]] == ["C", "A", "B"]
