"""An ingest in a process of its own, to be killed: `ingest_driver.py URL LAKE END`. Says how far it is in the log."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from spinney_cloud.pipeline.direct_get import LogServer
from spinney_cloud.pipeline.ingest import Ingest, IngestError, Plan
from spinney_cloud.pipeline.lake import Lake
from spinney_cloud.pipeline.scan import Limits
from spinney_cloud.pipeline.session import session, stop

QUICK_START = {"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"}


def main(url: str, lake: str, end: int) -> int:
    spark = session("ingest", Path(lake).parent / "spark", heap="1g", conf=QUICK_START)
    ingest = Ingest(spark, Lake(lake), Plan(LogServer(url), limits=Limits(40_000), trigger_seconds=0))
    ingest.start()

    def watch() -> None:
        said = -1
        while not ended.wait(0.02):
            if ingest.status.sequence != said:
                said = ingest.status.sequence
                print(said, flush=True)
            if said >= end:
                ingest.stop()
                return

    ended = threading.Event()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        ingest.wait()
    except IngestError as error:
        print("ended:", error, flush=True)
        return 3
    finally:
        ended.set()
    stop(spark)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
