"""`spinney bench mote`: its targets, that broken filters miss them, and where its series and its costs come from."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from radio_kit import Scene, linked, on_air, program

from spinney.mote.protocol import Event
from spinney_tools.bench import mote_filtering, mote_setting, temperature
from spinney_tools.bench.mote_filtering import METHODS, Measurement
from spinney_tools.bench.temperature import STEP_S, SeriesError

NOWHERE = Path("no/such/folder")
THESIS = "as in Table 3.1"


def measured(stretches: int) -> Measurement:
    return mote_filtering.measure(NOWHERE, lambda _text: None, stretches=stretches)


def missed_of_the_thesis(found: Measurement) -> list[str]:
    """Of one stretch alone the average tells nothing."""
    return [text for text in found.missed() if text.startswith(THESIS)]


def rows(found: Measurement) -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["period"], row["filter"]): row for row in found.as_json()["rows"]}


# ---- the setting of Table 3.1


@pytest.fixture(scope="module")
def small() -> Measurement:
    return measured(2)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what the targets are about, on a few months."""
    few = {name: METHODS[name] for name in ("interval filter", "state filter")}
    monkeypatch.setattr(mote_filtering, "METHODS", few)
    monkeypatch.setattr(temperature, "_MADE_DAYS", 300)


def test_the_setting_is_that_of_the_thesis() -> None:
    where = mote_setting.setting(1)
    asked = [len(where.asked(mote)) for mote in where.motes]
    assert (len(where.motes), len({mote.region for mote in where.motes})) == (35, 16)
    assert sum(count > 0 for count in asked) == 11
    assert sum(asked) == 27
    thresholds = {one.threshold for region in where.subscribers.values() for one in region}
    assert len(thresholds) == 10
    assert max(abs(threshold - 10) for threshold in thresholds) < 0.1


def test_state_filters_reach_their_targets(small: Measurement) -> None:
    assert not missed_of_the_thesis(small)
    found = rows(small)
    state, average = found[THESIS, "state filter"], found["average of 2", "state filter"]
    assert (state["sent"], state["delivered"]) == (22, 20)
    assert state["ratio"] == 1 - 22 / 6600
    assert found[THESIS, "interval filter"]["delivered"] == 621
    assert max(state["longest_delay_s"], average["longest_delay_s"]) <= 180
    assert state["missed"] == average["missed"] == 0


@pytest.mark.soak
def test_state_filters_reach_their_targets_on_average_of_the_years() -> None:
    assert measured(mote_filtering.STRETCHES).missed() == []


def test_the_other_filters_send_more_or_tell_less(small: Measurement) -> None:
    found = {label: row for (period, label), row in rows(small).items() if period == THESIS}
    assert list(found) == list(METHODS)
    everything, content, interval, delta, state = found.values()
    assert everything["sent"] == 21_000
    assert everything["ratio"] == 0
    assert everything["sent"] > content["sent"] > interval["sent"] > state["sent"]
    assert everything["mah"] > content["mah"] > interval["mah"] > state["mah"] > 0
    assert content["delivered"] > interval["delivered"] >= 30 * state["delivered"]
    assert interval["longest_delay_s"] > 180 >= content["longest_delay_s"] == state["longest_delay_s"]
    assert everything["sent"] > delta["sent"] > state["sent"]


@pytest.mark.usefixtures("quick")
def test_the_same_seed_gives_the_same_figures_and_another_seed_others() -> None:
    found = measured(1)
    assert found.as_json() == measured(1).as_json()
    assert not missed_of_the_thesis(found)
    assert mote_setting.setting(1) == mote_setting.setting(1) != mote_setting.setting(2)
    assert temperature.series(NOWHERE, 1) != temperature.series(NOWHERE, 2)


def test_the_table_has_a_row_for_each_filter_and_period(small: Measurement) -> None:
    text = mote_filtering.table(small).markdown()
    assert text.count("as in Table 3.1 |") == text.count("average of 2 |") == len(METHODS)
    assert "0.9967" in text
    assert "ESP32-C3" in text


