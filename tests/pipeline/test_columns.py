"""Filters as Spark Columns: the reference's verdicts on every shared vector, and what is pushed down to the files."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import city
from pyspark.sql import DataFrame, SparkSession
from replay_kit import Entry, lake_of

from spinney import parse_filter
from spinney.expression import Filter
from spinney_cloud.cells import cell_at
from spinney_cloud.pipeline import lake as lake_module
from spinney_cloud.pipeline.columns import compile_filter, compile_filters, where
from spinney_cloud.pipeline.columns_bounds import implied
from spinney_cloud.pipeline.decode import flat
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.row_groups import groups_of
from spinney_cloud.pipeline.schema import COLUMNS, PUBLICATIONS, ddl

FOLDER = Path(__file__).parents[1] / "vectors"
AT_ONCE = 220
"""Filters in one query."""
_KEPT = ("id", "source", *COLUMNS, "numbers", "texts", "flags")
SCHEMA = pa.schema([PUBLICATIONS.field(name) for name in _KEPT])


def stored(publication: dict[str, Any]) -> dict[str, Any]:
    """As the lake has it; groups_of is what the decoder uses."""
    (group,) = groups_of([publication])
    row: dict[str, Any] = {name: publication.get(name) for name in ("id", "source")}
    row |= {name: values[0] for name, values in group.fixed.items()}
    for kind in ("numbers", "texts", "flags"):
        row[kind] = [(name, values[0]) for name, values in getattr(group, kind).items()]
    return row


def frame(spark: SparkSession, publications: Sequence[dict[str, Any]]) -> DataFrame:
    rows = [{"at": at, **stored(one)} for at, one in enumerate(publications)]
    for row in rows:
        row["numbers"] = [(name, float(value)) for name, value in row["numbers"]]
    table = pa.Table.from_pylist(rows, pa.schema([("at", pa.int64()), *SCHEMA]))
    return spark.createDataFrame(table, schema=f"at bigint, {ddl(SCHEMA)}").coalesce(1)


def verdicts(
    spark: SparkSession, filters: Sequence[Filter], publications: Sequence[dict[str, Any]]
) -> list[list[bool | None]]:
    """By filter, of each publication."""
    columns = [one.column.alias(f"f{at}") for at, one in enumerate(compile_filters(filters))]
    found = frame(spark, publications).select("at", *columns).orderBy("at").toArrow()
    return [found[f"f{at}"].to_pylist() for at in range(len(filters))]


def usable(vector: dict[str, Any]) -> bool:
    """Whether a publication of this kind comes through the doors: reserved attributes are of their types."""
    kinds = {"time": (int, float), "lat": (int, float), "long": (int, float), "type": str, "id": str, "source": str}
    return all(
        value is None or (isinstance(value, kinds[name]) and not isinstance(value, bool))
        for name, value in vector["publication"].items()
        if name in kinds
    )


def all_vectors() -> list[dict[str, Any]]:
    """Those whose publications come through the doors: nearly all."""
    found = [v for name in ("named", "generated") for v in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))]
    some = [vector for vector in found if usable(vector)]
    assert len(some) > 0.9 * len(found)
    return some


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """Without compiling each query to Java: there are a thousand filters, and a row or two for each."""
    settings = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, str(value))


def test_every_shared_vector_has_the_reference_s_verdict(interpreted: SparkSession) -> None:
    spark = interpreted
    by_filter: dict[str, list[dict[str, Any]]] = {}
    for vector in all_vectors():
        by_filter.setdefault(vector["filter"], []).append(vector)
    texts = list(by_filter)
    wrong = []
    for start in range(0, len(texts), AT_ONCE):
        some = texts[start : start + AT_ONCE]
        mine = [vector for text in some for vector in by_filter[text]]
        found = verdicts(spark, [parse_filter(text) for text in some], [vector["publication"] for vector in mine])
        by_text = dict(zip(some, found, strict=True))
        wrong += [
            (vector["filter"], vector["publication"], vector["verdict"], by_text[vector["filter"]][at])
            for at, vector in enumerate(mine)
            if by_text[vector["filter"]][at] is not vector["verdict"]
        ]
    assert not wrong, f"{len(wrong)}, the first: {wrong[0]}"


def of_one(spark: SparkSession, text: str, publication: dict[str, Any]) -> bool | None:
    ((verdict,),) = verdicts(spark, [parse_filter(text)], [publication])
    return verdict


def test_what_is_no_number_is_not_there(spark: SparkSession) -> None:
    """No door lets it in; Spark would take NaN for the greatest number of all."""
    texts = ["a > 5", "NOT a > 5", "a IS NULL", "a + 1 > 5", "lat > 45", "NOT lat > 45", "a IN (1, 2)"]
    publications = [{"a": math.nan, "lat": math.nan}, {"a": math.inf, "lat": -math.inf}]
    found = verdicts(spark, [parse_filter(text) for text in texts], publications)
    assert found == [[None] * 2, [None] * 2, [True] * 2, [None] * 2, [None] * 2, [None] * 2, [None] * 2]


def test_large_filters(spark: SparkSession) -> None:
    many = " OR ".join(f"a = {number} AND b > {number}" for number in range(100))
    texts = [many, f"a IN ({', '.join(map(str, range(500)))}, 0)", "(" * 90 + "a" + " + 1)" * 90 + " > 89"]
    found = verdicts(
        spark, [parse_filter(text) for text in texts], [{"a": -0.0, "b": 1}, {"a": 99, "b": 5}, {"a": "x"}]
    )
    assert found == [[True, False, None], [True, True, None], [True, True, None]]


@pytest.mark.parametrize(
    ("text", "by_core"),
    [
        ("a > 1 AND NOT b LIKE 'x%' AND lat BETWEEN 1 AND 2 AND S_WITHIN(location, BBOX(1, 1, 2, 2))", ()),
        ("a > 1 AND (CASEI(b) = 'x' OR c < 2)", ("CASEI(b) = 'x'",)),
        ("distance(lat, long, 45.8, 15.9) < 100 AND a ^ 2 > 4 AND a ^ 5 > 4", None),
    ],
)
def test_the_core_evaluates_what_no_column_says_and_no_more(
    spark: SparkSession, text: str, by_core: tuple[str, ...] | None
) -> None:
    assert spark is not None
    found = compile_filter(parse_filter(text)).by_core
    if by_core is None:
        by_core = tuple(parse_filter(each).to_text() for each in ("distance(lat, long, 45.8, 15.9) < 100", "a ^ 5 > 4"))
    assert found == by_core


# ---- what is pushed down


def place_of(publication: dict[str, Any]) -> dict[str, Any]:
    """A row with its cell, as the lake has it."""
    row = stored(publication)
    lat, long = row.get("lat"), row.get("long")
    located = lat is not None and long is not None and -90 <= lat <= 90 and -180 <= long <= 180
    return {**row, "cell": cell_at(lat, long, 9) if located else None}


def test_what_is_implied_holds_wherever_the_filter_is_true() -> None:
    true = [vector for vector in all_vectors() if vector["verdict"] is True]
    schema = pa.schema([*SCHEMA, PUBLICATIONS.field("cell")])
    said = 0
    for vector in true:
        pushed = implied(parse_filter(vector["filter"]), ds.field)
        row = place_of(vector["publication"])
        row["numbers"] = [(name, float(value)) for name, value in row["numbers"]]
        if pushed is not None:
            said += 1
            assert pa.Table.from_pylist([row], schema).filter(pushed).num_rows == 1, vector["filter"]
    assert said > 50


@given(st.floats(-79, 79), st.floats(-178, 178), st.floats(0.0001, 0.1), st.floats(0, 1), st.floats(0, 1))
def test_a_small_place_is_said_in_cells(south: float, west: float, size: float, x: float, y: float) -> None:
    north, east = south + size, west + size
    pushed = implied(parse_filter(f"S_INTERSECTS(location, BBOX({west!r}, {south!r}, {east!r}, {north!r}))"), ds.field)
    lat, long = min(south + y * size, north), min(west + x * size, east)
    here = pa.table({"lat": [lat], "long": [long], "cell": [cell_at(lat, long, 9)]})
    assert here.filter(pushed).num_rows == 1
    far = pa.table({"lat": [lat], "long": [long], "cell": [cell_at(lat + 1, long, 9)]})
    assert far.filter(pushed).num_rows == (0 if "cell" in str(pushed) else 1)


@pytest.mark.parametrize(
    "text",
    [
        "lat > 45.84 AND NO2 >= 0",
        "S_WITHIN(location, BBOX(15.90, 45.75, 15.94, 45.79)) AND CASEI(room) LIKE 'room%'",
        "type = 'air/no2' AND long < 15.91",
    ],
)
def test_spark_reads_no_more_of_the_files_than_it_must(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setattr(lake_module, "_PROPERTIES", lake_module.WriterProperties(max_row_group_size=100))
    lake = Lake(tmp_path)
    log = [Entry(20_000 * 86_400.0 + at * 900, record) for at, record in enumerate(city(120, rows=50))]
    lake_of(tmp_path, log).compact()
    condition = parse_filter(text)
    found = where(lake.frame(spark), condition)
    rows = sorted(row.id for row in found.collect())
    readings = [flat(row) for row in lake.dataset().to_table().to_pylist()]
    assert rows == sorted(one["id"] for one in readings if condition.evaluate(one) is True)
    assert rows
    scan = found._jdf.queryExecution().executedPlan().collectLeaves().head()
    assert 0 < scan.metrics().get("numOutputRows").get().value() < len(readings) / 2
