"""The shared vectors, through the reference and through the matcher in C and in pure Python (promise 4)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spinney import native, parse_filter
from spinney.evaluate import Verdict
from spinney.matcher import Matcher
from spinney_tools import make_vectors

FOLDER = Path(__file__).parents[1] / "vectors"
Vector = dict[str, Any]


def load(name: str) -> list[Vector]:
    vectors: list[Vector] = json.loads((FOLDER / name).read_text(encoding="utf-8"))
    return vectors


NAMED, GENERATED = load("named.json"), load("generated.json")


def verdict_and_why(vector: Vector) -> tuple[Verdict, list[list[Any]]]:
    explanation = parse_filter(vector["filter"]).explain(vector["publication"])
    return explanation.verdict, [[part.text, part.verdict] for part in explanation.reasons()]


@pytest.mark.parametrize("vector", NAMED, ids=[vector["name"] for vector in NAMED])
def test_named(vector: Vector) -> None:
    assert verdict_and_why(vector) == (vector["verdict"], vector["why"])
    condition = parse_filter(vector["filter"])
    assert condition.evaluate(vector["publication"]) is vector["verdict"]
    assert parse_filter(condition.to_json()) == condition


def test_generated() -> None:
    wrong = [vector for vector in GENERATED if verdict_and_why(vector) != (vector["verdict"], vector["why"])]
    assert not wrong, f"{len(wrong)}, the first: {wrong[0]}"


def test_the_generated_file_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert make_vectors.main(["--check"]) == 0, capsys.readouterr().out


def test_named_vectors_cite_what_they_show_and_have_their_own_names() -> None:
    assert len(NAMED) >= 200
    assert len({vector["name"] for vector in NAMED}) == len(NAMED)
    assert all(list(vector) == ["name", "cites", "filter", "publication", "verdict", "why"] for vector in NAMED)
    assert all(vector["cites"] for vector in NAMED)


def test_generated_vectors_are_balanced() -> None:
    assert len(GENERATED) >= 2000
    assert {vector["kind"] for vector in GENERATED} == set(make_vectors.KINDS)
    counts = Counter(vector["verdict"] for vector in GENERATED)
    assert min(counts[True], counts[False]) > len(GENERATED) * 0.35
    assert counts[None] > len(GENERATED) * 0.1
    for kind in make_vectors.KINDS.keys() - {"is null"}:
        assert len({vector["verdict"] for vector in GENERATED if vector["kind"] == kind}) == 3


@pytest.mark.parametrize("in_c", [True, False], ids=["in C", "in pure Python"])
def test_the_matcher_matches_what_is_true(in_c: bool) -> None:
    """All filters at once, so that each publication is matched against those of all other vectors too."""
    if in_c and native.core() is None:
        pytest.skip("the C core is not there")
    vectors = NAMED + GENERATED
    matcher = Matcher(native=in_c)
    for i, vector in enumerate(vectors):
        matcher.add(str(i), parse_filter(vector["filter"]))
    for i, vector in enumerate(vectors):
        matched = matcher.match(vector["publication"])
        assert (str(i) in matched) is (vector["verdict"] is True), vector


@pytest.mark.parametrize("in_c", [True, False], ids=["in C", "in pure Python"])
def test_the_matcher_matches_json_alike(in_c: bool) -> None:
    if in_c and native.core() is None:
        pytest.skip("the C core is not there")
    for vector in NAMED + GENERATED[::10]:
        matcher = Matcher(native=in_c)
        matcher.add("it", parse_filter(vector["filter"]))
        source = json.dumps(vector["publication"]).encode()
        assert (matcher.match_json(source) != []) is (vector["verdict"] is True), vector