BROKEN = {
    "never": lambda _code, _at, _end, _values, _present: 0,
    "always": lambda _code, _at, _end, _values, _present: 1,
    "in parts": lambda _code, at, _end, values, _present: (at + values[0]) % 2,
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("machine", BROKEN.values(), ids=BROKEN.keys())
def test_broken_filters_miss_the_targets(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = replace(mote_setting.firmware(), run=machine)
    monkeypatch.setattr(mote_setting, "firmware", lambda: library)
    assert missed_of_the_thesis(measured(1))


@pytest.mark.usefixtures("quick")
def test_labels_that_come_a_sample_late_miss_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = mote_setting.Board.observe
    held: dict[mote_setting.Board, list[Event]] = {}

    def late(board: mote_setting.Board, time_s: int, celsius: float) -> list[Event]:
        before = held.get(board, [])
        held[board] = observe(board, time_s, celsius)
        return before

    monkeypatch.setattr(mote_setting.Board, "observe", late)
    assert any("late" in text for text in missed_of_the_thesis(measured(1)))


# ---- the series


def series_file(folder: Path, lines: list[str]) -> None:
    text = "\n".join(["ts_utc,temperature_c,humidity_pct", *lines])
    (folder / temperature.FILE).write_bytes(gzip.compress(text.encode()))


def half_hours(count: int, gap_at: int) -> list[str]:
    """From 2008-08-01 on, each with its number as temperature."""
    times = ((1 + at // 48, at % 48 // 2, 30 * (at % 2), at) for at in range(count) if at != gap_at)
    return [f"2008-08-{day:02}T{hour:02}:{minute:02}:00Z,{at / 10},90" for day, hour, minute, at in times]


def test_stretches_begin_at_midnight_and_have_no_gap(tmp_path: Path) -> None:
    series_file(tmp_path, half_hours(48 * 8, gap_at=48 * 3 + 10))
    found = list(temperature.series(tmp_path, 1).stretches(60))
    assert [stretch[0] * 10 for stretch in found] == [48 - 1, 48 * 4 - 1, 48 * 5 - 1, 48 * 6 - 1]
    assert all(len(stretch) == 61 for stretch in found)
    assert temperature.spread(found, 2) == [found[0], found[2]]


@pytest.mark.parametrize(
    ("lines", "words"),
    [(["2008-08-01T00:00:00Z,warm,90"], ":2: .*warm"), (["yesterday,10,90"], ":2: .*yesterday"), ([], "no rows")],
)
def test_a_file_without_temperatures_is_refused_with_its_line(tmp_path: Path, lines: list[str], words: str) -> None:
    series_file(tmp_path, lines)
    with pytest.raises(SeriesError, match=words):
        temperature.series(tmp_path, 1)


def test_a_file_that_is_no_gzip_is_refused(tmp_path: Path) -> None:
    (tmp_path / temperature.FILE).write_bytes(b"ts_utc")
    with pytest.raises(SeriesError, match="Not a gzipped file"):
        temperature.series(tmp_path, 1)


def test_the_series_that_is_made_up_has_cambridge_s_character() -> None:
    """Of 11 years: mean 10.1, deviation 6.5; from one half hour to the next 0.62, and the same as before in 38 %."""
    made = list(temperature.series(NOWHERE, 1).celsius.values())
    apart = [after - before for before, after in itertools.pairwise(made)]
    assert statistics.fmean(made) == pytest.approx(10.1, abs=0.5)
    assert statistics.pstdev(made) == pytest.approx(6.5, abs=0.7)
    assert statistics.pstdev(apart) == pytest.approx(0.6, abs=0.1)
    assert 0.25 < sum(step == 0 for step in apart) / len(apart) < 0.45
    warmest, coldest = (statistics.fmean(made[month * 1461 : (month + 1) * 1461]) for month in (0, 6))
    assert warmest - coldest > 8
    assert len(made) > 8 * 365 * 86_400 // STEP_S


# ---- the costs


def test_a_visit_costs_what_the_virtual_radio_says(tmp_path: Path) -> None:
    """At 30 ms from packet to packet, with one event and with more."""

    async def play(scene: Scene) -> list[tuple[float, int, int]]:
        async with linked() as mote:
            await mote.change_filters({7: program("temperature > 0", 7)})
        scene.air.interval_s = 0.03
        found = []
        following = 0
        for wait_s in (1.0, 1.0, 4.0):
            await asyncio.sleep(wait_s)
            before_s, before = asyncio.get_running_loop().time(), scene.mote.radio.sent_bytes
            async with linked() as mote:
                info = await mote.info()
                first = following = max(info.first_event, following)
                async for event in mote.events(first):
                    following = event.number + 1
                    if following >= info.next_event:
                        break
                await mote.ack(following - 1)
            passed_s = asyncio.get_running_loop().time() - before_s
            found.append((passed_s, scene.mote.radio.sent_bytes - before, following - first))
        return found

    visits = on_air(tmp_path, play)
    for passed_s, sent, events in visits:
        assert passed_s == pytest.approx(mote_filtering.VISIT_S, rel=0.15)
        expected = mote_filtering.VISIT_BYTES + events * mote_filtering.EVENT_BYTES
        assert sent == pytest.approx(expected, rel=0.15)
    assert visits[-1][2] > visits[0][2]
