"""`spinney bench mote`: its counts, that broken filters miss them, and where its temperatures come from."""

from __future__ import annotations

import gzip
import itertools
import lzma
import random
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spinney.mote.protocol import Event
from spinney_tools.bench import mote_setting, temperature
from spinney_tools.bench.mote import table31
from spinney_tools.bench.mote.lab import FILE as LAB_FILE
from spinney_tools.bench.mote.lab import SOURCE_FILES, lab
from spinney_tools.bench.mote.methods import EVERYTHING, INTERVAL, STATE, STATE_WITH_HYSTERESIS, Delta, methods
from spinney_tools.bench.mote.playing import Outcome, Stretch, play
from spinney_tools.bench.table import number
from spinney_tools.bench.temperature import STEP_S, SeriesError

NOWHERE = Path("no/such/folder")
HALF_HOURS = table31.HALF_HOURS
COLD, WARM = 5.0, 15.0


def measured(stretches: int) -> table31.Measurement:
    return table31.measure(NOWHERE, lambda _text: None, stretches=stretches, processes=1)


def like_the_thesis(begins: int = 10) -> tuple[float, ...]:
    """Warm once, for as long as the thesis' count of events tells."""
    ends = begins + table31.WARM_HALF_HOURS
    return tuple(WARM if begins <= place < ends else COLD for place in range(HALF_HOURS + 1))


def played(name: str, stretch: Stretch, **how: Any) -> Outcome:
    where = mote_setting.setting(1)
    return play(methods(0.5)[name](where), where, stretch, **how)


# ---- the setting of Table 3.1


@pytest.fixture(scope="module")
def small() -> table31.Measurement:
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(temperature, "_MADE_DAYS", 300)
        changed.setattr(table31, "DELTAS", (0.4, 0.5))
        return measured(2)


def test_the_setting_is_that_of_the_thesis() -> None:
    where = mote_setting.setting(1)
    asked = [len(where.asked(mote)) for mote in where.motes]
    assert (len(where.motes), len({mote.region for mote in where.motes})) == (35, 16)
    assert sum(count > 0 for count in asked) == 11
    assert sum(asked) == 27
    thresholds = {one.threshold for one in where.every()}
    assert len(thresholds) == 10
    assert max(abs(threshold - 10) for threshold in thresholds) < 0.1


def test_on_a_stretch_like_the_thesis_each_of_its_counts_comes_out() -> None:
    assert table31.is_like_the_thesis(like_the_thesis())
    state = played(STATE, Stretch((like_the_thesis(),)))
    assert {name: getattr(state, name) for name in table31.CHOSEN} == table31.CHOSEN
    assert round(1 - state.covered / 6600, 4) == 0.9967
    assert (state.missed, max(state.delays_s) <= 180) == (0, True)
    interval = played(INTERVAL, Stretch((like_the_thesis(),)))
    assert interval.delivered == 621
    assert interval.suppressed == 0
    assert interval.shared == interval.told_shared


def test_region_scopes_suppress_what_leaves_a_region_warm() -> None:
    """Two of a region's three motes get warm, one after the other; the third never does."""
    where = mote_setting.setting(1)
    region = "r1"
    inside = [mote.number for mote in where.motes if mote.region == region]
    sensors = [[COLD] * (HALF_HOURS + 1) for _ in where.motes]
    sensors[inside[0]][5:20] = [WARM] * 15
    sensors[inside[1]][10:30] = [WARM] * 20
    asked = len(where.subscribers[region])
    state = played(STATE, Stretch(tuple(map(tuple, sensors))))
    assert (state.covered, state.told, state.suppressed, state.delivered) == (4, 2, 2, 2 * asked)
    assert state.missed == 0


def test_hysteresis_holds_back_what_noise_makes() -> None:
    edge = Stretch((tuple(9.9 if place < 30 else 10.1 for place in range(HALF_HOURS + 1)),), noise_celsius=0.2, seed=3)
    plain, with_hysteresis = played(STATE, edge), played(STATE_WITH_HYSTERESIS, edge)
    assert plain.covered > 5 * with_hysteresis.covered > 0
    assert plain.delivered > with_hysteresis.delivered


