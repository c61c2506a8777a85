"""Matching on a cluster of two executors that get this package as a wheel: `cluster_driver.py URL FOLDER WHEEL END`.

Prints, as JSON, where the executors have the package from, and answers the log up to END.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spinney_cloud.pipeline.direct_get import LogServer
from spinney_cloud.pipeline.matching_query import Matching, MatchingPlan
from spinney_cloud.pipeline.matching_wheel import from_wheel
from spinney_cloud.pipeline.session import session, stop
from spinney_cloud.pipeline.subscriptions import Where

QUICK = {"spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
"""The driver's comes with the environment (see conftest.py)."""
EXECUTORS = 2


def look(_: Any) -> Iterator[tuple[str, str, bool]]:
    """Run by each executor, at the same time."""

    from pyspark import BarrierTaskContext

    import spinney
    from spinney import Matcher

    context = BarrierTaskContext.get()
    context.barrier()  # so that each has one
    yield str(Path.cwd()), spinney.__file__, Matcher().native


def main(url: str, folder: Path, wheel: Path, end: int) -> int:
    conf = {**from_wheel(wheel, folder / "spark"), **QUICK, "spark.executor.memory": "512m"}
    spark = session("cluster", folder / "spark", master=f"local-cluster[{EXECUTORS},1,512]", heap="512m", conf=conf)
    found = spark.sparkContext.parallelize(range(EXECUTORS), EXECUTORS).barrier().mapPartitions(look).collect()
    where = Where(LogServer(url), str(folder / "lake"))
    matching = Matching(spark, MatchingPlan(where, str(folder / "matching"), once=True))
    matching.start()
    matching.wait()
    print(json.dumps({"executors": found, "sequence": matching.status.sequence}))
    stop(spark)
    return 0 if matching.status.sequence >= end else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
