"""Whether every executor of a cluster sees the lake, asked before the first batch.

An executor that comes later is asked by its own first task (`place.require`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from .place import LakeNotShared, Place, problem_of, told

MAX_ROUNDS = 5
"""Spark gives tasks to whom it likes; with one task for each executor, the first round mostly meets all."""


def check_executors(spark: SparkSession, place: Place) -> None:
    """LakeNotShared if an executor does not see the lake. Without a cluster there is nothing to ask."""
    if (spark.sparkContext.master or "").partition("[")[0] == "local":
        return
    met: dict[tuple[str, int], str] = {}
    for _ in range(MAX_ROUNDS):
        count = max(1, _executors(spark))
        asked = spark.sparkContext.parallelize(range(count), count).mapPartitions(_Look(place))
        met |= dict(asked.collect())
        if problems := {host: problem for (host, _), problem in met.items() if problem}:
            raise LakeNotShared(told(place.lake, problems))
        if len(met) >= _executors(spark):
            return


def _executors(spark: SparkSession) -> int:
    """As Spark knows them now; the driver is one of those that it counts."""
    context: Any = spark.sparkContext._jsc
    return len(context.sc().statusTracker().getExecutorInfos()) - 1


class _Look:
    """Run by a task: which executor it is (its worker's parent serves one), and what keeps it from writing."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __call__(self, _: Iterable[int]) -> Iterator[tuple[tuple[str, int], str]]:
        yield (socket.gethostname(), os.getppid()), problem_of(self._place)
