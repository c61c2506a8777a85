"""`spinney bench energy`: its targets in a short run, that they can be missed, and the baseline's own firmware."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from spinney_tools import clone
from spinney_tools.bench.mote import energy
from spinney_tools.bench.mote.energy import BASELINE_DAY, BASELINE_NAME, Found, Row
from spinney_tools.bench.mote.scene import HOT, Seen, Way, plus
from spinney_tools.sim.battery import Consumption, Ledger
from spinney_tools.sim.sniffer import ENCRYPTED, OPEN, PRESENCE, Traffic

SLEEPY = {"deep_sleep": True}
HOURS = 1.5


@pytest.fixture(scope="module")
def found() -> Found:
    """The rows that the targets are about."""
    ways = {
        "open, no filters": Way(SLEEPY, hours=HOURS),
        "encrypted, filters": Way({**SLEEPY, "advert_mode": "encrypted"}, HOT, has_key=True, hours=HOURS),
        "presence, filters": Way(SLEEPY, HOT, hours=HOURS, changes=4),
    }
    rows = [energy.simulated(name, way, motes=1) for name, way in ways.items()]
    return Found((Row(BASELINE_NAME, BASELINE_DAY), *rows))


def test_presence_with_filters_reaches_the_targets(found: Found) -> None:
    assert found.missed() == []
    low, high = found.sensitivity(BASELINE_NAME)
    assert low[0] < found.times(BASELINE_NAME) < high[0]
    assert low[1] == "half radio_ma"
    thirstier = replace(found, use=replace(found.use, radio_ma=found.use.radio_ma / 2))
    assert thirstier.times(BASELINE_NAME) == pytest.approx(low[0])


def test_what_filters_hold_back_is_not_on_the_air(found: Found) -> None:
    everything, encrypted, presence = (row.day for row in found.rows[1:])
    assert everything.traffic.readings[OPEN] == pytest.approx(everything.samples, rel=0.02)
    assert encrypted.traffic.readings[ENCRYPTED] == pytest.approx(encrypted.samples, rel=0.02)
    assert encrypted.traffic.readings[OPEN] == 0
    assert sum(presence.traffic.readings.values()) == 0
    in_clear, _encrypted, fetched, unsent = found.rows[-1].transmitted
    assert (in_clear, fetched + unsent) == (0, presence.samples)
    assert 12 <= fetched < 50
    assert found.rows[1].transmitted[3] == pytest.approx(0, abs=everything.samples * 0.02)
    assert presence.traffic.kinds[PRESENCE] == presence.traffic.adverts > 0
    assert presence.traffic.connections >= 12
    assert presence.traffic.advert_bytes == 31 * presence.traffic.adverts


def test_the_table_says_that_it_is_modelled_and_where_the_figures_are_from(found: Found) -> None:
    text = energy.table(found).markdown()
    assert text.startswith("*Modelled*")
    flat = text.replace("\n", " ")
    assert "No board was measured" in flat
    assert f"{found.times(BASELINE_NAME):.2f} times the baseline's" in flat
    assert text.count("\n| presence, filters") == 1


def test_a_slow_or_thirsty_mote_misses_the_targets(found: Found) -> None:
    thirsty = found.rows[-1]
    seen = thirsty.seen
    assert seen is not None
    late = replace(seen, told_s=[5.1], changed_s=[1.0, 400.0], heard_s=[[0.0, 500.0]])
    waking = replace(thirsty, day=plus(thirsty.day, Ledger(radio_s=2000.0)))
    assert len(Found((*found.rows[:-1], replace(thirsty, seen=late))).missed()) == 3
    assert len(Found((*found.rows[:-1], waking)).missed()) == 2
    nothing = replace(seen, told_s=[], changed_s=[])
    assert len(Found((*found.rows[:-1], replace(thirsty, seen=nothing))).missed()) == 2


def test_ledgers_and_their_traffic_are_added() -> None:
    one = Ledger(starts=2, traffic=Traffic(adverts=3))
    one.traffic.readings[OPEN] = 4
    added = plus(plus(Ledger(radio_s=1.0), one), one, -0.5)
    assert (added.radio_s, added.starts, added.traffic.adverts) == (1.0, 1.0, 1.5)
    assert added.traffic.readings[OPEN] == 2
    assert one.traffic.readings[OPEN] == 4


def test_from_a_random_moment_the_next_advert_is_awaited() -> None:
    waits = Seen(1.0, heard_s=[[0.0, 10.0, 20.0]]).found_s(500)
    assert 9.5 < max(waits) <= 10.0
    assert sum(waits) / len(waits) == pytest.approx(5.0, abs=0.5)


def _firmware_of_before(folder: Path) -> Path:
    """The baseline's, where this clone has it."""
    if shutil.which("git") is None:
        pytest.skip("no git is installed")
    command = ["git", "-C", str(clone.root()), "archive", "d11244e", "firmware"]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode:
        pytest.skip("this clone does not have commit d11244e")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "firmware"


def test_the_baseline_is_what_its_own_firmware_does(tmp_path: Path) -> None:
    firmware = _firmware_of_before(tmp_path)
    day = energy.simulated("", replace(energy.BASELINE_WAY, hours=HOURS), firmware=firmware, motes=1).day
    use = Consumption()
    for name, charge in use.shares(BASELINE_DAY).items():
        assert use.shares(day)[name] == pytest.approx(charge, rel=0.05), name
    assert day.traffic.adverts == pytest.approx(BASELINE_DAY.traffic.adverts, rel=0.02)
    assert day.traffic.readings[OPEN] == pytest.approx(BASELINE_DAY.samples, rel=0.02)
