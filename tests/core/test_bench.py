"""`spinney bench`: what it measures, what it prints, and how it ends. The figures themselves are not tested."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spinney.forest import FilterList, Forest
from spinney_tools.bench import command, forest, json_door, machine, main, matching
from spinney_tools.bench.table import ReadmeError, Table, number, update_readme
from spinney_tools.workloads import programs, targets

TOP = Path(__file__).parents[2]
FIGURES: dict[str, Any] = {
    "us": 1.0,
    "scan_us": 50.0,
    "built_us": 0.5,
    "built_scan_us": 40.0,
    "build_s": 0.05,
    "bytes": 120.0,
    "insert_us": 2.0,
    "delete_us": 3.0,
    "matches_per_event": 384.46,
    "wrong_events": 0,
    "simd": "scalar",
}


# ---- tables


def test_a_table_is_aligned_markdown_below_the_machine() -> None:
    text = Table("x", "a machine", ("size", "us"), (("1,000", "0.5"), ("10", "12.25")), ("A note.",)).markdown()
    assert text.splitlines() == [
        "Measured on: a machine.",
        "A note.",
        "",
        "| size  |    us |",
        "| ----- | ----: |",
        "| 1,000 |   0.5 |",
        "| 10    | 12.25 |",
    ]


def test_a_table_that_is_not_measured_begins_with_how_it_came_about() -> None:
    text = Table("x", "a machine", ("us",), (), ("*Modelled*.",), measured=False).markdown()
    assert text.splitlines()[:2] == ["*Modelled*.", "Run on: a machine."]


def test_every_table_of_the_readme_says_first_how_its_figures_came_about() -> None:
    blocks = re.findall(r"<!-- bench:([\w-]+) -->\n(?!<!-- /bench)(.*)\n", (TOP / "README.md").read_text())
    assert len(blocks) > 10
    words = ("simulated", "modelled", "chosen", "measured")
    assert [name for name, first in blocks if not any(word in first.lower() for word in words)] == []


@pytest.mark.parametrize(
    ("value", "text"), [(0.12345, "0.123"), (9, "9"), (12.34, "12.3"), (384.46, "384"), (38628.0, "38,600"), (0, "0")]
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_a_table_replaces_only_its_own_place_in_the_readme(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(
        "before\n<!-- bench:x -->\nold\n<!-- /bench:x -->\nafter\n<!-- bench:y -->\nkept\n<!-- /bench:y -->\n"
    )
    new = Table("x", "m", ("a",), (("1",),))
    for _ in range(2):
        update_readme(readme, new)
    expected = f"before\n<!-- bench:x -->\n{new.markdown()}\n<!-- /bench:x -->\nafter\n"
    assert readme.read_text() == expected + "<!-- bench:y -->\nkept\n<!-- /bench:y -->\n"


def test_a_readme_without_a_place_is_an_error(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:x -->\n")
    with pytest.raises(ReadmeError, match="no place for this table"):
        update_readme(readme, Table("x", "m", ("a",), ()))
    assert readme.read_text() == "<!-- bench:x -->\n"


def test_the_machine_names_processor_and_versions() -> None:
    text = machine.describe("gcc 12")
    assert text.startswith(machine.cpu_model())
    assert text.endswith("gcc 12")


# ---- targets


def test_a_ratio_below_the_required_one_is_missed() -> None:
    measured = matching.Measurement("W1", 1_000, FIGURES)
    assert measured.ratio == 50
    assert measured.built_ratio == 80
    assert measured.missed() == []
    slow = matching.Measurement("W1", 1_000, {**FIGURES, "us": 10.0})
    assert slow.missed() == ["5 times instead of 9"]


@pytest.mark.parametrize(
    ("figure", "value", "missed"),
    [
        ("build_s", 0.2, "build 0.2 s over 0.1"),
        ("bytes", 201.0, "memory 201 bytes over 200"),
        ("insert_us", 21.0, "insert 21 us over 20"),
        ("delete_us", 21.0, "delete 21 us over 20"),
    ],
)
def test_building_memory_and_changes_have_limits_for_large_sets(figure: str, value: float, missed: str) -> None:
    figures = {**FIGURES, "scan_us": 1e6, figure: value}
    assert matching.Measurement("W4", 100_000, figures).missed() == [missed]
    assert matching.Measurement("W4", 10_000, figures).missed() == []


def test_strict_makes_a_missed_target_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = matching.Measurement("W1", 1_000, {**FIGURES, "us": 10.0})
    monkeypatch.setattr(matching, "measure", lambda *_: iter([slow]))
    assert main(["matching"]) == 0
    assert main(["matching", "--strict"]) == 1
    captured = capsys.readouterr()
    assert captured.err == "target missed: W1 1,000: 5 times instead of 9\n" * 2
    assert captured.out.count("|   no |") + captured.out.count("| no |") == 2


# ---- whole runs


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for workloads and compiled programs."""
    return str(tmp_path_factory.mktemp("data"))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures next to nothing, with programs that are compiled fast rather than well."""
    monkeypatch.setattr(programs, "FLAGS", ("-std=c11", "-O1", "-ffp-contract=off"))
    monkeypatch.setattr(matching, "QUICK", matching.Effort(0.01, 1))
    monkeypatch.setattr(matching, "QUICK_LIMIT", 1_000)
    monkeypatch.setattr(json_door, "SIZE", 1_000)
    monkeypatch.setattr(json_door, "ROUNDS", 1)
    monkeypatch.setattr(forest, "SIZES", (60,))
    monkeypatch.setattr(forest, "REQUIRED_US", {60: 10_000.0})
    monkeypatch.setattr(forest, "READINGS", 20)
    monkeypatch.setattr(forest, "ROUNDS", 1)


@pytest.mark.needs("cc")
@pytest.mark.usefixtures("hasty")
def test_matching_measures_checks_and_prints(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["matching", "--quick", "--only", "W1", "--data", data, "--json"]) == 0
    captured = capsys.readouterr()
    (row,) = json.loads(captured.out)["matching"]
    assert (row["workload"], row["size"], row["required"]) == ("W1", 1_000, targets.REQUIRED_RATIO["W1", 1_000])
    assert row["matches_per_event"] == pytest.approx(384.46)
    assert "measuring W1 with 1,000 subscriptions" in captured.err


@pytest.mark.needs("cc")
@pytest.mark.usefixtures("hasty")
def test_a_wrong_answer_is_exit_code_3(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def empty_oracle(*_: object) -> Path:
        (tmp_path / "none").write_bytes(bytes(16 * 10_000))
        return tmp_path / "none"

    monkeypatch.setattr(matching, "_oracle", empty_oracle)
    assert main(["matching", "--quick", "--only", "W1", "--data", data]) == 3
    assert "events match something else than the scan" in capsys.readouterr().err


@pytest.mark.needs("cc")
@pytest.mark.usefixtures("hasty")
def test_the_json_door_and_missing_attributes_are_measured(data: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["json", "--data", data]) == 0
    out = capsys.readouterr().out
    assert "a reading of 200 bytes" in out
    assert "5 are known, 60 are known" in out
    assert "one thread, two threads" in out


@pytest.mark.usefixtures("hasty")
def test_the_forest_is_measured_next_to_lists_with_and_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("<!-- bench:forest --><!-- /bench:forest -->")
    monkeypatch.setattr(command, "_README", readme)
    assert main(["forest", "--update-readme", "--strict"]) == 0
    out = capsys.readouterr().out
    assert "us a reading" in out
    assert out.strip() in readme.read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("| 60 ")]
    assert [row[1].split()[-1] for row in rows] == ["list", "roots", "list", "forest"] * 2
    assert all(float(row[2]) > 0 for row in rows)


@given(st.randoms())
def test_all_structures_of_the_forests_bench_find_a_match_for_the_same_readings(rng: random.Random) -> None:
    conditions = forest.similar_filters(30, rng.randrange(1000)) + forest.selective_filters(30, rng.randrange(1000))
    structures: list[forest.Structure] = [forest.PlainList(), FilterList(), Forest()]
    for place, condition in enumerate(conditions):
        for each in structures:
            each.add(str(place), condition)
    for gone in rng.sample(range(len(conditions)), 20):
        for each in structures:
            each.remove(str(gone))
    for reading in forest.similar_readings(50, rng.randrange(1000)):
        assert len({each.first_match(reading) is None for each in structures}) == 1


def test_an_unknown_bench_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["matchng"])
    assert stop.value.code == 2
    assert "matchng" in capsys.readouterr().err


def test_a_measurement_can_be_kept_as_json() -> None:
    assert json.loads(json.dumps(matching.Measurement("W1", 1_000, FIGURES).as_json()))["ratio"] == 50
