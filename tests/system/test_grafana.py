"""cloud/grafana/spinney.json: every metric and label in it is one that a running cloud prints."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import promql_parser
import pytest
from clouds import ANY_PORTS, Cloud
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

FILE = Path(__file__).parents[2] / "cloud" / "grafana" / "spinney.json"
CLOUD = [sys.executable, "-m", "spinney_tools", "cloud"]
PIPELINE = "spinney_pipeline_"
FROM_PROMETHEUS = {"job", "instance"}
"""Labels that it adds itself."""


@pytest.fixture(scope="module")
def board() -> dict[str, Any]:
    found = json.loads(FILE.read_text())
    assert isinstance(found, dict)
    return found


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def expressions(board: dict[str, Any]) -> Iterator[str]:
    """As Grafana sends them, its own variables filled in."""
    for panel in panels(board):
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")


def selected(expression: str) -> Iterator[str]:
    """The names of the metrics in it."""
    return iter(re.findall(r"\bspinney_\w+", expression))


@pytest.mark.slow
def test_every_metric_is_one_that_a_running_cloud_prints(board: dict[str, Any], tmp_path: Path) -> None:
    with Cloud(tmp_path / "data", program=CLOUD, ports=ANY_PORTS) as cloud:
        http = re.search(r"HTTP (\S+?),", cloud.ready_line)
        assert http
        httpx.get(f"{http[1]}/healthz", timeout=60)  # there are no times of requests before the first
        text = httpx.get(f"{http[1]}/metrics", timeout=60).text
    used = [expression for expression in expressions(board) if PIPELINE not in expression]
    assert len(used) > 30
    check(used, text)


def test_every_metric_of_the_pipeline_is_one_that_it_prints(board: dict[str, Any]) -> None:
    pytest.importorskip("pyspark")
    from spinney_cloud.pipeline.metrics import Done, Look, PipelineMetrics, Seen, Status

    registry = CollectorRegistry()
    registry.register(PipelineMetrics(lambda: Seen(Status(), Look(), Done(), None, None)))
    used = [expression for expression in expressions(board) if PIPELINE in expression]
    assert used
    check(used, generate_latest(registry).decode(), {"query"})


def check(used: list[str], text: str, known: set[str] = FROM_PROMETHEUS) -> None:
    """Each metric in the expressions is printed, with the labels that they ask for."""
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        # A family without samples is printed, too: it has none before something happens.
        labels.setdefault(family.name if family.type != "counter" else f"{family.name}_total", set())
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for expression in used:
        by = {label for group in re.findall(r"by \(([\w, ]+)\)", expression) for label in group.split(", ")}
        for name in selected(expression):
            assert name in labels, expression
            assert by <= labels[name] | known, expression


def test_every_expression_is_promql(board: dict[str, Any]) -> None:
    for expression in expressions(board):
        promql_parser.parse(expression)


def test_a_panel_names_only_labels_that_its_expression_keeps(board: dict[str, Any]) -> None:
    for panel in panels(board):
        for target in panel["targets"]:
            for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                assert re.search(rf"by \([^)]*\b{label}\b", target["expr"]), panel["title"]


def test_it_can_be_imported_anywhere(board: dict[str, Any]) -> None:
    """The data source is asked for, nothing is of one installation; panels have ids of their own and do not overlap."""
    names = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert names["source"]["type"] == "datasource"
    assert "id" not in board
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in panels(board):
        assert panel["datasource"]["uid"] == "${source}"
        assert panel["title"]
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert grid["x"] + grid["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells
    rows = [panel["gridPos"]["y"] for panel in board["panels"]]
    assert all(first <= second for first, second in pairwise(rows))
