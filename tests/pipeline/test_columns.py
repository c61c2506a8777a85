"""Filters as Spark Columns: the reference's verdicts on every shared vector, and what is pushed down to the files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from spinney import parse_filter
from spinney.expression import Filter
from spinney_cloud.pipeline.columns import compile_filter
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
    columns = [compile_filter(one).column.alias(f"f{at}") for at, one in enumerate(filters)]
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
    vectors = [v for name in ("named", "generated") for v in json.loads((FOLDER / f"{name}.json").read_text("utf-8"))]
    left_out = [vector for vector in vectors if not usable(vector)]
    assert len(left_out) < len(vectors) / 10
    by_filter: dict[str, list[dict[str, Any]]] = {}
    for vector in vectors:
        if usable(vector):
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