@pytest.mark.parametrize("name", methods(0.5))
def test_samples_that_read_the_same_may_be_handed_over_together(name: str) -> None:
    chance = random.Random(5)
    stretch = Stretch((tuple(round(10 + chance.gauss(0, 0.4), 1) for _ in range(HALF_HOURS + 1)),))
    assert played(name, stretch) == played(name, stretch, in_runs=False)


def test_averages_are_the_headline_and_reach_their_targets(small: table31.Measurement) -> None:
    assert small.results[0].case == table31.ALL
    state, interval = small.of(table31.ALL, STATE), small.of(table31.ALL, INTERVAL)
    everything = small.of(table31.ALL, EVERYTHING)
    assert state is not None
    assert interval is not None
    assert everything is not None
    assert everything.sent.mean == 21_000
    assert everything.ratio.mean == 0
    assert state.missed == 0
    assert state.longest_s <= 180
    assert state.sent.low <= state.sent.mean <= state.sent.high
    assert everything.sent.mean > interval.sent.mean > state.sent.mean


def test_a_case_of_which_no_stretch_is_there_misses_the_target(small: table31.Measurement) -> None:
    without = replace(small, results=tuple(one for one in small.results if one.case != table31.CHOSEN_CASE))
    assert any("no stretch is like" in text for text in without.missed())


@pytest.mark.soak
def test_state_filters_reach_their_targets_on_average_of_the_years() -> None:
    assert table31.measure(NOWHERE, lambda _text: None).missed() == []


def test_esphomes_delta_gets_the_setting_that_misses_nothing_and_sends_least() -> None:
    """Steps of 0.4 degrees: with 0.4 each is told, with 0.5 some are not."""
    where = mote_setting.setting(1)
    slow = tuple(9.0 + 0.4 * abs(place % 12 - 6) for place in range(HALF_HOURS + 1))
    assert table31.best_delta(table31.Case("steps", where, [Stretch((slow,))], ())) == 0.4
    sent = {delta: play(Delta(where, delta), where, Stretch((slow,))) for delta in (0.4, 0.5)}
    assert (sent[0.4].missed, max(sent[0.4].delays_s) <= 180) == (0, True)
    assert sent[0.5].missed or max(sent[0.5].delays_s) > 180


def test_the_same_seed_gives_the_same_figures_and_another_seed_others() -> None:
    assert mote_setting.setting(1) == mote_setting.setting(1) != mote_setting.setting(2)
    assert temperature.series(NOWHERE, 1) != temperature.series(NOWHERE, 2)
    noisy = Stretch((like_the_thesis(),), noise_celsius=2.0, seed=1)
    assert played(STATE, noisy) == played(STATE, noisy)
    assert played(STATE, noisy) != played(STATE, replace(noisy, seed=2))


def test_two_processes_find_what_one_does(small: table31.Measurement, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table31, "CHUNK", 1)
    monkeypatch.setattr(table31, "DELTAS", (0.4,))
    monkeypatch.setattr(temperature, "_MADE_DAYS", 60)
    monkeypatch.setattr(table31, "NOISE_CELSIUS", 0.0)
    monkeypatch.setattr(table31, "_FEW", (STATE,))
    one, two = (table31.measure(NOWHERE, lambda _text: None, stretches=2, processes=count) for count in (1, 2))
    assert one == two != small


def test_the_table_says_what_it_is_and_how_the_chosen_were_chosen(small: table31.Measurement) -> None:
    text = table31.table(small).markdown()
    assert text.startswith("*Simulated* from ")
    assert "invented half-hourly readings" in text.replace("\n", " ")
    assert f"the {small.like_the_thesis} of {small.every:,} stretches" in text.replace("\n", " ")
    for value in ("0.9966", "0.9672", "216", "620"):
        assert value in text
    assert text.count("the thesis' own |") == 2
    assert text.index(f"| {table31.ALL} |".replace("| ", "", 1)) < text.index("the thesis' own |")


def test_the_picture_has_the_words_of_the_run_that_it_shows(small: table31.Measurement) -> None:
    path, text = table31.picture(small)
    found = small.of(table31.ALL, STATE)
    assert found is not None
    assert path == Path("tools/pictures/forest.svg")
    assert f">{number(found.sent.mean)}<" in text
    assert f">{number(found.delivered.mean)}<" in text
    assert "means of 2 stretches of thirty hours, invented weather" in text
    changed = replace(found, missed=3.0, sent=replace(found.sent, mean=77.0))
    others = tuple(
        replace(one, summary=changed) if (one.case, one.filter) == (table31.ALL, STATE) else one
        for one in small.results
    )
    _path, other = table31.picture(replace(small, results=others, is_invented=False))
    assert ">77<" in other
    assert "3 changes missed" in other
    assert "Cambridge's weather" in other


