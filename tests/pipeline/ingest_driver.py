"""An ingest and matching in a process to be killed: `ingest_driver.py URL FOLDER END`. Says how far both are."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from spinney_cloud.pipeline.direct_get import LogServer
from spinney_cloud.pipeline.ingest import Ingest, IngestError, Plan
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.matching_query import Matching, MatchingPlan
from spinney_cloud.pipeline.scan import Limits
from spinney_cloud.pipeline.session import session, stop
from spinney_cloud.pipeline.subscriptions import Where

QUICK_START = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}
LIMITS = Limits(40_000)


def main(url: str, folder: Path, end: int) -> int:
    spark = session("ingest", folder / "spark", heap="1g", conf=QUICK_START)
    server, lake = LogServer(url), folder / "lake"
    ingest = Ingest(spark, Lake(lake), Plan(server, limits=LIMITS, trigger_seconds=0))
    plan = MatchingPlan(Where(server, str(lake)), str(folder / "matching"), limits=LIMITS, trigger_seconds=0)
    matching = Matching(spark, plan)
    failed: list[str] = []

    def run(query: Ingest | Matching) -> None:
        try:
            query.start()
            query.wait()
        except IngestError as error:
            failed.append(str(error))
            print("ended:", error, flush=True)
        finally:
            ended.release()

    ended = threading.Semaphore(0)
    for query in (ingest, matching):
        threading.Thread(target=run, args=(query,)).start()
    said = -1
    while not ended.acquire(timeout=0.02):
        place = min(ingest.status.sequence, matching.status.sequence)
        if place != said:
            said = place
            print(said, flush=True)
        if said >= end:
            break
    ingest.stop()
    matching.stop()
    if failed:
        return 3
    for _ in range(2):
        ended.acquire()
    stop(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