BROKEN = {
    "never": lambda _code, _at, _end, _values, _present: 0,
    "always": lambda _code, _at, _end, _values, _present: 1,
    "in parts": lambda _code, at, _end, values, _present: (at + values[0]) % 2,
}


@pytest.mark.parametrize("machine", BROKEN.values(), ids=BROKEN.keys())
def test_broken_filters_miss_the_counts(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = replace(mote_setting.firmware(), run=machine)
    monkeypatch.setattr(mote_setting, "firmware", lambda: library)
    state = played(STATE, Stretch((like_the_thesis(),)))
    assert {name: getattr(state, name) for name in table31.CHOSEN} != table31.CHOSEN


def test_labels_that_come_a_sample_late_are_late(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = mote_setting.Board.observe
    held: dict[mote_setting.Board, list[Event]] = {}

    def late(board: mote_setting.Board, time_s: int, celsius: float) -> list[Event]:
        before = held.get(board, [])
        held[board] = observe(board, time_s, celsius)
        return before

    monkeypatch.setattr(mote_setting.Board, "observe", late)
    state = played(STATE, Stretch((like_the_thesis(),)), in_runs=False)
    assert max(state.delays_s) > 180


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


def test_the_file_as_its_source_has_it_gives_the_same(tmp_path: Path) -> None:
    lines = half_hours(48 * 3, gap_at=-1)
    series_file(tmp_path, lines)
    compact = temperature.series(tmp_path, 1)
    (tmp_path / temperature.FILE).unlink()
    rows = [line.split(",") for line in lines]
    text = "".join(f"{when[:10]} {when[11:19]},2008,{float(celsius) * 10:.0f}\n" for when, celsius, _ in rows)
    (tmp_path / temperature.SOURCE_FILE).write_bytes(lzma.compress(f"ds,year,y\n{text}".encode()))
    assert temperature.series(tmp_path, 1) == compact
    assert not compact.is_invented
    assert temperature.series(NOWHERE, 1).is_invented


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


# ---- a building's


def test_a_building_has_the_readings_of_each_sensor_from_either_file(tmp_path: Path) -> None:
    rows = "".join(f"{step},{sensor},{20 + sensor + step / 10},40\n" for step in range(70) for sensor in (1, 2))
    (tmp_path / LAB_FILE).write_bytes(
        gzip.compress(f"step_30min,sensor_row,temperature_c,humidity_pct\n{rows}".encode())
    )
    compact = lab(tmp_path)
    (tmp_path / LAB_FILE).unlink()
    for name, steps in zip(SOURCE_FILES, (range(40), range(40, 70)), strict=True):
        lines = "".join(",".join(f"{20 + sensor + step / 10:.2E}" for step in steps) + "\n" for sensor in (1, 2))
        (tmp_path / name).write_text(lines, "utf-8")
    source = lab(tmp_path)
    assert compact is not None
    assert source is not None
    assert (len(compact.sensors), len(compact.sensors[0])) == (len(source.sensors), len(source.sensors[0])) == (2, 70)
    assert source.sensors[1] == pytest.approx(compact.sensors[1], abs=0.06)
    stretches = list(compact.stretches(60))
    assert [len(one) for one in stretches[0]] == [61, 61]
    assert [stretch[0][0] for stretch in stretches] == [21.0, 21.4, 21.8]
    assert lab(NOWHERE) is None


@pytest.mark.parametrize(
    ("lines", "words"), [("0,1,warm,40", ":2: .*warm"), ("1,1,20,40", ":2: .*next half hour"), ("", "not as many")]
)
def test_a_building_without_readings_is_refused_with_its_line(tmp_path: Path, lines: str, words: str) -> None:
    text = f"step_30min,sensor_row,temperature_c,humidity_pct\n{lines}\n"
    (tmp_path / LAB_FILE).write_bytes(gzip.compress(text.encode()))
    with pytest.raises(SeriesError, match=words):
        lab(tmp_path)
